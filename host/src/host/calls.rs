//! Calls, the clock, and how messages get executed.

use std::time::{Duration, SystemTime};

use candid::Principal;

use super::Host;
use crate::call_context::MessageId;
use crate::reject::RejectResponse;
use crate::rounds::Round;

/// Messages that one [`Host::tick`] executes at most, lest canisters that call each other without end block it.
const MAX_PER_TICK: usize = 10_000;

impl Host {
    /// Calls an update method and executes messages until it is answered.
    ///
    /// # Errors
    /// When the call is refused or rejected, traps, or can't be answered.
    pub fn update_call(
        &self,
        canister: Principal,
        sender: Principal,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, RejectResponse> {
        let mut subnet = self.subnet();
        let id = subnet.submit(canister, sender, method, payload)?;
        subnet.wait_for(id)
    }

    /// Calls a query method; no message is executed and nothing changes. A query sees the time of the last round: the clock as it was when a
    /// message was last executed, or [`Host::tick`] or [`Host::step`] called.
    ///
    /// # Errors
    /// When the call is refused or rejected, or traps.
    pub fn query_call(
        &self,
        canister: Principal,
        sender: Principal,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, RejectResponse> {
        self.subnet().query(canister, sender, method, payload)
    }

    /// Puts a call of an update method into the queue, once `canister_inspect_message` has accepted it.
    ///
    /// # Errors
    /// When the call is refused.
    pub fn submit_call(
        &self,
        canister: Principal,
        sender: Principal,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<MessageId, RejectResponse> {
        self.subnet().submit(canister, sender, method, payload)
    }

    /// Executes messages until a submitted call is answered, and takes the answer.
    ///
    /// # Errors
    /// When the call is rejected, traps, or can't be answered.
    pub fn await_call(&self, id: MessageId) -> Result<Vec<u8>, RejectResponse> {
        self.subnet().wait_for(id)
    }

    /// The answer of a submitted call, if it is there; nothing is executed and the answer stays.
    pub fn ingress_status(&self, id: MessageId) -> Option<Result<Vec<u8>, RejectResponse>> {
        self.subnet().shared.answers.get(&id).cloned()
    }

    /// Lets every timer that is due fire once, and executes all messages that wait or come of it.
    pub fn tick(&self) {
        let mut subnet = self.subnet();
        subnet.begin_round();
        subnet.leave_rounds();
        subnet.queue_due_timers();
        for _ in 0..MAX_PER_TICK {
            subnet.apply_faults();
            if !subnet.step_queue() {
                return;
            }
        }
    }

    /// Executes exactly one message that waits, or one timer that is due, and says whether there was one. Whatever a
    /// test does between two steps happens between two messages.
    pub fn step(&self) -> bool {
        self.subnet().step()
    }

    /// Runs a round, as a loaded subnet does: moves the clock by [`Limits::round_duration`](crate::Limits::round_duration),
    /// puts every timer that is due into the queue once, and executes messages first in, first out, until the round has no
    /// instructions ([`Limits::round_instructions`](crate::Limits::round_instructions)) or no pages to dirty
    /// ([`Limits::round_dirty_bytes`](crate::Limits::round_dirty_bytes)) left. A message that needs more goes on in the
    /// next rounds, and nothing else runs until it has ended; only then are its calls answered and made.
    ///
    /// Calls that are to arrive for a round are submitted before it: [`Host::submit_call`]. Whatever else executes
    /// messages ([`Host::step`], [`Host::tick`], [`Host::update_call`], [`Host::await_call`] of a call that isn't answered)
    /// first ends a message that is in progress.
    pub fn run_round(&self) -> Round {
        self.subnet().run_round()
    }

    /// Messages that wait; a timer that is due isn't one before it is queued by a step.
    pub fn pending_messages(&self) -> usize {
        self.subnet().shared.queue.len()
    }

    /// Moves the clock on and charges for storage; executes nothing, so that queries see it after the next round.
    pub fn advance_time(&self, duration: Duration) {
        let mut subnet = self.subnet();
        let time = subnet.shared.time.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        subnet.set_time(time);
    }

    /// Sets the clock and charges for storage, if it goes forward; executes nothing. Times before 1970 count as 1970.
    pub fn set_time(&self, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.subnet().set_time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The clock. It only moves when it is told to.
    pub fn get_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.get_time_nanos())
    }

    /// The clock, in nanoseconds since 1970.
    pub fn get_time_nanos(&self) -> u64 {
        self.subnet().shared.time
    }
}

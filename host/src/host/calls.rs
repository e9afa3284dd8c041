//! Calls, the clock, and how messages get executed.

use std::time::{Duration, SystemTime};

use candid::Principal;

use super::Host;
use crate::call_context::MessageId;
use crate::reject::RejectResponse;
use crate::rounds::Round;

/// Most messages that one [`Host::tick`] executes, in case canisters call each other without end.
const MAX_PER_TICK: usize = 10_000;

impl Host {
    /// Calls an update method and executes messages until it is answered.
    ///
    /// # Errors
    /// When the call is refused or rejected, traps, or cannot be answered.
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

    /// Calls a query method, without executing messages or changing anything. A query sees the time of the last round: the clock when a
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

    /// Puts an update call into the queue, after `canister_inspect_message` has accepted it.
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

    /// Returns the answer of a submitted call, if there is one. Executes nothing, and keeps the answer.
    pub fn ingress_status(&self, id: MessageId) -> Option<Result<Vec<u8>, RejectResponse>> {
        self.subnet().shared.answers.get(&id).cloned()
    }

    /// Fires every due timer once, and executes all waiting messages and those that result from them.
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

    /// Executes exactly one waiting message or one due timer, and returns whether there was one. Between two steps, a test can act between
    /// two messages.
    pub fn step(&self) -> bool {
        self.subnet().step()
    }

    /// Runs a round, as a loaded subnet does:
    ///
    /// 1. It moves the clock by [`Limits::round_duration`](crate::Limits::round_duration).
    /// 2. It puts every due timer into the queue once.
    /// 3. It executes messages first in, first out, until it has used up its instructions
    ///    ([`Limits::round_instructions`](crate::Limits::round_instructions)) or dirtied pages
    ///    ([`Limits::round_dirty_bytes`](crate::Limits::round_dirty_bytes)).
    ///
    /// A message that needs more continues in the next rounds, and nothing else runs until it has ended; only then do its answers and calls
    /// take effect.
    ///
    /// Submit calls that must arrive for a round before it: [`Host::submit_call`]. Any other method that executes messages ([`Host::step`],
    /// [`Host::tick`], [`Host::update_call`], [`Host::await_call`] of an unanswered call) first ends a message in progress.
    pub fn run_round(&self) -> Round {
        self.subnet().run_round()
    }

    /// Returns the number of waiting messages. A due timer counts once a step has queued it.
    pub fn pending_messages(&self) -> usize {
        self.subnet().shared.queue.len()
    }

    /// Advances the clock and charges for storage. Executes nothing, so queries see the new time after the next round.
    pub fn advance_time(&self, duration: Duration) {
        let mut subnet = self.subnet();
        let time = subnet.shared.time.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        subnet.set_time(time);
    }

    /// Sets the clock and, if it moves forward, charges for storage. Executes nothing. Times before 1970 count as 1970.
    pub fn set_time(&self, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.subnet().set_time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the clock, which moves only on request.
    pub fn get_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.get_time_nanos())
    }

    /// Returns the clock, in nanoseconds since 1970.
    pub fn get_time_nanos(&self) -> u64 {
        self.subnet().shared.time
    }
}

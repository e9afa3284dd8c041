//! The timers. For blocks a one-shot that is armed where work becomes due, or is left, and an interval timer of ten minutes as
//! the net behind it: a one-shot that traps is lost, an interval timer is not. So who has nothing to do pays for the net only.
//! For UTXO records an interval timer while there is a job, so that each has a message of its own. For the deletion queue a one-shot
//! while there is a lease, or a row that backs off; the net looks after it, too.
//!
//! Where cycles are low the net is all there is, and where they do not pay for three calls of a timer not even that: `ic-cdk-timers`
//! puts a timer whose call cannot be paid back at its past time, and fires in each round then, until the canister is frozen. The
//! net notices cycles that are there again, else the next message does: the platform says nothing to a canister that it tops up.
//!
//! Timers are lost on an upgrade, so they are armed at installation and after an upgrade. Missed intervals are replayed by
//! `ic-cdk-timers`; a firing with nothing to do costs little.

use super::clock::{ARMED, DELETIONS_AT, NET_AT, QUEUE_SECS, RECORDS_EVERY, overdue};
use crate::operation::sampling;
use crate::platform::cycles::{self, Pause};
use crate::platform::limits::NS;
use crate::platform::meter::{Hot, count};
use crate::platform::timers::Timer;
use crate::platform::{self};
use crate::pruning::blocks::Next;
use crate::storage::memory::{self, growth};
use crate::text::refusal;
use crate::{logs, state};
use coppice_interface::{HeldBy, NET_SECS};
use std::cell::Cell;

/// Seconds between two tries to grow memory that a tick wants, should growing trap.
const GROWTH_SECS: u64 = 600;
/// Seconds within which calls of timers that fire together are done.
const ROUNDS_SECS: u64 = 2;

thread_local! {
    /// When memory that a tick wants was last to be grown, if it was not.
    static GROWTH_AT: Cell<Option<u64>> = const { Cell::new(None) };
    /// Since when a tick is due that has not ended.
    static DUE: Cell<Option<u64>> = const { Cell::new(None) };
    /// When the timer was due of which the log says that it is overdue.
    static SAID_OVERDUE: Cell<u64> = const { Cell::new(0) };
    /// The log says that memory cannot be grown.
    static SAID_REFUSED: Cell<bool> = const { Cell::new(false) };
    /// When each timer last fired, in nanoseconds since the Unix epoch.
    static FIRED_AT: Cell<[u64; Firing::ALL.len()]> = const { Cell::new([0; Firing::ALL.len()]) };
}

/// A timer whose work asks for the balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firing {
    Blocks,
    Net,
    Records,
    Deletions,
}

impl Firing {
    const ALL: [Self; 4] = [Self::Blocks, Self::Net, Self::Records, Self::Deletions];

    /// When it is due; none where it does not run.
    fn due(self) -> Option<u64> {
        match self {
            Self::Blocks => ARMED.get(),
            Self::Net => Some(NET_AT.get()).filter(|&at| at > 0),
            Self::Records => RECORDS_EVERY.get().map(|_| state::read(|state| state.utxo_pruner.next_tick())),
            Self::Deletions => DELETIONS_AT.get(),
        }
    }

    /// Does its work. Those that are due, or have fired a moment ago, have their calls under way, too.
    fn work(self, work: impl FnOnce()) {
        let now = platform::time_ns();
        let mut fired = FIRED_AT.get();
        fired[self as usize] = now;
        FIRED_AT.set(fired);
        let is_under_way = |other: Self| {
            fired[other as usize].saturating_add(ROUNDS_SECS * NS) >= now || other.due().is_some_and(|due| due <= now)
        };
        let others = Self::ALL.into_iter().filter(|&other| other != self && is_under_way(other)).count();
        cycles::in_timer(others as u32, work);
    }
}

/// Starts the timers for blocks, and looks soon whether there is anything to do.
pub fn arm() {
    cycles::set_pause(None);
    ARMED.set(None);
    GROWTH_AT.set(None);
    arm_net();
    arm_soon();
    judge(growth::set_aside_by_hooks());
}

fn arm_net() {
    Timer::Net.every(NET_SECS, tick_net);
    NET_AT.set(platform::time_ns() + NET_SECS * NS);
    cycles::learn();
}

/// Stops timers that the balance does not pay for, and starts them where it does again; and takes a sample. Each message that changes
/// something calls it: of a top-up no code of the canister is told. Ticks take the sample behind their work.
pub fn watch_cycles() {
    judge(0);
    sampling::note();
}

/// Stops, or starts, timers by what is liquid between messages, of which so much is set aside beyond what any message sets aside.
fn judge(set_aside: u128) {
    let liquid = cycles::between_updates().saturating_add(set_aside);
    cycles::note_liquid(liquid);
    let pause = if !cycles::pay_timers(liquid) {
        Some(Pause::UntilACall)
    } else if liquid < state::read(|state| state.config.min_liquid_cycles) {
        Some(Pause::UntilTheNet)
    } else {
        None
    };
    let before = cycles::set_pause(pause);
    if pause != before {
        change_pause(before, pause);
    }
}

#[cold]
fn change_pause(before: Option<Pause>, pause: Option<Pause>) {
    match pause {
        None => logs::info("daemon: cycles are there again: all timers run"),
        Some(Pause::UntilTheNet) => {
            logs::error("daemon: liquid cycles are below min_liquid_cycles: it comes round every ten minutes only")
        }
        Some(Pause::UntilACall) => logs::error("daemon: liquid cycles do not pay for timers: none runs"),
    }
    if pause.is_some() {
        Timer::Blocks.cancel();
        Timer::Deletions.cancel();
        ARMED.set(None);
        DUE.set(None);
        DELETIONS_AT.set(None);
    }
    if pause == Some(Pause::UntilACall) {
        Timer::Net.cancel();
        NET_AT.set(u64::MAX);
    } else if before == Some(Pause::UntilACall) {
        arm_net();
    }
    arm_soon();
    arm_uploads();
    arm_undo();
    arm_records();
    arm_deletions();
}

/// Forgets all timers, as an upgrade does.
#[cfg(test)]
pub fn forget() {
    cycles::forget();
    sampling::forget();
    GROWTH_AT.set(None);
    SAID_OVERDUE.set(0);
    SAID_REFUSED.set(false);
    RECORDS_EVERY.set(None);
    ARMED.set(None);
    DUE.set(None);
    DELETIONS_AT.set(None);
    NET_AT.set(0);
    FIRED_AT.set([0; Firing::ALL.len()]);
}

/// Has the daemon come round within the policy's interval, for whoever has made work due, or may have; wakes timers that are overdue.
pub fn arm_work() {
    // First: what is armed anew is not overdue any more, and nobody would see that the platform's timer is lost.
    watch();
    arm_soon();
}

/// Arms the timer to prune the blocks that an acknowledgement releases: at once while appends are refused and pruning can end that. Wakes
/// no overdue timer, because that would make each of many acknowledgements 1.3 % more expensive.
pub fn on_ack() {
    match state::read(|state| state.admission().exhausted) {
        Some(HeldBy::PruneLag) => arm_at(platform::time_ns()),
        _ => arm_soon(),
    }
}

fn arm_soon() {
    let interval = state::read(|state| state.pruner.interval_secs());
    arm_at(platform::time_ns() + interval * NS);
}

/// Has the daemon come round at `at`, in nanoseconds since the Unix epoch, or sooner. What lies behind the net's next firing is
/// left to that one, which asks again.
pub fn arm_at(at: u64) {
    let now = platform::time_ns();
    // What should have been done long ago is due from now on: who has not been waited for is not late.
    let net = net_at(now);
    let at = if cycles::pause().is_none() { at.max(now) } else { at.max(net) };
    if at < net && armed(now).is_none_or(|armed| at < armed) {
        let before = ARMED.replace(Some(at));
        note_due(at);
        Timer::Blocks.once(at - now, before.is_some_and(|before| before > now), move || tick(at));
    }
    if at >= net && at < u64::MAX {
        // A firing of the net sees to it, an interval behind its time at the most.
        note_due(at.saturating_add(NET_SECS * NS));
    }
    let next = armed(now).map_or(net, |armed| armed.min(net));
    state::mutate(|state| state.pruner.set_next_tick(next));
}

/// Notes that a tick is due at `at`.
fn note_due(at: u64) {
    DUE.set(Some(DUE.get().map_or(at, |due| due.min(at))));
}

/// When the net fires at the latest: one that is due waits for its message, or has trapped, and the next one counts.
fn net_at(now: u64) -> u64 {
    let at = NET_AT.get();
    if at > now { at } else { now + NET_SECS * NS }
}

/// When the one-shot fires. One that is due stands in the queue of a busy subnet, and must not be put off; one that is overdue may
/// have trapped, and another one comes beside it.
fn armed(now: u64) -> Option<u64> {
    let overdue = overdue_secs();
    ARMED.get().filter(|&armed| now <= armed.saturating_add(overdue * NS))
}

/// Seconds after which a timer that has not fired is taken for lost.
fn overdue_secs() -> u64 {
    QUEUE_SECS + state::read(|state| state.pruner.interval_secs())
}

/// Seconds behind its due time at which a tick takes it that those before it have trapped.
fn late_secs() -> u64 {
    (2 * state::read(|state| state.pruner.interval_secs())).max(2 * QUEUE_SECS)
}

/// Notes a producer's call to the chain: wakes timers that are overdue, and has the daemon see to what the call makes due.
pub fn on_call() {
    let now = platform::time_ns();
    watch_at(now);
    state::mutate(|state| state.pruner.note_call(now));
    // One that waits for the next block's age is no answer to what the call makes due.
    let soon = now.saturating_add(state::read(|state| state.pruner.interval_secs()) * NS);
    if armed(now).is_none_or(|armed| armed > soon) {
        arm_at(soon);
    }
}

/// Has the daemon look at the open uploads when they expire.
pub fn arm_uploads() {
    let expires = state::read(state::State::next_expiry);
    if let Some(secs) = expires {
        arm_at(secs.saturating_mul(NS));
    }
}

/// Has the daemon go on at once with what is under way in the chain.
pub fn arm_undo() {
    if state::read(|state| state.chain.is_under_way()) {
        arm_at(platform::time_ns());
    }
}

/// Runs the timer for records at the interval in force if there is a job. Stops it if there is no job, or deletions are stopped.
pub fn arm_records() {
    let of_job = |state: &state::State| state.utxo_pruner.interval_secs().filter(|_| state.deletions_stopped.is_none());
    let interval = state::read(of_job);
    run_records_every(interval.filter(|_| cycles::pause().is_none()));
}

fn run_records_every(interval: Option<u64>) {
    if RECORDS_EVERY.replace(interval) == interval {
        return;
    }
    let next = interval.map_or(0, |secs| platform::time_ns() + secs * NS);
    state::mutate(|state| state.utxo_pruner.set_next_tick(next));
    match interval {
        Some(secs) => Timer::Records.every(secs, tick_records),
        None => Timer::Records.cancel(),
    }
}

/// Has the timer for the deletion queue fire when time does something to it next. Where cycles are low each call on the queue sees to it,
/// and nothing else.
pub fn arm_deletions() {
    if cycles::pause().is_some() {
        return;
    }
    let now = platform::time_ns();
    // The platform's timer may be lost: see `watch`. Of the others' timers a worker wakes none.
    if let Some(due) = DELETIONS_AT.get().filter(|at| now.saturating_sub(*at) > QUEUE_SECS * NS) {
        wake(due, "deletion queue: its timer is overdue; woken");
    }
    let Some(at) = state::read(|state| state.deletions.next_event()) else { return };
    let at = at.max(now);
    let armed = DELETIONS_AT.get().filter(|armed| now <= armed.saturating_add(QUEUE_SECS * NS));
    if armed.is_some_and(|armed| armed <= at) {
        return;
    }
    let before = DELETIONS_AT.replace(Some(at));
    Timer::Deletions.once(at - now, before.is_some_and(|before| before > now), tick_deletions);
}

/// What a firing for the deletion queue does: leases that have expired are over, and rows wait again.
pub fn tick_deletions() {
    Firing::Deletions.work(|| {
        DELETIONS_AT.set(None);
        judge(0);
        let now = platform::time_ns();
        state::mutate(|state| state.deletions.tick(now));
        arm_deletions();
        sampling::note();
    });
}

/// Wakes the timers where one is overdue by more than an interval. The platform's timer is gone after a trap in
/// `canister_global_timer` itself; `ic-cdk-timers` believes it to be still set, so that arming anew does not help, and
/// nobody would see a daemon that silently died. Costs comparisons of times. Messages of producers and operators call
/// it; they do nothing of the daemon's work.
pub fn watch() {
    watch_at(platform::time_ns());
}

fn watch_at(now: u64) {
    if let Some((_, due)) = state::read(|state| overdue(state, now)) {
        wake(due, "prune: a timer is overdue; woken");
    }
}

/// Wakes the timers, and logs it once for what was due then.
#[cold]
fn wake(due: u64, line: &str) {
    if SAID_OVERDUE.replace(due) != due {
        logs::error(line);
    }
    platform::wake_timers();
}

/// What a firing of the net does. Of many missed intervals `ic-cdk-timers` skips some and counts the next from then: it comes an
/// interval from now at the latest.
fn tick_net() {
    let now = platform::time_ns();
    let planned = NET_AT.replace(now + NET_SECS * NS);
    cycles::learn();
    // Those between that one and now have trapped, or were missed.
    fire(Firing::Net, planned + now.saturating_sub(planned) / (NET_SECS * NS) * (NET_SECS * NS));
}

/// What a firing for blocks does: drop uploads that nobody goes on with, then one bounded run if one is due. Then it is settled
/// when the next one comes. `at`: when this one was to fire.
pub fn tick(at: u64) {
    fire(Firing::Blocks, at);
}

fn fire(timer: Firing, at: u64) {
    timer.work(|| tick_blocks(at));
    count(Hot::TimerBlocks, platform::instructions());
}

fn tick_blocks(at: u64) {
    judge(0);
    let now = platform::time_ns();
    if ARMED.get().is_some_and(|armed| armed <= now) {
        ARMED.set(None);
        // Of timers that fire together each would be followed by one of its own, for as long as there is a backlog.
        Timer::Blocks.cancel();
    }
    let late = DUE.get().is_some_and(|due| {
        // Of one that is the first to come nobody has trapped before it: it was the subnet, or the clock.
        now >= due.saturating_add(late_secs() * NS) && at > due
    });
    let next = state::mutate(|state| state.tick(late));
    // Only here: a tick that traps leaves it to the next one. What is still ahead is due then.
    DUE.set(ARMED.get());
    arm_at(match next {
        Next::AtOnce => now,
        Next::At(at) => at.max(now),
        Next::Whenever => u64::MAX,
    });
    arm_uploads();
    arm_deletions();
    // What the tick has pruned is no backlog any more.
    sampling::note();
}

/// What a firing for records does: a part of the job, if there is one.
pub fn tick_records() {
    Firing::Records.work(|| {
        judge(0);
        let low_on_cycles = cycles::pause().is_some();
        // Where growing traps, so would each firing of an interval timer.
        growth::put_off(|| {
            state::mutate(|state| {
                // Its message may have been on the way when deletions were stopped.
                if state.deletions_stopped.is_none() {
                    let (pruner, mut records) = state.utxo_pruner();
                    pruner.tick(&mut records, low_on_cycles);
                }
            });
        });
        arm_growth();
        arm_records();
        sampling::note();
    });
    count(Hot::TimerRecords, platform::instructions());
}

/// Has the memory grown that the tick wanted, by a one-shot: one that traps is lost, and nothing is tried again for a while.
fn arm_growth() {
    let now = platform::time_ns();
    let tried = |at: u64| now < at.saturating_add(GROWTH_SECS * NS);
    if !growth::is_wanted() || GROWTH_AT.get().is_some_and(tried) {
        return;
    }
    GROWTH_AT.set(Some(now));
    Timer::Growth.once(0, false, grow);
}

/// Grows the memory that ticks wanted.
pub fn grow() {
    match memory::grow_wanted() {
        Ok(()) => {
            GROWTH_AT.set(None);
            SAID_REFUSED.set(false);
        }
        Err(why) if !SAID_REFUSED.replace(true) => {
            let why = refusal(why);
            logs::error(&format!("memory that the pruner of UTXO records needs cannot be grown: {why}"));
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;

    use coppice_interface::{CanisterArg, InitArg};

    fn lines(of: &str) -> usize {
        native::with(|world| world.log.iter().filter(|line| line.contains(of)).count())
    }

    fn fresh() {
        native::reset();
        memory::forget();
        logs::forget();
        forget();
        state::init(Some(CanisterArg::Init(InitArg::default()))).unwrap();
    }

    #[test]
    fn timers_that_the_balance_does_not_pay_for_are_cancelled_and_armed_again() {
        fresh();
        arm();
        let armed =
            || native::with(|world| [Timer::Net, Timer::Blocks].map(|timer| world.timers.get(&(timer as u8)).copied()));
        let both = [Some(NET_AT.get()), ARMED.get()];
        assert_eq!((armed(), both.contains(&None)), (both, false));
        let liquid = native::with(|world| std::mem::take(&mut world.liquid_cycles));
        watch_cycles();
        assert_eq!(armed(), [None, None]);
        native::with(|world| world.liquid_cycles = liquid);
        watch_cycles();
        assert_eq!(armed(), both);
    }

    #[test]
    fn what_lasts_is_logged_when_it_begins() {
        fresh();
        for said in [1, 2] {
            arm();
            native::with(|world| world.time_ns += 10_000 * NS);
            (0..200).for_each(|_| watch());
            assert_eq!(lines("a timer is overdue; woken"), said);
        }
        for said in [1, 2] {
            let liquid = native::with(|world| std::mem::take(&mut world.liquid_cycles));
            (0..200).for_each(|_| grow());
            assert_eq!(lines("cannot be grown: cycles are missing"), said);
            native::with(|world| world.liquid_cycles = liquid);
            grow();
            memory::region(memory::DELETIONS).reserve(1).unwrap();
        }
    }
}

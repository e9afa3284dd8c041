//! Samples of the whole state for the history: at most one a minute, taken by messages and firings of the daemon.

use crate::logs::history::{COARSE_EVERY, EVERY, Sample};
use crate::operation::health;
use crate::platform::{self, meter};
use crate::state::State;
use ic_coppice_chain::pruning::Due;
use ic_coppice_interface::ProblemCode;

/// Takes a sample if one is due. Each message that changes state calls it, and each firing of the daemon.
#[inline]
pub fn note(state: &mut State) {
    let now = platform::time_secs();
    let last = state.clock.sampled_secs;
    // A sample is also due after the clock was set back.
    if now / EVERY != last / EVERY || last == 0 {
        state.clock.sampled_secs = now;
        sample(state, now, last);
    }
}

/// Returns a sample of the state, given the blocks that are `due`.
pub fn sample_now(state: &State, now_secs: u64, due: Option<&Due>) -> Sample {
    let chain = state.chain.state();
    let backlog = due.map_or(0, |due| due.before.saturating_sub(chain.oldest));
    Sample {
        at: now_secs,
        kept_bytes: state.chain.capacity_bytes(&state.blobs),
        appended: chain.appended_blocks,
        pruned: chain.pruned_blocks,
        backlog: u32::try_from(backlog).unwrap_or(u32::MAX),
        billed_pages: state.blobs.arena().billed_pages() as u32,
        reusable_bytes: state.blobs.arena().reusable_bytes(),
        instructions: meter::instructions(),
        held: due.map_or(0, |due| u32::try_from(due.held(chain.oldest)).unwrap_or(u32::MAX)),
    }
}

#[cold]
fn sample(state: &mut State, now_secs: u64, before: u64) {
    let due = state.due();
    let deep = now_secs / COARSE_EVERY != before / COARSE_EVERY;
    state.history.write(&sample_now(state, now_secs, due.as_ref()), deep);
    let appended_at = state.chain.appended_at().map_or(now_secs, |at| at.min(now_secs));
    let now_ns = platform::time_ns();
    state.note_due_blobs(now_ns);
    // `HeadUnreadable` is checked only in deep samples; other samples keep its start time.
    let found = health::findings(state, due.as_ref(), deep).into_iter().map(|found| (found.code, found.since));
    let kept = state.history.since(ProblemCode::HeadUnreadable).filter(|_| !deep);
    let kept = kept.map(|noticed| (ProblemCode::HeadUnreadable, Some(noticed)));
    state.history.note((state.chain.state().appended_blocks, appended_at), found.chain(kept), now_ns);
}

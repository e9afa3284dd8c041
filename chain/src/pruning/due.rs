//! Due blocks: the triggers and their targets (`pruning-spec-v1.md` 6, `docs/design/pruning.md`).
//!
//! ```text
//! oldest ▓▓▓▓▓▓ before ▒▒▒▒▒▒ target ░░░░░░ head
//!        may be pruned │ due, but the guard holds them │ kept
//! ```
//! A guard below `oldest` holds all due blocks; without a guard `before` is `target`.

use super::policy::{DAY, floor, marks};
use crate::export::Guard;
use crate::{ChainStore, Numbers};
use ic_coppice_interface::{HeldBy, PrunePolicy, PruneReason, WaterMarks};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, Platform as _};

/// Blocks below the head that the capacity trigger keeps: one, so that a reorg of one block is possible.
pub const CAPACITY_FLOOR: u64 = 1;

/// The blocks that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The trigger whose target is the highest.
    pub reason: PruneReason,
    /// Blocks below this number are due.
    pub target: u64,
    /// Blocks below this number may be pruned: the guard holds those from here on.
    pub before: u64,
    /// The holder of the blocks from `before` to `target`, if any.
    pub held_by: Option<HeldBy>,
}

impl Due {
    /// Returns the number of due blocks that the guard holds back; `oldest` is the oldest kept block.
    pub fn held(&self, oldest: u64) -> u64 {
        self.target.saturating_sub(self.before.max(oldest))
    }
}

/// Returns the blocks that are due now, if there are any, and the first block that age or capacity would take and the floor keeps, if there
/// is one. Without a policy nothing is due. `to_low_water`: the capacity trigger has fired and low water is not reached yet.
pub fn due_and_floor(
    policy: Option<&PrunePolicy>,
    chain: &ChainStore,
    blobs: &BlobStore,
    guard: Option<&Guard>,
    to_low_water: bool,
) -> (Option<Due>, Option<u64>) {
    let oldest = chain.state().oldest;
    let (Some(policy), Some(head)) = (policy, chain.state().coming_head()) else { return (None, None) };
    let aged = aged_below(policy, chain, head);
    let retention = retained_from(policy, head, aged);
    let kept = chain.capacity_bytes(blobs);
    let fires = |marks: &WaterMarks| kept > marks.high || to_low_water && kept > marks.low;
    let too_much = marks(policy, || chain.most_bytes(blobs)).filter(fires).map(|marks| kept - marks.low);
    let last = head.saturating_sub(CAPACITY_FLOOR);
    let (capacity, too_few) = too_much.map_or((0, false), |bytes| before_freeing(chain, last, bytes));
    let target = retention.max(capacity);
    let reason = if capacity > retention { PruneReason::Capacity } else { PruneReason::Retention };
    // A trigger would take more, and the floor keeps it.
    let floor_holds = aged > target || too_few && target <= last.max(oldest);
    let holding = guard.filter(|guard| guard.before < target);
    let before = holding.map_or(target, |guard| guard.before);
    let held_by = holding.map(|guard| guard.held_by.clone());
    let due = (target > oldest).then_some(Due { reason, target, before, held_by });
    (due, floor_holds.then_some(target.max(oldest)))
}

/// Returns `retain_min_block`: blocks below it are no longer retained. 0 if neither age nor count retains blocks.
pub fn retain_min_block(policy: &PrunePolicy, chain: &ChainStore) -> u64 {
    let Some(head) = chain.state().coming_head() else { return 0 };
    retained_from(policy, head, aged_below(policy, chain, head))
}

/// Returns the number below which age and count no longer retain blocks; blocks below `aged` are old enough.
fn retained_from(policy: &PrunePolicy, head: u64, aged: u64) -> u64 {
    let by_count = if policy.retain_blocks == 0 { 0 } else { head.saturating_sub(policy.retain_blocks) };
    by_count.max(aged.min(head.saturating_sub(floor(policy))))
}

/// Returns the number below which blocks are too old for age to retain, at most the head; 0 if age retains nothing.
fn aged_below(policy: &PrunePolicy, chain: &ChainStore, head: u64) -> u64 {
    if policy.retain_days == 0 {
        return 0;
    }
    let secs = Ic::now_secs().saturating_sub(policy.retain_days.saturating_mul(DAY));
    first_where(chain, head, |header| header.meta.monotonic >= secs).0.min(head)
}

/// Returns the time at which the oldest block becomes prunable by age, in Unix seconds, unless the floor keeps it.
pub fn next_age(policy: &PrunePolicy, chain: &ChainStore) -> Option<u64> {
    let oldest = chain.state().oldest;
    let floor = chain.state().coming_head()?.saturating_sub(floor(policy));
    let kept = policy.retain_days.checked_mul(DAY).filter(|_| policy.retain_days > 0 && oldest < floor)?;
    chain.meta(oldest)?.monotonic.checked_add(kept)?.checked_add(1)
}

/// Searches the kept blocks for the first one whose header satisfies `yes`, which must hold for every later one, too. Returns its number,
/// or `last` if no earlier block satisfies `yes`; and the first block from there on, below `last`, whose header is readable.
///
/// A tick searches twice, so the search compares no checksums. If the two headers on which the result rests, that of the block found and of the
/// one before, do not bear it out, a damaged header has misled the search, which is then made with checksums.
fn first_where(chain: &ChainStore, last: u64, yes: impl Fn(&Numbers) -> bool) -> (u64, Option<u64>) {
    let found = search(chain, last, &yes, |number| chain.headers.peek_numbers(number));
    let before = found.0.checked_sub(1).filter(|before| *before >= chain.state().oldest);
    let says = |number: Option<u64>, says: bool| {
        number.is_none_or(|number| chain.headers.numbers(number).is_some_and(|header| yes(&header) == says))
    };
    if says(before, false) && says(found.1, true) {
        return found;
    }
    search(chain, last, &yes, |number| chain.headers.numbers(number))
}

fn search(
    chain: &ChainStore,
    last: u64,
    yes: impl Fn(&Numbers) -> bool,
    read: impl Fn(u64) -> Option<Numbers>,
) -> (u64, Option<u64>) {
    let (mut low, mut high) = (chain.state().oldest, last.max(chain.state().oldest));
    let mut readable = None;
    while low < high {
        let middle = low + (high - low) / 2;
        // The nearest readable successor stands in for a damaged header.
        let header = (middle..high).find_map(&read);
        match header {
            Some(header) if !yes(&header) => low = header.meta.number + 1,
            header => {
                high = middle;
                readable = header.map(|header| header.meta.number).or(readable);
            }
        }
    }
    (low, readable)
}

/// Returns the lowest bound whose pruning frees at least `bytes`, and false; or `last`, and true if pruning below `last` frees less.
fn before_freeing(chain: &ChainStore, last: u64, bytes: u64) -> (u64, bool) {
    let frees_enough = |header: &Numbers| chain.freed_below(header) >= bytes;
    // A damaged header does not give its block's start, so the bytes before it stay until a later block goes.
    match first_where(chain, last, frees_enough).1 {
        Some(bound) => (bound, false),
        None => (last, chain.headers.numbers(last).is_none_or(|header| !frees_enough(&header))),
    }
}

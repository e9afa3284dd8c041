//! Due blocks: when something is due, and down to where (`pruning-spec-v1.md` 6, `docs/design.md` 4).

use super::policy::{DAY, Policy as _};
use crate::chain::{BlockMeta, ChainStore};
use crate::export::Guard;
use crate::platform;
use crate::storage::blob::BlobStore;
use coppice_interface::{HeldBy, PrunePolicy, PruneReason};

/// Blocks behind the head that capacity leaves: the one before it, so that a reorg of one block has a way back.
pub const CAPACITY_FLOOR: u64 = 1;

/// What is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Why.
    pub reason: PruneReason,
    /// Blocks below this number are to go.
    pub target: u64,
    /// Blocks below this number may: as far as the export guard allows.
    pub before: u64,
    /// Who keeps the others.
    pub held_by: Option<HeldBy>,
}

impl Due {
    /// Blocks that are due and are kept for the guard, where `oldest` is the oldest kept one.
    pub fn held(&self, oldest: u64) -> u64 {
        self.target.saturating_sub(self.before.max(oldest))
    }
}

/// The triggers' aim.
struct Wanted {
    reason: PruneReason,
    /// Blocks below this number are to go.
    target: u64,
    /// A trigger would take more, and the floor keeps it.
    floor_holds: bool,
}

/// The triggers' aim now, whatever was exported. `to_low_water`: the capacity trigger has fired and low water was not reached yet.
fn wanted(policy: &PrunePolicy, chain: &ChainStore, blobs: &BlobStore, to_low_water: bool) -> Option<Wanted> {
    let head = chain.state().coming_head()?;
    let aged = aged_below(policy, chain, head);
    let retention = retained_from(policy, head, aged);
    let kept = chain.capacity_bytes(blobs);
    let fires = policy.target_bytes > 0 && (kept > policy.high_water() || to_low_water && kept > policy.low_water());
    let too_much = if fires { kept - policy.low_water() } else { 0 };
    let last = head.saturating_sub(CAPACITY_FLOOR);
    let (capacity, too_few) = if fires { before_freeing(chain, last, too_much) } else { (0, false) };
    let target = retention.max(capacity);
    let reason = if capacity > retention { PruneReason::Capacity } else { PruneReason::Retention };
    let floor_holds = aged > target || too_few && target <= last.max(chain.state().oldest);
    Some(Wanted { reason, target, floor_holds })
}

/// The blocks that are due now.
pub fn due(
    policy: &PrunePolicy,
    chain: &ChainStore,
    blobs: &BlobStore,
    guard: Option<&Guard>,
    to_low_water: bool,
) -> Option<Due> {
    let Wanted { reason, target, .. } = wanted(policy, chain, blobs, to_low_water)?;
    if target <= chain.state().oldest {
        return None;
    }
    let Some(guard) = guard.filter(|guard| guard.before < target) else {
        return Some(Due { reason, target, before: target, held_by: None });
    };
    Some(Due { reason, target, before: guard.before, held_by: Some(guard.held_by.clone()) })
}

/// The block from which on the floor keeps what age or capacity would take; none where it keeps nothing of that.
pub fn floor_block(policy: &PrunePolicy, chain: &ChainStore, blobs: &BlobStore, to_low_water: bool) -> Option<u64> {
    let wanted = wanted(policy, chain, blobs, to_low_water).filter(|wanted| wanted.floor_holds)?;
    Some(wanted.target.max(chain.state().oldest))
}

/// `retain_min_block`: blocks below it are no longer retained. 0 where neither age nor count retains.
pub fn retain_min_block(policy: &PrunePolicy, chain: &ChainStore) -> u64 {
    let Some(head) = chain.state().coming_head() else { return 0 };
    retained_from(policy, head, aged_below(policy, chain, head))
}

/// The number below which age and count no longer retain blocks, where those below `aged` are old enough.
fn retained_from(policy: &PrunePolicy, head: u64, aged: u64) -> u64 {
    let by_count = match policy.retain_blocks {
        0 => 0,
        blocks => head.saturating_sub(blocks),
    };
    by_count.max(aged.min(head.saturating_sub(policy.floor())))
}

/// The number below which blocks are older than age retains, the head never among them; 0 where age does not retain.
fn aged_below(policy: &PrunePolicy, chain: &ChainStore, head: u64) -> u64 {
    match policy.retain_days {
        0 => 0,
        days => block_at(chain, head, platform::time_secs().saturating_sub(days.saturating_mul(DAY))).min(head),
    }
}

/// When age next makes a block prunable, in Unix seconds: the oldest one, unless the floor keeps it.
pub fn next_age(policy: &PrunePolicy, chain: &ChainStore) -> Option<u64> {
    let oldest = chain.state().oldest;
    let floor = chain.state().coming_head()?.saturating_sub(policy.floor());
    let kept = policy.retain_days.checked_mul(DAY).filter(|_| policy.retain_days > 0 && oldest < floor)?;
    chain.meta(oldest)?.monotonic.checked_add(kept)?.checked_add(1)
}

/// The first kept block whose record says yes, where every later one does too, or `last` where no earlier one does; and the first block from
/// there on, below `last`, whose record can be read.
fn first_where(chain: &ChainStore, last: u64, yes: impl Fn(&BlockMeta) -> bool) -> (u64, Option<u64>) {
    let (mut low, mut high) = (chain.state().oldest, last.max(chain.state().oldest));
    let mut readable = None;
    while low < high {
        let middle = low + (high - low) / 2;
        // A damaged record says nothing: its nearest readable successor speaks for it.
        let record = (middle..high).find_map(|number| chain.meta(number));
        match record {
            Some(record) if !yes(&record) => low = record.number + 1,
            record => {
                high = middle;
                readable = record.map(|record| record.number).or(readable);
            }
        }
    }
    (low, readable)
}

/// The first block whose monotonic time is `secs` or later.
fn block_at(chain: &ChainStore, head: u64, secs: u64) -> u64 {
    first_where(chain, head, |record| record.monotonic >= secs).0
}

/// The lowest bound that gives back at least `bytes`; or `last`, and that it gives back less, where no bound up to there does.
fn before_freeing(chain: &ChainStore, last: u64, bytes: u64) -> (u64, bool) {
    let frees_enough = |record: &BlockMeta| chain.freed_below(record) >= bytes;
    // A damaged record does not say where its block starts, so that what lies before it stays until a later one goes.
    match first_where(chain, last, frees_enough).1 {
        Some(bound) => (bound, false),
        None => (last, chain.meta(last).is_none_or(|record| !frees_enough(&record))),
    }
}

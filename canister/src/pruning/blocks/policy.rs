//! Policy: when something is due, and down to where (`pruning-spec-v1.md` 6, `docs/design.md` 4).

use crate::chain::{BlockMeta, ChainStore};
use crate::export::Guard;
use crate::platform;
use crate::storage::blob::{BlobStore, Class};
use coppice_interface::{HeldBy, PruneError, PrunePolicy, PrunePolicyArg, PruneReason};

const BPS: u64 = 10_000;
/// Blocks behind the head that capacity leaves: the one before it, so that a reorg of one block has a way back.
pub const CAPACITY_FLOOR: u64 = 1;
const DAY: u64 = 86_400;
/// Most ops of a prune message: each dropped index entry may dirty a page of 4 KiB, now and then two, and a message is to
/// dirty less than 75 MiB (`docs/design.md` 4).
pub const MAX_OPS: u64 = 15_000;
/// The longest pause that a sweep waits for: an hour.
const MAX_PAUSE: u64 = 3_600;
/// Most instructions of a prune message (`docs/design.md` 4).
pub const MAX_INSTRUCTIONS: u64 = 2_000_000_000;

fn share(bytes: u64, numerator: u64) -> u64 {
    (u128::from(bytes) * u128::from(numerator) / u128::from(2 * BPS)) as u64
}

/// What the pruner does with a policy.
pub trait Policy: Sized {
    /// The first policy from what an operator said, for a log of blobs of `class`.
    ///
    /// # Errors
    /// As [`changed`](Self::changed).
    fn new(change: &PrunePolicyArg, class: Class) -> Result<Self, PruneError>;
    /// This policy with what an operator said; what is left out stays.
    ///
    /// # Errors
    /// [`PruneError::Invalid`] with the field and a sentence.
    fn changed(&self, change: &PrunePolicyArg, class: Class) -> Result<Self, PruneError>;
    /// Blocks behind the head that age leaves; a smaller count takes its place.
    fn floor(&self) -> u64;
    /// Kept bytes above which the capacity trigger fires; 0 without one.
    fn high_water(&self) -> u64;
    /// Kept bytes down to which it then prunes; 0 without one.
    fn low_water(&self) -> u64;
    /// Kept bytes at which appends are refused; 0 without a capacity trigger.
    fn emergency(&self) -> u64;
    /// Returns the least `target_bytes`, in whole MiB, whose high water is at least `kept` bytes.
    fn target_for(&self, kept: u64) -> u64;
}

impl Policy for PrunePolicy {
    fn new(change: &PrunePolicyArg, class: Class) -> Result<Self, PruneError> {
        Self::default().changed(change, class)
    }

    fn changed(&self, change: &PrunePolicyArg, class: Class) -> Result<Self, PruneError> {
        let policy = Self {
            target_bytes: change.target_bytes.unwrap_or(self.target_bytes),
            retain_days: change.retain_days.unwrap_or(self.retain_days),
            retain_blocks: change.retain_blocks.unwrap_or(self.retain_blocks),
            headroom_ratio_bps: change.headroom_ratio_bps.unwrap_or(self.headroom_ratio_bps),
            emergency_ratio_bps: change.emergency_ratio_bps.unwrap_or(self.emergency_ratio_bps),
            timer_interval_secs: change.timer_interval_secs.unwrap_or(self.timer_interval_secs),
            max_ops_per_tick: change.max_ops_per_tick.unwrap_or(self.max_ops_per_tick),
            max_instructions_per_tick: change.max_instructions_per_tick.unwrap_or(self.max_instructions_per_tick),
            min_kept_blocks: change.min_kept_blocks.unwrap_or(self.min_kept_blocks),
            pause_after_secs: change.pause_after_secs.unwrap_or(self.pause_after_secs),
            max_pending_ticks: change.max_pending_ticks.unwrap_or(self.max_pending_ticks),
            max_collected_keys: change.max_collected_keys.unwrap_or(self.max_collected_keys),
            max_export_lag_secs: change.max_export_lag_secs.unwrap_or(self.max_export_lag_secs),
        };
        check(&policy, class)?;
        Ok(policy)
    }

    fn floor(&self) -> u64 {
        match self.retain_blocks {
            0 => self.min_kept_blocks,
            blocks => blocks.min(self.min_kept_blocks),
        }
    }

    fn high_water(&self) -> u64 {
        share(self.target_bytes, 2 * BPS - u64::from(self.headroom_ratio_bps))
    }

    fn low_water(&self) -> u64 {
        share(self.target_bytes, 2 * (BPS - u64::from(self.headroom_ratio_bps)))
    }

    fn emergency(&self) -> u64 {
        share(self.target_bytes, 2 * u64::from(self.emergency_ratio_bps))
    }

    fn target_for(&self, kept: u64) -> u64 {
        let high = u128::from(2 * BPS - u64::from(self.headroom_ratio_bps));
        let target = (u128::from(kept) * u128::from(2 * BPS)).div_ceil(high).next_multiple_of(1 << 20);
        u64::try_from(target).unwrap_or(u64::MAX)
    }
}

fn check(policy: &PrunePolicy, class: Class) -> Result<(), PruneError> {
    let invalid = |field: &str, why: String| Err(PruneError::Invalid { field: field.into(), why });
    if u64::from(policy.headroom_ratio_bps) > BPS {
        return invalid("headroom_ratio_bps", "basis points: at most 10000".into());
    }
    if u64::from(policy.emergency_ratio_bps) > BPS {
        return invalid("emergency_ratio_bps", "basis points: at most 10000".into());
    }
    if !(1..=DAY).contains(&policy.timer_interval_secs) {
        return invalid("timer_interval_secs", "from 1 second to a day".into());
    }
    if !(1..=MAX_OPS).contains(&policy.max_ops_per_tick) {
        return invalid("max_ops_per_tick", format!("from 1 to {MAX_OPS}, so that a tick dirties less than 75 MiB"));
    }
    if !(1..=MAX_INSTRUCTIONS).contains(&policy.max_instructions_per_tick) {
        return invalid("max_instructions_per_tick", format!("from 1 to {MAX_INSTRUCTIONS}"));
    }
    if policy.pause_after_secs > MAX_PAUSE {
        return invalid("pause_after_secs", format!("at most {MAX_PAUSE} seconds"));
    }
    let (low, high, emergency) = (policy.low_water(), policy.high_water(), policy.emergency());
    let room = 2 * u64::from(class.size());
    if policy.target_bytes > 0 && low.saturating_add(room) > high {
        let why = format!(
            "low water {low} + two blobs of the log ({room}) must not be above high water {high}: raise target_bytes or \
             headroom_ratio_bps"
        );
        return invalid("target_bytes", why);
    }
    if policy.target_bytes > 0 && high >= emergency {
        let why = format!(
            "high water {high} must be below emergency water {emergency}: raise emergency_ratio_bps or \
             headroom_ratio_bps"
        );
        return invalid("emergency_ratio_bps", why);
    }
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> Class {
        Class::of_size(1 << 20).unwrap()
    }

    fn field(arg: PrunePolicyArg) -> String {
        match PrunePolicy::new(&arg, class()) {
            Err(PruneError::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn water_marks_are_shares_of_the_target() {
        let policy = PrunePolicy { target_bytes: 1_000_000, ..PrunePolicy::default() };
        assert_eq!((policy.low_water(), policy.high_water(), policy.emergency()), (800_000, 900_000, 950_000));
        let policy = PrunePolicy { target_bytes: u64::MAX, ..PrunePolicy::default() };
        assert!(policy.low_water() < policy.high_water() && policy.high_water() < policy.emergency());
    }

    #[test]
    fn the_target_for_what_is_kept_is_the_least_of_whole_mib() {
        for headroom_ratio_bps in [0, 1, 2_000, 10_000] {
            let policy = |target_bytes| PrunePolicy { target_bytes, headroom_ratio_bps, ..PrunePolicy::default() };
            for kept in [1, (1 << 20) - 1, 1 << 20, 943_718, 943_719, 123_456_789_012, 1 << 60] {
                let target = policy(0).target_for(kept);
                assert!(target % (1 << 20) == 0 && policy(target).high_water() >= kept, "{kept}");
                assert!(policy(target - (1 << 20)).high_water() < kept, "{kept}");
            }
            assert_eq!(policy(0).target_for(u64::MAX), u64::MAX);
        }
    }

    #[test]
    fn what_is_left_out_of_a_change_stays_and_zero_switches_off() {
        let arg = PrunePolicyArg::default;
        let first = PrunePolicyArg { target_bytes: Some(1 << 30), retain_days: Some(30), ..arg() };
        let first = PrunePolicy::new(&first, class()).unwrap();
        assert_eq!(first.changed(&arg(), class()), Ok(first.clone()));
        let second = first.changed(&PrunePolicyArg { retain_blocks: Some(9), ..arg() }, class()).unwrap();
        assert_eq!(second, PrunePolicy { retain_blocks: 9, ..first.clone() });
        let third = second.changed(&PrunePolicyArg { target_bytes: Some(0), ..arg() }, class()).unwrap();
        assert_eq!(third, PrunePolicy { target_bytes: 0, ..second.clone() });
        // What makes no sense together is refused, also where each of the two was said in another call.
        let narrow = PrunePolicyArg { headroom_ratio_bps: Some(10), ..arg() };
        let error = second.changed(&narrow, class());
        assert!(matches!(error, Err(PruneError::Invalid { field, .. }) if field == "target_bytes"));
        assert!(third.changed(&narrow, class()).is_ok());
    }

    #[test]
    fn a_policy_that_makes_no_sense_names_its_field() {
        let arg = PrunePolicyArg::default;
        assert_eq!(PrunePolicy::new(&arg(), class()), Ok(PrunePolicy::default()));
        assert_eq!(field(PrunePolicyArg { headroom_ratio_bps: Some(10_001), ..arg() }), "headroom_ratio_bps");
        assert_eq!(field(PrunePolicyArg { emergency_ratio_bps: Some(10_001), ..arg() }), "emergency_ratio_bps");
        assert_eq!(field(PrunePolicyArg { timer_interval_secs: Some(0), ..arg() }), "timer_interval_secs");
        assert_eq!(field(PrunePolicyArg { timer_interval_secs: Some(86_401), ..arg() }), "timer_interval_secs");
        assert_eq!(field(PrunePolicyArg { max_ops_per_tick: Some(0), ..arg() }), "max_ops_per_tick");
        assert_eq!(field(PrunePolicyArg { max_ops_per_tick: Some(MAX_OPS + 1), ..arg() }), "max_ops_per_tick");
        let too_many = Some(MAX_INSTRUCTIONS + 1);
        assert_eq!(field(PrunePolicyArg { max_instructions_per_tick: too_many, ..arg() }), "max_instructions_per_tick");
        // 10 % of 20 MiB is two blobs of the log exactly.
        assert_eq!(field(PrunePolicyArg { target_bytes: Some((20 << 20) - 100), ..arg() }), "target_bytes");
        PrunePolicy::new(&PrunePolicyArg { target_bytes: Some(21 << 20), ..arg() }, class()).unwrap();
        let (target_bytes, emergency_ratio_bps) = (Some(1 << 30), Some(9_000));
        assert_eq!(field(PrunePolicyArg { target_bytes, emergency_ratio_bps, ..arg() }), "emergency_ratio_bps");
    }
}

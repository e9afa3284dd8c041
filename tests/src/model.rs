//! A plain model of the chain, its pruning and its exporters: what `docs/design.md` says, over ordinary collections.

use crate::coppice::{LOG_CLASS, Who};
use coppice_interface::*;
use std::collections::{BTreeMap, VecDeque};

const CLASS: u64 = LOG_CLASS as u64;
const DAY: u64 = 86_400;

/// A kept block.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The block.
    pub block: AppendBlock,
    /// Where its payload starts in the log.
    pub offset: u64,
    /// Its monotonic time.
    pub monotonic: u64,
}

/// What is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Why.
    pub reason: PruneReason,
    /// Blocks below it are to go.
    pub target: u64,
    /// Blocks below it may.
    pub before: u64,
}

/// The triggers' aim: why, below which block, and whether the floor keeps more of what they would take.
struct Wanted(PruneReason, u64, bool);

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// What is kept, oldest first.
    pub kept: VecDeque<Kept>,
    /// What was pruned, oldest first.
    pub pruned: Vec<AppendBlock>,
    /// The policy in force.
    pub policy: Option<PrunePolicy>,
    /// The kill switch.
    pub enabled: bool,
    /// `require_export`.
    pub require_export: bool,
    /// The exclusive bound of each exporter.
    pub bounds: BTreeMap<Who, u64>,
    /// The open upload, and when it was touched last.
    pub upload: Option<(AppendBlock, u64)>,
    to_low_water: bool,
    tail: u64,
    log_first: u64,
}

/// Blocks behind the head that age leaves.
fn floor(policy: &PrunePolicy) -> u64 {
    if policy.retain_blocks > 0 { policy.retain_blocks.min(policy.min_kept_blocks) } else { policy.min_kept_blocks }
}

fn payload(block: &AppendBlock) -> u64 {
    (block.body.len() + block.receipts.len() + block.index.len()) as u64
}

/// Transactions of a block.
pub fn transactions(block: &AppendBlock) -> u64 {
    u64::from(u32::from_le_bytes(block.index[..4].try_into().expect("an index")))
}

/// Ids of a block, by position.
pub fn ids(block: &AppendBlock) -> Vec<[u8; 32]> {
    let bytes = &block.index[4..4 + 32 * transactions(block) as usize];
    bytes.as_chunks().0.to_vec()
}

/// Secondary keys of a block: which transaction has which.
pub fn keys(block: &AppendBlock) -> Vec<(u32, Vec<u8>)> {
    let mut rest = &block.index[8 + 32 * transactions(block) as usize..];
    let mut keys = Vec::new();
    while let [a, b, c, d, low, high, behind @ ..] = rest {
        let (key, behind) = behind.split_at(usize::from(u16::from_le_bytes([*low, *high])));
        keys.push((u32::from_le_bytes([*a, *b, *c, *d]), key.to_vec()));
        rest = behind;
    }
    keys
}

impl Kept {
    /// Bytes of its record, and of what it has in the indexes.
    fn beside_the_log(&self) -> u64 {
        320 + 32 * (ids(&self.block).len() + keys(&self.block).len()) as u64
    }
}

impl Model {
    /// The oldest kept block's number.
    pub fn oldest(&self) -> u64 {
        self.kept.front().map_or(0, |kept| kept.block.number)
    }

    /// The head's number.
    pub fn head(&self) -> Option<u64> {
        self.kept.back().map(|kept| kept.block.number)
    }

    /// A kept block.
    pub fn get(&self, number: u64) -> Option<&Kept> {
        self.kept.get(number.checked_sub(self.oldest())? as usize)
    }

    /// Class bytes that the chain keeps.
    pub fn kept_bytes(&self) -> u64 {
        (self.tail.div_ceil(CLASS).max(self.log_first) - self.log_first) * CLASS
    }

    /// Bytes that the chain takes, as the capacity trigger counts them.
    pub fn capacity_bytes(&self) -> u64 {
        self.kept_bytes() + self.kept.iter().map(Kept::beside_the_log).sum::<u64>()
    }

    /// What nothing may pass, and who says so: of several the first by name.
    pub fn guard(&self) -> Option<(u64, HeldBy)> {
        let slowest = self.bounds.iter().min_by_key(|&(who, &bound)| (bound, who.name()));
        match slowest {
            Some((who, &bound)) => Some((bound, HeldBy::Exporter(who.name()))),
            None => self.require_export.then_some((0, HeldBy::NoExporter)),
        }
    }

    /// Where an id occurs last: block and position.
    pub fn locate(&self, id: &[u8; 32]) -> Option<(u64, u32)> {
        self.kept.iter().rev().find_map(|kept| {
            let position = ids(&kept.block).iter().rposition(|other| other == id)?;
            Some((kept.block.number, position as u32))
        })
    }

    /// The kept transactions with a secondary key, as block numbers and positions, newest first.
    pub fn find(&self, key: &[u8]) -> Vec<(u64, u32)> {
        let of = |kept: &Kept| -> Vec<(u64, u32)> {
            let keys = keys(&kept.block).into_iter().filter(|(_, has)| has == key);
            keys.map(|(transaction, _)| (kept.block.number, transaction)).collect()
        };
        let mut found: Vec<_> = self.kept.iter().flat_map(of).collect();
        found.sort();
        found.dedup();
        found.into_iter().rev().collect()
    }

    /// Appends a block.
    pub fn append(&mut self, block: AppendBlock, now: u64) {
        let before = self.kept.back().map_or(0, |kept| kept.monotonic);
        let monotonic = now.min(before.max(block.timestamp));
        let offset = self.tail;
        // Behind the payload lie the links of its keys, and of those of its ids that a kept block has, too.
        let mut repeated = ids(&block);
        repeated.sort_unstable();
        repeated.dedup();
        repeated.retain(|id| self.locate(id).is_some());
        self.tail += payload(&block) + 12 * (keys(&block).len() + repeated.len()) as u64;
        self.kept.push_back(Kept { block, offset, monotonic });
    }

    /// Who refuses an append, if somebody does.
    pub fn exhausted(&self, now: u64) -> Option<HeldBy> {
        let policy = self.policy.as_ref()?;
        let emergency = policy.target_bytes * u64::from(policy.emergency_ratio_bps) / 10_000;
        let frees = self.oldest() < self.head()?.saturating_sub(1);
        if emergency == 0 || self.capacity_bytes() < emergency || !frees {
            return None;
        }
        if !self.enabled {
            return Some(HeldBy::Disabled);
        }
        let stuck = self.due(now).is_some_and(|due| due.before <= self.oldest());
        Some(if stuck { self.guard().expect("it is what holds").1 } else { HeldBy::PruneLag })
    }

    /// Blobs that become free when the blocks below `bound` go.
    fn frees(&self, bound: u64) -> u64 {
        self.get(bound).map_or(0, |kept| (kept.offset / CLASS).saturating_sub(self.log_first))
    }

    /// The lowest bound that gives back `bytes`, at most `last`; and whether that gives back less.
    fn freeing(&self, bytes: u64, last: u64) -> (u64, bool) {
        let mut beside = 0;
        for kept in &self.kept {
            let number = kept.block.number;
            let is_enough = self.frees(number) * CLASS + beside >= bytes;
            if number >= last || is_enough {
                return (number, !is_enough);
            }
            beside += kept.beside_the_log();
        }
        (last, true)
    }

    fn wanted(&self, now: u64) -> Option<Wanted> {
        let policy = self.policy.as_ref()?;
        let head = self.head()?;
        let by_count = if policy.retain_blocks > 0 { head.saturating_sub(policy.retain_blocks) } else { 0 };
        let young = |kept: &&Kept| kept.monotonic + policy.retain_days * DAY >= now;
        let aged = match policy.retain_days {
            0 => 0,
            _ => self.kept.iter().find(young).map_or(head, |kept| kept.block.number),
        };
        let retention = by_count.max(aged.min(head.saturating_sub(floor(policy))));
        let (kept, target) = (self.capacity_bytes(), policy.target_bytes);
        let low = target * u64::from(10_000 - policy.headroom_ratio_bps) / 10_000;
        let high = target * u64::from(20_000 - policy.headroom_ratio_bps) / 20_000;
        let fires = target > 0 && (kept > high || self.to_low_water && kept > low);
        let last = head.saturating_sub(1);
        let (capacity, too_few) = if fires { self.freeing(kept - low, last) } else { (0, false) };
        let reason = if capacity > retention { PruneReason::Capacity } else { PruneReason::Retention };
        let target = retention.max(capacity);
        Some(Wanted(reason, target, aged > target || too_few && target <= last.max(self.oldest())))
    }

    /// Returns the blocks that are due at `now`.
    pub fn due(&self, now: u64) -> Option<Due> {
        let Wanted(reason, target, _) = self.wanted(now).filter(|Wanted(_, target, _)| *target > self.oldest())?;
        let before = self.guard().map_or(target, |(guard, _)| guard.min(target));
        Some(Due { reason, target, before })
    }

    /// Returns the first block that the floor keeps although age or capacity would prune it.
    pub fn floor_block(&self, now: u64) -> Option<u64> {
        let Wanted(_, target, holds) = self.wanted(now)?;
        holds.then_some(target.max(self.oldest()))
    }

    /// One run with this many ops: the first block always, the others as long as they fit.
    pub fn run(&mut self, now: u64, max_ops: u64) {
        let Some(due) = self.due(now) else { return };
        let (mut left, mut first) = (max_ops, true);
        while self.oldest() < due.before {
            let blobs = self.frees(self.oldest() + 1);
            let ops = 1 + 2 * blobs;
            if !first && ops > left {
                break;
            }
            (first, left) = (false, left.saturating_sub(ops));
            self.log_first += blobs;
            self.pruned.extend(self.kept.pop_front().map(|kept| kept.block));
        }
        if !first {
            self.to_low_water = (self.to_low_water || due.reason == PruneReason::Capacity) && self.above_low_water();
        }
    }

    fn above_low_water(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| {
            self.capacity_bytes() > policy.target_bytes * u64::from(10_000 - policy.headroom_ratio_bps) / 10_000
        })
    }

    /// Returns what holds back due blocks: the floor only if it keeps blocks and nothing else holds them.
    pub fn held_by(&self, now: u64) -> Option<HeldBy> {
        let floor = self.floor_block(now).map(|_| HeldBy::Floor);
        let Some(due) = self.due(now) else { return floor };
        if !self.enabled {
            return Some(HeldBy::Disabled);
        }
        self.guard().filter(|_| due.before < due.target).map(|(_, held_by)| held_by).or(floor)
    }

    /// Ticks of the daemon until nothing is left of what may go.
    pub fn settle(&mut self, now: u64, upload_expiry_secs: u64) {
        if self.upload.as_ref().is_some_and(|(_, touched)| now - touched >= upload_expiry_secs) {
            self.upload = None;
        }
        let ops = self.policy.as_ref().map_or(0, |policy| policy.max_ops_per_tick);
        while self.enabled && self.due(now).is_some_and(|due| due.before > self.oldest()) {
            self.run(now, ops);
        }
    }

    /// Puts a policy in force.
    pub fn set_policy(&mut self, policy: PrunePolicy) {
        self.enabled |= self.policy.is_none();
        self.policy = Some(policy);
        self.to_low_water = false;
    }

    /// Makes block `number` the head.
    pub fn roll_back(&mut self, number: u64) {
        while self.head() > Some(number) {
            self.tail = self.kept.pop_back().expect("there is a head").offset;
        }
        self.bounds.values_mut().for_each(|bound| *bound = (*bound).min(number + 1));
        self.to_low_water &= self.above_low_water();
    }
}

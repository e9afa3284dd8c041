//! Model of the chain, its pruning and its exporters, by `docs/design/blocks.md`. It also models which answers damage excuses.

use crate::blocks::id;
use candid::Principal;
use ic_coppice_interface::seals::{self, Leaf, Seal};
use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const DAY: u64 = 86_400;

/// A block as produced, with its place in the chain.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its number among all blocks ever made.
    pub serial: u64,
    /// The block.
    pub block: AppendBlock,
    /// Its ids, by position.
    pub ids: Vec<[u8; 32]>,
    /// Its keys, by transaction.
    pub keys: Vec<(u32, Vec<u8>)>,
    /// The offset of its payload in the log.
    pub offset: u64,
    /// Its monotonic timestamp.
    pub monotonic: u64,
    /// True if its header, or a blob that holds part of it, was damaged.
    pub damaged: bool,
}

/// The open upload.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Its block.
    pub made: Made,
    /// Chunk size in bytes.
    pub chunk: usize,
    /// The chunks stored so far.
    pub put: BTreeSet<u32>,
    /// True if its lengths are too large for it ever to be complete.
    pub huge: bool,
    /// Time of the last message for it, in Unix seconds.
    pub touched: u64,
    /// References entered into the indexes so far.
    pub entered: u64,
    /// True if it was aborted, and its entries are being removed.
    pub aborting: bool,
}

/// The blocks that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The trigger.
    pub reason: PruneReason,
    /// Blocks below this number are due.
    pub target: u64,
    /// Blocks below this number may be pruned now.
    pub before: u64,
}

/// The goal of the triggers: reason, bound (exclusive), and whether the floor keeps more blocks than that.
struct Wanted(PruneReason, u64, bool);

/// The place of an id, as far as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Exactly this place, or none.
    At(Option<(u64, u32)>),
    /// One of these places, or an error because of damage.
    OneOf(Vec<(u64, u32)>),
}

/// Model of the chain.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Kept blocks, oldest first.
    pub kept: VecDeque<Made>,
    /// Pruned blocks, oldest first.
    pub pruned: Vec<AppendBlock>,
    /// The number of the first block of an empty chain.
    pub first: u64,
    /// Number of blocks ever made.
    pub made: u64,
    /// The policy in force.
    pub policy: Option<PrunePolicy>,
    /// `require_export`.
    pub require_export: bool,
    /// The exclusive bound of each exporter, by name.
    pub bounds: BTreeMap<String, u64>,
    /// The open upload.
    pub upload: Option<Upload>,
    /// The target of the rollback in progress.
    pub rollback_to: Option<u64>,
    /// Number of damages so far.
    pub harmed: u64,
    /// For each id, the newest damaged block that ever contained it.
    harmed_ids: BTreeMap<[u8; 32], u64>,
    /// For each key, the newest damaged block that ever contained it.
    harmed_keys: BTreeMap<Vec<u8>, u64>,
    producer: Option<Principal>,
    /// Seconds after which an idle upload is dropped.
    expiry_secs: u64,
    /// Bytes of a blob of the log.
    class: u64,
    to_low_water: bool,
    tail: u64,
    log_first: u64,
}

/// Blocks below the head that the age trigger keeps.
fn floor(policy: &PrunePolicy) -> u64 {
    if policy.retain_blocks > 0 { policy.retain_blocks.min(policy.min_kept_blocks) } else { policy.min_kept_blocks }
}

/// Returns the number of transactions of a block.
pub fn transactions(block: &AppendBlock) -> u64 {
    u64::from(u32::from_le_bytes(block.index[..4].try_into().expect("an index")))
}

/// Returns the ids of a block, by position.
pub fn ids(block: &AppendBlock) -> Vec<[u8; 32]> {
    let bytes = &block.index[4..4 + 32 * transactions(block) as usize];
    bytes.as_chunks().0.to_vec()
}

/// Returns the secondary keys of a block, each with the position of its transaction.
pub fn keys(block: &AppendBlock) -> Vec<(u32, Vec<u8>)> {
    let mut rest = &block.index[8 + 32 * transactions(block) as usize..];
    let mut keys = Vec::new();
    while let [a, b, c, d, low, high, after @ ..] = rest {
        let (key, after) = after.split_at(usize::from(u16::from_le_bytes([*low, *high])));
        keys.push((u32::from_le_bytes([*a, *b, *c, *d]), key.to_vec()));
        rest = after;
    }
    keys
}

impl Made {
    /// Creates a block that is not part of the chain yet.
    pub fn new(serial: u64, block: AppendBlock) -> Self {
        let (ids, keys) = (ids(&block), keys(&block));
        Self { serial, block, ids, keys, offset: 0, monotonic: 0, damaged: false }
    }

    /// Returns the bytes of its segments.
    pub fn payload(&self) -> u64 {
        (self.block.body.len() + self.block.receipts.len() + self.block.index.len()) as u64
    }

    /// Returns the number of its ids and keys.
    pub fn references(&self) -> u64 {
        (self.ids.len() + self.keys.len()) as u64
    }

    /// Returns the bytes of its header and index entries.
    fn bytes_outside_log(&self) -> u64 {
        256 + 32 * self.references()
    }
}

impl Upload {
    /// Creates an upload without chunks.
    pub fn new(made: Made, chunk: usize, touched: u64) -> Self {
        Self { made, chunk, put: BTreeSet::new(), huge: false, touched, entered: 0, aborting: false }
    }
}

impl Model {
    /// Creates an empty chain that begins at block `first`, over blobs of `class` bytes. Uploads of the producer expire after
    /// `expiry_secs`.
    pub fn new(first: u64, class: u32, producer: Principal, expiry_secs: u64) -> Self {
        Self { first, class: u64::from(class), producer: Some(producer), expiry_secs, ..Self::default() }
    }

    /// Completes a block as the next one after the head. Its hash is unique on all forks.
    pub fn make(&mut self, block: AppendBlock) -> Made {
        self.made += 1;
        let parent_hash = self.kept.back().map_or_else(BlockHash::default, |made| made.block.hash.clone());
        Made::new(self.made, AppendBlock { hash: id(self.made << 30).into(), parent_hash, ..block })
    }

    /// Returns the seal before the oldest kept block and those of the kept blocks, each computed from the chain's first block on.
    pub fn seals(&self) -> Vec<Seal> {
        let kept = self.kept.iter().map(|made| &made.block);
        let mut seals = vec![seals::FIRST];
        for block in self.pruned.iter().chain(kept) {
            let leaf = Leaf {
                number: block.number,
                timestamp_secs: block.timestamp_secs,
                lengths: [&block.body, &block.receipts, &block.index].map(|segment| segment.len() as u32),
                hash: &block.hash,
                parent_hash: &block.parent_hash,
                sha256: &block.sha256.each().map(|digest| digest.as_slice().try_into().expect("a SHA-256")),
            };
            let before = seals[seals.len() - 1];
            seals.push(seals::seal(&before, &leaf.digest().expect("hashes of at most 32 bytes")));
        }
        seals.split_off(self.pruned.len())
    }

    /// Returns the number of the oldest kept block.
    pub fn oldest(&self) -> u64 {
        self.kept.front().map_or(0, |made| made.block.number)
    }

    /// Returns the number of the head.
    pub fn head(&self) -> Option<u64> {
        self.kept.back().map(|made| made.block.number)
    }

    /// Returns the number of the next block.
    pub fn next(&self) -> u64 {
        self.head().map_or(self.first, |head| head + 1)
    }

    /// Returns a kept block.
    pub fn get(&self, number: u64) -> Option<&Made> {
        self.kept.get(number.checked_sub(self.oldest())? as usize)
    }

    /// Returns the number of references of the kept blocks.
    pub fn references(&self) -> u64 {
        self.kept.iter().map(Made::references).sum()
    }

    /// Returns the distinct ids of the kept blocks.
    pub fn distinct_ids(&self) -> BTreeSet<[u8; 32]> {
        self.kept.iter().flat_map(|made| made.ids.iter().copied()).collect()
    }

    /// Returns the distinct keys of the kept blocks.
    pub fn distinct_keys(&self) -> BTreeSet<&[u8]> {
        self.kept.iter().flat_map(|made| &made.keys).map(|(_, key)| key.as_slice()).collect()
    }

    /// Returns the bytes of the log's blobs that the chain occupies.
    pub fn kept_bytes(&self) -> u64 {
        (self.tail.div_ceil(self.class).max(self.log_first) - self.log_first) * self.class
    }

    /// Returns the bytes that the chain occupies, as the capacity trigger counts them.
    pub fn capacity_bytes(&self) -> u64 {
        self.kept_bytes() + self.kept.iter().map(Made::bytes_outside_log).sum::<u64>()
    }

    /// Returns the bound that pruning may not pass, with its holder: of several exporters, the first by name.
    pub fn guard(&self) -> Option<(u64, HeldBy)> {
        match self.bounds.iter().min_by_key(|&(_, bound)| bound) {
            Some((name, &bound)) => Some((bound, HeldBy::Exporter(name.clone()))),
            None => self.require_export.then_some((0, HeldBy::NoExporter)),
        }
    }

    /// Returns the places of an id, newest first, each with the serial number of its block.
    fn places(&self, id: &[u8; 32]) -> impl Iterator<Item = (u64, (u64, u32))> {
        self.kept.iter().rev().filter_map(move |made| {
            let position = made.ids.iter().rposition(|other| other == id)?;
            Some((made.serial, (made.block.number, position as u32)))
        })
    }

    /// Returns the place of an id's newest occurrence.
    pub fn locate(&self, id: &[u8; 32]) -> Whereabouts {
        let harmed = self.harmed_ids.get(id);
        match self.places(id).next() {
            None if harmed.is_none() => Whereabouts::At(None),
            Some((serial, place)) if harmed.is_none_or(|harmed| serial > *harmed) => Whereabouts::At(Some(place)),
            _ => Whereabouts::OneOf(self.places(id).map(|(_, place)| place).collect()),
        }
    }

    /// Returns the transactions with a key, as block numbers and positions, newest first; or `None` if damage may have hidden some.
    pub fn find(&self, key: &[u8]) -> Option<Vec<(u64, u32)>> {
        let mut found = Vec::new();
        let harmed = self.harmed_keys.get(key);
        for made in self.kept.iter().rev() {
            let of = made.keys.iter().filter(|(_, other)| other == key).map(|&(at, _)| at).collect::<BTreeSet<u32>>();
            if !of.is_empty() && harmed.is_some_and(|harmed| made.serial <= *harmed) {
                return None;
            }
            found.extend(of.into_iter().rev().map(|at| (made.block.number, at)));
        }
        harmed.is_none().then_some(found)
    }

    /// Marks a block as damaged.
    pub fn harm(&mut self, number: u64) {
        let oldest = self.oldest();
        let made = match &mut self.upload {
            Some(upload) if upload.made.block.number == number => Some(&mut upload.made),
            _ => number.checked_sub(oldest).and_then(|at| self.kept.get_mut(at as usize)),
        };
        if let Some(made) = made {
            made.damaged = true;
            let made = made.clone();
            self.note_harm(&made);
        }
    }

    /// Records that postings of a block's ids and keys may be lost.
    pub fn note_harm(&mut self, made: &Made) {
        for id in &made.ids {
            let newest = self.harmed_ids.entry(*id).or_default();
            *newest = made.serial.max(*newest);
        }
        for (_, key) in &made.keys {
            let newest = self.harmed_keys.entry(key.clone()).or_default();
            *newest = made.serial.max(*newest);
        }
    }

    /// Appends a block.
    pub fn append(&mut self, made: Made, now: u64) {
        if made.damaged {
            self.note_harm(&made);
        }
        let before = self.kept.back().map_or(0, |made| made.monotonic);
        let monotonic = now.min(before.max(made.block.timestamp_secs));
        let offset = self.tail;
        // After the payload come the links of its keys, and of those ids that a kept block has, too.
        let ids = made.ids.iter().collect::<BTreeSet<_>>();
        let repeated = ids.into_iter().filter(|id| self.places(id).next().is_some()).count();
        self.tail += made.payload() + 12 * (made.keys.len() + repeated) as u64;
        self.kept.push_back(Made { offset, monotonic, ..made });
    }

    /// Returns the reason for which an append, or the beginning of an upload, is refused.
    pub fn refuses_append(&self, now: u64) -> Option<AppendError> {
        match (self.rollback_to, self.open()) {
            (Some(to), _) => Some(AppendError::RollbackUnderway { to }),
            (None, Some(open)) => Some(open.into()),
            (None, None) => self.exhausted(now).map(|held_by| AppendError::CapacityExhausted { held_by }),
        }
    }

    /// The reason for which a rollback is refused.
    pub fn refuses_rollback(&self, number: u64) -> Option<RollbackError> {
        let Some(head) = self.head() else { return Some(RollbackError::Empty) };
        match (self.open(), self.rollback_to) {
            _ if number < self.oldest() => Some(RollbackError::Pruned { first_available: self.oldest() }),
            (Some(open), _) => Some(open.into()),
            _ if number > head => Some(RollbackError::AboveHead { head }),
            (None, Some(to)) if number > to => Some(RollbackError::RollbackUnderway { to }),
            _ => None,
        }
    }

    /// Returns the producer of the open upload, and the time when it expires.
    pub fn open(&self) -> Option<UploadOpen> {
        let (by, upload) = self.producer.zip(self.upload.as_ref())?;
        Some(UploadOpen { by, expires_at_secs: upload.touched + self.expiry_secs })
    }

    /// Returns true if the open upload has expired.
    pub fn expired(&self, now: u64) -> bool {
        self.open().is_some_and(|open| now >= open.expires_at_secs)
    }

    /// Returns what holds pruning back, if an append is refused for lack of capacity.
    pub fn exhausted(&self, now: u64) -> Option<HeldBy> {
        let policy = self.policy.as_ref()?;
        let emergency = policy.target_bytes * u64::from(policy.emergency_ratio_bps) / 10_000;
        let frees = self.oldest() < self.head()?.saturating_sub(1);
        if emergency == 0 || self.capacity_bytes() < emergency || !frees {
            return None;
        }
        if !self.is_enabled() {
            return Some(HeldBy::Disabled);
        }
        let stuck = self.due(now).is_some_and(|due| due.before <= self.oldest());
        Some(if stuck { self.guard().expect("it is what holds").1 } else { HeldBy::PruneLag })
    }

    /// Returns how many blobs become free when the blocks below `bound` are pruned.
    fn frees(&self, bound: u64) -> u64 {
        self.get(bound).map_or(0, |kept| (kept.offset / self.class).saturating_sub(self.log_first))
    }

    /// Returns the lowest bound that frees `bytes`, at most `last`; and whether it frees less.
    fn freeing(&self, bytes: u64, last: u64) -> (u64, bool) {
        let mut beside = 0;
        for kept in &self.kept {
            let number = kept.block.number;
            let is_enough = self.frees(number) * self.class + beside >= bytes;
            if number >= last || is_enough {
                return (number, !is_enough);
            }
            beside += kept.bytes_outside_log();
        }
        (last, true)
    }

    fn wanted(&self, now: u64) -> Option<Wanted> {
        let policy = self.policy.as_ref()?;
        let head = self.head()?;
        let by_count = if policy.retain_blocks > 0 { head.saturating_sub(policy.retain_blocks) } else { 0 };
        let young = |kept: &&Made| kept.monotonic + policy.retain_days * DAY >= now;
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
        let before = before.min(self.rollback_to.unwrap_or(u64::MAX));
        Some(Due { reason, target, before })
    }

    /// Returns the first block that the floor keeps although age or capacity would prune it.
    pub fn floor_block(&self, now: u64) -> Option<u64> {
        let Wanted(_, target, holds) = self.wanted(now)?;
        holds.then_some(target.max(self.oldest()))
    }

    /// Runs the pruner once with at most `max_ops` ops: the first block always, further blocks while they fit.
    pub fn run(&mut self, now: u64, max_ops: u64) {
        let Some(due) = self.due(now) else { return };
        let (mut left, mut first) = (max_ops, true);
        while self.oldest() < due.before {
            let ops = 1 + 2 * self.frees(self.oldest() + 1);
            if !first && ops > left {
                break;
            }
            (first, left) = (false, left.saturating_sub(ops));
            self.prune_oldest();
        }
        if !first {
            self.to_low_water = (self.to_low_water || due.reason == PruneReason::Capacity) && self.above_low_water();
        }
    }

    /// Prunes the oldest block.
    pub fn prune_oldest(&mut self) {
        self.log_first += self.frees(self.oldest() + 1);
        self.pruned.extend(self.kept.pop_front().map(|made| made.block));
    }

    /// Returns the bound below which the daemon prunes.
    pub fn may_go_below(&self, now: u64) -> u64 {
        self.due(now).map_or(0, |due| due.before).max(self.oldest())
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
        if !self.is_enabled() {
            return Some(HeldBy::Disabled);
        }
        self.guard().filter(|_| due.before < due.target).map(|(_, held_by)| held_by).or(floor)
    }

    /// Runs the daemon's ticks until no more due blocks may be pruned.
    pub fn settle(&mut self, now: u64) {
        if self.expired(now) {
            self.upload = None;
        }
        let ops = self.policy.as_ref().map_or(0, |policy| policy.max_ops_per_tick);
        while self.is_enabled() && self.due(now).is_some_and(|due| due.before > self.oldest()) {
            self.run(now, ops);
        }
    }

    /// Returns whether pruning is switched on.
    pub fn is_enabled(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.pruning_enabled)
    }

    /// Sets the policy.
    pub fn set_policy(&mut self, policy: PrunePolicy) {
        let old = self.policy.take().unwrap_or_default();
        self.to_low_water &= PrunePolicy { pruning_enabled: policy.pruning_enabled, ..old } == policy;
        self.policy = Some(policy);
    }

    /// Makes block `number` the head. Returns the removed blocks, lowest last.
    pub fn roll_back(&mut self, number: u64) -> Vec<Made> {
        let mut left = Vec::new();
        while self.head() > Some(number) {
            let made = self.kept.pop_back().expect("there is a head");
            self.tail = made.offset;
            left.push(made);
        }
        let next = self.next();
        self.bounds.values_mut().for_each(|bound| *bound = (*bound).min(next));
        self.to_low_water &= self.above_low_water();
        left
    }

    /// Empties the chain. Damage is forgotten because no removed block can be read again.
    pub fn reset(&mut self, first: u64) {
        self.kept.clear();
        self.harmed_ids.clear();
        self.harmed_keys.clear();
        self.first = first;
        self.bounds.values_mut().for_each(|bound| *bound = 0);
        (self.tail, self.log_first) = (0, 0);
    }

    /// Adds an exporter.
    pub fn register(&mut self, name: String) {
        let oldest = self.oldest();
        self.bounds.entry(name).or_insert(oldest);
    }

    /// Returns the answer to an exporter's acknowledgement of this block, or `None` if there is no such exporter.
    pub fn ack(&self, name: &str, number: u64, hash: &BlockHash) -> Option<Result<u64, AckError>> {
        let bound = *self.bounds.get(name)?;
        let head = self.head();
        let wrong = self.get(number).filter(|made| made.block.hash != *hash);
        Some(match wrong {
            _ if head.is_none_or(|head| number > head) => Err(AckError::AboveHead { head }),
            Some(made) => Err(AckError::WrongHash { expected: made.block.hash.clone() }),
            None => Ok(bound.max(number + 1)),
        })
    }
}

//! Tests of caps, with the default class of the log: in whatever order blocks and records come and go, the chain reaches its target and
//! records their cap, and at most a tenth of either is lost to pieces.

use super::*;
use ic_coppice_chain::testing::pruning::world_of;
use ic_coppice_interface::{NoMemory, UtxoRefusal, greatest_records, records_reserve};
use ic_coppice_storage::testing::set_max_pages;

const LARGE: u32 = 1 << 20;
const TARGET: u64 = 64 << 20;
/// 192 MiB.
const PAGES: u64 = 3_072;
/// Outputs of records in a slot of a shared chunk, of a chunk of their own, and of more than half a unit.
const SIZES: [u32; 3] = [2, 1_000, 7_300];

struct Caps {
    both: Both,
    records: Vec<[u8; 32]>,
    cap: u64,
    random: u64,
}

impl Caps {
    fn new(seed: u64) -> Self {
        let both = Both::new(world_of(LARGE, PrunePolicyArg { target_bytes: Some(TARGET), ..policy() }));
        set_max_pages(PAGES);
        arena().set_reserve(records_reserve(PAGES));
        let cap = greatest_records(PAGES, LARGE, TARGET);
        arena().set_quota(cap, 0);
        Self { both, records: Vec::new(), cap, random: seed }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.random >> 33) % most
    }

    /// Creates a record, and returns whether the quota allows it. Nothing else refuses it.
    fn create(&mut self, outputs: u32) -> bool {
        match self.both.create(outputs) {
            Ok(txid) => {
                self.records.push(txid);
                true
            }
            Err(error) => {
                assert_eq!(error, UtxoRefusal::NoMemory(NoMemory::RecordsFull { limit: self.cap }));
                false
            }
        }
    }

    fn delete(&mut self, nth: usize) {
        let txid = self.records.swap_remove(nth);
        self.both.delete(&txid);
    }

    /// Deletes all records but one in `of`, in a random order.
    fn thin(&mut self, of: usize) {
        for _ in 0..self.records.len() - self.records.len() / of {
            let nth = self.below(self.records.len() as u64) as usize;
            self.delete(nth);
        }
    }

    /// Blocks until the target is reached.
    fn fill_chain(&mut self) {
        let world = &mut self.both.blocks;
        while world.status().capacity_bytes < TARGET {
            arena().end_reservations();
            world.append(1, 1_900_000, 1);
        }
    }

    /// Records until each size is refused.
    fn fill_records(&mut self) {
        for outputs in SIZES.into_iter().rev() {
            while self.create(outputs) {}
        }
        let arena = arena();
        let (touched, free) = (arena.touched_bytes(), arena.free_counted_bytes());
        assert!(touched <= self.cap, "{touched} of {}", self.cap);
        assert!(touched - free >= self.cap / 10 * 9, "{free} of {touched} are free, of {}", self.cap);
    }

    fn prune_chain(&mut self) {
        self.both.blocks.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..policy() });
        (0..20).for_each(|_| self.both.blocks.tick());
        assert_eq!(self.both.blocks.due(), None);
        self.both.blocks.set_policy(PrunePolicyArg { target_bytes: Some(TARGET), retain_blocks: None, ..policy() });
    }
}

#[test]
fn records_first_then_the_chain() {
    let mut caps = Caps::new(1);
    caps.fill_records();
    caps.fill_chain();
    caps.thin(20);
    caps.prune_chain();
    caps.fill_chain();
    caps.fill_records();
}

#[test]
fn the_chain_first_then_records() {
    let mut caps = Caps::new(2);
    caps.fill_chain();
    caps.fill_records();
    caps.prune_chain();
    assert!(!SIZES.into_iter().any(|outputs| caps.create(outputs)), "the chain's memory does not become the records'");
    caps.fill_chain();
}

/// Each unit that records have touched keeps one small record, and is filled again.
#[test]
fn one_small_record_in_each_unit() {
    let mut caps = Caps::new(3);
    let mut small = Vec::new();
    while caps.create(1_000) {
        if caps.records.len().is_multiple_of(8) {
            small.push(caps.records.len() - 1);
        }
    }
    for nth in (0..caps.records.len()).rev().filter(|nth| !small.contains(nth)) {
        let txid = caps.records[nth];
        caps.both.delete(&txid);
    }
    let kept: Vec<_> = small.iter().map(|nth| caps.records[*nth]).collect();
    caps.records = kept;
    caps.fill_chain();
    caps.fill_records();
    caps.prune_chain();
    caps.thin(50);
    caps.fill_chain();
    caps.fill_records();
}

#[test]
fn random_histories_of_both() {
    let mut caps = Caps::new(4);
    for round in 0..4 {
        for _ in 0..400 {
            match caps.below(8) {
                0..4 => {
                    let outputs = SIZES[caps.below(3) as usize];
                    caps.create(outputs);
                }
                4..6 if !caps.records.is_empty() => {
                    let nth = caps.below(caps.records.len() as u64) as usize;
                    caps.delete(nth);
                }
                6 => caps.both.blocks.tick(),
                _ => {
                    arena().end_reservations();
                    let body = [10, 100_000, 1_900_000][caps.below(3) as usize];
                    caps.both.blocks.append(1, body, 1);
                }
            }
        }
        caps.fill_chain();
        if round % 2 == 1 {
            caps.fill_records();
            caps.thin(10);
        }
        caps.prune_chain();
    }
}

/// 64 extents, whose fronts break a unit each, with the largest units: records at their default cap leave the chain its target.
#[test]
fn records_at_their_cap_leave_the_target_in_a_large_arena() {
    const PAGES: u64 = 64 * 4_096;
    const TARGET: u64 = 1 << 30;
    for log_class in [64 << 10, LARGE, 4 << 20] {
        let world = world_of(log_class, PrunePolicyArg { target_bytes: Some(TARGET), ..policy() });
        let arena = arena();
        set_max_pages(PAGES);
        arena.set_reserve(records_reserve(PAGES));
        let cap = greatest_records(PAGES, log_class, TARGET);
        arena.set_quota(cap, 0);
        for kib in [4_096, 256, 64] {
            while arena.creating(|| arena.take_granules(owners::RECORDS, kib / 64)).is_ok() {}
        }
        assert!(arena.touched_bytes() + u64::from(log_class.max(256 << 10)) > cap, "{log_class}");
        let room = arena.room(world.chain.log_class()) * u64::from(log_class);
        assert!(room >= TARGET + records_reserve(PAGES), "{log_class}: {room}");
    }
}

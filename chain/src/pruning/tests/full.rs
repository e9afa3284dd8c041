//! The capacity trigger over an arena that is smaller than the target, or that other stores fill: the effective target.

use super::*;
use ic_coppice_interface::segments::MAX_ENTRIES;
use ic_coppice_interface::{AppendBlock, AppendError, BeginBlock, NoMemory};
use ic_coppice_storage::blob::GRANULE;

const MIB: u64 = 1 << 20;
/// The default class of the log.
const LARGE: u32 = 1 << 20;

/// Sets the cap on memory, in units of 16 MiB.
fn set_cap(units: u64) {
    testing::set_max_pages(units * 256);
}

/// A world with a target, and a cap on memory in units of 16 MiB.
fn full(units: u64, target: u64) -> World {
    let world = world_of(LARGE, PrunePolicyArg { target_bytes: Some(target), ..policy() });
    set_cap(units);
    world
}

/// The reason why a block was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refused {
    Exhausted(HeldBy),
    OutOfSpace,
    LowCycles,
}

impl World {
    fn next_block(&self, ids: u64, body: usize) -> AppendBlock {
        let number = self.chain.state().next;
        let ids: Vec<_> = (0..ids).map(|nth| id(number << 20 | nth)).collect();
        // Digests are not verified here, so the body needs none.
        let body = vec![0; body].into();
        AppendBlock { timestamp_secs: Ic::now_secs(), body, ..block(number, &ids, 0) }
    }

    /// Appends a block as the endpoint does.
    fn offer(&mut self, block: &AppendBlock) -> Result<(), Refused> {
        twin::with(|world| world.time_ns += NS);
        testing::arena().end_reservations();
        let admission = Admission { exhausted: self.exhausted(), ..Admission::default() };
        match self.chain.append(&mut self.blobs, block, &admission, Ic::now_secs()) {
            Ok(()) => Ok(()),
            Err(AppendError::CapacityExhausted { held_by }) => Err(Refused::Exhausted(held_by)),
            Err(AppendError::NoMemory(NoMemory::OutOfSpace)) => Err(Refused::OutOfSpace),
            Err(AppendError::NoMemory(NoMemory::LowCycles { .. })) => Err(Refused::LowCycles),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn begin_upload(&mut self, body: u64) -> Result<(), AppendError> {
        testing::arena().end_reservations();
        let block = self.next_block(1, 0);
        let begin = BeginBlock {
            number: block.number,
            hash: block.hash,
            parent_hash: block.parent_hash,
            timestamp_secs: block.timestamp_secs,
            lengths: [body, 0, 0].into(),
            sha256: block.sha256,
            chunk_size: 1 << 20,
        };
        let admission = Admission { exhausted: self.exhausted(), ..Admission::default() };
        self.chain.begin(&mut self.blobs, &begin, candid::Principal::anonymous(), &admission, Ic::now_secs()).map(drop)
    }

    /// Lifts the guard and ticks until nothing is due.
    fn let_go(&mut self) {
        self.constraints.exported = None;
        for _ in 0..200 {
            testing::arena().end_reservations();
            if self.due().is_none() {
                return;
            }
            self.tick();
        }
        panic!("due blocks wait: {:?}", self.status());
    }

    fn is_at_floor(&self) -> bool {
        let state = self.chain.state();
        state.head().is_none_or(|head| state.oldest + 1 >= head)
    }
}

#[test]
fn full_arena_names_the_exporter_and_is_pruned_after_it() {
    let mut world = full(8, 400 * MIB);
    world.hold_at(0);
    let refused = loop {
        let block = world.next_block(3, 1_900_000);
        if let Err(refused) = world.offer(&block) {
            break refused;
        }
    };
    assert_eq!(refused, Refused::Exhausted(HeldBy::Exporter("slow".into())));
    let status = world.status();
    let marks = status.water_marks.unwrap();
    // The arena has 128 MiB, of which 16 MiB are left for one append, and pages of the headers and the index take some.
    assert!((110 * MIB..=112 * MIB).contains(&marks.target), "{marks:?}");
    assert!(status.need_prune && status.reason == Some(PruneReason::Capacity), "{status:?}");
    assert!(world.export_held().unwrap().is_full);
    let plan = world.plan();
    assert_eq!((plan.reason, plan.held_by), (status.reason, Some(HeldBy::Exporter("slow".into()))));
    world.let_go();
    assert!(world.status().capacity_bytes <= marks.low, "{:?}", world.status());
    for _ in 0..200 {
        let block = world.next_block(3, 1_900_000);
        if let Err(refused) = world.offer(&block) {
            assert_eq!(refused, Refused::Exhausted(HeldBy::PruneLag));
            world.let_go();
            world.offer(&block).unwrap();
        }
    }
}

#[test]
fn raised_cap_raises_the_effective_target_up_to_the_target() {
    let mut world = full(4, 100 * MIB);
    world.append(10, 1_900_000, 1);
    let target = |world: &World| world.status().water_marks.unwrap().target;
    assert!((46 * MIB..=48 * MIB).contains(&target(&world)), "{}", target(&world));
    set_cap(6);
    assert!((78 * MIB..=80 * MIB).contains(&target(&world)), "{}", target(&world));
    for buckets in [8, 100] {
        set_cap(buckets);
        assert_eq!(target(&world), 100 * MIB, "{buckets}");
    }
    // Pruned and rolled back blocks leave the effective target where it was.
    set_cap(4);
    let before = target(&world);
    world.hold_at(5);
    world.set_policy(PrunePolicyArg { target_bytes: Some(100 * MIB), retain_blocks: Some(1), ..policy() });
    world.tick();
    assert_eq!(world.oldest(), 5);
    assert!(target(&world).abs_diff(before) < 64 << 10, "{before}, {}", target(&world));
}

#[test]
fn refusal_for_cycles_or_size_makes_nothing_due() {
    let mut world = full(8, 400 * MIB);
    world.append(6, 1_900_000, 1);
    let before = world.status();
    twin::with(|world| world.liquid_cycles = 1);
    for _ in 0..20 {
        let block = world.next_block(1, 1_900_000);
        let refused = world.offer(&block);
        assert!(refused.is_ok() || refused == Err(Refused::LowCycles), "{refused:?}");
        assert_eq!((world.due(), world.exhausted()), (None, None));
    }
    let block = world.next_block(1, 1_900_000);
    assert_eq!(world.offer(&block), Err(Refused::LowCycles), "memory was grown for some blocks ahead");
    twin::with(|world| world.liquid_cycles = u128::MAX);
    for _ in 0..3 {
        assert_eq!(world.begin_upload(200 << 20), Err(AppendError::NoMemory(NoMemory::OutOfSpace)));
        assert_eq!((world.due(), world.exhausted()), (None, None));
    }
    let target = |status: PruneStatus| status.water_marks.unwrap().target;
    assert!(target(world.status()).abs_diff(target(before)) < 64 << 10);
    let before = world.status();
    // The bytes of an open upload become the chain's, or return: they do not count as taken by others.
    world.begin_upload(60 << 20).unwrap();
    assert_eq!((world.due(), world.status().water_marks), (None, before.water_marks));
    assert_eq!(world.chain.abort_upload(&mut world.blobs, world.chain.state().next), Ok(true));
    assert_eq!((world.due(), world.status().water_marks), (None, before.water_marks));
}

/// The largest block of one message fits where the effective target ends.
#[test]
fn largest_append_fits_below_the_effective_target() {
    let mut world = full(6, 400 * MIB);
    world.hold_at(0);
    // Fills the tail's blob, up to high water.
    while world.due().is_none() {
        let block = world.next_block(1, 500_000);
        world.offer(&block).unwrap();
    }
    let mut block = world.next_block(0, 1_400_000);
    let keys = (0..MAX_ENTRIES as u32 - 1).map(|nth| (0, nth.to_le_bytes()));
    let keys: Vec<_> = keys.collect();
    let keys = keys.iter().map(|(transaction, key)| (*transaction, key.as_slice()));
    block.index = ic_coppice_interface::segments::encode_index([id(1)].into_iter(), keys).unwrap().into();
    block.receipts = Default::default();
    assert_eq!(world.offer(&block), Ok(()));
}

/// Random blocks, uploads and guards beside stores that take and give back granules, under caps and policies of all sizes: the chain is
/// never refused memory while it keeps more than its floor, and after the guard nothing due waits.
#[test]
fn histories_over_a_full_arena_never_wait_for_ever() {
    let policies =
        [(400 * MIB, 2_000, 9_500), (40 * MIB, 2_000, 9_500), (1 << 40, 1, 10_000), (1 << 40, 10_000, 10_000)];
    let mut exhausted = 0;
    for seed in 1..9u64 {
        let (target_bytes, headroom_ratio_bps, emergency_ratio_bps) = policies[seed as usize % policies.len()];
        let mut world = full(3 + seed % 4, 400 * MIB);
        let policy = world.pruner.policy().cloned().unwrap();
        world.pruner.set_policy(PrunePolicy { target_bytes, headroom_ratio_bps, emergency_ratio_bps, ..policy });
        let arena = testing::arena();
        let (mut taken, mut uploads) = (Vec::new(), false);
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut below = |most: u64| {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (random >> 33) % most
        };
        for step in 0..300 {
            let state = world.chain.state();
            let (oldest, next) = (state.oldest, state.next);
            match below(12) {
                0..6 if !uploads => {
                    let body = [10, 50_000, 500_000, 1_900_000][below(4) as usize];
                    let block = world.next_block([1, 30, 800][below(3) as usize], body);
                    match world.offer(&block) {
                        Ok(()) => {}
                        Err(Refused::Exhausted(_)) => exhausted += 1,
                        Err(refused) => {
                            assert!(
                                refused == Refused::OutOfSpace && world.is_at_floor(),
                                "seed {seed}, step {step}: {refused:?}, {:?}",
                                world.status()
                            );
                        }
                    }
                }
                6 | 7 if (taken.len() as u64) < 400 => {
                    arena.end_reservations();
                    let room = arena.room(world.chain.log_class());
                    if room > below(30) {
                        let granules = 1 + below(64);
                        let first = arena.take_granules(testing::COUNTED, granules);
                        taken.extend(first.map(|first| (first, granules)));
                    }
                }
                8 if !taken.is_empty() => {
                    let at = below(taken.len() as u64) as usize;
                    let (first, granules) = taken.swap_remove(at);
                    arena.give_granules(testing::COUNTED, first, granules);
                }
                9 => world.hold_at(oldest + below(next - oldest + 2)),
                10 if uploads => uploads = !world.chain.abort_upload(&mut world.blobs, next).unwrap(),
                10 => uploads = world.begin_upload(below(24 << 20)).is_ok(),
                _ => world.tick(),
            }
            if step % 30 == 29 {
                world.let_go();
                assert!(world.exhausted().is_none(), "seed {seed}, step {step}");
                if !uploads {
                    let block = world.next_block(3, 1_900_000);
                    let offered = world.offer(&block);
                    assert!(
                        offered.is_ok() || world.is_at_floor(),
                        "seed {seed}, step {step}: {offered:?}, {:?}",
                        world.status()
                    );
                }
            }
        }
        let kept: u64 = taken.len() as u64 * GRANULE;
        assert!(world.blobs.arena().kept_bytes(testing::COUNTED) >= kept);
    }
    assert!(exhausted > 50, "{exhausted} refused");
}

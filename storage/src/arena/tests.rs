//! Tests of the arena: comparison with a plain model, and its rules one by one.

use super::*;
use crate::GrowError;
use crate::blob::{AllocateError, BlobPtr, BlobStore, PtrError};
use crate::testing::{self, COUNTED, LOG, RECORDS, UPLOAD};
use crate::twin::{self, Twin};
use ic_stable_structures::Memory;
use std::collections::{BTreeMap, BTreeSet};

fn fresh() -> Arena<Twin> {
    testing::fresh();
    testing::arena()
}

fn reopen() -> Arena<Twin> {
    testing::forget();
    testing::arena()
}

fn quota_full(arena: &Arena<Twin>) -> GrowError {
    GrowError::QuotaFull { limit: arena.quota() }
}

fn class(kib: u32) -> Class {
    Class::of_size(kib << 10).unwrap()
}

/// The offsets in KiB of the free slots of each class, as the entries say.
fn free_slots(arena: &Arena<Twin>) -> Vec<(u32, u64)> {
    let entries = (0..arena.end() / GRANULE).map(|granule| (granule, arena.entry(granule).unwrap().unwrap()));
    let free = entries.filter(|(_, entry)| entry.state == SlotState::Free);
    free.map(|(granule, entry)| (entry.class.size() >> 10, granule * 64)).collect()
}

/// The free slots of the first mebibyte if nothing is taken: those behind the extent's front.
const FIRST: [(u32, u64); 3] = [(64, 192), (256, 256), (512, 512)];

/// Cycles for a page and not for the next 15: the page that taught the price stays, and is part of the arena that is opened later.
#[test]
fn arena_that_was_refused_its_first_memory_is_opened_later() {
    testing::fresh();
    twin::with(|world| (world.page_threshold, world.liquid_cycles) = (1_000, 84_200_000_000 + 15_999));
    let why = testing::try_arena().err().unwrap().to_string();
    assert_eq!((why.as_str(), Raw::<Twin>::new().pages()), ("arena: cycles are missing for memory to grow", 1));
    twin::with(|world| world.liquid_cycles += 1);
    assert_eq!(free_slots(&testing::arena()), FIRST);
}

#[test]
fn memory_of_another_layout_is_refused() {
    for magic in [*b"MGR\x01", *b"\0\0\0\x01"] {
        testing::fresh();
        <Twin as Platform>::Memory::default().grow(3);
        Raw::<Twin>::new().write(0, &magic);
        let why = testing::try_arena().err().unwrap().to_string();
        assert!(why.starts_with("stable memory: magic"), "{why}");
        assert_eq!(Raw::<Twin>::new().read(0), magic, "it is as it was");
    }
}

#[test]
fn a_slot_is_split_and_joined() {
    let arena = fresh();
    assert_eq!((arena.end(), arena.billed_pages(), free_slots(&arena)), (1 << 20, 16, FIRST.to_vec()));
    let large = arena.take(LOG, class(4096), 10).unwrap();
    assert_eq!((large.granule, large.generation, arena.end()), (64, 1, 8 << 20), "after the first block");
    let small = arena.take(LOG, class(128), 10).unwrap();
    assert_eq!(small.granule, 4, "the lowest of the smallest class");
    assert_eq!(
        free_slots(&arena),
        [(64, 192), (128, 384), (512, 512), (1024, 1024), (2048, 2048)],
        "the other half is free at once, and so is the rest of the first block"
    );
    let entry = |granule| arena.entry(granule).unwrap().unwrap();
    arena.give(small.granule, entry(4));
    arena.give(large.granule, entry(64));
    assert_eq!(free_slots(&arena)[..3], FIRST);
    assert_eq!(free_slots(&arena)[3..], [(1024, 1024), (2048, 2048), (4096, 4096)]);
    let half = arena.take(LOG, class(2048), 10).unwrap();
    let half = [half, arena.take(LOG, class(2048), 10).unwrap()][1];
    assert_eq!(half, Slot { granule: 64, generation: 2 }, "a granule keeps its generation");
}

/// Three free mebibytes at the end of the arena are a part of the slot of 4 MiB for which a fourth is grown.
#[test]
fn new_memory_joins_the_free_slots_before_it() {
    let arena = fresh();
    arena.growth().set_max_pages(8 * 16);
    arena.reserve(LOG, &[(class(1024).granules(), 6)]).unwrap();
    assert_eq!(arena.end(), 7 << 20);
    arena.end_reservations();
    assert_eq!(arena.take(LOG, Class::LARGEST, 1).map(|slot| slot.granule), Ok(64));
    assert_eq!(arena.end(), 8 << 20);
}

#[test]
fn granules_beyond_those_taken_are_free() {
    let arena = fresh();
    let starts = [5, 3, 64, 1, 33].map(|granules| arena.take_granules(RECORDS, granules).unwrap());
    assert_eq!(starts, [8, 4, 64, 3, 128]);
    assert_eq!(arena.kept_bytes(RECORDS), (5 + 3 + 64 + 1 + 33) * GRANULE);
    for (start, granules) in [(8, 5), (64, 64), (3, 1), (128, 33), (4, 3)] {
        arena.give_granules(RECORDS, start, granules);
    }
    let rest = [(1024, 1024), (2048, 2048), (4096, 4096), (4096, 8192)];
    assert_eq!(free_slots(&arena), [FIRST.as_slice(), &rest].concat());
    assert_eq!(arena.take_granules(RECORDS, 65), Err(GrowError::OutOfSpace));
    assert_eq!((arena.take_granules(RECORDS, 0), arena.kept_bytes(RECORDS)), (Ok(3), GRANULE));
    arena.give_granules(RECORDS, 3, 1);
    let free = free_slots(&arena);
    arena.give_granules(RECORDS, 5, 1);
    assert_eq!(free_slots(&arena), free, "what nobody has is not freed");
}

/// A flipped bit in the length would free the granules of others behind it.
#[test]
fn granules_whose_entry_is_damaged_are_written_off_and_free_no_other() {
    for (owner, bit) in [RECORDS, COUNTED].into_iter().flat_map(|owner| (0..8 * 16).map(move |bit| (owner, bit))) {
        let arena = fresh();
        let start = arena.take_granules(owner, 4).unwrap();
        let others: Vec<u64> = (0..100).map(|_| arena.take_granules(LOG, 1).unwrap()).collect();
        let at = extent::entry(start) + bit / 8;
        let [byte] = arena.payload().read(at);
        arena.payload().write(at, &[byte ^ 1 << (bit % 8)]);
        arena.give_granules(owner, start, 4);
        assert_eq!(arena.kept_bytes(owner), 0, "bit {bit}");
        let is_kept = |granule: &u64| arena.entry(*granule).unwrap().unwrap().state == SlotState::Taken;
        assert!(others.iter().all(is_kept), "bit {bit}");
        assert_eq!(arena.kept_bytes(LOG), 100 * GRANULE, "bit {bit}");
        let lost = arena.class_counters(Class::SMALLEST).lost;
        assert!(lost == 0 || lost == 4, "bit {bit}");
        // The counters agree with the arena's size.
        testing::forget();
        testing::arena();
    }
}

/// A bit of an entry, or of a line of either side, is flipped beside blobs of both sides; then all are freed and taken again. Whatever was
/// taken stays its owner's, and the next upgrade is not refused.
#[test]
fn flipped_bits_of_entries_and_lines_refuse_no_upgrade() {
    let places: Vec<u64> = [3, 4, 8, 16, 32, 48]
        .into_iter()
        .flat_map(|granule| extent::entry(granule)..extent::entry(granule) + 16)
        .collect();
    let lines = [0, extent::SIDE].map(|side| side + extent::level_0(0)).map(|line| line..line + extent::LINE);
    let upper = [0, extent::SIDE].map(|side| side + extent::level_1(0)).map(|line| line..line + extent::LINE);
    for at in places.into_iter().chain(lines.into_iter().flatten()).chain(upper.into_iter().flatten()) {
        for bit in 0..8 {
            let arena = fresh();
            arena.set_log_class(class(1024));
            let mut blobs = BlobStore::open(arena.clone());
            let owners = [LOG, COUNTED];
            let first: Vec<BlobPtr> =
                (0..12).map(|nth| blobs.allocate([60_000, 250_000][nth / 2 % 2], owners[nth % 2]).unwrap()).collect();
            first.iter().skip(4).for_each(|ptr| assert!(blobs.free(ptr).and_then(|_| blobs.release(ptr)).is_ok()));
            let [byte] = arena.payload().read(at);
            arena.payload().write(at, &[byte ^ 1 << bit]);
            first.iter().take(2).for_each(|ptr| {
                let _ = blobs.free(ptr).and_then(|_| blobs.release(ptr));
            });
            let taken: Vec<BlobPtr> =
                (0..20).map(|nth| blobs.allocate([60_000, 250_000][nth / 2 % 2], owners[nth % 2]).unwrap()).collect();
            let all: Vec<&BlobPtr> = first[2..4].iter().chain(&taken).collect();
            let places: BTreeSet<u64> = all.iter().map(|ptr| ptr.offset).collect();
            assert_eq!(places.len(), all.len(), "bit {bit} of {at}: a slot is taken twice");
            taken.iter().for_each(|ptr| {
                let _ = blobs.free(ptr).and_then(|_| blobs.release(ptr));
            });
            arena.rewrite();
            testing::forget();
            let opened = testing::try_arena();
            assert!(opened.is_ok(), "bit {bit} of {at}: {:?}", opened.err());
        }
    }
}

#[test]
fn reservations_of_owners_add_up_and_are_never_refused() {
    let arena = fresh();
    arena.reserve(LOG, &[(class(1024).granules(), 4)]).unwrap();
    assert_eq!(arena.end(), 5 << 20, "one in each mebibyte, except the first, which has the front");
    arena.reserve(UPLOAD, &[(class(1024).granules(), 1)]).unwrap();
    assert_eq!(arena.end(), 6 << 20, "the earlier ones are reserved by another owner");
    arena.growth().set_max_pages(arena.billed_pages());
    assert_eq!(arena.take(RECORDS, class(1024), 1), Err(GrowError::OutOfSpace));
    (0..4).for_each(|_| assert!(arena.take(LOG, class(1024), 1).is_ok()));
    assert!(arena.take(UPLOAD, class(1024), 1).is_ok());
    assert_eq!(arena.take(LOG, class(1024), 1), Err(GrowError::OutOfSpace), "used up");
    arena.growth().set_max_pages(8 * 16);
    // A new reservation replaces the owner's earlier one, and the end of the message ends all.
    arena.reserve(LOG, &[(class(1024).granules(), 2)]).unwrap();
    assert_eq!(arena.reserve(UPLOAD, &[(class(2048).granules(), 1)]), Err(GrowError::OutOfSpace));
    arena.reserve(LOG, &[(class(64).granules(), 1)]).unwrap();
    assert_eq!(arena.reserve(UPLOAD, &[(class(2048).granules(), 1)]), Ok(()));
    assert_eq!(arena.take(LOG, class(2048), 1), Err(GrowError::OutOfSpace));
    arena.end_reservations();
    assert!(arena.take(LOG, class(2048), 1).is_ok());
}

#[test]
fn counted_owners_end_at_the_quota() {
    let arena = fresh();
    arena.set_quota(2 * BLOCK, 0);
    let take = |owner| arena.take(owner, Class::LARGEST, 1);
    let create = |owner| arena.creating(|| take(owner));
    assert!(create(COUNTED).is_ok() && create(COUNTED).is_ok());
    assert_eq!(create(COUNTED), Err(quota_full(&arena)));
    assert_eq!(arena.creating(|| arena.reserve(COUNTED, &[(class(64).granules(), 1)])), Err(quota_full(&arena)));
    assert_eq!(arena.creating(|| arena.reserve(COUNTED, &[])), Ok(()), "nothing is wanted");
    assert!(create(LOG).is_ok(), "not counted");
    let above = testing::RESERVE / BLOCK;
    (0..above).for_each(|_| assert!(take(COUNTED).is_ok()));
    assert_eq!(take(COUNTED), Err(quota_full(&arena)), "work on existing entries ends at the reserve");
    // A cap below use leaves the whole reserve.
    arena.set_quota(BLOCK, arena.touched_bytes());
    assert_eq!(create(COUNTED), Err(quota_full(&arena)));
    (0..above).for_each(|_| assert!(take(COUNTED).is_ok()));
    assert_eq!(take(COUNTED), Err(quota_full(&arena)));
    // Bytes given back count no longer.
    arena.set_quota(2 * BLOCK, 0);
    let taken = (0..arena.end() / GRANULE).step_by(64);
    for granule in taken {
        let entry = arena.entry(granule).unwrap().unwrap();
        if entry.state == SlotState::Used && entry.owner == COUNTED {
            arena.give(granule, entry);
        }
    }
    assert_eq!((arena.touched_bytes(), create(COUNTED).is_ok()), (0, true));
}

#[test]
fn reserved_memory_of_a_counted_owner_counts_towards_the_quota() {
    let arena = fresh();
    arena.set_quota(BLOCK, 0);
    let half = [(class(2048).granules(), 1)];
    arena.creating(|| {
        arena.reserve(COUNTED, &half).unwrap();
        assert_eq!(arena.take(COUNTED, Class::LARGEST, 1), Err(quota_full(&arena)));
        arena.reserve(COUNTED, &half).unwrap();
        assert!(arena.take(COUNTED, class(2048), 1).is_ok() && arena.take(COUNTED, class(2048), 1).is_ok());
        assert_eq!(arena.take(COUNTED, class(64), 1), Err(quota_full(&arena)));
    });
}

#[test]
fn only_the_log_and_work_that_frees_memory_take_the_reserve() {
    let arena = fresh();
    arena.set_log_class(class(1024));
    let blocks = 2 * testing::RESERVE / BLOCK;
    arena.take(LOG, class(64), 1).unwrap();
    arena.growth().set_max_pages(blocks * BLOCK / GRANULE);
    let create = |owner, class| arena.creating(|| arena.take(owner, class, 1));
    let most = |owner, class| (0..).take_while(|_| create(owner, class).is_ok()).count() as u64;
    create(COUNTED, class(64)).unwrap();
    let large = most(COUNTED, class(1024));
    assert_eq!(
        large,
        4 * blocks - 2 - testing::RESERVE / (1 << 20),
        "all but the reserve, a touched unit and the first mebibyte"
    );
    assert_eq!(most(COUNTED, class(64)), 15, "the rest of the touched unit, which splits no slot of the reserve");
    assert_eq!(most(LOG, class(64)), 12, "the rest of the first mebibyte");
    let mut log = 0;
    while arena.take(LOG, class(1024), 1).is_ok() {
        log += 1;
    }
    assert_eq!(log, testing::RESERVE / (1 << 20), "the log takes the last ones");
}

/// Thousands of times in the worst order: each unit keeps one small slot, and takes no other owner's slots.
#[test]
fn counted_owners_fill_the_units_that_they_touch() {
    let arena = fresh();
    arena.set_log_class(class(1024));
    let unit = 1 << 20;
    arena.set_quota(100 * unit, 0);
    let create = |kib: u64| arena.creating(|| arena.take_granules(COUNTED, kib / 64));
    let small: Vec<u64> = (0..1_600).map(|_| create(64).unwrap()).collect();
    assert_eq!((arena.touched_bytes(), create(64)), (100 * unit, Err(quota_full(&arena))));
    for (nth, granule) in small.iter().enumerate() {
        if nth % 16 > 0 {
            arena.give_granules(COUNTED, *granule, 1);
        }
    }
    assert_eq!((arena.touched_bytes(), arena.free_counted_bytes()), (100 * unit, 100 * unit - 100 * GRANULE));
    let log: Vec<u64> = (0..1_500).map(|_| arena.take_granules(LOG, 1).unwrap()).collect();
    assert!(log.iter().all(|granule| small.iter().all(|of| granule / 16 != of / 16)), "no unit is shared");
    // A reserve that others have drawn upon refuses new units only.
    arena.set_reserve(1 << 60);
    assert!(create(1_024).is_err());
    arena.give_granules(COUNTED, create(64).unwrap(), 1);
    arena.set_reserve(testing::RESERVE);
    // A quota that is exceeded refuses new units only.
    arena.set_quota(unit, 0);
    assert_eq!(create(1_024), Err(quota_full(&arena)));
    assert_eq!(arena.creating(|| arena.reserve(COUNTED, &[(class(512).granules(), 101)])), Err(quota_full(&arena)));
    assert_eq!(arena.creating(|| arena.reserve(COUNTED, &[(class(512).granules(), 100)])), Ok(()));
    arena.end_reservations();
    let filled = (0..).take_while(|_| create(512).is_ok()).count() + (0..).take_while(|_| create(64).is_ok()).count();
    assert_eq!((filled, arena.free_counted_bytes(), arena.touched_bytes()), (100 + 700, 0, 100 * unit));
}

/// The counter has free slots that the index does not have: they are written off, and do not let owners pass the quota for ever.
#[test]
fn cleared_bits_of_free_slots_lift_no_quota() {
    let arena = fresh();
    arena.set_log_class(class(1024));
    arena.growth().set_max_pages(64 * 16);
    arena.set_reserve(0);
    arena.set_quota(4 << 20, 0);
    let create = || arena.creating(|| arena.take_granules(COUNTED, 1));
    let first = create().unwrap();
    arena.payload().write(extent::SIDE + extent::level_0(first), &[0; extent::LINE as usize]);
    assert!((0..).take_while(|_| create().is_ok()).count() >= 48);
    assert!(arena.touched_bytes() <= 4 << 20, "{}", arena.touched_bytes());
    assert_eq!(Class::all().map(|class| arena.class_counters(class).lost).sum::<u32>(), 4);
}

/// Granules of more than a unit: those of whole units beyond them serve all owners, and those of the last unit only counted ones.
#[test]
fn granules_beyond_those_of_a_counted_owner_are_free_by_units() {
    let arena = fresh();
    arena.set_log_class(class(1024));
    arena.set_quota((3 << 20) - 1, 0);
    assert_eq!(arena.creating(|| arena.take_granules(COUNTED, 33)), Err(quota_full(&arena)));
    arena.set_quota(3 << 20, 0);
    let start = arena.creating(|| arena.take_granules(COUNTED, 33)).unwrap();
    assert_eq!((arena.touched_bytes(), arena.free_counted_bytes()), (3 << 20, 15 * GRANULE));
    assert_eq!(arena.creating(|| arena.take_granules(COUNTED, 16)), Err(quota_full(&arena)));
    let log = arena.take(LOG, class(1024), 1).unwrap().granule;
    let piece = arena.creating(|| arena.take_granules(COUNTED, 8)).unwrap();
    assert_eq!((log < start, piece), (true, start + 40));
    let last = [arena.take(LOG, class(1024), 1), arena.take(LOG, class(1024), 1)].map(|slot| slot.unwrap().granule);
    assert!(last.contains(&(start + 48)), "{last:?}");
    arena.give_granules(COUNTED, start, 33);
    assert_eq!((arena.touched_bytes(), arena.free_counted_bytes()), (1 << 20, 8 * GRANULE));
    arena.give_granules(COUNTED, piece, 8);
    assert_eq!((arena.touched_bytes(), arena.free_counted_bytes()), (0, 0));
}

/// Plain model of the arena: free slots in a set, all others by their first granule.
#[derive(Clone, Default)]
struct Model {
    /// Granules of the arena.
    end: u64,
    /// Free slots of both sides.
    free: [BTreeSet<(Class, u64)>; 2],
    held: BTreeMap<u64, Held>,
    generations: BTreeMap<u64, u32>,
    reserved: [[u64; 7]; Owner::COUNT],
}

#[derive(Clone, Debug)]
struct Held {
    granules: u64,
    class: Class,
    owner: Owner,
    state: SlotState,
    bytes: u8,
}

/// The class of a unit in the model.
fn unit() -> Class {
    class(512)
}

/// Allocates a slot of a class: the lowest of the smallest class that has one, for a counted owner in a unit that is touched, else of a unit.
fn take(free: &mut [BTreeSet<(Class, u64)>; 2], owner: Owner, class: Class) -> Option<u64> {
    let is_piece = owner == COUNTED && class < unit();
    let from = Class::all().filter(|from| *from >= class).flat_map(|from| [(0, from), (1, from)]);
    let from = from.filter(|(side, from)| if is_piece { *side == u8::from(*from < unit()) } else { *side == 0 });
    let lowest = |(side, from): (u8, Class)| {
        free[usize::from(side)].range((from, 0)..(from, u64::MAX)).next().map(|(_, at)| (side, from, *at))
    };
    let (side, mut from, at) = from.filter_map(lowest).next()?;
    free[usize::from(side)].remove(&(from, at));
    while from > class {
        from = Class::all().rev().find(|smaller| *smaller < from).unwrap();
        let side = usize::from(owner == COUNTED && from < unit());
        free[side].insert((from, at + from.granules()));
    }
    Some(at)
}

impl Model {
    /// The end to which the arena must grow to serve all reservations and this slot.
    fn end_for(&self, owner: Owner, class: Class) -> u64 {
        if self.reserved[owner.index()][class.index()] > 0 {
            return self.end;
        }
        self.end_with(owner, class, 1)
    }

    /// The end to which the arena must grow to serve all reservations and `count` slots in addition.
    fn end_with(&self, owner: Owner, class: Class, count: u64) -> u64 {
        let mut wanted = vec![(owner, class); count as usize];
        for (of, class) in Owner::all().flat_map(|of| Class::all().map(move |class| (of, class))) {
            wanted.extend((0..self.reserved[of.index()][class.index()]).map(|_| (of, class)));
        }
        wanted.sort_by_key(|(_, class)| std::cmp::Reverse(*class));
        let mut larger = Self { end: self.end, free: self.free.clone(), ..Self::default() };
        loop {
            let mut free = larger.free.clone();
            if wanted.iter().all(|(owner, class)| take(&mut free, *owner, *class).is_some()) {
                return larger.end;
            }
            larger.grow(larger.end + if larger.end < 1_024 { 16 } else { 64 });
        }
    }

    /// Grows to the arena's end, which lies no farther than generous growth of raw memory reaches, and has moved only if it had to.
    fn reach(&mut self, least: u64, end: u64) {
        assert!(if least == self.end { end == least } else { (least..=least + 16 + end / 16).contains(&end) });
        self.grow(end);
    }

    fn grow(&mut self, end: u64) {
        (self.end..end).filter(|granule| granule % 4_096 >= 3).for_each(|granule| self.give(LOG, granule));
        self.end = end;
    }

    /// `end` is the arena's end after it has taken the slot.
    fn take(&mut self, held: Held, end: u64) -> (u64, u32) {
        self.reach(self.end_for(held.owner, held.class), end);
        let reserved = &mut self.reserved[held.owner.index()][held.class.index()];
        *reserved = reserved.saturating_sub(1);
        let at = take(&mut self.free, held.owner, held.class).unwrap();
        // The granules beyond those taken join to the largest slots, one after the other.
        (at + held.granules..at + held.class.granules()).for_each(|granule| self.give(held.owner, granule));
        let generation = self.generations.entry(at).or_default();
        *generation += 1;
        let generation = *generation;
        self.held.insert(at, held);
        (at, generation)
    }

    fn give(&mut self, owner: Owner, mut at: u64) {
        let mut class = Class::SMALLEST;
        loop {
            let free = &mut self.free[usize::from(owner == COUNTED && class < unit())];
            let buddy = at ^ class.granules();
            match class.larger() {
                Some(larger) if free.remove(&(class, buddy)) => (at, class) = (at.min(buddy), larger),
                _ => {
                    free.insert((class, at));
                    break;
                }
            }
        }
    }

    fn all_free(&self) -> impl Iterator<Item = (Class, u64)> {
        self.free.iter().flatten().copied()
    }

    fn release(&mut self, at: u64) {
        let held = self.held.remove(&at).unwrap();
        (at..at + held.granules).for_each(|granule| self.give(held.owner, granule));
    }

    fn is_free(&self, granule: u64) -> bool {
        self.all_free().any(|(class, at)| (at..at + class.granules()).contains(&granule))
    }

    fn check(&self, arena: &Arena<Twin>) {
        assert_eq!(arena.end(), self.end * GRANULE);
        let free: BTreeSet<(Class, u64)> =
            free_slots(arena).into_iter().map(|(kib, at)| (class(kib), at / 64)).collect();
        assert_eq!(free, self.all_free().collect());
        for class in Class::all() {
            let quarantined = |held: &&Held| held.class == class && held.state == SlotState::Quarantine;
            let expected = ClassCounters {
                free: self.all_free().filter(|(of, _)| *of == class).count() as u32,
                quarantined: self.held.values().filter(quarantined).count() as u32,
                lost: 0,
            };
            assert_eq!(arena.class_counters(class), expected);
        }
        // No unit has slots of a counted owner and of another one.
        let units = |is_counted: bool| -> BTreeSet<u64> {
            let held = self.held.iter().filter(|(_, held)| (held.owner == COUNTED) == is_counted);
            held.flat_map(|(&at, held)| (at..at + held.granules).map(|granule| granule / unit().granules())).collect()
        };
        let counted = units(true);
        assert!(counted.is_disjoint(&units(false)));
        assert_eq!(arena.touched_bytes(), counted.len() as u64 * u64::from(unit().size()));
        for owner in [LOG, UPLOAD, COUNTED] {
            let kept = self.held.values().filter(|held| held.owner == owner).map(|held| held.granules).sum::<u64>();
            assert_eq!(arena.kept_bytes(owner), kept * GRANULE);
        }
        for (&at, held) in &self.held {
            let entry = arena.entry(at).unwrap().unwrap();
            assert_eq!((entry.state, entry.class, entry.owner), (held.state, held.class, held.owner));
            assert_eq!((entry.granules(), entry.generation), (held.granules, self.generations[&at]));
            assert_eq!(arena.payload().read::<1>(at * GRANULE), [held.bytes]);
            assert_eq!(arena.payload().read::<1>((at + held.granules) * GRANULE - 1), [held.bytes]);
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % bound
    }
}

/// 100,000 operations: blobs, granules and reservations of three owners, stale pointers, traps at any access to memory, upgrades, and growth
/// that is refused; compared with the model in every result, and now and then in every slot.
#[test]
fn agrees_with_a_model() {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random(seed);
    let (mut arena, mut model) = (fresh(), Model::default());
    arena.set_log_class(unit());
    model.grow(16);
    let mut pointers: Vec<BlobPtr> = Vec::new();
    let (mut refused, mut traps) = (0, 0);
    // Beyond the first extent, and no multiple of a block.
    const CAP: u64 = 4_096 + 700;
    arena.growth().set_max_pages(CAP);
    for step in 0..100_000 {
        let owner = [LOG, UPLOAD, COUNTED][random.below(3) as usize];
        let class = Class::all().nth((random.below(49) as f64).sqrt() as usize).unwrap();
        let before = model.clone();
        twin::with(|world| world.trap_after = None);
        let trapping = random.below(20) == 0;
        let trap_after = random.below(30);
        // Blobs are freed as often as they are allocated, in phases with a bias.
        let kind = random.below(if step / 5_000 % 2 == 0 { 12 } else { 16 });
        let ended = twin::message(|| {
            twin::with(|world| world.trap_after = trapping.then_some(trap_after));
            let mut blobs = BlobStore::open(arena.clone());
            let which = pointers.get(random.below(pointers.len().max(1) as u64) as usize).copied();
            match (kind, which) {
                (0..4, _) => {
                    let len = (class.size() - random.below(u64::from(class.size()) / 2) as u32).max(1);
                    let taken = blobs.allocate(len, owner);
                    let end = model.end_for(owner, class);
                    match taken {
                        Ok(ptr) => {
                            let held = Held {
                                granules: class.granules(),
                                class,
                                owner,
                                state: SlotState::Used,
                                bytes: step as u8,
                            };
                            let (at, generation) = model.take(held, arena.end() / GRANULE);
                            assert_eq!(ptr, BlobPtr { offset: at * GRANULE, len, class: class.size(), generation });
                            let payload = arena.payload();
                            payload.write(at * GRANULE, &[step as u8]);
                            payload.write((at + class.granules()) * GRANULE - 1, &[step as u8]);
                            pointers.push(ptr);
                        }
                        Err(error) => {
                            assert_eq!(error, AllocateError::Grow(GrowError::OutOfSpace));
                            assert!(end > CAP / 64 * 64, "refused without need");
                            refused += 1;
                        }
                    }
                }
                (4..6, _) => {
                    let granules = 1 + random.below(class.granules());
                    let class = Class::for_granules(granules).unwrap();
                    let end = model.end_for(owner, class);
                    match arena.take_granules(owner, granules) {
                        Ok(granule) => {
                            let held = Held { granules, class, owner, state: SlotState::Taken, bytes: step as u8 };
                            assert_eq!(granule, model.take(held, arena.end() / GRANULE).0);
                            arena.payload().write(granule * GRANULE, &[step as u8]);
                            arena.payload().write((granule + granules) * GRANULE - 1, &[step as u8]);
                        }
                        Err(error) => {
                            assert_eq!(error, GrowError::OutOfSpace);
                            assert!(end > CAP / 64 * 64);
                            refused += 1;
                        }
                    }
                }
                (6, _) => {
                    model.reserved[owner.index()] = [0; 7];
                    let count = random.below(4);
                    let wanted = arena.reserve(owner, &[(class.granules(), count)]);
                    let end = model.end_with(owner, class, count);
                    match wanted {
                        Ok(()) => {
                            // No slots need no memory.
                            model.reach(if count == 0 { model.end } else { end }, arena.end() / GRANULE);
                            model.reserved[owner.index()][class.index()] = count;
                        }
                        Err(_) => assert!(end > CAP / 64 * 64),
                    }
                }
                (7, _) => {
                    arena.end_reservations();
                    model.reserved = Default::default();
                }
                (8, _) => {
                    let taken: Vec<u64> = model
                        .held
                        .iter()
                        .filter(|(_, held)| held.state == SlotState::Taken)
                        .map(|(at, _)| *at)
                        .collect();
                    if let Some(&at) = taken.get(random.below(taken.len().max(1) as u64) as usize) {
                        let held = &model.held[&at];
                        arena.give_granules(held.owner, at, held.granules);
                        model.release(at);
                    }
                }
                (9, Some(ptr)) if random.below(4) == 0 => {
                    let (granule, to) = (ptr.offset / GRANULE, [LOG, UPLOAD][random.below(2) as usize]);
                    if model.held.get(&granule).is_some_and(|held| held.owner == COUNTED) {
                        return;
                    }
                    let set = blobs.set_owner(&ptr, to);
                    let held = model.held.get_mut(&granule).filter(|held| held.state == SlotState::Used);
                    match held
                        .filter(|held| held.class.size() == ptr.class && model.generations[&granule] == ptr.generation)
                    {
                        Some(held) => {
                            assert_eq!(set, Ok(()));
                            held.owner = to;
                        }
                        None => assert!(set.is_err()),
                    }
                }
                (_, Some(ptr)) => {
                    let granule = ptr.offset / GRANULE;
                    let held = model.held.get(&granule).cloned();
                    let same = held
                        .filter(|held| held.class.size() == ptr.class && model.generations[&granule] == ptr.generation);
                    let (freed, released) = (random.below(2) == 0, random.below(3) > 0);
                    if freed {
                        let expected = match same.as_ref().map(|held| held.state) {
                            Some(SlotState::Used) => Some(true),
                            Some(SlotState::Quarantine) => Some(false),
                            _ if model.is_free(granule) => Some(false),
                            _ => None,
                        };
                        assert_eq!(blobs.free(&ptr).ok(), expected);
                        if expected == Some(true) {
                            model.held.get_mut(&granule).unwrap().state = SlotState::Quarantine;
                        }
                    }
                    if released {
                        let state = model.held.get(&granule).filter(|_| same.is_some()).map(|held| held.state);
                        let expected = match state {
                            Some(SlotState::Quarantine) => Ok(true),
                            Some(_) => Err(Some(PtrError::NotQuarantined)),
                            _ if model.is_free(granule) => Ok(false),
                            _ => Err(None),
                        };
                        let released = blobs.release(&ptr);
                        match expected {
                            Err(None) => assert!(released.is_err()),
                            Err(Some(error)) => assert_eq!(released, Err(error)),
                            Ok(expected) => assert_eq!(released, Ok(expected)),
                        }
                        if expected == Ok(true) {
                            model.release(granule);
                        }
                    }
                }
                _ => {}
            }
        });
        twin::with(|world| world.trap_after = None);
        match ended {
            Ok(()) => {}
            Err(trap) => {
                assert!(trap.contains("an injected trap"), "{trap}");
                traps += 1;
                (arena, model) = (reopen(), before);
                arena.set_log_class(unit());
                arena.growth().set_max_pages(CAP);
                model.reserved = Default::default();
                pointers.retain(|ptr| {
                    model.generations.get(&(ptr.offset / GRANULE)).is_some_and(|last| *last >= ptr.generation)
                });
            }
        }
        if random.below(500) == 0 {
            arena = reopen();
            arena.set_log_class(unit());
            arena.growth().set_max_pages(CAP);
            model.reserved = Default::default();
        }
        if pointers.len() > 400 {
            pointers.drain(..200);
        }
        if step % 200 == 0 {
            model.check(&arena);
        }
    }
    assert!(refused > 100 && traps > 100, "{refused} refused, {traps} traps");
    // Everything is given back, and joins to whole blocks, except behind the front of an extent.
    for at in model.held.keys().copied().collect::<Vec<_>>() {
        arena.give(at, arena.entry(at).unwrap().unwrap());
        model.release(at);
    }
    model.check(&arena);
    assert_eq!(model.all_free().count() as u64, model.end / 64 + 4 * model.end.div_ceil(4_096));
}

/// The room of a class is the number of slots that can be taken until growth is refused, with holes and at caps in each part of an extent.
#[test]
fn room_is_the_number_of_slots_that_can_be_taken() {
    for (pages, holes) in [(16, 0), (770, 0), (771, 7), (1_200, 40), (4_096, 3), (4_161, 3), (527_360, 1)] {
        for kib in [64, 256, 1_024, 4_096] {
            let arena = fresh();
            arena.growth().set_max_pages(pages);
            let taken: Vec<_> = (0..holes * 3).map(|_| arena.take_granules(RECORDS, 1).unwrap()).collect();
            taken.iter().step_by(3).for_each(|granule| arena.give_granules(RECORDS, *granule, 1));
            let room = arena.room(class(kib));
            assert!(pages < 500_000 || room > 32_000 * (1 << 20) / (u64::from(kib) << 10), "{room} of {kib} KiB");
            arena.reserve(LOG, &[(class(kib).granules(), room)]).unwrap();
            assert_eq!(
                arena.reserve(LOG, &[(class(kib).granules(), room + 1)]),
                Err(GrowError::OutOfSpace),
                "{pages} pages, {holes} holes, {kib} KiB"
            );
            if room == 0 {
                continue;
            }
            let one = arena.take(LOG, class(kib), 1).unwrap();
            assert_eq!(arena.room(class(kib)), room - 1);
            arena.give(one.granule, arena.entry(one.granule).unwrap().unwrap());
            assert_eq!(arena.room(class(kib)), room);
        }
    }
}

/// At 500 GiB: the last block, refused growth, and the far end of every structure.
#[test]
fn the_largest_arena() {
    let arena = fresh();
    // The first block of each of 2,000 extents has no slot of 4 MiB.
    let count = MAX_GRANULES / 64 - 2_000;
    let largest = [(Class::LARGEST.granules(), count)];
    assert_eq!(arena.reserve(LOG, &[(Class::LARGEST.granules(), count + 1)]), Err(GrowError::OutOfSpace));
    assert_eq!(arena.reserve(LOG, &[(Class::LARGEST.granules(), u64::MAX / 2)]), Err(GrowError::OutOfSpace));
    arena.reserve(LOG, &largest).unwrap();
    assert_eq!((arena.end(), arena.billed_pages()), (500 << 30, MAX_GRANULES));
    assert_eq!(arena.take(UPLOAD, Class::LARGEST, 1), Err(GrowError::OutOfSpace), "all are reserved");
    arena.end_reservations();
    for _ in 0..count - 1 {
        arena.take(LOG, Class::LARGEST, 1).unwrap();
    }
    let behind_fronts = 2_000 * 61;
    let taken: Vec<u64> = (0..behind_fronts + 64).map(|_| arena.take_granules(RECORDS, 1).unwrap()).collect();
    assert_eq!(taken[0], 3);
    assert_eq!(taken[behind_fronts..], (MAX_GRANULES - 64..MAX_GRANULES).collect::<Vec<_>>());
    assert_eq!(arena.take_granules(RECORDS, 1), Err(GrowError::OutOfSpace));
    arena.payload().write((500 << 30) - 1, &[7]);
    let arena = reopen();
    assert_eq!(arena.payload().read::<1>((500 << 30) - 1), [7]);
    taken.into_iter().for_each(|granule| arena.give_granules(RECORDS, granule, 1));
    assert_eq!(arena.class_counters(Class::LARGEST).free, 1);
    assert_eq!(arena.take(LOG, Class::LARGEST, 1).map(|slot| slot.granule), Ok(MAX_GRANULES - 64));
}

#[test]
fn slot_that_is_reserved_when_it_is_given_back_is_not_reserved_in_the_next_message() {
    let arena = fresh();
    let granule = arena.take_granules(LOG, 1).unwrap();
    arena.give_granules(LOG, granule, 1);
    arena.reserve_given(LOG, Class::SMALLEST);
    arena.end_reservations();
    assert_eq!(arena.take_granules(LOG, 1), Ok(granule));
    assert_eq!(arena.reserve(LOG, &[(Class::SMALLEST.granules(), 1)]), Ok(()));
}

/// The superblock, the counters and the upper bitmaps, byte by byte.
#[test]
fn mirrored_data_with_a_flipped_bit_are_written_anew() {
    let arena = fresh();
    testing::space(testing::CELLS).reserve(3 << 16).unwrap();
    arena.take(LOG, Class::LARGEST, 1).unwrap();
    let mirrored = || -> Vec<u8> {
        let mut bytes = Vec::new();
        // Two copies of the superblock; header, counters and reserved cycles; level 2 of the first 16 GiB.
        for (at, len) in [(0, 524), (4_096, 524), (8_192, 16), (8_256, 144), (8_448, 24), (10_240, 64)] {
            arena.payload().read_onto(&mut bytes, at, len);
        }
        bytes
    };
    let right = mirrored();
    for at in [0, 9, 523, 4_096, 4_619, 8_192, 8_200, 8_256, 8_288, 8_320, 8_352, 8_399, 8_448, 10_240, 10_303] {
        for bit in 0..8 {
            let [byte] = arena.payload().read(at);
            arena.payload().write(at, &[byte ^ 1 << bit]);
            assert!(mirrored() != right, "bit {bit} of byte {at} is not compared");
            arena.rewrite();
            assert!(mirrored() == right, "bit {bit} of byte {at}");
        }
    }
}

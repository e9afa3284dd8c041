//! Memory for tests: an arena, one per thread; its bytes, seen and damaged from outside; and limits that tests set.

use crate::arena::{Arena, Class, GRANULE, Owner, Shares, SlotState, extent};
use crate::blob::{BlobPtr, BlobStore};
use crate::slots::{SlotId, Slots, radix};
use crate::table::HashTable;
use crate::{HashKey, Ic, Meter, Platform, Space, Terms, WASM_PAGE, twin};
use ic_stable_structures::Memory;
use std::cell::RefCell;
use std::rc::Rc;

/// The space of cells.
pub const CELLS: u8 = 0;
/// Bytes for all cells.
const CELLS_LEN: u64 = 640 << 10;
/// The space of a table.
pub const INDEX: u8 = 8;
/// The space of slots.
pub const SLOTS: u8 = 9;

/// Bytes of the reserve.
pub const RESERVE: u64 = 64 << 20;

thread_local! {
    static ARENA: RefCell<Option<Arena>> = const { RefCell::new(None) };
}

/// An owner that does not count towards the quota.
pub const LOG: Owner = Owner::new(0);
/// Another one.
pub const UPLOAD: Owner = Owner::new(1);
/// An owner that counts towards the quota.
pub const COUNTED: Owner = Owner::new(5);
/// The owner of slots and tables, which does not.
pub const RECORDS: Owner = Owner::new(8);
/// The owner of the leaves of spaces.
pub const SPACES: Owner = Owner::new(9);
/// Owners of the canister's memory.
pub const SHARES: Shares =
    Shares { spaces: SPACES, strays: Owner::new(10), counted: &[Owner::new(2), Owner::new(3), Owner::new(4), COUNTED] };

/// A growth must leave the cycles of two timer calls.
const TERMS: Terms = Terms { nodes: 13, reserved_cycles_limit: u128::MAX, kept: 84_200_000_000 };

/// Opens the thread's arena, as an upgrade does.
///
/// # Errors
/// As [`Arena::open`].
pub fn try_arena() -> Result<Arena, crate::OpenError> {
    ARENA.with_borrow_mut(|arena| match arena {
        Some(arena) => Ok(arena.clone()),
        None => {
            let opened = Arena::open(SHARES, TERMS)?;
            opened.set_reserve(RESERVE);
            Ok(arena.insert(opened).clone())
        }
    })
}

/// Returns the thread's arena.
pub fn arena() -> Arena {
    try_arena().unwrap()
}

/// Takes another arena as the thread's.
pub fn set_arena(arena: Arena) {
    ARENA.set(Some(arena));
}

/// Returns the space of an id.
pub fn space(id: u8) -> Space {
    Space::open(&arena(), id).unwrap()
}

/// Returns the space of cells with all its memory.
pub fn cells() -> Rc<Space> {
    let cells = space(CELLS);
    cells.reserve(CELLS_LEN).unwrap();
    Rc::new(cells)
}

/// Opens slots in the arena.
pub fn slots() -> Slots {
    Slots::open(space(SLOTS), arena(), RECORDS).unwrap()
}

/// Drops the arena, as an upgrade does.
pub fn forget() {
    ARENA.set(None);
}

/// Opens the arena as after an upgrade, under the same cap.
pub fn reopen() {
    let pages = max_pages();
    forget();
    set_max_pages(pages);
}

/// Empties stable memory.
pub fn fresh() {
    twin::reset();
    forget();
}

/// Sets the cap on raw pages of 64 KiB.
pub fn set_max_pages(pages: u64) {
    arena().growth().set_max_pages(pages);
}

/// Returns the cap on raw pages.
pub fn max_pages() -> u64 {
    arena().growth().max_pages()
}

/// Returns the raw pages in use.
pub fn billed_pages() -> u64 {
    <Ic as Platform>::Memory::default().size()
}

/// A hash key.
pub fn hash_key() -> HashKey {
    HashKey::of([7; 16])
}

/// Cases of a property test: `PROPTEST_CASES` of the environment, or `few`.
pub fn histories(few: u32) -> proptest::test_runner::Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few);
    proptest::test_runner::Config { cases, ..Default::default() }
}

/// Returns the offset in the arena of byte `at` of a slot.
pub fn place(slot: SlotId, at: u64) -> u64 {
    (u64::from(slot) - 1) * 128 + 8 + at
}

/// Writes into a slot, as damage would.
pub fn overwrite(slot: SlotId, at: u64, bytes: &[u8]) {
    arena().payload().write(place(slot, at), bytes);
}

impl<P: Platform> Arena<P> {
    /// Makes an entry undecodable, as damage would.
    pub fn poison(&self, granule: u64) {
        self.payload().write(extent::entry(granule), &[0xFF; 16]);
    }
}

impl<P: Platform> BlobStore<P> {
    /// Makes the entry of a blob's slot undecodable, as damage would.
    pub fn poison(&self, ptr: &BlobPtr) {
        self.arena().poison(ptr.offset / GRANULE);
    }
}

impl<P: Platform> Space<P> {
    /// Returns the raw address of a byte, for tests that damage it.
    pub fn raw_address(&self, offset: u64) -> Option<u64> {
        self.address(offset, 1)
    }
}

impl<P: Platform> Meter<P> {
    /// Limits the meter to `steps` steps.
    pub fn of_steps(mut self, steps: u64) -> Self {
        self.most_steps = steps;
        self
    }
}

/// Changes of a hash table by tests: refused insertions, and cleared bits of hashes.
#[derive(Default)]
pub struct TableHooks {
    /// Number of insertions before one is refused.
    pub(crate) failing_in: Option<u64>,
    /// Bits that no hash of a key has.
    cleared: u64,
}

impl TableHooks {
    /// Returns whether an insertion is refused.
    pub(crate) fn refuses(&mut self) -> bool {
        let refuses = self.failing_in == Some(0);
        self.failing_in = self.failing_in.and_then(|left| left.checked_sub(1));
        refuses
    }

    /// Returns a hash without the cleared bits.
    pub(crate) fn masked(&self, hash: u64) -> u64 {
        hash & !self.cleared
    }
}

impl<P: Platform> HashTable<P> {
    /// Clears all other bits of each key's hash: 3 leaves four hashes, and `!0xFFFF` leaves keys of one bucket.
    pub fn mask_hashes(&mut self, mask: u64) {
        self.hooks.cleared = !mask;
    }

    /// Refuses insertions after `count` more.
    pub fn fail_after(&mut self, count: u64) {
        self.hooks.failing_in = Some(count);
    }
}

/// Returns the bytes of the arena that an owner has, granule by granule, with their lines.
pub fn bytes_of(owner: Owner) -> Vec<u8> {
    let arena = arena();
    let mut bytes = Vec::new();
    let mut granule = 0;
    while let Some(entry) = arena.entry(granule) {
        let entry = entry.unwrap();
        let granules = if entry.state == SlotState::Inside { 1 } else { entry.granules() };
        if entry.state == SlotState::Taken && entry.owner == owner {
            arena.payload().read_onto(&mut bytes, granule * GRANULE, (granules * GRANULE) as usize);
            bytes.extend(arena.line(granule));
        }
        granule += granules;
    }
    bytes
}

/// Checks that the arena's counters agree with its entries.
pub fn audit() {
    let arena = arena();
    let (mut kept, mut free) = (vec![0; Owner::COUNT], vec![0; Class::COUNT]);
    let mut granule = 0;
    while let Some(entry) = arena.entry(granule) {
        let entry = entry.unwrap();
        // The front of an extent.
        if granule % 4_096 < 3 {
            granule += 1;
            continue;
        }
        assert_ne!(entry.state, SlotState::Inside, "granule {granule} begins no slot");
        match entry.state {
            SlotState::Free => free[entry.class.index()] += 1,
            _ => kept[entry.owner.index()] += entry.granules() * GRANULE,
        }
        granule += entry.granules();
    }
    assert_eq!(Owner::all().map(|owner| arena.kept_bytes(owner)).collect::<Vec<_>>(), kept);
    assert_eq!(Class::all().map(|class| arena.class_counters(class).free).collect::<Vec<_>>(), free);
}

/// Takes all memory up to the end of the last block, except `granules` granules that counted owners may take, the last ones of a block, and
/// room for `nodes` nodes of ordered indexes in the chunks of `slots`. Forbids growth; work that creates records finds the reserve in place
/// if `reserve`.
pub fn fill(slots: &mut Slots, granules: usize, nodes: usize, reserve: bool) {
    // Whole blocks, so that the reserve has slots of all classes.
    let pages = billed_pages().next_multiple_of(64);
    set_max_pages(pages);
    let arena = arena();
    arena.end_reservations();
    let mut taken = Vec::new();
    while let Ok(granule) = arena.take_granules(COUNTED, 1) {
        taken.push(granule);
    }
    while arena.take_granules(RECORDS, 1).is_ok() {}
    let mut spare = Vec::new();
    for len in (1..1_024).map(|units| 128 * units - 8) {
        while let Ok(slot) = slots.allocate(len) {
            if (radix::NODE..radix::NODE + 256).contains(&slots.capacity(slot)) {
                spare.push(slot);
            }
        }
    }
    spare.into_iter().rev().take(nodes).for_each(|slot| slots.free(slot));
    for granule in taken.split_off(taken.len() - granules) {
        arena.give_granules(COUNTED, granule, 1);
    }
    if reserve {
        set_max_pages(pages + RESERVE / WASM_PAGE);
    }
}

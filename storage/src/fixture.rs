//! Memory for this crate's own tests: a manager of a few regions, one per thread.

use crate::arena::{Arena, Owner, Shares};
use crate::slots::Slots;
use crate::twin::{self, Twin};
use crate::{Layout, Manager, Region, Terms};
use std::cell::RefCell;

/// A region of cells.
pub const CELLS: u8 = 0;
/// The arena's payload.
pub const ARENA: u8 = 1;
/// The arena's entries.
pub const GRANULES: u8 = 2;
/// The arena's sets.
pub const SETS: u8 = 3;
/// A region of a table.
pub const INDEX: u8 = 8;
/// The header of slots.
pub const SLOTS: u8 = 9;

/// Bytes of the reserve.
pub const RESERVE: u64 = 64 << 20;

const LAYOUT: Layout = Layout { regions: SLOTS + 1, reserved_cycles: (CELLS, 258_048) };

thread_local! {
    static MANAGER: RefCell<Option<Manager<Twin>>> = const { RefCell::new(None) };
}

/// Opens stable memory, as an upgrade does; a growth must leave the cycles of two timer calls.
fn open() -> Manager<Twin> {
    let manager = Manager::open(LAYOUT);
    manager.growth().set_terms(Terms { nodes: 13, reserved_cycles_limit: u128::MAX, kept: 84_200_000_000 });
    manager
}

/// Returns the thread's manager.
pub fn manager() -> Manager<Twin> {
    MANAGER.with_borrow_mut(|manager| manager.get_or_insert_with(open).clone())
}

/// Returns the region of an id.
pub fn region(id: u8) -> Region<Twin> {
    manager().region(id)
}

/// An owner that does not count towards the quota.
pub const LOG: Owner = Owner::new(0);
/// Another one.
pub const UPLOAD: Owner = Owner::new(1);
/// An owner that counts towards the quota.
pub const RECORDS: Owner = Owner::new(2);

/// Opens the arena.
pub fn arena() -> Arena<Twin> {
    let shares = Shares { counted: &[RECORDS], reserve: RESERVE };
    Arena::open([ARENA, GRANULES, SETS].map(region), shares).unwrap()
}

/// Opens slots in the arena.
pub fn slots() -> Slots<Twin> {
    Slots::open(region(SLOTS), arena(), RECORDS).unwrap()
}

/// Drops the manager, as an upgrade does.
pub fn forget() {
    MANAGER.set(None);
}

/// Empties stable memory.
pub fn fresh() {
    twin::reset();
    forget();
}

/// Cases of a property test: `PROPTEST_CASES` of the environment, or `few`.
pub fn histories(few: u32) -> proptest::test_runner::Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few);
    proptest::test_runner::Config { cases, ..Default::default() }
}

//! Memory for this crate's own tests: an arena, one per thread.

use crate::arena::{Arena, Owner, Shares};
use crate::slots::Slots;
use crate::twin::{self, Twin};
use crate::{Space, Terms};
use std::cell::RefCell;

/// A space of cells.
pub const CELLS: u8 = 0;
/// The space of a table.
pub const INDEX: u8 = 8;
/// The space of slots.
pub const SLOTS: u8 = 9;

/// Bytes of the reserve.
pub const RESERVE: u64 = 64 << 20;

thread_local! {
    static ARENA: RefCell<Option<Arena<Twin>>> = const { RefCell::new(None) };
}

/// An owner that does not count towards the quota.
pub const LOG: Owner = Owner::new(0);
/// Another one.
pub const UPLOAD: Owner = Owner::new(1);
/// The owner of slots and tables, which does not either.
pub const RECORDS: Owner = Owner::new(2);
/// The owner of the leaves of spaces.
pub const SPACES: Owner = Owner::new(3);

/// An owner that counts towards the quota.
pub const COUNTED: Owner = Owner::new(4);

/// A growth must leave the cycles of two timer calls.
const TERMS: Terms = Terms { nodes: 13, reserved_cycles_limit: u128::MAX, kept: 84_200_000_000 };

/// Opens the thread's arena, as an upgrade does.
pub fn try_arena() -> Result<Arena<Twin>, crate::OpenError> {
    ARENA.with_borrow_mut(|arena| match arena {
        Some(arena) => Ok(arena.clone()),
        None => {
            let opened = Arena::open(Shares { spaces: SPACES, counted: &[COUNTED] }, TERMS)?;
            opened.set_reserve(RESERVE);
            Ok(arena.insert(opened).clone())
        }
    })
}

/// Returns the thread's arena.
pub fn arena() -> Arena<Twin> {
    try_arena().unwrap()
}

/// Returns the space of an id.
pub fn space(id: u8) -> Space<Twin> {
    Space::open(&arena(), id).unwrap()
}

/// Opens slots in the arena.
pub fn slots() -> Slots<Twin> {
    Slots::open(space(SLOTS), arena(), RECORDS).unwrap()
}

/// Drops the arena, as an upgrade does.
pub fn forget() {
    ARENA.set(None);
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

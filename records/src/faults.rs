//! Faults that tests inject.

use std::cell::{Cell, RefCell};

thread_local! {
    static TRAPPING: RefCell<Vec<[u8; 32]>> = const { RefCell::new(Vec::new()) };
    static ONE_CHAIN: Cell<bool> = const { Cell::new(false) };
}

/// Sets the ids of records whose reading traps.
pub fn trap_on(txids: &[[u8; 32]]) {
    TRAPPING.set(txids.to_vec());
}

/// Returns whether reading a record traps.
pub fn traps(txid: &[u8; 32]) -> bool {
    TRAPPING.with_borrow(|trapping| trapping.contains(txid))
}

/// Puts the names of all rows of the deletion queue into one chain, or not.
pub fn set_one_chain(is_one: bool) {
    ONE_CHAIN.set(is_one);
}

/// Returns whether the names of all rows share a chain.
pub fn has_one_chain() -> bool {
    ONE_CHAIN.get()
}

//! Layout of a record in its slots, independent of the store. `layout` has the picture of all parts; `head`, `output` (entries), `inputs`
//! (and pages), `extras` and `location` (of the transaction's bytes) read and write one part each.

pub mod extras;
mod head;
mod inputs;
mod layout;
pub mod location;
mod output;

pub use head::{Due, Head, encode_block};
pub use inputs::{inputs, inputs_from, page_slot, pages, parents};
pub use layout::*;
pub use output::{
    Entry, EntryAddress, FROZEN, REASSIGNED, SPENDER_CONFLICTING, SPENDER_DELETED, SPENT, STATE, UTXO, entries,
    extra_page,
};

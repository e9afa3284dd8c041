//! Application of kept blocks to the UTXO records, so that a feeder sends a transaction once, with its block (`docs/design/applying.md`).
//!
//! ```text
//! chain:  base … applied … │ next: applied up to `transaction`, which begins at byte `offset` of the body │ … head
//!                          └ pruning stops before this block
//! ```
//! **One message** applies as many transactions as its instructions and changed pages allow, each of them whole: the record is created or
//! set mined, and the outputs of the inputs are spent. The position is saved in the same message, so that an interruption repeats nothing
//! and leaves nothing out. A transaction with more inputs or outputs than a message can take goes through two more states: its inputs are
//! checked, then its record is created, then its inputs spend their outputs.
//!
//! **Files, in reading order**: `position` (the cell), `note` (what a kept block remembers), `window` (a body in parts, read through
//! [`Blocks`]), `ids` (the ids of a block), `kept` (one transaction of a body), `message` (state and limits of one), `run` (apply), `step`
//! (one transaction), `stop` (the reason why it is not applied), `take_back` (for a rollback).

mod ids;
mod kept;
mod message;
mod note;
mod position;
mod run;
mod step;
mod stop;
mod take_back;
#[cfg(test)]
mod tests;
mod window;

pub use kept::{ids, in_blocks, transaction};
pub use note::AppliedNote;
pub use position::{Applier, Counted, Waits};
pub use run::Outcome;
pub use take_back::TakenBack;

use crate::utxo::UtxoStore;
use ic_coppice_interface::UtxoSettings;
use ic_coppice_interface::blocks::Blocks;
use ic_coppice_storage::blob::BlobStore;

/// The stores that applying needs.
pub struct Stores<'a> {
    /// The kept blocks.
    pub blocks: &'a mut dyn Blocks,
    /// UTXO records.
    pub utxo: &'a mut UtxoStore,
    /// The log's bytes, and transactions.
    pub blobs: &'a mut BlobStore,
    /// The UTXO store's settings in force.
    pub settings: &'a UtxoSettings,
}

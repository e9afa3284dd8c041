//! UTXO records: one for each transaction, found by txid (`utxo-data-model.md`, `docs/design/records.md`).
//!
//! **Constraint.** A block has thousands of transactions, and each is created, spent from, mined and deleted: an operation must
//! touch few pages and cost the same at any number of records. A `StableBTreeMap` of encoded records reads, decodes, encodes
//! and writes a whole record to change 36 bytes of it, and each secondary index is another such map.
//!
//! **Design.** A record is a slot (`slots`) of fixed layout (`record`), the *master*, and further slots if the transaction is large. A
//! hash table like that of the chain's index leads from the txid to the master. Fields are written in place.
//!
//! ```text
//! space UTXO_INDEX: hash of a txid ─▶ master's slot
//! slots in the arena: master: head ‖ entries of outputs ‖ inputs ‖ directory ‖ transaction, or its place in the BlobStore or in an external blob
//!                       │ head: slot of the extras                └─▶ pages of outputs, pages of inputs
//!                       │       └─▶ extras: rare fields in CBOR; list of the double spends that spend from the transaction
//!                       └ head: a link for each of the four ordered indexes
//! space UTXO_SLOTS: header of the slots ─▶ first slot: counters, roots of the four indexes
//!                                            each index: radix tree by height ─▶ ring of the masters of a height
//! ```
//! **Memory.** An operation reserves once all memory that it may need, and then cannot fail; if that much cannot be reserved, it keeps a
//! journal, by which a failure is undone byte by byte. A slot's name that was read from memory is checked before the slot is read or written,
//! because freed memory may hold another store's bytes.
//!
//! **One message**, for example `utxo_spend`: the canister (`canister/src/api/endpoints/utxo.rs`) calls `State::batch`, which runs
//! `UtxoStore::spend` for each item while `batch` has budget. An operation checks its arguments and reserves memory before it changes
//! anything, writes the fields, and then calls `UtxoStore::evaluate` for each record that it touched, which enters the record in the index
//! of records to delete, or removes it.
//!
//! **Between messages** a page's counters agree with its entries, the indexes with the heads' links, and the table with the masters. A
//! transaction *holds* an output if the output's entry names it with the input that spends the output.
//!
//! **Files, in reading order**
//!
//! - `record/`: the layout of a record. `store`: find, evaluate, all or nothing. `order`: the four indexes. `call`, `limits`, `batch`.
//! - `create`, with `ahead` (a batch, parsed in groups), `draft` (forms of a transaction), `parse`, `encoding`, `footprint` (its
//!   slots, and the pages it changes), `upload`: a new record.
//! - `spend`, `unspend`, `mined` (blocks and locks), `freeze`, `preserve`: changes of a record. `read`: queries.
//! - `conflict/`, `children`: double spends, and the lists of them.
//! - `scan`, `spenders`, `delete`: for the pruner: walk an index, check a record, remove it.
//! - `testing`: functions that only tests and the bench call.
//!
//! A new operation is a file with a method of [`UtxoStore`], a [`BatchItem`], and an endpoint. The head has no free bytes: a new rare
//! field is an optional one of `record/extras.rs`.

mod ahead;
mod apply_transaction;
mod batch;
mod call;
mod children;
mod conflict;
mod create;
mod delete;
mod draft;
mod encoding;
mod footprint;
mod freeze;
mod limits;
mod mined;
mod order;
mod parse;
mod preserve;
mod read;
mod record;
mod scan;
mod spend;
mod spenders;
mod store;
#[cfg(any(test, feature = "bench", feature = "testing"))]
mod testing;
mod unspend;
mod upload;

pub use ahead::Ahead;
pub use apply_transaction::{BlockTerms, Input, Inputs, NotApplied};
pub use batch::{BatchItem, Chained, Conflicting, Mined};
pub use call::{Answer, Call};
pub use delete::Parents;
pub use draft::{Body, Draft, Terms};
pub use limits::{MAX_INPUTS, MAX_TRANSACTION, STEP_PAGES};
pub use order::RunWindow;
pub use parse::{Parsed, Unhashed, hash, hash_outputs, pass_items, too_long};
pub use record::{Hash, LATE, Order, flag};
pub use scan::{AfterCursor, Candidate, Cursor, LOOKUP_PAGES};
pub use spenders::Unstable;
pub use store::{BytesOf, UtxoStore};
pub use upload::Uploads;

#[cfg(test)]
mod tests;

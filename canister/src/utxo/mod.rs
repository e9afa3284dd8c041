//! UTXO records: one for each transaction, found by txid (`utxo-data-model.md`, `docs/design.md` 6).
//!
//! **Constraint.** A block has thousands of transactions, and each is created, spent from, mined and deleted: an operation must
//! touch few pages and cost the same at any number of records. A `StableBTreeMap` of encoded records reads, decodes, encodes
//! and writes a whole record to change 36 bytes of it, and each secondary index is another such map.
//!
//! **Design.** A record is a slot (`slots`) of fixed layout (`record`), found through a hash table like that of the chain's index, whose
//! value is the slot. Fields are written in place. The ordered indexes are rings through the records' heads (`order`). Rare parts have
//! their own slot (`record::extras`); large transactions are in the BlobStore (`record::location`).
//!
//! An operation checks its arguments and reserves memory before it changes anything. An operation that cannot know its changes beforehand
//! keeps a journal, by which a failure is undone byte by byte.
//!
//! ```text
//! store                 open, find, evaluate, atomically        order     four ordered indexes
//! create  draft  parse  a new record                            record    layout, head, inputs, output, extras, location
//! spend  unspend  mined  freeze  conflict  children  preserve   changes of a record
//! scan  spenders  delete                                        walk an index, check a record, remove it
//! ```

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
mod unspend;
mod upload;

pub use batch::{BatchItem, Conflicting};
pub use call::Call;
pub use delete::{ExternalData, Parents};
pub use draft::{Body, Draft};
pub use limits::STEP_PAGES;
pub use order::RunWindow;
pub use parse::Parsed;
pub use preserve::Blocked;
pub use record::{Hash, LATE, Order, flag};
pub use scan::{AfterCursor, Candidate, Cursor, LOOKUP_PAGES};
pub use spenders::Unstable;
pub use store::UtxoStore;
pub use unspend::LastUnspent;
pub use upload::Uploads;

#[cfg(test)]
pub(crate) mod tests;

//! `coppice get`: prints a block, a transaction, or the transactions with a key, from a canister or from a database of `coppice index`.
//!
//! ```text
//! what ──▶ wanted ──▶ Chain ─┬─ canister: queries
//!                            └─ archive: the indexer's tables
//!                       │
//!                       ▼ header, segments
//!                     found ──▶ bitcoin ──▶ print, or JSON
//! ```

pub mod archive;
pub mod bitcoin;
pub mod canister;
pub mod chain;
pub mod print;
pub mod query;
pub mod result;

use anyhow::Result;
use chain::{Chain, Page};
use query::{Order, Wanted};
use result::Found;

/// Looks up a block, a transaction or a key.
///
/// # Errors
/// When there is no such thing, when the cursor is invalid, or when the chain cannot be read.
pub fn get(chain: &mut impl Chain, wanted: &Wanted, order: Order, page: &Page) -> Result<Found> {
    match wanted {
        Wanted::Block(number) => result::block(chain, *number, order, page),
        Wanted::Transaction(id) => result::transactions(chain, id, order, page),
        Wanted::Key(key) => result::with_key(chain, key, order, page),
    }
}

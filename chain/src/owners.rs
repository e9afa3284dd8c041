//! Owners of the chain's memory.

use coppice_interface::Owner;
use coppice_storage::arena;

/// Blobs of the log. Only these count for `estimated_kept_bytes`.
pub const CHAIN: arena::Owner = Owner::Chain.in_arena();
/// Blobs of the open upload of a block.
pub const UPLOAD: arena::Owner = Owner::Upload.in_arena();
/// Pages of headers.
pub const HEADERS: arena::Owner = Owner::Headers.in_arena();
/// Pages of the transaction index.
pub const TRANSACTION_INDEX: arena::Owner = Owner::TransactionIndex.in_arena();
/// Pages of the index of secondary keys.
pub const KEY_INDEX: arena::Owner = Owner::KeyIndex.in_arena();

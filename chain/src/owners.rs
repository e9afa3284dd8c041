//! Owners of the chain's memory.

use ic_coppice_interface::Owner;
use ic_coppice_interface::storage::in_arena;
use ic_coppice_storage::arena;

/// Blobs of the log. Only these count for `estimated_kept_bytes`.
pub const CHAIN: arena::Owner = in_arena(Owner::Chain);
/// Blobs of the open upload of a block.
pub const UPLOAD: arena::Owner = in_arena(Owner::Upload);
/// Pages of headers.
pub const HEADERS: arena::Owner = in_arena(Owner::Headers);
/// Pages of the transaction index.
pub const TRANSACTION_INDEX: arena::Owner = in_arena(Owner::TransactionIndex);
/// Pages of the index of secondary keys.
pub const KEY_INDEX: arena::Owner = in_arena(Owner::KeyIndex);

//! Owners of the memory of records. All of them count towards `max_utxo_bytes`.

use ic_coppice_interface::Owner;
use ic_coppice_interface::storage::in_arena;
use ic_coppice_storage::arena;

/// Blobs with transactions of UTXO records and of their open uploads.
pub const EXTERNAL: arena::Owner = in_arena(Owner::External);
/// Slots of UTXO records.
pub const RECORDS: arena::Owner = in_arena(Owner::Records);
/// Slots of rows of the deletion queue.
pub const DELETIONS: arena::Owner = in_arena(Owner::Deletions);
/// Pages of the index from txids to UTXO records.
pub const UTXO_INDEX: arena::Owner = in_arena(Owner::UtxoIndex);

/// All of them.
pub const ALL: [arena::Owner; 4] = [EXTERNAL, RECORDS, DELETIONS, UTXO_INDEX];

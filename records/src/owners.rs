//! Owners of the memory of records. All of them count towards `max_utxo_bytes`.

use coppice_interface::Owner;
use coppice_storage::arena;

/// Blobs with transactions of UTXO records and of their open uploads.
pub const EXTERNAL: arena::Owner = Owner::External.in_arena();
/// Slots of UTXO records.
pub const RECORDS: arena::Owner = Owner::Records.in_arena();
/// Slots of rows of the deletion queue.
pub const DELETIONS: arena::Owner = Owner::Deletions.in_arena();
/// Pages of the index from txids to UTXO records.
pub const UTXO_INDEX: arena::Owner = Owner::UtxoIndex.in_arena();

/// All of them.
pub const ALL: [arena::Owner; 4] = [EXTERNAL, RECORDS, DELETIONS, UTXO_INDEX];

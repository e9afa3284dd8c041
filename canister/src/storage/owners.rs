//! Owners of the arena's memory, in the order of the interface's `Owner`.

use coppice_storage::arena::Owner;

/// Blobs of the chain's log. Only these count for `estimated_kept_bytes`.
pub const CHAIN: Owner = owner(coppice_interface::Owner::Chain);
/// Blobs of the open upload of a block.
pub const UPLOAD: Owner = owner(coppice_interface::Owner::Upload);
/// Blobs with transactions of UTXO records and of their open uploads.
pub const EXTERNAL: Owner = owner(coppice_interface::Owner::External);
/// Slots of UTXO records.
pub const RECORDS: Owner = owner(coppice_interface::Owner::Records);
/// Slots of rows of the deletion queue.
pub const DELETIONS: Owner = owner(coppice_interface::Owner::Deletions);
/// Pages of the index from txids to UTXO records.
pub const UTXO_INDEX: Owner = owner(coppice_interface::Owner::UtxoIndex);
/// Pages of block records.
pub const BLOCK_RECORDS: Owner = owner(coppice_interface::Owner::BlockRecords);
/// Pages of the transaction index.
pub const TRANSACTION_INDEX: Owner = owner(coppice_interface::Owner::TransactionIndex);
/// Pages of the index of secondary keys.
pub const KEY_INDEX: Owner = owner(coppice_interface::Owner::KeyIndex);

/// Leaves of all spaces: cells, directories, rings.
pub const SPACES: Owner = owner(coppice_interface::Owner::Spaces);

/// Owners whose memory counts towards `max_utxo_bytes`.
pub const COUNTED: [Owner; 4] = [EXTERNAL, RECORDS, DELETIONS, UTXO_INDEX];

const fn owner(of: coppice_interface::Owner) -> Owner {
    Owner::new(of as u8)
}

const _: () = assert!(coppice_interface::Owner::COUNT <= Owner::COUNT);

//! Places of the records in stable memory: ids of spaces, and offsets of cells in the space of cells.

/// Space of the directory of the index from a txid to the slot of its UTXO record.
pub const UTXO_INDEX: u8 = 5;
/// Space of the size classes of the slots of UTXO records.
pub const UTXO_SLOTS: u8 = 6;
/// Space of the size classes of the slots of the deletion queue.
pub const DELETIONS: u8 = 7;
/// Space of finished jobs of the pruner.
pub const JOBS: u8 = 8;

/// The first open upload of a transaction, as CBOR after its length.
pub const TRANSACTION_UPLOAD: u64 = 135_168;
/// Bytes of one upload; the first one's include the bitmap of the other open uploads.
pub const TRANSACTION_UPLOAD_LEN: usize = 4_096;
/// Bitmap of the other open uploads: 16 bytes at the end of the first upload's page.
pub const TRANSACTION_PLACES: u64 = TRANSACTION_UPLOAD + TRANSACTION_UPLOAD_LEN as u64 - 16;
/// State of the pruner, as CBOR after its length; up to 32 KiB.
pub const UTXO_PRUNER: u64 = 139_264;
/// The position of applying blocks to the UTXO records; 128 bytes.
pub const APPLYING: u64 = 176_128;
/// The stop of applying.
pub const APPLY_STOP: u64 = 180_224;
/// Bytes of the cell of the stop.
pub const APPLY_STOP_LEN: usize = 1_024;
/// Open uploads of transactions except the first, which lies at [`TRANSACTION_UPLOAD`]; each as CBOR after its length.
pub const TRANSACTION_UPLOADS: u64 = 385_024;
/// Maximum number of open uploads of transactions.
pub const TRANSACTION_UPLOADS_LEN: u64 = 64;
/// End of the last cell.
pub const END: u64 = TRANSACTION_UPLOADS + (TRANSACTION_UPLOADS_LEN - 1) * TRANSACTION_UPLOAD_LEN as u64;

/// Bytes of an ended job's slot, its cell included.
pub const JOB_LEN: usize = 2_048;
/// Maximum number of ended jobs.
pub const JOBS_LEN: u64 = 1_000;

/// All spaces.
pub const SPACES: [u8; 4] = [UTXO_INDEX, UTXO_SLOTS, DELETIONS, JOBS];
/// All cells: the first byte, and the number of bytes.
pub const CELLS: [(u64, u64); 5] = [
    (TRANSACTION_UPLOAD, TRANSACTION_UPLOAD_LEN as u64),
    (UTXO_PRUNER, 32_768),
    (APPLYING, 128),
    (APPLY_STOP, APPLY_STOP_LEN as u64),
    (TRANSACTION_UPLOADS, END - TRANSACTION_UPLOADS),
];

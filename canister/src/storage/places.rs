//! Places of cells in the region of cells.

/// The settings and the roles, as CBOR behind their length; up to 64 KiB.
pub const CONFIG: u64 = 65_536;
/// The chain's state; up to 4 KiB.
pub const CHAIN: u64 = 4_096;
/// The open upload; up to 8 KiB.
pub const UPLOAD: u64 = 8_192;
/// The pruner's policy and state, as CBOR behind their length; up to 16 KiB.
pub const PRUNE: u64 = 16_384;
/// The exporters and what they acknowledged, as CBOR behind their length; up to 32 KiB.
pub const EXPORTERS: u64 = 32_768;
/// Which blocks were rolled back; up to 4 KiB.
pub const ROLLBACKS: u64 = 131_072;
/// The first open upload of a transaction, as CBOR behind its length.
pub const TRANSACTION_UPLOAD: u64 = 135_168;
/// Bytes of an upload, and of what says which others are open.
pub const TRANSACTION_UPLOAD_LEN: usize = 4_096;
/// Which of the other uploads are open: 16 bytes at the end of the first one's page.
pub const TRANSACTION_PLACES: u64 = TRANSACTION_UPLOAD + TRANSACTION_UPLOAD_LEN as u64 - 16;
/// The state of the pruner of UTXO records, as CBOR behind its length; up to 32 KiB.
pub const UTXO_PRUNER: u64 = 139_264;
/// Cycles that were reserved for storage (u128), and when that was noted (u64, Unix nanoseconds).
pub const RESERVED: u64 = 258_048;
/// Jobs of that pruner that ended: a ring of 1,000, each as CBOR behind its length.
pub const JOBS: u64 = 262_144;
/// Bytes of a job.
pub const JOB_LEN: usize = 2_048;
/// Jobs of the ring.
pub const JOBS_LEN: u64 = 1_000;
/// Open uploads of transactions but the first, which lies at [`TRANSACTION_UPLOAD`]; each as CBOR behind its length.
pub const TRANSACTION_UPLOADS: u64 = JOBS + JOBS_LEN * JOB_LEN as u64;
/// Uploads of transactions that may be open.
pub const TRANSACTION_UPLOADS_LEN: u64 = 64;
/// The audit log: a header, and three rings of entries, each slot a page of its own.
pub const AUDIT: u64 = TRANSACTION_UPLOADS + (TRANSACTION_UPLOADS_LEN - 1) * TRANSACTION_UPLOAD_LEN as u64;
/// Bytes of an entry's slot, and of the header's.
pub const AUDIT_LEN: usize = 4_096;
/// Entries of the rings of admins' changes, of other changes, and of calls that changed nothing.
pub const AUDIT_ENTRIES: [u64; 3] = [1_000, 1_000, 500];
/// What `history` notes beside its samples; up to 2 KiB. The header of the log shares its page.
pub const HISTORY: u64 = AUDIT + (1 + AUDIT_ENTRIES[0] + AUDIT_ENTRIES[1] + AUDIT_ENTRIES[2]) * AUDIT_LEN as u64;
/// The header of the log.
pub const LOG: u64 = HISTORY + 2_048;
/// A day of samples, one a minute.
pub const SAMPLES: u64 = HISTORY + 4_096;
/// Bytes of a sample.
pub const SAMPLE_LEN: usize = 64;
/// Samples of a day.
pub const SAMPLES_OF_A_DAY: u64 = 1_440;
/// A month of samples, one each half an hour.
pub const COARSE_SAMPLES: u64 = SAMPLES + SAMPLES_OF_A_DAY * SAMPLE_LEN as u64;
/// Samples of 31 days.
pub const SAMPLES_OF_A_MONTH: u64 = 31 * 48;
/// Lines of the log: a ring of 1,000.
pub const LOG_ENTRIES: u64 = (COARSE_SAMPLES + SAMPLES_OF_A_MONTH * SAMPLE_LEN as u64).next_multiple_of(4_096);
/// Bytes of a line.
pub const LOG_ENTRY_LEN: usize = 1_024;
/// Lines of the ring.
pub const LOG_ENTRIES_LEN: u64 = 1_000;
/// Bytes of all cells.
pub const END: u64 = LOG_ENTRIES + LOG_ENTRIES_LEN * LOG_ENTRY_LEN as u64;

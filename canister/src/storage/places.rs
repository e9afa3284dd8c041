//! Places of cells in the region of cells.

use coppice_storage::ring::Ring;

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
/// Jobs of that pruner that ended, each as CBOR behind its length.
pub const JOBS: Ring = Ring { at: 262_144, slots: 1_000, len: 2_048 };
/// Open uploads of transactions but the first, which lies at [`TRANSACTION_UPLOAD`]; each as CBOR behind its length.
pub const TRANSACTION_UPLOADS: u64 = JOBS.end();
/// Uploads of transactions that may be open.
pub const TRANSACTION_UPLOADS_LEN: u64 = 64;
/// The audit log: a header, and three rings of entries, each slot a page of its own.
pub const AUDIT: u64 = TRANSACTION_UPLOADS + (TRANSACTION_UPLOADS_LEN - 1) * TRANSACTION_UPLOAD_LEN as u64;
/// Bytes of an entry's slot, and of the header's.
pub const AUDIT_LEN: usize = 4_096;
/// Changes by admins.
const ADMINS: Ring = Ring { at: AUDIT + AUDIT_LEN as u64, slots: 1_000, len: AUDIT_LEN };
/// Changes by other callers.
const OPERATORS: Ring = Ring { at: ADMINS.end(), slots: 1_000, len: AUDIT_LEN };
/// Calls that changed nothing.
const UNCHANGED: Ring = Ring { at: OPERATORS.end(), slots: 500, len: AUDIT_LEN };
/// The rings of the audit log.
pub const AUDIT_RINGS: [Ring; 3] = [ADMINS, OPERATORS, UNCHANGED];
/// What `history` notes beside its samples; up to 2 KiB. The header of the log shares its page.
pub const HISTORY: u64 = UNCHANGED.end();
/// The header of the log.
pub const LOG: u64 = HISTORY + 2_048;
/// Bytes of a sample.
pub const SAMPLE_LEN: usize = 64;
/// A day of samples, one a minute.
pub const SAMPLES: Ring = Ring { at: HISTORY + 4_096, slots: 1_440, len: SAMPLE_LEN };
/// 31 days of samples, one each half an hour.
pub const COARSE_SAMPLES: Ring = Ring { at: SAMPLES.end(), slots: 31 * 48, len: SAMPLE_LEN };
/// Bytes of a line of the log.
pub const LOG_ENTRY_LEN: usize = 1_024;
/// Lines of the log.
pub const LOG_ENTRIES: Ring =
    Ring { at: COARSE_SAMPLES.end().next_multiple_of(4_096), slots: 1_000, len: LOG_ENTRY_LEN };
/// Bytes of all cells.
pub const END: u64 = LOG_ENTRIES.end();

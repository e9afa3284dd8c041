//! Offsets of the cells in the region of cells.

use coppice_storage::header::Header;
use coppice_storage::ring::Ring;

/// Header of the region, at its first byte.
pub const HEADER: Header = Header { name: "cells", magic: *b"CPCE", version: 2 };
/// The hash key, as CBOR after its length; up to 64 bytes.
pub const KEY: u64 = 64;
/// The settings and the roles, as CBOR after its length; up to 64 KiB.
pub const CONFIG: u64 = 65_536;
/// The chain's state; up to 4 KiB.
pub const CHAIN: u64 = 4_096;
/// The open upload; up to 8 KiB.
pub const UPLOAD: u64 = 8_192;
/// Policy and state of the block pruner, as CBOR after its length; up to 16 KiB.
pub const PRUNE: u64 = 16_384;
/// The exporters and their acknowledged bounds, as CBOR after its length; up to 32 KiB.
pub const EXPORTERS: u64 = 32_768;
/// The history of rollbacks; up to 4 KiB.
pub const ROLLBACKS: u64 = 131_072;
/// The first open upload of a transaction, as CBOR after its length.
pub const TRANSACTION_UPLOAD: u64 = 135_168;
/// Bytes of one upload; the first one's include the bitmap of the other open uploads.
pub const TRANSACTION_UPLOAD_LEN: usize = 4_096;
/// Bitmap of the other open uploads: 16 bytes at the end of the first upload's page.
pub const TRANSACTION_PLACES: u64 = TRANSACTION_UPLOAD + TRANSACTION_UPLOAD_LEN as u64 - 16;
/// State of the record pruner, as CBOR after its length; up to 32 KiB.
pub const UTXO_PRUNER: u64 = 139_264;
/// The position of applying blocks to the UTXO records; 128 bytes.
pub const APPLYING: u64 = 176_128;
/// The stop of applying.
pub const APPLY_STOP: u64 = 180_224;
/// Bytes of that cell.
pub const APPLY_STOP_LEN: usize = 1_024;
/// Cycles reserved for storage (u128), and when they were read (u64, Unix nanoseconds).
pub const RESERVED: u64 = 258_048;
/// Finished jobs of the record pruner, each as CBOR after its length.
pub const JOBS: Ring = Ring { at: 262_144, slots: 1_000, len: 2_048 };
/// Open uploads of transactions except the first, which lies at [`TRANSACTION_UPLOAD`]; each as CBOR after its length.
pub const TRANSACTION_UPLOADS: u64 = JOBS.end();
/// Maximum number of open uploads of transactions.
pub const TRANSACTION_UPLOADS_LEN: u64 = 64;
/// The audit log: a header and three rings of entries; each slot is a page.
pub const AUDIT: u64 = TRANSACTION_UPLOADS + (TRANSACTION_UPLOADS_LEN - 1) * TRANSACTION_UPLOAD_LEN as u64;
/// Bytes of an entry's slot, and of the header.
pub const AUDIT_LEN: usize = 4_096;
/// Changes by admins.
const ADMINS: Ring = Ring { at: AUDIT + AUDIT_LEN as u64, slots: 1_000, len: AUDIT_LEN };
/// Changes by other callers.
const OPERATORS: Ring = Ring { at: ADMINS.end(), slots: 1_000, len: AUDIT_LEN };
/// Calls that changed nothing.
const UNCHANGED: Ring = Ring { at: OPERATORS.end(), slots: 500, len: AUDIT_LEN };
/// The rings of the audit log.
pub const AUDIT_RINGS: [Ring; 3] = [ADMINS, OPERATORS, UNCHANGED];
/// Data of the history besides its samples; up to 2 KiB. The header of the log shares its page.
pub const HISTORY: u64 = UNCHANGED.end();
/// The header of the log.
pub const LOG: u64 = HISTORY + 2_048;
/// Bytes of a sample.
pub const SAMPLE_LEN: usize = 64;
/// One day of samples, one per minute.
pub const SAMPLES: Ring = Ring { at: HISTORY + 4_096, slots: 1_440, len: SAMPLE_LEN };
/// 31 days of samples, one per half hour.
pub const COARSE_SAMPLES: Ring = Ring { at: SAMPLES.end(), slots: 31 * 48, len: SAMPLE_LEN };
/// Bytes of a line of the log.
pub const LOG_ENTRY_LEN: usize = 1_024;
/// Lines of the log.
pub const LOG_ENTRIES: Ring =
    Ring { at: COARSE_SAMPLES.end().next_multiple_of(4_096), slots: 1_000, len: LOG_ENTRY_LEN };
/// Bytes of all cells.
pub const END: u64 = LOG_ENTRIES.end();

//! Offsets of the cells in the space of cells, and sizes of the rings' entries.

use coppice_storage::header::Header;

/// Header of the space, at its first byte.
pub const HEADER: Header = Header { name: "cells", magic: *b"CPCE", version: 3 };
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
/// The header of the audit log.
pub const AUDIT: u64 = 184_320;
/// Data of the history besides its samples; up to 2 KiB. The header of the log shares its page.
pub const HISTORY: u64 = 188_416;
/// The header of the log.
pub const LOG: u64 = HISTORY + 2_048;
/// Bytes of a sample.
pub const SAMPLE_LEN: usize = 64;
/// One day of samples, one per minute.
pub const SAMPLES: Samples = Samples { at: 196_608, count: 1_440 };
/// 31 days of samples, one per half hour.
pub const COARSE_SAMPLES: Samples = Samples { at: SAMPLES.end(), count: 31 * 48 };
/// Open uploads of transactions except the first, which lies at [`TRANSACTION_UPLOAD`]; each as CBOR after its length.
pub const TRANSACTION_UPLOADS: u64 = COARSE_SAMPLES.end().next_multiple_of(4_096);
/// Maximum number of open uploads of transactions.
pub const TRANSACTION_UPLOADS_LEN: u64 = 64;
/// Bytes of all cells.
pub const END: u64 = TRANSACTION_UPLOADS + (TRANSACTION_UPLOADS_LEN - 1) * TRANSACTION_UPLOAD_LEN as u64;

/// Place of samples, each in the slot that its time determines.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// Offset of the first slot.
    pub at: u64,
    /// Number of slots.
    pub count: u64,
}

impl Samples {
    /// Returns the offset of the slot of a period's number.
    pub const fn slot(&self, number: u64) -> u64 {
        self.at + number % self.count * SAMPLE_LEN as u64
    }

    const fn end(&self) -> u64 {
        self.at + self.count * SAMPLE_LEN as u64
    }
}

/// Bytes of an ended job's slot, its cell included.
pub const JOB_LEN: usize = 2_048;
/// Maximum number of ended jobs.
pub const JOBS_LEN: u64 = 1_000;
/// Bytes of an audit entry's slot.
pub const AUDIT_LEN: usize = 4_096;
/// Maximum number of entries of admins, of other callers, and of calls that changed nothing.
pub const AUDIT_LENS: [u64; 3] = [1_000, 1_000, 500];
/// Bytes of a line of the log.
pub const LOG_LINE_LEN: usize = 1_024;
/// Maximum number of lines of the log.
pub const LOG_LINES_LEN: u64 = 1_000;

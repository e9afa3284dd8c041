//! Places in the region of [`CELLS`](super::CELLS): small things that are always there, each behind a magic and a version
//! of its own.

use super::Region;
use serde::{Serialize, de::DeserializeOwned};

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

/// The length of what a cell holds, if this code can read it: a header of magic, version u16, reserved u16, length u32.
/// `None` where it was never written.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn check(cells: &Region, at: u64, magic: [u8; 4], version: u16) -> Result<Option<u32>, String> {
    let header: [u8; 12] = cells.read(at);
    if header == [0; 12] {
        return Ok(None);
    }
    let found = u16::from_le_bytes([header[4], header[5]]);
    if header[..4] != magic || found != version {
        let name = String::from_utf8_lossy(&magic);
        return Err(format!("cell {name}: magic {:?}, version {found}; this code reads {version}", &header[..4]));
    }
    Ok(Some(u32::from_le_bytes([header[8], header[9], header[10], header[11]])))
}

/// Reads a cell that is CBOR behind such a header. `None` where it was never written.
///
/// # Errors
/// A sentence that says what is wrong with it: nothing is ever assumed of a cell that cannot be decoded.
pub fn load<T: DeserializeOwned>(cells: &Region, at: u64, magic: [u8; 4], version: u16) -> Result<Option<T>, String> {
    let Some(len) = check(cells, at, magic, version)? else { return Ok(None) };
    let mut bytes = Vec::new();
    cells.read_onto(&mut bytes, at + 12, (len as usize).min(END as usize));
    ciborium::from_reader(bytes.as_slice())
        .map(Some)
        .map_err(|error| format!("cell {}: {error}", String::from_utf8_lossy(&magic)))
}

/// Writes such a cell, of at most `capacity` bytes.
///
/// # Errors
/// A sentence where the value is longer; nothing has changed.
pub fn save<T: Serialize>(
    cells: &Region,
    (at, capacity): (u64, usize),
    magic: [u8; 4],
    version: u16,
    value: &T,
) -> Result<(), String> {
    let mut bytes = Vec::from(magic);
    bytes.extend(version.to_le_bytes());
    bytes.extend([0; 6]);
    ciborium::into_writer(value, &mut bytes).map_err(|error| format!("{error}"))?;
    if bytes.len() > capacity {
        return Err(format!("{} bytes in a cell of {capacity}", bytes.len()));
    }
    let len = (bytes.len() - 12) as u32;
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    cells.write(at, &bytes);
    Ok(())
}

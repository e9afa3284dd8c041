//! Result type of the deletion queue, and checks of arguments.

use ic_coppice_interface::{BlobDeletionError, CompletedBlobDeletions};

/// Maximum rows in one reply.
pub const MAX_ROWS: u32 = 1_000;
/// Rows in one reply if the caller gives no number.
const DEFAULT_ROWS: u32 = 100;

/// Result of an operation, or the reason for a refusal.
pub type Answer<T> = Result<T, BlobDeletionError>;

/// Reply to a worker's report about rows.
pub type Reply = Answer<CompletedBlobDeletions>;

/// Returns `asked` if it is at most `limit`.
///
/// # Errors
/// `TooLarge`.
pub fn at_most(what: &str, asked: u64, limit: u64) -> Answer<u64> {
    if asked > limit { Err(BlobDeletionError::TooLarge { what: what.into(), limit }) } else { Ok(asked) }
}

/// Checks that a list has at most `limit` items.
///
/// # Errors
/// `TooMany`.
pub fn at_most_many(asked: usize, limit: usize) -> Answer<()> {
    if asked > limit { Err(BlobDeletionError::TooMany { limit: limit as u64 }) } else { Ok(()) }
}

/// Checks that there are bytes, and at most `limit`.
///
/// # Errors
/// `Empty`, `TooLarge`.
pub fn has_bytes(what: &str, bytes: &[u8], limit: usize) -> Answer<()> {
    if bytes.is_empty() {
        return Err(BlobDeletionError::Empty { what: what.into() });
    }
    at_most(&format!("bytes of {what}"), bytes.len() as u64, limit as u64).map(drop)
}

/// Returns the number of rows in a reply: `asked` within its bounds; 0 asks for the default.
pub fn limit(asked: u32) -> usize {
    if asked == 0 { DEFAULT_ROWS as usize } else { asked.min(MAX_ROWS) as usize }
}

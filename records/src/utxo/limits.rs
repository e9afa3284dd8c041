//! Size limits of a transaction and of a message.

use super::call::Answer;
use super::record::{ENTRY, INPUT};
use ic_coppice_interface::UtxoRefusal;
use ic_coppice_storage::Meter;

/// Bytes of the longest transaction.
pub const MAX_TRANSACTION: u64 = 16 << 20;
/// Outputs of the largest transaction.
pub const MAX_OUTPUTS: u32 = 1_000_000;
/// Inputs of the largest transaction.
pub const MAX_INPUTS: u32 = 500_000;
/// Pages of a record, or of its list of double spends, that one step frees. A larger record takes several steps and messages.
pub const STEP_PAGES: u64 = 1_000;
/// Pages that the creation of a record may change; 3 MiB are left for the pages that every message changes.
pub const CREATION_PAGES: u64 = 18_432;
/// Bytes of a page.
pub const PAGE: u64 = 4_096;
/// Bytes of the heap that an output takes while its transaction is read (value and script), and afterwards (hash).
pub const OUTPUT: u64 = 16 + 33;
/// Pages that entering a double spend with a parent changes, with the journal.
pub const PARENT: u64 = 4;
/// Transactions that a slice marks as double spends at most, and outputs that it reports; more would not fit in the reply.
pub const MOST_MARKED: usize = 5_000;

/// Instructions of look-ups after which a step that can be continued ends. A look-up takes some 5,000 instructions, and millions if
/// thousands of records share its bucket of the table.
pub const STEP: u64 = 1_000_000_000;
/// Instructions of look-ups after which an operation that cannot be continued gives up: a batch begins no operation after 10 billion, and a
/// message has 40 billion.
pub const OPERATION: u64 = 10_000_000_000;

/// Instructions of look-ups after which a query gives up; a query may execute 5 billion.
pub const QUERY: u64 = 2_000_000_000;

/// Returns the meter of look-ups that take at most this many instructions.
pub fn meter(instructions: u64) -> Meter {
    Meter::lasting(instructions, u64::MAX)
}

/// Counts a look-up of an operation or a query.
///
/// # Errors
/// `TooMuchWork`.
#[inline]
pub fn look_up(meter: &mut Meter) -> Answer<()> {
    if meter.has_time() { Ok(()) } else { Err(UtxoRefusal::TooMuchWork) }
}

/// Checks that there are at most `limit` of something.
///
/// # Errors
/// `TooLarge`.
#[inline]
pub fn at_most(what: &str, there: u64, limit: u64) -> Answer<()> {
    if there > limit { Err(UtxoRefusal::TooLarge { what: what.into(), limit }) } else { Ok(()) }
}

/// Checks the pages that a creation changes.
///
/// # Errors
/// `TooLarge`.
pub fn check_pages(pages: u64) -> Answer<()> {
    at_most("pages of 4 KiB that its creation changes", pages, CREATION_PAGES)
}

/// Checks that a transaction with these numbers of outputs and inputs, and these bytes on the heap, could fit at all.
///
/// # Errors
/// `TooLarge`.
pub fn check_least(outputs: usize, inputs: usize, bytes: usize) -> Answer<()> {
    let (outputs, inputs) = (outputs as u64, inputs as u64);
    check_pages((bytes as u64 + (OUTPUT + u64::from(ENTRY)) * outputs + 2 * u64::from(INPUT) * inputs) / PAGE)
}

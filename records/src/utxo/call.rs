//! Circumstances of a call, and checks of its arguments.

use super::record::Hash;
use ic_coppice_interface::{BadArgument, BadHeight, MissingParents, UtxoRefusal, UtxoSettings};
use ic_coppice_storage::{Ic, Platform as _};

/// Result of an operation on records, or the reason for a refusal.
pub type Answer<T> = Result<T, UtxoRefusal>;

/// The circumstances of a call besides its argument.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The height of the chain.
    pub height: u32,
    /// Nanoseconds since the Unix epoch.
    pub now_ns: u64,
    /// The settings in force.
    pub settings: &'a UtxoSettings,
    /// The largest height that the call, or a block that it names, may have (`UtxoPruner::most_height`).
    pub most: u32,
    /// Treatment of inputs whose parents have no record.
    pub missing: MissingParents,
}

impl<'a> Call<'a> {
    /// Returns a call of the canister itself at a height.
    pub fn at(height: u32, settings: &'a UtxoSettings) -> Self {
        Self { height, now_ns: Ic::now_ns(), settings, most: height, missing: MissingParents::Refuse }
    }

    /// Checks the call's height.
    ///
    /// # Errors
    /// `BadHeight`.
    pub fn check(&self) -> Answer<()> {
        if self.height == 0 {
            return Err(UtxoRefusal::BadHeight(BadHeight::Zero));
        }
        check_height(self.height, self.most)
    }

    /// Returns the height from which a record that is eligible now may be deleted; `highest` is its highest block. A call that names a
    /// far lower height does not lower that height.
    pub(super) fn due(&self, highest: u32) -> u32 {
        self.height.max(highest).saturating_add(self.settings.block_height_retention)
    }
}

/// Checks that a height is at most `most`.
///
/// # Errors
/// `BadHeight`.
pub(super) fn check_height(height: u32, most: u32) -> Answer<()> {
    if height > most { Err(UtxoRefusal::BadHeight(BadHeight::TooHigh { most })) } else { Ok(()) }
}

/// Returns `BadArgument`.
pub(super) fn bad(field: &str, why: impl Into<String>) -> UtxoRefusal {
    UtxoRefusal::BadArgument(BadArgument { field: field.into(), why: why.into() })
}

/// Returns the 32 bytes of an argument.
///
/// # Errors
/// `BadArgument`.
pub(super) fn hash_of(field: &str, bytes: &[u8]) -> Answer<Hash> {
    bytes.try_into().map_err(|_| bad(field, format!("{} bytes, not 32", bytes.len())))
}

/// Returns `None` for a record, or an output, that does not exist.
#[inline(always)]
pub(super) fn if_found<T>(found: Answer<T>) -> Answer<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(UtxoRefusal::TxNotFound | UtxoRefusal::UtxoNotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

//! Coppice in a canister of its own or of somebody else: the functions that the canister's hooks and its own methods call.

use crate::api::access::{self, Inspected};
use crate::api::endpoints::blocks;
use crate::operation::daemon;
use crate::state::{self, State};
use coppice_interface::{AppendBlock, AppendError, BlockHeader, ConfigChange, InitArg, ReadError};

/// A chain's blocks in the stable memory of the canister that contains this library. There is one chain in a canister.
///
/// All functions change state at once and within the message that calls them: a trap of the message undoes the change. A message ends at each
/// `await`.
pub struct Coppice;

impl Coppice {
    /// Creates the chain; the hook `init` calls it.
    ///
    /// # Errors
    /// A sentence: the argument is wrong, memory was refused, or stable memory is not empty.
    pub fn init(arg: &InitArg) -> Result<(), String> {
        state::init(arg)?;
        state::mutate(daemon::start);
        Ok(())
    }

    /// Writes all that the heap mirrors; the hook `pre_upgrade` calls it. Without the call nothing is lost, but a bit that has changed in
    /// stable memory is not mended.
    pub fn pre_upgrade() {
        state::mutate(State::rewrite);
    }

    /// Opens the chain after an upgrade, and changes settings; the hook `post_upgrade` calls it. The cost does not depend on the amount of data.
    ///
    /// # Errors
    /// A sentence: a setting is wrong, or stable memory was not written by this version. Trap with it, so that the upgrade is undone.
    pub fn post_upgrade(change: Option<&ConfigChange>) -> Result<(), String> {
        state::upgrade(change)?;
        state::mutate(daemon::start);
        Ok(())
    }

    /// Filters an ingress message; the hook `inspect_message` calls it with the names that [`export!`](crate::export) declares. The canister
    /// decides on messages that are not for Coppice.
    #[must_use]
    pub fn inspect(methods: &[&[&str]]) -> Inspected {
        access::inspect(methods)
    }

    /// Appends a block. Appending the same block again returns Ok and changes nothing; a block that differs from the kept one is refused.
    ///
    /// # Errors
    /// [`AppendError`]; nothing has changed.
    pub fn append(block: &AppendBlock) -> Result<(), AppendError> {
        blocks::append(block)
    }

    /// Returns the header of the newest block.
    ///
    /// # Errors
    /// `NotFound` without blocks; `Corrupt` if the header is damaged.
    pub fn head() -> Result<BlockHeader, ReadError> {
        blocks::get_head()
    }
}

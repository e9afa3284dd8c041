//! Functions for the canister that contains the library: its hooks and its own methods call them.

use crate::api::access::{self, Inspected};
use crate::api::endpoints::{blocks, prune};
use crate::host::{self, Digest, Memory, Route};
use crate::operation::daemon;
use crate::state::{self, State};
use ic_certification::HashTree;
use ic_coppice_interface::{
    AppendBlock, AppendError, BlockHeader, ConfigChange, InitArg, PruneError, PrunePolicyArg, PrunePolicyChange,
    ReadError, Rollback, RollbackError, TipCertificate,
};

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

    /// Writes what the heap mirrors of the chain; the hook `pre_upgrade` calls it. Without the call nothing is lost, but a bit that has
    /// changed in stable memory is not mended. The canister's own structures write themselves what they mirror on the heap.
    pub fn pre_upgrade() {
        state::mutate(State::rewrite);
        host::rewrite();
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

    /// Changes the policy of pruning, as `set_prune_policy` does.
    ///
    /// # Errors
    /// `BadArgument`; nothing has changed.
    pub fn set_policy(change: &PrunePolicyArg) -> Result<PrunePolicyChange, PruneError> {
        prune::set_prune_policy(change.clone())
    }

    /// Checks what would refuse any next block: a rollback or an upload that is under way, missing cycles, the emergency mark, and in the first
    /// seconds after an installation the hash key. A producer that waits while this fails makes no block in vain.
    ///
    /// # Errors
    /// [`AppendError`], which says what holds the block back.
    pub fn admission() -> Result<(), AppendError> {
        state::read(|state| state.chain.check_next(&state.admission()))
    }

    /// Makes block `number` the head, for a reorg of any depth. The timer continues a rollback that one message does not end.
    ///
    /// # Errors
    /// [`RollbackError`]; nothing has changed.
    pub fn rollback_to(number: u64) -> Result<Rollback, RollbackError> {
        blocks::message_with_work(|state| state.roll_back_at_most(number, u64::MAX, false))
    }

    /// Returns the memory of a name, of up to 1 GiB, for a stable structure of the canister; makes it if there is none. Memory that a structure
    /// gives up stays with its name. There are at most 16 memories, with names of 1 to 32 bytes.
    ///
    /// # Errors
    /// A sentence: the name is wrong, there are 16 others, or neither [`init`](Self::init) nor [`post_upgrade`](Self::post_upgrade) was called.
    pub fn memory(name: &str) -> Result<Memory, String> {
        host::memory(name)
    }

    /// Certifies the digest of a tree of the canister's own under the path `host`, `label`; `None` removes the label. Never call
    /// `certified_data_set`, because it removes what readers of the chain verify. An upgrade forgets the labels: certify each again in
    /// `post_upgrade`.
    ///
    /// # Errors
    /// A sentence: the label is not 1 to 32 bytes, or there are 16 others.
    pub fn certify(label: &str, digest: Option<Digest>) -> Result<(), String> {
        host::certify(label, digest)
    }

    /// Returns the certificate and the tree that prove what a label's tree shows, its other parts pruned; `None` in an update, and for a label
    /// with another digest.
    #[must_use]
    pub fn witness(label: &str, tree: &HashTree) -> Option<TipCertificate> {
        host::witness(label, tree)
    }

    /// Makes a function answer paths of `http_request`; Coppice answers those for which the function returns `None`. An upgrade forgets the
    /// function. Responses are not certified.
    pub fn route(route: Route) {
        host::set_route(route);
    }

    /// Returns the header of the newest block.
    ///
    /// # Errors
    /// `NotFound` without blocks; `Corrupt` if the header is damaged.
    pub fn head() -> Result<BlockHeader, ReadError> {
        blocks::get_head()
    }
}

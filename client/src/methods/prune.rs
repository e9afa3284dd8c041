//! Pruning of blocks.

use super::methods;
use coppice_interface::*;

methods! {
    /// Changes the policy: what is left out stays, 0 switches a limit off. For operators. The first policy switches pruning on.
    ///
    /// Repeating it changes nothing more.
    update set_prune_policy(policy: &PrunePolicyArg) -> PrunePolicyChange, or PruneError;

    /// The policy; none before one is set.
    query get_prune_policy() -> Option<PrunePolicy>;

    /// Switches pruning on or off. For operators.
    ///
    /// Repeating it changes nothing.
    update set_pruning_enabled(enabled: bool) -> (), or PruneError;

    /// Stops deletions of blocks, of records and of blobs outside, or starts them again. For operators and admins; only admins start them.
    ///
    /// Repeating it changes nothing.
    update set_deletions_stopped(stopped: bool) -> (), or DeletionsError;

    /// Prunes what is due, in one bounded run of so many ops, 1 at least; also where pruning is switched off. For operators.
    ///
    /// Repeating it prunes what is due then.
    update prune_now(max_ops: u64) -> PruneRun, or PruneError;

    /// Declares the first so many faults seen, and answers how many are. For operators.
    ///
    /// Repeating it changes nothing.
    update acknowledge_faults(up_to: u64) -> u64;

    /// What the next run would do, by the policy or by a changed one.
    query plan_prune(change: Option<&PrunePolicyArg>) -> PrunePlan, or PruneError;

    /// What is kept, what is due, and who holds it back.
    query get_prune_status() -> PruneStatus;
}

//! The switch that stops deletions (`docs/design.md` 8).

use crate::access::guardian;
use crate::state::mutate;
use crate::{daemon, wire};
use candid::candid_method;
use coppice_interface::DeletionsError;
use ic_cdk::update;

/// Stops deletions, or starts them again; operators and admins stop them, only admins start them. While deletions are
/// stopped, ticks and calls prune no block and no UTXO record, and workers get no blob to delete; rollbacks, resets, the
/// expiry of uploads and sweeps of the indexes continue. The switch survives upgrades. Repeating the call changes nothing.
#[candid_method(update)]
#[update(
    guard = "guardian",
    guard = "wire::readable::<(bool,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
fn set_deletions_stopped(stopped: bool) -> Result<(), DeletionsError> {
    let done = mutate(|state| state.set_deletions_stopped(stopped));
    daemon::arm_work();
    daemon::arm_records();
    daemon::arm_deletions();
    done
}

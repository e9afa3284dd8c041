//! Snapshots, and what only this host has: measurements, limits, faults, checkpoints.

use candid::Principal;

use super::{Host, or_anonymous};
use crate::execution::{Execution, Totals};
use crate::faults::Faults;
use crate::limits::Limits;
use crate::reject::RejectResponse;
use crate::snapshot::{Checkpoint, Snapshot};

impl Host {
    /// Takes a snapshot of a canister, in place of another if one is named.
    ///
    /// # Errors
    /// When there is no such canister or snapshot, or the sender isn't a controller.
    pub fn take_canister_snapshot(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        replace_snapshot: Option<Vec<u8>>,
    ) -> Result<Snapshot, RejectResponse> {
        self.subnet().take_snapshot(canister, or_anonymous(sender), replace_snapshot)
    }

    /// Puts a canister back to a snapshot: heap, globals, stable memory, code, settings, cycles, timer, log. Calls in
    /// progress stay.
    ///
    /// # Errors
    /// When there is no such canister or snapshot, or the sender isn't a controller.
    pub fn load_canister_snapshot(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        snapshot_id: Vec<u8>,
    ) -> Result<(), RejectResponse> {
        self.subnet().load_snapshot(canister, or_anonymous(sender), &snapshot_id)
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// When there is no such canister or snapshot, or the sender isn't a controller.
    pub fn delete_canister_snapshot(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        snapshot_id: Vec<u8>,
    ) -> Result<(), RejectResponse> {
        self.subnet().delete_snapshot(canister, or_anonymous(sender), &snapshot_id)
    }

    /// The whole host at this moment, messages in flight included. Cheap: memory is shared until it is written.
    pub fn checkpoint(&self) -> Checkpoint {
        self.subnet().checkpoint()
    }

    /// Goes back to a checkpoint, of this or of another host. Limits, faults and executions stay as they are.
    pub fn restore(&self, checkpoint: &Checkpoint) {
        self.subnet().restore(checkpoint);
    }

    /// The last execution.
    pub fn last_execution(&self) -> Option<Execution> {
        self.subnet().history.last()
    }

    /// The executions since the last call, oldest first; at most the last 10,000.
    pub fn take_executions(&self) -> Vec<Execution> {
        self.subnet().history.take()
    }

    /// Sums over all executions.
    pub fn totals(&self) -> Totals {
        self.subnet().history.totals
    }

    /// A handle on the faults to inject.
    pub fn faults(&self) -> Faults {
        self.subnet().faults.clone()
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.subnet().limits.clone()
    }

    /// Changes the limits; a growth or message that comes later sees the new ones.
    pub fn set_limits(&self, limits: Limits) {
        self.subnet().limits = limits;
    }
}

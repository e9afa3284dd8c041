//! Snapshots of a canister, and checkpoints of the whole host.
//!
//! Both hold clones of canister states, which share their pages with the live states until either side writes.

use std::collections::BTreeMap;

use candid::Principal;

use crate::canister::{Canister, State};
use crate::host::{Host, or_anonymous};
use crate::reject::{ErrorCode, RejectResponse};
use crate::subnet::{Shared, Subnet};

/// A snapshot of a canister: heap, globals, stable memory, code, settings, cycles, timer, certified data and log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The id of the snapshot.
    pub id: Vec<u8>,
    /// The time of the snapshot, in nanoseconds since 1970.
    pub taken_at_timestamp: u64,
    /// Bytes of heap, stable memory and module.
    pub total_size: u64,
}

/// The whole host at one moment, including messages in flight and the clock, but not limits, faults and the record of executions.
#[derive(Clone)]
pub struct Checkpoint {
    shared: Shared,
    canisters: BTreeMap<Principal, State>,
}

impl Host {
    /// Takes a snapshot of a canister. It replaces `replace_snapshot`, if given.
    ///
    /// # Errors
    /// When there is no such canister or snapshot, or the sender isn't a controller.
    pub fn take_canister_snapshot(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        replace_snapshot: Option<Vec<u8>>,
    ) -> Result<Snapshot, RejectResponse> {
        let mut subnet = self.subnet();
        let state = subnet.controlled(canister, or_anonymous(sender), "take_canister_snapshot")?.state.clone();
        if let Some(old) = replace_snapshot {
            subnet.find_snapshot(canister, &old)?;
            subnet.shared.snapshots.remove(&old);
        }
        subnet.shared.next_message += 1;
        let id = [&subnet.shared.next_message.to_be_bytes()[..], canister.as_slice()].concat();
        let snapshot =
            Snapshot { id: id.clone(), taken_at_timestamp: subnet.shared.time, total_size: state.memory_usage() };
        subnet.shared.snapshots.insert(id, (canister, state));
        Ok(snapshot)
    }

    /// Restores a canister from a snapshot: heap, globals, stable memory, code, settings, cycles, timer, log. Calls in progress stay: their
    /// answers go to the restored code, as on the platform.
    ///
    /// # Errors
    /// When there is no such canister or snapshot, or the sender isn't a controller.
    pub fn load_canister_snapshot(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        snapshot_id: Vec<u8>,
    ) -> Result<(), RejectResponse> {
        let mut subnet = self.subnet();
        subnet.controlled(canister, or_anonymous(sender), "load_canister_snapshot")?;
        let restored = subnet.find_snapshot(canister, &snapshot_id)?.clone();
        let canister = subnet.canister(canister)?;
        let now = std::mem::replace(&mut canister.state, restored);
        canister.state.contexts = now.contexts;
        canister.state.callbacks = now.callbacks;
        canister.state.next_id = now.next_id;
        canister.state.status = now.status;
        canister.state.version = now.version + 1;
        canister.instance = None;
        Ok(())
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
        let mut subnet = self.subnet();
        subnet.controlled(canister, or_anonymous(sender), "delete_canister_snapshot")?;
        subnet.find_snapshot(canister, &snapshot_id)?;
        subnet.shared.snapshots.remove(&snapshot_id);
        Ok(())
    }

    /// Returns the whole host at this moment, including messages in flight. Cheap: memory is shared until it is written.
    pub fn checkpoint(&self) -> Checkpoint {
        let subnet = self.subnet();
        Checkpoint {
            shared: subnet.shared.clone(),
            canisters: subnet.canisters.iter().map(|(id, canister)| (*id, canister.state.clone())).collect(),
        }
    }

    /// Restores a checkpoint, of this or of another host. Limits, faults and executions stay as they are.
    pub fn restore(&self, checkpoint: &Checkpoint) {
        let mut subnet = self.subnet();
        subnet.shared = checkpoint.shared.clone();
        let canisters = checkpoint.canisters.iter();
        subnet.canisters = canisters.map(|(id, state)| (*id, Canister::new(*id, state.clone()))).collect();
    }
}

impl Subnet {
    fn find_snapshot(&self, canister: Principal, id: &[u8]) -> Result<&State, RejectResponse> {
        match self.shared.snapshots.get(id) {
            Some((owner, state)) if *owner == canister => Ok(state),
            _ => {
                let message = format!("Could not find the snapshot for canister {canister}");
                Err(RejectResponse::new(ErrorCode::CanisterSnapshotNotFound, message))
            }
        }
    }
}

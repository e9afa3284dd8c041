//! Snapshots of a canister, and checkpoints of the whole host.
//!
//! Both hold clones of memories, which share their pages with the live ones until either side writes.

use std::collections::BTreeMap;

use candid::Principal;

use crate::canister::{Canister, Contents, State};
use crate::cycles;
use crate::host::{Host, or_anonymous};
use crate::reject::{ErrorCode, RejectResponse};
use crate::subnet::{Shared, Subnet};

/// A snapshot of a canister: heap, globals, stable memory, code and certified data. Settings, cycles, timer and log are not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The id of the snapshot.
    pub id: Vec<u8>,
    /// The time of the snapshot, in nanoseconds since 1970.
    pub taken_at_timestamp: u64,
    /// Bytes of heap, stable memory and module.
    pub total_size: u64,
}

/// The whole host at one moment, including messages in flight and the clock, but not limits, faults, keys and the record of executions.
#[derive(Clone)]
pub struct Checkpoint {
    shared: Shared,
    canisters: BTreeMap<Principal, State>,
}

impl Host {
    /// Takes a snapshot of a canister, which replaces `replace_snapshot`, if given. The snapshot costs 2 G instructions and one per byte; its
    /// bytes count for the freezing threshold, and are paid for like the canister's.
    ///
    /// # Errors
    /// When there is no such canister or snapshot, the sender isn't a controller, or the balance is too low.
    pub fn take_canister_snapshot(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        replace_snapshot: Option<Vec<u8>>,
    ) -> Result<Snapshot, RejectResponse> {
        let mut subnet = self.subnet();
        let state = &subnet.controlled(canister, or_anonymous(sender), "take_canister_snapshot")?.state;
        let contents = Contents {
            heap: state.heap.clone(),
            stable: state.stable.clone(),
            code: state.code.clone(),
            certified_data: state.certified_data.clone(),
            bytes: state.own_bytes(),
        };
        let bytes = contents.bytes;
        let replaced = match &replace_snapshot {
            Some(old) => subnet.find_snapshot(canister, old)?.bytes,
            None => 0,
        };
        subnet.pay_for_growth(canister, bytes.saturating_sub(replaced), cycles::taking(bytes))?;
        replace_snapshot.iter().for_each(|old| drop(subnet.shared.snapshots.remove(old)));
        let state = &mut subnet.canister(canister)?.state;
        state.snapshot_bytes = state.snapshot_bytes + bytes - replaced;
        subnet.shared.next_message += 1;
        let id = [&subnet.shared.next_message.to_be_bytes()[..], canister.as_slice()].concat();
        let snapshot = Snapshot { id: id.clone(), taken_at_timestamp: subnet.shared.time, total_size: bytes };
        subnet.shared.snapshots.insert(id, (canister, contents));
        Ok(snapshot)
    }

    /// Restores a canister from a snapshot: heap, globals, stable memory, code and certified data. Settings, cycles, timer and log stay as
    /// they are, and so do calls in progress: their answers go to the restored code. Restoring costs 2 G instructions, one per byte, and a
    /// hundredth of compiling the module.
    ///
    /// # Errors
    /// When there is no such canister or snapshot, the sender isn't a controller, or the balance is too low.
    pub fn load_canister_snapshot(
        &self,
        canister: Principal,
        sender: Option<Principal>,
        snapshot_id: Vec<u8>,
    ) -> Result<(), RejectResponse> {
        let mut subnet = self.subnet();
        subnet.controlled(canister, or_anonymous(sender), "load_canister_snapshot")?;
        let Contents { heap, stable, code, certified_data, bytes } =
            subnet.find_snapshot(canister, &snapshot_id)?.clone();
        let growth = bytes.saturating_sub(subnet.canister(canister)?.state.own_bytes());
        let unpacked = code.as_ref().map_or(0, |code| code.unpacked);
        subnet.pay_for_growth(canister, growth, cycles::loading(bytes, unpacked))?;
        let canister = subnet.canister(canister)?;
        let state = &mut canister.state;
        (state.heap, state.stable, state.code, state.certified_data) = (heap, stable, code, certified_data);
        state.version += 1;
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
        let bytes = subnet.find_snapshot(canister, &snapshot_id)?.bytes;
        subnet.shared.snapshots.remove(&snapshot_id);
        subnet.canister(canister)?.state.snapshot_bytes -= bytes;
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

    /// Restores a checkpoint, of this or of another host. Limits, faults, keys and executions stay as they are.
    pub fn restore(&self, checkpoint: &Checkpoint) {
        let mut subnet = self.subnet();
        subnet.shared = checkpoint.shared.clone();
        let canisters = checkpoint.canisters.iter();
        subnet.canisters = canisters.map(|(id, state)| (*id, Canister::new(*id, state.clone()))).collect();
    }
}

impl Subnet {
    /// Pays for a change that makes a canister's memory grow, and for its storage. Fails if the balance does not cover both above the
    /// freezing threshold.
    fn pay_for_growth(&mut self, id: Principal, bytes: u64, price: u128) -> Result<(), RejectResponse> {
        let (canister, around) = self.split(id)?;
        canister.state.pay_for_growth(bytes, price, around.saturation).map_err(|trap| trap.reject(id))
    }

    /// Deletes a canister's snapshots.
    pub(crate) fn delete_snapshots(&mut self, id: Principal) {
        self.shared.snapshots.retain(|_, (owner, _)| *owner != id);
        if let Some(canister) = self.canisters.get_mut(&id) {
            canister.state.snapshot_bytes = 0;
        }
    }

    fn find_snapshot(&self, canister: Principal, id: &[u8]) -> Result<&Contents, RejectResponse> {
        match self.shared.snapshots.get(id) {
            Some((owner, contents)) if *owner == canister => Ok(contents),
            _ => {
                let message = format!("Could not find the snapshot for canister {canister}");
                Err(RejectResponse::new(ErrorCode::CanisterSnapshotNotFound, message))
            }
        }
    }
}

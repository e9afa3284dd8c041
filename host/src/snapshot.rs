//! Snapshots of a canister, and checkpoints of the whole host.
//!
//! Both hold clones of canister states, which share their pages with the living ones until either side writes.

use std::collections::BTreeMap;

use candid::Principal;

use crate::canister::{Canister, State};
use crate::reject::{ErrorCode, RejectResponse};
use crate::subnet::{Shared, Subnet};

/// A snapshot of a canister: heap, globals, stable memory, code, settings, cycles, timer, certified data and log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Names the snapshot.
    pub id: Vec<u8>,
    /// When it was taken, in nanoseconds since 1970.
    pub taken_at_timestamp: u64,
    /// Bytes of heap, stable memory and module.
    pub total_size: u64,
}

/// The whole host at one moment, messages in flight and clock included; limits, faults and the record of executions
/// aren't part of it.
#[derive(Clone)]
pub struct Checkpoint {
    shared: Shared,
    canisters: BTreeMap<Principal, State>,
}

impl Subnet {
    pub(crate) fn take_snapshot(
        &mut self,
        canister: Principal,
        sender: Principal,
        replace: Option<Vec<u8>>,
    ) -> Result<Snapshot, RejectResponse> {
        let state = self.controlled(canister, sender, "take_canister_snapshot")?.state.clone();
        if let Some(old) = replace {
            self.find_snapshot(canister, &old)?;
            self.shared.snapshots.remove(&old);
        }
        self.shared.next_message += 1;
        let id = [&self.shared.next_message.to_be_bytes()[..], canister.as_slice()].concat();
        let snapshot =
            Snapshot { id: id.clone(), taken_at_timestamp: self.shared.time, total_size: state.memory_usage() };
        self.shared.snapshots.insert(id, (canister, state));
        Ok(snapshot)
    }

    fn find_snapshot(&self, canister: Principal, id: &[u8]) -> Result<&State, RejectResponse> {
        match self.shared.snapshots.get(id) {
            Some((owner, state)) if *owner == canister => Ok(state),
            _ => {
                let message = format!("Could not find the snapshot for canister {canister}");
                Err(RejectResponse::new(ErrorCode::CanisterSnapshotNotFound, message))
            }
        }
    }

    /// Puts a canister back. Calls in progress stay: their answers go to the restored code, as on the platform.
    pub(crate) fn load_snapshot(
        &mut self,
        canister: Principal,
        sender: Principal,
        id: &[u8],
    ) -> Result<(), RejectResponse> {
        self.controlled(canister, sender, "load_canister_snapshot")?;
        let restored = self.find_snapshot(canister, id)?.clone();
        let canister = self.canister(canister)?;
        let now = std::mem::replace(&mut canister.state, restored);
        canister.state.contexts = now.contexts;
        canister.state.callbacks = now.callbacks;
        canister.state.next_id = now.next_id;
        canister.state.status = now.status;
        canister.state.version = now.version + 1;
        canister.instance = None;
        Ok(())
    }

    pub(crate) fn delete_snapshot(
        &mut self,
        canister: Principal,
        sender: Principal,
        id: &[u8],
    ) -> Result<(), RejectResponse> {
        self.controlled(canister, sender, "delete_canister_snapshot")?;
        self.find_snapshot(canister, id)?;
        self.shared.snapshots.remove(id);
        Ok(())
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            shared: self.shared.clone(),
            canisters: self.canisters.iter().map(|(id, canister)| (*id, canister.state.clone())).collect(),
        }
    }

    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) {
        self.shared = checkpoint.shared.clone();
        let canisters = checkpoint.canisters.iter();
        self.canisters = canisters.map(|(id, state)| (*id, Canister::new(*id, state.clone()))).collect();
    }
}

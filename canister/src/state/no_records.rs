//! The state in the build without UTXO records: the functions of `records/mod.rs`, for no records.
#![allow(missing_docs)]

use super::State;
use crate::logs::audit::Fields;
use candid::Principal;
use ic_coppice_interface::{Config, ConfigError, OpenTransaction, Owner, RollbackError, UtxoError, UtxoStorage};
use ic_coppice_records::RecordStores;
use ic_coppice_records::apply::TakenBack;
use ic_coppice_storage::arena::Arena;
use ic_coppice_storage::{HashKey, Space};
use std::rc::Rc;

/// True if this build keeps UTXO records.
pub const KEPT: bool = false;
/// Words for what feeders bring.
pub const FED: &str = "blocks";

/// No stores.
pub struct Stores;

impl Stores {
    /// Checks that the stores of records are empty.
    ///
    /// # Errors
    /// A sentence with what they keep, or with the store and its fault.
    pub fn open(arena: &Arena, cells: &Rc<Space>, key: &HashKey) -> Result<Self, String> {
        let kept = RecordStores::open(arena, cells, key)?.kept();
        if kept.is_empty() {
            return Ok(Self);
        }
        Err(format!("this build of the canister keeps no UTXO records, and there are {}", kept.join(", ")))
    }

    /// Writes nothing.
    pub fn rewrite(&mut self) {}
}

/// Returns whether an owner of memory belongs to this build.
pub fn has_owner(owner: Owner) -> bool {
    !matches!(owner, Owner::Records | Owner::External | Owner::Deletions | Owner::UtxoIndex)
}

#[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "the functions of `records/mod.rs`")]
impl State {
    pub(super) fn bound_records(&mut self) {}

    pub(super) fn applied_before(&self) -> Option<u64> {
        None
    }

    pub(super) fn check_records_settings(&self, _new: &Config) -> Result<(), ConfigError> {
        Ok(())
    }

    pub(super) fn note_records_settings(&mut self, _before: &Config) {}

    pub fn note_due_blobs(&mut self, _now_ns: u64) {}

    pub(super) fn end_leases(&mut self, _holder: Principal) {}

    pub(super) fn stop_deleting_records(&mut self) {}

    pub(super) fn acknowledge_applying(&mut self) {}

    pub(super) fn check_complete(&self, _number: u64, _incomplete: bool) -> Result<(), RollbackError> {
        Ok(())
    }

    pub(super) fn shown_applying(&self) -> Fields {
        Fields::new()
    }

    pub(super) fn begin_taking_back(&mut self) {}

    pub(super) fn take_back(
        &mut self,
        _number: u64,
        _is_fresh: bool,
        _faults: &mut Vec<String>,
    ) -> Option<(TakenBack, u64)> {
        None
    }

    pub(super) fn lower_applying(&mut self) {}

    pub(super) fn set_rollback_waits(&mut self, _waits: Option<(u64, UtxoError)>) {}

    pub(super) fn rollback_waits(&self) -> Option<UtxoError> {
        None
    }

    pub(super) fn rollback_waits_until(&self) -> Option<u64> {
        None
    }

    pub(super) fn reset_records(&mut self) -> Option<u64> {
        None
    }

    pub fn transaction_touched(&self) -> Option<u64> {
        None
    }

    pub(super) fn expire_transactions(&mut self) {}

    pub fn open_transactions(&self) -> Option<Vec<OpenTransaction>> {
        None
    }

    pub fn records_storage(&self) -> Option<UtxoStorage> {
        None
    }
}

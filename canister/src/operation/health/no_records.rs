//! Findings in the build without UTXO records: the functions of `records/mod.rs`, which find nothing.

use super::finding::Finding;
use crate::state::State;
use ic_coppice_interface::HeldBy;

pub(super) const STOPPED: &str = "no block is pruned";
pub(super) const NO_FEEDER: &str = "no principal has a role that feeds blocks";

pub(super) fn findings(_state: &State, _deep: bool) -> Vec<Finding> {
    Vec::new()
}

pub(super) fn with_stop(_state: &State, found: Finding, _held_by: &HeldBy) -> Finding {
    found
}

pub(super) fn value(_state: &State, _name: &str) -> String {
    String::new()
}

//! Persisted state of the pruner of blocks.

use super::piece::Piece;
use crate::pruning::work::marker::Marker;
use coppice_interface::{PrunePolicy, PruneRun};
use serde::{Deserialize, Serialize};

/// What is persisted of the pruner.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub policy: Option<PrunePolicy>,
    pub enabled: bool,
    /// The capacity trigger has fired and low water was not reached yet.
    pub to_low_water: bool,
    pub last_run: Option<PruneRun>,
    /// The next tick goes on with it.
    pub running: bool,
    pub runs: u64,
    pub faults: u64,
    /// Ticks that a sweep has waited for a pause.
    pub pending_ticks: u64,
    /// Unix seconds since when what is due is held back by an exporter, or by there being none.
    pub held_since: Option<u64>,
    /// Messages do less than they might, as ticks have trapped.
    pub marker: Option<Marker<Piece>>,
    /// What traps, and is passed over.
    pub set_aside: Vec<Piece>,
    /// Of `faults`, those that an operator has seen.
    pub acknowledged_faults: u64,
    /// Slots of the blob store that were lost when an operator last acknowledged all faults.
    pub acknowledged_lost: u64,
}

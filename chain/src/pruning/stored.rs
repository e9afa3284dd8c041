//! Persisted state of the pruner of blocks: CBOR in one cell. A new field must be an `Option`, so that the cells of earlier releases can be
//! read.

use super::piece::Piece;
use ic_coppice_interface::{PrunePolicy, PruneRun};
use ic_coppice_storage::turns::Turns;
use serde::{Deserialize, Serialize};

/// Persisted fields of the block pruner.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// The policy in force.
    pub policy: Option<PrunePolicy>,
    /// The capacity trigger has fired and low water is not reached yet.
    pub to_low_water: bool,
    /// The run in progress, or the last one, summed over its ticks.
    pub last_run: Option<PruneRun>,
    /// The next tick continues `last_run`.
    pub running: bool,
    /// Runs that ever began.
    pub runs: u64,
    /// Damaged entries ever skipped.
    pub faults: u64,
    /// Ticks for which a sweep has waited for a pause.
    pub pending_ticks: u64,
    /// Unix seconds since when an exporter, or the lack of one, holds due blocks back.
    pub held_since: Option<u64>,
    /// Turns of the ticks, and the pieces that are skipped because they trap.
    pub turns: Turns<Piece>,
    /// Number of `faults` that an operator has acknowledged.
    pub acknowledged_faults: u64,
    /// Slots of the blob store that were lost when an operator last acknowledged all faults.
    pub acknowledged_lost: u64,
}

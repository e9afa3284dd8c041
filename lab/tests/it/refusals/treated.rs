//! Refusals that a command understands, so that it does not end with their sentence.

use coppice_testkit::refusals::Row;
use coppice_testkit::refusals::Treated::{Expected, Noted, Says};

/// An earlier block is asked for.
const UNREADABLE: &str = "the canister cannot read block 7: because of a sample; it continues at";

pub const TREATED: &[Row] = &[
    // A block that no reply holds is read in parts.
    ("ingest", "get_block", "TooLarge", Expected),
    // The demonstration asks for this refusal.
    ("demo --utxo", "utxo_prune", "BlockAssemblyNotRunning", Expected),
    ("demo", "export_blocks", "Corrupt", Says(UNREADABLE)),
    // The run is over when it removes its exporter.
    ("index", "remove_exporter", "", Noted),
    // Pruning waits for the acknowledgements.
    ("index", "ack_exported", "AboveHead", Says("is not acknowledged yet: the block is above the head")),
    ("index", "export_blocks", "Corrupt", Says(UNREADABLE)),
];

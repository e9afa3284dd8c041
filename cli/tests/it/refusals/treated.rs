//! Refusals that a command understands, so that it does not end with their sentence.

/// The effect of a refusal.
#[derive(Clone, Copy, Debug)]
pub enum Treated {
    /// The command expects the refusal among other answers, and ends well.
    Expected,
    /// The command shows the sentence in a note, and ends well.
    Noted,
    /// The command says this, and ends with an error.
    Says(&'static str),
}

use Treated::{Expected, Noted, Says};

/// An earlier block is asked for.
const UNREADABLE: &str = "the canister cannot read block 7: because of a sample; it continues at";

/// By command, method and case: the beginnings of the command and of the case, or the whole command's options. The first row that matches
/// counts.
pub const TREATED: &[(&str, &str, &str, Treated)] = &[
    // A block that no message has room for is uploaded.
    ("ingest", "append_block", "TooLarge", Expected),
    ("ingest", "utxo_get_transaction", "TxNotFound", Says("has no record")),
    ("ingest", "utxo_get_transaction", "NotKept", Says("has a record, but its bytes are not kept")),
    // A block that no reply holds is read in parts.
    ("coppice-lab ingest", "get_block", "TooLarge", Expected),
    // The demonstration asks for this refusal.
    ("coppice-lab demo --utxo", "utxo_prune", "BlockAssemblyNotRunning", Expected),
    ("coppice-lab demo", "export_blocks", "Corrupt", Says(UNREADABLE)),
    // The run is over when it removes its exporter.
    ("coppice-lab index", "remove_exporter", "", Noted),
    // Pruning waits for the acknowledgements.
    ("coppice-lab index", "ack_exported", "AboveHead", Says("is not acknowledged yet: the block is above the head")),
    // The next certificate shows a reorg, or a later block can be acknowledged.
    ("index", "ack_exported", "NotRegistered", Says("is not a registered exporter, so it may not acknowledge")),
    ("index", "ack_exported", "", Noted),
    ("index", "export_blocks", "Corrupt", Says(UNREADABLE)),
];

/// Returns the place of the row for a command's refusal.
pub fn row(command: &str, method: &str, case: &str) -> Option<usize> {
    TREATED.iter().position(|(of_command, of_method, cases, _)| {
        let is_command = command.starts_with(of_command) || command.ends_with(of_command);
        is_command && *of_method == method && case.starts_with(cases)
    })
}

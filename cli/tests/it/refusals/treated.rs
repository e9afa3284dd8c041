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

const NOT_ITS_ORDER: &str = "the canister reports a reset, although it was asked for its oldest block";
const OTHER_CHAIN: &str = "the canister does not know this database's position in the chain (because of a sample)";
const AGAIN: &str = "the canister reports a reorg above block 7, and again after the cursor that it named";
const OTHER_BLOCK: &str = "names block 7 as the newest common block, but this database has another block there";
const LOWER: &str = "the canister reports block 7 as its head, which is lower than the indexed blocks";
const NO_HEAD: &str = "the canister reports nothing as its head, which is lower than the indexed blocks";
const OLDEST: &str = "the canister reports its oldest block, 7, as pruned";
const UNREADABLE: &str = "the canister cannot read block 7: because of a sample; use --skip-damaged to skip it";
const SKIPPED: &str = "--skip-damaged --accept-reset";
const AFTER: &str = "index after index --no-ack";

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
    // The next page reports a reorg, or a later block can be acknowledged.
    ("index", "ack_exported", "NotRegistered", Says("is not a registered exporter, so it may not acknowledge")),
    ("index", "ack_exported", "", Noted),
    (SKIPPED, "export_blocks", "Corrupt/none", Says("the canister cannot read its head, block 7: because of a sample")),
    (
        SKIPPED,
        "export_blocks",
        "Corrupt",
        Says("the canister cannot read block 7: because of a sample; it continues at"),
    ),
    (AFTER, "export_blocks", "Reset", Says("the canister's chain was reset, and this database holds the old chain")),
    (AFTER, "export_blocks", "Reorged", Says(OTHER_BLOCK)),
    (AFTER, "get_head", "NotFound", Says(NO_HEAD)),
    (AFTER, "get_block_headers", "NotFound", Says("the canister reports block 5 as its head, which is lower")),
    (AFTER, "get_block_headers", "Corrupt", Says("so the block cannot be confirmed: because of a sample")),
    (AFTER, "export_blocks", "Restored", Says("does not know this database's position in the chain, block")),
    ("index", "export_blocks", "Restored", Says("that it was restored, although it was asked for its oldest block")),
    ("index", "export_blocks", "Corrupt", Says(UNREADABLE)),
    ("index", "export_blocks", "Reset", Says(NOT_ITS_ORDER)),
    ("index", "export_blocks", "Reorged", Says(AGAIN)),
    ("index", "export_blocks", "BadCursor", Says(OTHER_CHAIN)),
    ("index", "export_blocks", "Behind/none", Says(NO_HEAD)),
    ("index", "export_blocks", "Behind", Says(LOWER)),
    ("index", "export_blocks", "Pruned", Says(OLDEST)),
];

/// Returns the place of the row for a command's refusal.
pub fn row(command: &str, method: &str, case: &str) -> Option<usize> {
    TREATED.iter().position(|(of_command, of_method, cases, _)| {
        let is_command = command.starts_with(of_command) || command.ends_with(of_command);
        is_command && *of_method == method && case.starts_with(cases)
    })
}

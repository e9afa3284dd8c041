//! Commands of a program: their runs, and the refusals that they understand.

use super::cases::Method;
use super::liar::Liar;
use super::world::World;
use anyhow::Result;
use ic_coppice_client::Client;
use std::sync::Arc;

/// Methods that the commands of `coppice` call, and whose errors they show in every case. The test of `coppice` checks that they are called;
/// the test of `coppice-lab` relies on it.
pub const OF_COPPICE: [&str; 22] = [
    "ack_exported",
    "acquire_blob_deletion_batch",
    "append_block",
    "append_blocks",
    "begin_block",
    "commit_block",
    "complete_blob_deletion_batch",
    "export_blocks",
    "find_by_index_key",
    "get_block",
    "get_block_headers",
    "get_head",
    "get_receipt",
    "get_tip_certificate",
    "get_transaction_location",
    "plan_prune",
    "put_block_chunk",
    "read_segment",
    "set_prune_policy",
    "utxo_apply_block",
    "utxo_get_spend",
    "utxo_get_transaction",
];

/// A command that is run against a client.
pub type Run = Box<dyn Fn(&Arc<Client<Liar>>) -> Result<()>>;

/// The commands of a program.
pub struct Commands {
    pub names: &'static [&'static str],
    /// Returns a command's canister, and the command.
    pub command: fn(&str) -> (World, Run),
    /// Returns whether a command tries again after a refusal, without end.
    pub is_endless: fn(&str) -> bool,
    /// Returns the numbers of the cases of a method with which a command is refused.
    pub due: fn(&str, &Method) -> Vec<usize>,
    pub treated: &'static [Row],
    /// Writes why a command has ended, and returns its exit code.
    pub end: fn(Result<()>) -> u8,
    /// Returns a sentence as the output shows it.
    pub shown: fn(&str) -> String,
}

/// The effect of a refusal that a command understands, so that it does not end with the sentence.
#[derive(Clone, Copy, Debug)]
pub enum Treated {
    /// The command expects the refusal among other answers, and ends well.
    Expected,
    /// The command shows the sentence in a note, and ends well.
    Noted,
    /// The command says this, and ends with an error.
    Says(&'static str),
}

/// A treated refusal: the beginning of the command, the method, the beginning of the case. The first row that matches counts.
pub type Row = (&'static str, &'static str, &'static str, Treated);

impl Commands {
    /// Returns the place of the row for a command's refusal.
    pub fn row(&self, command: &str, method: &str, case: &str) -> Option<usize> {
        self.treated.iter().position(|(of_command, of_method, of_case, _)| {
            command.starts_with(of_command) && method == *of_method && case.starts_with(of_case)
        })
    }
}

//! Holders of pruning: what each is called, and its remedy.

use super::action::{Action, Command};
use super::advice::{REGISTER, advice};
use ic_coppice_interface::{HeldBy, ProblemCode};

/// Returns the holder of pruning as words.
pub fn holder(held_by: &HeldBy) -> String {
    match held_by {
        HeldBy::Exporter(name) => format!("exporter {name}"),
        HeldBy::KeylessExporter(name) => format!("exporter {name}, whose key was revoked"),
        HeldBy::NoExporter => "require_export, because no exporter is registered".into(),
        HeldBy::PruneLag => "nothing: the daemon has not fired yet".into(),
        HeldBy::Disabled => "the daemon, which is switched off".into(),
        HeldBy::Stopped => "set_deletions_stopped(true), until an admin calls set_deletions_stopped(false)".into(),
        HeldBy::UtxoApply => "the UTXO records, to which the next block is not applied yet".into(),
        HeldBy::Floor => "the floor, which keeps the newest blocks".into(),
        HeldBy::LowCycles => "too few liquid cycles (see health)".into(),
    }
}

/// Returns the remedy for a holder of pruning, or `None` for the floor, where the operator must decide.
pub fn remedy_of_holder(held_by: &HeldBy) -> Option<Action> {
    Some(match held_by {
        HeldBy::Exporter(name) => Action::new(
            format!("Start or repair exporter {name} (coppice index), which must acknowledge the due blocks."),
            Command::Query("get_export_status", "()"),
        )
        .then("If its key is lost, revoke it as an admin, which loses no block; then give it a new one.", revoke(name)),
        HeldBy::KeylessExporter(name) => another_key(name),
        HeldBy::NoExporter => Action::new(
            "Register an exporter, here the identity indexer (icp identity new indexer); if nothing needs to be copied, set_config with \
             require_export = opt false.",
            REGISTER,
        ),
        HeldBy::Disabled => advice(ProblemCode::PruningOff).1,
        HeldBy::Stopped => Action::new(
            "As an admin, start deletions when the problem is solved.",
            Command::call("set_deletions_stopped", "(false)"),
        ),
        HeldBy::PruneLag => {
            Action::new("Wait for the daemon, or prune at once.", Command::call("prune_now", "(10_000)"))
        }
        HeldBy::UtxoApply => Action::new(
            "Check the feeder, which must apply the due blocks (utxo_apply_block). If no more blocks are to be applied, end this.",
            Command::call("utxo_stop_applying", "()"),
        ),
        HeldBy::LowCycles => Action::new("Top the canister up.", Command::TopUp),
        HeldBy::Floor => return None,
    })
}

fn revoke(name: &str) -> Command {
    let argument =
        format!("(record {{ \"principal\" = principal \"#key of {name}#\"; role = variant {{ Exporter }} }})");
    Command::call("revoke_role", argument)
}

/// Returns the remedy for an exporter without a key.
pub fn another_key(name: &str) -> Action {
    let argument = format!("(record {{ name = \"{name}\"; \"principal\" = principal #principal of indexer# }})");
    let removal = Command::call("remove_exporter", format!("(record {{ name = \"{name}\"; drop_guard = true }})"));
    Action::new(
        format!(
            "As an admin, give exporter {name} a new principal, here that of the identity indexer (icp identity new indexer, \
             on a server with --storage plaintext), and start it (coppice index) with that key."
        ),
        Command::call("register_exporter", argument),
    )
    .then("If it is gone for good, remove it: blocks that it has not copied are lost.", removal)
}

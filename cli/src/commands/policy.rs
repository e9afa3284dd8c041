//! `coppice policy`.

use crate::client::{CanisterClient, Client, Wait as _, reached};
use crate::exit::{Exit, WRONG_LINE};
use crate::network::NetworkArgs;
use crate::policy::{all, differences, plan};
use crate::{report, say, terminal};
use anyhow::Result;
use ic_coppice_interface::{PrunePolicy, PrunePolicyArg};
use serde_json::json;
use std::io::{BufRead as _, IsTerminal as _};
use std::str::FromStr;

/// Help text after the options.
const HELP: &str = "\
Without a setting, the command prints the policy. With settings, it prints each one before and after, and what the new policy would prune now;
then it asks on a terminal, and changes the policy with --yes. A value of 0 switches --retain-days, --retain-blocks or --target-bytes off.";

/// Options of `coppice policy`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct PolicyArgs {
    /// The change.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Print what the change would prune, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub plan: bool,
    /// Change the policy without a question
    #[arg(long)]
    pub yes: bool,
    /// The canister.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// The settings of the policy.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ChangeArgs {
    /// Prune by the timer
    #[arg(long, value_name = "BOOL")]
    pub pruning_enabled: Option<bool>,
    /// Bytes of the chain at which the capacity trigger aims
    #[arg(long, value_name = "BYTES", value_parser = grouped::<u64>)]
    pub target_bytes: Option<u64>,
    /// Days for which blocks are retained
    #[arg(long, value_name = "N", value_parser = grouped::<u64>)]
    pub retain_days: Option<u64>,
    /// Blocks below the head that are retained
    #[arg(long, value_name = "N", value_parser = grouped::<u64>)]
    pub retain_blocks: Option<u64>,
    /// Headroom below the target, in basis points
    #[arg(long, value_name = "N", value_parser = grouped::<u32>)]
    pub headroom_ratio_bps: Option<u32>,
    /// Emergency watermark, in basis points of the target
    #[arg(long, value_name = "N", value_parser = grouped::<u32>)]
    pub emergency_ratio_bps: Option<u32>,
    /// Seconds within which the daemon handles work that became due
    #[arg(long, value_name = "SECONDS", value_parser = grouped::<u64>)]
    pub timer_interval_secs: Option<u64>,
    /// Most ops of a tick
    #[arg(long, value_name = "N", value_parser = grouped::<u64>)]
    pub max_ops_per_tick: Option<u64>,
    /// Most instructions of a tick
    #[arg(long, value_name = "N", value_parser = grouped::<u64>)]
    pub max_instructions_per_tick: Option<u64>,
    /// Blocks below the head that pruning by age keeps
    #[arg(long, value_name = "N", value_parser = grouped::<u64>)]
    pub min_kept_blocks: Option<u64>,
    /// Seconds without a producer's call after which an index is swept
    #[arg(long, value_name = "SECONDS", value_parser = grouped::<u64>)]
    pub pause_after_secs: Option<u64>,
    /// Seconds for which an exporter may hold back due blocks
    #[arg(long, value_name = "SECONDS", value_parser = grouped::<u64>)]
    pub max_export_lag_secs: Option<u64>,
}

/// Returns a number whose digits may be grouped by `_`, as in Candid and in the pages.
fn grouped<N: FromStr>(text: &str) -> Result<N, N::Err> {
    text.replace('_', "").parse()
}

impl From<&ChangeArgs> for PrunePolicyArg {
    fn from(args: &ChangeArgs) -> Self {
        let &ChangeArgs {
            pruning_enabled,
            target_bytes,
            retain_days,
            retain_blocks,
            headroom_ratio_bps,
            emergency_ratio_bps,
            timer_interval_secs,
            max_ops_per_tick,
            max_instructions_per_tick,
            min_kept_blocks,
            pause_after_secs,
            max_export_lag_secs,
        } = args;
        Self {
            pruning_enabled,
            target_bytes,
            retain_days,
            retain_blocks,
            headroom_ratio_bps,
            emergency_ratio_bps,
            timer_interval_secs,
            max_ops_per_tick,
            max_instructions_per_tick,
            min_kept_blocks,
            pause_after_secs,
            max_export_lag_secs,
        }
    }
}

/// Prints the policy, or a change of it, and makes the change.
///
/// # Errors
/// [`Exit`] with [`WRONG_LINE`] for a change without `--plan` or `--yes` off a terminal, or with the code of a canister that does not answer;
/// when the canister refuses.
pub fn command(args: &PolicyArgs) -> Result<()> {
    let client = args.network.connect()?;
    let answers = std::io::stdin().is_terminal() && !args.json;
    reached(policy(args, &client, || if answers { asked() } else { None }))
}

/// Returns the answer to the question on the terminal.
fn asked() -> Option<bool> {
    say!("change the policy? [y/N]");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    Some(read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Does the work of [`command`]; `ask` returns the answer to the question, or `None` if there is no terminal.
///
/// # Errors
/// As [`command`].
pub fn policy(args: &PolicyArgs, client: &Client<impl CanisterClient>, ask: impl Fn() -> Option<bool>) -> Result<()> {
    let change = PrunePolicyArg::from(&args.change);
    let before = client.get_prune_status().wait()?.policy;
    if change == PrunePolicyArg::default() {
        let rows = before.as_ref().map_or_else(|| vec![("policy".into(), "none is set".into())], all);
        let text = if args.json { json!(before).to_string() } else { report::table(rows) };
        return Ok(terminal::print(&text)?);
    }
    let after = before.clone().unwrap_or_else(PrunePolicy::default).changed(&change)?;
    let planned = client.plan_prune(Some(change.clone())).done()?;
    let (differs, planned_words) = (differences(before.as_ref(), &after), plan(&planned));
    if !args.json {
        let rows = if differs.is_empty() { vec![("policy".into(), "as it is".into())] } else { differs };
        terminal::print(&format!("{}\n{planned_words}", report::table(rows)))?;
    }
    let is_wanted = if args.plan { Some(false) } else { Some(true).filter(|_| args.yes).or_else(ask) };
    let Some(is_wanted) = is_wanted else {
        return Err(Exit::error(WRONG_LINE, "add --yes to change the policy, or --plan to change nothing"));
    };
    let changes = is_wanted && before.as_ref() != Some(&after);
    if changes {
        client.set_prune_policy(&change).done()?;
    }
    if args.json {
        let line = json!({ "before": before, "after": after, "plan": planned, "changed": changes });
        terminal::print(&line.to_string())?;
    } else {
        say!("{}", if changes { "the policy is changed" } else { "nothing is changed" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Cli, Command};
    use clap::Parser as _;

    fn parse(args: &[&str]) -> Result<PolicyArgs, clap::Error> {
        let Command::Policy(args) = Cli::try_parse_from([&["coppice", "policy"], args].concat())?.command else {
            panic!("another command")
        };
        Ok(*args)
    }

    /// Each setting of the policy has an option of its name.
    #[test]
    fn every_setting_has_an_option() {
        let settings = all(&PrunePolicy { pruning_enabled: true, ..PrunePolicy::default() });
        for (name, _) in &settings {
            let option = format!("--{}", name.replace('_', "-"));
            let value = if name == "pruning_enabled" { "false" } else { "7" };
            let change = PrunePolicyArg::from(&parse(&[&option, value]).unwrap().change);
            let after = PrunePolicy::default().changed(&change).unwrap();
            let differs = differences(Some(&PrunePolicy::default()), &after);
            assert_eq!(differs.iter().map(|(name, _)| name).collect::<Vec<_>>(), [name], "{differs:?}");
        }
        assert!(settings.len() > 10);
        let change = parse(&["--target-bytes", "5_669_650_432"]).unwrap().change;
        assert_eq!(change.target_bytes, Some(5_669_650_432));
        assert!(parse(&["--target-bytes", "_"]).is_err());
        assert!(parse(&["--retain-days", "1", "--plan", "--yes"]).is_err());
    }
}

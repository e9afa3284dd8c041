//! `coppice-lab ingest`: feeds the blocks of files to an embedded canister.

use crate::args::HostArgs;
use crate::costs::{Instructions, UtxoInstructions};
use anyhow::Result;
use coppice_testkit::embedded::Embedded;
use ic_coppice_cli::client::{CanisterClient, Client, Wait};
use ic_coppice_cli::ingest::{self, BlocksArgs, Plan, feed_to, read};
use ic_coppice_cli::order::Ordered;
use ic_coppice_cli::report::{self, Report};
use ic_coppice_cli::utxo::Replayed;
use ic_coppice_interface::{ConfigChange, UtxoSettingsChange};
use serde::Serialize;

/// Options of `coppice-lab ingest`.
#[derive(Clone, Debug, clap::Args)]
pub struct IngestArgs {
    /// Blocks.
    #[command(flatten)]
    pub blocks: BlocksArgs,
    /// Common options.
    #[command(flatten)]
    pub host: HostArgs,
}

/// The figures of an ingest, with its instructions.
#[derive(Clone, Debug, Serialize)]
pub struct IngestReport {
    #[serde(flatten)]
    pub ingest: ingest::IngestReport,
    pub instructions: Instructions,
    /// Instructions of applying the blocks to the UTXO records, if they were applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utxo_instructions: Option<UtxoInstructions>,
}

impl Report for IngestReport {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = self.ingest.rows();
        let seconds = rows.pop();
        rows.extend(self.instructions.rows());
        rows.extend(self.utxo_instructions.iter().flat_map(UtxoInstructions::rows));
        rows.extend(seconds);
        rows
    }
}

/// Feeds the blocks and prints the report.
///
/// # Errors
/// As [`read`] and [`run`]; when the chain ends before a block without a good copy.
pub fn command(args: &IngestArgs) -> Result<()> {
    let ordered = read(&args.blocks.blk, args.blocks.network_rules)?;
    let report = run(args.host.wasm()?, &ordered, &args.blocks.plan)?;
    report::print(&report, args.host.json)?;
    ordered.check_whole()
}

/// Feeds a chain to an embedded canister, with the plan's `coinbase_maturity`, and verifies every block and every transaction.
///
/// # Errors
/// As [`feed_to`].
pub fn run(wasm: Vec<u8>, ordered: &Ordered, plan: &Plan) -> Result<IngestReport> {
    let client = Embedded::start(wasm)?;
    let ingest = feed(&client, ordered, plan)?;
    let costs = client.transport().costs();
    let of_records = |utxo: &Replayed| UtxoInstructions::new(&costs, utxo.transactions + utxo.repeated);
    Ok(IngestReport {
        instructions: Instructions::new(&costs, ingest.appended, ingest.pruned),
        utxo_instructions: ingest.utxo.as_ref().map(of_records),
        ingest,
    })
}

/// Feeds a chain to a canister whose `coinbase_maturity` is changed to the plan's.
///
/// # Errors
/// As [`feed_to`]; when the canister refuses the change.
pub fn feed(client: &Client<impl CanisterClient>, ordered: &Ordered, plan: &Plan) -> Result<ingest::IngestReport> {
    if plan.coinbase_maturity.is_some() {
        let utxo = UtxoSettingsChange { coinbase_maturity: plan.coinbase_maturity, ..UtxoSettingsChange::default() };
        client.set_config(&ConfigChange { utxo: Some(utxo), ..ConfigChange::default() }).done()?;
    }
    feed_to(client, ordered, plan)
}

//! `coppice-lab demo --utxo`: sends a chain of spends to the UTXO store, lets the canister's own timer prune spent records, and verifies
//! the rest with a ledger.
//!
//! ```text
//! coins ─▶ blocks ─▶ feed ─┬─▶ canister: seen transactions, blocks, applied ◀── persister, which lags
//!                          └─▶ ledger ◀── jobs that have ended    events: old and unmined, a reorg, a replay
//! after the last block: verify, record by record, and report
//! ```
//! **Constraint.** Except in the reorg, the next block is added only when no job waits or runs. Results therefore
//! depend only on the run's heights, not on when the timer fires.

mod blocks;
mod coins;
mod events;
mod external;
mod feed;
mod jobs;
mod ledger;
mod persister;
mod plan;
mod report;
mod story;
mod verify;

use crate::args::DemoArgs;
use crate::costs::UtxoInstructions;
use anyhow::{Result, ensure};
use candid::Principal;
use coppice_testkit::embedded::Embedded;
use external::External;
pub use external::ExternalFigures;
use ic_coppice_cli::blob_worker::log::Log;
use ic_coppice_cli::client::{CanisterClient, Client, Wait};
use ic_coppice_cli::health::healthy;
use ic_coppice_cli::report::{print, seconds_since};
use ic_coppice_cli::say;
use ic_coppice_cli::stop::Stop;
use ic_coppice_cli::utxo;
use ic_coppice_interface::*;
use plan::{MATURITY, Plan};
pub use report::{JobFigures, Row, UtxoDemoReport};
use std::time::Instant;
use story::Story;
pub use verify::Verified;

/// Outputs of a page. A transaction with hundreds of outputs has several pages.
const BATCH_SIZE: u32 = 128;

/// Runs the demonstration and prints its report.
///
/// # Errors
/// As [`run`].
pub fn command(args: &DemoArgs) -> Result<()> {
    let blocks = args.blocks.unwrap_or(plan::BLOCKS);
    // Checks the arguments before anything is built.
    let plan = Plan::new(blocks, args.retain_blocks, args.seed)?;
    let client = Embedded::start(args.host.wasm()?)?;
    let report = match args.external {
        true => play_external(&client, client.transport().canister(), plan)?,
        false => play(&client, plan, None)?,
    };
    let instructions = UtxoInstructions::new(&client.transport().costs(), report.applied);
    print(&UtxoDemoReport { instructions: Some(instructions), ..report }, args.host.json)
}

/// Runs the demonstration on a canister without blocks and UTXO records: `blocks` blocks, with `retain_blocks` as `block_height_retention`; default:
/// as long as the length allows.
///
/// # Errors
/// When the canister refuses something or traps, its timer does not prune, or the store differs from the ledger; the error names the
/// transaction.
pub fn run(
    client: &Client<impl CanisterClient>,
    blocks: u64,
    retain_blocks: Option<u64>,
    seed: u64,
) -> Result<UtxoDemoReport> {
    play(client, Plan::new(blocks, retain_blocks, seed)?, None)
}

/// Does the same with transactions in a directory, whose files a blob worker deletes.
///
/// # Errors
/// As [`run`]; when the directory cannot be used, or differs from the ledger.
pub fn run_external(
    client: &Client<impl CanisterClient>,
    canister: Principal,
    blocks: u64,
    retain_blocks: Option<u64>,
    seed: u64,
) -> Result<UtxoDemoReport> {
    play_external(client, canister, Plan::new(blocks, retain_blocks, seed)?)
}

fn play_external(client: &Client<impl CanisterClient>, canister: Principal, plan: Plan) -> Result<UtxoDemoReport> {
    let (directory, stop, log) = (tempfile::tempdir()?, Stop::default(), Log::silent());
    play(client, plan, Some(External::new(client, canister, directory.path(), &stop, &log)?))
}

fn play<'a, C: CanisterClient>(
    client: &'a Client<C>,
    plan: Plan,
    external: Option<External<'a, C>>,
) -> Result<UtxoDemoReport> {
    let started = Instant::now();
    let (storage, status) = (client.get_storage_status(None).wait()?, client.utxo_get_pruner_status().wait()?);
    let records = utxo::storage(client)?.records;
    ensure!(
        records == 0 && status.current_height == 0 && storage.blocks == 0,
        "the canister has {} blocks and {} UTXO records, and was notified of height {}; a demonstration needs an empty one",
        storage.blocks,
        records,
        status.current_height
    );
    let settings = set_up(client, plan)?;
    let mut story = Story::new(client, plan, settings, storage.billed_bytes, external);
    story.play()?;

    say!("verifying {} transactions", story.ledger.transactions());
    let verified = verify::verify(client, &story.ledger, plan.blocks)?;
    let external = story.external.as_ref().map(|external| external.verify(&story.ledger)).transpose()?;
    healthy(client, None)?;
    let (storage, status) = (client.get_storage_status(None).wait()?, client.utxo_get_pruner_status().wait()?);
    let utxo = utxo::storage(client)?;
    let (ledger, figures, totals) = (&story.ledger, story.jobs.figures, status.totals);
    let faults = totals.record_errors + totals.external_errors;
    ensure!(faults == 0, "{faults} records were kept because of errors: {totals:?}");
    let per = |sum: u64, by: u64| sum.checked_div(by).unwrap_or(0);
    Ok(UtxoDemoReport {
        command: "demo --utxo",
        seed: plan.seed,
        blocks: plan.blocks,
        block_height_retention: plan.retention,
        parent_preservation_blocks: plan.preservation,
        transactions: ledger.transactions(),
        outputs: ledger.entries().map(|(_, entry)| entry.utxos().count() as u64).sum(),
        applied: story.applied,
        spends: ledger.spends(),
        records_kept: utxo.records,
        records_deleted: totals.records_deleted,
        pages_deleted: totals.pages_deleted,
        parents_updated: totals.parents_updated,
        parents_preserved: totals.parents_preserved,
        preservations_expired: totals.preservations_expired,
        jobs: figures,
        instructions_per_record_deleted: per(figures.instructions, totals.records_deleted),
        instructions: None,
        record_bytes: utxo.used_bytes,
        reusable_bytes: utxo.reusable_bytes,
        billed_bytes: storage.billed_bytes,
        growth_stopped_at_height: story.billed.1,
        story: story.rows,
        external,
        verified,
        elapsed_secs: seconds_since(started),
    })
}

/// Sets the settings that the story assumes, and starts the block assembly.
fn set_up(client: &Client<impl CanisterClient>, plan: Plan) -> Result<UtxoPrunerSettings> {
    // The records have what they need of a block that is applied.
    let retain_blocks = Some(u64::from(plan.retention));
    client.set_prune_policy(&PrunePolicyArg { retain_blocks, ..PrunePolicyArg::default() }).done()?;
    client
        .set_config(&ConfigChange {
            utxo: Some(UtxoSettingsChange {
                utxo_batch_size: Some(BATCH_SIZE),
                block_height_retention: Some(plan.retention),
                coinbase_maturity: Some(MATURITY),
                ..UtxoSettingsChange::default()
            }),
            ..ConfigChange::default()
        })
        .done()?;
    let settings = client
        .utxo_set_pruner_settings(&UtxoPrunerSettingsChange {
            pruner_enabled: Some(true),
            disable_dah_cleaner: Some(false),
            utxo_defensive_enabled: Some(false),
            unmined_tx_retention: Some(UtxoUnminedRetention::HalfOfRetention),
            parent_preservation_blocks: Some(plan.preservation),
            safe_height_rule: Some(UtxoSafeHeightRule::Persisted),
            ..UtxoPrunerSettingsChange::default()
        })
        .done()?;
    client.utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).wait()?;
    Ok(settings)
}

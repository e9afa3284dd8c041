//! Cards of UTXO records and of the deletion queue, and the record of a transaction.

use super::frame::{counted, figure, row};
use super::words::{ago, bytes, count, many};
use crate::state::State;
use crate::state::records::settings_of;
use ic_coppice_interface::*;
use maud::{Markup, html};

/// Maximum jobs that are shown.
const JOBS: u32 = 6;

/// Returns the cards of what is kept, or ever was.
pub(super) fn cards(state: &State, now: u64) -> Markup {
    let (utxo, deletions) = (state.records.utxo.storage(), state.records.deletions.status());
    let pruner = state.records.pruner.status(settings_of(&state.config), &state.records.deletions);
    let had_job = pruner.pending.is_some() || pruner.running.is_some() || pruner.last_job.is_some();
    let shows_queue = deletions.rows > 0 || !deletions.leases.is_empty() || utxo.records > 0;
    html! {
        @if utxo.records > 0 || pruner.current_height > 0 || had_job { (jobs(state, now, &utxo, &pruner)) }
        @if shows_queue { (queue(&pruner, &deletions)) }
    }
}

fn jobs(state: &State, now: u64, utxo: &UtxoStorage, pruner: &UtxoPrunerStatus) -> Markup {
    let jobs = state.records.pruner.jobs(None, JOBS).jobs;
    html! {
        section.card {
            h3 { "UTXO records" }
            p { (figure("utxo_records", utxo.records, &many(utxo.records, "record"))) ", "
                (count(utxo.unmined)) " of them unmined, on " (bytes(utxo.kept_bytes)) " of at most "
                (bytes(utxo.max_bytes)) ". Height " (count(pruner.current_height.into()))
                ", persisted " (pruner.last_persisted_height.map_or("none".into(), |height| count(height.into()))) ", pruned to " (count(pruner.last_processed_height.into()))
                ". The block assembly is " (if pruner.block_assembly == UtxoBlockAssemblyState::Running { "running" } else { "not running" }) "." }
            @if jobs.is_empty() { p.note { "There was no job yet." } }
            @else {
                table {
                    thead { tr { th { "job" } th { "height" } th { "state" } th { "deleted" } th { "ticks" } th { "made" } } }
                    tbody {
                        @for job in &jobs {
                            tr data-job=(job.id) {
                                th { (count(job.id)) }
                                td data-label="height" { (count(job.height.into())) }
                                td data-label="state" { span class={ "state " (format!("{:?}", job.state).to_lowercase()) } { (format!("{:?}", job.state)) } }
                                td data-label="deleted" { (count(job.counts.records_deleted)) }
                                td data-label="ticks" { (count(job.ticks)) }
                                td data-label="made" { (ago(job.created_at_ns, now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn queue(pruner: &UtxoPrunerStatus, deletions: &BlobDeletionStatus) -> Markup {
    let rows = |of: &StoreDeletions| of.held + of.waiting + of.leased + of.backing_off + of.dead;
    let stores: Vec<&StoreDeletions> = deletions.stores.iter().filter(|store| rows(store) > 0).collect();
    html! {
        section.card {
            h3 { "External blobs" }
            p { (counted("blobs_pending", pruner.blobs_pending)) (if pruner.blobs_pending == 1 { " is" } else { " are" }) " to be deleted, "
                (counted("blobs_dead", pruner.blobs_dead)) (if pruner.blobs_dead == 1 { " was" } else { " were" }) " given up, of at most " (count(deletions.max_rows)) " rows; "
                (many(deletions.leases.len() as u64, "lease")) "." }
            @if !stores.is_empty() {
                table {
                    thead { tr { th { "store" } th { "held" } th { "waiting" } th { "leased" } th { "backing off" } th { "given up" } } }
                    tbody { @for store in stores { tr {
                        th { (format!("{:?}", store.store_type)) }
                        td data-label="held" { (count(store.held)) } td data-label="waiting" { (count(store.waiting)) }
                        td data-label="leased" { (count(store.leased)) } td data-label="backing off" { (count(store.backing_off)) }
                        td data-label="given up" { (count(store.dead)) }
                    } } }
                }
            }
        }
    }
}

/// Returns the card of a transaction's record, or `None` without a record.
pub(super) fn card_of(state: &State, txid: &[u8]) -> Option<Markup> {
    let get = UtxoGet { txid: txid.to_vec().into(), first: 0, limit: 0, extra_pages_cursor: None };
    state.records.utxo.get(&get).ok().map(|of| record(&of))
}

fn record(record: &UtxoRecord) -> Markup {
    let or_none = |height: Option<u32>| height.map_or("none".into(), |height| count(height.into()));
    let place = match &record.transaction {
        TransactionPlace::Record => "in the record".to_string(),
        TransactionPlace::Blobs { .. } => "in the BlobStore".into(),
        TransactionPlace::Block { number, .. } => format!("in block {}, as long as it is kept", count(*number)),
        TransactionPlace::External(store) => format!("external, in a store of type {:?}", store.store_type),
    };
    html! {
        section.card {
            h3 { "UTXO record" }
            table.kept {
                (row("outputs", html! { (many(record.total_outputs.into(), "output")) ", "
                    (count(record.total_utxos.into())) " of them to be spent" }))
                (row("size", html! { (bytes(record.size_in_bytes)) ", " (place) }))
                (row("unmined since", html! { (or_none(record.unmined_since)) }))
                (row("blocks", html! { @for block in &record.blocks { (count(block.height.into())) " " } }))
                (row("deleted at", html! { (or_none(record.delete_at_height)) }))
                (row("postponed until", html! { (or_none(record.postponed_until)) }))
                (row("preserved until", html! { (or_none(record.preserve_until)) }))
                (row("state", html! { (if record.conflicting { "a double spend" } else if record.locked { "locked" }
                    else if record.frozen { "an output is frozen" } else { "as usual" }) }))
            }
        }
    }
}

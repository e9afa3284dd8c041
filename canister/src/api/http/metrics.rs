//! `/metrics`: the Prometheus text. Metrics that the specifications name have those names; all others begin with `coppice_`. Units are base
//! units. No metric reveals the balance.

use super::answer::{Answer, source};
use crate::operation::{health, storage};
use crate::platform::{self, meter};
use crate::state::records::KEPT;
use crate::state::{State, tally};
use ic_coppice_interface::{PruneStatus, Severity};
use ic_metrics_encoder::MetricsEncoder;
use std::io::{self, Write};

mod records;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bytes of the text with 100 exporters, preallocated so that growth copies nothing.
const CAPACITY: usize = 64 << 10;

/// Limit below which a float represents every whole number exactly.
const WHOLE: f64 = (1u64 << 53) as f64;

/// The text so far; the time of its values in Unix milliseconds; and the end of a line, which contains that time.
struct Text(MetricsEncoder<Vec<u8>>, i64, String);

impl Text {
    /// Writes metrics without labels: names, help texts and values.
    fn plain(&mut self, all: &[(&str, &str, u64)]) -> io::Result<()> {
        let once = |value: u64| std::iter::once((None::<(&str, &str)>, value as f64));
        all.iter().try_for_each(|&(name, help, value)| self.figure((name, help), once(value)))
    }

    /// Writes a metric with one label, whose values need no escaping.
    fn by(
        &mut self,
        of: (&str, &str),
        label: &str,
        values: impl Iterator<Item = (impl AsRef<str>, u64)>,
    ) -> io::Result<()> {
        self.figure(of, values.map(|(labelled, value)| (Some((label, labelled)), value as f64)))
    }

    /// Writes a metric with one label or none. The encoder is used only for histograms and metrics with several labels, because it takes
    /// 12,000 instructions per line, and exporters alone may have 200 lines.
    fn figure<'a>(
        &mut self,
        (name, help): (&str, &str),
        values: impl Iterator<Item = (Option<(&'a str, impl AsRef<str>)>, f64)>,
    ) -> io::Result<()> {
        let mut text = std::mem::replace(&mut self.0, MetricsEncoder::new(Vec::new(), 0)).into_inner();
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        for (label, value) in values {
            text.extend_from_slice(name.as_bytes());
            if let Some((label, labelled)) = label {
                for part in ["{", label, "=\"", labelled.as_ref(), "\"}"] {
                    text.extend_from_slice(part.as_bytes());
                }
            }
            // Writing an integer is ten times faster.
            if value.fract() == 0.0 && value.abs() < WHOLE {
                write!(text, " {}", value as i64)?;
            } else {
                write!(text, " {value}")?;
            }
            text.extend_from_slice(self.2.as_bytes());
        }
        self.0 = MetricsEncoder::new(text, self.1);
        Ok(())
    }
}

fn chain(text: &mut Text, state: &State) -> io::Result<()> {
    let chain = state.chain.state();
    let status = state.pruner.status(&state.chain, &state.blobs, &state.constraints());
    let PruneStatus { backlog, acknowledged_faults, .. } = &status;
    let head = chain.head().and_then(|head| state.chain.header(head).ok());
    let head_secs = head.map_or(0, |head| head.timestamp_secs);
    let rolled_back = state.chain.rollbacks().count();
    let appended_at = health::appended_at(state).filter(|_| chain.started).unwrap_or(0);
    text.plain(&[
        ("coppice_head_block", "Number of the head.", chain.head().unwrap_or(0)),
        ("coppice_head_timestamp_seconds", "Timestamp of the head in the chain; 0 without a head.", head_secs),
        ("coppice_head_appended_timestamp_seconds", "Time at which the head was appended; 0 if unknown.", appended_at),
        ("coppice_rollbacks_total", "Rollbacks that were begun since the canister was started.", tally::rollbacks()),
        ("coppice_rolled_back_blocks_total", "Blocks ever rolled back; a reset counts as one.", rolled_back),
        ("coppice_oldest_kept_block", "Number of the oldest kept block.", chain.oldest),
        ("coppice_kept_blocks", "Blocks that are kept.", if chain.started { chain.blocks() } else { 0 }),
        ("coppice_appended_blocks_total", "Blocks ever appended.", chain.appended_blocks),
        ("coppice_appended_bytes_total", "Payload bytes ever appended.", chain.appended_bytes),
        ("coppice_pruned_blocks_total", "Blocks ever pruned.", chain.pruned_blocks),
        ("coppice_pruned_bytes_total", "Payload bytes ever pruned.", chain.pruned_bytes),
        ("coppice_estimated_kept_bytes", "Class bytes of the chain's blobs.", status.estimated_kept_bytes),
        ("coppice_capacity_bytes", "Bytes that are compared with the watermarks.", status.capacity_bytes),
        ("coppice_prune_enabled", "Whether the daemon may prune.", u64::from(status.enabled)),
        ("coppice_prune_due", "Whether a block is due.", u64::from(status.need_prune)),
        ("coppice_prune_running", "Whether a run is under way.", u64::from(status.running)),
        ("coppice_prune_runs_total", "Runs that pruned something.", status.runs),
        ("coppice_prune_ticks_total", "Firings of the daemon for blocks since the canister was started.", status.ticks),
        ("coppice_backlog_blocks", "Blocks that may be pruned and are not pruned yet.", backlog.blocks),
        ("coppice_backlog_references", "Transactions and keys of the backlog's blocks.", backlog.references),
        ("coppice_held_blocks", "Due blocks that an exporter holds back.", backlog.held_blocks),
        ("coppice_faults_total", "Damaged entries that were skipped.", status.faults),
        ("coppice_faults_acknowledged", "Damaged entries that an operator has acknowledged.", *acknowledged_faults),
        ("coppice_skipped", "Pieces of work that are skipped because they trap.", status.skipped.len() as u64),
    ])?;
    let help = "Next firing of the daemon.";
    let next = std::iter::once((None::<(&str, &str)>, status.next_tick_ns as f64 / 1e9));
    text.figure(("coppice_prune_next_tick_timestamp_seconds", help), next)?;
    let marks = status.water_marks.map_or([0; 3], |marks| [marks.low, marks.high, marks.emergency]);
    let marks = ["low", "high", "emergency"].into_iter().zip(marks);
    text.by(("coppice_water_bytes", "Watermarks of the capacity trigger; 0 without the trigger."), "mark", marks)?;
    let help = "Blocks that were refused since the canister was started, by reason.";
    text.by(("coppice_refused_appends_total", help), "reason", tally::refusals())?;
    let indexes = [("transactions", &status.transaction_index), ("keys", &status.key_index)];
    let entries = indexes.iter().map(|(name, index)| (*name, index.entries));
    text.by(("coppice_index_entries", "Entries of an index, including stale ones."), "index", entries)?;
    let debts = indexes.iter().map(|(name, index)| (*name, index.debt));
    text.by(("coppice_index_stale_entries", "Upper bound of the stale entries of an index."), "index", debts)
}

fn storage(text: &mut Text, state: &State) -> io::Result<()> {
    let storage = storage::status(state);
    text.plain(&[
        ("coppice_stable_billed_bytes", "Bytes of stable memory that are billed.", storage.billed_bytes),
        ("coppice_stable_max_bytes", "Cap on the billed bytes.", storage.max_bytes),
        ("coppice_stable_reusable_bytes", "Bytes of free slots.", storage.reusable_bytes),
        ("coppice_used_bytes", "Bytes of all owners, without quarantined blobs.", storage.used_bytes),
        ("coppice_blobs_quarantined_bytes", "Class bytes of quarantined blobs.", storage.quarantined_bytes),
        ("coppice_payload_bytes", "Payload bytes of the kept blocks.", storage.payload_bytes),
    ])?;
    let owners = storage.owners.iter().map(|of| (format!("{:?}", of.owner).to_lowercase(), of.kept_bytes));
    text.by(("coppice_owner_kept_bytes", "Bytes that an owner keeps."), "owner", owners)?;
    let free = storage.classes.iter().map(|of| (of.class.to_string(), of.free * u64::from(of.class)));
    text.by(("coppice_free_bytes", "Bytes of free slots, by the slot's bytes."), "class", free)
}

fn exporters(text: &mut Text, state: &State) -> io::Result<()> {
    let exporters = state.exporters.status(&state.chain, state.config.require_export).exporters;
    if exporters.is_empty() {
        return Ok(());
    }
    let secs = exporters.iter().map(|exporter| (&exporter.name, exporter.lag_secs));
    let help = "Seconds since an exporter's last acknowledgement, while blocks wait for it.";
    text.by(("coppice_exporter_lag_seconds", help), "exporter", secs)?;
    let blocks = exporters.iter().map(|exporter| (&exporter.name, exporter.lag_blocks));
    let help = "Kept blocks that an exporter has not acknowledged.";
    text.by(("coppice_exporter_lag_blocks", help), "exporter", blocks)
}

fn health(text: &mut Text, state: &State) -> io::Result<()> {
    // Not `health::health`, because its remedies cost more than the metrics.
    let raised = health::raised(state);
    let healthy = raised.iter().all(|(severity, ..)| *severity == Severity::Notice);
    text.plain(&[("coppice_healthy", "Whether the canister is healthy.", u64::from(healthy))])?;
    let codes = raised.iter().map(|(_, _, found)| (found.code.to_string(), 1));
    text.by(("coppice_problem", "The problems that are raised, by code."), "code", codes)?;
    let version = std::iter::once((env!("CARGO_PKG_VERSION"), 1));
    text.by(("coppice_build_info", "The canister's version."), "version", version)
}

fn messages(text: &mut Text) -> io::Result<()> {
    let help =
        "Instructions of a message of the hottest methods since the canister was started, without encoding the reply.";
    let mut builder = text.0.histogram_vec("coppice_message_instructions", help)?;
    let bounds: Vec<f64> = meter::BOUNDS.iter().map(|&bound| bound as f64).chain([f64::INFINITY]).collect();
    // A method that was never called has no series.
    let called = meter::NAMES.iter().zip(meter::histograms()).filter(|(_, histogram)| histogram.buckets != [0; 8]);
    for (name, histogram) in called {
        let buckets = bounds.iter().copied().zip(histogram.buckets.iter().map(|&count| count as f64));
        builder = builder.histogram(&[("method", name)], buckets, histogram.sum as f64)?;
    }
    Ok(())
}

fn encode(state: &State) -> io::Result<Vec<u8>> {
    let now_millis = i64::try_from(platform::time_ns() / 1_000_000).unwrap_or(i64::MAX);
    let mut begun = Vec::with_capacity(CAPACITY);
    begun.extend_from_slice(format!("# Answered by {}.\n", source()).as_bytes());
    let mut text = Text(MetricsEncoder::new(begun, now_millis), now_millis, format!(" {now_millis}\n"));
    health(&mut text, state)?;
    chain(&mut text, state)?;
    storage(&mut text, state)?;
    exporters(&mut text, state)?;
    if KEPT {
        records::write(&mut text, state)?;
    }
    messages(&mut text)?;
    Ok(text.0.into_inner())
}

/// Responds to `/metrics`.
pub fn answer(state: &State) -> Answer {
    match encode(state) {
        Ok(text) => Answer::new(200, CONTENT_TYPE, text),
        Err(error) => Answer::text(500, format!("{error}\n")),
    }
}

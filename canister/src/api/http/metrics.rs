//! `/metrics`: the Prometheus text. Metrics that the specifications name have those names; all others begin with `coppice_`. Units are base
//! units. No metric reveals the balance.

use super::answer::{Answer, source};
use crate::chain::ChainState;
use crate::operation::{health, storage};
use crate::platform::{self, meter};
use crate::state::{State, tally};
use coppice_interface::{Metric, Severity};
use ic_metrics_encoder::MetricsEncoder;
use std::io::{self, Write};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bytes of the text with 100 exporters, preallocated so that growth copies nothing.
const CAPACITY: usize = 64 << 10;

/// Limit below which a float represents every whole number exactly.
const WHOLE: f64 = (1u64 << 53) as f64;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A value that may fall.
    Gauge,
    /// Monotonic; resets on an upgrade where noted.
    Counter,
    /// A sum and a count.
    Sum,
}

/// Metrics of the pruner and the deletion queue, with help texts. Most names come from the specifications.
const SERVICES: [(&str, Kind, &str); 31] = [
    ("pruner_duration_seconds", Kind::Sum, "Seconds across ticks that the phases of jobs took."),
    ("utxo_cleanup_batch_duration_seconds", Kind::Sum, "Seconds across ticks that chunks of records took."),
    ("pruner_skipped_total", Kind::Counter, "Triggers that pruned nothing, by reason."),
    ("pruner_errors_total", Kind::Counter, "Failures, by operation."),
    ("coppice_utxo_pruner_records_skipped_total", Kind::Counter, "Records that were examined and kept, by reason."),
    ("pruner_processed_total", Kind::Counter, "Records that were examined."),
    ("pruner_current_height", Kind::Gauge, "Height up to which records were pruned."),
    ("pruner_active", Kind::Gauge, "Jobs that run."),
    ("utxo_pruner_records_deleted_total", Kind::Counter, "Records that were deleted."),
    (
        "utxo_pruner_parents_updated_total",
        Kind::Counter,
        "Outputs of parents marked because their spender was deleted.",
    ),
    (
        "utxo_pruner_external_files_deleted_total",
        Kind::Counter,
        "Transactions in the blob store that were deleted with their records.",
    ),
    (
        "coppice_utxo_pruner_parents_preserved_total",
        Kind::Counter,
        "Parents of old unmined transactions that were preserved.",
    ),
    ("pruner_blob_deletion_scheduled_total", Kind::Counter, "External blobs that were scheduled for deletion."),
    ("pruner_blob_deletion_cancelled_total", Kind::Counter, "External blobs whose deletion was cancelled."),
    ("pruner_blob_deletion_processed_total", Kind::Counter, "External blobs that were deleted."),
    ("pruner_blob_deletion_not_found_total", Kind::Counter, "External blobs that were not in the queue."),
    ("pruner_blob_deletion_errors_total", Kind::Counter, "Failed attempts to delete an external blob."),
    ("pruner_blob_deletion_duration_seconds", Kind::Sum, "Seconds from the acquisition of a lease to its completion."),
    ("pruner_blob_deletion_pending", Kind::Gauge, "External blobs that wait for deletion."),
    ("coppice_pruner_blob_deletion_dead", Kind::Gauge, "External blobs in dead-letter rows."),
    ("coppice_pruner_blob_deletion_given_up_total", Kind::Counter, "External blobs that were ever given up."),
    ("coppice_pruner_blob_deletion_leases_acquired_total", Kind::Counter, "Leases that were acquired."),
    ("coppice_pruner_blob_deletion_leases_extended_total", Kind::Counter, "Leases that were extended."),
    ("coppice_pruner_blob_deletion_leases_completed_total", Kind::Counter, "Leases that were completed."),
    ("coppice_pruner_blob_deletion_leases_expired_total", Kind::Counter, "Leases that expired."),
    (
        "coppice_pruner_blob_deletion_leases_unknown_total",
        Kind::Counter,
        "Completed leases whose rows of unknown fate returned at expiry.",
    ),
    ("coppice_pruner_blob_deletion_leases_ended_total", Kind::Counter, "Leases that an operator ended."),
    (
        "coppice_pruner_blob_deletion_dead_dropped_total",
        Kind::Counter,
        "Dead-letter rows that were dropped because there were too many.",
    ),
    // Metrics that the Candid replies do not contain.
    (
        "coppice_pruner_ticks_total",
        Kind::Counter,
        "Firings of the timer for UTXO records since the canister was started.",
    ),
    ("coppice_pruner_safe_height", Kind::Gauge, "Height up to which UTXO records may be deleted."),
    ("coppice_pruner_persisted_height", Kind::Gauge, "The highest persisted block; 0 if none."),
];

/// A metric without labels.
type Plain = (&'static str, Kind, &'static str, f64);

/// The text so far; the time of its values in Unix milliseconds; and the end of a line, which contains that time.
struct Text(MetricsEncoder<Vec<u8>>, i64, String);

impl Text {
    /// Writes a metric without labels.
    fn plain(&mut self, (name, kind, help, value): Plain) -> io::Result<()> {
        self.figure((name, kind, help), std::iter::once(([""; 5], value)))
    }

    /// Writes a metric with one label, whose values need no escaping.
    fn by<'a>(
        &mut self,
        of: (&str, Kind, &str),
        label: &'a str,
        values: impl Iterator<Item = (&'a str, f64)>,
    ) -> io::Result<()> {
        self.figure(of, values.map(|(labelled, value)| (["{", label, "=\"", labelled, "\"}"], value)))
    }

    /// Writes a metric with its labels in pieces. The encoder is used only for histograms and metrics with several labels, because it takes
    /// 12,000 instructions per line, and exporters alone may have 200 lines.
    fn figure<'a>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        values: impl Iterator<Item = ([&'a str; 5], f64)>,
    ) -> io::Result<()> {
        let mut text = std::mem::replace(&mut self.0, MetricsEncoder::new(Vec::new(), 0)).into_inner();
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        for (labels, value) in values {
            text.extend_from_slice(name.as_bytes());
            labels.iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
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

    /// Writes the metrics of pruner and deletion queue, grouped by name.
    fn services(&mut self, metrics: &[Metric]) -> io::Result<()> {
        for (name, kind, help) in SERVICES {
            let of = |suffix: &str| {
                metrics.iter().filter(move |m| m.name.strip_suffix(suffix) == Some(name)).collect::<Vec<_>>()
            };
            if kind == Kind::Sum {
                let mut builder = None;
                for (sum, count) in of("_sum").into_iter().zip(of("_count")) {
                    let labels: Vec<(&str, &str)> =
                        sum.labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect();
                    let begun = match builder.take() {
                        None => self.0.histogram_vec(name, help)?,
                        Some(builder) => builder,
                    };
                    builder =
                        Some(begun.histogram(&labels, std::iter::once((f64::INFINITY, count.value)), sum.value)?);
                }
                continue;
            }
            let all = of("");
            match all.first() {
                None => {}
                Some(only) if only.labels.is_empty() => self.plain((name, kind, help, only.value))?,
                Some(first) => {
                    let label = first.labels[0].name.clone();
                    let values = all.iter().map(|metric| (metric.labels[0].value.as_str(), metric.value));
                    self.by((name, kind, help), &label, values)?;
                }
            }
        }
        Ok(())
    }

    fn chain(&mut self, state: &State) -> io::Result<()> {
        use Kind::{Counter, Gauge};
        let chain: &ChainState = state.chain.state();
        let status = state.pruner.status(&state.chain, &state.blobs, &state.constraints());
        let bit = |is: bool| f64::from(u8::from(is));
        let backlog = &status.backlog;
        let head = chain.head().and_then(|head| state.chain.header(head).ok());
        let appended_at =
            health::appended_at(state, &state.history.since, platform::time_secs()).filter(|_| chain.started);
        let all: [Plain; 25] = [
            ("coppice_head_block", Gauge, "Number of the head.", chain.head().unwrap_or(0) as f64),
            (
                "coppice_head_timestamp_seconds",
                Gauge,
                "Timestamp of the head in the chain; 0 without a head.",
                head.map_or(0, |head| head.timestamp_secs) as f64,
            ),
            (
                "coppice_head_appended_timestamp_seconds",
                Gauge,
                "Time at which the head was appended; 0 if unknown.",
                appended_at.unwrap_or(0) as f64,
            ),
            (
                "coppice_rollbacks_total",
                Counter,
                "Rollbacks that were begun since the canister was started.",
                tally::rollbacks() as f64,
            ),
            (
                "coppice_rolled_back_blocks_total",
                Counter,
                "Blocks ever rolled back; a reset counts as one.",
                state.chain.rollbacks().count() as f64,
            ),
            ("coppice_oldest_kept_block", Gauge, "Number of the oldest kept block.", chain.oldest as f64),
            (
                "coppice_kept_blocks",
                Gauge,
                "Blocks that are kept.",
                if chain.started { chain.blocks() as f64 } else { 0.0 },
            ),
            ("coppice_appended_blocks_total", Counter, "Blocks ever appended.", chain.appended_blocks as f64),
            ("coppice_appended_bytes_total", Counter, "Payload bytes ever appended.", chain.appended_bytes as f64),
            ("coppice_pruned_blocks_total", Counter, "Blocks ever pruned.", chain.pruned_blocks as f64),
            ("coppice_pruned_bytes_total", Counter, "Payload bytes ever pruned.", chain.pruned_bytes as f64),
            (
                "coppice_estimated_kept_bytes",
                Gauge,
                "Class bytes of the chain's blobs.",
                status.estimated_kept_bytes as f64,
            ),
            (
                "coppice_capacity_bytes",
                Gauge,
                "Bytes that are compared with the watermarks.",
                status.capacity_bytes as f64,
            ),
            ("coppice_prune_enabled", Gauge, "Whether the daemon may prune.", bit(status.enabled)),
            ("coppice_prune_due", Gauge, "Whether a block is due.", bit(status.need_prune)),
            ("coppice_prune_running", Gauge, "Whether a run is under way.", bit(status.running)),
            ("coppice_prune_runs_total", Counter, "Runs that pruned something.", status.runs as f64),
            (
                "coppice_prune_ticks_total",
                Counter,
                "Firings of the timer for blocks since the canister was started.",
                status.ticks as f64,
            ),
            (
                "coppice_prune_next_tick_timestamp_seconds",
                Gauge,
                "Next firing of the timer for blocks.",
                status.next_tick_ns as f64 / 1e9,
            ),
            (
                "coppice_backlog_blocks",
                Gauge,
                "Blocks that may be pruned and are not pruned yet.",
                backlog.blocks as f64,
            ),
            (
                "coppice_backlog_references",
                Gauge,
                "Transactions and keys of the backlog's blocks.",
                backlog.references as f64,
            ),
            ("coppice_held_blocks", Gauge, "Due blocks that an exporter holds back.", backlog.held_blocks as f64),
            ("coppice_faults_total", Counter, "Damaged entries that were skipped.", status.faults as f64),
            (
                "coppice_faults_acknowledged",
                Gauge,
                "Damaged entries that an operator has acknowledged.",
                status.acknowledged_faults as f64,
            ),
            (
                "coppice_set_aside",
                Gauge,
                "Pieces of work that are skipped because they trap.",
                status.set_aside.len() as f64,
            ),
        ];
        all.into_iter().try_for_each(|figure| self.plain(figure))?;
        let marks = status.water_marks.map_or([0; 3], |marks| [marks.low, marks.high, marks.emergency]);
        let marks = [("low", marks[0]), ("high", marks[1]), ("emergency", marks[2])];
        let marks = marks.into_iter().map(|(mark, bytes)| (mark, bytes as f64));
        self.by(
            ("coppice_water_bytes", Gauge, "Watermarks of the capacity trigger; 0 without the trigger."),
            "mark",
            marks,
        )?;
        let refused = tally::refusals().map(|(reason, count)| (reason, count as f64));
        let help = "Blocks that were refused since the canister was started, by reason.";
        self.by(("coppice_refused_appends_total", Counter, help), "reason", refused)?;
        let indexes = [("transactions", &status.transaction_index), ("keys", &status.key_index)];
        let entries = indexes.iter().map(|(name, index)| (*name, index.entries as f64));
        self.by(("coppice_index_entries", Gauge, "Entries of an index, including stale ones."), "index", entries)?;
        let debts = indexes.iter().map(|(name, index)| (*name, index.debt as f64));
        self.by(("coppice_index_stale_entries", Gauge, "Upper bound of the stale entries of an index."), "index", debts)
    }

    fn storage(&mut self, state: &State) -> io::Result<()> {
        use Kind::Gauge;
        let storage = storage::status(state);
        let (rows, max_rows) = state.deletions.rows();
        let all: [Plain; 12] = [
            (
                "coppice_stable_billed_bytes",
                Gauge,
                "Bytes of stable memory that are billed.",
                storage.billed_bytes as f64,
            ),
            ("coppice_stable_max_bytes", Gauge, "Cap on the billed bytes.", storage.max_bytes as f64),
            ("coppice_stable_reusable_bytes", Gauge, "Bytes of free slots.", storage.reusable_bytes as f64),
            ("coppice_used_bytes", Gauge, "Bytes of all owners, without quarantined blobs.", storage.used_bytes as f64),
            (
                "coppice_blobs_quarantined_bytes",
                Gauge,
                "Class bytes of quarantined blobs.",
                storage.quarantined_bytes as f64,
            ),
            ("coppice_payload_bytes", Gauge, "Payload bytes of the kept blocks.", storage.payload_bytes as f64),
            ("coppice_utxo_records", Gauge, "UTXO records.", storage.utxo.records as f64),
            ("coppice_utxo_unmined_records", Gauge, "Unmined UTXO records.", storage.utxo.unmined as f64),
            (
                "coppice_utxo_kept_bytes",
                Gauge,
                "Bytes of stable memory that count towards the cap of UTXO records.",
                storage.utxo.kept_bytes as f64,
            ),
            ("coppice_utxo_max_bytes", Gauge, "Cap on the bytes of UTXO records.", storage.utxo.max_bytes as f64),
            ("coppice_deletion_rows", Gauge, "Rows of the deletion queue.", rows as f64),
            ("coppice_deletion_max_rows", Gauge, "Cap on the rows of the deletion queue.", max_rows as f64),
        ];
        all.into_iter().try_for_each(|figure| self.plain(figure))?;
        let owners: Vec<(String, f64)> = storage
            .owners
            .iter()
            .map(|owner| (format!("{:?}", owner.owner).to_lowercase(), owner.kept_bytes as f64))
            .collect();
        let owners = owners.iter().map(|(name, bytes)| (name.as_str(), *bytes));
        self.by(("coppice_owner_kept_bytes", Gauge, "Bytes that an owner keeps."), "owner", owners)?;
        let free: Vec<(String, f64)> = storage
            .classes
            .iter()
            .map(|class| (class.class.to_string(), (class.free * u64::from(class.class)) as f64))
            .collect();
        let free = free.iter().map(|(class, bytes)| (class.as_str(), *bytes));
        self.by(("coppice_free_bytes", Gauge, "Bytes of free slots, by the slot's bytes."), "class", free)
    }

    fn exporters(&mut self, state: &State) -> io::Result<()> {
        let exporters = state.exporters.status(&state.chain, state.config.require_export).exporters;
        if exporters.is_empty() {
            return Ok(());
        }
        let secs = exporters.iter().map(|exporter| (exporter.name.as_str(), exporter.lag_secs as f64));
        let help = "Seconds since an exporter's last acknowledgement, while blocks wait for it.";
        self.by(("coppice_exporter_lag_seconds", Kind::Gauge, help), "exporter", secs)?;
        let blocks = exporters.iter().map(|exporter| (exporter.name.as_str(), exporter.lag_blocks as f64));
        let help = "Kept blocks that an exporter has not acknowledged.";
        self.by(("coppice_exporter_lag_blocks", Kind::Gauge, help), "exporter", blocks)
    }

    fn health(&mut self, state: &State) -> io::Result<()> {
        // Not `health::health`, because its remedies cost more than the metrics.
        let raised = health::raised(state);
        let healthy = raised.iter().all(|(severity, ..)| *severity == Severity::Notice);
        self.plain(("coppice_healthy", Kind::Gauge, "Whether the canister is healthy.", f64::from(u8::from(healthy))))?;
        let codes: Vec<String> = raised.iter().map(|(_, _, found)| found.code.to_string()).collect();
        let values = codes.iter().map(|code| (code.as_str(), 1.0));
        self.by(("coppice_problem", Kind::Gauge, "The problems that are raised, by code."), "code", values)?;
        let version = std::iter::once((env!("CARGO_PKG_VERSION"), 1.0));
        self.by(("coppice_info", Kind::Gauge, "The canister's version."), "version", version)
    }

    fn messages(&mut self) -> io::Result<()> {
        let help = "Instructions of a message of the hottest methods since the canister was started, without encoding the reply.";
        let mut builder = self.0.histogram_vec("coppice_message_instructions", help)?;
        let bounds: Vec<f64> = meter::BOUNDS.iter().map(|&bound| bound as f64).chain([f64::INFINITY]).collect();
        // A method that was never called has no series.
        for (name, histogram) in
            meter::NAMES.iter().zip(meter::histograms()).filter(|(_, histogram)| histogram.buckets != [0; 8])
        {
            let buckets = bounds.iter().copied().zip(histogram.buckets.iter().map(|&count| count as f64));
            builder = builder.histogram(&[("method", name)], buckets, histogram.sum as f64)?;
        }
        Ok(())
    }

    fn pruner(&mut self, state: &State) -> io::Result<()> {
        let mut metrics = state.utxo_pruner.status(&state.config.utxo, &state.deletions);
        let plain = |name: &str, value: f64| Metric { name: name.into(), labels: Vec::new(), value };
        metrics.metrics.extend([
            plain("coppice_pruner_ticks_total", metrics.ticks as f64),
            plain("coppice_pruner_safe_height", f64::from(metrics.safe_height)),
            plain("coppice_pruner_persisted_height", f64::from(metrics.last_persisted_height.unwrap_or(0))),
        ]);
        metrics.metrics.extend(state.deletions.status().metrics);
        self.services(&metrics.metrics)?;
        let help = "Blocks since the oldest UTXO record that is not deleted was due.";
        let oldest = state.utxo_pruner.overdue(&state.utxo, &state.config.utxo).map_or(0, |overdue| overdue.age());
        self.plain(("coppice_utxo_due_oldest_blocks", Kind::Gauge, help, f64::from(oldest)))?;
        let help =
            "UTXO records that are due and not deleted, by the least blocks since then; 10,000 are 10,000 or more.";
        let ages = state.utxo_pruner.due_by_age(&state.utxo).map(|(age, count)| (age, count as f64));
        self.by(("coppice_utxo_due_records", Kind::Gauge, help), "blocks", ages)
    }
}

fn encode(state: &State) -> io::Result<Vec<u8>> {
    let now_millis = i64::try_from(platform::time_ns() / 1_000_000).unwrap_or(i64::MAX);
    let mut begun = Vec::with_capacity(CAPACITY);
    begun.extend_from_slice(format!("# Answered by {}.\n", source()).as_bytes());
    let mut text = Text(MetricsEncoder::new(begun, now_millis), now_millis, format!(" {now_millis}\n"));
    text.health(state)?;
    text.chain(state)?;
    text.storage(state)?;
    text.exporters(state)?;
    text.pruner(state)?;
    text.messages()?;
    Ok(text.0.into_inner())
}

/// Responds to `/metrics`.
pub fn answer(state: &State) -> Answer {
    match encode(state) {
        Ok(text) => Answer::new(200, CONTENT_TYPE, text),
        Err(error) => Answer::text(500, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names from the specifications, histograms without their suffixes.
    const DOCUMENTED: [&str; 17] = [
        "pruner_duration_seconds",
        "pruner_skipped_total",
        "pruner_errors_total",
        "pruner_processed_total",
        "pruner_current_height",
        "pruner_active",
        "utxo_cleanup_batch_duration_seconds",
        "utxo_pruner_records_deleted_total",
        "utxo_pruner_parents_updated_total",
        "utxo_pruner_external_files_deleted_total",
        "pruner_blob_deletion_scheduled_total",
        "pruner_blob_deletion_cancelled_total",
        "pruner_blob_deletion_processed_total",
        "pruner_blob_deletion_not_found_total",
        "pruner_blob_deletion_errors_total",
        "pruner_blob_deletion_duration_seconds",
        "pruner_blob_deletion_pending",
    ];

    #[test]
    fn documented_names_are_unchanged_and_others_have_the_prefix() {
        let (own, named): (Vec<&str>, Vec<&str>) =
            SERVICES.iter().map(|(name, _, _)| *name).partition(|name| name.starts_with("coppice_"));
        let sorted =
            |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(sorted(&named), sorted(&DOCUMENTED));
        assert_eq!(named.len() + own.len(), SERVICES.len());
        platform::native::reset();
        crate::storage::memory::forget();
        crate::state::init(None).unwrap();
        let text = crate::state::read(|state| String::from_utf8(encode(state).unwrap()).unwrap());
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let (own, named): (Vec<&str>, Vec<&str>) = types.partition(|name| name.starts_with("coppice_"));
        assert!(own.len() > 30);
        assert_eq!(sorted(&named), sorted(&DOCUMENTED));
    }

    /// A metric whose name is missing from the table would be omitted.
    #[test]
    fn every_service_metric_is_in_the_table() {
        platform::native::reset();
        crate::storage::memory::forget();
        crate::state::init(None).unwrap();
        crate::state::read(|state| {
            let mut all = state.utxo_pruner.status(&state.config.utxo, &state.deletions).metrics;
            all.extend(state.deletions.status().metrics);
            let known = |name: &str| {
                SERVICES.iter().any(|(known, kind, _)| match kind {
                    Kind::Sum => name.strip_suffix("_sum").or(name.strip_suffix("_count")) == Some(known),
                    _ => name == *known,
                })
            };
            let unknown: Vec<&str> =
                all.iter().map(|metric| metric.name.as_str()).filter(|name| !known(name)).collect();
            assert_eq!(unknown, [] as [&str; 0]);
            assert!(all.iter().all(|metric| metric.labels.len() < 2), "by one label at most");
        });
    }
}

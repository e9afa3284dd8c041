//! Metrics with the names of `pruner-service.md` and of the reference implementation.

use super::{Stored, UtxoPruner};
use ic_coppice_interface::{Metric, MetricLabel};

/// Returns a metric with one label, or without a label if its name is empty.
fn metric((name, label, of, value): (&str, &str, &str, u64)) -> Metric {
    let label = Some(MetricLabel { name: label.into(), value: of.into() }).filter(|label| !label.name.is_empty());
    Metric { name: name.into(), labels: Vec::from_iter(label), value: value as f64 }
}

impl UtxoPruner {
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let Stored { totals, unused, processed, failed, timed_out, .. } = &self.stored;
        let (sum, count) = ("pruner_duration_seconds_sum", "pruner_duration_seconds_count");
        let phases = ["preserve_parents", "expire_preservations", "dah_pruner"].into_iter().zip(self.stored.durations);
        let times =
            phases.flat_map(|(of, (secs, ended))| [(sum, "operation", of, secs), (count, "operation", of, ended)]);
        let [.., delete] = self.stored.durations;
        let kept = "coppice_utxo_pruner_records_skipped_total";
        let all = [
            // Chunks are of the last phase.
            ("utxo_cleanup_batch_duration_seconds_sum", "", "", delete.0),
            ("utxo_cleanup_batch_duration_seconds_count", "", "", totals.chunks),
            ("pruner_skipped_total", "reason", "block_assembly_not_running", unused.assembly_not_running),
            ("pruner_skipped_total", "reason", "already_processed", unused.already_processed),
            ("pruner_skipped_total", "reason", "superseded", unused.superseded),
            ("pruner_skipped_total", "reason", "persister_active", unused.persister_active),
            ("pruner_skipped_total", "reason", "not_mined", unused.not_mined),
            ("pruner_errors_total", "operation", "preserve_parents", *failed),
            ("pruner_errors_total", "operation", "dah_pruner", totals.external_errors + totals.record_errors),
            ("pruner_errors_total", "operation", "timeout", *timed_out),
            (kept, "reason", "child_unmined", totals.skipped_child_unmined),
            (kept, "reason", "child_recent", totals.skipped_child_recent),
            (kept, "reason", "child_absent", totals.skipped_child_absent),
            (kept, "reason", "external_data", totals.external_errors),
            (kept, "reason", "record", totals.record_errors),
            ("pruner_processed_total", "", "", totals.processed),
            ("pruner_current_height", "", "", u64::from(*processed)),
            ("pruner_active", "", "", u64::from(self.stored.running.is_some())),
            ("utxo_pruner_records_deleted_total", "", "", totals.records_deleted),
            ("utxo_pruner_parents_updated_total", "", "", totals.parents_updated),
            ("utxo_pruner_external_files_deleted_total", "", "", totals.external_files_deleted),
            ("coppice_utxo_pruner_parents_preserved_total", "", "", totals.parents_preserved),
        ];
        times.chain(all).map(metric).collect()
    }
}

//! Metrics with the names of `pruner-service.md` and of the reference implementation.

use super::UtxoPruner;
use coppice_interface::{Metric, MetricLabel, UtxoPrunerPhase};

fn metric(name: &str, labels: &[(&str, &str)], value: u64) -> Metric {
    let labels =
        labels.iter().map(|(name, value)| MetricLabel { name: name.to_string(), value: value.to_string() }).collect();
    Metric { name: name.into(), labels, value: value as f64 }
}

impl UtxoPruner {
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let stored = &self.stored;
        let (totals, skipped) = (&stored.totals, &stored.skipped);
        let jobs = stored.running.iter().count() as u64;
        let mut all = Vec::new();
        let phases = [
            ("preserve_parents", UtxoPrunerPhase::PreserveParents),
            ("expire_preservations", UtxoPrunerPhase::ExpirePreservations),
            ("dah_pruner", UtxoPrunerPhase::DeleteAtHeight),
        ];
        for (operation, phase) in phases {
            let (seconds, ended) = stored.durations[phase as usize];
            all.push(metric("pruner_duration_seconds_sum", &[("operation", operation)], seconds));
            all.push(metric("pruner_duration_seconds_count", &[("operation", operation)], ended));
        }
        let (seconds, _) = stored.durations[UtxoPrunerPhase::DeleteAtHeight as usize];
        all.push(metric("utxo_cleanup_batch_duration_seconds_sum", &[], seconds));
        all.push(metric("utxo_cleanup_batch_duration_seconds_count", &[], totals.chunks));
        let reasons = [
            ("block_assembly_not_running", skipped.assembly_not_running),
            ("already_processed", skipped.already_processed),
            ("superseded", skipped.superseded),
            ("persister_active", skipped.persister_active),
            ("not_mined", skipped.not_mined),
        ];
        all.extend(reasons.map(|(reason, count)| metric("pruner_skipped_total", &[("reason", reason)], count)));
        let errors = [
            ("preserve_parents", stored.failed),
            ("dah_pruner", totals.external_errors + totals.record_errors),
            ("timeout", stored.timed_out),
        ];
        all.extend(errors.map(|(operation, count)| metric("pruner_errors_total", &[("operation", operation)], count)));
        let kept = [
            ("child_unmined", totals.skipped_child_unmined),
            ("child_recent", totals.skipped_child_recent),
            ("child_absent", totals.skipped_child_absent),
            ("external_data", totals.external_errors),
            ("record", totals.record_errors),
        ];
        let name = "coppice_utxo_pruner_records_skipped_total";
        all.extend(kept.map(|(reason, count)| metric(name, &[("reason", reason)], count)));
        let plain = [
            ("pruner_processed_total", totals.processed),
            ("pruner_current_height", u64::from(stored.processed)),
            ("pruner_active", jobs),
            ("utxo_pruner_records_deleted_total", totals.records_deleted),
            ("utxo_pruner_parents_updated_total", totals.parents_updated),
            ("utxo_pruner_external_files_deleted_total", totals.external_files_deleted),
            ("coppice_utxo_pruner_parents_preserved_total", totals.parents_preserved),
        ];
        all.extend(plain.map(|(name, value)| metric(name, &[], value)));
        all
    }
}

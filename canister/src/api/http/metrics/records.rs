//! Metrics of UTXO records, their pruner and the deletion queue.

use super::Text;
use crate::state::State;
use crate::state::records::settings_of;
use ic_coppice_interface::Metric;
use std::io;

/// Metrics of the pruner and the deletion queue, with help texts. Most names come from the specifications. As usual with Prometheus, a
/// name that ends with `_total` is that of a counter.
const SERVICES: [(&str, &str); 28] = [
    ("pruner_duration_seconds", "Seconds across ticks that the phases of jobs took."),
    ("utxo_cleanup_batch_duration_seconds", "Seconds across ticks that chunks of records took."),
    ("pruner_skipped_total", "Triggers that pruned nothing, by reason."),
    ("pruner_errors_total", "Failures, by operation."),
    ("coppice_utxo_pruner_records_skipped_total", "Records that were examined and kept, by reason."),
    ("pruner_processed_total", "Records that were examined."),
    ("pruner_current_height", "Height up to which records were pruned."),
    ("pruner_active", "Jobs that run."),
    ("utxo_pruner_records_deleted_total", "Records that were deleted."),
    ("utxo_pruner_parents_updated_total", "Outputs of parents marked because their spender was deleted."),
    (
        "utxo_pruner_external_files_deleted_total",
        "Transactions in the blob store that were deleted with their records.",
    ),
    ("coppice_utxo_pruner_parents_preserved_total", "Parents of old unmined transactions that were preserved."),
    ("pruner_blob_deletion_scheduled_total", "External blobs that were scheduled for deletion."),
    ("pruner_blob_deletion_cancelled_total", "External blobs whose deletion was cancelled."),
    ("pruner_blob_deletion_processed_total", "External blobs that were deleted."),
    ("pruner_blob_deletion_not_found_total", "External blobs that were not in the queue."),
    ("pruner_blob_deletion_errors_total", "Failed attempts to delete an external blob."),
    ("pruner_blob_deletion_duration_seconds", "Seconds from the acquisition of a lease to its completion."),
    ("pruner_blob_deletion_pending", "External blobs that wait for deletion."),
    ("coppice_pruner_blob_deletion_dead", "External blobs in dead-letter rows."),
    ("coppice_pruner_blob_deletion_given_up_total", "External blobs that were ever given up."),
    ("coppice_pruner_blob_deletion_leases_acquired_total", "Leases that were acquired."),
    ("coppice_pruner_blob_deletion_leases_extended_total", "Leases that were extended."),
    ("coppice_pruner_blob_deletion_leases_completed_total", "Leases that were completed."),
    ("coppice_pruner_blob_deletion_leases_expired_total", "Leases that expired."),
    (
        "coppice_pruner_blob_deletion_leases_unknown_total",
        "Completed leases whose rows of unknown fate returned at expiry.",
    ),
    ("coppice_pruner_blob_deletion_leases_ended_total", "Leases that an operator ended."),
    (
        "coppice_pruner_blob_deletion_dead_dropped_total",
        "Dead-letter rows that were dropped because there were too many.",
    ),
];

/// Writes the metrics of records and of the deletion queue.
pub fn write(text: &mut Text, state: &State) -> io::Result<()> {
    storage(text, state)?;
    let pruner = state.records.pruner.status(settings_of(&state.config), &state.records.deletions);
    services(text, &[pruner.metrics, state.records.deletions.status().metrics].concat())?;
    let (ticks, safe_height) = (pruner.ticks, pruner.safe_height);
    let persisted = pruner.last_persisted_height.unwrap_or(0);
    // Metrics that the Candid replies do not contain.
    text.plain(&[
        ("coppice_pruner_ticks_total", "Firings of the daemon for UTXO records since the canister was started.", ticks),
        ("coppice_pruner_safe_height", "Height up to which UTXO records may be deleted.", safe_height.into()),
        ("coppice_pruner_persisted_height", "The highest persisted block; 0 if none.", persisted.into()),
    ])?;
    let help = "Blocks since the oldest UTXO record that is not deleted was due.";
    let oldest = state.records.pruner.overdue(&state.records.utxo).map_or(0, |due| pruner.current_height - due);
    text.plain(&[("coppice_utxo_due_oldest_blocks", help, u64::from(oldest))])?;
    let help = "UTXO records that are due and not deleted, by the least blocks since then; 10,000 are 10,000 or more.";
    let ages = state.records.pruner.due_by_age(&state.records.utxo);
    text.by(("coppice_utxo_due_records", help), "blocks", ages)
}

/// Writes the number of records and rows, their memory and its caps.
fn storage(text: &mut Text, state: &State) -> io::Result<()> {
    let (utxo, (rows, max_rows)) = (state.records.utxo.storage(), state.records.deletions.rows());
    let kept = utxo.kept_bytes;
    text.plain(&[
        ("coppice_utxo_records", "UTXO records.", utxo.records),
        ("coppice_utxo_unmined_records", "Unmined UTXO records.", utxo.unmined),
        ("coppice_utxo_kept_bytes", "Bytes of stable memory that count towards the cap of UTXO records.", kept),
        ("coppice_utxo_max_bytes", "Cap on the bytes of UTXO records.", utxo.max_bytes),
        ("coppice_deletion_rows", "Rows of the deletion queue.", rows),
        ("coppice_deletion_max_rows", "Cap on the rows of the deletion queue.", max_rows),
    ])
}

/// Writes the metrics of pruner and deletion queue, grouped by name.
fn services<'a>(text: &mut Text, metrics: &'a [Metric]) -> io::Result<()> {
    for (name, help) in SERVICES {
        let of = |suffix: &str| {
            metrics.iter().filter(move |m| m.name.strip_suffix(suffix) == Some(name)).collect::<Vec<_>>()
        };
        let all = of("");
        if !all.is_empty() {
            let label = |metric: &'a Metric| metric.labels.first().map(|label| (label.name.as_str(), &label.value));
            text.figure((name, help), all.into_iter().map(|metric| (label(metric), metric.value)))?;
            continue;
        }
        // A sum and a count.
        let mut builder = None;
        for (sum, count) in of("_sum").into_iter().zip(of("_count")) {
            let labels: Vec<(&str, &str)> =
                sum.labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect();
            let begun = match builder.take() {
                None => text.0.histogram_vec(name, help)?,
                Some(builder) => builder,
            };
            builder = Some(begun.histogram(&labels, std::iter::once((f64::INFINITY, count.value)), sum.value)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;
    use crate::platform;

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
            SERVICES.iter().map(|(name, _)| *name).partition(|name| name.starts_with("coppice_"));
        let sorted =
            |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(sorted(&named), sorted(&DOCUMENTED));
        assert_eq!(named.len() + own.len(), SERVICES.len());
        platform::native::reset();
        crate::memory::forget();
        crate::state::init(&ic_coppice_interface::InitArg::default()).unwrap();
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
        crate::memory::forget();
        crate::state::init(&ic_coppice_interface::InitArg::default()).unwrap();
        crate::state::read(|state| {
            let mut all = state.records.pruner.status(settings_of(&state.config), &state.records.deletions).metrics;
            all.extend(state.records.deletions.status().metrics);
            let known = |name: &str| {
                let of_sum = name.strip_suffix("_sum").or(name.strip_suffix("_count"));
                SERVICES.iter().any(|(known, _)| [Some(name), of_sum].contains(&Some(known)))
            };
            let unknown: Vec<&str> =
                all.iter().map(|metric| metric.name.as_str()).filter(|name| !known(name)).collect();
            assert_eq!(unknown, [] as [&str; 0]);
            assert!(all.iter().all(|metric| metric.labels.len() < 2), "by one label at most");
        });
    }
}

//! State of a worker for `--listen`: its counts, and the fault for which it waits.

use super::figures::Figures;
use crate::listen::{Watched, now_secs};
use ic_metrics_encoder::MetricsEncoder;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A watched worker: its counts, the time of the last round in Unix seconds, and the fault since.
#[derive(Debug)]
pub struct Watch(Mutex<(Figures, u64, Option<String>)>);

impl Default for Watch {
    fn default() -> Self {
        Self(Mutex::new((Figures::default(), now_secs(), None)))
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, (Figures, u64, Option<String>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a round: the canister answered, and a store was free.
    pub fn went(&self, figures: &Figures) {
        *self.lock() = (figures.clone(), now_secs(), None);
    }

    /// Notes that the canister or a store fails.
    pub fn failed(&self, why: &str) {
        self.lock().2 = Some(why.into());
    }
}

impl Watched for Watch {
    fn metrics(&self, text: &mut MetricsEncoder<Vec<u8>>) -> io::Result<()> {
        let (figures, round_secs, fault) = self.lock().clone();
        let counters = [
            ("coppice_worker_leases_total", "Leases that were taken.", figures.leases),
            ("coppice_worker_deleted_total", "Blobs that are gone and were reported.", figures.deleted),
            ("coppice_worker_failed_total", "Failed deletions.", figures.failed),
            ("coppice_worker_dead_total", "Dead letters.", figures.dead),
            ("coppice_worker_put_back_total", "Blobs whose rows were put back unchanged.", figures.left),
            ("coppice_worker_retries_total", "Retried calls, and retried looks at the stores.", figures.retries),
            ("coppice_worker_failed_requests_total", "S3 requests without an answer.", figures.failed_requests),
        ];
        let gauges = [
            ("coppice_worker_waiting_rows", "Rows of the queue at the last look.", figures.waiting),
            ("coppice_worker_height", "Height up to which blobs were deleted last.", figures.height.into()),
            ("coppice_worker_round_timestamp_seconds", "Time of the last round, or of the start.", round_secs),
            ("coppice_worker_failing", "Whether the canister or a store fails.", u64::from(fault.is_some())),
        ];
        counters.into_iter().try_for_each(|(name, help, value)| text.encode_counter(name, value as f64, help))?;
        gauges.into_iter().try_for_each(|(name, help, value)| text.encode_gauge(name, value as f64, help))
    }

    fn fault(&self) -> Option<String> {
        self.lock().2.clone()
    }

    /// The worker's log has a line a minute already.
    fn line(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::tests::read;

    #[test]
    fn a_round_ends_a_fault() {
        let watch = Watch::default();
        watch.failed("s3://b: no answer");
        assert_eq!(
            (watch.fault().as_deref(), read(&watch)["coppice_worker_failing"]),
            (Some("s3://b: no answer"), 1.0)
        );
        watch.went(&Figures { deleted: 7, ..Figures::default() });
        let metrics = read(&watch);
        assert_eq!((watch.fault(), metrics["coppice_worker_failing"]), (None, 0.0));
        assert_eq!(metrics["coppice_worker_deleted_total"], 7.0);
    }
}

//! State of an indexer for `--listen`: counts, lag, times of the last certificate and the last proved block, faults.

use super::engine::Engine;
use super::steps::{Checkpoint, Figures};
use crate::client::CanisterClient;
use crate::listen::{Watched, now_secs};
use ic_metrics_encoder::MetricsEncoder;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state after the last step.
#[derive(Clone, Debug, Default)]
struct State {
    figures: Figures,
    /// The number of the newest stored block.
    tip: Option<u64>,
    certificate_secs: u64,
    /// When a block was last proved and stored, in Unix seconds; at first the time of the start.
    proved_secs: u64,
    /// The reason why the last step failed: of the database, or of the canister.
    database: Option<String>,
    canister: Option<String>,
}

/// A watched indexer.
#[derive(Debug)]
pub struct Watch(Mutex<State>);

impl Default for Watch {
    fn default() -> Self {
        let now = now_secs();
        Self(Mutex::new(State { certificate_secs: now, proved_secs: now, ..State::default() }))
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the state after a step without an error.
    pub fn went<T: CanisterClient, C: Checkpoint>(&self, engine: &Engine<'_, T, C>) {
        let mut state = self.lock();
        let figures = engine.figures();
        if figures.blocks > state.figures.blocks {
            state.proved_secs = now_secs();
        }
        if let Some(at) = engine.certified_at_ns() {
            state.certificate_secs = at / 1_000_000_000;
        }
        (state.figures, state.tip) = (figures, engine.tip());
        (state.database, state.canister) = (None, None);
    }

    /// Notes that the database failed.
    pub fn database_failed(&self, why: &str) {
        self.lock().database = Some(why.into());
    }

    /// Notes that the canister did not answer, or refused.
    pub fn canister_failed(&self, why: &str) {
        self.lock().canister = Some(why.into());
    }
}

impl Watched for Watch {
    fn metrics(&self, text: &mut MetricsEncoder<Vec<u8>>) -> io::Result<()> {
        let state = self.lock().clone();
        let Figures { blocks, bytes, reorgs, gap_blocks, refuted, retried, acks, acknowledged_before, lag, .. } =
            state.figures;
        let gauges = [
            ("coppice_indexer_tip_block", "Number of the newest stored block.", state.tip.unwrap_or(0)),
            (
                "coppice_indexer_lag_blocks",
                "Blocks from the newest stored one to the certified head.",
                lag.unwrap_or(0),
            ),
            (
                "coppice_indexer_acknowledged_before_block",
                "Number below which all blocks are acknowledged.",
                acknowledged_before.unwrap_or(0),
            ),
            (
                "coppice_indexer_certificate_timestamp_seconds",
                "Time of the newest certificate; of the start before the first one.",
                state.certificate_secs,
            ),
            (
                "coppice_indexer_proved_timestamp_seconds",
                "Time at which a proved block was last stored; of the start before the first one.",
                state.proved_secs,
            ),
            ("coppice_indexer_database_failing", "Whether the database fails.", u64::from(state.database.is_some())),
            (
                "coppice_indexer_canister_failing",
                "Whether the canister does not answer.",
                u64::from(state.canister.is_some()),
            ),
        ];
        let counters = [
            ("coppice_indexer_blocks_total", "Blocks that were stored.", blocks),
            ("coppice_indexer_bytes_total", "Payload bytes of the stored blocks.", bytes),
            ("coppice_indexer_reorgs_total", "Reorgs that were followed.", reorgs),
            ("coppice_indexer_gap_blocks_total", "Blocks that were recorded as gaps.", gap_blocks),
            ("coppice_indexer_refuted_total", "Answers that a certificate, a seal or a digest refuted.", refuted),
            ("coppice_indexer_retries_total", "Steps that were retried.", retried),
            ("coppice_indexer_acknowledgements_total", "Acknowledgements that the canister accepted.", acks),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| text.encode_gauge(name, value as f64, help))?;
        counters.into_iter().try_for_each(|(name, help, value)| text.encode_counter(name, value as f64, help))
    }

    fn fault(&self) -> Option<String> {
        let state = self.lock();
        let database = state.database.as_ref().map(|why| format!("the database: {why}"));
        database.or_else(|| state.canister.as_ref().map(|why| format!("the canister: {why}")))
    }

    fn line(&self) -> Option<String> {
        let state = self.lock();
        let tip = state.tip.map_or("no block".into(), |tip| format!("block {tip}"));
        let lag = state.figures.lag.map_or("lag unknown".into(), |lag| format!("{lag} behind"));
        Some(format!("stored up to {tip}, {lag}, {} in this run", state.figures.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::tests::read;

    #[test]
    fn faults_are_reported_until_a_step_succeeds() {
        let watch = Watch::default();
        assert_eq!(watch.fault(), None);
        watch.canister_failed("no answer");
        assert_eq!(watch.fault().as_deref(), Some("the canister: no answer"));
        watch.database_failed("connection refused");
        assert_eq!(watch.fault().as_deref(), Some("the database: connection refused"));
        let metrics = read(&watch);
        assert_eq!(
            (metrics["coppice_indexer_database_failing"], metrics["coppice_indexer_canister_failing"]),
            (1.0, 1.0)
        );
        assert!(metrics["coppice_indexer_certificate_timestamp_seconds"] > 1_600_000_000.0, "{metrics:?}");
        assert_eq!(watch.line().as_deref(), Some("stored up to no block, lag unknown, 0 in this run"));
    }
}

//! The pruner's settings, checked.

use super::bucket::Limits;
use crate::settings::config::within;
use coppice_interface::{
    ConfigError, MAX_HEIGHT, UtxoPrunerError, UtxoPrunerSettings, UtxoPrunerSettingsChange, UtxoSettings,
    UtxoUnminedRetention,
};

/// Instructions of a tick: a message has 40 billion, of which the pruner takes at most so many.
const MAX_INSTRUCTIONS: u64 = 2_000_000_000;
const YEAR: u64 = 31_536_000;

/// What the pruner does with its settings.
pub trait Settings {
    /// Changes the settings, or none of them.
    ///
    /// # Errors
    /// `Invalid`.
    fn apply(&mut self, change: &UtxoPrunerSettingsChange, utxo: &UtxoSettings) -> Result<(), UtxoPrunerError>;
    /// Checks that an unmined transaction is old before its parents may go, where records ever may.
    ///
    /// # Errors
    /// `Invalid`, of the setting that is being changed.
    fn check_retentions(&self, utxo: &UtxoSettings, field: &str) -> Result<(), ConfigError>;
    /// The bounds on how far a feeder raises a height.
    fn limits(&self) -> Limits;
    /// Unmined transactions below this height are old when the chain is at `current`; 0: none is.
    fn unmined_cutoff(&self, utxo: &UtxoSettings, current: u32) -> u32;
    /// Blocks after which an unmined transaction is old.
    fn unmined_retention(&self, utxo: &UtxoSettings) -> u32;
}

impl Settings for UtxoPrunerSettings {
    fn apply(&mut self, change: &UtxoPrunerSettingsChange, utxo: &UtxoSettings) -> Result<(), UtxoPrunerError> {
        let mut new = self.clone();
        set(&mut new, change).and_then(|()| new.check_retentions(utxo, "unmined_tx_retention")).map_err(|error| {
            match error {
                ConfigError::Invalid { field, why } => UtxoPrunerError::Invalid { field, why },
            }
        })?;
        *self = new;
        Ok(())
    }

    fn check_retentions(&self, utxo: &UtxoSettings, field: &str) -> Result<(), ConfigError> {
        let (unmined, retention) = (self.unmined_retention(utxo), utxo.block_height_retention);
        if retention == 0 || unmined < retention {
            return Ok(());
        }
        let why = format!(
            "unmined_tx_retention = {unmined} is not below block_height_retention = {retention}: parents of unmined transactions would be \
             deleted before these are old"
        );
        Err(ConfigError::Invalid { field: field.into(), why })
    }

    fn limits(&self) -> Limits {
        Limits { size: self.max_height_jump, per_day: self.heights_per_day }
    }

    fn unmined_cutoff(&self, utxo: &UtxoSettings, current: u32) -> u32 {
        current.saturating_sub(self.unmined_retention(utxo))
    }

    fn unmined_retention(&self, utxo: &UtxoSettings) -> u32 {
        match self.unmined_tx_retention {
            UtxoUnminedRetention::HalfOfRetention => utxo.block_height_retention / 2,
            UtxoUnminedRetention::Blocks(blocks) => blocks,
        }
    }
}

fn set(settings: &mut UtxoPrunerSettings, change: &UtxoPrunerSettingsChange) -> Result<(), ConfigError> {
    settings.pruner_enabled = change.pruner_enabled.unwrap_or(settings.pruner_enabled);
    settings.disable_dah_cleaner = change.disable_dah_cleaner.unwrap_or(settings.disable_dah_cleaner);
    settings.utxo_defensive_enabled = change.utxo_defensive_enabled.unwrap_or(settings.utxo_defensive_enabled);
    settings.safe_height_rule = change.safe_height_rule.unwrap_or(settings.safe_height_rule);
    within("job_timeout", change.job_timeout, (1, YEAR), &mut settings.job_timeout)?;
    within("utxo_chunk_size", change.utxo_chunk_size, (1, 100_000), &mut settings.utxo_chunk_size)?;
    let chunks = change.utxo_chunk_group_limit;
    within("utxo_chunk_group_limit", chunks, (1, 10_000), &mut settings.utxo_chunk_group_limit)?;
    let interval = change.utxo_progress_log_interval;
    within("utxo_progress_log_interval", interval, (0, YEAR), &mut settings.utxo_progress_log_interval)?;
    let batch = change.utxo_defensive_batch_read_size;
    within("utxo_defensive_batch_read_size", batch, (1, 100_000), &mut settings.utxo_defensive_batch_read_size)?;
    let blocks = change.parent_preservation_blocks;
    within("parent_preservation_blocks", blocks, (0, MAX_HEIGHT), &mut settings.parent_preservation_blocks)?;
    within("tick_interval", change.tick_interval, (1, 86_400), &mut settings.tick_interval)?;
    within("max_ops_per_tick", change.max_ops_per_tick, (1, 10_000_000), &mut settings.max_ops_per_tick)?;
    let instructions = (1_000_000, MAX_INSTRUCTIONS);
    let max_instructions = change.max_instructions_per_tick;
    within("max_instructions_per_tick", max_instructions, instructions, &mut settings.max_instructions_per_tick)?;
    within("max_job_history", change.max_job_history, (1, 1_000), &mut settings.max_job_history)?;
    within("max_height_jump", change.max_height_jump, (1, MAX_HEIGHT), &mut settings.max_height_jump)?;
    within("heights_per_day", change.heights_per_day, (0, MAX_HEIGHT), &mut settings.heights_per_day)?;
    settings.heights_are_block_numbers = change.heights_are_block_numbers.unwrap_or(settings.heights_are_block_numbers);
    within("retry_base_secs", change.retry_base_secs, (0, 3_600), &mut settings.retry_base_secs)?;
    if let Some(retention) = change.unmined_tx_retention {
        if let UtxoUnminedRetention::Blocks(blocks) = retention {
            within("unmined_tx_retention", Some(blocks), (0, MAX_HEIGHT), &mut 0)?;
        }
        settings.unmined_tx_retention = retention;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_documents_and_a_refused_change_changes_nothing() {
        let mut settings = UtxoPrunerSettings::default();
        let s = &settings;
        assert_eq!((s.job_timeout, s.utxo_chunk_size, s.utxo_chunk_group_limit), (600, 1_000, 10));
        assert_eq!((s.utxo_progress_log_interval, s.utxo_defensive_batch_read_size), (30, 10_000));
        assert!(s.pruner_enabled && !s.utxo_defensive_enabled && !s.disable_dah_cleaner);
        assert_eq!((s.unmined_cutoff(&UtxoSettings::default(), 1_000), s.parent_preservation_blocks), (856, 1_440));
        assert_eq!(s.unmined_cutoff(&UtxoSettings::default(), 144), 0);

        let change = UtxoPrunerSettingsChange {
            pruner_enabled: Some(false),
            unmined_tx_retention: Some(UtxoUnminedRetention::Blocks(u32::MAX)),
            ..Default::default()
        };
        let refused = settings.apply(&change, &UtxoSettings::default());
        assert!(matches!(refused, Err(UtxoPrunerError::Invalid { field, .. }) if field == "unmined_tx_retention"));
        assert_eq!(settings, UtxoPrunerSettings::default());
    }
}

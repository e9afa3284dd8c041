//! Checked settings of the records pruner.

use super::bucket::Limits;
use coppice_interface::settings::check;
use coppice_interface::{
    BadArgument, ConfigError, MAX_HEIGHT, UtxoPrunerError, UtxoPrunerSettings, UtxoPrunerSettingsChange, UtxoSettings,
    UtxoUnminedRetention,
};

/// Checks and derived values of the settings.
pub trait Settings {
    /// Changes all given settings, or none.
    ///
    /// # Errors
    /// `BadArgument`.
    fn apply(&mut self, change: &UtxoPrunerSettingsChange, utxo: &UtxoSettings) -> Result<(), UtxoPrunerError>;
    /// Checks that an unmined transaction becomes old before its parents may be deleted, unless records are never deleted.
    ///
    /// # Errors
    /// `BadArgument` with `field`, the setting that is being changed.
    fn check_retentions(&self, utxo: &UtxoSettings, field: &str) -> Result<(), ConfigError>;
    /// Returns the bounds on how far a feeder raises a height.
    fn limits(&self) -> Limits;
    /// Returns the height below which unmined transactions are old when the chain is at `current`; 0 if none is.
    fn unmined_cutoff(&self, utxo: &UtxoSettings, current: u32) -> u32;
    /// Returns the blocks after which an unmined transaction is old.
    fn unmined_retention(&self, utxo: &UtxoSettings) -> u32;
}

impl Settings for UtxoPrunerSettings {
    fn apply(&mut self, change: &UtxoPrunerSettingsChange, utxo: &UtxoSettings) -> Result<(), UtxoPrunerError> {
        let new = self.changed(change)?;
        if let UtxoUnminedRetention::Blocks(blocks) = new.unmined_tx_retention {
            check("unmined_tx_retention", blocks, 0..=MAX_HEIGHT)?;
        }
        new.check_retentions(utxo, "unmined_tx_retention")?;
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
        Err(ConfigError::BadArgument(BadArgument { field: field.into(), why }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_match_the_specification_and_a_refused_change_changes_nothing() {
        let mut settings = UtxoPrunerSettings::default();
        let s = &settings;
        assert_eq!((s.job_timeout_secs, s.utxo_chunk_size, s.utxo_chunk_group_limit), (600, 1_000, 10));
        assert_eq!((s.utxo_progress_log_interval_secs, s.utxo_defensive_batch_read_size), (30, 10_000));
        assert!(s.pruner_enabled && !s.utxo_defensive_enabled && !s.disable_dah_cleaner);
        assert_eq!((s.unmined_cutoff(&UtxoSettings::default(), 1_000), s.parent_preservation_blocks), (856, 1_440));
        assert_eq!(s.unmined_cutoff(&UtxoSettings::default(), 144), 0);

        let change = UtxoPrunerSettingsChange {
            pruner_enabled: Some(false),
            unmined_tx_retention: Some(UtxoUnminedRetention::Blocks(u32::MAX)),
            ..Default::default()
        };
        let refused = settings.apply(&change, &UtxoSettings::default());
        assert!(
            matches!(refused, Err(UtxoPrunerError::BadArgument(BadArgument { field, .. })) if field == "unmined_tx_retention")
        );
        assert_eq!(settings, UtxoPrunerSettings::default());
    }
}

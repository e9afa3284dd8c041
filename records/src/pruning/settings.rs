//! Checked settings of the records pruner.

use super::bucket::Limits;
use ic_coppice_interface::settings::check;
use ic_coppice_interface::{
    BadArgument, ConfigError, MAX_HEIGHT, UtxoPrunerSettings, UtxoSettings, UtxoUnminedRetention,
};

/// Checks the settings after a change.
///
/// # Errors
/// `BadArgument`.
pub fn check_changed(settings: &UtxoPrunerSettings, utxo: &UtxoSettings) -> Result<(), ConfigError> {
    if let UtxoUnminedRetention::Blocks(blocks) = settings.unmined_tx_retention {
        check("unmined_tx_retention", blocks, 0..=MAX_HEIGHT)?;
    }
    check_retentions(settings, utxo, "unmined_tx_retention")
}

/// Checks that an unmined transaction becomes old before its parents may be deleted, unless records are never deleted.
///
/// # Errors
/// `BadArgument` with `field`, the setting that is being changed.
pub fn check_retentions(settings: &UtxoPrunerSettings, utxo: &UtxoSettings, field: &str) -> Result<(), ConfigError> {
    let (unmined, retention) = (unmined_retention(settings, utxo), utxo.block_height_retention);
    if retention == 0 || unmined < retention {
        return Ok(());
    }
    let why = format!(
        "unmined_tx_retention = {unmined} is not below block_height_retention = {retention}: parents of unmined transactions would be \
         deleted before these are old"
    );
    Err(BadArgument::new(field, why).into())
}

/// Returns the bounds on how far a feeder raises a height.
pub fn limits(settings: &UtxoPrunerSettings) -> Limits {
    Limits { size: settings.max_height_jump, per_day: settings.heights_per_day }
}

/// Returns the height below which unmined transactions are old when the chain is at `current`; 0 if none is.
pub fn unmined_cutoff(settings: &UtxoPrunerSettings, utxo: &UtxoSettings, current: u32) -> u32 {
    current.saturating_sub(unmined_retention(settings, utxo))
}

/// Returns the blocks after which an unmined transaction is old.
pub fn unmined_retention(settings: &UtxoPrunerSettings, utxo: &UtxoSettings) -> u32 {
    match settings.unmined_tx_retention {
        UtxoUnminedRetention::HalfOfRetention => utxo.block_height_retention / 2,
        UtxoUnminedRetention::Blocks(blocks) => blocks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::UtxoPrunerSettingsChange;

    #[test]
    fn defaults_match_the_specification_and_a_wrong_change_is_refused() {
        let settings = UtxoPrunerSettings::default();
        let s = &settings;
        assert_eq!((s.job_timeout_secs, s.utxo_chunk_size, s.utxo_chunk_group_limit), (600, 1_000, 10));
        assert_eq!((s.utxo_progress_log_interval_secs, s.utxo_defensive_batch_read_size), (30, 10_000));
        assert!(s.pruner_enabled && !s.utxo_defensive_enabled && !s.disable_dah_cleaner);
        assert_eq!((unmined_cutoff(s, &UtxoSettings::default(), 1_000), s.parent_preservation_blocks), (856, 1_440));
        assert_eq!(unmined_cutoff(s, &UtxoSettings::default(), 144), 0);

        let change = UtxoPrunerSettingsChange {
            pruner_enabled: Some(false),
            unmined_tx_retention: Some(UtxoUnminedRetention::Blocks(u32::MAX)),
            ..Default::default()
        };
        let refused = check_changed(&settings.changed(&change).unwrap(), &UtxoSettings::default());
        assert!(
            matches!(refused, Err(ConfigError::BadArgument(BadArgument { field, .. })) if field == "unmined_tx_retention")
        );
    }
}

//! The settings, persisted with the roles in one cell.

use crate::places;
use crate::settings::roles::Roles;
use ic_coppice_interface::{
    BadArgument, Config, ConfigChange, ConfigError, InitArg, MAX_STABLE_PAGES, UtxoSettings, UtxoSettingsChange,
    cycles_of_ticks, greatest_records, records_reserve,
};
use ic_coppice_storage::blob::{Class, GRANULE, MAX_GRANULES};
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use serde::{Deserialize, Serialize};

/// The cell of settings and roles: [`Stored`].
pub const CELL: Cell = Cell {
    at: places::CONFIG,
    capacity: 64 << 10,
    header: Header { name: "settings and roles", magic: *b"CPCF", version: 1 },
};
// A canister has at most 500 GiB.
const _: () = assert!(MAX_GRANULES * GRANULE / ic_coppice_storage::WASM_PAGE == MAX_STABLE_PAGES);

/// Seconds of ticks whose cycles must be left where feeding stops: 30 days.
const FEED_SECS: u64 = 30 * 86_400;

/// The settings of a new canister.
///
/// # Errors
/// `BadArgument`.
pub fn new(arg: &InitArg) -> Result<Config, ConfigError> {
    let defaults = Config::default();
    let log_class = arg.log_class.unwrap_or(defaults.log_class);
    let config = Config { utxo: utxo_settings(None), log_class, ..defaults };
    if Class::of_size(config.log_class).is_none() {
        return Err(BadArgument::new("log_class", "not one of 64, 128, 256, 512 KiB, 1, 2 and 4 MiB, in bytes").into());
    }
    let of_retries = |retries| UtxoSettingsChange { least_retries: Some(retries), ..Default::default() };
    config.changed(&ConfigChange {
        max_stable_pages: arg.max_stable_pages,
        nodes: arg.nodes,
        reserved_cycles_limit: arg.reserved_cycles_limit,
        utxo: arg.least_retries.map(of_retries),
        ..ConfigChange::default()
    })
}

/// The settings of the UTXO store, given the persisted ones; `None` in the build without UTXO records.
pub fn utxo_settings(stored: Option<UtxoSettings>) -> Option<UtxoSettings> {
    cfg!(feature = "records").then(|| stored.unwrap_or_default())
}

/// The class of the log's blobs.
pub fn class(config: &Config) -> Class {
    Class::of_size(config.log_class).expect("checked when it was set")
}

/// The cap on billed bytes for new records (`max_utxo_bytes`), given the policy's target.
pub fn records_cap(config: &Config, target_bytes: u64) -> u64 {
    let pages = config.max_stable_pages;
    let max_utxo_bytes = config.utxo.as_ref().map_or(0, |utxo| utxo.max_utxo_bytes);
    match (max_utxo_bytes, target_bytes) {
        (0, 0) => (pages * ic_coppice_storage::WASM_PAGE).saturating_sub(records_reserve(pages)) / 2,
        (0, target) => greatest_records(pages, config.log_class, target),
        (bytes, _) => bytes,
    }
}

/// The liquid cycles below which feeding calls are refused (`feed_min_liquid_cycles`), given the timer's interval.
pub fn feed_min(config: &Config, timer_interval_secs: u64) -> u128 {
    match config.feed_min_liquid_cycles {
        0 => config.min_liquid_cycles.saturating_add(cycles_of_ticks(timer_interval_secs, FEED_SECS, config.nodes)),
        cycles => cycles,
    }
}

/// The cap on the memory of records, and the bytes that they kept when the cap was set. Memory above both is the reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsCap {
    /// The cap.
    pub cap: u64,
    /// The bytes that records touched when the cap was set.
    pub kept: u64,
}

/// The cell's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The settings.
    pub config: Config,
    /// The roles.
    pub roles: Roles,
    /// Time since which deletions are stopped, in Unix nanoseconds; `None` if they are not.
    pub deletions_stopped: Option<u64>,
    /// The cap on the memory of records.
    pub records: RecordsCap,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    #[test]
    fn a_value_out_of_its_range_is_refused_with_its_name() {
        let change =
            ConfigChange { verify_segments: Some(false), upload_expiry_secs: Some(0), ..ConfigChange::default() };
        let refused = Config::default().changed(&change);
        assert!(
            matches!(refused, Err(ConfigError::BadArgument(BadArgument { field, .. })) if field == "upload_expiry_secs")
        );
        let arg = InitArg { log_class: Some(100_000), ..InitArg::default() };
        assert!(matches!(new(&arg), Err(ConfigError::BadArgument(BadArgument { field, .. })) if field == "log_class"));
    }

    /// A cell without these settings is read with their defaults, and the other settings stay.
    #[test]
    fn absent_settings_have_their_defaults() {
        let mut before = Config { verify_segments: false, upload_expiry_secs: 3_600, ..Config::default() };
        before.open_queries = true;
        let mut value = ciborium::Value::serialized(&before).unwrap();
        let fields = value.as_map_mut().unwrap();
        let new = [
            "feed_min_liquid_cycles",
            "max_rollback_blocks",
            "open_queries",
            "message_bucket",
            "messages_per_minute",
            "max_head_age_secs",
            "public_logs",
            "set_up_as_meant",
        ];
        fields.retain(|(name, _)| name.as_text().is_some_and(|name| !new.contains(&name)));
        let read: Config = value.deserialized().unwrap();
        assert_eq!(
            read,
            Config { max_rollback_blocks: 1_000, open_queries: false, max_head_age_secs: 86_400, ..before }
        );
    }

    /// The memory limit is applied at once, and after an upgrade.
    #[test]
    fn memory_cap_applies_at_once_and_after_an_upgrade() {
        crate::platform::native::reset();
        memory::forget();
        let init = InitArg { max_stable_pages: Some(40_000), ..InitArg::default() };
        crate::state::init(&init).unwrap();
        assert_eq!(memory::max_pages(), 40_000);
        let change = ConfigChange { max_stable_pages: Some(50_000), ..ConfigChange::default() };
        crate::state::mutate(|state| state.set_config("set_config", &change)).unwrap();
        assert_eq!(memory::max_pages(), 50_000);
        memory::forget();
        crate::state::upgrade(None).unwrap();
        assert_eq!(memory::max_pages(), 50_000);
    }
}

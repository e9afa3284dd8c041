//! The settings, persisted with the roles in one cell.

use crate::settings::roles::Roles;
use crate::storage::blob::{Class, GRANULE, MAX_GRANULES};
use crate::storage::memory::{self, Region};
use crate::storage::places;
use coppice_interface::RECORDS_RESERVE;
use coppice_interface::{
    Config, ConfigChange, ConfigError, InitArg, MAX_STABLE_PAGES, UtxoSettings, UtxoSettingsChange, chain_begins,
    cycles_of_ticks,
};
use coppice_storage::cell::Cell;
use coppice_storage::header::Header;
use serde::{Deserialize, Serialize};

/// The cell of settings and roles.
const CELL: Cell = Cell {
    at: places::CONFIG,
    capacity: 64 << 10,
    header: Header { name: "settings and roles", magic: *b"CPCF", version: 1 },
};
/// Fewest pages with which an empty canister starts: a bucket for each region, one to spare, and the reserve of records.
const MIN_PAGES: u64 = 4_096 + RECORDS_RESERVE / memory::WASM_PAGE;

/// Most pages of a canister: 500 GiB.
const MAX_PAGES: u64 = MAX_GRANULES * GRANULE / memory::WASM_PAGE;
const _: () = assert!(MAX_PAGES == MAX_STABLE_PAGES);

/// Most messages of a bucket, and most by which it refills in a minute.
const MAX_MESSAGES: u32 = 1_000_000;

/// Seconds of ticks for which cycles are to be left where feeding ends: 30 days.
const FEED_SECS: u64 = 30 * 86_400;

/// Most nodes that a subnet is taken to have.
const MAX_NODES: u32 = 1_000;

fn invalid(field: &str, why: impl Into<String>) -> ConfigError {
    ConfigError::Invalid { field: field.into(), why: why.into() }
}

/// What the canister does with its settings.
pub trait Settings: Sized {
    /// The settings of a new canister.
    ///
    /// # Errors
    /// `Invalid`.
    fn new(arg: &InitArg) -> Result<Self, ConfigError>;
    /// The class of the log's blobs.
    fn class(&self) -> Class;
    /// Applies the memory limits.
    fn bound_memory(&self);
    /// The bytes that may be billed for new records, where the chain's target is this (`max_utxo_bytes`).
    fn records_cap(&self, target_bytes: u64) -> u64;
    /// The liquid cycles below which what feeds is refused, where the timer has this interval (`feed_min_liquid_cycles`).
    fn feed_min(&self, timer_interval_secs: u64) -> u128;
    /// Changes the settings, or none of them.
    ///
    /// # Errors
    /// `Invalid`.
    fn apply(&mut self, change: &ConfigChange) -> Result<(), ConfigError>;
}

impl Settings for Config {
    fn new(arg: &InitArg) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if let Some(log_class) = arg.log_class {
            config.log_class = log_class;
        }
        if Class::of_size(config.log_class).is_none() {
            return Err(invalid("log_class", "not one of 64, 128, 256, 512 KiB, 1, 2 and 4 MiB, in bytes"));
        }
        config.apply(&ConfigChange {
            max_stable_pages: arg.max_stable_pages,
            nodes: arg.nodes,
            reserved_cycles_limit: arg.reserved_cycles_limit,
            utxo: Some(UtxoSettingsChange { least_retries: arg.least_retries, ..Default::default() }),
            ..ConfigChange::default()
        })?;
        Ok(config)
    }

    fn class(&self) -> Class {
        Class::of_size(self.log_class).expect("checked when it was set")
    }

    fn bound_memory(&self) {
        memory::manager().set_max_pages(self.max_stable_pages);
        memory::set_terms(self.nodes, self.reserved_cycles_limit);
    }

    fn records_cap(&self, target_bytes: u64) -> u64 {
        let left = (self.max_stable_pages * memory::WASM_PAGE).saturating_sub(RECORDS_RESERVE);
        match (self.utxo.max_utxo_bytes, target_bytes) {
            (0, 0) => left / 2,
            (0, target) => left.saturating_sub(target.saturating_add(chain_begins(self.log_class))),
            (bytes, _) => bytes,
        }
    }

    fn feed_min(&self, timer_interval_secs: u64) -> u128 {
        match self.feed_min_liquid_cycles {
            0 => {
                let ticks = cycles_of_ticks(timer_interval_secs, FEED_SECS, self.nodes);
                self.min_liquid_cycles.saturating_add(ticks)
            }
            cycles => cycles,
        }
    }

    fn apply(&mut self, change: &ConfigChange) -> Result<(), ConfigError> {
        let mut new = self.clone();
        if let Some(pages) = change.max_stable_pages {
            if pages < MIN_PAGES {
                return Err(invalid(
                    "max_stable_pages",
                    format!("an empty canister needs {MIN_PAGES} pages of 64 KiB"),
                ));
            }
            if pages > MAX_PAGES {
                return Err(invalid("max_stable_pages", format!("the platform allows {MAX_PAGES} pages of 64 KiB")));
            }
            new.max_stable_pages = pages;
        }
        if let Some(secs) = change.upload_expiry_secs {
            if secs == 0 {
                return Err(invalid("upload_expiry_secs", "an upload would expire at once"));
            }
            new.upload_expiry_secs = secs;
        }
        new.verify_segments = change.verify_segments.unwrap_or(new.verify_segments);
        new.min_liquid_cycles = change.min_liquid_cycles.unwrap_or(new.min_liquid_cycles);
        new.feed_min_liquid_cycles = change.feed_min_liquid_cycles.unwrap_or(new.feed_min_liquid_cycles);
        within("nodes", change.nodes, (1, MAX_NODES), &mut new.nodes)?;
        new.reserved_cycles_limit = change.reserved_cycles_limit.unwrap_or(new.reserved_cycles_limit);
        new.require_export = change.require_export.unwrap_or(new.require_export);
        new.max_rollback_blocks = change.max_rollback_blocks.unwrap_or(new.max_rollback_blocks);
        new.open_queries = change.open_queries.unwrap_or(new.open_queries);
        within("message_bucket", change.message_bucket, (10, MAX_MESSAGES), &mut new.message_bucket)?;
        within("messages_per_minute", change.messages_per_minute, (1, MAX_MESSAGES), &mut new.messages_per_minute)?;
        new.max_head_age_secs = change.max_head_age_secs.unwrap_or(new.max_head_age_secs);
        new.public_logs = change.public_logs.unwrap_or(new.public_logs);
        new.set_up_as_meant = change.set_up_as_meant.unwrap_or(new.set_up_as_meant);
        if let Some(change) = &change.utxo {
            apply_utxo(&mut new.utxo, change)?;
        }
        *self = new;
        Ok(())
    }
}

/// Takes a new value over, if there is one and it is within bounds.
///
/// # Errors
/// `Invalid`, and the old value stays.
pub fn within<T: PartialOrd + Copy + std::fmt::Display>(
    field: &str,
    value: Option<T>,
    (least, most): (T, T),
    place: &mut T,
) -> Result<(), ConfigError> {
    match value {
        Some(value) if value < least || value > most => {
            Err(invalid(field, format!("{value} is not from {least} to {most}")))
        }
        Some(value) => {
            *place = value;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Changes the settings of the UTXO store in place.
fn apply_utxo(settings: &mut UtxoSettings, change: &UtxoSettingsChange) -> Result<(), ConfigError> {
    within("utxo_batch_size", change.utxo_batch_size, (1, 20_000), &mut settings.utxo_batch_size)?;
    let most = u32::MAX / 2;
    within("block_height_retention", change.block_height_retention, (0, most), &mut settings.block_height_retention)?;
    within("coinbase_maturity", change.coinbase_maturity, (0, most), &mut settings.coinbase_maturity)?;
    let after = change.reassign_spendable_after;
    within("reassign_spendable_after", after, (0, most), &mut settings.reassign_spendable_after)?;
    within("max_tx_size_in_store", change.max_tx_size_in_store, (0, 1 << 20), &mut settings.max_tx_size_in_store)?;
    within("max_external_bytes", change.max_external_bytes, (0, u64::MAX), &mut settings.max_external_bytes)?;
    settings.max_utxo_bytes = change.max_utxo_bytes.unwrap_or(settings.max_utxo_bytes);
    settings.max_deletion_rows = change.max_deletion_rows.unwrap_or(settings.max_deletion_rows);
    settings.max_dead_blob_deletions = change.max_dead_blob_deletions.unwrap_or(settings.max_dead_blob_deletions);
    within("max_leases_per_holder", change.max_leases_per_holder, (1, 256), &mut settings.max_leases_per_holder)?;
    settings.least_retries = change.least_retries.unwrap_or(settings.least_retries);
    let range = (1_000_000, 20_000_000_000);
    within("batch_instructions", change.batch_instructions, range, &mut settings.batch_instructions)?;
    settings.externalize_all = change.externalize_all.unwrap_or(settings.externalize_all);
    settings.require_extended = change.require_extended.unwrap_or(settings.require_extended);
    Ok(())
}

/// The cap on the memory of records, and what was billed for them when it was set, in bytes. Above both begins the reserve, which
/// an upgrade does not give back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsCap {
    /// The cap.
    pub cap: u64,
    /// The bytes that were billed when the cap was set.
    pub billed: u64,
}

/// The settings, and all else that the cell holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stored {
    /// The settings.
    pub config: Config,
    /// The roles.
    pub roles: Roles,
    /// Since when deletions are stopped, in Unix nanoseconds; none: they are not.
    pub deletions_stopped: Option<u64>,
    /// The cap on the memory of records.
    pub records: RecordsCap,
}

/// Reads the cell; `None` where it was never written.
pub fn load(cells: &Region) -> Result<Option<Stored>, String> {
    Ok(CELL.load(cells)?)
}

/// Writes the cell.
pub fn save(cells: &Region, stored: &Stored) -> Result<(), String> {
    CELL.save(cells, stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_change_changes_nothing() {
        let mut config = Config::default();
        let change =
            ConfigChange { verify_segments: Some(false), upload_expiry_secs: Some(0), ..ConfigChange::default() };
        assert!(
            matches!(config.apply(&change), Err(ConfigError::Invalid { field, .. }) if field == "upload_expiry_secs")
        );
        assert_eq!(config, Config::default());
        let arg = InitArg { log_class: Some(100_000), ..InitArg::default() };
        assert!(matches!(Config::new(&arg), Err(ConfigError::Invalid { field, .. }) if field == "log_class"));
    }

    /// What was persisted before there were these settings is read with their defaults, and all else stays.
    #[test]
    fn settings_that_are_absent_have_their_defaults() {
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

    /// What bounds memory does so at once, and after an upgrade.
    #[test]
    fn the_cap_on_memory_is_in_force_whenever_it_is_known() {
        crate::platform::native::reset();
        memory::forget();
        let init = InitArg { max_stable_pages: Some(40_000), ..InitArg::default() };
        crate::state::init(Some(coppice_interface::CanisterArg::Init(init))).unwrap();
        assert_eq!(memory::manager().max_pages(), 40_000);
        let change = ConfigChange { max_stable_pages: Some(50_000), ..ConfigChange::default() };
        crate::state::mutate(|state| state.set_config("set_config", &change)).unwrap();
        assert_eq!(memory::manager().max_pages(), 50_000);
        memory::forget();
        crate::state::upgrade(None).unwrap();
        assert_eq!(memory::manager().max_pages(), 50_000);
    }
}

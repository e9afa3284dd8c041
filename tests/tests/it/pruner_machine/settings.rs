//! The settings that histories change.

use coppice_interface::*;
use proptest::prelude::*;

/// More cycles than any canister has.
pub const FLOOR: u128 = 1 << 100;

/// A setting, and its new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    Enabled(bool),
    NoDeletion(bool),
    JobTimeout(u64),
    Chunk(u32),
    ChunksOfATick(u32),
    Defensive(bool),
    DefensiveBatch(u32),
    UtxoUnminedRetention(UtxoUnminedRetention),
    Preservation(u32),
    SafeHeight(UtxoSafeHeightRule),
    Ops(u64),
    Retention(u32),
    Page(u32),
    ExternalizeAll(bool),
    /// More liquid cycles are asked for than there are.
    Low(bool),
    /// Heights that a feeder may raise in a day. With one, nothing comes back in a history.
    HeightsPerDay(u32),
}

fn ops() -> impl Strategy<Value = Setting> {
    prop_oneof![6 => 1u64..8, 3 => Just(200_000)].prop_map(Setting::Ops)
}

fn defensive() -> impl Strategy<Value = Setting> {
    any::<bool>().prop_map(Setting::Defensive)
}

fn retention() -> impl Strategy<Value = Setting> {
    prop_oneof![1 => Just(0u32), 5 => 1u32..4, 4 => 4u32..12].prop_map(Setting::Retention)
}

fn unmined_retention() -> impl Strategy<Value = Setting> {
    prop_oneof![1 => Just(UtxoUnminedRetention::HalfOfRetention), 3 => (0u32..8).prop_map(UtxoUnminedRetention::Blocks)]
        .prop_map(Setting::UtxoUnminedRetention)
}

fn preservation() -> impl Strategy<Value = Setting> {
    (1u32..12).prop_map(Setting::Preservation)
}

fn rule() -> impl Strategy<Value = Setting> {
    prop_oneof![3 => Just(UtxoSafeHeightRule::Persisted), 1 => Just(UtxoSafeHeightRule::PersistedPlusRetention)]
        .prop_map(Setting::SafeHeight)
}

fn chunk() -> impl Strategy<Value = Setting> {
    prop_oneof![1u32..4, Just(1_000)].prop_map(Setting::Chunk)
}

fn timeout() -> impl Strategy<Value = Setting> {
    prop_oneof![1 => Just(15u64), 3 => Just(600)].prop_map(Setting::JobTimeout)
}

fn page() -> impl Strategy<Value = Setting> {
    prop_oneof![2 => 1u32..3, 3 => Just(20_000)].prop_map(Setting::Page)
}

/// A change in the middle of a history.
pub fn setting() -> impl Strategy<Value = Setting> {
    prop_oneof![
        1 => any::<bool>().prop_map(Setting::Enabled),
        1 => prop_oneof![1 => Just(true), 3 => Just(false)].prop_map(Setting::NoDeletion),
        1 => timeout(),
        2 => chunk(),
        1 => (1u32..3).prop_map(Setting::ChunksOfATick),
        4 => defensive(),
        1 => prop_oneof![1u32..3, Just(10_000)].prop_map(Setting::DefensiveBatch),
        2 => unmined_retention(),
        1 => preservation(),
        2 => rule(),
        4 => ops(),
        2 => retention(),
        1 => page(),
        1 => any::<bool>().prop_map(Setting::ExternalizeAll),
        2 => prop_oneof![1 => Just(true), 2 => Just(false)].prop_map(Setting::Low),
    ]
}

/// What a history starts with: what is small shows more than what an operator would choose.
pub fn first() -> impl Strategy<Value = Vec<Setting>> {
    let pruner = (timeout(), chunk(), defensive(), unmined_retention(), preservation(), ops());
    let store = (rule(), retention(), page(), prop_oneof![2 => Just(false), 1 => Just(true)]);
    (pruner, store).prop_map(|((a, b, c, d, e, f), (g, h, i, all))| {
        vec![a, b, c, d, e, f, g, h, i, Setting::ExternalizeAll(all), Setting::HeightsPerDay(1)]
    })
}

/// The settings in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub pruner: UtxoPrunerSettings,
    pub utxo: UtxoSettings,
    /// Liquid cycles are below what is asked for.
    pub low: bool,
    /// The smallest `block_height_retention` that was ever in force, but 0.
    pub smallest_retention: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let utxo = UtxoSettings::default();
        let (pruner, smallest_retention) = (UtxoPrunerSettings::default(), utxo.block_height_retention);
        Self { pruner, low: false, smallest_retention, utxo }
    }
}

/// A change as a message says it.
#[derive(Clone, Debug)]
pub enum Change {
    Pruner(UtxoPrunerSettingsChange),
    Utxo(UtxoSettingsChange),
    Floor(u128),
}

impl Setting {
    pub fn change(self) -> Change {
        let pruner = UtxoPrunerSettingsChange::default();
        let utxo = UtxoSettingsChange::default();
        Change::Pruner(match self {
            Self::Enabled(to) => UtxoPrunerSettingsChange { pruner_enabled: Some(to), ..pruner },
            Self::NoDeletion(to) => UtxoPrunerSettingsChange { disable_dah_cleaner: Some(to), ..pruner },
            Self::JobTimeout(to) => UtxoPrunerSettingsChange { job_timeout: Some(to), ..pruner },
            Self::Chunk(to) => UtxoPrunerSettingsChange { utxo_chunk_size: Some(to), ..pruner },
            Self::ChunksOfATick(to) => UtxoPrunerSettingsChange { utxo_chunk_group_limit: Some(to), ..pruner },
            Self::Defensive(to) => UtxoPrunerSettingsChange { utxo_defensive_enabled: Some(to), ..pruner },
            Self::DefensiveBatch(to) => UtxoPrunerSettingsChange { utxo_defensive_batch_read_size: Some(to), ..pruner },
            Self::UtxoUnminedRetention(to) => UtxoPrunerSettingsChange { unmined_tx_retention: Some(to), ..pruner },
            Self::Preservation(to) => UtxoPrunerSettingsChange { parent_preservation_blocks: Some(to), ..pruner },
            Self::SafeHeight(to) => UtxoPrunerSettingsChange { safe_height_rule: Some(to), ..pruner },
            Self::Ops(to) => UtxoPrunerSettingsChange { max_ops_per_tick: Some(to), ..pruner },
            Self::HeightsPerDay(to) => UtxoPrunerSettingsChange { heights_per_day: Some(to), ..pruner },
            Self::Retention(to) => {
                return Change::Utxo(UtxoSettingsChange { block_height_retention: Some(to), ..utxo });
            }
            Self::Page(to) => return Change::Utxo(UtxoSettingsChange { utxo_batch_size: Some(to), ..utxo }),
            Self::Low(to) => return Change::Floor(if to { FLOOR } else { 0 }),
            Self::ExternalizeAll(to) => {
                return Change::Utxo(UtxoSettingsChange { externalize_all: Some(to), ..utxo });
            }
        })
    }
}

impl Settings {
    pub fn apply(&mut self, setting: Setting) {
        let Self { pruner, utxo, low, smallest_retention } = self;
        match setting {
            Setting::Enabled(to) => pruner.pruner_enabled = to,
            Setting::NoDeletion(to) => pruner.disable_dah_cleaner = to,
            Setting::JobTimeout(to) => pruner.job_timeout = to,
            Setting::Chunk(to) => pruner.utxo_chunk_size = to,
            Setting::ChunksOfATick(to) => pruner.utxo_chunk_group_limit = to,
            Setting::Defensive(to) => pruner.utxo_defensive_enabled = to,
            Setting::DefensiveBatch(to) => pruner.utxo_defensive_batch_read_size = to,
            Setting::UtxoUnminedRetention(to) => pruner.unmined_tx_retention = to,
            Setting::Preservation(to) => pruner.parent_preservation_blocks = to,
            Setting::SafeHeight(to) => pruner.safe_height_rule = to,
            Setting::Ops(to) => pruner.max_ops_per_tick = to,
            Setting::Retention(to) => {
                utxo.block_height_retention = to;
                if to > 0 {
                    *smallest_retention = (*smallest_retention).min(to);
                }
            }
            Setting::Page(to) => utxo.utxo_batch_size = to,
            Setting::ExternalizeAll(to) => utxo.externalize_all = to,
            Setting::Low(to) => *low = to,
            Setting::HeightsPerDay(to) => pruner.heights_per_day = to,
        }
    }
}

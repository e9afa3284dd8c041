//! Settings that histories change.

use ic_coppice_interface::*;

/// More cycles than any canister has.
pub const FLOOR: u128 = 1 << 100;

/// The settings in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Settings of the pruner.
    pub pruner: UtxoPrunerSettings,
    /// Settings of records.
    pub utxo: UtxoSettings,
    /// True if the liquid cycles are below `min_liquid_cycles`.
    pub low: bool,
    /// The smallest `block_height_retention` ever in force, except 0.
    pub smallest_retention: u32,
}

/// A change, as the argument of a message.
#[derive(Clone, Debug)]
pub enum Change {
    /// `utxo_set_pruner_settings`.
    Pruner(UtxoPrunerSettingsChange),
    /// `set_config`, settings of records.
    Utxo(UtxoSettingsChange),
    /// `set_config`, least liquid cycles.
    Floor(u128),
}

/// Declares the settings of the pruner and of records, each with its field in the interface.
macro_rules! settings {
    ($($pruner:ident($p:ty): $field:ident,)+; $($utxo:ident($u:ty): $of_utxo:ident,)+) => {
        /// A setting, and its new value.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Setting {
            $(#[doc = stringify!($field)] $pruner($p),)+
            $(#[doc = stringify!($of_utxo)] $utxo($u),)+
            /// True: the least liquid cycles are more than there are.
            Low(bool),
        }

        impl Setting {
            /// Returns the message's argument that sets it.
            pub fn change(self) -> Change {
                match self {
                    $(Self::$pruner(to) => Change::Pruner(UtxoPrunerSettingsChange { $field: Some(to), ..Default::default() }),)+
                    $(Self::$utxo(to) => Change::Utxo(UtxoSettingsChange { $of_utxo: Some(to), ..Default::default() }),)+
                    Self::Low(to) => Change::Floor(if to { FLOOR } else { 0 }),
                }
            }

            /// Returns the settings that a message's argument sets.
            pub fn of(change: Change) -> Vec<Self> {
                match change {
                    Change::Pruner(change) => [$(change.$field.map(Self::$pruner),)+].into_iter().flatten().collect(),
                    Change::Utxo(change) => [$(change.$of_utxo.map(Self::$utxo),)+].into_iter().flatten().collect(),
                    Change::Floor(cycles) => vec![Self::Low(cycles == FLOOR)],
                }
            }
        }

        impl Settings {
            /// Sets a setting.
            pub fn apply(&mut self, setting: Setting) {
                match setting {
                    $(Setting::$pruner(to) => self.pruner.$field = to,)+
                    $(Setting::$utxo(to) => self.utxo.$of_utxo = to,)+
                    Setting::Low(to) => self.low = to,
                }
                if let Setting::Retention(to @ 1..) = setting {
                    self.smallest_retention = self.smallest_retention.min(to);
                }
            }
        }
    };
}

settings! {
    Enabled(bool): pruner_enabled,
    NoDeletion(bool): disable_dah_cleaner,
    JobTimeout(u64): job_timeout_secs,
    Chunk(u32): utxo_chunk_size,
    ChunksOfATick(u32): utxo_chunk_group_limit,
    Defensive(bool): utxo_defensive_enabled,
    DefensiveBatch(u32): utxo_defensive_batch_read_size,
    UtxoUnminedRetention(UtxoUnminedRetention): unmined_tx_retention,
    Preservation(u32): parent_preservation_blocks,
    SafeHeight(UtxoSafeHeightRule): safe_height_rule,
    // A tick with 1 instruction does one step.
    Instructions(u64): max_instructions_per_tick,
    // Heights that a producer may raise in a day. Histories set 1, so the budget does not refill within a history.
    HeightsPerDay(u32): heights_per_day,
    ;
    Retention(u32): block_height_retention,
    Page(u32): utxo_batch_size,
    ExternalizeAll(bool): externalize_all,
}

impl Default for Settings {
    fn default() -> Self {
        let utxo = UtxoSettings::default();
        let (pruner, smallest_retention) = (UtxoPrunerSettings::default(), utxo.block_height_retention);
        Self { pruner, low: false, smallest_retention, utxo }
    }
}

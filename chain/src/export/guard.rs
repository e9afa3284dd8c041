//! Export guard: the first block that pruning must keep. `due_and_floor` in `pruning/due.rs` compares it with the target whenever blocks
//! are due, and `Removals::next` in `remove.rs` stops there. `pruning/constraints.rs` joins it with those of applying and of stopped deletions.

use super::exporters::Exporters;
use ic_coppice_interface::HeldBy;

/// Bound of pruning, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Blocks from this number on are kept.
    pub before: u64,
    /// Reason for the bound.
    pub held_by: HeldBy,
}

/// Returns whether the guard holds pruning back: an exporter, the lack of one, or the UTXO records.
pub fn is_of_guard(held_by: &HeldBy) -> bool {
    matches!(held_by, HeldBy::Exporter(_) | HeldBy::KeylessExporter(_) | HeldBy::NoExporter | HeldBy::UtxoApply)
}

impl Exporters {
    /// Returns the bound of pruning, or `None` if there is no exporter and none is required.
    pub fn guard(&self, require_export: bool) -> Option<Guard> {
        let Some((name, entry)) = self.by_name.iter().min_by_key(|(_, entry)| entry.bound) else {
            return require_export.then_some(Guard { before: 0, held_by: HeldBy::NoExporter });
        };
        let named = if entry.principal.is_some() { HeldBy::Exporter } else { HeldBy::KeylessExporter };
        Some(Guard { before: entry.bound, held_by: named(name.clone()) })
    }
}

//! Records that are due and not deleted, by age: the blocks since their height. A kept record that the pruner examines again later is not
//! among them until then.

use super::UtxoPruner;
use crate::utxo::UtxoStore;
use coppice_interface::UtxoSettings;

/// Maximum number of records that are counted for each age.
const MOST_COUNTED: usize = 10_000;
/// Lowest age of each group, in blocks, with its name: up to an hour, up to a day, and older.
const AGES: [(&str, u32); 3] = [("0", 0), ("6", 6), ("144", 144)];

/// The oldest record that is due, and the heights that bound deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The height at which the record was due.
    pub due: u32,
    /// The height of the chain.
    pub current: u32,
    /// The height up to which records are deleted.
    pub safe: u32,
    /// The height of the block persister, and that of the block assembly, if they bound deletions.
    pub bounds: [Option<u32>; 2],
    /// The setting `disable_dah_cleaner`.
    pub is_disabled: bool,
}

impl Overdue {
    /// Returns the blocks since the record was due.
    pub fn age(&self) -> u32 {
        self.current - self.due
    }
}

impl UtxoPruner {
    /// Returns the oldest record that is due when the chain is at its present height, if there is one.
    pub fn overdue(&self, records: &UtxoStore, utxo: &UtxoSettings) -> Option<Overdue> {
        let stored = &self.stored;
        let due = records.first_due().filter(|due| *due <= stored.current)?;
        let persisted = Some(stored.persisted).filter(|height| *height > 0);
        Some(Overdue {
            due,
            current: stored.current,
            safe: self.safe_height(utxo, stored.current),
            bounds: [persisted, stored.assembly_height],
            is_disabled: stored.settings.disable_dah_cleaner,
        })
    }

    /// Returns the number of due records of each age, at most 10,000, by the lowest age in blocks.
    pub fn due_by_age(&self, records: &UtxoStore) -> impl Iterator<Item = (&'static str, usize)> {
        let current = self.stored.current;
        let next = AGES.into_iter().skip(1).map(|(_, age)| Some(age)).chain([None]);
        AGES.into_iter().zip(next).map(move |((name, age), next)| {
            // Ages from `age` to before `next` are heights from above `current - next` to `current - age`.
            let from = next.map_or(0, |next| (current + 1).saturating_sub(next));
            let count = current.checked_sub(age).map_or(0, |to| records.count_due((from, to), MOST_COUNTED));
            (name, count)
        })
    }
}

//! Records that are due and not deleted, by age: the blocks since their height. A kept record that the pruner examines again later is not
//! among them until then.

use super::UtxoPruner;
use crate::utxo::UtxoStore;

/// Maximum number of records that are counted for each age.
const MOST_COUNTED: usize = 10_000;
/// Lowest age of each group, in blocks, with its name: up to an hour, up to a day, and older.
const AGES: [(&str, u32); 3] = [("0", 0), ("6", 6), ("144", 144)];

impl UtxoPruner {
    /// Returns the height of the oldest record that is due when the chain is at its present height, if there is one.
    pub fn overdue(&self, records: &UtxoStore) -> Option<u32> {
        records.first_due().filter(|due| *due <= self.stored.current)
    }

    /// Returns the number of due records of each age, at most 10,000, by the lowest age in blocks.
    pub fn due_by_age(&self, records: &UtxoStore) -> impl Iterator<Item = (&'static str, u64)> {
        let current = self.stored.current;
        let next = AGES.into_iter().skip(1).map(|(_, age)| Some(age)).chain([None]);
        AGES.into_iter().zip(next).map(move |((name, age), next)| {
            // Ages from `age` to before `next` are heights from above `current - next` to `current - age`.
            let from = next.map_or(0, |next| (current + 1).saturating_sub(next));
            let count = current.checked_sub(age).map_or(0, |to| records.count_due((from, to), MOST_COUNTED));
            (name, count as u64)
        })
    }
}

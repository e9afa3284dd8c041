//! Sweeps of the indexes: their triggers, and their work in one message (`docs/design/pruning.md`). `postings/sweep.rs` does a
//! slice and keeps the debt and the cursor.
//!
//! A sweep pays off only if enough entries are stale, so it *begins* at a debt (stale entries) of an eighth of the live entries. The sweep then
//! waits for a pause of the producers, for at most 8 ticks. At the *forced* mark of three sixteenths the sweep runs
//! before pruning, so that a table's size is bounded even if the producers never pause.

use super::piece::Piece;
use crate::{ChainStore, IndexTable, TableDebt};
use ic_coppice_interface::{IndexDebt, StopReason, SweepPhase};
use ic_coppice_storage::table::Slice;
use ic_coppice_storage::{Budget, changed_pages};

/// Maximum ticks for which a sweep waits for a pause.
pub const MOST_PENDING_TICKS: u64 = 8;

/// Returns the debt at which a sweep begins in a pause.
pub fn begin_debt(table: &TableDebt) -> u64 {
    (table.live() / 8).max(4_096).max(table.buckets)
}

/// Returns the debt at which a sweep no longer waits for a pause.
fn forced_debt(table: &TableDebt) -> u64 {
    (table.live() / 16 * 3).max(6_144).max(table.buckets)
}

/// Need of a sweep, ordered by urgency. Sweeps run if it is at least `Continue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// A sweep may begin in a pause.
    Pause,
    /// A sweep is under way, or need not wait for a pause any more.
    Continue,
    /// The debt has reached the forced mark: the sweep runs before pruning.
    First,
}

/// Returns the more urgent need of the two indexes.
pub fn need(chain: &ChainStore) -> Need {
    let of = |table| {
        let debt = chain.debt(table);
        if debt.debt >= forced_debt(&debt) {
            Need::First
        } else if debt.sweeping {
            Need::Continue
        } else if debt.debt >= begin_debt(&debt) {
            Need::Pause
        } else {
            Need::Nothing
        }
    };
    let [ids, keys] = IndexTable::ALL.map(of);
    ids.max(keys)
}

/// Returns the phase of the sweeps as `prune_status` reports it.
pub fn phase(chain: &ChainStore) -> SweepPhase {
    let tables = IndexTable::ALL.map(|table| chain.debt(table));
    match need(chain) {
        _ if tables.iter().any(|table| table.sweeping) => SweepPhase::Applying,
        Need::First | Need::Continue | Need::Pause => SweepPhase::Ready,
        Need::Nothing if tables.iter().any(|table| table.debt > 0) => SweepPhase::Collecting,
        Need::Nothing => SweepPhase::Idle,
    }
}

/// Work that a message's sweeps have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Slices.
    pub slices: u64,
    /// Dropped entries.
    pub dropped: u64,
    /// The limit that stopped the sweep, if one did.
    pub stopped: Option<StopReason>,
}

/// Returns the next slice of the first sweep that is due.
pub fn next(chain: &ChainStore) -> Option<Piece> {
    let table = IndexTable::ALL.into_iter().find(|&table| is_due(&chain.debt(table), begin_debt))?;
    Some(Piece::Slice(table, chain.next_slice(table)))
}

/// Returns whether a table is being swept, or has the least debt for a sweep.
fn is_due(debt: &TableDebt, least: fn(&TableDebt) -> u64) -> bool {
    debt.debt >= least(debt) || debt.sweeping
}

/// Sweeps the indexes with the least debt to their ends, skips the slices in `skipped`, and adds the work to `swept`.
///
/// # Errors
/// The limit of the budget that stops a sweep.
pub fn run(
    chain: &mut ChainStore,
    least: fn(&TableDebt) -> u64,
    budget: &mut Budget,
    skipped: &[Piece],
    swept: &mut Swept,
) -> Result<(), StopReason> {
    let began = changed_pages();
    for table in IndexTable::ALL {
        let mut goes_on = is_due(&chain.debt(table), least);
        while goes_on {
            budget.admit_slice()?;
            let at = chain.sweep_state(table).cursor();
            let slice = if skipped.contains(&Piece::Slice(table, chain.next_slice(table))) {
                chain.skip_slice(table);
                Slice::default()
            } else {
                chain.sweep(table, budget.meter().since(began))
            };
            budget.charge(slice.dropped, slice.read);
            let next = chain.sweep_state(table).cursor();
            if next.is_some() && next == at {
                // The meter has no room for the next bucket.
                return Err(budget.limit_met().into());
            }
            swept.slices += 1;
            swept.dropped += slice.dropped;
            goes_on = next.is_some();
        }
    }
    Ok(())
}

/// Returns the status of a table.
pub fn status(chain: &ChainStore, table: IndexTable) -> IndexDebt {
    let (debt, sweep) = (chain.debt(table), chain.sweep_state(table));
    IndexDebt {
        entries: debt.entries,
        buckets: debt.buckets,
        debt: debt.debt,
        begin_debt: begin_debt(&debt),
        forced_debt: forced_debt(&debt),
        cursor: sweep.cursor(),
        dropped: sweep.dropped,
        sweeps: sweep.finished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_marks_are_shares_of_live_entries() {
        let table = |entries, debt| TableDebt { entries, buckets: entries / 17, debt, sweeping: false };
        assert_eq!((begin_debt(&table(10, 0)), forced_debt(&table(10, 0))), (4_096, 6_144));
        let large = table(1_125_000, 125_000);
        assert_eq!((begin_debt(&large), forced_debt(&large)), (125_000, 187_500));
        // A table that was larger once: a sweep still walks all its buckets.
        let shrunk = TableDebt { entries: 50_000, buckets: 60_000, debt: 0, sweeping: false };
        assert_eq!((begin_debt(&shrunk), forced_debt(&shrunk)), (60_000, 60_000));
        assert_eq!(table(5, 9).live(), 0, "a debt is an upper bound");
    }
}

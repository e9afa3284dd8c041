//! Stop: the reason why the next transaction cannot be applied, kept for `health`.
//!
//! A stop lasts until the position moves: until the transaction can be applied, is skipped or is taken back with its block, or until applying
//! ends.

use crate::places;
use ic_coppice_interface::text::cut;
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{OpenError, Space};
use serde::{Deserialize, Serialize};

const CELL: Cell = Cell {
    at: places::APPLY_STOP,
    capacity: places::APPLY_STOP_LEN,
    header: Header { name: "stop of applying", magic: *b"CPST", version: 2 },
};
/// Bytes of the longest sentence.
const MOST: usize = places::APPLY_STOP_LEN - 64;

/// A stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Time at which applying first stopped for this reason.
    pub since_ns: u64,
    /// The transaction, the output and the reason, as a sentence.
    pub text: String,
}

impl Stop {
    /// Reads the cell; a cell that was never written has no stop.
    pub fn load(cells: &Space) -> Result<Option<Self>, OpenError> {
        Ok(CELL.load(cells)?.flatten())
    }

    /// Writes the cell.
    pub fn save(stop: Option<&Self>, cells: &Space) {
        CELL.keep(cells, &stop.map(|stop| Self { since_ns: stop.since_ns, text: cut(&stop.text, MOST) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_storage::{testing, twin};

    #[test]
    fn stop_is_read_back_and_a_long_sentence_is_cut() {
        twin::reset();
        testing::forget();
        let cells = testing::cells();
        assert_eq!(Stop::load(&cells), Ok(None));
        let stop = Stop { since_ns: u64::MAX, text: "block 1".into() };
        Stop::save(Some(&stop), &cells);
        assert_eq!(Stop::load(&cells), Ok(Some(stop)));
        let long = Stop { since_ns: u64::MAX, text: "ä".repeat(2_000) };
        Stop::save(Some(&long), &cells);
        assert_eq!(Stop::load(&cells).unwrap().unwrap().text, "ä".repeat(478) + "…");
        Stop::save(None, &cells);
        assert_eq!(Stop::load(&cells), Ok(None));
    }
}

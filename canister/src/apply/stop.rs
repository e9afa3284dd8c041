//! Stop: the reason why applying stands at its position, kept for `health`.
//!
//! ```text
//! cell: 0 magic "CPST"  4 version u16  6 bytes of the sentence u16, 0: no stop  8 time u64 (Unix nanoseconds)  16 sentence
//! ```
//! A stop lasts until the position moves: until the transaction can be applied, is skipped or is taken back with its block, or until applying
//! ends.

use crate::storage::memory::Space;
use crate::storage::places;
use coppice_storage::bytes::{array_at, u64_at};
use coppice_storage::header::Header;

const LAYOUT: Header = Header { name: "stop of applying", magic: *b"CPST", version: 1 };
const TEXT_AT: usize = 16;

/// A stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Time at which applying first stopped for this reason.
    pub since_ns: u64,
    /// The transaction, the output and the reason, as a sentence.
    pub text: String,
}

impl Stop {
    /// Reads the cell; a cell that was never written has no stop.
    ///
    /// # Errors
    /// A sentence if this code did not write the cell.
    pub fn load(cells: &Space) -> Result<Option<Self>, String> {
        let bytes: [u8; places::APPLY_STOP_LEN] = cells.read(places::APPLY_STOP);
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        LAYOUT.check(&array_at(&bytes, 0))?;
        let len = usize::from(u16::from_le_bytes(array_at(&bytes, 6)));
        let text = bytes.get(TEXT_AT..TEXT_AT + len).and_then(|text| String::from_utf8(text.to_vec()).ok());
        let text = text.ok_or_else(|| format!("{}: the sentence", LAYOUT.name))?;
        Ok(Some(Self { since_ns: u64_at(&bytes, 8), text }).filter(|stop| !stop.text.is_empty()))
    }

    /// Writes the cell.
    pub fn save(stop: Option<&Self>, cells: &Space) {
        let mut bytes = [0; places::APPLY_STOP_LEN];
        bytes[..8].copy_from_slice(&LAYOUT.encode());
        if let Some(Self { since_ns, text }) = stop {
            let text = &text[..text.floor_char_boundary(places::APPLY_STOP_LEN - TEXT_AT)];
            bytes[6..8].copy_from_slice(&(text.len() as u16).to_le_bytes());
            bytes[8..16].copy_from_slice(&since_ns.to_le_bytes());
            bytes[TEXT_AT..TEXT_AT + text.len()].copy_from_slice(text.as_bytes());
        }
        cells.write(places::APPLY_STOP, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;
    use crate::storage::memory;

    #[test]
    fn stop_is_read_back_and_a_long_sentence_is_cut() {
        native::reset();
        memory::forget();
        let cells = crate::testing::space(memory::CELLS);
        assert_eq!(Stop::load(&cells), Ok(None));
        let stop = Stop { since_ns: 7, text: "block 1".into() };
        Stop::save(Some(&stop), &cells);
        let begin: [u8; 17] = cells.read(places::APPLY_STOP);
        assert_eq!(begin, *b"CPST\x01\0\x07\0\x07\0\0\0\0\0\0\0b");
        assert_eq!(Stop::load(&cells), Ok(Some(stop)));
        let long = Stop { since_ns: 7, text: "ä".repeat(2_000) };
        Stop::save(Some(&long), &cells);
        assert_eq!(Stop::load(&cells).unwrap().unwrap().text, "ä".repeat(504));
        Stop::save(None, &cells);
        assert_eq!(Stop::load(&cells), Ok(None));
        cells.write(places::APPLY_STOP + 4, &[9]);
        assert!(Stop::load(&cells).is_err());
    }
}

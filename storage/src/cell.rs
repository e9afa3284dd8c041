//! Cells: small values at fixed places of a space, as CBOR with a checksum.
//!
//! ```text
//! 0 header (magic, version, reserved)   8 length u32   12 CBOR   … checksum u32
//! ```

use crate::checksum::{self, CHECKSUM};
use crate::header::{HEADER, Header};
use crate::{OpenError, Platform, Space, cbor};
use serde::{Serialize, de::DeserializeOwned};

/// Bytes before the CBOR.
const HEAD: usize = HEADER + 4;

/// The place and the header of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Bytes from the start of the space.
    pub at: u64,
    /// Maximum bytes of the cell, its head and checksum included.
    pub capacity: usize,
    /// Name, magic and version.
    pub header: Header,
}

impl Cell {
    /// Returns the bytes of the cell; none if it was never written.
    fn bytes(&self, cells: &Space<impl Platform>) -> Result<Vec<u8>, OpenError> {
        let head: [u8; HEAD] = cells.read(self.at);
        let mut bytes = Vec::new();
        if head == [0; HEAD] {
            return Ok(bytes);
        }
        let (_, len) = head.split_last_chunk().expect("a head is longer than a length");
        let len = (u32::from_le_bytes(*len) as usize).min(self.capacity - HEAD - CHECKSUM);
        cells.read_onto(&mut bytes, self.at, HEAD + len + CHECKSUM);
        if checksum::is_right(&bytes) { Ok(bytes) } else { Err(OpenError::Damaged { name: self.header.name }) }
    }

    /// Reads the value; `None` if the cell was never written.
    ///
    /// # Errors
    /// [`OpenError`] if the cell is damaged, has another layout, or its value cannot be decoded.
    pub fn load<T: DeserializeOwned>(&self, cells: &Space<impl Platform>) -> Result<Option<T>, OpenError> {
        let bytes = self.bytes(cells)?;
        let Some(header) = bytes.first_chunk() else { return Ok(None) };
        self.header.check(header)?;
        let value = cbor::read(&bytes[HEAD..bytes.len() - CHECKSUM]);
        value.map(Some).map_err(|why| self.header.corrupt(why))
    }

    /// Returns whether the checksum is wrong, or a cell that was written is empty.
    pub fn is_damaged(&self, cells: &Space<impl Platform>, was_written: bool) -> bool {
        self.bytes(cells).map_or(true, |bytes| bytes.is_empty() && was_written)
    }

    /// Writes the value.
    ///
    /// # Errors
    /// A sentence: the value is longer than the cell. Nothing has changed.
    pub fn save<T: Serialize>(&self, cells: &Space<impl Platform>, value: &T) -> Result<(), String> {
        // Room for most cells, because each growth of the vector takes some 400 instructions.
        let mut bytes = Vec::with_capacity(self.capacity.min(256));
        bytes.extend_from_slice(&self.header.encode());
        bytes.extend_from_slice(&[0; HEAD - HEADER]);
        let mut bytes = cbor::write_onto(bytes, value)?;
        let len = (bytes.len() - HEAD) as u32;
        bytes[HEADER..HEAD].copy_from_slice(&len.to_le_bytes());
        bytes.extend([0; CHECKSUM]);
        if bytes.len() > self.capacity {
            return Err(format!("{} bytes in a cell of {}", bytes.len(), self.capacity));
        }
        checksum::put(&mut bytes);
        cells.write(self.at, &bytes);
        Ok(())
    }

    /// Writes the value. Traps if the value is longer than the cell.
    #[inline(never)]
    pub fn keep<P: Platform>(&self, cells: &Space<P>, value: &impl Serialize) {
        if let Err(why) = self.save(cells, value) {
            P::trap(&format!("{}: {why}", self.header.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CELLS, fresh, space};

    const CELL: Cell =
        Cell { at: 4_096, capacity: 24, header: Header { name: "letters", magic: *b"ABCD", version: 1 } };

    #[test]
    fn value_follows_header_and_length_and_a_longer_one_is_refused() {
        fresh();
        let cells = space(CELLS);
        cells.reserve(8_192).unwrap();
        assert_eq!(CELL.load::<u32>(&cells), Ok(None));
        CELL.save(&cells, &"abc").unwrap();
        assert_eq!(cells.read(4_096), *b"ABCD\x01\0\0\0\x04\0\0\0\x63abc");
        assert_eq!(CELL.load(&cells), Ok(Some("abc".to_string())));
        assert_eq!(CELL.save(&cells, &"abcdefgh"), Err("25 bytes in a cell of 24".into()));
        assert_eq!(CELL.load(&cells), Ok(Some("abc".to_string())), "nothing has changed");
        assert!(matches!(CELL.load::<u32>(&cells), Err(OpenError::Corrupt { name: "letters", .. })));
        let next = Cell { header: Header { version: 2, ..CELL.header }, ..CELL };
        assert!(matches!(next.load::<String>(&cells), Err(OpenError::Header { .. })), "another version");
    }

    #[test]
    fn cell_with_a_flipped_bit_is_damaged() {
        fresh();
        let cells = space(CELLS);
        cells.reserve(8_192).unwrap();
        CELL.save(&cells, &"abc").unwrap();
        for bit in 0..8 * 20 {
            let at = 4_096 + bit / 8;
            let [byte] = cells.read(at);
            cells.write(at, &[byte ^ 1 << (bit % 8)]);
            assert_eq!(CELL.load::<String>(&cells), Err(OpenError::Damaged { name: "letters" }), "bit {bit}");
            assert!(CELL.is_damaged(&cells, true) && CELL.is_damaged(&cells, false), "bit {bit}");
            cells.write(at, &[byte]);
        }
        assert!(!CELL.is_damaged(&cells, true) && !CELL.is_damaged(&cells, false));
        cells.write(4_096, &[0; HEAD]);
        assert!(CELL.is_damaged(&cells, true) && !CELL.is_damaged(&cells, false), "as if it was never written");
    }
}

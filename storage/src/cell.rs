//! Cells: small values at fixed places of a space, as CBOR.
//!
//! ```text
//! 0 header (magic, version, reserved)   8 length u32   12 CBOR
//! ```

use crate::header::{HEADER, Header};
use crate::{OpenError, Platform, Space};
use serde::{Serialize, de::DeserializeOwned};

/// Bytes before the CBOR.
const HEAD: usize = HEADER + 4;

/// The place and the header of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Bytes from the start of the space.
    pub at: u64,
    /// Maximum bytes of the cell, its head included.
    pub capacity: usize,
    /// Name, magic and version.
    pub header: Header,
}

impl Cell {
    /// Reads the value; `None` if the cell was never written.
    ///
    /// # Errors
    /// [`OpenError`] if another layout is found, or the value cannot be decoded.
    pub fn load<T: DeserializeOwned>(&self, cells: &Space<impl Platform>) -> Result<Option<T>, OpenError> {
        let head: [u8; HEAD] = cells.read(self.at);
        if head == [0; HEAD] {
            return Ok(None);
        }
        let (header, len) = head.split_first_chunk().expect("a head is longer than a header");
        self.header.check(header)?;
        let len = u32::from_le_bytes(*len.first_chunk().expect("four bytes")) as usize;
        let mut bytes = Vec::new();
        cells.read_onto(&mut bytes, self.at + HEAD as u64, len.min(self.capacity - HEAD));
        let value = ciborium::from_reader(bytes.as_slice());
        value.map(Some).map_err(|error| OpenError::Corrupt { name: self.header.name, why: error.to_string() })
    }

    /// Writes the value.
    ///
    /// # Errors
    /// A sentence: the value is longer than the cell. Nothing has changed.
    pub fn save<T: Serialize>(&self, cells: &Space<impl Platform>, value: &T) -> Result<(), String> {
        let mut bytes = Vec::from(self.header.encode());
        bytes.extend([0; 4]);
        ciborium::into_writer(value, &mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() > self.capacity {
            return Err(format!("{} bytes in a cell of {}", bytes.len(), self.capacity));
        }
        let len = (bytes.len() - HEAD) as u32;
        bytes[HEADER..HEAD].copy_from_slice(&len.to_le_bytes());
        cells.write(self.at, &bytes);
        Ok(())
    }

    /// Writes the value. Traps if the value is longer than the cell.
    pub fn keep<P: Platform>(&self, cells: &Space<P>, value: &impl Serialize) {
        if let Err(why) = self.save(cells, value) {
            P::trap(&format!("{}: {why}", self.header.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{CELLS, fresh, space};

    const CELL: Cell =
        Cell { at: 4_096, capacity: 20, header: Header { name: "letters", magic: *b"ABCD", version: 1 } };

    #[test]
    fn value_follows_header_and_length_and_a_longer_one_is_refused() {
        fresh();
        let cells = space(CELLS);
        cells.reserve(8_192).unwrap();
        assert_eq!(CELL.load::<u32>(&cells), Ok(None));
        CELL.save(&cells, &"abc").unwrap();
        assert_eq!(cells.read(4_096), *b"ABCD\x01\0\0\0\x04\0\0\0\x63abc");
        assert_eq!(CELL.load(&cells), Ok(Some("abc".to_string())));
        assert_eq!(CELL.save(&cells, &"abcdefgh"), Err("21 bytes in a cell of 20".into()));
        assert_eq!(CELL.load(&cells), Ok(Some("abc".to_string())), "nothing has changed");
        assert!(matches!(CELL.load::<u32>(&cells), Err(OpenError::Corrupt { name: "letters", .. })));
        cells.write(4_096, b"X");
        assert!(matches!(CELL.load::<String>(&cells), Err(OpenError::Header { .. })));
    }
}

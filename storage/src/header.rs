//! Header of a layout: magic, version and two reserved bytes, written once and checked when the layout is opened.
//!
//! ```text
//! 0 magic, 4 bytes   4 version u16   6 reserved u16
//! ```

use crate::{OpenError, Platform, Space};

/// Bytes of a header.
pub const HEADER: usize = 8;

/// A layout's magic and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name of the layout in errors.
    pub name: &'static str,
    /// The first bytes of the layout.
    pub magic: [u8; 4],
    /// Version of the layout that the code reads and writes.
    pub version: u16,
}

impl Header {
    /// Returns the bytes of the header.
    pub const fn encode(&self) -> [u8; HEADER] {
        let [a, b, c, d] = self.magic;
        let [low, high] = self.version.to_le_bytes();
        [a, b, c, d, low, high, 0, 0]
    }

    /// Checks the bytes of a header, except the reserved bytes.
    ///
    /// # Errors
    /// [`OpenError::Header`] if the magic or the version differs.
    pub fn check(&self, bytes: &[u8; HEADER]) -> Result<(), OpenError> {
        let [a, b, c, d, low, high, ..] = *bytes;
        let (found, expected) = (([a, b, c, d], u16::from_le_bytes([low, high])), (self.magic, self.version));
        if found == expected { Ok(()) } else { Err(OpenError::Header { name: self.name, expected, found }) }
    }

    /// Returns the error of a structure whose content contradicts itself.
    pub fn corrupt(&self, why: String) -> OpenError {
        OpenError::Corrupt { name: self.name, why }
    }
}

impl<P: Platform> Space<P> {
    /// Opens a space that begins with a header, or reserves `[0, end)` of an empty one and writes the header. Returns whether the space was
    /// empty.
    pub fn begin(&self, header: &Header, end: u64) -> Result<bool, OpenError> {
        let is_new = self.is_empty();
        if is_new {
            self.reserve(end).map_err(|why| OpenError::Grow { name: header.name, why })?;
            self.write_header(0, header);
        }
        self.check_header(0, header)?;
        Ok(is_new)
    }

    /// Writes what the heap mirrors of a space that begins with a header, and the header.
    pub fn rewrite_with(&self, header: &Header) {
        self.rewrite();
        self.write_header(0, header);
    }

    /// Writes a header.
    pub fn write_header(&self, at: u64, header: &Header) {
        self.write(at, &header.encode());
    }

    /// Checks the header at `at`.
    ///
    /// # Errors
    /// [`OpenError::Header`] if the magic or the version differs.
    pub fn check_header(&self, at: u64, header: &Header) -> Result<(), OpenError> {
        header.check(&self.read(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Header = Header { name: "letters", magic: *b"ABCD", version: 258 };

    #[test]
    fn a_header_reads_back_and_another_magic_or_version_is_refused_with_both() {
        let bytes = LAYOUT.encode();
        assert_eq!(bytes, *b"ABCD\x02\x01\0\0");
        assert_eq!(LAYOUT.check(&bytes), Ok(()));
        assert_eq!(LAYOUT.check(b"ABCD\x02\x01\x09\x09"), Ok(()), "reserved bytes");
        let error = LAYOUT.check(b"ABCE\x02\x01\0\0").unwrap_err();
        assert_eq!(error.to_string(), "letters: magic \"ABCE\", version 258; this code reads \"ABCD\", version 258");
        assert!(LAYOUT.check(b"ABCD\x01\x01\0\0").unwrap_err().to_string().contains("version 257;"));
    }
}

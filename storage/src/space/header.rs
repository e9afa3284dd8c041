//! Headers in spaces.

use super::Space;
use crate::header::Header;
use crate::{OpenError, Platform};

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

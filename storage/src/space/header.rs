//! Headers in spaces.

use super::Space;
use crate::header::Header;
use crate::{OpenError, Platform};

impl Header {
    /// Opens a space that begins with the header, or reserves `[0, end)` of an empty one and writes the header. Returns whether it was
    /// empty.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, space: &Space<impl Platform>, end: u64) -> Result<bool, OpenError> {
        let is_new = space.is_empty();
        if is_new {
            space.reserve(end).map_err(|why| OpenError::Grow { name: self.name, why })?;
            self.write(space, 0);
        }
        self.read(space, 0)?;
        Ok(is_new)
    }

    /// Writes what the heap mirrors of a space that begins with the header, and the header.
    pub fn rewrite(&self, space: &Space<impl Platform>) {
        space.rewrite();
        self.write(space, 0);
    }

    /// Writes the header.
    pub fn write(&self, to: &Space<impl Platform>, at: u64) {
        to.write(at, &self.encode());
    }

    /// Checks the header at `at`.
    ///
    /// # Errors
    /// [`OpenError::Header`] if the magic or the version differs.
    pub fn read(&self, from: &Space<impl Platform>, at: u64) -> Result<(), OpenError> {
        self.check(&from.read(at))
    }
}

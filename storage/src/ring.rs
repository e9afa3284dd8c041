//! Ring: the last entries of a sequence, in slots of fixed size at a fixed place.

use std::ops::Range;

/// The place of a ring. Entry `number` lies in slot `number` % `slots`.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Bytes from the start of the region to the first slot.
    pub at: u64,
    /// Number of slots.
    pub slots: u64,
    /// Bytes of a slot.
    pub len: usize,
}

impl Ring {
    /// Returns the offset of an entry's slot.
    pub const fn slot(&self, number: u64) -> u64 {
        self.at + number % self.slots * self.len as u64
    }

    /// Returns the numbers of the kept entries when `written` entries were ever written.
    pub const fn kept(&self, written: u64) -> Range<u64> {
        written.saturating_sub(self.slots)..written
    }

    /// Returns the offset after the last slot.
    pub const fn end(&self) -> u64 {
        self.at + self.slots * self.len as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_entry_replaces_the_oldest_in_a_full_ring() {
        let ring = Ring { at: 100, slots: 3, len: 8 };
        assert_eq!([0, 2, 3].map(|number| ring.slot(number)), [100, 116, 100]);
        assert_eq!(
            [0, 2, 3, 4, u64::MAX].map(|written| ring.kept(written)),
            [0..0, 0..2, 0..3, 1..4, u64::MAX - 3..u64::MAX]
        );
        assert_eq!(ring.end(), 124);
    }
}

//! Chunks that the arena has reserved for slots.

/// Reserved chunks. Arrays are not compared here, because that is a loop over bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Chunks of 64 KiB.
    pub narrow: u32,
    /// Chunks of 256 KiB.
    pub wide: u32,
    /// There are more than that: granules of large slots, or what was taken or given since.
    pub other: bool,
    /// The arena's count of ended reservations; later ones have ended this reservation.
    pub at: u64,
}

impl Reserved {
    /// Returns whether no chunk is reserved.
    pub fn is_nothing(&self) -> bool {
        self.narrow == 0 && self.wide == 0 && !self.other
    }
}

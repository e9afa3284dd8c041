//! Message with its padding, and the types of blocks and states.

use super::compress::INITIAL;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// A block of a message.
pub type Block = [u8; BLOCK];
/// Words of a state, and of each word the lanes.
pub type State = [[u32; LANES]; 8];

/// Bytes of a block.
pub const BLOCK: usize = 64;
/// Messages that are hashed at once.
pub const LANES: usize = 4;
/// State of four messages before their first blocks.
pub const FRESH: State = {
    let [a, b, c, d, e, f, g, h] = INITIAL;
    [[a; LANES], [b; LANES], [c; LANES], [d; LANES], [e; LANES], [f; LANES], [g; LANES], [h; LANES]]
};

/// A message, and its padding: `blocks`, then blocks of the buffer.
pub struct Padded<'a> {
    /// Whole blocks of the message.
    pub blocks: &'a [Block],
    /// The first block in the buffer, and the block after the last one.
    pub tail: [usize; 2],
    /// Bytes of the message.
    pub len: u64,
}

impl Padded<'_> {
    /// Returns how many blocks are before the buffer, and in it.
    pub fn counts(&self) -> [usize; 2] {
        [self.blocks.len(), self.tail[1].wrapping_sub(self.tail[0])]
    }
}

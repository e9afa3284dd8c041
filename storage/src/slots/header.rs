//! Header of the slots, mirrored on the heap and written through.
//!
//! ```text
//! space SLOTS
//! 0   magic "CPSL"   4 version u16   6 reserved u16
//! 8   the owner's first slot u32, 0 for none   12 the same again
//! 64  a line for each of the 34 classes, and one for slots with granules of their own:
//!     0 first chunk with room u32   4 last chunk with room u32   8 slots in use u32   12 chunks u32
//! ```
//! A chunk is named by its first granule + 1; 0 for none. The last line has granules in place of chunks.

use super::class::{CLASSES, LARGE, SIZES, SlotId, granules_of, slots_of};
use crate::arena::GRANULE;
use crate::bytes::u32_at;
use crate::header::Header as Layout;
use crate::{OS_PAGE, OpenError, Platform, Space};

const LAYOUT: Layout = Layout { name: "slots", magic: *b"CPSL", version: 4 };
const ROOT: u64 = 8;
const LINES: u64 = 64;
const LINE: usize = 16;
const BYTES: usize = LINES as usize + LINE * LISTS;
const LISTS: usize = CLASSES + 1;

/// The chunks of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// First chunk with room.
    pub first: u32,
    /// Last chunk with room.
    pub last: u32,
    /// Slots in use.
    pub used: u32,
    /// Chunks, or granules of [`LARGE`] slots.
    pub chunks: u32,
}

impl List {
    fn encode(&self) -> [[u8; 4]; LINE / 4] {
        [self.first, self.last, self.used, self.chunks].map(u32::to_le_bytes)
    }
}

/// Returns a root twice, because a root with a flipped bit leads to another slot.
fn root_line(root: SlotId) -> u64 {
    u64::from(root) | u64::from(root) << 32
}

/// The header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The owner's first slot.
    pub root: SlotId,
    /// The chunks of each class.
    pub lists: [List; LISTS],
}

impl Header {
    /// Reads the header of a space, or writes that of an empty one. `kept` is the number of granules that the arena counts.
    ///
    /// # Errors
    /// [`OpenError`] if the header cannot be written, if its magic or version differs, if its root is damaged, or if its sums contradict the
    /// arena.
    pub fn open(space: &Space<impl Platform>, kept: u64) -> Result<Self, OpenError> {
        space.begin(&LAYOUT, OS_PAGE)?;
        let header = space.read_with(0, |bytes: &[u8; BYTES]| {
            let list = |at: usize| {
                let word = |nth: usize| u32_at(bytes, LINES as usize + LINE * at + 4 * nth);
                List { first: word(0), last: word(1), used: word(2), chunks: word(3) }
            };
            Self { root: u32_at(bytes, ROOT as usize), lists: std::array::from_fn(list) }
        });
        if space.read_u64(ROOT) != root_line(header.root) {
            return Err(OpenError::Damaged { name: LAYOUT.name });
        }
        let granules = header.granules();
        if granules != kept {
            return Err(LAYOUT.corrupt(format!("chunks of {granules} granules, of which the arena counts {kept}")));
        }
        if let Some(class) = (0..CLASSES).find(|class| header.room(*class).is_none()) {
            let List { used, chunks, .. } = header.lists[class];
            let why = format!("{used} slots in {chunks} chunks of slots of {} bytes", SIZES[class]);
            return Err(LAYOUT.corrupt(why));
        }
        Ok(header)
    }

    /// Granules of all chunks.
    pub fn granules(&self) -> u64 {
        (0..LISTS).map(|class| u64::from(self.lists[class].chunks) * granules_of(class)).sum()
    }

    /// Free slots in the chunks of a class, or `None` if more are in use than they have. The product of two 32-bit numbers does not overflow;
    /// checked 64-bit products are calls of a hundred instructions.
    #[inline]
    pub fn room(&self, class: usize) -> Option<u64> {
        let List { used, chunks, .. } = self.lists[class];
        u64::from(chunks).wrapping_mul(slots_of(class).into()).checked_sub(used.into())
    }

    /// Bytes of slots in use.
    pub fn used_bytes(&self) -> u64 {
        let of = |class: usize| u64::from(self.lists[class].used) * u64::from(SIZES[class]);
        (0..CLASSES).map(of).sum::<u64>() + u64::from(self.lists[LARGE].chunks) * GRANULE
    }

    /// Writes the root.
    pub fn save_root(&self, space: &Space<impl Platform>) {
        space.write_u64(ROOT, root_line(self.root));
    }

    /// Writes the line of a class. An undo writes the whole header.
    #[inline]
    pub fn save_list(&self, space: &Space<impl Platform>, class: usize) {
        space.write(LINES + (LINE * class) as u64, self.lists[class].encode().as_flattened());
    }

    /// Writes the header.
    pub fn save(&self, space: &Space<impl Platform>) {
        space.write_header(0, &LAYOUT);
        self.save_root(space);
        let lines = self.lists.each_ref().map(List::encode);
        space.write(LINES, lines.as_flattened().as_flattened());
    }
}

//! Slots of 64 bytes to 4 MiB in one region, for entries that are too small for a blob.
//!
//! **Constraint.** An entry may have a few hundred bytes; a blob's 64 KiB would waste nearly all of its slot. Creating, changing and
//! deleting an entry must touch few pages, in constant time, and freed slots must be reused.
//!
//! **Design.** A new slot lies after the newest slot, so that entries created together lie together. A freed slot goes to the
//! free list of its class, a stack that is linked through the slots themselves. An allocation takes the top of its class's
//! stack, or of one of the three next larger ones, before it takes new memory. Slots are never split or joined: the
//! region's size settles at the maximum that each class ever needed, and a slot wastes at most a fifth (half, if the slot was made
//! for a larger entry).
//!
//! ```text
//! ┌─ header, 4096 ─┬─ slot ─┬─ slot ───┬─ …       a slot's id is its offset / 64
//! └────────────────┴────────┴──────────┴─ …
//! header: 0 magic "CPSL"  4 version u16  8 end u64
//!         64 sixty lines, one a class: first free u32, free u32, used u32, reserved u32
//! slot:   0 class u8  1 state u8 (0xA5 used, 0x5A free)  2 reserved u16  4 next free u32  8 the owner's bytes
//! ```
//! **Journal.** Between [`Slots::begin`] and [`Slots::commit`] the bytes that writes replace are kept on the heap, so that a long operation
//! that fails in its middle can be [undone](Slots::undo) completely, and return an error instead of trapping.

pub mod buckets;
mod class;
pub mod radix;
pub mod rings;
pub mod treap;

pub use class::MAX_LEN;

use crate::header::Header as Layout;
use crate::{GrowError, OS_PAGE, OpenError, Platform, Region};
use class::{CLASSES, HEAD, UNIT, class_for, size_of};

const LAYOUT: Layout = Layout { name: "slots", magic: *b"CPSL", version: 1 };
const END: u64 = 8;
const LINES: u64 = 64;
const LINE: u64 = 16;
const FIRST: u64 = 4096;
const USED: u8 = 0xA5;
const FREE: u8 = 0x5A;
/// Slot ids have 32 bits.
const MOST: u64 = UNIT << 32;
/// Number of larger classes whose free slots an allocation may use: slots of at most twice the size.
const LARGER: u32 = 3;

/// Id of a slot: its offset in the region / 64; 0 for no slot.
pub type SlotId = u32;

/// The first slot that is allocated.
pub const FIRST_SLOT: SlotId = (FIRST / UNIT) as SlotId;

/// Slots of one class.
#[derive(Clone, Copy, Default)]
struct Line {
    first: SlotId,
    free: u32,
    used: u32,
}

/// The header, mirrored on the heap and written through.
#[derive(Clone)]
struct Header {
    end: u64,
    lines: [Line; CLASSES],
    /// A bit for each class that has free slots.
    with_free: u64,
}

struct Journal {
    before: Header,
    /// Offsets and the bytes that were there, oldest first.
    replaced: Vec<(u64, Vec<u8>)>,
    /// Estimated heap bytes of the list.
    bytes: u64,
}

/// Heap bytes of a journal entry besides the replaced bytes, while the list doubles.
const UNDO: u64 = 96;

/// Slots in stable memory.
pub struct Slots<P: Platform> {
    region: Region<P>,
    header: Header,
    journal: Option<Journal>,
    changed: Option<Pages>,
    /// Bytes that most messages must leave free, so that messages that free memory can still work.
    reserve: u64,
    reserve_usable: bool,
}

/// A bit for each of 4,096 pages.
type Bits = [u64; 64];

/// Changed pages of 4 KiB, as bitmaps of the parts of the region that have changed pages.
#[derive(Default)]
struct Pages {
    parts: Vec<Option<Box<Bits>>>,
    /// The page added last, for each remainder: most changes hit one of these pages.
    recent: [u64; 8],
    count: u64,
}

impl Pages {
    /// Adds the pages of `len` bytes from `at` on. The header's page, 0, is skipped until another page replaces it in
    /// `recent`, which starts with zeros.
    #[inline(always)]
    fn add(&mut self, at: u64, len: u64) {
        let (first, last) = (at / OS_PAGE, (at + len - 1) / OS_PAGE);
        if first != last || self.recent[(first % 8) as usize] != first {
            self.add_all(first, last);
        }
    }

    #[inline(never)]
    fn add_all(&mut self, first: u64, last: u64) {
        for page in first..=last {
            let (part, word, bit) = ((page / 4_096) as usize, (page / 64 % 64) as usize, 1 << (page % 64));
            if part >= self.parts.len() {
                self.parts.resize_with(part + 1, || None);
            }
            let bits = self.parts[part].get_or_insert_with(|| Box::new([0; 64]));
            self.count += u64::from(bits[word] & bit == 0);
            bits[word] |= bit;
        }
        self.recent[(last % 8) as usize] = last;
    }
}

impl Journal {
    /// Adds the `len` bytes at `at` before they are replaced.
    #[inline(never)]
    fn add<P: Platform>(&mut self, region: &Region<P>, at: u64, len: usize) {
        let mut old = Vec::new();
        region.read_onto(&mut old, at, len);
        self.bytes += UNDO + old.len() as u64;
        self.replaced.push((at, old));
    }
}

/// Bytes of slots, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStats {
    /// Bytes of slots in use.
    pub used_bytes: u64,
    /// Bytes of slots that can be reused.
    pub free_bytes: u64,
}

impl<P: Platform> Slots<P> {
    /// Opens the slots of a region, or prepares an empty region. The cost does not depend on the number of slots.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(region: Region<P>) -> Result<Self, OpenError> {
        if region.is_empty() {
            region.reserve(FIRST).map_err(|why| OpenError::Grow { name: LAYOUT.name, why })?;
            LAYOUT.write(&region, 0);
            region.write_u64(END, FIRST);
        }
        LAYOUT.read(&region, 0)?;
        let mut header = Header { end: region.read_u64(END), lines: [Line::default(); CLASSES], with_free: 0 };
        let mut sum = FIRST;
        let words = region.read_words(LINES, CLASSES * 2);
        for (class, words) in words.as_chunks::<2>().0.iter().enumerate() {
            let line = Line { first: words[0] as u32, free: (words[0] >> 32) as u32, used: words[1] as u32 };
            header.lines[class] = line;
            header.with_free |= u64::from(line.free > 0) << class;
            sum += (u64::from(line.free) + u64::from(line.used)) * u64::from(size_of(class));
        }
        if sum != header.end {
            let why = format!("their bytes end at {sum}, and the region at {}", header.end);
            return Err(OpenError::Corrupt { name: LAYOUT.name, why });
        }
        Ok(Self { region, header, journal: None, changed: None, reserve: 0, reserve_usable: false })
    }

    /// Returns whether `slots` slots with `bytes` bytes in total fit into the grown memory. Free slots are not counted.
    #[inline]
    pub fn has_room(&self, bytes: u64, slots: u64) -> bool {
        // A class is larger than its content by at most a quarter, or by a unit.
        self.header.end + bytes + bytes / 4 + slots * (UNIT + 2 * u64::from(HEAD)) + self.kept_free()
            <= self.region.size().min(MOST)
    }

    /// Grows memory so that these slots can be allocated; `wanted` lists pairs of bytes and count. Free slots are counted.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed. `OutOfSpace` also if one of the slots is too large.
    pub fn reserve(&self, wanted: &[(u32, u32)]) -> Result<(), GrowError> {
        let mut free = self.header.lines.map(|line| line.free);
        let mut end = self.header.end;
        for &(len, count) in wanted {
            let class = class_for(len).ok_or(GrowError::OutOfSpace)?;
            for _ in 0..count {
                let near = class..(class + LARGER as usize + 1).min(CLASSES);
                let usable = |class: &usize| free[*class] > 0 && self.header.with_free >> class & 1 == 1;
                match near.clone().find(usable) {
                    Some(class) => free[class] -= 1,
                    None => end += u64::from(size_of(class)),
                }
            }
        }
        if end == self.header.end { Ok(()) } else { self.grow(end) }
    }

    /// Returns the pages of 4 KiB that these slots would touch if they were allocated now; `wanted` lists pairs of bytes and count.
    /// Stops counting above `most`.
    pub fn pages_of(&self, wanted: &[(u32, u32)], most: u64) -> u64 {
        let (mut lines, mut end, mut pages) = (self.header.lines, self.header.end, Pages::default());
        let pieces = wanted.iter().flat_map(|&(len, count)| std::iter::repeat_n(len, count as usize));
        for len in pieces {
            let Some(class) = class_for(len) else { return u64::MAX };
            let near = class..(class + LARGER as usize + 1).min(CLASSES);
            let is_free = |class: &usize| lines[*class].free > 0 && self.header.with_free >> class & 1 == 1;
            let start = match near.clone().find(is_free) {
                Some(class) => {
                    let start = u64::from(lines[class].first) * UNIT;
                    let next = if start < self.header.end { self.region.read_u32(start + 4) } else { 0 };
                    lines[class] = Line { first: next, free: lines[class].free - 1, ..lines[class] };
                    start
                }
                None => {
                    end += u64::from(size_of(class));
                    end - u64::from(size_of(class))
                }
            };
            pages.add(start, u64::from(HEAD) + u64::from(len.max(1)));
            if pages.count > most {
                break;
            }
        }
        pages.count
    }

    fn grow(&self, end: u64) -> Result<(), GrowError> {
        if end > MOST {
            return Err(GrowError::OutOfSpace);
        }
        self.region.reserve(end + self.kept_free())
    }

    /// Allocates a slot for `len` bytes, at most [`MAX_LEN`]. Its bytes are not cleared.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed. `OutOfSpace` also if `len` is too large.
    pub fn allocate(&mut self, len: u32) -> Result<SlotId, GrowError> {
        let class = class_for(len).ok_or(GrowError::OutOfSpace)?;
        let near = self.header.with_free >> class & ((1 << (LARGER + 1)) - 1);
        if near != 0 {
            let class = class + near.trailing_zeros() as usize;
            if let Some(slot) = self.pop(class) {
                return Ok(slot);
            }
        }
        let start = self.header.end;
        let end = start + u64::from(size_of(class));
        self.grow(end)?;
        self.header.end = end;
        self.put(END, &end.to_le_bytes());
        self.header.lines[class].used += 1;
        self.save_line(class);
        self.put(start, &[class as u8, USED, 0, 0]);
        Ok((start / UNIT) as SlotId)
    }

    fn pop(&mut self, class: usize) -> Option<SlotId> {
        let line = self.header.lines[class];
        let at = u64::from(line.first) * UNIT;
        let head: [u8; 8] = self.region.read(at);
        let next = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        // A damaged list is never followed: its slots stay unused.
        if head[..2] != [class as u8, FREE] || (next == 0) != (line.free == 1) {
            self.header.with_free &= !(1 << class);
            return None;
        }
        self.header.lines[class] = Line { first: next, free: line.free - 1, used: line.used + 1 };
        self.header.with_free &= !(u64::from(next == 0) << class);
        self.save_line(class);
        self.put(at + 1, &[USED]);
        Some(line.first)
    }

    /// Frees a slot.
    ///
    /// # Panics
    /// Traps if the slot is not in use.
    pub fn free(&mut self, slot: SlotId) {
        let class = self.class(slot);
        let line = &mut self.header.lines[class];
        let next = line.first;
        *line = Line { first: slot, free: line.free + 1, used: line.used - 1 };
        self.header.with_free |= 1 << class;
        self.save_line(class);
        let next = next.to_le_bytes();
        self.put(u64::from(slot) * UNIT, &[class as u8, FREE, 0, 0, next[0], next[1], next[2], next[3]]);
    }

    /// Traps, because an index contradicts its slots.
    fn broken(&self, what: &str) -> ! {
        P::trap(what)
    }

    fn class(&self, slot: SlotId) -> usize {
        let [class, state] = self.region.read(u64::from(slot) * UNIT);
        if state != USED || usize::from(class) >= CLASSES {
            P::trap(&format!("slot {slot} is not in use: class {class}, state {state:#x}"));
        }
        usize::from(class)
    }

    /// Returns the bytes that a slot in use holds.
    pub fn capacity(&self, slot: SlotId) -> u32 {
        size_of(self.class(slot)) - HEAD
    }

    /// Returns whether a slot with this id lies in the region, so that it can be read.
    #[inline]
    pub fn contains(&self, slot: SlotId) -> bool {
        slot >= FIRST_SLOT && u64::from(slot) * UNIT < self.header.end
    }

    /// Returns whether `slot` is in use and holds at least `bytes` bytes.
    pub fn holds(&self, slot: SlotId, bytes: u64) -> bool {
        if !self.contains(slot) {
            return false;
        }
        let [class, state] = self.region.read(u64::from(slot) * UNIT);
        state == USED && usize::from(class) < CLASSES && bytes <= u64::from(size_of(usize::from(class)) - HEAD)
    }

    fn save_line(&mut self, class: usize) {
        let line = self.header.lines[class];
        let word = u64::from(line.first) | u64::from(line.free) << 32;
        let both = u128::from(word) | u128::from(line.used) << 64;
        self.put(LINES + class as u64 * LINE, &both.to_le_bytes());
    }

    #[inline(always)]
    fn put(&mut self, at: u64, bytes: &[u8]) {
        if let Some(journal) = &mut self.journal {
            journal.add(&self.region, at, bytes.len());
        }
        if let Some(pages) = &mut self.changed {
            pages.add(at, bytes.len() as u64);
        }
        self.region.write(at, bytes);
    }

    /// Returns whether a growth was refused with [`GrowError::Later`] since the last [`put_off`](crate::Growth::put_off).
    pub fn is_growth_wanted(&self) -> bool {
        self.region.is_growth_wanted()
    }

    /// Keeps `bytes` bytes free for messages that may [use the reserve](Self::set_reserve_usable).
    pub fn keep_reserve(&mut self, bytes: u64) {
        self.reserve = bytes;
    }

    /// Allows or forbids the use of the reserve, for this message.
    pub fn set_reserve_usable(&mut self, usable: bool) {
        self.reserve_usable = usable;
    }

    /// Starts or stops counting changed pages.
    pub fn count_pages(&mut self, counted: bool) {
        self.changed = counted.then(Pages::default);
    }

    /// Bytes after the end that must stay free.
    #[inline]
    fn kept_free(&self) -> u64 {
        if self.reserve_usable { 0 } else { self.reserve }
    }

    /// Returns the number of changed pages since counting began.
    pub fn pages_changed(&self) -> u64 {
        self.changed.as_ref().map_or(0, |pages| pages.count)
    }

    #[inline]
    fn address(slot: SlotId, at: u32) -> u64 {
        u64::from(slot) * UNIT + u64::from(HEAD) + u64::from(at)
    }

    /// Writes into a slot, `at` bytes from its start.
    #[inline(always)]
    pub fn write(&mut self, slot: SlotId, at: u32, bytes: &[u8]) {
        self.put(Self::address(slot, at), bytes);
    }

    /// Writes 32 bits, little-endian.
    #[inline]
    pub fn write_u32(&mut self, slot: SlotId, at: u32, value: u32) {
        self.write(slot, at, &value.to_le_bytes());
    }

    /// Reads `N` bytes of a slot.
    #[inline]
    pub fn read<const N: usize>(&self, slot: SlotId, at: u32) -> [u8; N] {
        self.region.read(Self::address(slot, at))
    }

    /// Reads `N` bytes of a slot, and passes them to `look` without copying.
    #[inline(always)]
    pub fn read_with<const N: usize, T>(&self, slot: SlotId, at: u32, look: impl FnOnce(&[u8; N]) -> T) -> T {
        self.region.read_with(Self::address(slot, at), look)
    }

    /// Reads 32 bits, little-endian.
    #[inline]
    pub fn read_u32(&self, slot: SlotId, at: u32) -> u32 {
        u32::from_le_bytes(self.read(slot, at))
    }

    /// Appends `len` bytes of a slot to `out`.
    pub fn read_onto(&self, out: &mut Vec<u8>, slot: SlotId, at: u32, len: usize) {
        self.region.read_onto(out, Self::address(slot, at), len);
    }

    /// Begins a journal: all writes from now on can be undone.
    pub fn begin(&mut self) {
        self.journal = Some(Journal { before: self.header.clone(), replaced: Vec::new(), bytes: 0 });
    }

    /// Returns the estimated heap pages of the journal.
    pub fn journal_pages(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.bytes / OS_PAGE)
    }

    /// Keeps all changes since [`begin`](Self::begin), and ends the journal.
    pub fn commit(&mut self) {
        self.journal = None;
    }

    /// Undoes all changes since [`begin`](Self::begin), and ends the journal.
    pub fn undo(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        for (at, bytes) in journal.replaced.iter().rev() {
            self.region.write(*at, bytes);
        }
        self.header = journal.before;
    }

    /// Returns the bytes that were grown but never used.
    pub fn unused_bytes(&self) -> u64 {
        self.region.size().saturating_sub(self.header.end + self.reserve)
    }

    /// Returns the bytes of slots, by use.
    pub fn stats(&self) -> SlotStats {
        let sum = |count: fn(&Line) -> u32| -> u64 {
            let lines = self.header.lines.iter().enumerate();
            lines.map(|(class, line)| u64::from(count(line)) * u64::from(size_of(class))).sum()
        };
        SlotStats { used_bytes: sum(|line| line.used), free_bytes: sum(|line| line.free) }
    }
}

#[cfg(test)]
mod tests;

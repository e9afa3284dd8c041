//! Headers of the kept blocks, in pages of 256 headers that are granules of the arena.
//!
//! Blocks are added and removed in order, so a page holds the headers of 256 consecutive numbers. A directory locates the page; up to 268
//! million blocks can be kept at a time. A page goes back to the arena with its last header.
//!
//! ```text
//! directory                                       arena
//! ┌─ header ─┬─ ring of 2^20 entries ┐            ┌─ page, 64 KiB ─┐
//! │ CPBR     │ slot of a page        │ ─────────▶ │ 256 headers    │
//! └──────────┴───────────────────────┘            └────────────────┘
//! ```
//! Every reader checks the header's checksum, except look-ups by id or key: these compare the id.

use super::directory::Directory;
use super::hash::Hash;
use super::header::{self, BlockMeta, Bytes, HEADER_LEN, NOTE, Numbers, StoredHeader};
use crate::owners;
use ic_coppice_interface::blocks::Note;
use ic_coppice_storage::arena::{Arena, Slot};
use ic_coppice_storage::blob::{GRANULE, SlotState};
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{GrowError, Ic, OpenError, Platform as _, Space};

const LAYOUT: Header = Header { name: "headers", magic: *b"CPBR", version: 8 };
/// Headers of a page.
pub const PAGE_HEADERS: u64 = 256;
/// Maximum pages.
const RING: u64 = 1 << 20;
const _: () = assert!(PAGE_HEADERS * HEADER_LEN as u64 == GRANULE);

/// The headers of the kept blocks.
pub struct HeaderStore {
    directory: Directory,
    arena: Arena,
}

impl HeaderStore {
    /// Opens the directory, or creates an empty store there.
    pub fn open(space: Space, arena: Arena) -> Result<Self, OpenError> {
        Ok(Self { directory: Directory::open(space, arena.clone(), LAYOUT, &[owners::HEADERS], RING)?, arena })
    }

    /// Writes the directory's own header and list of leaves anew.
    pub fn rewrite(&self) {
        self.directory.rewrite();
    }

    /// The granule of the page of `number`, or `None` if the directory names none.
    #[inline]
    fn named_page(&self, number: u64) -> Option<u64> {
        let granule = self.directory.get(number / PAGE_HEADERS)?.granule;
        (granule < self.arena.end() / GRANULE).then_some(granule)
    }

    /// As [`named_page`](Self::named_page), or `None` if the granule has another owner.
    fn page(&self, number: u64) -> Option<u64> {
        let granule = self.named_page(number)?;
        let entry = self.arena.entry(granule)?.ok()?;
        (entry.state == SlotState::Taken && entry.owner == owners::HEADERS).then_some(granule)
    }

    /// Offset in the arena of the header of `number`. Readers trust the directory, and check the number of the header; writers check the
    /// page's owner.
    #[inline]
    fn address(&self, number: u64) -> Option<u64> {
        Some(Self::at(self.named_page(number)?, number))
    }

    #[inline]
    fn at(page: u64, number: u64) -> u64 {
        page.wrapping_mul(GRANULE).wrapping_add((number % PAGE_HEADERS).wrapping_mul(HEADER_LEN as u64))
    }

    /// Reserves memory for the header of `number`; `oldest` is the oldest kept block.
    pub fn reserve(&self, number: u64, oldest: u64) -> Result<(), GrowError> {
        let (page, first) = (number / PAGE_HEADERS, oldest.min(number) / PAGE_HEADERS);
        if page - first >= RING {
            return Err(GrowError::OutOfSpace);
        }
        if self.page(number).is_some() {
            return self.arena.reserve(owners::HEADERS, &[]);
        }
        self.directory.reserve(first, page..page + 1)?;
        self.arena.reserve(owners::HEADERS, &[(1, 1)])
    }

    /// Writes a header; [`reserve`](Self::reserve) must have succeeded.
    pub fn put(&mut self, header: &StoredHeader) {
        let number = header.meta.number;
        let page = self.page(number).unwrap_or_else(|| {
            let taken = self.arena.take_granules(owners::HEADERS, 1);
            let page =
                taken.unwrap_or_else(|why| Ic::trap(&format!("header {number}: memory was not reserved: {why}")));
            let generation = self.arena.entry(page).and_then(Result::ok).map_or(1, |entry| entry.generation);
            self.directory.set(number / PAGE_HEADERS, Slot { granule: page, generation });
            page
        });
        self.arena.payload().write(Self::at(page, number), &header.encode());
    }

    /// Looks at the header of a kept block; `None` if it is damaged.
    #[inline]
    fn look<T>(&self, number: u64, look: impl FnOnce(&Bytes) -> Option<T>) -> Option<T> {
        let look = |bytes: &Bytes| if header::is_whole(bytes, number) { look(bytes) } else { None };
        self.arena.payload().read_with(self.address(number)?, look)
    }

    /// The header of a kept block; `None` if it is damaged.
    #[inline]
    pub fn get(&self, number: u64) -> Option<StoredHeader> {
        self.look(number, StoredHeader::read)
    }

    /// Numbers, sizes and times of a kept block; `None` if its header is damaged.
    pub fn meta(&self, number: u64) -> Option<BlockMeta> {
        self.look(number, |bytes| Some(BlockMeta::read(bytes)))
    }

    /// Numbers, sum of references and hash of a kept block, in one read; `None` if its header is damaged.
    pub fn numbers(&self, number: u64) -> Option<Numbers> {
        self.look(number, Numbers::read)
    }

    /// Numbers, sizes, times and hash of a kept block, for look-ups: the header's checksum is not compared.
    #[inline(always)]
    pub fn peek(&self, number: u64) -> Option<(BlockMeta, Hash)> {
        self.arena.payload().read_with(self.address(number)?, |bytes| BlockMeta::peek(bytes, number))
    }

    /// As [`numbers`](Self::numbers), without comparing the header's checksum: the values of a damaged header may be wrong.
    pub fn peek_numbers(&self, number: u64) -> Option<Numbers> {
        self.arena.payload().read_with(self.address(number)?, |bytes: &[u8; NOTE]| Numbers::peek_numbers(bytes, number))
    }

    /// The note about a kept block; `None` if there is none, or the block's header is damaged.
    pub fn note(&self, number: u64) -> Option<Note> {
        self.look(number, header::read_note)
    }

    /// Writes the note of a kept block, or removes it. A damaged header stays as it is.
    pub fn set_note(&mut self, number: u64, note: Option<&Note>) {
        let Some(page) = self.page(number) else { return };
        if let Some(mut bytes) = self.look(number, |bytes| Some(*bytes)) {
            header::write_note(note, &mut bytes);
            self.arena.payload().write(Self::at(page, number) + NOTE as u64, &bytes[NOTE..]);
        }
    }

    /// Removes a header. `last_of_page`: the page has no other kept header, so it goes back to the arena.
    pub fn remove(&mut self, number: u64, last_of_page: bool) {
        let Some(page) = self.page(number) else { return };
        self.arena.payload().write(Self::at(page, number), &[0; 16]);
        if last_of_page {
            self.directory.clear(number / PAGE_HEADERS);
            self.arena.give_granules(owners::HEADERS, page, 1);
        }
    }

    /// Points the directory's entry for `number` to another granule.
    #[cfg(test)]
    pub fn poison_page(&self, number: u64, granule: u64) {
        self.directory.lose(number / PAGE_HEADERS, granule);
    }

    /// Changes bytes of a header, as damage would.
    #[cfg(any(test, feature = "testing"))]
    pub fn poison(&self, number: u64, at: u64, bytes: &[u8]) {
        self.arena.payload().write(self.address(number).unwrap() + at, bytes);
    }

    /// Flips a bit of a header, as damage would.
    #[cfg(test)]
    pub fn flip(&self, number: u64, bit: u64) {
        let at = self.address(number).unwrap() + bit / 8;
        let [byte] = self.arena.payload().read(at);
        self.arena.payload().write(at, &[byte ^ 1 << (bit % 8)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::HEADERS;
    use ic_coppice_storage::{testing, twin};

    fn open() -> HeaderStore {
        HeaderStore::open(testing::space(HEADERS), testing::arena()).unwrap()
    }

    fn header(number: u64) -> StoredHeader {
        let meta = BlockMeta {
            number,
            log_offset: number % 1_000_000 * 1000,
            lengths: [1, 2, 3],
            transactions: 4,
            keys: 5,
            timestamp_secs: 6,
            monotonic: 7,
            id_links: 2,
        };
        StoredHeader {
            meta,
            hash: Hash::new(&[number as u8; 32]).unwrap(),
            seal: [number as u8 ^ 0xff; 32],
            sha256: [[1; 32], [2; 32], [3; 32]],
            references_before: number / 7,
        }
    }

    #[test]
    fn headers_read_back_and_pages_are_reused() {
        twin::reset();
        testing::forget();
        let mut store = open();
        let first = u64::MAX / 2;
        let window = 600;
        let kept = || testing::arena().kept_bytes(owners::HEADERS);
        for number in first..first + 5_000 {
            store.reserve(number, first).unwrap();
            store.put(&header(number));
            if number >= first + window {
                let gone = number - window;
                assert_eq!(store.get(gone), Some(header(gone)));
                let StoredHeader { meta, hash, seal, references_before, .. } = header(gone);
                assert_eq!(store.meta(gone), Some(meta));
                assert_eq!(store.numbers(gone), Some(Numbers { meta, hash, seal, references_before }));
                assert_eq!(store.peek(gone), Some((meta, hash)));
                store.remove(gone, (gone + 1) % PAGE_HEADERS == 0);
                assert_eq!(store.get(gone), None);
            }
            if number == first + 3_000 {
                testing::forget();
                store = open();
            }
        }
        assert_eq!(store.get(first + 4_999), Some(header(first + 4_999)));
        assert_eq!(kept(), 3 * GRANULE, "600 headers");
        (first + 4_400..first + 5_000).for_each(|number| store.remove(number, (number + 1) % PAGE_HEADERS == 0));
        assert!(kept() <= GRANULE, "only the page of the next header");
    }

    /// A page that does not exist, that is free, or that another store has: an access would trap on every retry, or return foreign bytes.
    #[test]
    fn header_on_a_page_of_another_owner_is_none() {
        for page in [6, 7, 4_000_000_000] {
            twin::reset();
            testing::forget();
            let mut store = open();
            for number in 0..300 {
                store.reserve(number, 0).unwrap();
                store.put(&header(number));
            }
            assert_eq!(testing::arena().take_granules(owners::KEY_INDEX, 1), Ok(6));
            store.poison_page(270, page);
            assert_eq!((store.get(270), store.peek(270), store.numbers(270)), (None, None, None));
            store.remove(270, true);
            assert_eq!(store.get(255), Some(header(255)), "the other headers are readable");
            store.reserve(300, 0).unwrap();
            store.put(&header(300));
            assert_eq!((store.get(300), store.get(299)), (Some(header(300)), None), "on a page of its own");
        }
    }

    #[test]
    fn note_is_read_back_and_goes_with_its_header() {
        twin::reset();
        testing::forget();
        let mut store = open();
        for number in [3, 4] {
            store.reserve(number, 3).unwrap();
            store.put(&header(number));
        }
        assert_eq!(store.note(3), None);
        let note = [2, 1, 0, 0, 4, 3, 0, 0, 6, 5, 0, 0, 8, 7, 0, 0, 1];
        store.set_note(3, Some(&note));
        assert_eq!((store.note(3), store.note(4), store.get(3)), (Some(note), None, Some(header(3))));
        assert_eq!(store.arena.payload().read::<17>(store.address(3).unwrap() + NOTE as u64), note);
        store.set_note(3, None);
        assert_eq!(store.note(3), None);
        store.set_note(3, Some(&note));
        store.put(&header(3));
        assert_eq!(store.note(3), None, "another block has the number");
        // A change of the note would hide the damage.
        for bit in 0..8 * HEADER_LEN as u64 {
            store.flip(4, bit);
            store.set_note(4, Some(&note));
            assert_eq!((store.note(4), store.get(4)), (None, None), "bit {bit}");
            store.flip(4, bit);
        }
        assert_eq!(store.get(4), Some(header(4)));
    }

    #[test]
    fn header_with_a_flipped_bit_or_of_another_number_is_none() {
        twin::reset();
        testing::forget();
        let mut store = open();
        store.reserve(3, 3).unwrap();
        store.put(&header(3));
        assert_eq!(store.get(3 + RING * PAGE_HEADERS), None, "same slot of the ring, another number");
        assert_eq!(store.reserve(RING * PAGE_HEADERS, 3), Err(GrowError::OutOfSpace));
        for bit in 0..8 * HEADER_LEN as u64 {
            store.flip(3, bit);
            assert_eq!((store.get(3), store.meta(3), store.numbers(3)), (None, None, None), "bit {bit}");
            // A look-up may see the damage, but nothing that overflows.
            if let Some((meta, _)) = store.peek(3) {
                assert!(meta.id_links <= meta.transactions && meta.log_end() < 1 << 63, "bit {bit}");
            }
            store.flip(3, bit);
        }
        assert_eq!(store.get(3), Some(header(3)));
        assert!(Hash::new(&[0; 33]).is_none());
    }
}

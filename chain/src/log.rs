//! Append-only log of block payloads, stored in blobs of equal size.
//!
//! A small block costs only its bytes, not a slot of 64 KiB. A block of any size needs no special case, because a block may
//! span blobs. Log offsets only rise, except in a rollback. All blobs have one size, the *class*. The directory has the place of each blob
//! in the arena:
//!
//! ```text
//! log offset    0       class     2·class   3·class
//! blobs         │ 0 …   │ 1 …     │ 2 …     │ …        offset o lies in blob o / class, at byte o % class
//! blocks        ├ 0 ┼─ 1 ──┼── 2 ─────────┼ 3 ┼ …      a block may begin and end anywhere
//!
//! header: 0 magic "CPLD"  4 version u16  8 class u32
//! ```

use super::directory::Directory;
use crate::owners;
use ic_coppice_storage::arena::{Arena, Slot};
use ic_coppice_storage::blob::{AllocateError, BlobPtr, BlobStore, Class, GRANULE, MAX_GRANULES, Owner, PtrError};
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{GrowError, OpenError, Space};
use std::ops::Range;

const LAYOUT: Header = Header { name: "log directory", magic: *b"CPLD", version: 3 };
/// Owners of the log's blobs: those of an open upload lie behind the others.
const OWNERS: [Owner; 2] = [owners::CHAIN, owners::UPLOAD];

/// Directory of the log's blobs. The chain tracks which part of the log is in use.
pub struct Log {
    directory: Directory,
    class: Class,
}

impl Log {
    /// Opens the directory, or creates one for blobs of `class`.
    pub fn open(space: Space, arena: Arena, class: Class) -> Result<Self, OpenError> {
        let is_new = space.is_empty();
        let directory = Directory::open(space, arena, LAYOUT, &OWNERS, MAX_GRANULES / class.granules())?;
        if is_new {
            directory.space().write_u32(8, class.size());
        }
        let found = directory.space().read_u32(8);
        if found != class.size() {
            return Err(LAYOUT.corrupt(format!("blobs have {found} bytes, but {} are configured", class.size())));
        }
        Ok(Self { directory, class })
    }

    /// Writes the header and the list of leaves anew.
    pub fn rewrite(&self) {
        self.directory.rewrite();
        self.directory.space().write_u32(8, self.class.size());
    }

    /// The size class of the log's blobs.
    pub fn class(&self) -> Class {
        self.class
    }

    fn size(&self) -> u64 {
        u64::from(self.class.size())
    }

    /// The blob that holds byte `offset`.
    pub fn blob_of(&self, offset: u64) -> u64 {
        offset / self.size()
    }

    /// The log offset at which a blob starts. No log reaches 2^64 bytes, and a checked product is a call.
    pub fn start_of(&self, blob: u64) -> u64 {
        blob.wrapping_mul(self.size())
    }

    /// Index after the last blob that `[…, end)` touches.
    pub fn blobs_end(&self, end: u64) -> u64 {
        end.div_ceil(self.size())
    }

    /// Location of blob `k`, or `None`.
    pub fn ptr(&self, blob: u64) -> Option<BlobPtr> {
        let Slot { granule, generation } = self.directory.get(blob)?;
        let size = self.class.size();
        Some(BlobPtr { offset: granule.wrapping_mul(GRANULE), len: size, class: size, generation })
    }

    /// Returns whether blob `k` can be read and written.
    pub fn is_used(&self, blobs: &BlobStore, blob: u64) -> bool {
        self.ptr(blob).is_some_and(|ptr| blobs.check(&ptr).is_ok())
    }

    /// Removes blob `k` from the directory.
    pub fn clear(&mut self, blob: u64) {
        self.directory.clear(blob);
    }

    /// Points blob `k` to a location that was never allocated, as damage would.
    #[cfg(any(test, feature = "testing"))]
    pub fn poison(&mut self, blob: u64) {
        self.directory.lose(blob, MAX_GRANULES - self.class.granules());
    }

    /// Reserves memory so that these blobs can be added for an owner while the blobs from `oldest` on are kept.
    pub fn reserve(&self, blobs: &BlobStore, owner: Owner, oldest: u64, added: Range<u64>) -> Result<(), GrowError> {
        self.directory.reserve(oldest, added.clone())?;
        let count = added.end.saturating_sub(added.start);
        blobs.arena().reserve(owner, &[(self.class.granules(), count)])
    }

    /// Adds blobs `[from, to)`; [`reserve`](Self::reserve) must have succeeded.
    pub fn extend(&mut self, blobs: &mut BlobStore, range: Range<u64>, owner: Owner) -> Result<(), AllocateError> {
        for blob in range {
            let ptr = blobs.allocate(self.class.size(), owner)?;
            self.directory.set(blob, Slot { granule: ptr.offset / GRANULE, generation: ptr.generation });
        }
        Ok(())
    }

    /// The parts of a log range: blob, offset in the blob, bytes in the blob.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u32, u32)> + use<> {
        let size = self.size();
        let mut at = range.start;
        std::iter::from_fn(move || {
            (at < range.end).then(|| {
                let inside = at % size;
                let len = (size - inside).min(range.end - at);
                at += len;
                ((at - len) / size, inside as u32, len as u32)
            })
        })
    }

    /// Writes bytes at a log offset.
    pub fn write(&self, blobs: &mut BlobStore, offset: u64, bytes: &[u8]) -> Result<(), PtrError> {
        let mut rest = bytes;
        for (blob, inside, len) in self.pieces(offset..offset + bytes.len() as u64) {
            let ptr = self.ptr(blob).ok_or(PtrError::NeverAllocated)?;
            let (now, later) = rest.split_at(len as usize);
            blobs.write(&ptr, inside, now)?;
            rest = later;
        }
        Ok(())
    }

    /// Returns the bytes of a log range.
    pub fn read(&self, blobs: &BlobStore, range: Range<u64>) -> Result<Vec<u8>, PtrError> {
        let mut bytes = Vec::new();
        self.read_onto(blobs, &mut bytes, range).map(|()| bytes)
    }

    /// Appends a log range to `out`.
    pub fn read_onto(&self, blobs: &BlobStore, out: &mut Vec<u8>, range: Range<u64>) -> Result<(), PtrError> {
        // Reserve all at once, because growing part by part dirties every heap page several times.
        out.reserve((range.end - range.start) as usize);
        for (blob, inside, len) in self.pieces(range) {
            let ptr = self.ptr(blob).ok_or(PtrError::NeverAllocated)?;
            blobs.read_onto(out, &ptr, inside, len)?;
        }
        Ok(())
    }

    /// Reads `N` bytes at a log offset.
    pub fn read_array<const N: usize>(&self, blobs: &BlobStore, offset: u64) -> Result<[u8; N], PtrError> {
        let inside = offset % self.size();
        if inside + N as u64 <= self.size() {
            let ptr = self.ptr(self.blob_of(offset)).ok_or(PtrError::NeverAllocated)?;
            return blobs.read_array(&ptr, inside as u32);
        }
        let bytes = self.read(blobs, offset..offset + N as u64)?;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }
}

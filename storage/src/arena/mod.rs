//! The arena: stable memory as one address space, and its only allocator. All stores take their memory from it, and give it back.
//!
//! **Constraint.** Stable memory never shrinks and every byte grown is billed, so memory that one store frees must serve another one, be
//! found again in constant time, and be of any of the sizes that stores need.
//!
//! **Design.** Buddy allocation over slots of seven classes, 64 KiB to 4 MiB, each aligned to its size. The arena ends at a whole MiB up to
//! 64 MiB, then at a whole block of 4 MiB, and all that is not taken is free. A wanted slot is the free one with the lowest offset in its
//! class (`pruning-spec-v1.md` 2), else the lowest of the next larger class that has one, which is split; both on the owner's side (`limits`). A slot that becomes free is
//! joined with its buddy, the other half of the next larger slot, if the buddy is free too.
//!
//! ```text
//! block of 64 granules
//! ┌───────────────────────────────────────────────────────────────┐
//! │ 4 MiB                                                         │
//! ├───────────────────────────────┬───────────────────────────────┤
//! │ 2 MiB                         │ 2 MiB, its buddy              │
//! ├───────────────┬───────────────┼───────────────────────────────┤      … down to 64 granules of 64 KiB
//! ```
//! The entry of a slot's first granule is authoritative (`granules`); the bitmaps of free slots are an index (`sets`). Both lie in front of
//! each extent of 256 MiB (`extent`). Slots hold no metadata, so freeing never touches the slot's pages.
//!
//! **Reservations.** A store reserves what an operation needs before it changes anything; a reserved allocation fails only after damage.
//! Reservations of different owners add up. A reservation lasts until it is used, the owner reserves anew, or the message ends
//! ([`Arena::end_reservations`]).

mod class;
mod counters;
mod demand;
pub(crate) mod extent;
mod give;
mod granules;
mod limits;
mod sets;
mod strays;
mod take;

pub use class::{BLOCK, Class, GRANULE, MAX_GRANULES, Owner};
pub use counters::ClassCounters;
pub use granules::{Entry, Slot, SlotState, Undecodable};
pub use limits::Shares;

use crate::superblock::{Root, SPACES, Superblock};
use crate::{Growth, OpenError, Platform, Raw, Terms};
use class::Side;
use counters::{Counters, RESERVED_CYCLES};
use demand::Demand;
use extent::TO_LINE;
use limits::{Limits, Wanted};
use sets::GranuleSets;
use std::cell::RefCell;
use std::rc::Rc;

/// Raw pages of an empty arena, 1 MiB.
const FIRST_END: u64 = 16;
const _: () = assert!(SPACES <= u8::MAX as usize);

/// The arena. All handles are clones of one arena.
#[derive(Clone)]
pub struct Arena<P: Platform = crate::Ic>(Rc<Shared<P>>);

struct Shared<P: Platform> {
    growth: Growth<P>,
    spaces: Owner,
    state: RefCell<State<P>>,
}

/// Entries, index, counters, reservations and limits.
struct State<P: Platform> {
    raw: Raw<P>,
    /// The owner of strays.
    strays: Owner,
    superblock: Superblock,
    /// The free slots of both sides; the quarantine lies on the shared one.
    sets: [GranuleSets<P>; 2],
    counters: Counters,
    limits: Limits,
    /// Reserved slots of each owner.
    reserved: [Demand; Owner::COUNT],
    /// A bit for each owner that may have reserved slots: clearing all of `reserved` would take 700 instructions in each message.
    reserving: u32,
    /// Sum of `reserved` by side.
    wanted: Wanted,
    /// Number of slots in `wanted`.
    outstanding: u64,
    /// Number of times that all reservations ended.
    ended: u64,
    /// Granules from here on have not been taken yet, so their bytes are zero.
    fresh: u64,
}

impl<P: Platform> Arena<P> {
    /// Opens stable memory, or lays it out if it is empty. The cost does not depend on the number of slots.
    pub fn open(shares: Shares, terms: Terms) -> Result<Self, OpenError> {
        let raw = Raw::new();
        let growth = Growth::new(terms, RESERVED_CYCLES);
        // A page may be there without a layout, because a growth was refused after it.
        let new = raw.pages() == 0 || raw.pages() < FIRST_END && raw.read(0) == [0; 16];
        if new {
            growth.reserve(FIRST_END).map_err(|why| OpenError::Grow { name: counters::LAYOUT.name, why })?;
        }
        let superblock = if new { Superblock::create(raw) } else { Superblock::open(raw)? };
        let counters = if new { Counters::default() } else { Counters::open(raw)? };
        let mut state = State {
            raw,
            strays: shares.strays,
            superblock,
            sets: Side::ALL.map(|side| GranuleSets::open(raw, side, counters.end)),
            fresh: counters.end,
            counters,
            limits: Limits::new(shares.counted),
            reserved: Default::default(),
            reserving: 0,
            wanted: Default::default(),
            outstanding: 0,
            ended: 0,
        };
        if new {
            state.counters.save(raw);
            state.extend(FIRST_END);
        }
        growth.load(state.counters.end);
        Ok(Self(Rc::new(Shared { growth, spaces: shares.spaces, state: RefCell::new(state) })))
    }

    /// Writes what the heap mirrors anew: the superblock, the counters, which then agree with the arena's size, and the upper levels of the
    /// sets.
    pub fn rewrite(&self) {
        self.change(|state, growth| {
            state.superblock.save(state.raw);
            state.counters.agree();
            state.counters.save(state.raw);
            state.sets.iter().for_each(|sets| sets.save(state.counters.end));
            growth.save();
        });
    }

    /// Returns the growth of raw memory, and its cap.
    #[inline]
    pub fn growth(&self) -> &Growth<P> {
        &self.0.growth
    }

    /// Returns the raw pages in use; the platform bills these.
    pub fn billed_pages(&self) -> u64 {
        self.payload().pages()
    }

    pub(crate) fn spaces_owner(&self) -> Owner {
        self.0.spaces
    }

    /// Returns the root of a space.
    pub fn root(&self, space: u8) -> Root {
        self.with(|state| state.superblock.spaces[usize::from(space)])
    }

    pub(crate) fn set_root(&self, space: u8, root: Root) {
        self.change(|state, _| {
            state.superblock.spaces[usize::from(space)] = root;
            state.superblock.save(state.raw);
        });
    }

    #[inline(always)]
    fn with<T>(&self, look: impl FnOnce(&State<P>) -> T) -> T {
        look(&self.0.state.borrow())
    }

    #[inline(always)]
    fn change<T>(&self, change: impl FnOnce(&mut State<P>, &Growth<P>) -> T) -> T {
        change(&mut self.0.state.borrow_mut(), &self.0.growth)
    }

    /// The bytes of all slots, by offset.
    #[inline(always)]
    pub fn payload(&self) -> Raw<P> {
        Raw::new()
    }

    /// Returns the entry of a granule, or `None` for a granule after the arena's end.
    #[inline(always)]
    pub fn entry(&self, granule: u64) -> Option<Result<Entry, Undecodable>> {
        self.with(|state| (granule < state.counters.end).then(|| Entry::read(state.raw, granule)))
    }

    /// Returns the entry of a granule if a store other than the blobs took its slot for `owner`; `None` also if the entry does not decode.
    #[inline(always)]
    pub fn taken(&self, owner: Owner, granule: u64) -> Option<Entry> {
        let entry = self.entry(granule)?.ok()?;
        (entry.state == SlotState::Taken && entry.owner == owner).then_some(entry)
    }

    /// Returns whether the slot of a granule is a used blob with this generation, length and bytes of its class. Decoding the entry takes
    /// twice as many instructions.
    #[inline(always)]
    pub fn is_used(&self, granule: u64, generation: u32, len: u32, class: u32) -> bool {
        let is_used = |entry: &[u8; 16]| Entry::is_used(entry, generation, len, class);
        self.with(|state| granule < state.counters.end && state.raw.read_with(extent::entry(granule), is_used))
    }

    /// Returns the line of a granule, which belongs to the granule's owner.
    #[inline(always)]
    pub fn line(&self, granule: u64) -> [u8; 16] {
        self.payload().read(extent::entry(granule).wrapping_add(TO_LINE))
    }

    /// Searches all slots for one that one of these owners uses and that has this line: for a directory with a damaged entry.
    #[cold]
    #[inline(never)]
    pub fn find(&self, owners: &[Owner], line: &[u8; 16]) -> Option<Slot> {
        self.with(|state| {
            (0..state.counters.end).find_map(|granule| {
                let Entry { state: is, owner, generation, .. } = Entry::read(state.raw, granule).ok()?;
                let is_used = matches!(is, SlotState::Used | SlotState::Taken) && owners.contains(&owner);
                (is_used && self.line(granule) == *line).then_some(Slot { granule, generation })
            })
        })
    }

    /// Writes the line of a granule.
    #[inline(always)]
    pub fn set_line(&self, granule: u64, line: &[u8; 16]) {
        self.payload().write(extent::entry(granule).wrapping_add(TO_LINE), line);
    }

    /// Sets the class of the log, in whose slots the reserve is counted and which determines the unit. Call it after each opening, before a
    /// counted owner takes memory.
    pub fn set_log_class(&self, class: Class) {
        self.change(|state, _| state.limits.set_class(class));
    }

    /// Sets the bytes of the reserve.
    pub fn set_reserve(&self, bytes: u64) {
        self.change(|state, _| state.limits.reserve = bytes);
    }

    /// Sets the bytes that counted owners may touch while entries are created, and the bytes that they touched when this was set (`floor`).
    /// Work that creates no entries may go above the larger one by the reserve. A slot for which no other unit is touched is never refused.
    pub fn set_quota(&self, cap: u64, floor: u64) {
        self.change(|state, _| (state.limits.cap, state.limits.floor) = (cap, floor));
    }

    /// The quota in force, in bytes.
    pub fn quota(&self) -> u64 {
        self.with(|state| state.limits.cap)
    }

    /// Bytes of the units that counted owners touch.
    pub fn touched_bytes(&self) -> u64 {
        self.with(|state| state.limits.touched_bytes(&state.counters))
    }

    /// Bytes of these units that are free.
    pub fn free_counted_bytes(&self) -> u64 {
        self.with(|state| state.counters.free_bytes(Side::Counted))
    }

    /// Runs work that creates entries: counted owners may take memory up to the quota, and nothing takes from the reserve.
    pub fn creating<T>(&self, run: impl FnOnce() -> T) -> T {
        let set = |creating| self.change(|state, _| std::mem::replace(&mut state.limits.creating, creating));
        let before = set(true);
        let done = run();
        set(before);
        done
    }

    /// Class bytes that an owner keeps, used, taken or quarantined (`pruning-spec-v1.md` 10).
    pub fn kept_bytes(&self, owner: Owner) -> u64 {
        self.with(|state| state.counters.kept(owner) * GRANULE)
    }

    /// Slot counters of a class.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        self.with(|state| state.counters.class(class))
    }

    /// Slots of a class that an owner that is not counted can take without growing memory: free ones, and those that larger free ones split
    /// into.
    pub fn available(&self, class: Class) -> u64 {
        self.with(|state| state.free(class))
    }

    /// Slots of a class that an owner that is not counted can take under the cap on raw pages, if no other store takes memory: free ones,
    /// those that larger free ones split into, and those of the bytes by which the arena can grow.
    pub fn room(&self, class: Class) -> u64 {
        self.with(|state| state.free(class) + state.growable(self.growth(), class))
    }

    /// Bytes of free slots, which can be taken without growing memory.
    pub fn reusable_bytes(&self) -> u64 {
        self.with(|state| Side::ALL.map(|side| state.counters.free_bytes(side)).iter().sum())
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> u64 {
        let end = self.with(|state| state.counters.end);
        (end - extent::front_granules(end)) * GRANULE
    }

    /// Bytes of stable memory that the arena has laid out.
    #[inline]
    pub fn end(&self) -> u64 {
        self.with(|state| state.counters.end * GRANULE)
    }

    /// Overwrites an entry, as damage would.
    #[cfg(test)]
    pub fn overwrite(&self, granule: u64, entry: &Entry) {
        self.with(|state| entry.write(state.raw, granule));
    }
}

impl<P: Platform> State<P> {
    fn free(&self, class: Class) -> u64 {
        demand::left(self.counters.free(Side::Shared), &Demand::default(), class).max(0) as u64
    }

    #[inline(always)]
    fn shared(&mut self) -> &mut GranuleSets<P> {
        &mut self.sets[Side::Shared.index()]
    }
}

#[cfg(test)]
mod tests;

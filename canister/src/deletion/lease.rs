//! Leases: who was given which rows, and until when; and how the last of them ended.
//!
//! ```text
//! one slot:  256 × lease, 192 bytes ─ 256 × end, 128 bytes ─ 256 × 2,000 × skipped number u64
//! lease:   0 number u64, 0: none   8 digest 32   40 holder: length u8 ‖ 29   70 over u8   71 request: length u8 ‖ 64
//!        136 height u32   140 rows u32   144 the first of them u32   152 acquired at u64   160 expires at u64
//! end:     0 number u64   8 digest 32   40 holder: length u8 ‖ 29   70 completed u8   72 removed u64
//!         80 retries u64   88 dead u64   96 skipped u32
//! ```
//! The rows of a lease are a ring through the rows, in the order in which they were given. It is made with the first lease: who has no
//! use for leases pays for none.

use super::row::{Row, at};
use crate::memory::GrowError;
use crate::slots::{SlotId, Slots};
use candid::Principal;
use coppice_interface::CompletedBlobDeletions;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;

/// Leases at a time, and ends that are kept.
pub const MAX_LEASES: usize = 256;
/// Numbers of rows that a completion of a lease takes.
pub const MAX_IDS: usize = 2_000;
/// Bytes of the longest name of a request.
pub const MAX_REQUEST: usize = 64;
const LEASE: u32 = 192;
const END: u32 = 128;
const ENDS: u32 = LEASE * MAX_LEASES as u32;
const SKIPPED: u32 = ENDS + END * MAX_LEASES as u32;
const SKIPPED_OF_ONE: u32 = 8 * MAX_IDS as u32;
const ALL: u32 = SKIPPED + SKIPPED_OF_ONE * MAX_LEASES as u32;

/// A lease's token: its number, and what nobody guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub number: u64,
    pub digest: [u8; 32],
}

impl Token {
    pub fn new(seed: u64, number: u64, now_ns: u64, holder: Principal) -> Self {
        let mut hash = Sha256::new();
        [seed, number, now_ns].iter().for_each(|word| hash.update(word.to_le_bytes()));
        hash.update(holder.as_slice());
        Self { number, digest: hash.finalize().into() }
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (number, digest) = bytes.split_first_chunk()?;
        Some(Self { number: u64::from_le_bytes(*number), digest: digest.try_into().ok()? })
    }

    pub fn bytes(&self) -> Vec<u8> {
        [&self.number.to_le_bytes()[..], &self.digest].concat()
    }
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub token: Token,
    pub holder: Principal,
    /// It has expired or was completed: its rows are anybody's, and on their way back.
    pub over: bool,
    pub request: Option<Vec<u8>>,
    pub height: u32,
    pub rows: u32,
    pub first: SlotId,
    pub acquired_at: u64,
    pub expires_at: u64,
    /// Where it lies among the others.
    place: u32,
    /// It differs from what is written.
    changed: bool,
}

/// How a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub token: Token,
    pub holder: Principal,
    /// What its holder was answered, but for the rows that were skipped, and how many these are; none: it expired.
    answer: Option<(CompletedBlobDeletions, u32)>,
    place: u32,
}

/// All of them, mirrored on the heap.
#[derive(Default)]
pub struct Leases {
    slot: SlotId,
    /// By number.
    live: Vec<Lease>,
    /// The oldest first.
    ended: VecDeque<Ended>,
}

fn put_holder(b: &mut [u8], holder: Principal) {
    let bytes = holder.as_slice();
    b[40] = bytes.len() as u8;
    b[41..41 + bytes.len()].copy_from_slice(bytes);
}

fn long(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*b[at..].first_chunk().expect("eight bytes"))
}

fn word(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*b[at..].first_chunk().expect("four bytes"))
}

fn named(b: &[u8]) -> Result<(Token, Principal), String> {
    let holder = b.get(41..41 + usize::from(b[40])).and_then(|bytes| Principal::try_from_slice(bytes).ok());
    let token = Token { number: long(b, 0), digest: *b[8..].first_chunk().expect("32 bytes") };
    Ok((token, holder.ok_or_else(|| format!("deletion queue: the holder of lease {}", token.number))?))
}

impl Lease {
    fn decode(b: &[u8], place: u32) -> Result<Self, String> {
        let (token, holder) = named(b)?;
        let request = match b[71] {
            0 => None,
            len if usize::from(len) <= MAX_REQUEST => Some(b[72..72 + usize::from(len)].to_vec()),
            len => return Err(format!("deletion queue: the request of lease {} has {len} bytes", token.number)),
        };
        Ok(Self {
            token,
            holder,
            over: b[70] != 0,
            request,
            height: word(b, 136),
            rows: word(b, 140),
            first: word(b, 144),
            acquired_at: long(b, 152),
            expires_at: long(b, 160),
            place,
            changed: false,
        })
    }

    fn encode(&self) -> [u8; LEASE as usize] {
        let mut b = [0; LEASE as usize];
        b[..8].copy_from_slice(&self.token.number.to_le_bytes());
        b[8..40].copy_from_slice(&self.token.digest);
        put_holder(&mut b, self.holder);
        b[70] = u8::from(self.over);
        if let Some(request) = &self.request {
            b[71] = request.len() as u8;
            b[72..72 + request.len()].copy_from_slice(request);
        }
        b[136..140].copy_from_slice(&self.height.to_le_bytes());
        b[140..144].copy_from_slice(&self.rows.to_le_bytes());
        b[144..148].copy_from_slice(&self.first.to_le_bytes());
        b[152..160].copy_from_slice(&self.acquired_at.to_le_bytes());
        b[160..168].copy_from_slice(&self.expires_at.to_le_bytes());
        b
    }

    /// Takes a row in, behind those that it has.
    pub fn push(&mut self, slots: &mut Slots, slot: SlotId) {
        let (before, behind) = match self.first {
            0 => (slot, slot),
            first => (slots.read_u32(first, at::BEFORE), first),
        };
        slots.write(slot, at::BEFORE, [before, behind].map(u32::to_le_bytes).as_flattened());
        if self.first == 0 {
            self.first = slot;
        } else {
            slots.write_u32(before, at::BEHIND, slot);
            slots.write_u32(behind, at::BEFORE, slot);
        }
        self.rows += 1;
        self.changed = true;
    }

    /// Lets a row go that it has.
    pub fn take_out(&mut self, slots: &mut Slots, slot: SlotId) {
        let (before, behind) = (slots.read_u32(slot, at::BEFORE), slots.read_u32(slot, at::BEHIND));
        if behind == slot {
            self.first = 0;
        } else {
            slots.write_u32(before, at::BEHIND, behind);
            slots.write_u32(behind, at::BEFORE, before);
            if self.first == slot {
                self.first = behind;
            }
        }
        self.rows -= 1;
        self.changed = true;
    }

    /// Its rows, in the order in which they were given.
    pub fn rows<'a>(&self, slots: &'a Slots) -> impl Iterator<Item = Row> + use<'a> {
        let (first, mut next) = (self.first, self.first);
        std::iter::from_fn(move || {
            let row = Row::read(slots, Some(next).filter(|slot| *slot != 0)?)?;
            next = slots.read_u32(row.slot, at::BEHIND);
            if next == first {
                next = 0;
            }
            Some(row)
        })
    }

    /// Where the rows are cannot be read any more: those that are left of them stand nowhere until they are scheduled anew.
    pub fn forget_rows(&mut self) {
        (self.first, self.rows, self.changed) = (0, 0, true);
    }

    /// It expires at another moment.
    pub fn expires(&mut self, at: u64) {
        self.expires_at = at;
        self.changed = true;
    }
}

impl Ended {
    fn decode(b: &[u8], place: u32) -> Result<Self, String> {
        let (token, holder) = named(b)?;
        let (removed, retries_incremented, dead) = (long(b, 72), long(b, 80), long(b, 88));
        let answer = CompletedBlobDeletions { removed, retries_incremented, dead, ..Default::default() };
        Ok(Self { token, holder, answer: (b[70] != 0).then(|| (answer, word(b, 96))), place })
    }

    fn encode(&self) -> [u8; END as usize] {
        let mut b = [0; END as usize];
        b[..8].copy_from_slice(&self.token.number.to_le_bytes());
        b[8..40].copy_from_slice(&self.token.digest);
        put_holder(&mut b, self.holder);
        if let Some((answer, skipped)) = &self.answer {
            b[70] = 1;
            for (at, count) in [answer.removed, answer.retries_incremented, answer.dead].into_iter().enumerate() {
                b[72 + 8 * at..80 + 8 * at].copy_from_slice(&count.to_le_bytes());
            }
            b[96..100].copy_from_slice(&skipped.to_le_bytes());
        }
        b
    }
}

impl Leases {
    /// Reads them; `ended`: how many ever ended.
    ///
    /// # Errors
    /// A sentence where one is not what this code wrote.
    pub fn load(slots: &Slots, slot: SlotId, ended: u64) -> Result<Self, String> {
        let mut all = Self { slot, ..Self::default() };
        if slot == 0 {
            return Ok(all);
        }
        if !slots.holds(slot, u64::from(ALL)) {
            return Err(format!("deletion queue: its leases do not lie in slot {slot}"));
        }
        let mut bytes = Vec::new();
        slots.read_onto(&mut bytes, slot, 0, SKIPPED as usize);
        let (leases, ends) = bytes.split_at(ENDS as usize);
        for (b, place) in leases.chunks_exact(LEASE as usize).zip(0..) {
            if long(b, 0) != 0 {
                all.live.push(Lease::decode(b, place)?);
            }
        }
        all.live.sort_unstable_by_key(|lease| lease.token.number);
        for which in ended.saturating_sub(MAX_LEASES as u64)..ended {
            let place = (which % MAX_LEASES as u64) as usize;
            all.ended.push_back(Ended::decode(&ends[place * END as usize..][..END as usize], place as u32)?);
        }
        Ok(all)
    }

    /// Makes the place for them, where there is none yet. Answers where it is.
    ///
    /// # Errors
    /// [`GrowError`], and nothing has changed.
    pub fn make(&mut self, slots: &mut Slots) -> Result<SlotId, GrowError> {
        if self.slot == 0 {
            self.slot = slots.allocate(ALL)?;
            slots.write(self.slot, 0, &[0; SKIPPED as usize]);
        }
        Ok(self.slot)
    }

    /// A new one without rows.
    pub fn add(&mut self, token: Token, holder: Principal, request: Option<Vec<u8>>, height: u32, times: (u64, u64)) {
        let mut taken = [false; MAX_LEASES];
        self.live.iter().for_each(|lease| taken[lease.place as usize] = true);
        let place = taken.iter().position(|taken| !taken).expect("there are fewer than that") as u32;
        let (acquired_at, expires_at) = times;
        let (over, rows, first, changed) = (false, 0, 0, true);
        let lease =
            Lease { token, holder, over, request, height, rows, first, acquired_at, expires_at, place, changed };
        self.live.push(lease);
    }

    /// Those that have not ended, or whose rows are on their way back, by number.
    pub fn all(&self) -> &[Lease] {
        &self.live
    }

    /// One of them.
    pub fn get(&self, number: u64) -> Option<&Lease> {
        let at = self.live.binary_search_by_key(&number, |lease| lease.token.number).ok()?;
        Some(&self.live[at])
    }

    /// One of them.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Lease> {
        let at = self.live.binary_search_by_key(&number, |lease| lease.token.number).ok()?;
        Some(&mut self.live[at])
    }

    /// One of those that ended lately.
    pub fn ended(&self, token: &Token) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.token == *token)
    }

    /// A lease is over: it expired, or its holder was given this answer. `which`: how many ended before it.
    pub fn end(&mut self, slots: &mut Slots, number: u64, which: u64, answer: Option<&CompletedBlobDeletions>) {
        let place = (which % MAX_LEASES as u64) as u32;
        let Some(lease) = self.get_mut(number) else { return };
        (lease.over, lease.changed) = (true, true);
        let (token, holder) = (lease.token, lease.holder);
        if let Some(answer) = answer {
            let skipped: Vec<u8> = answer.skipped.iter().flat_map(|id| id.to_le_bytes()).collect();
            if !skipped.is_empty() {
                slots.write(self.slot, SKIPPED + place * SKIPPED_OF_ONE, &skipped);
            }
        }
        let answer = answer.map(|answer| {
            let shown = CompletedBlobDeletions { skipped: Vec::new(), ..answer.clone() };
            (shown, answer.skipped.len() as u32)
        });
        let ended = Ended { token, holder, answer, place };
        slots.write(self.slot, ENDS + place * END, &ended.encode());
        if self.ended.len() == MAX_LEASES {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }

    /// What the holder of one that ended was answered; none: it expired.
    pub fn answer(&self, slots: &Slots, ended: &Ended) -> Option<CompletedBlobDeletions> {
        let (answer, skipped) = ended.answer.as_ref()?;
        let mut bytes = Vec::new();
        let len = (*skipped).min(MAX_IDS as u32) as usize * 8;
        slots.read_onto(&mut bytes, self.slot, SKIPPED + ended.place * SKIPPED_OF_ONE, len);
        let skipped = bytes.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
        Some(CompletedBlobDeletions { skipped, ..answer.clone() })
    }

    /// Drops those that are over and have no rows any more, and writes what has changed.
    pub fn save(&mut self, slots: &mut Slots) {
        for lease in self.live.iter_mut().filter(|lease| lease.changed) {
            let at = lease.place * LEASE;
            if lease.over && lease.rows == 0 {
                slots.write(self.slot, at, &[0; 8]);
            } else {
                slots.write(self.slot, at, &lease.encode());
            }
            lease.changed = false;
        }
        self.live.retain(|lease| !lease.over || lease.rows > 0);
    }
}

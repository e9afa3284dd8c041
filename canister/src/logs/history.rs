//! History of the canister: samples of a day and of a month, and the start times of lasting problems.
//!
//! **Design.** A message or a tick that runs anyway takes a sample, at most one a minute, because a timer for samples would cost an idle
//! canister cycles. The sample's time determines its slot, so no counter is needed. A minute without a sample is a gap: its
//! slot holds a sample of another day.
//!
//! ```text
//! cell:    0 magic "CPHI"  4 version u16  6 reserved u16  8 appended blocks u64  16 time of that count u64 (Unix seconds)
//!          24 reserved  64 start times of 64 codes u64 each (Unix nanoseconds; 0: not raised)
//!          576 reserved, up to 2,048
//! samples: minute m of the epoch has slot m % 1,440 of the day; half hour h has slot h % 1,488 of the month
//! sample:  0 Unix seconds u64  8 kept bytes u64  16 appended blocks u64  24 pruned blocks u64  32 backlog in blocks u32
//!          36 billed pages u32  40 reusable bytes u64  48 instructions u64  56 held blocks u32  60 reserved u32
//! ```
//! *Instructions* are those of [`crate::platform::meter`] since the canister started: an upgrade resets them, as it resets counters.

use crate::places::{self, Samples};
use ic_coppice_interface::ProblemCode;
use ic_coppice_storage::bytes::{array_at, u64_at};
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{OpenError, Space};
use std::rc::Rc;

const LAYOUT: Header = Header { name: "history", magic: *b"CPHI", version: 1 };
/// Seconds between two samples.
pub const EVERY: u64 = places::SAMPLES.every;
/// Seconds between two samples of the month.
pub const COARSE_EVERY: u64 = places::COARSE_SAMPLES.every;
const CODES_AT: usize = 64;
const CODES: usize = 64;
const BYTES: usize = CODES_AT + 8 * CODES;

/// A sample of the canister's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample, in Unix seconds.
    pub at: u64,
    /// Bytes that are compared with the watermarks.
    pub kept_bytes: u64,
    /// Blocks ever appended.
    pub appended: u64,
    /// Blocks ever pruned.
    pub pruned: u64,
    /// Blocks that are due and may be pruned: the backlog.
    pub backlog: u32,
    /// Billed pages of 64 KiB.
    pub billed_pages: u32,
    /// Bytes that new blobs can take without growing memory.
    pub reusable_bytes: u64,
    /// Instructions since the canister started.
    pub instructions: u64,
    /// Blocks that are due but held back.
    pub held: u32,
}

impl Sample {
    fn encode(&self) -> [u8; places::SAMPLE_LEN] {
        let halves = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let Self { at, kept_bytes, appended, pruned, reusable_bytes, instructions, .. } = *self;
        let (backlog, held) = (halves(self.backlog, self.billed_pages), halves(self.held, 0));
        let words = [at, kept_bytes, appended, pruned, backlog, reusable_bytes, instructions, held];
        *words.map(u64::to_le_bytes).as_flattened().first_chunk().expect("eight words")
    }

    fn decode(bytes: &[u8; places::SAMPLE_LEN]) -> Self {
        let words: [u64; places::SAMPLE_LEN / 8] = std::array::from_fn(|word| u64_at(bytes, 8 * word));
        let [at, kept_bytes, appended, pruned, backlog, reusable_bytes, instructions, held] = words;
        let (backlog, billed_pages, held) = (backlog as u32, (backlog >> 32) as u32, held as u32);
        Self { at, kept_bytes, appended, pruned, backlog, billed_pages, reusable_bytes, instructions, held }
    }
}

/// Resolution of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// 24 hours, one sample per minute.
    Day,
    /// 31 days, one sample per half hour.
    Month,
}

impl Span {
    /// Place of the samples, with the seconds from one to the next and the number of kept ones.
    pub fn places(self) -> Samples {
        match self {
            Self::Day => places::SAMPLES,
            Self::Month => places::COARSE_SAMPLES,
        }
    }
}

/// The samples, and the start times of lasting conditions.
pub struct History {
    cells: Rc<Space>,
    appended: u64,
    appended_at: u64,
    codes: [u64; CODES],
}

impl History {
    /// Reads the cell; a cell that was never written is an empty history.
    ///
    /// # Errors
    /// [`OpenError::Header`] if the cell has another layout.
    pub fn open(cells: Rc<Space>) -> Result<Self, OpenError> {
        let bytes: [u8; BYTES] = cells.read(places::HISTORY);
        if bytes != [0; BYTES] {
            LAYOUT.check(&array_at(&bytes, 0))?;
        }
        let word = |at: usize| u64_at(&bytes, at);
        let codes = std::array::from_fn(|code| word(CODES_AT + 8 * code));
        Ok(Self { cells, appended: word(8), appended_at: word(16), codes })
    }

    /// Writes the cell anew.
    pub fn rewrite(&self) {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&LAYOUT.encode());
        bytes[8..16].copy_from_slice(&self.appended.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.appended_at.to_le_bytes());
        bytes[CODES_AT..].copy_from_slice(self.codes.map(u64::to_le_bytes).as_flattened());
        self.cells.write(places::HISTORY, &bytes);
    }

    /// Time since which a code is raised, in Unix nanoseconds; `None` if not recorded.
    pub fn since(&self, code: ProblemCode) -> Option<u64> {
        self.codes.get(code as usize).copied().filter(|&since| since > 0)
    }

    /// Time when this count of appended blocks was first seen, in Unix seconds; `None` if not seen yet.
    pub fn appended_at(&self, appended: u64) -> Option<u64> {
        (self.appended == appended && self.appended_at > 0).then_some(self.appended_at)
    }

    /// Writes a sample to its slot of the day, and to its slot of the month if it is the first of its half hour. `deep` enables the check
    /// of the month.
    pub fn write(&self, sample: &Sample, deep: bool) {
        let (bytes, at) = (sample.encode(), sample.at);
        self.cells.write(places::SAMPLES.slot(at), &bytes);
        let coarse = places::COARSE_SAMPLES.slot(at);
        // The first sample of its half hour stays, even after an upgrade.
        if deep && self.cells.read_u64(coarse) / COARSE_EVERY != at / COARSE_EVERY {
            self.cells.write(coarse, &bytes);
        }
    }

    /// Records the count of appended blocks, of which a new one is dated `at_secs`, and the raised codes, with their start times if known.
    pub fn note(
        &mut self,
        (appended, at_secs): (u64, u64),
        raised: impl Iterator<Item = (ProblemCode, Option<u64>)>,
        now_ns: u64,
    ) {
        let mut codes = [0; CODES];
        for (code, known) in raised {
            let noticed = self.since(code).filter(|&noticed| noticed <= now_ns);
            codes[code as usize] = known.or(noticed).unwrap_or(now_ns);
        }
        // If the clock was set back, the recorded time must not stay in the future.
        let is_dated = self.appended != appended || self.appended_at == 0 || self.appended_at > at_secs;
        if is_dated {
            (self.appended, self.appended_at) = (appended, at_secs);
        }
        // Compared word by word, because arrays are compared byte by byte, which takes 3,000 instructions.
        if codes.iter().ne(&self.codes) || is_dated {
            self.codes = codes;
            self.rewrite();
        }
    }

    /// The samples up to `now_secs` (Unix seconds), oldest first. Damaged samples and those of another period are left out.
    pub fn samples(&self, span: Span, now_secs: u64) -> Vec<Sample> {
        let mut bytes = Vec::new();
        let Samples { at, every, count } = span.places();
        self.cells.read_onto(&mut bytes, at, count as usize * places::SAMPLE_LEN);
        let (all, _) = bytes.as_chunks::<{ places::SAMPLE_LEN }>();
        let oldest = (now_secs / every).saturating_sub(count - 1) * every;
        let meant = |(at, sample): (usize, Sample)| {
            let in_its_slot = sample.at / every % count == at as u64;
            (in_its_slot && (oldest..=now_secs).contains(&sample.at)).then_some(sample)
        };
        let mut found: Vec<Sample> = all.iter().map(Sample::decode).enumerate().filter_map(meant).collect();
        found.sort_by_key(|sample| sample.at);
        found
    }
}

#[cfg(test)]
mod tests;

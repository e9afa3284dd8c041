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
use ic_coppice_storage::{OpenError, Space, WASM_PAGE};
use std::rc::Rc;

const LAYOUT: Header = Header { name: "history", magic: *b"CPHI", version: 1 };
/// Seconds between two samples.
pub const EVERY: u64 = 60;
/// Seconds between two samples of the month.
pub const COARSE_EVERY: u64 = 1_800;
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

    /// Billed bytes.
    pub fn billed_bytes(&self) -> u64 {
        u64::from(self.billed_pages) * WASM_PAGE
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
    /// Seconds from one sample to the next.
    pub fn every(self) -> u64 {
        match self {
            Self::Day => EVERY,
            Self::Month => COARSE_EVERY,
        }
    }

    /// Number of kept samples.
    pub fn kept(self) -> u64 {
        self.places().count
    }

    fn places(self) -> Samples {
        match self {
            Self::Day => places::SAMPLES,
            Self::Month => places::COARSE_SAMPLES,
        }
    }

    fn address(self, secs: u64) -> u64 {
        self.places().slot(secs / self.every())
    }
}

/// Start times of lasting conditions.
#[derive(Debug)]
pub struct Since {
    appended: u64,
    appended_at: u64,
    codes: [u64; CODES],
}

impl Since {
    fn load(cells: &Space) -> Result<Self, OpenError> {
        let bytes: [u8; BYTES] = cells.read(places::HISTORY);
        if bytes != [0; BYTES] {
            LAYOUT.check(&array_at(&bytes, 0))?;
        }
        let word = |at: usize| u64_at(&bytes, at);
        Ok(Self {
            appended: word(8),
            appended_at: word(16),
            codes: std::array::from_fn(|code| word(CODES_AT + 8 * code)),
        })
    }

    fn save(&self, cells: &Space) {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&LAYOUT.encode());
        bytes[8..16].copy_from_slice(&self.appended.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.appended_at.to_le_bytes());
        bytes[CODES_AT..].copy_from_slice(self.codes.map(u64::to_le_bytes).as_flattened());
        cells.write(places::HISTORY, &bytes);
    }

    /// Time since which a code is raised, in Unix nanoseconds; `None` if not recorded.
    pub fn of(&self, code: ProblemCode) -> Option<u64> {
        self.codes.get(code as usize).copied().filter(|&since| since > 0)
    }

    /// Time when this count of appended blocks was first seen, in Unix seconds; `None` if not seen yet.
    pub fn appended_at(&self, appended: u64) -> Option<u64> {
        (self.appended == appended && self.appended_at > 0).then_some(self.appended_at)
    }
}

/// The samples.
pub struct History {
    cells: Rc<Space>,
    /// Start times of lasting conditions.
    pub since: Since,
}

impl History {
    /// Reads the cell; a cell that was never written is an empty history.
    ///
    /// # Errors
    /// A sentence that names the damage.
    pub fn open(cells: Rc<Space>) -> Result<Self, String> {
        let since = Since::load(&cells)?;
        Ok(Self { cells, since })
    }

    /// Writes the cell anew.
    pub fn rewrite(&self) {
        self.since.save(&self.cells);
    }

    /// Writes a sample to its slot of the day, and to its slot of the month if it is the first of its half hour. `deep` enables the check
    /// of the month.
    pub fn write(&self, sample: &Sample, deep: bool) {
        let (bytes, at) = (sample.encode(), sample.at);
        self.cells.write(Span::Day.address(at), &bytes);
        let coarse = Span::Month.address(at);
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
        let since = &mut self.since;
        let mut codes = [0; CODES];
        for (code, known) in raised {
            let noticed = since.of(code).filter(|&noticed| noticed <= now_ns);
            codes[code as usize] = known.or(noticed).unwrap_or(now_ns);
        }
        // If the clock was set back, the recorded time must not stay in the future.
        let is_dated = since.appended != appended || since.appended_at == 0 || since.appended_at > at_secs;
        if is_dated {
            (since.appended, since.appended_at) = (appended, at_secs);
        }
        // Compared word by word, because arrays are compared byte by byte, which takes 3,000 instructions.
        if codes.iter().ne(&since.codes) || is_dated {
            since.codes = codes;
            since.save(&self.cells);
        }
    }

    /// The samples up to `now_secs` (Unix seconds), oldest first. Damaged samples and those of another period are left out.
    pub fn samples(&self, span: Span, now_secs: u64) -> Vec<Sample> {
        let mut bytes = Vec::new();
        self.cells.read_onto(&mut bytes, span.places().at, span.kept() as usize * places::SAMPLE_LEN);
        let (all, _) = bytes.as_chunks::<{ places::SAMPLE_LEN }>();
        let oldest = (now_secs / span.every()).saturating_sub(span.kept() - 1) * span.every();
        let is_meant = |at: usize, sample: &Sample| {
            (oldest..=now_secs).contains(&sample.at) && sample.at / span.every() % span.kept() == at as u64
        };
        let decoded = all.iter().map(Sample::decode).enumerate();
        let mut found: Vec<Sample> =
            decoded.filter(|(at, sample)| is_meant(*at, sample)).map(|(_, sample)| sample).collect();
        found.sort_by_key(|sample| sample.at);
        found
    }
}

#[cfg(test)]
mod tests;

//! Places of the canister's own data in stable memory: ids of spaces, offsets of cells in the space of cells, and sizes of the rings'
//! entries. `ic_coppice_chain` and `ic_coppice_records` list theirs; a test checks that no two overlap.

use ic_coppice_storage::header::Header;

/// Space of small cells at fixed places: configuration, the chain's state, the open uploads, the pruners' state, samples.
pub const CELLS: u8 = 0;
/// Spaces of the audit log: changes by admins, changes by other callers, and calls that changed nothing.
pub const AUDIT_RINGS: [u8; 3] = [9, 10, 11];
/// Space of the lines of the log.
pub const LOG_LINES: u8 = 12;
/// The first of the spaces of the host's memories.
pub const HOST_SPACES: u8 = 48;
/// Maximum number of the host's memories.
pub const HOST_SPACES_LEN: u8 = 16;
/// The first of the bench's spaces, which have other data structures.
#[cfg(feature = "bench")]
pub const BENCH: u8 = 32;

/// Header of the space of cells, at its first byte.
pub const HEADER: Header = Header { name: "cells", magic: *b"CPCE", version: 3 };
/// The hash key, as CBOR after its length; up to 64 bytes.
pub const KEY: u64 = 64;
/// The settings and the roles, as CBOR after its length; up to 64 KiB.
pub const CONFIG: u64 = 65_536;
/// The names of the host's memories, as CBOR after their length; up to 4 KiB.
pub const HOST: u64 = 172_032;
/// Bytes of the cell of these names.
pub const HOST_LEN: usize = 4_096;
/// The header of the audit log.
pub const AUDIT: u64 = 184_320;
/// Data of the history besides its samples; up to 2 KiB. The header of the log shares its page.
pub const HISTORY: u64 = 188_416;
/// The header of the log.
pub const LOG: u64 = HISTORY + 2_048;
/// Bytes of a sample.
pub const SAMPLE_LEN: usize = 64;
/// One day of samples, one per minute.
pub const SAMPLES: Samples = Samples { at: 196_608, every: 60, count: 1_440 };
/// 31 days of samples, one per half hour.
pub const COARSE_SAMPLES: Samples = Samples { at: SAMPLES.end(), every: 1_800, count: 31 * 48 };
/// Bytes of all cells.
pub const END: u64 = ic_coppice_records::places::END;

/// Place of samples, each in the slot that its time determines.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// Offset of the first slot.
    pub at: u64,
    /// Seconds between two samples.
    pub every: u64,
    /// Number of slots.
    pub count: u64,
}

impl Samples {
    /// Returns the offset of the slot of a time, in Unix seconds.
    pub const fn slot(&self, secs: u64) -> u64 {
        self.at + secs / self.every % self.count * SAMPLE_LEN as u64
    }

    const fn end(&self) -> u64 {
        self.at + self.count * SAMPLE_LEN as u64
    }
}

/// Bytes of an audit entry's slot.
pub const AUDIT_LEN: usize = 4_096;
/// Maximum number of entries of admins, of other callers, and of calls that changed nothing.
pub const AUDIT_LENS: [u64; 3] = [1_000, 1_000, 500];
/// Bytes of a line of the log.
pub const LOG_LINE_LEN: usize = 1_024;
/// Maximum number of lines of the log.
pub const LOG_LINES_LEN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_chain::places as chain;
    use ic_coppice_records::places as records;
    use ic_coppice_storage::header::HEADER as HEADER_LEN;

    #[test]
    fn no_two_cells_and_no_two_spaces_have_the_same_place() {
        let mut spaces = [&[CELLS, LOG_LINES][..], &AUDIT_RINGS, &chain::SPACES, &records::SPACES].concat();
        let number = spaces.len();
        spaces.extend((0..HOST_SPACES_LEN).map(|number| HOST_SPACES + number));
        let number = number + usize::from(HOST_SPACES_LEN);
        spaces.sort_unstable();
        spaces.dedup();
        assert_eq!(spaces.len(), number);
        let samples = |of: Samples| (of.at, of.count * SAMPLE_LEN as u64);
        let own = [
            (0, HEADER_LEN as u64),
            (KEY, 64),
            (CONFIG, 65_536),
            (HOST, HOST_LEN as u64),
            (AUDIT, 4_096),
            (HISTORY, 2_048),
            (LOG, 2_048),
            samples(SAMPLES),
            samples(COARSE_SAMPLES),
        ];
        let mut cells = [&own[..], &chain::CELLS, &records::CELLS].concat();
        cells.sort_unstable();
        for pair in cells.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        assert_eq!(cells.last().map(|(at, len)| at + len), Some(END));
    }
}

//! Stable memory of a chain: the billed bytes, and the least page limit with which the chain reaches its target.

use coppice_interface::{BUCKET, WASM_PAGE};

/// Bytes for which the regions' sets are sized: the limit of a canister.
const GIB_500: u64 = 500 << 30;
/// Bytes of stable memory per UTXO record of a transaction with two outputs.
const RECORD_BYTES: u64 = 500;
/// More bytes than any canister can hold.
pub const FAR_TOO_MUCH: u64 = 1 << 50;

/// Returns the least page limit with which a chain reaches its target, and as many pages more as the records take.
pub fn least_pages(target_bytes: u64, log_class: u64, records: u64) -> u64 {
    let of_records = (records * RECORD_BYTES).div_ceil(WASM_PAGE);
    coppice_interface::least_pages(target_bytes, log_class as u32, 0) + of_records
}

/// Returns the stable memory that blocks with these bytes, ids, keys and records need, in whole buckets of each region.
pub fn billed(log_class: u64, kept_bytes: u64, blocks: u64, [ids, keys, records]: [u64; 3]) -> u64 {
    // 28 entries to a bucket of 512 bytes, 60 % of it used, and one bucket in ten for overflow.
    let index = |entries: u64| entries * 512 * 11 / (28 * 6);
    let of_blocks = kept_bytes + blocks.div_ceil(256) * WASM_PAGE + index(ids) + index(keys);
    let arena = of_blocks + index(records) + records * RECORD_BYTES;
    let table = 2 << 20;
    let regions = [
        // Cells, and the sets of free slots, which are sized for 500 GiB.
        1,
        GIB_500 / WASM_PAGE,
        arena,
        arena / WASM_PAGE * 32,
        // Directories: of the log, of block records, of three tables, and the headers of two kinds of slots.
        GIB_500 / log_class * 8,
        4 << 20,
        table,
        table,
        table,
        1,
        1,
    ];
    WASM_PAGE + regions.map(grown).iter().sum::<u64>()
}

/// Returns the size of a region that grew step by step until it held `bytes`: each step adds one thirty-second, at most 32 buckets.
fn grown(bytes: u64) -> u64 {
    let need = bytes.div_ceil(BUCKET);
    let mut have = 0;
    while have < need {
        // From here on all steps have the same length.
        have = if have >= 1_024 { have + (need - have).next_multiple_of(32) } else { (have + 1).max(have + have / 32) };
    }
    have * BUCKET
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_grows_by_one_thirty_second_in_whole_buckets() {
        assert_eq!(grown(0), 0);
        assert_eq!(grown(1), BUCKET);
        assert_eq!(grown(64 * BUCKET), 64 * BUCKET);
        assert_eq!(grown(65 * BUCKET), 66 * BUCKET);
        assert!(grown(30_000 * BUCKET) <= 30_032 * BUCKET);
        let step_by_step = |need: u64| {
            let mut have: u64 = 0;
            while have < need {
                have = (have + 1).max(have + (have / 32).min(32));
            }
            have * BUCKET
        };
        for need in (0..2_500).chain([5_000, 32_000]) {
            assert_eq!(grown(need * BUCKET), step_by_step(need), "{need}");
        }
        assert!(grown(u64::MAX / 64) > FAR_TOO_MUCH);
    }
}

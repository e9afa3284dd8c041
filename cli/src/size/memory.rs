//! Stable memory of a chain: the billed bytes, and the least page limit with which the chain reaches its target.

use ic_coppice_interface::WASM_PAGE;

/// Bytes of stable memory per UTXO record of a transaction with two outputs.
const RECORD_BYTES: u64 = 500;
/// More bytes than any canister can hold.
pub const FAR_TOO_MUCH: u64 = 1 << 50;
/// Bytes that cells, directories and the first leaves of logs take.
const CELLS: u64 = 2 << 20;

/// Returns the least page limit with which a chain reaches its target, and as many pages more as the records take.
pub fn least_pages(target_bytes: u64, log_class: u64, records: u64) -> u64 {
    let of_records = (records * RECORD_BYTES).div_ceil(WASM_PAGE);
    ic_coppice_interface::least_pages(target_bytes, log_class as u32, 0) + of_records
}

/// Returns the stable memory that blocks with these bytes, ids, keys and records need. It grows by a sixteenth at a time, so that the billed
/// bytes lie up to a sixteenth above: the sum has half of that.
pub fn billed(log_class: u64, kept_bytes: u64, blocks: u64, [ids, keys, records]: [u64; 3]) -> u64 {
    // 28 entries to a bucket of 512 bytes, 60 % of it used, and one bucket in ten for overflow.
    let index = |entries: u64| entries * 512 * 11 / (28 * 6);
    let of_blocks = kept_bytes + blocks.div_ceil(256) * WASM_PAGE + index(ids) + index(keys);
    let slots = CELLS + of_blocks + index(records) + records * RECORD_BYTES;
    // The fronts of extents, and the directories.
    let all = slots + slots / 4_096 * 3 + kept_bytes / log_class * 8;
    all + all / 32
}

//! Needs of a chain, by the constants of the canister and the prices of the platform.

use super::memory;
use super::workload::Workload;
use crate::feed;
use ic_coppice_interface::{
    BLOCK_BYTES, Config, FIRING_CYCLES, PrunePolicy, REFERENCE_BYTES, SAFETY_SECS, UPGRADE_CYCLES,
    cycles_of_a_snapshot, cycles_of_ticks,
};
use serde::Serialize;

/// Seconds of a day and of a year.
pub const DAY: u64 = 86_400;
pub(super) const YEAR: u128 = 365 * 86_400;
/// Nanoseconds of a second.
pub(super) const NS: u64 = 1_000_000_000;
/// Prices of the platform on a subnet of 13 nodes, in cycles (`docs/operations/sizing.md`).
pub const GIB_SECOND: u128 = 127_000;
const MESSAGE: u128 = 5_000_000;
const INGRESS: u128 = 1_200_000;
const INGRESS_BYTE: u128 = 2_000;
/// Fees of a calling canister: per call, and per byte of the argument.
const CALL: u128 = 260_000;
const CALL_BYTE: u128 = 1_000;
/// Fee for creating a canister.
const CREATION: u128 = 500_000_000_000;
/// Days for which production's freezing threshold keeps storage paid (`icp.yaml`), and days for which a deposit pays everything else.
const FREEZING_DAYS: u128 = 180;
const DEPOSIT_DAYS: u128 = 30;
/// Bytes of a message's envelope besides the argument: 150 and the method's name; 145 for an Ed25519 key, its signature and an agent's
/// longer nonce.
const ENVELOPE: u128 = 310;
/// Instructions charged, heap pages included: per message that appends or uploads, and per byte, transaction and secondary key; per block
/// and byte for comparing segments with their digests; per block for pruning; per transaction or key for sweeping the index
/// (`docs/reference/costs.md`). One instruction costs one cycle.
const APPEND: u64 = 125_000;
const APPEND_BYTE: u64 = 4;
const APPEND_TRANSACTION: u64 = 2_800;
const APPEND_KEY: u64 = 3_200;
const VERIFY: u64 = 30_000;
const VERIFY_BYTE: u64 = 76;
/// Instructions charged for a firing of the timer without work, including the sample that it takes.
const IDLE_FIRING: u64 = 80_000;
const PRUNE: u64 = 50_000;
/// Instructions charged for sweeping one reference.
pub const SWEEP: u64 = 1_000;
/// Instructions charged for the UTXO record of a transaction with two outputs: to create it, spend its inputs' outputs and set it as mined;
/// and to prune it.
const RECORD: u64 = 100_000;
const PRUNE_RECORD: u64 = 30_000;
/// Bytes of messages for a record besides its transaction: the creation, two spends, and the mined flag.
const RECORD_MESSAGE_BYTES: u64 = 370;
/// Bytes per transaction in the manual's table.
pub(super) const TRANSACTION_BYTES: u64 = 500;

/// The needs of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Size {
    /// The chain that has these needs.
    #[serde(flatten)]
    pub workload: Workload,
    /// Maximum number of kept blocks.
    pub blocks: u64,
    /// Bytes of their blobs, by size class.
    pub kept_bytes: u64,
    /// The recommended `target_bytes`, with which the retained window fills the store up to the low watermark.
    pub target_bytes: u64,
    /// Stable memory at the plateau.
    pub billed_bytes: u64,
    /// The least `max_stable_pages` for the target, the records and the reserve.
    pub max_stable_pages: u64,
    /// Cycles to deploy with: they create the canister, keep the plateau above the freezing threshold, pay for 30 days before feeding
    /// is refused, and leave what an upgrade needs.
    pub deposit_cycles: u128,
    /// Liquid cycles that an upgrade of the plateau needs without a snapshot.
    pub upgrade_cycles: u128,
    /// Liquid cycles that an upgrade needs if a snapshot of the plateau is taken before it, under production's freezing threshold: the
    /// snapshot's bytes need the storage of that threshold once more.
    pub snapshot_cycles: u128,
    /// Cycles per year for stable memory.
    pub storage_cycles: u128,
    /// Cycles per year for the messages with the blocks and the records, sent by ingress.
    pub feeding_cycles: u128,
    /// Cycles per year for the same messages from a canister, including that canister's fees for its calls.
    pub calling_cycles: u128,
    /// Cycles per year for the timer and for pruning.
    pub daemon_cycles: u128,
    /// Cost per year in XDR if the chain is fed by ingress; 1 XDR is 1 T cycles.
    pub xdr: f64,
    /// Ops per second that pruning needs to keep up: blocks, blobs, and index entries.
    pub ops_per_second: f64,
    /// True if `ops_per_second` is more than ticks can do, so that the backlog grows for ever.
    pub outruns_pruning: bool,
}

impl Size {
    /// Computes the needs of a chain.
    pub fn of(workload: Workload) -> Self {
        let Workload { block_bytes, transactions, keys, records, interval_ns, days, log_class, .. } = workload;
        // Besides the window, the head and the blocks between two ticks are kept.
        let retained = (days * DAY * NS).div_ceil(interval_ns).max(PrunePolicy::default().min_kept_blocks);
        let blocks = retained + 2 + (workload.timer_interval_secs * NS).div_ceil(interval_ns);
        let references = transactions + keys;
        // Limits the count to the blocks that a canister could hold at the very most, so that nothing overflows.
        let counted = blocks.min(memory::FAR_TOO_MUCH / (block_bytes + BLOCK_BYTES + references * REFERENCE_BYTES));
        // The window starts and ends in the middle of a blob.
        let kept_bytes = (counted * block_bytes).div_ceil(log_class) * log_class + 2 * log_class;
        let capacity_bytes = kept_bytes + counted * (BLOCK_BYTES + references * REFERENCE_BYTES);
        let target_bytes = (capacity_bytes * 10 / 8).max(21 * log_class).next_multiple_of(1 << 20);
        let entries = [counted * transactions, counted * keys, records];
        let billed_bytes = memory::billed(log_class, kept_bytes, counted, entries);
        let storage_cycles = (u128::from(billed_bytes) * GIB_SECOND * YEAR) >> 30;
        let a_year = |cycles: u128| cycles * YEAR * u128::from(NS) / u128::from(interval_ns);
        let (messages, bytes_in) = (workload.messages(), workload.bytes_in());
        let executed = messages * MESSAGE + u128::from(workload.feeding_instructions());
        let feeding_cycles = a_year(executed + messages * INGRESS + (bytes_in + messages * ENVELOPE) * INGRESS_BYTE);
        let firings = firings_a_second(&workload) * YEAR as f64;
        let instructions = workload.pruning_instructions() as f64 * YEAR as f64 / workload.interval_secs();
        let daemon_cycles = (firings * FIRING_CYCLES as f64 + instructions) as u128;
        let all_cycles = storage_cycles + feeding_cycles + daemon_cycles;
        let of_days = |cycles: u128, days: u128| cycles * days / 365;
        let fed_to = Config::default().min_liquid_cycles
            + cycles_of_ticks(workload.timer_interval_secs, DEPOSIT_DAYS as u64 * DAY, 13);
        let left = fed_to.max(UPGRADE_CYCLES + cycles_of_a_snapshot(billed_bytes));
        Self {
            workload,
            blocks,
            kept_bytes,
            target_bytes,
            billed_bytes,
            max_stable_pages: memory::least_pages(target_bytes, log_class, records),
            deposit_cycles: CREATION
                + left
                + of_days(storage_cycles, FREEZING_DAYS)
                + of_days(all_cycles, DEPOSIT_DAYS),
            upgrade_cycles: UPGRADE_CYCLES,
            snapshot_cycles: UPGRADE_CYCLES
                + cycles_of_a_snapshot(billed_bytes)
                + of_days(storage_cycles, FREEZING_DAYS),
            storage_cycles,
            feeding_cycles,
            calling_cycles: a_year(executed + messages * CALL + bytes_in * CALL_BYTE),
            daemon_cycles,
            xdr: all_cycles as f64 / 1e12,
            ops_per_second: ops(&workload),
            outruns_pruning: ops(&workload) > max_ops(),
        }
    }

    /// Returns the example in the docs: blocks like those of the demonstration, kept for 30 days.
    pub fn example() -> Self {
        Self::of(Workload {
            block_bytes: 177_000,
            transactions: 318,
            keys: 0,
            records: 0,
            verify: true,
            interval_ns: 15 * NS,
            days: 30,
            log_class: 1 << 20,
            timer_interval_secs: 600,
        })
    }

    /// Returns whether a canister may have this much stable memory.
    pub fn fits(&self) -> bool {
        self.billed_bytes <= 500 << 30
    }

    /// Returns the cycles that one block costs from append to pruning, by purpose.
    pub fn of_a_block(&self) -> [(&'static str, f64); 6] {
        let workload = &self.workload;
        let Workload { block_bytes, days, verify, .. } = *workload;
        let verified = if verify { VERIFY + block_bytes * VERIFY_BYTE } else { 0 };
        let bytes = workload.messages() * (INGRESS + ENVELOPE * INGRESS_BYTE) + workload.bytes_in() * INGRESS_BYTE;
        let executed = workload.messages() * MESSAGE + u128::from(workload.feeding_instructions() - verified);
        let storage = self.storage_cycles as f64 * days as f64 / 365.0 / self.blocks as f64;
        [
            ("ingress of its bytes", bytes as f64),
            ("stable memory", storage),
            ("SHA-256 of its segments", verified as f64),
            ("its messages, and appending it", executed as f64),
            ("firings of the timer", workload.firings() * FIRING_CYCLES as f64),
            ("pruning it, and sweeping its index entries", workload.pruning_instructions() as f64),
        ]
    }
}

impl Size {
    /// Returns the cycles that bring a block's bytes in by calls of another canister, in place of ingress.
    pub fn calls_of_a_block(&self) -> f64 {
        (self.workload.messages() * CALL + self.workload.bytes_in() * CALL_BYTE) as f64
    }
}

impl Workload {
    /// Bytes of the arguments for a block and its records.
    fn bytes_in(&self) -> u128 {
        let Workload { block_bytes, transactions, records, .. } = *self;
        let of_records = if records > 0 { transactions * (TRANSACTION_BYTES + RECORD_MESSAGE_BYTES) } else { 0 };
        u128::from(block_bytes) + u128::from(of_records)
    }

    /// Messages for a block and its records: batches of creations, spends and mined transactions.
    fn messages(&self) -> u128 {
        let Workload { block_bytes, transactions, records, .. } = *self;
        let batches = if records > 0 && transactions > 0 {
            3 * (transactions * (TRANSACTION_BYTES + RECORD_MESSAGE_BYTES)).div_ceil(feed::MAX_APPEND as u64)
        } else {
            0
        };
        u128::from(messages(block_bytes) + batches)
    }

    /// Instructions charged for the messages that bring a block.
    pub fn feeding_instructions(&self) -> u64 {
        let Workload { block_bytes, transactions, keys, records, verify, .. } = *self;
        let verified = if verify { VERIFY + block_bytes * VERIFY_BYTE } else { 0 };
        let records = if records > 0 { transactions * RECORD } else { 0 };
        let entered = transactions * APPEND_TRANSACTION + keys * APPEND_KEY;
        messages(block_bytes) * APPEND + block_bytes * APPEND_BYTE + entered + verified + records
    }

    /// Instructions charged for the timer between two blocks: firings, pruning one block, and sweeping its references.
    pub fn daemon_instructions(&self) -> u64 {
        (self.firings() * IDLE_FIRING as f64) as u64 + self.pruning_instructions()
    }

    /// Instructions charged for pruning a block, sweeping its references, and pruning as many records as the block created.
    fn pruning_instructions(&self) -> u64 {
        let Workload { transactions, keys, records, .. } = *self;
        let records = if records > 0 { transactions * PRUNE_RECORD } else { 0 };
        PRUNE + (transactions + keys) * SWEEP + records
    }

    /// Firings of the timer between two blocks.
    pub fn firings(&self) -> f64 {
        firings_a_second(self) * self.interval_secs()
    }
}

/// Firings of the timer per second: those of the safety timer; two per block, armed by the new block and by the age of the oldest block,
/// but at most one per timer interval; and those of sweeps, each of which drops as many entries as a tick may.
pub(super) fn firings_a_second(workload: &Workload) -> f64 {
    let interval = workload.interval_secs();
    let safety = 1.0 / SAFETY_SECS as f64;
    let armed = match workload.timer_interval_secs {
        SAFETY_SECS.. => 0.0,
        secs if secs as f64 > interval => 1.0 / secs as f64,
        _ => 2.0 / interval,
    };
    safety + armed + (workload.transactions + workload.keys) as f64 / interval / max_ops()
}

/// Ops per second that pruning takes: 1 per block, 2 per freed blob, 1 per reference.
fn ops(workload: &Workload) -> f64 {
    let Workload { block_bytes, transactions, keys, log_class, .. } = *workload;
    let blobs = block_bytes as f64 / log_class as f64;
    (1.0 + 2.0 * blobs + (transactions + keys) as f64) / workload.interval_secs()
}

/// Ops per tick by the default policy, and so per second, because there is one tick per round of about a second.
pub(super) fn max_ops() -> f64 {
    PrunePolicy::default().max_ops_per_tick as f64
}

/// Messages for a block: one `append_block`, or chunks between a begin and a commit.
fn messages(block_bytes: u64) -> u64 {
    if block_bytes <= feed::MAX_APPEND as u64 { 1 } else { block_bytes.div_ceil(u64::from(feed::CHUNK)) + 2 }
}

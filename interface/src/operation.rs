//! Configuration, roles and storage.

use super::{UtxoSettings, UtxoSettingsChange, UtxoStorage};
use crate::settings::{ConfigError, settings};
use crate::{BlockStorage, OpenBlock, OpenTransaction, Owner};
use candid::Principal;
use ic_coppice_macros::candid_type;
use thiserror::Error;

/// The argument of installation and upgrade. An argument of another type, or with an unknown field, is refused.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanisterArg {
    /// The argument for a new canister. An upgrade ignores it, because deployment tools pass the same argument to both.
    Init(InitArg),
    /// The argument for an upgrade: changes of settings.
    Upgrade(Option<ConfigChange>),
}

/// Settings of a new canister. Some of them are fixed at installation.
#[candid_type]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitArg {
    /// The bytes of a blob of the log, one of the seven size classes; default 1 MiB. Cannot be changed later.
    pub log_class: Option<u32>,
    /// The operator's cap on stable memory, in pages of 64 KiB, 5,120 to 8,192,000; default 500 GiB.
    pub max_stable_pages: Option<u64>,
    /// The first operators, which are not admins; controllers are always operators.
    pub operators: Vec<Principal>,
    /// The first principals with the role `Producer`; `grant_role` grants `BlockProducer` and `UtxoFeeder` separately.
    pub producers: Vec<Principal>,
    /// The number of nodes of the subnet, 1 to 1,000; default 13.
    pub nodes: Option<u32>,
    /// The `reserved_cycles_limit` of the canister's settings on the platform; default 5 T, as on the platform.
    pub reserved_cycles_limit: Option<u128>,
    /// The first admins; controllers are always admins.
    pub admins: Option<Vec<Principal>>,
    /// The setting `least_retries` of the UTXO store; default 0. Refused by a build without UTXO records.
    pub least_retries: Option<u32>,
}

settings! {
    /// The settings in force.
    pub struct Config;
    /// New settings; absent fields are unchanged.
    pub struct ConfigChange;
    @fixed {
        /// The bytes of a blob of the log.
        log_class: u32 = 1 << 20;
    }
    /// The operator's cap on stable memory, in pages of 64 KiB, 5,120 to 8,192,000.
    max_stable_pages: u64 = MAX_STABLE_PAGES, MIN_STABLE_PAGES..=MAX_STABLE_PAGES;
    /// Each segment is compared with its SHA-256 when a block is appended, which costs 77 instructions a byte.
    verify_segments: bool = true;
    /// The seconds after which an upload without a call is aborted, at least 1.
    upload_expiry_secs: u64 = 120, 1..=u64::MAX;
    /// The liquid cycles below which the daemon does not prune. Only its safety timer runs then, and checks whether
    /// cycles have been added. With the default a canister on 13 nodes that still prunes can be upgraded.
    min_liquid_cycles: u128 = UPGRADE_RESERVE;
    /// The liquid cycles below which calls that feed the canister are refused with `LowCycles`: calls that append blocks
    /// or begin to upload them, create UTXO records, or schedule the deletion of blobs. Pruning continues down to
    /// `min_liquid_cycles`. 0: `min_liquid_cycles` plus the cost of 30 days of its firings for blocks.
    feed_min_liquid_cycles: u128 = 0;
    /// Nothing is pruned while no exporter is registered.
    require_export: bool = false;
    /// The number of nodes of the subnet, 1 to 1,000: prices are proportional to it.
    nodes: u32 = 13, 1..=1_000;
    /// The `reserved_cycles_limit` of the canister's settings on the platform, which the canister cannot read: growth
    /// that would reserve more cycles for storage is refused.
    reserved_cycles_limit: u128 = 5_000_000_000_000;
    /// The number of blocks below the highest head since the last reset to which a producer may roll back. An admin may
    /// go deeper.
    max_rollback_blocks: u64 = 1_000;
    /// Every caller may call a query as an update. Otherwise only callers with a role may.
    open_queries: bool = false;
    /// The number of messages that a principal with a role, except feeders, may send at once, 10 to 1,000,000; all
    /// principals without a role share one such bucket. A message whose bucket is empty is refused before it costs
    /// anything.
    message_bucket: u32 = 3_000, 10..=1_000_000;
    /// The number of messages by which such a bucket refills in a minute, 1 to 1,000,000.
    messages_per_minute: u32 = 300, 1..=1_000_000;
    /// The seconds without a new block after which `health` reports the head as stale; 0: never.
    max_head_age_secs: u64 = 86_400;
    /// Every caller may read the log, at `/logs`. Otherwise only observers, operators and admins may, with `get_logs`.
    public_logs: bool = false;
    /// The setup is complete even without a policy or an exporter: `health` does not report them as missing.
    set_up_as_meant: bool = false;
    @nested {
        /// The settings of the UTXO store, which a build without UTXO records lacks.
        utxo: UtxoSettings, UtxoSettingsChange;
    }
}

/// Bytes of a Wasm page, the unit of stable memory.
pub const WASM_PAGE: u64 = 65_536;
/// Seconds between two firings of the safety timer, which fires even if nothing is due.
pub const SAFETY_SECS: u64 = 600;
/// Cycles of an idle firing of a timer on a subnet of 13 nodes: three messages of 5 M, and the instructions charged.
pub const FIRING_CYCLES: u128 = 3 * 5_000_000 + IDLE_INSTRUCTIONS as u128;
/// Instructions charged for an idle firing of a timer, heap pages included (`docs/reference/costs.md`).
pub const IDLE_INSTRUCTIONS: u64 = 70_000;

/// Returns the most cycles that firings of the daemon for blocks take in `secs` seconds on a subnet of `nodes` nodes:
/// those of the safety timer, and one in each interval of the policy.
pub fn cycles_of_ticks(timer_interval_secs: u64, secs: u64, nodes: u32) -> u128 {
    let armed = if timer_interval_secs < SAFETY_SECS { secs / timer_interval_secs.max(1) } else { 0 };
    u128::from(secs / SAFETY_SECS + armed) * FIRING_CYCLES * u128::from(nodes) / 13
}

/// Liquid cycles below which the platform refuses an upgrade on a subnet of 13 nodes: 300 G that it sets aside for the
/// instructions, and 11 G for bringing a module that is not compressed in chunks. An upgrade uses some 25 G of them.
pub const UPGRADE_CYCLES: u128 = 311_000_000_000;
/// Liquid cycles on a subnet of 13 nodes below which `health` reports that an upgrade will soon be refused.
pub const UPGRADE_RESERVE: u128 = 400_000_000_000;

/// Returns the cycles of taking a snapshot of `bytes` on a subnet of 13 nodes, without its storage.
pub fn cycles_of_a_snapshot(bytes: u64) -> u128 {
    2_005_000_000 + u128::from(bytes)
}

/// Most pages of 64 KiB of a canister's stable memory: 500 GiB.
pub const MAX_STABLE_PAGES: u64 = 500 << 14;
/// Fewest pages of a new canister: 32 MiB.
pub const MIN_STABLE_PAGES: u64 = 512;
/// Most bytes of the reserve below `max_stable_pages`.
const MOST_RESERVE: u64 = 64 << 20;

/// Bytes of stable memory that one `append_block` takes at most: 2 MiB of payload and 1.2 MiB of links in blobs, a page of headers,
/// and 9.3 MiB of pages of both indexes for [`MAX_ENTRIES`](crate::segments::MAX_ENTRIES) references.
pub const APPEND_ROOM: u64 = 16 << 20;

/// Returns the bytes below `max_stable_pages` that only blocks, and work on existing UTXO records and rows, may use: an eighth, at most
/// 64 MiB.
pub fn records_reserve(max_stable_pages: u64) -> u64 {
    (max_stable_pages * WASM_PAGE / 8).min(MOST_RESERVE)
}

/// Bytes of the smallest unit of the memory of UTXO records.
const LEAST_UNIT: u32 = 256 << 10;

/// Returns the most bytes of a canister's memory that hold no payload, headers, records or index pages: the first unit of each extent of 256 MiB, which
/// its front breaks; cells, logs, samples and directories, with 8 bytes in the log's directory for each blob; the rest of the last block.
pub fn bytes_of_spaces(max_stable_pages: u64, log_class: u32) -> u64 {
    let bytes = max_stable_pages.saturating_mul(WASM_PAGE);
    // 10 MiB for the audit log, 2 for ended jobs, 1 for the log, less than 2 for all else; and 4 of the last block.
    let few = (19 << 20_u64).min(bytes / 4);
    max_stable_pages.div_ceil(4_096) * u64::from(log_class.max(LEAST_UNIT)) + few + bytes / u64::from(log_class) * 8
}

/// Returns the least `max_stable_pages` with which a chain of blobs of `log_class` reaches its target while UTXO records keep `utxo_bytes`.
pub fn least_pages(target_bytes: u64, log_class: u32, utxo_bytes: u64) -> u64 {
    let (mut low, mut high) = (MIN_STABLE_PAGES, 1 << 40);
    while low < high {
        let pages = low.midpoint(high);
        match left_of(pages, log_class, utxo_bytes) {
            Some(left) if left >= target_bytes => high = pages,
            _ => low = pages + 1,
        }
    }
    low
}

/// Returns the greatest target that [`least_pages`] allows, in whole MiB; 0 if there is none.
pub fn greatest_target(max_stable_pages: u64, log_class: u32, utxo_bytes: u64) -> u64 {
    left_of(max_stable_pages, log_class, utxo_bytes).unwrap_or(0) >> 20 << 20
}

/// Returns the greatest bytes of UTXO records beside a chain with this target; 0 if there are none.
pub fn greatest_records(max_stable_pages: u64, log_class: u32, target_bytes: u64) -> u64 {
    left_of(max_stable_pages, log_class, target_bytes).unwrap_or(0)
}

/// Bytes that are left beside the reserve, spaces and `taken` bytes.
fn left_of(pages: u64, log_class: u32, taken: u64) -> Option<u64> {
    let besides = records_reserve(pages).max(APPEND_ROOM) + bytes_of_spaces(pages, log_class);
    (pages * WASM_PAGE).checked_sub(besides)?.checked_sub(taken)
}

/// A role of a principal; `SECURITY.md` has the table.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Includes both roles, `BlockProducer` and `UtxoFeeder`.
    Producer,
    /// Appends blocks, uploads them, and rolls back up to `max_rollback_blocks`.
    BlockProducer,
    /// Changes UTXO records, notifies heights, and schedules the deletion of external blobs.
    UtxoFeeder,
    /// Freezes, unfreezes and reassigns outputs.
    Alert,
    /// Acknowledges blocks.
    Exporter,
    /// Deletes external blobs.
    BlobWorker,
    /// Operates the canister: policy, exporters, the pruners. Controllers are operators.
    Operator,
    /// Reads the audit log (`get_audit_log`) and the canister's log (`get_logs`).
    Observer,
    /// Grants roles, changes settings, removes the export guard, resets the chain, and rolls back deeper than a
    /// producer. Controllers are admins.
    Admin,
}

impl Role {
    /// All roles, in their order.
    pub const ALL: [Self; 9] = [
        Self::Producer,
        Self::BlockProducer,
        Self::UtxoFeeder,
        Self::Alert,
        Self::Exporter,
        Self::BlobWorker,
        Self::Operator,
        Self::Observer,
        Self::Admin,
    ];
}

/// A principal's role.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The principal that has the role.
    pub principal: Principal,
    /// The role.
    pub role: Role,
}

/// The reason why a role was not granted. Nothing has changed.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RoleError {
    /// The anonymous principal cannot have a role, because every caller can be anonymous.
    #[error("the anonymous principal has no roles")]
    Anonymous,
    /// The number of grants has reached its limit.
    #[error("grant limit ({limit}) reached")]
    TooMany {
        /// The most grants.
        limit: u64,
    },
    /// The role `Exporter` alone cannot acknowledge: `register_exporter` grants it together with a name.
    #[error("use register_exporter: {why}")]
    RegisterExporter {
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not know.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// Uploads that are open.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenUploads {
    /// The upload of a block.
    pub block: Option<OpenBlock>,
    /// The uploads of transactions, one a feeder; `null` in a build without UTXO records.
    pub transactions: Option<Vec<OpenTransaction>>,
}

/// Kept bytes of an owner.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerStorage {
    /// The owner.
    pub owner: Owner,
    /// The bytes that the owner has taken from the arena, quarantined blobs included, in whole slots of 64 KiB to 4 MiB.
    pub kept_bytes: u64,
}

/// Slots of a size class that can be reused, now or later, and lost ones.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStorage {
    /// The bytes of a slot.
    pub class: u32,
    /// The number of slots whose blob was freed but not yet released.
    pub quarantined: u64,
    /// The number of slots that may be reused.
    pub free: u64,
    /// The number of slots written off because their entry cannot be decoded.
    pub lost: u64,
}

/// Use of stable memory.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageStatus {
    /// Bytes of stable memory that the platform bills. They never decrease.
    pub billed_bytes: u64,
    /// The operator's cap on stable memory, in bytes.
    pub max_bytes: u64,
    /// Bytes of the arena, from which all owners take their memory, in slots.
    pub arena_bytes: u64,
    /// The bytes that all owners have taken, quarantined blobs not included.
    pub used_bytes: u64,
    /// Class bytes of quarantined blobs.
    pub quarantined_bytes: u64,
    /// Bytes of free slots, which are taken before memory grows. `utxo.reusable_bytes` of them serve UTXO records only.
    pub reusable_bytes: u64,
    /// Payload bytes of kept blocks.
    pub payload_bytes: u64,
    /// The kept bytes by owner.
    pub owners: Vec<OwnerStorage>,
    /// The free, quarantined and lost slots by size class.
    pub classes: Vec<ClassStorage>,
    /// A lower bound of the number of different transaction ids of the kept blocks; exact after a sweep.
    pub index_entries: u64,
    /// A lower bound of the number of different secondary keys of the kept blocks; exact after a sweep.
    pub key_entries: u64,
    /// The number of kept blocks.
    pub blocks: u64,
    /// The UTXO records and their memory; `null` in a build without UTXO records.
    pub utxo: Option<UtxoStorage>,
    /// The payload of the block that was asked for; `null` if none was, or the block is not kept.
    pub block: Option<BlockStorage>,
}

//! Configuration, roles and storage.

use super::{UtxoSettings, UtxoSettingsChange, UtxoStorage};
use crate::settings::{ConfigError, settings};
use crate::{BlockStorage, OpenBlock, OpenTransaction, Owner};
use candid::{CandidType, Principal};
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The argument of installation and upgrade.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum CanisterArg {
    /// The argument for a new canister. An upgrade ignores it, as deployment tools pass the same argument to both.
    Init(InitArg),
    /// The argument for an upgrade: the settings that change with it.
    Upgrade(Option<ConfigChange>),
}

/// What is fixed, or set first, at installation.
#[native_docs]
#[derive(Clone, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct InitArg {
    /// The bytes of a blob of the log, one of the seven size classes; default 1 MiB. Fixed for ever.
    pub log_class: Option<u32>,
    /// The operator's cap on stable memory, in pages of 64 KiB, 5,120 to 8,192,000; default 500 GiB.
    pub max_stable_pages: Option<u64>,
    /// The first operators, who are no admins; controllers are operators always.
    pub operators: Vec<Principal>,
    /// The first principals with the role `Producer`; `grant_role` grants its halves.
    pub producers: Vec<Principal>,
    /// The number of nodes of the subnet, 1 to 1,000; default 13.
    pub nodes: Option<u32>,
    /// The `reserved_cycles_limit` of the canister's settings on the platform; default 5 T, the platform's.
    pub reserved_cycles_limit: Option<u128>,
    /// The first admins; controllers are admins always.
    pub admins: Option<Vec<Principal>>,
    /// The setting `least_retries` of the UTXO store; default 0.
    pub least_retries: Option<u32>,
}

settings! {
    /// The settings in force.
    pub struct Config;
    /// New settings; what is left out stays.
    pub struct ConfigChange;
    @fixed {
        /// The bytes of a blob of the log.
        log_class: u32 = 1 << 20;
    }
    /// The operator's cap on stable memory, in pages of 64 KiB, 5,120 to 8,192,000.
    max_stable_pages: u64 = MAX_STABLE_PAGES, MIN_STABLE_PAGES..=MAX_STABLE_PAGES;
    /// Each segment is checked against its SHA-256 when a block is appended: 76 instructions a byte.
    verify_segments: bool = true;
    /// The seconds after which an upload that nobody touched is aborted, 1 at least.
    upload_expiry_secs: u64 = 120, 1..=u64::MAX;
    /// The liquid cycles below which the daemon does not prune, and of its timers only the one of ten minutes runs,
    /// which looks whether there are more again.
    min_liquid_cycles: u128 = 100_000_000_000;
    /// The liquid cycles below which what feeds the canister is refused, with `LowCycles`: `append_block`, `begin_block`,
    /// `commit_block`, `utxo_create` and `schedule_blob_deletion`, while pruning goes on down to `min_liquid_cycles`. 0: 30
    /// days of the timer for blocks, above `min_liquid_cycles`.
    feed_min_liquid_cycles: u128 = 0;
    /// Nothing is pruned while no exporter is registered.
    require_export: bool = false;
    /// The number of nodes of the subnet, 1 to 1,000: prices grow with them.
    nodes: u32 = 13, 1..=1_000;
    /// The `reserved_cycles_limit` of the canister's settings on the platform, which the canister cannot see: growing that would
    /// reserve more cycles for storage is refused.
    reserved_cycles_limit: u128 = 5_000_000_000_000;
    /// The number of blocks below the highest head since the last reset that a producer may roll back to. An admin may go
    /// deeper.
    max_rollback_blocks: u64 = 1_000;
    /// Anybody may call a query as an update. Else only callers with a role may.
    open_queries: bool = false;
    /// The messages that a principal with a role, except feeders, may send at once, 10 to 1,000,000; principals without a
    /// role share one such bucket. A message of which the bucket is empty is refused before it costs anything.
    message_bucket: u32 = 3_000, 10..=1_000_000;
    /// The messages by which such a bucket refills in a minute, 1 to 1,000,000.
    messages_per_minute: u32 = 300, 1..=1_000_000;
    /// The seconds without a new block after which `health` calls the head stale; 0: never.
    max_head_age_secs: u64 = 86_400;
    /// Anybody may read the log, at `/logs`. Else only observers, operators and admins may, with `get_logs`.
    public_logs: bool = false;
    /// The canister is set up as it is meant to be, also where it has no policy or no exporter: `health` asks for neither.
    set_up_as_meant: bool = false;
    @nested {
        /// The settings of the UTXO store.
        utxo: UtxoSettings, UtxoSettingsChange;
    }
}

/// Bytes of a Wasm page, by which stable memory is counted.
pub const WASM_PAGE: u64 = 65_536;
/// Bytes by which a region of stable memory grows.
pub const BUCKET: u64 = 256 * WASM_PAGE;
/// Seconds between two firings of the timer for blocks where nothing is due: the net.
pub const NET_SECS: u64 = 600;
/// Cycles of an idle firing of a timer on a subnet of 13 nodes: three messages of 5 M, and the instructions charged.
pub const FIRING_CYCLES: u128 = 3 * 5_000_000 + IDLE_INSTRUCTIONS as u128;
/// Instructions charged for an idle firing of a timer, heap pages included (`docs/costs.md`).
pub const IDLE_INSTRUCTIONS: u64 = 70_000;

/// Cycles that firings of the timer for blocks take in so many seconds at most, on a subnet of so many nodes: the net's, and one
/// in each interval of the policy.
pub fn cycles_of_ticks(timer_interval_secs: u64, secs: u64, nodes: u32) -> u128 {
    let armed = if timer_interval_secs < NET_SECS { secs / timer_interval_secs.max(1) } else { 0 };
    u128::from(secs / NET_SECS + armed) * FIRING_CYCLES * u128::from(nodes) / 13
}

/// Most pages of 64 KiB of a canister's stable memory: 500 GiB.
pub const MAX_STABLE_PAGES: u64 = 500 << 14;
/// Fewest pages with which an empty canister starts: a bucket for each region, one to spare, and the reserve of records.
pub const MIN_STABLE_PAGES: u64 = 4_096 + RECORDS_RESERVE / WASM_PAGE;
/// Bytes below `max_stable_pages` that only operations on UTXO records and rows that are there may take.
pub const RECORDS_RESERVE: u64 = 64 << 20;

/// Bytes with which the regions of an empty chain begin, by the size of the log's blobs: seven of a bucket, and the directory of the
/// log with 8 bytes for each blob that 500 GiB hold.
pub fn chain_begins(log_class: u32) -> u64 {
    let directory = MAX_STABLE_PAGES * WASM_PAGE / u64::from(log_class) * 8;
    7 * BUCKET + directory.next_multiple_of(BUCKET)
}

/// What a principal may do; `docs/design.md` 8 has the table.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum Role {
    /// Has both roles, `BlockProducer` and `UtxoFeeder`.
    Producer,
    /// Appends blocks, uploads them, and rolls back `max_rollback_blocks`.
    BlockProducer,
    /// Changes UTXO records, says where the chain is (`utxo_notify_block`), and schedules the deletion of blobs outside.
    UtxoFeeder,
    /// Freezes, unfreezes and reassigns outputs.
    Alert,
    /// Acknowledges blocks.
    Exporter,
    /// Deletes blobs outside.
    BlobWorker,
    /// Sees to the canister: policy, exporters, the pruners. Controllers are operators.
    Operator,
    /// Reads the audit log (`get_audit_log`) and the canister's log (`get_logs`).
    Observer,
    /// Grants roles, changes settings, gives up the export guard, resets the chain, and rolls back deep. Controllers are admins.
    Admin,
}

impl Role {
    /// All of them, in their order.
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
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub struct Grant {
    /// The principal that has the role.
    pub principal: Principal,
    /// The role.
    pub role: Role,
}

/// Why a role was not granted. Nothing has changed.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, Error, CandidType, Serialize, Deserialize)]
pub enum RoleError {
    /// The anonymous principal has no roles: anyone can be it.
    #[error("the anonymous principal has no roles")]
    Anonymous,
    /// There are as many grants as there may be.
    #[error("there are {limit} grants, which is the most")]
    TooMany {
        /// The most grants that there may be.
        limit: u64,
    },
    /// The role `Exporter` alone acknowledges nothing: an operator's `register_exporter` grants it.
    #[error("use register_exporter: {why}")]
    RegisterExporter {
        /// The reason as a sentence.
        why: String,
    },
    /// A reason that this version does not name.
    #[error("{message}")]
    Other {
        /// The reason as a stable word.
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// Uploads that are open.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct OpenUploads {
    /// The upload of a block.
    pub block: Option<OpenBlock>,
    /// The uploads of transactions, one a feeder.
    pub transactions: Vec<OpenTransaction>,
}

/// Kept bytes of an owner.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct OwnerStorage {
    /// The owner of the blobs.
    pub owner: Owner,
    /// The class bytes of the owner's used and quarantined blobs.
    pub kept_bytes: u64,
}

/// Slots of a size class.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct ClassStorage {
    /// The bytes of a slot.
    pub class: u32,
    /// The number of slots that hold a blob.
    pub used: u64,
    /// The number of slots whose blob was freed and not yet released.
    pub quarantined: u64,
    /// The number of slots that may be reused.
    pub free: u64,
    /// The number of slots written off because their entry cannot be decoded.
    pub lost: u64,
}

/// Stable memory of one region.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct RegionStorage {
    /// The region's name.
    pub name: String,
    /// The bytes that the region may use without growing.
    pub bytes: u64,
}

/// Where the bytes are.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct StorageStatus {
    /// Bytes of stable memory that the platform bills. They never become fewer.
    pub billed_bytes: u64,
    /// The operator's cap on stable memory, in bytes.
    pub max_bytes: u64,
    /// Bytes of the arena in slots, and grown but never used.
    pub arena_bytes: u64,
    /// Class bytes of used blobs.
    pub used_bytes: u64,
    /// Class bytes of quarantined blobs.
    pub quarantined_bytes: u64,
    /// Bytes that new blobs can take without growing: free slots, and the arena's unused end.
    pub reusable_bytes: u64,
    /// Payload bytes of the kept blocks.
    pub payload_bytes: u64,
    /// The kept bytes by owner.
    pub owners: Vec<OwnerStorage>,
    /// The slots by size class.
    pub classes: Vec<ClassStorage>,
    /// The bytes by region.
    pub regions: Vec<RegionStorage>,
    /// The number of different transaction ids that the kept blocks have: at least so many, and exactly so many after a
    /// sweep.
    pub index_entries: u64,
    /// The number of different secondary keys that the kept blocks have: at least so many, and exactly so many after a
    /// sweep.
    pub key_entries: u64,
    /// The number of kept blocks.
    pub blocks: u64,
    /// The UTXO records and their memory.
    pub utxo: UtxoStorage,
    /// The payload of the block that was asked for; `null` if none was, or the block is not kept.
    pub block: Option<BlockStorage>,
}

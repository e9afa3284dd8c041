//! Whether all is well, and what is to be done where it is not.

use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is wrong, as far as this version knows. Answers have the code's name, so that a client reads those of a later version, too.
/// `docs/operations.md` says of each code what raises it, what clears it and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemCode {
    /// A timer is overdue: nothing is pruned, and nothing expires.
    TimerOverdue,
    /// Pruning has been behind for long.
    PruneBehind,
    /// Pruning is due and switched off.
    PruningOff,
    /// An exporter, or that there is none, holds back what is due.
    ExportHeld,
    /// Kept bytes have reached emergency water: appends are refused.
    CapacityExhausted,
    /// The head and the block before it, which capacity leaves, are above high water: the message names the `target_bytes`
    /// that they need.
    FloorHolds,
    /// Liquid cycles are below `min_liquid_cycles`: the pruner is paused.
    CyclesLow,
    /// Liquid cycles are below `feed_min_liquid_cycles`: blocks and UTXO records are refused, and pruning goes on.
    FeedingRefused,
    /// Liquid cycles do not pay for three calls of a timer, some 126 G on 13 nodes; or did not, and no update of somebody with a role has come since: no timer runs.
    TimersStopped,
    /// Cycles are missing for stable memory to grow.
    GrowthUnpaid,
    /// For stable memory to grow, more cycles would be reserved than `reserved_cycles_limit` allows.
    ReservationLimit,
    /// Stable memory comes near `max_stable_pages`.
    MemoryNearCap,
    /// Stable memory cannot grow any more: `max_stable_pages` is reached.
    MemoryAtCap,
    /// Something damaged was skipped or written off, and no operator has acknowledged it.
    Damaged,
    /// Something damaged was skipped or written off, and an operator has acknowledged it.
    DamageAcknowledged,
    /// The head's record cannot be decoded.
    HeadUnreadable,
    /// Work of the daemon traps, and is passed over.
    SetAside,
    /// UTXO records are left alone, as looking at them trapped.
    RecordsPassedOver,
    /// Unmined UTXO records that cannot be read are set aside.
    UnminedSetAside,
    /// Parents of an old unmined UTXO record cannot be preserved: no record is pruned.
    PreservationBlocked,
    /// A job of the pruner of UTXO records failed, as finding what comes next trapped.
    PrunerTrapped,
    /// Heights are notified that are far below those that were notified before: no record is pruned by them.
    HeightsAhead,
    /// A feeder's height was refused within two hours: `max_height_jump` and `heights_per_day` do not let it raise heights so far.
    HeightsRefused,
    /// A producer may raise heights as it likes: `heights_per_day` is 0.
    HeightsUnlimited,
    /// `max_height_jump` is above `block_height_retention`: a producer has deleted at once what retention would keep.
    HeightJumpWide,
    /// The upload of a block is open: no other block is appended.
    UploadOpen,
    /// No block was appended for `max_head_age_secs`.
    HeadStale,
    /// Blobs outside were given up: their UTXO records wait for an operator.
    DeadBlobDeletions,
    /// A job of the pruner of UTXO records has waited for the block assembly for longer than an hour.
    UtxoPrunerWaits,
    /// A job of the pruner of UTXO records has been there for longer than an hour, and that pruner is switched off.
    UtxoPrunerOff,
    /// Blobs outside that are due have waited for longer than six hours, and no worker has taken one of their store type.
    BlobDeletionsWait,
    /// A blob worker has as many leases as it may, and has completed none for an hour while rows wait.
    BlobLeasesIdle,
    /// The transactions' data in the BlobStore comes near `max_external_bytes`.
    ExternalNearFull,
    /// The transactions' data in the BlobStore has reached `max_external_bytes`: large transactions are refused.
    ExternalFull,
    /// The memory of UTXO records comes near `max_utxo_bytes`, or the deletion queue near `max_deletion_rows`.
    RecordsNearFull,
    /// The memory of UTXO records has reached `max_utxo_bytes`, or the deletion queue `max_deletion_rows`: new ones are
    /// refused.
    RecordsFull,
    /// An upload is kept open for longer than an hour: by `upload_expiry_secs` where it was left alone, or, of a block, by calls.
    UploadStuck,
    /// An exporter has no key since an admin revoked its role, and holds pruning back.
    ExporterKeyless,
    /// Deletions are stopped: nothing is pruned, and workers get no blob to delete.
    DeletionsStopped,
    /// Nobody has a role that feeds the canister.
    NoProducer,
    /// No exporter is registered, and nobody said that none is meant to be (`set_up_as_meant`).
    NoExporter,
    /// No policy is set, and nobody said that none is meant to be (`set_up_as_meant`).
    NoPolicy,
}

impl ProblemCode {
    /// All of them, in their order.
    pub const ALL: [Self; 42] = [
        Self::TimerOverdue,
        Self::PruneBehind,
        Self::PruningOff,
        Self::ExportHeld,
        Self::CapacityExhausted,
        Self::FloorHolds,
        Self::CyclesLow,
        Self::FeedingRefused,
        Self::TimersStopped,
        Self::GrowthUnpaid,
        Self::ReservationLimit,
        Self::MemoryNearCap,
        Self::MemoryAtCap,
        Self::Damaged,
        Self::DamageAcknowledged,
        Self::HeadUnreadable,
        Self::SetAside,
        Self::RecordsPassedOver,
        Self::UnminedSetAside,
        Self::PreservationBlocked,
        Self::PrunerTrapped,
        Self::HeightsAhead,
        Self::HeightsRefused,
        Self::HeightsUnlimited,
        Self::HeightJumpWide,
        Self::UploadOpen,
        Self::HeadStale,
        Self::DeadBlobDeletions,
        Self::UtxoPrunerWaits,
        Self::UtxoPrunerOff,
        Self::BlobDeletionsWait,
        Self::BlobLeasesIdle,
        Self::ExternalNearFull,
        Self::ExternalFull,
        Self::RecordsNearFull,
        Self::RecordsFull,
        Self::UploadStuck,
        Self::ExporterKeyless,
        Self::DeletionsStopped,
        Self::NoProducer,
        Self::NoExporter,
        Self::NoPolicy,
    ];

    /// Whether something was never set up, which is no problem of what was.
    pub fn is_of_set_up(self) -> bool {
        matches!(self, Self::NoProducer | Self::NoExporter | Self::NoPolicy)
    }
}

/// The name, as answers have it.
impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl PartialEq<ProblemCode> for String {
    fn eq(&self, code: &ProblemCode) -> bool {
        let name = code.to_string();
        *self == name
    }
}

/// How bad a problem is.
#[native_docs]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, CandidType, Serialize, Deserialize)]
pub enum Severity {
    /// Appends or new UTXO records are refused or about to be, the daemon does not work, or data is damaged.
    Critical,
    /// The problem becomes critical where nobody does anything.
    Warning,
    /// Worth knowing; all is well.
    Notice,
}

/// Something that is wrong. Whoever asks may read it: it says nothing of balances.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Problem {
    /// The name of what is wrong, as the table of `docs/operations.md` has it. A later version may have names that an earlier one
    /// has not.
    pub code: String,
    /// How bad the problem is.
    pub severity: Severity,
    /// A sentence with the figures of this case.
    pub message: String,
    /// The moment at which the problem began, in Unix nanoseconds, where that is known; else the moment at which a message
    /// or a tick noticed it, at most one a minute. A problem that none has noticed yet has the time of the question.
    pub since: u64,
    /// What to do, as a sentence.
    pub action: String,
}

impl Problem {
    /// What is wrong, where this version knows it.
    pub fn known(&self) -> Option<ProblemCode> {
        ProblemCode::ALL.into_iter().find(|code| self.code == *code)
    }
}

/// Whether all is well.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Health {
    /// There is no problem, or there are notices only.
    pub healthy: bool,
    /// The problems, the worst first.
    pub problems: Vec<Problem>,
    /// The canister's version.
    pub version: String,
    /// The canister's time, in Unix nanoseconds.
    pub time: u64,
}

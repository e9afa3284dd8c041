//! Health report: problems, and the action for each.

use crate::text::duration;
use ic_coppice_macros::candid_type;
use std::fmt;

/// A kind of problem. Answers contain the code's name, so that clients can read codes of later versions.
/// `docs/operations/alerts.md` lists for each code its cause, how to see it and the action to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemCode {
    /// A timer is overdue: nothing is pruned, and nothing expires.
    TimerOverdue,
    /// Pruning has been behind for a long time.
    PruneBehind,
    /// Pruning is due and switched off.
    PruningOff,
    /// An exporter, a missing exporter, or UTXO records to which blocks are not applied, hold back due blocks.
    ExportHeld,
    /// Kept bytes have reached emergency water: appends are refused.
    CapacityExhausted,
    /// The head and its parent, which capacity pruning keeps, are above high water: the message names the
    /// `target_bytes` that they need.
    FloorHolds,
    /// Liquid cycles are below `min_liquid_cycles`: the pruner is paused.
    CyclesLow,
    /// Liquid cycles are below `feed_min_liquid_cycles`: blocks and UTXO records are refused, and pruning continues.
    FeedingRefused,
    /// Liquid cycles do not pay for three timer calls, some 126 G on 13 nodes; or they did not, and no caller with a
    /// role has sent an update since: no timer runs.
    TimersStopped,
    /// Liquid cycles are below 400 G on 13 nodes: below 311 G the platform refuses an upgrade.
    UpgradeUnpaid,
    /// The hash key is not drawn yet: blocks, UTXO records and blobs to delete are refused as `NotReady`.
    NotReady,
    /// Cycles are missing for the growth of stable memory.
    GrowthUnpaid,
    /// The growth of stable memory would reserve more cycles than `reserved_cycles_limit` allows.
    ReservationLimit,
    /// Stable memory is close to `max_stable_pages`.
    MemoryNearCap,
    /// Stable memory cannot grow: `max_stable_pages` is reached.
    MemoryAtCap,
    /// Damaged data was skipped or written off, and no operator has acknowledged it.
    Damaged,
    /// Damaged data was skipped or written off, and an operator has acknowledged it.
    DamageAcknowledged,
    /// The head's header is damaged.
    HeadUnreadable,
    /// Work of the daemon is skipped, because it traps.
    WorkSkipped,
    /// UTXO records are skipped, because reading them trapped.
    RecordsSkipped,
    /// Unmined UTXO records that cannot be read are skipped.
    UnminedSkipped,
    /// Parents of an old unmined UTXO record cannot be preserved: no record is pruned.
    PreservationBlocked,
    /// A job of the UTXO pruner failed, because finding its next record trapped.
    PrunerTrapped,
    /// Notified heights are far below those notified before: no record is pruned by them.
    HeightsAhead,
    /// A feeder's height was refused within the last two hours: `max_height_jump` and `heights_per_day` do not allow
    /// such a rise.
    HeightsRefused,
    /// A feeder may raise heights without limit: `heights_per_day` is 0.
    HeightsUnlimited,
    /// `max_height_jump` is above `block_height_retention`: a feeder can cause the immediate deletion of records that
    /// retention would keep.
    HeightJumpWide,
    /// A transaction of the next block cannot be applied to the UTXO records: pruning is held until the reason is
    /// resolved.
    ApplyingStopped,
    /// A rollback waits for memory, which taking an applied block back from the UTXO records needs: appends and applying
    /// are refused.
    RollbackWaits,
    /// Blocks were taken back from the UTXO records although some of their records had been pruned.
    NotRestored,
    /// Transactions of applied blocks got no record, because the canister may have pruned an earlier one.
    CountedAsPruned,
    /// A block upload is open: no other block can be appended.
    UploadOpen,
    /// No block was appended for `max_head_age_secs`.
    HeadStale,
    /// External blobs were given up: their UTXO records wait for an operator.
    DeadBlobDeletions,
    /// A job of the UTXO pruner has waited for the block assembly for more than an hour.
    UtxoPrunerWaits,
    /// A job of the UTXO pruner has existed for more than an hour, and that pruner is switched off.
    UtxoPrunerOff,
    /// UTXO records that have been due for a day's blocks exist, and have for more than an hour.
    RecordsOverdue,
    /// An external blob has been due for more than six hours and is not deleted, however often workers have leased it.
    BlobDeletionsWait,
    /// A blob worker has as many leases as allowed, and has completed none for an hour while rows wait.
    BlobLeasesIdle,
    /// The transactions' data in the BlobStore is close to `max_external_bytes`.
    ExternalNearFull,
    /// The transactions' data in the BlobStore has reached `max_external_bytes`: large transactions are refused.
    ExternalFull,
    /// The memory of UTXO records is close to `max_utxo_bytes`, or the deletion queue close to `max_deletion_rows`.
    RecordsNearFull,
    /// The memory of UTXO records has reached `max_utxo_bytes`, or the deletion queue `max_deletion_rows`: new records
    /// or rows are refused.
    RecordsFull,
    /// The upload of a block is kept open for more than an hour, by `upload_expiry_secs` or by repeated calls: no other
    /// block can be appended.
    UploadStuck,
    /// The upload of a transaction has had no call for more than an hour, and `upload_expiry_secs` keeps it open.
    TransactionUploadStuck,
    /// An exporter has no key since an admin revoked its role, and holds back pruning.
    ExporterKeyless,
    /// Deletions are stopped: nothing is pruned, and workers get no blob to delete.
    DeletionsStopped,
    /// Other code of the canister has grown stable memory: these pages are billed, and never used.
    StrayMemory,
    /// No principal has a role that feeds the canister.
    NoProducer,
    /// No exporter is registered, and the setting `set_up_as_meant` is off.
    NoExporter,
    /// No policy is set, and the setting `set_up_as_meant` is off.
    NoPolicy,
}

impl ProblemCode {
    /// All codes, in their order.
    pub const ALL: [Self; 51] = [
        Self::TimerOverdue,
        Self::PruneBehind,
        Self::PruningOff,
        Self::ExportHeld,
        Self::CapacityExhausted,
        Self::FloorHolds,
        Self::CyclesLow,
        Self::FeedingRefused,
        Self::TimersStopped,
        Self::UpgradeUnpaid,
        Self::NotReady,
        Self::GrowthUnpaid,
        Self::ReservationLimit,
        Self::MemoryNearCap,
        Self::MemoryAtCap,
        Self::Damaged,
        Self::DamageAcknowledged,
        Self::HeadUnreadable,
        Self::WorkSkipped,
        Self::RecordsSkipped,
        Self::UnminedSkipped,
        Self::PreservationBlocked,
        Self::PrunerTrapped,
        Self::HeightsAhead,
        Self::HeightsRefused,
        Self::HeightsUnlimited,
        Self::HeightJumpWide,
        Self::ApplyingStopped,
        Self::RollbackWaits,
        Self::NotRestored,
        Self::CountedAsPruned,
        Self::UploadOpen,
        Self::HeadStale,
        Self::DeadBlobDeletions,
        Self::UtxoPrunerWaits,
        Self::UtxoPrunerOff,
        Self::RecordsOverdue,
        Self::BlobDeletionsWait,
        Self::BlobLeasesIdle,
        Self::ExternalNearFull,
        Self::ExternalFull,
        Self::RecordsNearFull,
        Self::RecordsFull,
        Self::UploadStuck,
        Self::TransactionUploadStuck,
        Self::ExporterKeyless,
        Self::DeletionsStopped,
        Self::StrayMemory,
        Self::NoProducer,
        Self::NoExporter,
        Self::NoPolicy,
    ];

    /// Returns whether the code reports a missing setup step rather than a fault.
    pub fn is_of_set_up(self) -> bool {
        matches!(self, Self::NoProducer | Self::NoExporter | Self::NoPolicy)
    }
}

/// The name, as in answers.
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

/// Severity of a problem.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Appends or new UTXO records are refused or about to be, the daemon does not work, or data is damaged.
    Critical,
    /// The problem becomes critical unless an operator acts.
    Warning,
    /// A notice: the canister is healthy.
    Notice,
}

/// A problem. Every caller may read it, because it does not reveal balances.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The code of the problem, as in `docs/operations/alerts.md`. A later version may have codes that an earlier one does
    /// not have.
    pub code: String,
    /// The severity of the problem.
    pub severity: Severity,
    /// A sentence with the figures of this case.
    pub message: String,
    /// The moment at which the problem began, in Unix nanoseconds, or at which a message or a tick first noticed it;
    /// `null` if none has noticed it yet. Messages and ticks look at most once a minute.
    pub since_ns: Option<u64>,
    /// The action to take: sentences, and a command between backticks.
    pub action: String,
}

impl Problem {
    /// Returns the code, or `None` if this version does not know it.
    pub fn known(&self) -> Option<ProblemCode> {
        ProblemCode::ALL.into_iter().find(|code| self.code == *code)
    }
}

/// Cycles of the canister.
#[candid_type]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CyclesStatus {
    /// Cycles that are liquid between messages.
    pub liquid: u128,
    /// Liquid cycles that are missing for the canister to do all its work; 0 if none are. Below the freezing threshold
    /// of the platform more are missing.
    pub missing: u128,
}

/// Health of the canister.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// There is no problem, or there are only notices.
    pub healthy: bool,
    /// The problems, most severe first. Among problems of one severity, causes come before what they cause.
    pub problems: Vec<Problem>,
    /// The reason why the next block is refused now, as a clause; `null` if it is accepted.
    pub appends_refused: Option<String>,
    /// The cycles, for operators, observers and admins; `null` for other callers.
    pub cycles: Option<CyclesStatus>,
    /// The canister's version.
    pub version: String,
    /// The canister's time, in Unix nanoseconds.
    pub time_ns: u64,
    /// The moment at which a message or a tick last looked for problems, in Unix nanoseconds; `null` if none has looked
    /// since the last upgrade.
    pub looked_at_ns: Option<u64>,
}

impl Health {
    /// Returns the words for the start of a problem; they are empty for a missing setup step. `moment` formats a time in
    /// Unix nanoseconds.
    pub fn since(&self, problem: &Problem, moment: impl Fn(u64) -> String) -> String {
        match (problem.since_ns, self.looked_at_ns) {
            (Some(at), _) => format!("since {}", duration(self.time_ns.saturating_sub(at) / 1_000_000_000)),
            (None, _) if problem.known().is_some_and(ProblemCode::is_of_set_up) => String::new(),
            // Few messages read the head's header.
            (None, Some(at)) if problem.code != ProblemCode::HeadUnreadable => {
                format!("since unknown, at the earliest since the last message at {}", moment(at))
            }
            (None, _) => "since unknown".into(),
        }
    }

    /// Returns a sentence that tells whether blocks are accepted.
    pub fn appends(&self) -> String {
        match &self.appends_refused {
            Some(why) => format!("Appends are refused: {why}."),
            None => "Appends go on.".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_of_a_problem_is_a_duration_or_unknown() {
        let problem = |code: &str, since_ns| Problem {
            code: code.into(),
            severity: Severity::Critical,
            message: String::new(),
            since_ns,
            action: String::new(),
        };
        let since = |problem: Problem, looked_at_ns| {
            let health = Health {
                healthy: false,
                problems: Vec::new(),
                appends_refused: None,
                cycles: None,
                version: String::new(),
                time_ns: 4_000_000_000_000,
                looked_at_ns,
            };
            health.since(&problem, |ns| format!("{} s", ns / 1_000_000_000))
        };
        let looked = Some(9_000_000_000);
        assert_eq!(since(problem("CyclesLow", Some(340_000_000_000)), looked), "since 1 h 1 min");
        assert_eq!(since(problem("CyclesLow", Some(u64::MAX)), None), "since 0 s");
        let unknown = "since unknown, at the earliest since the last message at 9 s";
        assert_eq!(since(problem("CyclesLow", None), looked), unknown);
        assert_eq!(since(problem("OfALaterVersion", None), looked), unknown);
        for (code, looked) in [("CyclesLow", None), ("HeadUnreadable", looked)] {
            assert_eq!(since(problem(code, None), looked), "since unknown");
        }
        assert_eq!(since(problem("NoPolicy", None), looked), "");
    }
}

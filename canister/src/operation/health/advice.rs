//! Table of problem codes: the severity and the remedy of each.

use super::action::{Action, Command};
use ic_coppice_interface::{ProblemCode, Severity};

/// Remedy if the cap on memory is near or reached.
const CAP_ACTION: &str =
    "Raise max_stable_pages, or keep less (set_prune_policy): new blobs reuse the memory of pruned ones.";

/// Remedy if the limit of the transactions' data is near or reached.
const EXTERNAL_ACTION: &str = "Raise max_external_bytes of the UTXO settings; pruning records frees theirs. To keep all new transactions \
     in external blobs, set it to 0.";

/// Remedy if a cap of UTXO records is near or reached.
pub const RECORDS_ACTION: &str = "Check which principal creates so many: if a key was stolen, revoke_role. Else raise max_utxo_bytes or max_deletion_rows of the UTXO \
     settings, or prune records and delete external blobs: new ones reuse their memory.";

/// Larger settings.
pub const PAGES: Command = call("set_config", "(record { max_stable_pages = opt #max_stable_pages# })");
const TARGET_BYTES: Command = call("set_prune_policy", "(record { target_bytes = opt #target_bytes# })");
const EXTERNAL_BYTES: Command =
    call("set_config", "(record { utxo = opt record { max_external_bytes = opt #max_external_bytes# } })");
/// A larger cap of records, with the pages that it needs besides.
pub const UTXO_BYTES: Command = call(
    "set_config",
    "(record { max_stable_pages = opt #pages_for_records#; utxo = opt record { max_utxo_bytes = opt #max_utxo_bytes# } })",
);
/// A step of several remedies.
const ACKNOWLEDGE: Command = call("acknowledge_faults", "(#faults#)");
/// An update that changes nothing; it makes the daemon compare the cycles.
const UPDATE: Command = call("acknowledge_faults", "(0)");
/// The error lines of the log.
const ERRORS: Command = Command::Query("get_logs", "(opt variant { Error }, null, 100)");
const PRUNER_STATUS: Command = Command::Query("utxo_get_pruner_status", "()");

/// Empties the chain.
const RESET: Command = call("reset_chain", "(record { head_hash = blob \"#head_hash#\"; drop_unexported = false })");
/// Drops the upload of a block.
pub const ABORT: Command = call("abort_block", "(#upload#)");
/// Registers an exporter with the identity `indexer` of icp-cli.
pub const REGISTER: Command =
    call("register_exporter", "(record { name = \"archive\"; \"principal\" = principal #principal of indexer# })");

const fn call(method: &'static str, argument: &'static str) -> Command {
    Command::Call(method, std::borrow::Cow::Borrowed(argument))
}

/// Returns a quarter more than a number.
pub fn more(number: u64) -> u64 {
    number.saturating_add(number / 4)
}

/// Severity of a problem, and the remedy for findings without a specific one.
type Advice = (Severity, Action);

/// Returns the severity of a problem, and its remedy of one or two steps.
pub fn advice(code: ProblemCode) -> Advice {
    let (severity, first) = entry(code);
    let Some((text, command)) = second(code) else { return (severity, first) };
    (severity, first.then(text, command))
}

/// Returns the second step of a remedy.
fn second(code: ProblemCode) -> Option<(&'static str, Command)> {
    use ProblemCode as Code;
    Some(match code {
        Code::CyclesLow | Code::TimersStopped => ("Then send an update, which ends the pause.", UPDATE),
        Code::ReservationLimit => RESERVED,
        Code::Damaged | Code::NotRestored => ("Then acknowledge the faults.", ACKNOWLEDGE),
        Code::WorkSkipped => ("After an upgrade to a module without the fault, retry the work.", ACKNOWLEDGE),
        _ => return None,
    })
}

/// Returns the remedy for a pause that lasts although there are cycles again.
pub fn end_pause() -> Action {
    Action::new("Send an update, which ends the pause.", UPDATE)
}

/// The second step for a `reserved_cycles_limit` that the platform has.
pub const RESERVED: (&str, Command) = (
    "Then tell the canister the limit.",
    call("set_config", "(record { reserved_cycles_limit = opt #reserved_cycles_limit# })"),
);

fn critical(text: &'static str, command: Command) -> Advice {
    (Severity::Critical, Action::new(text, command))
}

fn warning(text: &'static str, command: Command) -> Advice {
    (Severity::Warning, Action::new(text, command))
}

fn notice(text: &'static str, command: Command) -> Advice {
    (Severity::Notice, Action::new(text, command))
}

fn entry(code: ProblemCode) -> Advice {
    use ProblemCode as Code;
    match code {
        Code::TimerOverdue => critical(
            "Call prune_now, or append a block: each wakes the timers. If the problem recurs, upgrade the canister to the same module, and \
             read its log.",
            call("prune_now", "(1)"),
        ),
        Code::PruneBehind => warning(
            "Raise max_ops_per_tick or max_instructions_per_tick, or lower timer_interval_secs, if the backlog does not shrink by \
             itself.",
            call("set_prune_policy", "(record { max_ops_per_tick = opt 1_000_000 })"),
        ),
        Code::PruningOff => {
            warning("Switch pruning on.", call("set_prune_policy", "(record { pruning_enabled = opt true })"))
        }
        Code::ExportHeld => warning("Check the exporter that lags.", Command::Query("get_export_status", "()")),
        Code::CapacityExhausted => {
            critical("Remove the cause that holds pruning back, or raise target_bytes.", TARGET_BYTES)
        }
        Code::FloorHolds => warning("Raise target_bytes at least to the value in the message.", TARGET_BYTES),
        Code::CyclesLow => critical("Top the canister up, above min_liquid_cycles.", Command::TopUp),
        Code::FeedingRefused => critical(
            "Top the canister up, above feed_min_liquid_cycles; pruning continues down to min_liquid_cycles.",
            Command::TopUp,
        ),
        Code::TimersStopped => critical("Top the canister up.", Command::TopUp),
        Code::UpgradeUnpaid => warning("Top the canister up before you upgrade it.", Command::TopUp),
        Code::NotReady => critical(
            "Wait: a draw takes some seconds after an installation, and is repeated. The log has the reason of a draw that failed; timers \
             need cycles.",
            ERRORS,
        ),
        Code::GrowthUnpaid => {
            critical("Top the canister up before an append that needs memory to grow is refused.", Command::TopUp)
        }
        Code::ReservationLimit => critical(
            "Raise reserved_cycles_limit of the canister on the platform; or keep less before memory grows.",
            Command::ReservedLimit,
        ),
        Code::MemoryNearCap => warning(CAP_ACTION, PAGES),
        Code::MemoryAtCap => critical(CAP_ACTION, PAGES),
        Code::Damaged => critical("Read the log, which names each fault; feed lost data again if needed.", ERRORS),
        Code::DamageAcknowledged => {
            notice("Nothing: an operator has acknowledged the damage. The log names each fault.", ERRORS)
        }
        Code::HeadUnreadable => critical(
            "The head is the only block: append the next one; if that is refused as Conflict, empty the chain as an admin.",
            RESET,
        ),
        Code::WorkSkipped => critical("Read the log, which names the trap.", ERRORS),
        Code::RecordsSkipped => warning(
            "See `skipped` of utxo_get_pruner_status; utxo_skip_record(slot, false) retries a record.",
            PRUNER_STATUS,
        ),
        Code::UnminedSkipped => notice(
            "Their parents are not preserved: set their transactions as mined, or create them again; then retry each record \
             (utxo_skip_record).",
            PRUNER_STATUS,
        ),
        Code::PreservationBlocked => critical(
            "See blocked_by of utxo_get_pruner_status; utxo_skip_record(slot, true) continues without that record.",
            PRUNER_STATUS,
        ),
        Code::PrunerTrapped => critical(
            "Upgrade to a module that can read the record, then utxo_notify_block or utxo_prune with the height.",
            Command::Upgrade,
        ),
        Code::HeightsAhead => warning(
            "Check which principal notified which height: if a key was stolen, revoke_role; then set the chain's height as reported by a node \
             that you trust (utxo_set_heights). A replay of older blocks needs no action.",
            PRUNER_STATUS,
        ),
        Code::HeightsRefused => warning(
            "If the chain grows faster, raise heights_per_day; after an outage, utxo_set_heights; if the height is wrong, check which principal notified \
             it: if a key was stolen, revoke_role.",
            call("utxo_set_pruner_settings", "(record { heights_per_day = opt #heights_per_day# })"),
        ),
        Code::HeightsUnlimited => notice(
            "After the replay, set heights_per_day to twice the blocks of a day.",
            call("utxo_set_pruner_settings", "(record { heights_per_day = opt 288 })"),
        ),
        Code::HeightJumpWide => notice(
            "Set max_height_jump to the blocks of a day, and heights_per_day to twice as many: 144 and 288 for Bitcoin.",
            call("utxo_set_pruner_settings", "(record { max_height_jump = opt 144; heights_per_day = opt 288 })"),
        ),
        Code::ApplyingStopped => warning(
            "Undo what the message names, or leave the transaction out (utxo_apply_block with `skip`, or with `skip_rest` if its bytes are named); \
             if a key was stolen, revoke_role first. \
             If appends are refused, end applying, which frees pruning at once.",
            call("utxo_stop_applying", "()"),
        ),
        Code::RollbackWaits => critical(
            "Make room: prune blocks, raise max_stable_pages, max_utxo_bytes or max_external_bytes, or top the canister up; ticks then go on. If there is none, an \
             admin empties the chain, which ends the rollback.",
            RESET,
        ),
        Code::NotRestored => warning(
            "Apply the new branch; if one of its blocks stops for a missing parent, feed the record again.",
            Command::Query("get_storage_status", "(null)"),
        ),
        Code::CountedAsPruned => notice(
            "Nothing, if these blocks were fed before; otherwise reset the chain, and apply its blocks anew. Then \
             acknowledge.",
            ACKNOWLEDGE,
        ),
        Code::UploadOpen => {
            notice("The producer commits the upload; an operator may drop it, and it expires by itself.", ABORT)
        }
        Code::HeadStale => warning(
            "Check the producer; if the chain is meant to pause, raise max_head_age_secs, or set it to 0 to disable the check.",
            call("set_config", "(record { max_head_age_secs = opt 0 })"),
        ),
        Code::DeadBlobDeletions => warning(
            "Check the rows that were given up; retry_blob_deletions retries them.",
            Command::Query("list_blob_deletions", "(record { state = opt variant { Dead }; limit = 100 })"),
        ),
        Code::UtxoPrunerWaits => warning(
            "Start the block assembly, and report that with a feeder's call.",
            call("utxo_set_block_assembly_state", "(variant { Running }, null)"),
        ),
        Code::RecordsOverdue => warning(
            "See the jobs and the heights in the pruner's status; have the height that lags reported again.",
            PRUNER_STATUS,
        ),
        Code::UtxoPrunerOff => warning(
            "Switch the pruner of UTXO records on. utxo_cancel_prune_job cancels the job; the next height creates another.",
            call("utxo_set_pruner_settings", "(record { pruner_enabled = opt true })"),
        ),
        Code::BlobDeletionsWait => warning(
            "Start a worker (coppice blob-worker) with a --store for these blobs. If one runs, read its log, because its store may be down; end the \
             leases of a worker that deletes nothing (end_blob_deletion_leases). get_blob_deletion_status has the rows and leases.",
            Command::Query("get_blob_deletion_status", "()"),
        ),
        Code::BlobLeasesIdle => warning(
            "Check the worker: if it is gone, or its key was stolen, end its leases or revoke_role; then its rows wait again.",
            call("end_blob_deletion_leases", "(principal \"#idle_worker#\")"),
        ),
        Code::ExternalNearFull => warning(EXTERNAL_ACTION, EXTERNAL_BYTES),
        Code::ExternalFull => critical(EXTERNAL_ACTION, EXTERNAL_BYTES),
        Code::ExporterKeyless => warning(
            "As an admin, give the exporter a new principal under the same name, or remove_exporter if it is gone for good.",
            Command::Query("get_export_status", "()"),
        ),
        Code::StrayMemory => notice(
            "Find the code of this canister that grows stable memory itself: its structures belong in memories of Coppice::memory.",
            Command::Query("get_storage_status", "(null)"),
        ),
        Code::DeletionsStopped => warning(
            "As an admin, start deletions when the policy, the heights and the queue are correct and stolen keys are revoked.",
            call("set_deletions_stopped", "(false)"),
        ),
        Code::RecordsNearFull => warning(RECORDS_ACTION, UTXO_BYTES),
        Code::RecordsFull => critical(RECORDS_ACTION, UTXO_BYTES),
        Code::UploadStuck => critical("Continue the upload with its producer, or drop it as an operator.", ABORT),
        Code::TransactionUploadStuck => warning(
            "Continue with its producer (list_uploads), or call utxo_abort_transaction; or lower upload_expiry_secs for a while, so that the \
             daemon drops it: this drops other uploads with rarer calls, too.",
            call("set_config", "(record { upload_expiry_secs = opt 120 })"),
        ),
        Code::NoProducer => notice(
            "Grant the role BlockProducer to the feeder of blocks, here the identity sequencer (icp identity new sequencer), or UtxoFeeder to the \
             feeder of UTXO records.",
            call(
                "grant_role",
                "(record { \"principal\" = principal #principal of sequencer#; role = variant { BlockProducer } })",
            ),
        ),
        Code::NoExporter => notice(
            "Register an exporter, here the identity indexer (icp identity new indexer), before a policy prunes blocks; if nothing needs to be \
             copied, set_config with set_up_as_meant = opt true.",
            REGISTER,
        ),
        Code::NoPolicy => notice(
            "Set a policy; if nothing should be pruned, set_config with set_up_as_meant = opt true.",
            call("set_prune_policy", "(record { retain_blocks = opt 100_000 })"),
        ),
    }
}

//! How bad each problem is, and what to do.

use super::action::{Action, Command};
use coppice_interface::{ProblemCode, Severity};

/// What to do where the cap on memory is near, or reached.
const CAP_ACTION: &str =
    "Raise max_stable_pages, or have less kept (set_prune_policy): new blobs take what pruned ones leave.";

/// What to do where the limit of the transactions' data is near, or reached.
const EXTERNAL_ACTION: &str = "Raise max_external_bytes of the UTXO settings; records that are pruned give theirs back. Who keeps transactions \
     outside from now on sets it to 0.";

/// Advice for caps of UTXO records that are near, or reached.
const RECORDS_ACTION: &str = "See who makes so many: where a key was stolen, revoke_role. Else raise max_utxo_bytes or max_deletion_rows of the UTXO \
     settings, or have records pruned and blobs outside deleted: new ones take what they leave.";

/// A setting with a value that the reader chooses.
const PAGES: Command = call("set_config", "(record { max_stable_pages = opt … })");
const EXTERNAL_BYTES: Command = call("set_config", "(record { utxo = opt record { max_external_bytes = opt … } })");
const UTXO_BYTES: Command = call("set_config", "(record { utxo = opt record { max_utxo_bytes = opt … } })");
/// The lines of the log that say what failed.
const ERRORS: Command = Command::Query("get_logs", "(opt variant { Error }, null, 100)");
const PRUNER_STATUS: Command = Command::Query("get_pruner_status", "()");

const fn call(method: &'static str, argument: &'static str) -> Command {
    Command::Call(method, std::borrow::Cow::Borrowed(argument))
}

/// Returns the severity of a problem, and the remedy for findings that have none of their own.
pub fn advice(code: ProblemCode) -> (Severity, Action) {
    let (severity, text, command) = said(code);
    (severity, Action::new(text, command))
}

fn said(code: ProblemCode) -> (Severity, &'static str, Command) {
    use ProblemCode as Code;
    use Severity::{Critical, Notice, Warning};
    match code {
        Code::TimerOverdue => (
            Critical,
            "Call prune_now, or append a block: each wakes the timers. Where it comes again, upgrade the canister to the same module, and \
             look into its log.",
            call("prune_now", "(1)"),
        ),
        Code::PruneBehind => (
            Warning,
            "Raise max_ops_per_tick or max_instructions_per_tick, or lower timer_interval_secs, where the backlog does not become smaller by \
             itself.",
            call("set_prune_policy", "(record { max_ops_per_tick = opt 15_000 })"),
        ),
        Code::PruningOff => (Warning, "Switch pruning on.", call("set_pruning_enabled", "(true)")),
        Code::ExportHeld => (Warning, "See to the exporter that is behind.", Command::Query("get_export_status", "()")),
        Code::CapacityExhausted => (
            Critical,
            "See to who holds pruning back, or raise target_bytes.",
            call("set_prune_policy", "(record { target_bytes = opt … })"),
        ),
        Code::FloorHolds => (
            Warning,
            "Raise target_bytes to the one that the message names, or above.",
            call("set_prune_policy", "(record { target_bytes = opt … })"),
        ),
        Code::CyclesLow => (Critical, "Top the canister up, above min_liquid_cycles.", Command::TopUp),
        Code::FeedingRefused => (
            Critical,
            "Top the canister up, above feed_min_liquid_cycles; pruning goes on down to min_liquid_cycles meanwhile.",
            Command::TopUp,
        ),
        Code::TimersStopped => (
            Critical,
            "Top the canister up; then call any update with a role, which starts the timers again.",
            Command::TopUp,
        ),
        Code::GrowthUnpaid => {
            (Critical, "Top the canister up before an append that needs memory to grow is refused.", Command::TopUp)
        }
        Code::ReservationLimit => (
            Critical,
            "Raise reserved_cycles_limit of the canister on the platform, then in set_config; or have less kept before memory grows.",
            Command::Setting("--reserved-cycles-limit …t"),
        ),
        Code::MemoryNearCap => (Warning, CAP_ACTION, PAGES),
        Code::MemoryAtCap => (Critical, CAP_ACTION, PAGES),
        Code::Damaged => (
            Critical,
            "Read the log (get_logs), which names each; feed what is lost again where it is needed; then acknowledge the `faults` of \
             get_prune_status.",
            call("acknowledge_faults", "(…)"),
        ),
        Code::DamageAcknowledged => (Notice, "Nothing: an operator has seen it. The log names each.", ERRORS),
        Code::HeadUnreadable => (
            Critical,
            "Roll back to the number below the head's, and append it again; where it is the only block, append the next one.",
            call("rollback_to", "(…)"),
        ),
        Code::SetAside => (
            Critical,
            "Read the log; acknowledge_faults has it tried again, after an upgrade to a module that can do it.",
            ERRORS,
        ),
        Code::RecordsPassedOver => (
            Warning,
            "Look at `passed_over` of get_pruner_status; retry_record(slot) has a record looked at again.",
            PRUNER_STATUS,
        ),
        Code::UnminedSetAside => (
            Notice,
            "Their parents are not preserved: set their transactions as mined, or create them again; then have each looked at again.",
            call("retry_record", "(…)"),
        ),
        Code::PreservationBlocked => (
            Critical,
            "Look at blocked_by of get_pruner_status; set_aside_unmined(slot) goes on without that record.",
            PRUNER_STATUS,
        ),
        Code::PrunerTrapped => (
            Critical,
            "Upgrade to a module that can read the record, then notify_block or prune_utxos with the height.",
            Command::Upgrade,
        ),
        Code::HeightsAhead => (
            Warning,
            "See who notified which height: where a key was stolen, revoke_role; then say where the chain is, as a node that you trust says \
             it. A replay of older blocks needs nothing.",
            call("set_heights", "(record { current = …; persisted = null; processed = … })"),
        ),
        Code::HeightsRefused => (
            Warning,
            "Where the chain grows faster, raise heights_per_day; after an outage, set_heights; where the height is wrong, see who notified \
             it: where a key was stolen, revoke_role.",
            call("set_pruner_settings", "(record { heights_per_day = opt … })"),
        ),
        Code::HeightsUnlimited => (
            Notice,
            "When the replay is done, set heights_per_day to twice what the chain grows in a day.",
            call("set_pruner_settings", "(record { heights_per_day = opt 288 })"),
        ),
        Code::HeightJumpWide => (
            Notice,
            "Set max_height_jump to the blocks of a day, and heights_per_day to twice as many: 144 and 288 for Bitcoin.",
            call("set_pruner_settings", "(record { max_height_jump = opt 144; heights_per_day = opt 288 })"),
        ),
        Code::UploadOpen => (
            Notice,
            "Its producer commits it; an operator may drop it, and its expiry does.",
            call("abort_block", "(…)"),
        ),
        Code::HeadStale => (
            Warning,
            "See to the producer; where the chain is to rest, raise max_head_age_secs, or switch it off with 0.",
            call("set_config", "(record { max_head_age_secs = opt 0 })"),
        ),
        Code::DeadBlobDeletions => (
            Warning,
            "Look at those that were given up; retry_blob_deletions has them tried again.",
            Command::Query("list_dead_blob_deletions", "(null, 100)"),
        ),
        Code::UtxoPrunerWaits => (
            Warning,
            "Start the block assembly, and have a feeder say so.",
            call("set_block_assembly_state", "(variant { Running })"),
        ),
        Code::UtxoPrunerOff => (
            Warning,
            "Switch the pruner of UTXO records on. cancel_prune_job gives the job up, and the next height makes another.",
            call("set_pruner_settings", "(record { pruner_enabled = opt true })"),
        ),
        Code::BlobDeletionsWait => (
            Warning,
            "Start a worker (coppice blob-worker) with a --store for these blobs; get_blob_deletion_status has the rows and leases.",
            Command::Query("get_blob_deletion_status", "()"),
        ),
        Code::BlobLeasesIdle => (
            Warning,
            "See to the worker: where it is gone, or its key was stolen, end its leases or revoke_role, and its rows come back.",
            call("end_blob_deletion_leases", "(principal \"…\")"),
        ),
        Code::ExternalNearFull => (Warning, EXTERNAL_ACTION, EXTERNAL_BYTES),
        Code::ExternalFull => (Critical, EXTERNAL_ACTION, EXTERNAL_BYTES),
        Code::ExporterKeyless => (
            Warning,
            "As an admin, give the exporter a new principal under the same name, or remove_exporter where it is gone for good.",
            call("register_exporter", "(record { name = \"…\"; \"principal\" = principal \"…\" })"),
        ),
        Code::DeletionsStopped => (
            Warning,
            "As an admin, when the policy, the heights and the queue are right again and stolen keys are revoked, start deletions.",
            call("set_deletions_stopped", "(false)"),
        ),
        Code::RecordsNearFull => (Warning, RECORDS_ACTION, UTXO_BYTES),
        Code::RecordsFull => (Critical, RECORDS_ACTION, UTXO_BYTES),
        Code::UploadStuck => (
            Warning,
            "Have its producer go on with it, or abort it; or lower upload_expiry_secs (set_config) for a while, for the daemon to drop it: \
             other uploads whose calls come less often go, too.",
            call("abort_block", "(…)"),
        ),
        Code::NoProducer => (
            Notice,
            "Grant the role BlockProducer to what feeds blocks, or UtxoFeeder to what feeds UTXO records.",
            call("grant_role", "(record { \"principal\" = principal \"…\"; role = variant { BlockProducer } })"),
        ),
        Code::NoExporter => (
            Notice,
            "Register what copies the chain before a policy prunes it; where nothing is to be copied, set_config with set_up_as_meant = opt true.",
            call("register_exporter", "(record { name = \"archive\"; \"principal\" = principal \"…\" })"),
        ),
        Code::NoPolicy => (
            Notice,
            "Say what is kept; where nothing is to be pruned, set_config with set_up_as_meant = opt true.",
            call("set_prune_policy", "(record { retain_blocks = opt 100_000 })"),
        ),
    }
}

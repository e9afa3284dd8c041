//! How bad each problem is, and what to do.

use coppice_interface::{ProblemCode, Severity};

/// What to do where the cap on memory is near, or reached.
const CAP_ACTION: &str =
    "Raise max_stable_pages (set_config), or have less kept (set_prune_policy): new blobs take what pruned ones leave.";

/// What to do where the limit of the transactions' data is near, or reached.
const EXTERNAL_ACTION: &str = "Raise max_external_bytes of the UTXO settings (set_config); records that are pruned give theirs back. Who keeps \
     transactions outside from now on sets it to 0.";

/// Advice for caps of UTXO records that are near, or reached.
const RECORDS_ACTION: &str = "See who makes so many: where a key was stolen, revoke_role. Else raise max_utxo_bytes or max_deletion_rows of the UTXO settings \
     (set_config), or have records pruned and blobs outside deleted: new ones take what they leave.";

/// How bad it is, and what to do.
pub fn advice(code: ProblemCode) -> (Severity, &'static str) {
    use ProblemCode as Code;
    use Severity::{Critical, Notice, Warning};
    match code {
        Code::TimerOverdue => (
            Critical,
            "Call prune_now(1), or append a block: each wakes the timers. Where it comes again, upgrade the canister to the same \
             module, and look into its log.",
        ),
        Code::PruneBehind => (
            Warning,
            "Raise max_ops_per_tick or max_instructions_per_tick, or lower timer_interval_secs (set_prune_policy), where the backlog \
             does not become smaller by itself.",
        ),
        Code::PruningOff => (Warning, "Call set_pruning_enabled(true), or give the policy up."),
        Code::ExportHeld => (
            Warning,
            "See to the exporter that is named (get_export_status), or have an admin take it out with remove_exporter; where none is \
             registered, register one or set require_export = false.",
        ),
        Code::CapacityExhausted => (
            Critical,
            "See to who holds pruning back: an exporter, cycles, or the daemon that is switched off; or raise target_bytes \
             (set_prune_policy).",
        ),
        Code::FloorHolds => {
            (Warning, "Raise target_bytes to the one that the message names, or above (set_prune_policy).")
        }
        Code::CyclesLow => (Critical, "Top the canister up, above min_liquid_cycles."),
        Code::FeedingRefused => (
            Critical,
            "Top the canister up, above feed_min_liquid_cycles; pruning goes on down to min_liquid_cycles meanwhile.",
        ),
        Code::TimersStopped => {
            (Critical, "Top the canister up; then call any update with a role, which starts the timers again.")
        }
        Code::GrowthUnpaid => (Critical, "Top the canister up before an append that needs memory to grow is refused."),
        Code::ReservationLimit => (
            Critical,
            "Raise reserved_cycles_limit of the canister on the platform, then in set_config; or have less kept before memory grows.",
        ),
        Code::MemoryNearCap => (Warning, CAP_ACTION),
        Code::MemoryAtCap => (Critical, CAP_ACTION),
        Code::Damaged => (
            Critical,
            "Read the log (get_logs), which names each; feed what is lost again where it is needed; then acknowledge_faults with \
             `faults` of get_prune_status.",
        ),
        Code::DamageAcknowledged => (Notice, "Nothing: an operator has seen it."),
        Code::HeadUnreadable => (
            Critical,
            "Call rollback_to with the number below the head's, and append it again; where it is the only block, append the next one.",
        ),
        Code::SetAside => (
            Critical,
            "Read the log (get_logs); acknowledge_faults has it tried again, after an upgrade to a module that can do it.",
        ),
        Code::RecordsPassedOver => {
            (Warning, "Look at get_pruner_status; retry_record(slot) has a record looked at again.")
        }
        Code::UnminedSetAside => (
            Notice,
            "Their parents are not preserved: set their transactions as mined, or create them again; then retry_record(slot).",
        ),
        Code::PreservationBlocked => {
            (Critical, "Look at blocked_by of get_pruner_status; set_aside_unmined(slot) goes on without that record.")
        }
        Code::PrunerTrapped => (
            Critical,
            "Upgrade to a module that can read the record, then notify_block or prune_utxos with the height.",
        ),
        Code::RetentionTooShort => {
            (Warning, "Set unmined_tx_retention below block_height_retention (set_pruner_settings, set_config).")
        }
        Code::HeightsAhead => (
            Warning,
            "See who notified which height: where a key was stolen, revoke_role; then set_heights with the height of a node that you trust. \
             A replay of older blocks needs nothing.",
        ),
        Code::HeightsRefused => (
            Warning,
            "Where the chain grows faster, raise heights_per_day (set_pruner_settings); after an outage, set_heights; where the height is \
             wrong, see who notified it: where a key was stolen, revoke_role.",
        ),
        Code::HeightsUnlimited => (
            Notice,
            "When the replay is done, set heights_per_day to twice what the chain grows in a day (set_pruner_settings).",
        ),
        Code::HeightJumpWide => (
            Notice,
            "Set max_height_jump to the blocks of a day, and heights_per_day to twice as many (set_pruner_settings): 144 and 288 for Bitcoin.",
        ),
        Code::UploadOpen => {
            (Notice, "Its producer commits it; an operator's abort_block drops it, and so does its expiry.")
        }
        Code::HeadStale => (
            Warning,
            "See to the producer; where the chain is to rest, raise max_head_age_secs (set_config), or switch it off with 0.",
        ),
        Code::DeadBlobDeletions => {
            (Warning, "Look at list_dead_blob_deletions; retry_blob_deletion(id) has one tried again.")
        }
        Code::UtxoPrunerWaits => (
            Warning,
            "Start the block assembly, and have a feeder say so with set_block_assembly_state(variant { Running }).",
        ),
        Code::UtxoPrunerOff => (
            Warning,
            "Call set_pruner_settings with pruner_enabled = opt true. cancel_prune_job gives the job up, and the next height makes another.",
        ),
        Code::BlobDeletionsWait => (
            Warning,
            "Start a worker (coppice blob-worker) with a --store for these blobs; get_blob_deletion_status has the rows and leases.",
        ),
        Code::ExternalNearFull => (Warning, EXTERNAL_ACTION),
        Code::ExternalFull => (Critical, EXTERNAL_ACTION),
        Code::ExporterKeyless => (
            Warning,
            "As an admin, call register_exporter with the same name and the exporter's new principal, or remove_exporter where it is \
             gone for good.",
        ),
        Code::DeletionsStopped => (
            Warning,
            "As an admin, call set_deletions_stopped(false) when the policy, the heights and the queue are right again and stolen keys are \
             revoked.",
        ),
        Code::RecordsNearFull => (Warning, RECORDS_ACTION),
        Code::RecordsFull => (Critical, RECORDS_ACTION),
        Code::UploadStuck => (
            Warning,
            "Have its producer go on with it, or abort it (abort_block is an operator's, too); or lower upload_expiry_secs (set_config) for a \
             while, for the daemon to drop it: other uploads whose calls come less often go, too.",
        ),
    }
}

//! The audit log: it notes the changes that operators and admins make, and no other calls.

use candid::{CandidType, Principal, encode_args};
use coppice_tests::blocks::{block_id, hash, plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::proxy::Proxy;
use ic_coppice_interface::methods::TABLE;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::time::Duration;

fn page(coppice: &Coppice, cursor: Option<u64>, limit: u32) -> AuditPage {
    let arg = encode_args((cursor, limit)).unwrap();
    let reply = coppice.ic.query(coppice.id, Who::Controller.principal(), "get_audit_log", arg).unwrap();
    candid::decode_one(&reply).unwrap()
}

fn newest(coppice: &Coppice) -> Option<AuditEntry> {
    page(coppice, None, 1).entries.pop()
}

/// A canister, and callers that are operators and admins. Each caller calls once, so that each call has its own entry.
struct World {
    coppice: Coppice,
    callers: Vec<Principal>,
    called: BTreeSet<&'static str>,
}

impl World {
    /// Calls a method and checks the entry that notes the call.
    fn noted(&mut self, method: &'static str, arg: impl CandidType, changes: [&str; 3]) {
        self.noted_encoded(method, encode_args((arg,)).unwrap(), changes);
    }

    fn noted_encoded(&mut self, method: &'static str, arg: Vec<u8>, [before, after, result]: [&str; 3]) {
        let count = newest(&self.coppice).map_or(0, |entry| entry.number + 1);
        let caller = self.callers.pop().expect("enough callers");
        self.coppice.ic.update(self.coppice.id, caller, method, arg).unwrap_or_else(|r| panic!("{method}: {r:?}"));
        let entry = newest(&self.coppice).unwrap();
        assert_eq!((entry.number, entry.caller, entry.method.as_str()), (count, caller, method), "{entry:?}");
        assert_eq!([entry.before.as_str(), &entry.after], [before, after], "{entry:?}");
        assert!(entry.result.starts_with(result), "{entry:?}");
        assert!(entry.first_time_ns.abs_diff(self.coppice.ic.now()) < 10_000_000_000, "{entry:?}");
        assert_eq!((entry.last_time_ns, entry.calls), (entry.first_time_ns, 1));
        self.called.insert(method);
    }
}

#[test]
fn every_change_by_an_operator_or_an_admin_is_noted() {
    let callers: Vec<Principal> = (0..60u8).map(|byte| Principal::self_authenticating([byte])).collect();
    let coppice = Coppice::with(InitArg { operators: callers.clone(), admins: Some(callers.clone()), ..default_arg() });
    coppice.append_plain(0..20, 1_000);
    assert_eq!(page(&coppice, None, 0), AuditPage { entries: vec![], cursor: None }, "producers are not noted");
    let mut world = World { coppice, callers, called: BTreeSet::new() };
    let same = ["", "", "Ok"];

    let stranger = Grant { principal: Who::Stranger.principal(), role: Role::Observer };
    let name = format!("Observer {}", stranger.principal);
    let (absent, granted) = (format!("{name} = absent"), format!("{name} = granted"));
    world.noted("grant_role", stranger, [&absent, &granted, "Ok"]);
    assert_eq!(newest(&world.coppice).unwrap().argument, name);
    world.noted("grant_role", stranger, same);
    world.noted("revoke_role", stranger, [&granted, &absent, "Ok"]);
    world.noted("revoke_role", stranger, same);
    let exporter = Grant { role: Role::Exporter, ..stranger };
    world.noted("grant_role", exporter, ["", "", "RegisterExporter"]);

    let pages = ConfigChange { max_stable_pages: Some(10), ..ConfigChange::default() };
    world.noted("set_config", pages, ["", "", "BadArgument: max_stable_pages"]);
    let change = ConfigChange { open_queries: Some(true), max_rollback_blocks: Some(7), ..ConfigChange::default() };
    let (before, after) =
        ("max_rollback_blocks = 1000; open_queries = false", "max_rollback_blocks = 7; open_queries = true");
    world.noted("set_config", change.clone(), [before, after, "Ok"]);
    let argument = newest(&world.coppice).unwrap().argument;
    assert!(argument.contains("max_rollback_blocks: Some(7)"), "{argument}");

    let exporter = Exporter { name: "archive".into(), principal: Who::Archive.principal() };
    let is = format!("exporter archive = {}, has acknowledged all blocks below 0", exporter.principal);
    world.noted("register_exporter", exporter, ["exporter archive = absent", &is, "Ok"]);
    let without = "exporter archive = without a key, has acknowledged all blocks below 0";
    let role = Grant { principal: Who::Archive.principal(), role: Role::Exporter };
    let name = format!("Exporter {}", role.principal);
    let (has, has_not) = (format!("{name} = granted; {is}"), format!("{name} = absent; {without}"));
    world.noted("revoke_role", role, [&has, &has_not, "Ok"]);
    let exporter = Exporter { name: "archive".into(), principal: Who::Archive.principal() };
    world.noted("register_exporter", exporter, [without, &is, "Ok"]);
    let remove = |drop_guard| RemoveExporter { name: "archive".into(), drop_guard };
    world.noted("remove_exporter", remove(false), ["", "", "LastExporter"]);
    world.noted("remove_exporter", remove(true), [&is, "exporter archive = absent", "Ok"]);

    let policy = PrunePolicyArg { retain_blocks: Some(9), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    let first = "pruning_enabled = true; target_bytes = 0; retain_days = 0; retain_blocks = 9; headroom_ratio_bps = 2000; emergency_ratio_bps = 9500; \
        timer_interval_secs = 600; max_ops_per_tick = 200000; max_instructions_per_tick = 500000000; min_kept_blocks = 0; \
        pause_after_secs = 5; max_export_lag_secs = 86400";
    world.noted("set_prune_policy", policy, ["value = none", first, "Ok"]);
    let policy = PrunePolicyArg { retain_blocks: Some(15), ..PrunePolicyArg::default() };
    world.noted("set_prune_policy", policy, ["retain_blocks = 9", "retain_blocks = 15", "Ok"]);
    world.noted("set_deletions_stopped", true, ["deletions stopped = false", "deletions stopped = true", "Ok"]);
    world.noted("set_deletions_stopped", true, same);
    world.noted("prune_now", 100u64, ["", "", "Stopped"]);
    world.noted("set_deletions_stopped", false, ["deletions stopped = true", "deletions stopped = false", "Ok"]);
    world.noted("prune_now", 100u64, ["pruned_before_block = 0", "pruned_before_block = 4", "Ok"]);
    world.noted("prune_now", 0u64, ["", "", "BadArgument"]);
    world.noted("acknowledge_faults", 0u64, same);

    // Upload methods are noted only if an operator acts on another caller's upload.
    let large = plain(20, 2, 1_000);
    let (begin, chunks) = upload(&large, 600);
    world.coppice.producer().begin_block(&begin).answer().unwrap();
    world.coppice.put(20, 0, chunks[0].clone()).unwrap();
    let put = |chunk: u32| PutBlockChunk { number: 20, chunk, bytes: ByteBuf::from(chunks[chunk as usize].clone()) };
    let missing = |n: u32| format!("upload = block 20, {n} of {} chunks missing", chunks.len());
    for chunk in 1..chunks.len() as u32 {
        let left = chunks.len() as u32 - chunk;
        world.noted("put_block_chunk", put(chunk), [&missing(left), &missing(left - 1), "Ok"]);
    }
    let before = format!("head = 19; blocks = 16; {}", missing(0));
    world.noted("commit_block", block_id(&large), [&before, "head = 20; blocks = 17; upload = none", "Ok"]);
    let (begin, chunks) = upload(&plain(21, 2, 1_000), 600);
    world.coppice.producer().begin_block(&begin).answer().unwrap();
    let open = format!("upload = block 21, {n} of {n} chunks missing", n = chunks.len());
    world.noted("abort_block", 20u64, ["", "", "OtherUpload"]);
    world.noted("abort_block", 21u64, [&open, "upload = none", "Ok"]);

    world.noted("rollback_to", 3u64, ["", "", "Pruned"]);
    world.noted("rollback_to", 5u64, ["head = 20; blocks = 17", "head = 5; blocks = 2", "Ok"]);
    let wrong = ResetChain { head_hash: hash(4).into(), drop_unexported: false };
    world.noted("reset_chain", wrong, ["", "", "WrongHash"]);
    let reset = ResetChain { head_hash: hash(5).into(), drop_unexported: true };
    world.noted("reset_chain", reset, ["head = 5; blocks = 2", "head = none; blocks = 0", "Ok"]);

    let change = UtxoPrunerSettingsChange { max_job_history: Some(10), ..Default::default() };
    world.noted("utxo_set_pruner_settings", change, ["max_job_history = 1000", "max_job_history = 10", "Ok"]);
    let heights = UtxoSetHeights { current: 500, persisted: Some(400), processed: 300 };
    let before = "current_height = 0; last_persisted_height = 0; last_processed_height = 0; pending = none";
    let after = "current_height = 500; last_persisted_height = 400; last_processed_height = 300; pending = job 1";
    world.noted("utxo_set_heights", heights, [before, after, "Ok"]);
    world.noted("utxo_cancel_prune_job", 1u64, ["pending = job 1", "pending = none", "Ok"]);
    world.noted("utxo_cancel_prune_job", 1u64, ["", "", "NotOpen"]);
    world.coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
    // Records that are due above the height are left to a second job.
    let before = "last_processed_height = 300; pending = none";
    world.noted("utxo_prune", 350u32, [before, "last_processed_height = 350; pending = job 3", "Ok"]);
    for skip in [true, false] {
        world.noted_encoded("utxo_skip_record", encode_args((1u32, skip)).unwrap(), ["", "", "NotBlocking"]);
    }
    let tried_again = RetryBlobDeletions::StoreType(StoreType::Tx);
    world.noted("retry_blob_deletions", tried_again, ["", "", "Ok"]);
    world.noted("end_blob_deletion_leases", Who::BlobWorker.principal(), ["", "", "Ok"]);
    let name =
        |key: &[u8]| BlobName { blob_key: ByteBuf::from(key), file_type: "tx".into(), store_type: StoreType::Tx };
    let scheduled = ScheduleBlobDeletion { name: name(b"a"), delete_at_height: 7 };
    let later = ScheduleBlobDeletion { delete_at_height: 8, ..scheduled.clone() };
    let [none, one, two] = ["none", "row 1 from height 7, Waiting", "row 1 from height 8, Waiting"];
    let [none, one, two] = [none, one, two].map(|row| format!("Tx 61 = {row}"));
    world.noted("schedule_blob_deletion", scheduled, [&none, &one, "Ok"]);
    world.noted("schedule_blob_deletion", later, [&one, &two, "Ok"]);
    world.noted("cancel_blob_deletion", name(b"a"), [&two, &none, "Ok"]);
    world.noted("cancel_blob_deletion", name(b""), ["", "", "Empty"]);

    let missing_parents = Some(MissingParents::Skip);
    let hash = vec![1].into();
    let apply =
        UtxoApplyBlock { number: 19, hash, height: 5, block_id: 1, missing_parents, skip: None, skip_rest: false };
    world.noted("utxo_apply_block", apply, ["", "", "NotFound"]);
    world.noted("utxo_stop_applying", (), same);

    // The calls above include every method of operators and admins.
    let may = |roles: &[Role]| roles.contains(&Role::Operator) || roles.contains(&Role::Admin);
    let theirs = TABLE.iter().filter(|of| !of.is_query && may(of.roles));
    assert_eq!(world.called, theirs.map(|of| of.name).collect());
}

#[test]
fn entries_survive_upgrades_and_an_upgrade_with_settings_adds_one() {
    let coppice = Coppice::with(default_arg());
    for round in 0..3u64 {
        // These changes get their own entries because the previous entries are an hour old.
        coppice.ic.advance_time(Duration::from_secs(3_600));
        let change = ConfigChange { max_rollback_blocks: Some(round), ..ConfigChange::default() };
        coppice.configure(change);
        let before = page(&coppice, None, 0);
        coppice.upgrade();
        assert_eq!(page(&coppice, None, 0), before);
        let change = ConfigChange { max_rollback_blocks: Some(100 + round), ..ConfigChange::default() };
        coppice.upgrade_with(Some(CanisterArg::Upgrade(Some(change)))).unwrap();
        let entry = newest(&coppice).unwrap();
        assert_eq!((entry.method.as_str(), entry.caller), ("canister_post_upgrade", Who::Controller.principal()));
        let expected = [format!("max_rollback_blocks = {round}"), format!("max_rollback_blocks = {}", 100 + round)];
        assert_eq!([entry.before, entry.after], expected);
    }
    let all = page(&coppice, None, 0);
    assert_eq!(all.entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0]);
    let (first, rest) = (page(&coppice, None, 4), page(&coppice, Some(2), 4));
    assert_eq!((first.cursor, rest.cursor), (Some(2), None));
    assert_eq!([first.entries, rest.entries].concat(), all.entries);
    // An upgrade that is refused leaves no entry.
    let bad = ConfigChange { upload_expiry_secs: Some(0), ..ConfigChange::default() };
    coppice.upgrade_with(Some(CanisterArg::Upgrade(Some(bad)))).unwrap_err();
    assert_eq!(page(&coppice, None, 0), all);
}

/// Only an operator may notify a height far above the current one, by whichever method: such a call is noted, and a producer's notification
/// is not.
#[test]
fn a_height_that_only_an_operator_may_notify_is_noted() {
    let coppice = Coppice::new();
    let both = Grant { principal: Who::Controller.principal(), role: Role::Producer };
    coppice.operator().grant_role(&both).answer().unwrap();
    let granted = newest(&coppice).unwrap();
    let tell = |who: Who, height: u32| -> Result<UtxoNotifyOutcome, UtxoPrunerError> {
        coppice.by(who).utxo_notify_block_persisted(height).answer()
    };
    tell(Who::Producer, 100).unwrap();
    tell(Who::Controller, 101).unwrap();
    assert!(matches!(tell(Who::Producer, 3_000_000), Err(UtxoPrunerError::HeightJump { highest: 101, .. })));
    assert_eq!(newest(&coppice).unwrap(), granted);
    tell(Who::Controller, 3_000_000).unwrap();
    let noted = newest(&coppice).unwrap();
    assert_eq!((noted.method.as_str(), noted.argument.as_str()), ("utxo_notify_block_persisted", "3000000"));
    assert_eq!((noted.caller, noted.result.as_str()), (Who::Controller.principal(), "Ok"));
}

/// Changes through one method within an hour are one entry, and so are refused calls; an upgrade in between does not change that.
#[test]
fn calls_within_an_hour_are_one_entry_with_the_first_and_last_state() {
    let coppice = Coppice::new();
    let set = |max_rollback_blocks, open_queries| {
        coppice.configure(ConfigChange { max_rollback_blocks, open_queries, ..ConfigChange::default() });
    };
    set(Some(7), None);
    let first = newest(&coppice).unwrap();
    coppice.ic.advance_time(Duration::from_secs(1_800));
    coppice.upgrade();
    set(Some(8), Some(true));
    set(Some(9), None);
    coppice.operator().prune_now(0).answer().unwrap_err();
    coppice.operator().prune_now(1).answer().unwrap_err();
    let entries = page(&coppice, None, 0).entries;
    let [refused, changed] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((changed.number, changed.first_time_ns, changed.calls), (0, first.first_time_ns, 3));
    assert!(changed.last_time_ns >= first.first_time_ns + 1_800_000_000_000);
    assert_eq!(changed.before, "max_rollback_blocks = 1000; open_queries = false");
    assert_eq!(changed.after, "max_rollback_blocks = 9; open_queries = true");
    assert!(changed.argument.contains("max_rollback_blocks: Some(9)"), "{changed:?}");
    assert_eq!((refused.calls, refused.before.as_str(), refused.after.as_str()), (2, "", ""));
    assert_eq!(
        (refused.method.as_str(), refused.argument.as_str(), refused.result.as_str()),
        ("prune_now", "1", "NoPolicy: no policy is set: call set_prune_policy")
    );
    coppice.ic.advance_time(Duration::from_secs(1_800));
    set(Some(10), None);
    let third = newest(&coppice).unwrap();
    assert_eq!((third.number, third.calls, third.before.as_str()), (2, 1, "max_rollback_blocks = 9"));
}

#[test]
fn no_number_of_an_operators_calls_overwrites_the_entries_of_others() {
    let operators = vec![Who::Operator.principal(), Who::Rival.principal()];
    let coppice = Coppice::with(InitArg { operators, ..default_arg() });
    let history = |who: Who, max_job_history: u32| {
        let change = UtxoPrunerSettingsChange { max_job_history: Some(max_job_history), ..Default::default() };
        coppice.by(who).utxo_set_pruner_settings(&change).answer().unwrap();
    };
    let (message_bucket, messages_per_minute) = (Some(1_000_000), None);
    coppice.configure(ConfigChange { message_bucket, messages_per_minute, ..ConfigChange::default() });
    history(Who::Rival, 20);
    let others = page(&coppice, None, 0).entries;
    assert_eq!(others.len(), 2);
    for call in 0..10_000 {
        history(Who::Operator, 20 + call % 2);
        if call % 10 == 0 {
            coppice.by(Who::Operator).prune_now(0).answer().unwrap_err();
            coppice.by(Who::Operator).acknowledge_faults(0).answer();
        }
    }
    let all = page(&coppice, None, 0).entries;
    assert_eq!(all[all.len() - 2..], others);
    let of = |method: &str, is: fn(&AuditEntry) -> bool| -> u64 {
        let its = all.iter().filter(|entry| entry.method == method && entry.caller == Who::Operator.principal());
        its.filter(|entry| is(entry)).map(|entry| entry.calls).sum()
    };
    // The first call changes nothing.
    assert_eq!(of("utxo_set_pruner_settings", |entry| !entry.after.is_empty()), 9_999);
    assert_eq!(of("utxo_set_pruner_settings", |entry| entry.after.is_empty()), 1);
    assert_eq!(of("prune_now", |entry| entry.result.starts_with("BadArgument")), 1_000);
    assert_eq!(of("acknowledge_faults", |entry| entry.result == "Ok"), 1_000);
}

/// The longest argument comes from a canister, whose calls do not pass the ingress filter.
#[test]
fn the_longest_argument_is_truncated() {
    let coppice = Coppice::new();
    let proxy = Proxy::new(coppice.ic.as_ref(), Who::Controller.principal());
    let grant = Grant { principal: proxy.principal(), role: Role::Operator };
    coppice.operator().grant_role(&grant).answer().unwrap();
    let exporter = Exporter { name: "x".repeat(1_900_000), principal: Who::Archive.principal() };
    let arg = encode_args((exporter,)).unwrap();
    proxy.update(coppice.ic.as_ref(), coppice.id, "register_exporter", &arg).unwrap();
    let entry = newest(&coppice).unwrap();
    assert_eq!(entry.argument, format!("{}…", "x".repeat(509)));
    assert!(entry.result.starts_with("BadName"), "{entry:?}");
}

//! Exporters: pages through the interface, what they cost, acknowledgements, and the guard.

use coppice_tests::blocks::{block, hash, plain, seal};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, default_arg};
use coppice_tests::reader::{Pulled, Reader};
use ic_coppice_host::{Host, Kind};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

fn retain(blocks: u64) -> PrunePolicyArg {
    PrunePolicyArg { retain_blocks: Some(blocks), ..PrunePolicyArg::default() }
}

/// Pulls to the head. Returns the blocks, whose digests and parents are checked, and the number of pages.
fn pull(coppice: &Coppice, cursor: Option<ExportCursor>, max_bytes: u64) -> (Vec<AppendBlock>, u64) {
    let (mut reader, mut pages) = (Reader::resume(cursor), 0);
    while reader.pull(coppice, max_bytes) == Pulled::Some {
        pages += 1;
    }
    (reader.blocks.into_values().collect(), pages)
}

#[test]
fn a_reader_gets_whole_blocks_of_any_size() {
    let coppice = Coppice::new();
    assert_eq!(coppice.export(None, 0), Ok(ExportPage { chunks: vec![], cursor: None, head: None }));
    let mut blocks: Vec<AppendBlock> = Vec::new();
    for (number, body) in [(100, 10), (101, 500_000), (102, 5_000_000), (103, 0), (104, 70_000)] {
        let block = plain(number, 3, body);
        match body {
            5_000_000 => coppice.upload(&block, 1 << 20).unwrap(),
            _ => coppice.append(&block).unwrap(),
        }
        blocks.push(block);
    }
    let mut bare = block(105, &[], 0);
    (bare.receipts, bare.index) = (ByteBuf::new(), ByteBuf::new());
    seal(&mut bare);
    coppice.append(&bare).unwrap();
    blocks.push(bare);
    for max_bytes in [0, 10_000_000, 300_000, 65_536] {
        let (pulled, pages) = pull(&coppice, None, max_bytes);
        assert_eq!(pulled, blocks);
        let most = if max_bytes == 0 { 2 << 20 } else { max_bytes.min(2 << 20) };
        assert!(pages >= 5_570_000 / most, "{pages} pages of {max_bytes}");
    }
    coppice.upgrade();
    assert_eq!(pull(&coppice, None, 0).0, blocks);
}

/// The cost of a page depends only on what it returns: not on the block's size, the place in the block, or the chain's length.
#[test]
fn a_page_never_reads_more_than_it_returns() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append(&plain(0, 1, 400_000)).unwrap();
    let large = plain(1, 1, 40_000_000);
    coppice.upload(&large, 1 << 20).unwrap();
    coppice.append_plain(2..400, 100);
    let page_of = |host: &Host, offset: u64, number: u64, max_bytes: u64| {
        let hash = BlockHash::from(hash(number));
        let cursor = ExportCursor { number, hash, segment: 0, offset, rollbacks: 0 };
        host.take_executions();
        let page = coppice.export(Some(cursor), max_bytes).unwrap();
        let bytes: usize = page.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert_eq!(bytes as u64, max_bytes);
        let query = host.take_executions().into_iter().find(|e| e.kind == Kind::Query).unwrap();
        (query.instructions, query.stable_pages_read)
    };
    for max_bytes in [4_096, 262_144] {
        let (small, _) = page_of(&host, 0, 0, max_bytes);
        for offset in [0, 1_000_000, 17_777_777, 39_000_000] {
            let (large, pages) = page_of(&host, offset, 1, max_bytes);
            println!("{max_bytes} bytes from {offset} of 40 MB: {large} instructions, {pages} pages read");
            // The encoder sometimes moves its buffer as it grows.
            assert!(large.abs_diff(small) < 6_000 + 3 * max_bytes, "{large} and {small}");
            // One page more if the range does not begin on a page; the bucket table, the granule, the record, the ring, the directory.
            assert!(pages <= max_bytes / 4_096 + 6, "{pages} pages");
        }
    }
    // A page over many blocks: at least twelve records lie on one page of memory.
    host.take_executions();
    let cursor = ExportCursor { number: 1, hash: hash(1).into(), segment: 3, offset: 0, rollbacks: 0 };
    let page = coppice.export(Some(cursor), 0).unwrap();
    let bytes: usize = page.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    let pages = host.take_executions().into_iter().find(|e| e.kind == Kind::Query).unwrap().stable_pages_read;
    println!("{bytes} bytes of {} blocks: {pages} pages read", page.chunks.len() / 3);
    assert_eq!(page.chunks.len(), 3 * 398);
    assert!(pages <= bytes as u64 / 4_096 + 398 / 12 + 8, "{pages} pages");
    let (little, _) = page_of(&host, 0, 1, 4_096);
    let (more, _) = page_of(&host, 0, 1, 1_048_576);
    // The platform charges 50 instructions for each byte of a reply.
    assert!(more - little < (50 + 8) * (1_048_576 - 4_096), "a few instructions a byte: {little}, {more}");
}

#[test]
fn unacknowledged_blocks_are_not_pruned() {
    let coppice = Coppice::new();
    coppice.set_policy(retain(5)).unwrap();
    coppice.register(Who::Exporter);
    coppice.register(Who::Archive);
    coppice.append_plain(0..30, 10_000);
    coppice.pass(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.target, status.prune_cursor), (0, 24, None));
    assert_eq!((status.need_prune, status.exported_before_block), (true, Some(0)));
    assert_eq!(status.held_by, Some(HeldBy::Exporter("Archive".into())), "of two equal ones the first by name");
    assert_eq!(coppice.prune_now(1_000).blocks, 0, "not manually either");
    assert_eq!(coppice.ack(Who::Exporter, 20, &hash(20)), Ok(21));
    assert_eq!(coppice.ack(Who::Archive, 9, &hash(9)), Ok(10));
    let plan = coppice.plan().unwrap();
    assert_eq!((plan.before, plan.target, plan.blocks, plan.retain_min_block), (10, 24, 10, 24));
    assert_eq!(plan.held_by, Some(HeldBy::Exporter("Archive".into())));
    coppice.upgrade();
    coppice.pass(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.exported_before_block), (10, Some(10)));
    assert_eq!(status.last_run.unwrap().progress, PruneProgress::HasMore { reason: Some(StopReason::Guard) });
    // The removed exporter no longer holds pruning back; the remaining one does.
    coppice.remove_exporter(Who::Archive, false).unwrap();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 21);
    assert_eq!(coppice.remove_exporter(Who::Exporter, false), Err(ExporterError::LastExporter));
    assert_eq!(coppice.remove_exporter(Who::Archive, true), Err(ExporterError::Unknown));
    coppice.remove_exporter(Who::Exporter, true).unwrap();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 24);
    // The bound of a new exporter is the start of the chain: no further block is pruned until it acknowledges.
    coppice.register(Who::Archive);
    coppice.append_plain(30..40, 10_000);
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 24);
    assert_eq!(coppice.ack(Who::Archive, 39, &hash(39)), Ok(40));
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 34, "retention is the limit again");
}

#[test]
fn acknowledgements_are_inclusive_monotonic_and_per_caller() {
    let coppice = Coppice::new();
    coppice.register(Who::Exporter);
    assert_eq!(coppice.ack(Who::Exporter, 0, &hash(0)), Err(AckError::AboveHead { head: None }));
    coppice.append_plain(0..10, 100);
    let reject = coppice.by(Who::Archive).ack_exported(3u64, &hash(3).into()).try_answer();
    assert!(reject.unwrap_err().message.contains("access denied"));
    let role = Grant { principal: Who::Archive.principal(), role: Role::Exporter };
    let granted: Result<(), RoleError> = coppice.operator().grant_role(&role).answer();
    assert!(matches!(granted, Err(RoleError::RegisterExporter { .. })), "the role is not an exporter: {granted:?}");
    assert_eq!(coppice.ack(Who::Exporter, 5, &hash(5)), Ok(6));
    let status = coppice.export_status();
    let acknowledged = status.exporters[0].clone();
    assert_eq!((acknowledged.exported_before_block, acknowledged.lag_blocks), (6, 4));
    coppice.pass(100);
    for number in [5, 2] {
        assert_eq!(coppice.ack(Who::Exporter, number, &hash(number)), Ok(6), "again, and of an older one");
    }
    let later = coppice.export_status().exporters[0].clone();
    assert_eq!(later.acknowledged_at_ns, acknowledged.acknowledged_at_ns);
    assert_eq!(later.lag_secs, acknowledged.lag_secs + 100);
    assert_eq!(coppice.ack(Who::Exporter, 10, &hash(10)), Err(AckError::AboveHead { head: Some(9) }));
    let wrong = AckError::WrongHash { expected: hash(8).into() };
    assert_eq!(coppice.ack(Who::Exporter, 8, &hash(9)), Err(wrong.clone()));
    assert_eq!(coppice.ack(Who::Exporter, 8, b""), Err(wrong));
    assert_eq!(coppice.export_status().exporters[0].exported_before_block, 6, "a refusal changes nothing");
    assert_eq!(coppice.ack(Who::Exporter, 9, &hash(9)), Ok(10));
    let status = coppice.export_status();
    assert_eq!((status.exporters[0].lag_blocks, status.exporters[0].lag_secs), (0, 0));
    assert_eq!((status.exported_before_block, status.head), (Some(10), Some(9)));
}

#[test]
fn a_required_export_without_an_exporter_holds_all_pruning() {
    let coppice = Coppice::new();
    let require = ConfigChange { require_export: Some(true), ..ConfigChange::default() };
    coppice.operator().set_config(&require).answer().unwrap();
    coppice.set_policy(retain(5)).unwrap();
    coppice.append_plain(0..30, 100);
    coppice.pass(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.held_by), (0, Some(HeldBy::NoExporter)));
    coppice.register(Who::Exporter);
    coppice.ack(Who::Exporter, 12, &hash(12)).unwrap();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 13);
    coppice.remove_exporter(Who::Exporter, true).unwrap();
    coppice.upgrade();
    coppice.pass(60);
    let status = coppice.prune_status();
    assert_eq!((status.pruned_before_block, status.exported_before_block), (13, Some(13)));
    let allow = ConfigChange { require_export: Some(false), ..ConfigChange::default() };
    coppice.operator().set_config(&allow).answer().unwrap();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 24);
}

/// Capacity never overrides the guard: the canister fills up, and the refusal names the exporter.
#[test]
fn append_at_the_emergency_watermark_names_the_exporter() {
    let coppice = Coppice::new();
    let target = 100 * u64::from(LOG_CLASS);
    coppice
        .set_policy(PrunePolicyArg {
            target_bytes: Some(target),
            min_kept_blocks: Some(0),
            ..PrunePolicyArg::default()
        })
        .unwrap();
    coppice.register(Who::Exporter);
    let mut next = 0;
    let refused = loop {
        match coppice.append(&plain(next, 3, 60_000)) {
            Ok(()) => next += 1,
            Err(error) => break error,
        }
        coppice.pass(60);
        assert!(next < 200, "it never fills up");
    };
    let held_by = HeldBy::Exporter("Exporter".into());
    assert_eq!(refused, AppendError::CapacityExhausted { held_by: held_by.clone() });
    let status = coppice.prune_status();
    assert!(status.estimated_kept_bytes >= status.water_marks.unwrap().emergency, "{status:?}");
    assert_eq!((status.pruned_before_block, status.held_by.clone()), (0, Some(held_by)));
    assert!(!coppice.anyone().health().answer().healthy);
    assert_eq!(pull(&coppice, None, 0).0.len() as u64, next, "all blocks are still kept");
    // An upload is refused, too; after the exporter has caught up, appends succeed again.
    let (begin, _) = coppice_tests::blocks::upload(&plain(next, 3, 60_000), 1 << 16);
    let begun: Result<UploadProgress, AppendError> = coppice.producer().begin_block(&begin).answer();
    assert!(matches!(begun, Err(AppendError::CapacityExhausted { .. })), "{begun:?}");
    coppice.ack(Who::Exporter, next - 1, &hash(next - 1)).unwrap();
    coppice.pass(0);
    coppice.append(&plain(next, 3, 60_000)).unwrap();
    let status = coppice.prune_status();
    assert!(status.estimated_kept_bytes <= status.water_marks.unwrap().low + 2 * u64::from(LOG_CLASS), "{status:?}");
    assert_eq!(coppice.health().problems, []);
}

/// A reorg moves acknowledgements back, so the new blocks are kept until they are acknowledged, and readers learn of the reorg.
#[test]
fn a_reorg_moves_acknowledgements_back_and_readers_learn_of_it() {
    let coppice = Coppice::new();
    coppice.set_policy(retain(1)).unwrap();
    coppice.register(Who::Exporter);
    coppice.register(Who::Archive);
    coppice.append_plain(0..10, 1_000);
    coppice.ack(Who::Exporter, 9, &hash(9)).unwrap();
    coppice.ack(Who::Archive, 3, &hash(3)).unwrap();
    let cursor = coppice.export(None, 0).unwrap().cursor;
    assert_eq!(cursor.as_ref().unwrap().number, 9);
    coppice.producer().rollback_to(5u64, None).answer().unwrap();
    let bounds = |coppice: &Coppice| -> Vec<u64> {
        coppice.export_status().exporters.iter().map(|exporter| exporter.exported_before_block).collect()
    };
    assert_eq!(bounds(&coppice), [4, 6], "min(acknowledged, 5), as exclusive bounds");
    let mut parent = BlockHash::from(hash(5));
    for number in 6..12 {
        let mut fork = plain(number, 3, 2_000);
        (fork.hash, fork.parent_hash) = (hash(number ^ 1 << 40).into(), parent);
        parent = fork.hash.clone();
        coppice.append(&fork).unwrap();
    }
    coppice.upgrade();
    let reorged = coppice.export(cursor, 0).unwrap_err();
    let ExportError::Reorged { common_ancestor: 5, cursor } = reorged else { panic!("{reorged:?}") };
    let (blocks, _) = pull(&coppice, Some(cursor), 0);
    assert_eq!(blocks.iter().map(|block| block.number).collect::<Vec<_>>(), [6, 7, 8, 9, 10, 11]);
    assert_eq!(blocks[0].parent_hash, hash(5).into());
    coppice.ack(Who::Archive, 11, &parent).unwrap();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 6, "the second exporter has not seen block 6 of this chain");
    let old = coppice.ack(Who::Exporter, 9, &hash(9));
    assert_eq!(old, Err(AckError::WrongHash { expected: blocks[3].hash.clone() }));
}

/// A canister that is restored from a snapshot lacks blocks, and then continues along another branch. Queries may come from a replica that
/// lags; the answer of an update call says that no replica has the reader's block.
#[test]
fn update_call_names_a_restored_canister_to_a_reader_that_is_ahead() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let controller = Some(Who::Controller.principal());
    coppice.register(Who::Exporter);
    coppice.append_plain(0..10, 100);
    let snapshot = host.take_canister_snapshot(coppice.id, controller, None).unwrap();
    coppice.append_plain(10..16, 100);
    let cursor = coppice.export(None, 0).unwrap().cursor.unwrap();
    let inside =
        coppice.export(Some(ExportCursor { number: 12, hash: hash(12).into(), ..cursor.clone() }), 10).unwrap().cursor;
    coppice.producer().rollback_to(14u64, None).answer().unwrap();
    let rolled_back =
        coppice.export(Some(ExportCursor { number: 8, hash: hash(8).into(), ..cursor.clone() }), 0).unwrap().cursor;
    assert_eq!(rolled_back.as_ref().unwrap().rollbacks, 1);
    host.load_canister_snapshot(coppice.id, controller, snapshot.id).unwrap();
    let called = |cursor: Option<ExportCursor>| -> Result<ExportPage, ExportError> {
        coppice.by(Who::Exporter).replicated().export_blocks(cursor, 0u64).answer()
    };
    let restored = |head| Err(ExportError::Restored { head: Some(head) });
    for cursor in [Some(cursor.clone()), inside.clone(), rolled_back.clone()] {
        assert_eq!(called(cursor.clone()), restored(9), "{cursor:?}");
        assert_eq!(coppice.export(cursor, 0), Err(ExportError::Behind { head: Some(9) }));
    }
    // The same blocks again: the reader's block is of the chain once more.
    coppice.append_plain(10..16, 100);
    assert_eq!(called(Some(cursor.clone())), coppice.export(Some(cursor.clone()), 0));
    // Another branch, which is lower than the reader, then higher.
    coppice.producer().rollback_to(9u64, None).answer().unwrap();
    assert!(
        matches!(called(Some(cursor.clone())), Err(ExportError::Reorged { common_ancestor: 9, .. })),
        "a rollback explains it"
    );
    // The rollback removed six blocks, and counted each.
    let other = ExportCursor { hash: hash(99).into(), rollbacks: 6, ..cursor };
    let mut parent = BlockHash::from(hash(9));
    for number in 10..20 {
        let mut fork = plain(number, 3, 100);
        (fork.hash, fork.parent_hash) = (hash(number ^ 1 << 40).into(), parent);
        parent = fork.hash.clone();
        coppice.append(&fork).unwrap();
        assert_eq!(called(Some(other.clone())), restored(number), "block 15 was never part of this chain");
    }
    coppice.upgrade();
    assert_eq!(called(Some(other.clone())), restored(19));
    assert!(matches!(coppice.export(Some(other), 0), Err(ExportError::BadCursor { .. })), "one replica");
}

/// Registering an exporter grants the role, and removing it revokes the role.
#[test]
fn the_role_is_granted_and_revoked_with_the_exporter() {
    let coppice = Coppice::new();
    let role = Grant { principal: Who::Exporter.principal(), role: Role::Exporter };
    let has = |coppice: &Coppice| coppice.anyone().list_roles().answer().contains(&role);
    coppice.register(Who::Exporter);
    assert!(has(&coppice));
    coppice.register(Who::Archive);
    coppice.remove_exporter(Who::Exporter, false).unwrap();
    assert!(!has(&coppice));
    let reject = coppice.by(Who::Exporter).ack_exported(0u64, &BlockHash::default()).try_answer();
    assert!(reject.unwrap_err().message.contains("access denied"));
    assert!(!coppice.operator().revoke_role(&role).answer());
}

/// A canister with an operator who is not an admin, an admin who is not an operator, and a policy that retains one block.
fn with_an_operator_and_an_admin() -> Coppice {
    let coppice = Coppice::new();
    coppice.grant(Who::Operator, Role::Operator);
    coppice.grant(Who::Admin, Role::Admin);
    coppice.set_policy(PrunePolicyArg { min_kept_blocks: Some(0), ..retain(1) }).unwrap();
    coppice
}

fn register(coppice: &Coppice, by: Who, name: &str, principal: Who) -> Result<(), ExporterError> {
    let exporter = Exporter { name: name.into(), principal: principal.principal() };
    coppice.by(by).register_exporter(&exporter).answer()
}

/// A stolen operator's key: the thief's own exporter never replaces the honest one, however far the honest one has read.
#[test]
fn an_operators_own_exporter_frees_no_block_that_the_honest_one_lacks() {
    for honest in [None, Some(99), Some(399)] {
        let coppice = with_an_operator_and_an_admin();
        coppice.register(Who::Exporter);
        coppice.append_plain(0..400, 100);
        if let Some(number) = honest {
            coppice.ack(Who::Exporter, number, &hash(number)).unwrap();
        }
        let bound = honest.map_or(0, |number| number + 1);
        let attack = |name: &str| {
            let _ = register(&coppice, Who::Operator, name, Who::Operator);
            let which = RemoveExporter { name: Who::Exporter.name(), drop_guard: true };
            let removed = coppice.by(Who::Operator).remove_exporter(&which).try_answer();
            assert!(removed.unwrap_err().message.contains("access denied"));
            let _ = coppice.ack(Who::Operator, 399, &hash(399));
            for _ in 0..3 {
                coppice.by(Who::Operator).prune_now(15_000).answer().unwrap();
                coppice.pass(60);
            }
            let status = coppice.prune_status();
            assert_eq!(status.pruned_before_block, bound.min(398), "{status:?}");
        };
        attack("thief");
        // Another key under the honest name is refused; registering the same principal again changes nothing.
        let taken = ExporterError::NameTaken { principal: Who::Exporter.principal() };
        assert_eq!(register(&coppice, Who::Operator, &Who::Exporter.name(), Who::Stranger), Err(taken));
        assert_eq!(register(&coppice, Who::Operator, &Who::Exporter.name(), Who::Exporter), Ok(()));
        attack("thief");
        assert_eq!(
            coppice.export_status().exporters[0].exported_before_block,
            bound.max(coppice.prune_status().pruned_before_block)
        );
    }
}

/// An exporter's stolen key is revoked: its name and its bound still hold pruning, over upgrades, rollbacks and a reset. Only an admin can
/// give the name a new key, which continues at the bound, or remove the name.
#[test]
fn an_exporter_with_a_revoked_key_holds_pruning_until_an_admin_gives_a_new_key() {
    let coppice = with_an_operator_and_an_admin();
    coppice.register(Who::Exporter);
    coppice.append_plain(0..30, 100);
    coppice.ack(Who::Exporter, 9, &hash(9)).unwrap();
    let role = Grant { principal: Who::Exporter.principal(), role: Role::Exporter };
    assert!(coppice.by(Who::Admin).revoke_role(&role).answer());
    assert!(!coppice.by(Who::Admin).revoke_role(&role).answer());
    let reject = coppice.by(Who::Exporter).ack_exported(29u64, &hash(29).into()).try_answer();
    assert!(reject.unwrap_err().message.contains("access denied"));
    let name = Who::Exporter.name();
    let holds = |coppice: &Coppice, bound: u64| {
        coppice.pass(60);
        coppice.prune_now(15_000);
        let held_by = Some(HeldBy::KeylessExporter(name.clone()));
        let status = coppice.prune_status();
        assert_eq!((status.pruned_before_block, status.held_by), (bound, held_by.clone()));
        assert_eq!(coppice.plan().unwrap().held_by, held_by);
        let exporters = coppice.export_status().exporters;
        let keyless: Vec<_> = exporters.iter().filter(|exporter| exporter.principal.is_none()).collect();
        assert_eq!((keyless.len(), &keyless[0].name, keyless[0].exported_before_block), (1, &name, bound));
        let health = coppice.anyone().health().answer();
        let problem = health.problems.iter().find(|problem| problem.code == ProblemCode::ExporterKeyless).unwrap();
        assert!(problem.message.contains(&format!("exporter {name} has no key")), "{problem:?}");
        assert!(problem.message.contains(&format!("no block from {bound} on")), "{problem:?}");
        assert!(problem.action.contains("register_exporter") && !health.healthy, "{problem:?}");
        assert!(coppice.page("/").contains(&format!("{name} (without a key)")));
        let metrics = coppice.page("/metrics");
        assert!(metrics.contains("coppice_problem{code=\"ExporterKeyless\"} 1"));
        assert!(metrics.contains(&format!("coppice_exporter_lag_seconds{{exporter=\"{name}\"}}")));
    };
    holds(&coppice, 10);
    coppice.upgrade();
    holds(&coppice, 10);
    // An operator cannot give the name a key: not the old one, not its own, and not after registering its key under another name.
    for principal in [Who::Exporter, Who::Operator] {
        assert_eq!(register(&coppice, Who::Operator, &name, principal), Err(ExporterError::Keyless));
    }
    assert_eq!(register(&coppice, Who::Operator, "thief", Who::Operator), Ok(()));
    coppice.ack(Who::Operator, 29, &hash(29)).unwrap();
    assert_eq!(register(&coppice, Who::Operator, &name, Who::Operator), Err(ExporterError::Keyless));
    holds(&coppice, 10);
    // An admin cannot give the name the key of another exporter by mistake, either.
    let taken = ExporterError::PrincipalTaken { name: "thief".into() };
    assert_eq!(register(&coppice, Who::Admin, &name, Who::Operator), Err(taken));
    // A rollback moves the bound of an exporter without a key like any other bound.
    coppice.by(Who::Admin).rollback_to(10u64, None).answer().unwrap();
    coppice.pass(60);
    coppice.append_plain(11..30, 100);
    holds(&coppice, 10);
    assert_eq!(register(&coppice, Who::Admin, &name, Who::Archive), Ok(()));
    let exporter = coppice.export_status().exporters.into_iter().find(|exporter| exporter.name == name).unwrap();
    assert_eq!((exporter.principal, exporter.exported_before_block), (Some(Who::Archive.principal()), 10));
    assert!(!coppice.anyone().health().answer().problems.iter().any(|p| p.code == ProblemCode::ExporterKeyless));
    assert_eq!(coppice.ack(Who::Archive, 19, &hash(19)), Ok(20));
    coppice.ack(Who::Operator, 29, &hash(29)).unwrap();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 20);
    // The key is revoked again, and the chain is reset: the new chain is held, too, until the name is removed.
    let role = Grant { principal: Who::Archive.principal(), role: Role::Exporter };
    assert!(coppice.by(Who::Admin).revoke_role(&role).answer());
    let reset = |drop_unexported| ResetChain { head_hash: hash(29).into(), drop_unexported };
    let refused: Result<ChainReset, ResetError> = coppice.by(Who::Admin).reset_chain(&reset(false)).answer();
    assert_eq!(refused, Err(ResetError::NotExported { exporter: name.clone(), exported_before_block: 20 }));
    coppice.by(Who::Admin).reset_chain(&reset(true)).answer().unwrap();
    coppice.pass(60);
    coppice.append_plain(0..30, 100);
    coppice.ack(Who::Operator, 29, &hash(29)).unwrap();
    holds(&coppice, 0);
    let which = RemoveExporter { name: name.clone(), drop_guard: false };
    coppice.by(Who::Admin).remove_exporter(&which).answer().unwrap();
    coppice.pass(60);
    assert_eq!(coppice.prune_status().pruned_before_block, 28);
    assert_eq!(coppice.health().problems, []);
}

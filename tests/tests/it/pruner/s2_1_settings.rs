//! 2.1 and 7: settings, the behaviour of a new canister, and the roles of the methods.

use super::world::*;
use crate::utxo::configure;
use candid::encode_args;
use coppice_tests::client::Answered;
use coppice_tests::coppice::Who;
use ic_coppice_interface::*;

type Change = UtxoPrunerSettingsChange;

fn retention(blocks: u32) -> Option<UtxoUnminedRetention> {
    Some(UtxoUnminedRetention::Blocks(blocks))
}

#[test]
fn s2_1_1_settings_have_the_names_and_defaults_of_section_7() {
    let world = World::as_installed();
    let UtxoPrunerSettings {
        pruner_enabled,
        disable_dah_cleaner,
        job_timeout_secs,
        utxo_chunk_size,
        utxo_chunk_group_limit,
        utxo_progress_log_interval_secs,
        utxo_defensive_enabled,
        utxo_defensive_batch_read_size,
        unmined_tx_retention,
        parent_preservation_blocks,
        safe_height_rule,
        max_job_history,
        ..
    } = world.settings();
    assert!(pruner_enabled, "startPruner");
    assert_eq!(job_timeout_secs, 10 * 60, "pruner_jobTimeout");
    assert_eq!(utxo_chunk_size, 1_000, "pruner_utxoChunkSize");
    assert_eq!(utxo_chunk_group_limit, 10, "pruner_utxoChunkGroupLimit");
    assert_eq!(utxo_progress_log_interval_secs, 30, "pruner_utxoProgressLogInterval");
    assert!(!utxo_defensive_enabled, "pruner_utxoDefensiveEnabled");
    assert_eq!(utxo_defensive_batch_read_size, 10_000, "pruner_utxoDefensiveBatchReadSize");
    assert_eq!(unmined_tx_retention, UtxoUnminedRetention::HalfOfRetention, "utxostore_unminedTxRetention");
    assert_eq!(parent_preservation_blocks, PRESERVATION, "utxostore_parentPreservationBlocks");
    assert!(!disable_dah_cleaner, "utxostore_disableDAHCleaner");
    assert_eq!(safe_height_rule, UtxoSafeHeightRule::Persisted, "the worked example of 2.4");
    assert_eq!(max_job_history, 1_000, "4, Max Job History");
    let config: Config = world.coppice.anyone().get_config().answer();
    assert_eq!(config.utxo.unwrap().block_height_retention, 288);
}

#[test]
fn s7_an_invalid_value_is_refused_by_name_and_changes_nothing() {
    let world = World::as_installed();
    let before = world.settings();
    let refused: Vec<(&str, Change)> = vec![
        ("job_timeout_secs", Change { job_timeout_secs: Some(0), ..Default::default() }),
        ("job_timeout_secs", Change { job_timeout_secs: Some(31_536_001), ..Default::default() }),
        ("utxo_chunk_size", Change { utxo_chunk_size: Some(0), ..Default::default() }),
        ("utxo_chunk_size", Change { utxo_chunk_size: Some(100_001), ..Default::default() }),
        ("utxo_chunk_group_limit", Change { utxo_chunk_group_limit: Some(0), ..Default::default() }),
        ("utxo_chunk_group_limit", Change { utxo_chunk_group_limit: Some(10_001), ..Default::default() }),
        (
            "utxo_progress_log_interval_secs",
            Change { utxo_progress_log_interval_secs: Some(u64::MAX), ..Default::default() },
        ),
        ("utxo_defensive_batch_read_size", Change { utxo_defensive_batch_read_size: Some(0), ..Default::default() }),
        (
            "utxo_defensive_batch_read_size",
            Change { utxo_defensive_batch_read_size: Some(100_001), ..Default::default() },
        ),
        ("unmined_tx_retention", Change { unmined_tx_retention: retention(u32::MAX), ..Default::default() }),
        ("parent_preservation_blocks", Change { parent_preservation_blocks: Some(u32::MAX), ..Default::default() }),
        ("tick_interval_secs", Change { tick_interval_secs: Some(0), ..Default::default() }),
        ("tick_interval_secs", Change { tick_interval_secs: Some(86_401), ..Default::default() }),
        ("max_instructions_per_tick", Change { max_instructions_per_tick: Some(0), ..Default::default() }),
        ("max_instructions_per_tick", Change { max_instructions_per_tick: Some(2_000_000_001), ..Default::default() }),
        ("max_height_jump", Change { max_height_jump: Some(0), ..Default::default() }),
        ("heights_per_day", Change { heights_per_day: Some(1 << 31), ..Default::default() }),
        ("retry_base_secs", Change { retry_base_secs: Some(3_601), ..Default::default() }),
        ("max_job_history", Change { max_job_history: Some(0), ..Default::default() }),
        ("max_job_history", Change { max_job_history: Some(1_001), ..Default::default() }),
    ];
    for (name, change) in refused {
        // Together with a valid setting, which is not applied either.
        let change = Change { pruner_enabled: Some(false), ..change };
        match world.try_set(change) {
            Err(UtxoPrunerError::BadArgument(BadArgument { field, why })) => {
                assert_eq!(field, name);
                assert!(!why.is_empty());
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(world.settings(), before, "{name}");
    }
}

#[test]
fn both_setters_refuse_retentions_that_delete_parents_before_children_are_old() {
    let world = World::as_installed();
    let unmined = |blocks| world.try_set(Change { unmined_tx_retention: retention(blocks), ..Default::default() });
    let kept = |blocks| {
        let utxo = UtxoSettingsChange { block_height_retention: Some(blocks), ..Default::default() };
        configure(&world.coppice, utxo).map(|config| config.utxo.unwrap().block_height_retention)
    };
    for blocks in [288, 289, MAX_HEIGHT] {
        let refused = unmined(blocks);
        assert!(
            matches!(&refused, Err(UtxoPrunerError::BadArgument(BadArgument { field, .. })) if field == "unmined_tx_retention")
        );
    }
    assert!(unmined(287).is_ok());
    for blocks in [1, 286, 287] {
        let refused = kept(blocks);
        assert!(
            matches!(&refused, Err(ConfigError::BadArgument(BadArgument { field, .. })) if field == "block_height_retention")
        );
    }
    assert_eq!(
        world.coppice.operator().get_config().answer().utxo.unwrap().block_height_retention,
        288,
        "nothing has changed"
    );
    assert_eq!((kept(288), kept(289)), (Ok(288), Ok(289)));
    // Without retention no record is ever due.
    assert_eq!(kept(0), Ok(0));
    assert!(unmined(MAX_HEIGHT).is_ok());
    assert!(kept(1_000).is_err(), "restored only if unmined transactions are old by then");
    assert!(
        world
            .try_set(Change { unmined_tx_retention: Some(UtxoUnminedRetention::HalfOfRetention), ..Default::default() })
            .is_ok()
    );
    // The default, half of the retention, is valid for any retention.
    assert_eq!((kept(1), kept(2), kept(1_000)), (Ok(1), Ok(2), Ok(1_000)));
}

#[test]
fn s7_settings_change_at_run_time_and_survive_an_upgrade() {
    let world = World::as_installed();
    let change = Change {
        pruner_enabled: Some(false),
        disable_dah_cleaner: Some(true),
        job_timeout_secs: Some(1),
        utxo_chunk_size: Some(2),
        utxo_chunk_group_limit: Some(3),
        utxo_progress_log_interval_secs: Some(0),
        utxo_defensive_enabled: Some(true),
        utxo_defensive_batch_read_size: Some(5),
        unmined_tx_retention: retention(6),
        parent_preservation_blocks: Some(7),
        safe_height_rule: Some(UtxoSafeHeightRule::PersistedPlusRetention),
        tick_interval_secs: Some(8),
        max_instructions_per_tick: Some(1_000_000),
        max_job_history: Some(10),
        max_height_jump: Some(11),
        heights_per_day: Some(13),
        heights_are_block_numbers: Some(true),
        retry_base_secs: Some(12),
    };
    let expected = UtxoPrunerSettings {
        pruner_enabled: false,
        disable_dah_cleaner: true,
        job_timeout_secs: 1,
        utxo_chunk_size: 2,
        utxo_chunk_group_limit: 3,
        utxo_progress_log_interval_secs: 0,
        utxo_defensive_enabled: true,
        utxo_defensive_batch_read_size: 5,
        unmined_tx_retention: UtxoUnminedRetention::Blocks(6),
        parent_preservation_blocks: 7,
        safe_height_rule: UtxoSafeHeightRule::PersistedPlusRetention,
        tick_interval_secs: 8,
        max_instructions_per_tick: 1_000_000,
        max_job_history: 10,
        max_height_jump: 11,
        heights_per_day: 13,
        heights_are_block_numbers: true,
        retry_base_secs: 12,
    };
    assert_eq!(world.set(change), expected);
    assert_eq!(world.settings(), expected);
    // Omitted settings stay unchanged.
    assert_eq!(world.set(Change::default()), expected);
    world.coppice.upgrade();
    assert_eq!(world.settings(), expected);
}

#[test]
fn s7_the_interval_of_the_timer_changes_at_once_and_survives_an_upgrade() {
    let world = World::new();
    world.slow();
    world.make_spent(10, &orphans(0..20));
    World::scheduled(world.persisted(20));
    world.ticks(1);
    assert_eq!(world.status().ticks, 1);
    world.set(Change { tick_interval_secs: Some(1_000), job_timeout_secs: Some(100_000), ..Default::default() });
    world.coppice.pass(900);
    assert_eq!(world.status().ticks, 1);
    world.coppice.pass(200);
    assert_eq!(world.status().ticks, 2);
    world.coppice.upgrade();
    let status = world.status();
    assert_eq!((status.ticks, status.running.unwrap().ticks), (0, 2), "an upgrade starts counting again");
    assert!((980..1_001).contains(&((status.next_tick_ns - world.coppice.ic.now()) / 1_000_000_000)));
    world.coppice.pass(900);
    assert_eq!(world.status().ticks, 0);
    world.coppice.pass(200);
    assert_eq!(world.status().ticks, 1);
    world.set(Change { tick_interval_secs: Some(TICK), ..Default::default() });
    world.ticks(20);
    assert_eq!(
        (world.last().state, world.status().next_tick_ns),
        (UtxoJobState::Completed, 0),
        "nor when the job is done"
    );
}

#[test]
fn s7_start_pruner_switches_timer_runs_off_and_on() {
    let world = World::new();
    world.set(Change { pruner_enabled: Some(false), ..Default::default() });
    let txs = orphans(0..3);
    world.make_spent(10, &txs);
    let job = World::scheduled(world.persisted(20));
    world.ticks(3);
    let status = world.status();
    assert_eq!((status.settings.pruner_enabled, status.pending, status.running), (false, Some(job.clone()), None));
    assert_eq!(world.count(&txs), 3);
    world.set(Change { pruner_enabled: Some(true), ..Default::default() });
    assert_eq!(world.finish(job.id).counts.records_deleted, 3);
    assert!(world.status().settings.pruner_enabled);
}

#[test]
fn s2_1_3_the_block_assembly_is_not_running_at_first_and_its_state_survives_an_upgrade() {
    let world = World::as_installed();
    let txs = orphans(0..1);
    world.retention(RETENTION);
    world.make_spent(10, &txs);
    assert_eq!(world.status().block_assembly, UtxoBlockAssemblyState::NotRunning);
    let job = World::scheduled(world.persisted(20));
    world.ticks(2);
    assert_eq!((world.status().pending, world.count(&txs)), (Some(job.clone()), 1));
    world.assembly(UtxoBlockAssemblyState::Running);
    world.coppice.upgrade();
    assert_eq!(world.status().block_assembly, UtxoBlockAssemblyState::Running);
    world.finish(job.id);
    assert_eq!(world.count(&txs), 0);
}

#[test]
fn s2_1_4_the_health_check_finds_nothing_wrong() {
    let world = World::as_installed();
    assert_eq!((world.health().healthy, world.health().problems), (true, vec![]));
}

#[test]
fn s2_1_5_each_method_requires_its_role_and_a_refused_call_changes_nothing() {
    let world = World::as_installed();
    let worker = Grant { principal: Who::Archive.principal(), role: Role::BlobWorker };
    world.coppice.operator().grant_role(&worker).answer().unwrap();
    let off = Change { pruner_enabled: Some(false), ..Default::default() };
    let rows =
        CompleteBlobDeletions { completed_ids: vec![1], failed_ids: vec![2], max_retries: 3, ..Default::default() };
    let methods = [
        ("utxo_notify_block", Who::Producer, encode_args((7u32, true))),
        ("utxo_notify_block_persisted", Who::Producer, encode_args((8u32,))),
        ("utxo_set_block_assembly_state", Who::Producer, encode_args((UtxoBlockAssemblyState::Running,))),
        ("utxo_prune", Who::Controller, encode_args((8u32,))),
        ("utxo_set_pruner_settings", Who::Controller, encode_args((off,))),
        ("utxo_skip_record", Who::Controller, encode_args((1u32, true))),
        ("retry_blob_deletions", Who::Controller, encode_args((RetryBlobDeletions::Ids(vec![1]),))),
        ("complete_blob_deletions", Who::Archive, encode_args((rows,))),
    ];
    let everybody = [Who::Controller, Who::Producer, Who::Archive, Who::Stranger, Who::Anonymous];
    for (method, may, arg) in methods {
        let arg = arg.unwrap();
        let before = (world.status(), world.settings());
        for who in everybody.into_iter().filter(|who| *who != may) {
            let reply = world.coppice.ic.update(world.coppice.id, who.principal(), method, arg.clone());
            let reject = reply.expect_err(method);
            assert!(reject.message.contains("access denied"), "{method} by {who:?}: {reject:?}");
        }
        assert_eq!((world.status(), world.settings()), before, "{method}");
        let reply = world.coppice.ic.update(world.coppice.id, may.principal(), method, arg);
        assert!(reply.is_ok(), "{method} by {may:?}: {reply:?}");
    }
    // The methods that change something took effect when a caller with the role called.
    let status = world.status();
    assert_eq!(
        (status.current_height, status.last_persisted_height, status.settings.pruner_enabled),
        (8, Some(8), false)
    );
    assert_eq!((status.block_assembly, world.last().height), (UtxoBlockAssemblyState::Running, 8));
}

#[test]
fn s2_1_6_a_new_canister_waits_for_events() {
    let world = World::as_installed();
    world.ticks(2);
    let status = world.status();
    assert_eq!(
        (status.settings.pruner_enabled, status.ticks, status.next_tick_ns),
        (true, 0, 0),
        "no timer runs for nothing"
    );
    assert_eq!((status.pending, status.running, status.last_job), (None, None, None));
    assert_eq!((status.current_height, status.last_persisted_height, status.last_processed_height), (0, None, 0));
    assert_eq!((status.safe_height, status.unmined_cutoff_height, status.totals), (0, 0, UtxoPruneCounts::default()));
    assert_eq!((status.blocked_by, status.skipped, status.blobs_pending, status.blobs_dead), (None, vec![], 0, 0));
    assert_eq!(world.jobs(), []);
}

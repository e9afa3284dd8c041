//! Settings and status, as an operator sees and changes them.

use candid::CandidType;
use coppice_tests::blocks::plain;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, blob_bytes, default_arg};
use ic_coppice_interface::*;

#[test]
fn settings_are_checked_changed_and_kept() {
    let coppice = Coppice::with(InitArg { max_stable_pages: Some(100_000), ..default_arg() });
    let config: Config = coppice.anyone().get_config().answer();
    assert_eq!((config.log_class, config.max_stable_pages, config.verify_segments), (LOG_CLASS, 100_000, true));
    let bad = ConfigChange { max_stable_pages: Some(10), verify_segments: Some(false), ..ConfigChange::default() };
    let Err(ConfigError::BadArgument(BadArgument { field, .. })) = coppice.operator().set_config(&bad).answer() else {
        panic!("it is refused")
    };
    assert_eq!(field, "max_stable_pages");
    assert_eq!(coppice.anyone().get_config().answer(), config, "a refused change changes nothing");
    let change = ConfigChange {
        upload_expiry_secs: Some(7),
        min_liquid_cycles: Some(5_000_000_000_000),
        ..ConfigChange::default()
    };
    let changed: Result<Config, ConfigError> = coppice.operator().set_config(&change).answer();
    let changed = changed.unwrap();
    assert_eq!((changed.upload_expiry_secs, changed.min_liquid_cycles), (7, 5_000_000_000_000));
    coppice.upgrade();
    assert_eq!(coppice.anyone().get_config().answer(), changed);
}

/// Candid drops a field that the receiver does not know, so a misspelt field changes nothing: each answer contains the settings in force.
#[test]
fn a_misspelt_field_changes_nothing_and_the_answer_has_the_settings_in_force() {
    #[derive(CandidType)]
    struct Misspelt {
        retain_blcoks: Option<u64>,
        upload_expiry_sec: Option<u64>,
        job_time_out: Option<u64>,
    }
    #[derive(CandidType)]
    struct Heights {
        current: u32,
        persited: Option<u32>,
        processed: u32,
    }
    let misspelt = || Misspelt { retain_blcoks: Some(1), upload_expiry_sec: Some(1), job_time_out: Some(1) };
    let heights = Heights { current: 5, persited: Some(4), processed: 3 };
    let coppice = Coppice::new();
    coppice.append_plain(0..3, 10);
    let policy = coppice.set_policy(PrunePolicyArg { retain_blocks: Some(9), ..PrunePolicyArg::default() }).unwrap();
    let config: Config = coppice.anyone().get_config().answer();
    let settings: UtxoPrunerSettings = coppice.anyone().utxo_get_pruner_status().answer().settings;
    let by = Who::Controller;
    let set: Result<PrunePolicyChange, PruneError> = coppice.call(by, "set_prune_policy", (misspelt(),)).unwrap();
    assert_eq!(set, Ok(PrunePolicyChange { old: Some(policy.clone()), new: policy.clone() }));
    let plan: Result<PrunePlan, PruneError> = coppice.call(by, "plan_prune", (Some(misspelt()),)).unwrap();
    assert_eq!(plan.unwrap().policy, policy);
    let set: Result<Config, ConfigError> = coppice.call(by, "set_config", (misspelt(),)).unwrap();
    assert_eq!(set, Ok(config));
    let set: Result<UtxoPrunerSettings, UtxoPrunerError> =
        coppice.call(by, "utxo_set_pruner_settings", (misspelt(),)).unwrap();
    assert_eq!(set, Ok(settings));
    let set: Result<UtxoHeightsSet, UtxoPrunerError> = coppice.call(by, "utxo_set_heights", (heights,)).unwrap();
    assert_eq!(set.unwrap().heights, UtxoSetHeights { current: 5, persisted: None, processed: 3 });
    // The plan of a change contains the policy that the change would make.
    let would = PrunePolicyArg { retain_days: Some(3), ..PrunePolicyArg::default() };
    assert_eq!(coppice.plan_with(Some(would)).unwrap().policy, PrunePolicy { retain_days: 3, ..policy.clone() });
    assert_eq!(coppice.plan().unwrap().policy, policy);
}

#[test]
fn every_log_blob_class_holds_blocks() {
    for class in [64u32, 128, 256, 512, 1024, 2048, 4096].map(|kib| kib << 10) {
        let coppice = Coppice::with(InitArg { log_class: Some(class), ..default_arg() });
        coppice.append_plain(0..6, 700_000);
        coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
        assert_eq!(coppice.prune_now(1_000).blocks, 4);
        assert_eq!(coppice.block(5).unwrap().body, plain(5, 3, 700_000).body);
        let storage = coppice.storage();
        assert_eq!(blob_bytes(&storage) % u64::from(class), 0, "only blobs of class {class}");
        assert_eq!(blob_bytes(&storage), coppice.prune_status().estimated_kept_bytes);
    }
}

#[test]
fn the_storage_figures_add_up() {
    let coppice = Coppice::new();
    coppice.append_plain(0..30, 50_000);
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(10), ..PrunePolicyArg::default() }).unwrap();
    let full = coppice.storage();
    coppice.prune_now(1_000);
    let storage = coppice.storage();
    let idle: u64 = storage.classes.iter().map(|c| (c.free + c.lost) * u64::from(c.class)).sum();
    let slots = idle + storage.owners.iter().map(|of| of.kept_bytes).sum::<u64>();
    assert_eq!((slots + (3 << 16)) % (1 << 20), 0, "whole mebibytes, with the front of the first extent");
    assert_eq!(storage.arena_bytes - storage.reusable_bytes, storage.used_bytes + storage.quarantined_bytes);
    assert!(slots <= storage.arena_bytes);
    assert_eq!(storage.billed_bytes, full.billed_bytes);
    assert_eq!(storage.reusable_bytes - full.reusable_bytes, full.used_bytes - storage.used_bytes, "pruning reclaims");
    assert_eq!(
        storage.payload_bytes,
        (19..30)
            .map(|n| {
                let block = plain(n, 3, 50_000);
                (block.body.len() + block.receipts.len() + block.index.len()) as u64
            })
            .sum::<u64>()
    );
    assert_eq!(storage.owners.iter().map(|owner| owner.kept_bytes).sum::<u64>(), storage.used_bytes);
}

#[test]
fn a_wrong_install_argument_is_refused_with_the_reason() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let install = |arg: CanisterArg| {
        let arg = candid::encode_one(Some(arg)).unwrap();
        let wasm = coppice_tests::wasm::canister();
        host.reinstall_canister(coppice.id, wasm, arg, Some(Who::Controller.principal())).unwrap_err().reject_message
    };
    let message = install(CanisterArg::Init(InitArg { log_class: Some(1_000), ..InitArg::default() }));
    assert!(message.contains("log_class"), "{message}");
    let message =
        install(CanisterArg::Init(InitArg { producers: vec![Who::Anonymous.principal()], ..InitArg::default() }));
    assert!(message.contains("the anonymous principal has no roles"), "{message}");
    let message = install(CanisterArg::Upgrade(None));
    assert!(message.contains("Init"), "{message}");
}

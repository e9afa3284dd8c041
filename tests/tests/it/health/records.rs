//! UTXO records: jobs of the pruner that wait, and the limit of the transactions' data in the BlobStore.

use super::*;
use crate::pruner::world::World;
use crate::utxo::{all_ok, configure as configure_utxo, create};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::UtxoBlockAssemblyState::{NotRunning, Running};

const HOUR: u64 = 3_600;
/// Bytes of the smallest blob.
const BLOB: u64 = 64 << 10;

/// A job is reported when it has waited for more than an hour since a tick noticed it. A canister without jobs is healthy.
#[test]
fn a_job_that_waits_for_the_block_assembly_is_reported_after_an_hour() {
    let world = World::as_installed();
    let coppice = &world.coppice;
    (0..20).for_each(|_| coppice.pass(600));
    assert_eq!(health(coppice).problems, [], "no heights are notified");
    World::scheduled(world.block(10, true));
    coppice.pass(600);
    // A tick has noticed the job by now. The waiting time passes to a job that replaces it, and survives an upgrade.
    let noticed = health(coppice).time_ns;
    World::scheduled(world.block(11, true));
    coppice.upgrade();
    coppice.pass(HOUR - 600 - 60);
    World::scheduled(world.persisted(12));
    assert_eq!(health(coppice).problems, []);
    coppice.pass(600 + 61);
    let job = world.status().pending.unwrap();
    let says = format!("job {} for height 12 waits for the block assembly", job.id);
    let problem = raised(coppice, ProblemCode::UtxoPrunerWaits, Severity::Warning, &says);
    let since = problem.since_ns.unwrap();
    assert!(since <= noticed && since + HOUR * NS < health(coppice).time_ns, "{problem:?}, {noticed}");
    assert!(problem.action.contains("utxo_set_block_assembly_state"));
    coppice.upgrade();
    assert_eq!(raised(coppice, ProblemCode::UtxoPrunerWaits, Severity::Warning, &says).since_ns, problem.since_ns);
    assert!(page(coppice).contains("UtxoPrunerWaits"));
    world.assembly(Running);
    cleared(coppice, ProblemCode::UtxoPrunerWaits);
    world.finish(job.id);
    // The block assembly stops while there is no job.
    world.assembly(NotRunning);
    (0..12).for_each(|_| coppice.pass(600));
    assert_eq!(health(coppice).problems, []);
    // The block assembly stops twice for less than an hour while there is a job.
    for height in [13, 14] {
        World::scheduled(world.persisted(height));
        (0..5).for_each(|_| coppice.pass(600));
        world.assembly(Running);
        world.finish(world.status().pending.unwrap().id);
        coppice.pass(60);
        assert_eq!(health(coppice).problems, []);
        world.assembly(NotRunning);
    }
    // An operator may cancel the job.
    let job = World::scheduled(world.persisted(15));
    (0..8).for_each(|_| coppice.pass(600));
    raised(coppice, ProblemCode::UtxoPrunerWaits, Severity::Warning, "height 15");
    coppice.operator().utxo_cancel_prune_job(job.id).answer().unwrap();
    cleared(coppice, ProblemCode::UtxoPrunerWaits);
}

#[test]
fn a_switched_off_pruner_with_a_job_is_reported() {
    let world = World::new();
    let coppice = &world.coppice;
    let switch = |on: bool| {
        world.set(UtxoPrunerSettingsChange { pruner_enabled: Some(on), ..Default::default() });
    };
    switch(false);
    coppice.pass(600);
    assert_eq!(health(coppice).problems, [], "there is nothing to do");
    let job = World::scheduled(world.persisted(20));
    let raised = || {
        let says = format!("job {} for height 20 of UTXO records is due", job.id);
        raised(coppice, ProblemCode::UtxoPrunerOff, Severity::Warning, &says)
    };
    // A query in between does not reset the waiting time.
    coppice.pass(600);
    coppice.pass(HOUR - 120);
    assert_eq!(health(coppice).problems, []);
    coppice.pass(600);
    assert!(raised().action.contains("pruner_enabled"));
    coppice.upgrade();
    coppice.pass(600);
    let since = raised().since_ns;
    coppice.pass(600);
    assert_eq!(raised().since_ns, since);
    switch(true);
    cleared(coppice, ProblemCode::UtxoPrunerOff);
    world.finish(job.id);
    // A running job also counts, and may be cancelled.
    world.slow();
    let txs = crate::pruner::world::orphans(0..4);
    world.make_spent(10, &txs);
    let job = World::scheduled(world.persisted(21));
    world.ticks(1);
    switch(false);
    (0..8).for_each(|_| coppice.pass(600));
    let problem = found(coppice, ProblemCode::UtxoPrunerOff).unwrap();
    assert!(problem.message.contains(&format!("job {} for height 21 of", job.id)), "{problem:?}");
    // A job of a pruner that is switched off may also wait for the block assembly.
    world.assembly(NotRunning);
    (0..8).for_each(|_| coppice.pass(600));
    let codes = |health: Health| health.problems.into_iter().map(|problem| problem.code).collect::<Vec<_>>();
    assert_eq!(codes(health(coppice)), [ProblemCode::UtxoPrunerWaits, ProblemCode::UtxoPrunerOff]);
    coppice.operator().utxo_cancel_prune_job(job.id).answer().unwrap();
    assert_eq!(health(coppice).problems, []);
    // An operator who prunes manually has switched the pruner off on purpose.
    world.assembly(Running);
    coppice.operator().utxo_prune(21).answer().unwrap();
    world.assembly(NotRunning);
    (0..5).for_each(|_| coppice.pass(600));
    cleared(coppice, ProblemCode::UtxoPrunerOff);
    assert!(world.status().pending.is_some() || world.status().running.is_some());
}

#[test]
fn transaction_data_near_and_at_its_limit_is_reported() {
    let world = World::new();
    let coppice = &world.coppice;
    let limit = |bytes: u64| {
        let change = UtxoSettingsChange { max_external_bytes: Some(bytes), ..Default::default() };
        configure_utxo(coppice, change).unwrap();
    };
    world.configure(UtxoSettingsChange { externalize_all: Some(true), ..Default::default() });
    // The limit is not reported while the BlobStore holds no data of transactions.
    for bytes in [0, 1, BLOB, u64::MAX] {
        limit(bytes);
        assert_eq!(health(coppice).problems, [], "{bytes}");
    }
    // With a small limit half must be left: 20 blobs leave half, 21 leave less, 40 leave nothing.
    limit(40 * BLOB);
    let txs: Vec<Tx> = (0..40).map(|salt| Tx::orphan(salt, 1)).collect();
    let near = || found(coppice, ProblemCode::ExternalNearFull).is_some();
    let full = || found(coppice, ProblemCode::ExternalFull).is_some();
    world.make_spent(10, &txs[..20]);
    assert!(!near() && !full());
    world.make_spent(10, &txs[20..21]);
    assert!(near());
    world.make_spent(10, &txs[21..39]);
    raised(coppice, ProblemCode::ExternalNearFull, Severity::Warning, "2555904 of max_external_bytes = 2621440 bytes");
    assert!(!full());
    world.make_spent(10, &txs[39..]);
    assert!(!near());
    let problem = raised(coppice, ProblemCode::ExternalFull, Severity::Critical, "further transactions are refused");
    assert!(problem.action.contains("max_external_bytes"));
    assert!(page(coppice).contains("ExternalFull"));
    let refused = create(coppice, 10, vec![Tx::orphan(99, 1).record()]).results;
    assert_eq!(refused, [Err(UtxoCreateError::ExternalFull { limit: 40 * BLOB })]);
    coppice.upgrade();
    assert!(full());
    // The limits at which each problem begins and ends.
    for (bytes, is_near, is_full) in [
        (0, false, false),
        (1, false, true),
        (40 * BLOB - 1, false, true),
        (41 * BLOB - 1, false, true),
        (41 * BLOB, true, false),
        (80 * BLOB - 2, true, false),
        (80 * BLOB, false, false),
        (u64::MAX, false, false),
    ] {
        limit(bytes);
        assert_eq!((near(), full()), (is_near, is_full), "{bytes}");
    }
    limit(41 * BLOB);
    all_ok(create(coppice, 10, vec![Tx::orphan(99, 1).record()]));
    assert!(full());
    // Pruned records free their blobs.
    world.prune(20);
    assert_eq!(world.count(&txs), 0);
    assert!(!near() && !full());
    assert_eq!(health(coppice).problems, []);
}

/// Records due at 20 are not deleted, because the block assembly, then the persister, then a setting bounds deletions.
#[test]
fn records_due_for_144_blocks_are_reported_after_an_hour() {
    let world = World::new();
    let coppice = &world.coppice;
    let txs = crate::pruner::world::orphans(0..3);
    world.make_spent(10, &txs);
    let gauges = |what: &str| -> Vec<String> {
        let name = format!("coppice_utxo_due_{what}");
        let lines: Vec<String> =
            page_at(coppice, "/metrics").lines().filter(|line| line.starts_with(&name)).map(Into::into).collect();
        lines.iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let by_age = |counts: [u32; 3]| -> Vec<String> {
        let line = |(age, count): (&str, u32)| format!("coppice_utxo_due_records{{blocks=\"{age}\"}} {count}");
        ["0", "6", "144"].into_iter().zip(counts).map(line).collect()
    };
    let hour = || (0..7).for_each(|_| coppice.pass(600));
    world.assembly_at(19);
    world.prune(19);
    assert_eq!(gauges("oldest"), ["coppice_utxo_due_oldest_blocks 0"]);
    assert_eq!(gauges("records"), by_age([0; 3]));
    for (height, counts) in [(20, [3, 0, 0]), (25, [3, 0, 0]), (26, [0, 3, 0]), (163, [0, 3, 0])] {
        world.prune(height);
        assert_eq!(gauges("records"), by_age(counts), "at {height}");
    }
    hour();
    assert_eq!(health(coppice).problems, []);
    world.prune(164);
    assert_eq!(gauges("oldest"), ["coppice_utxo_due_oldest_blocks 144"]);
    assert_eq!(gauges("records"), by_age([0, 0, 3]));
    coppice.pass(600);
    assert_eq!(health(coppice).problems, [], "not for an hour yet");
    hour();
    let says = "due at height 20 exist at height 164, 144 blocks later: the block assembly is at height 19";
    raised(coppice, ProblemCode::RecordsOverdue, Severity::Warning, says);
    // The assembly is up to date again, and a setting keeps the records.
    let disable = |disable: bool| {
        world.set(UtxoPrunerSettingsChange { disable_dah_cleaner: Some(disable), ..Default::default() });
    };
    disable(true);
    world.assembly_at(164);
    raised(coppice, ProblemCode::RecordsOverdue, Severity::Warning, "disable_dah_cleaner is on");
    let enable = |enabled: bool| {
        world.set(UtxoPrunerSettingsChange { pruner_enabled: Some(enabled), ..Default::default() });
    };
    enable(false);
    disable(false);
    raised(coppice, ProblemCode::RecordsOverdue, Severity::Warning, "pruner_enabled is off");
    world.assembly(NotRunning);
    enable(true);
    let says = "the block assembly was not reported as running";
    raised(coppice, ProblemCode::RecordsOverdue, Severity::Warning, says);
    let stop = |stopped: bool| coppice.operator().set_deletions_stopped(stopped).answer();
    stop(true).unwrap();
    cleared(coppice, ProblemCode::RecordsOverdue);
    stop(false).unwrap();
    raised(coppice, ProblemCode::RecordsOverdue, Severity::Warning, says);
    world.assembly_at(164);
    world.finish(world.status().pending.unwrap().id);
    assert_eq!(world.count(&txs), 0);
    cleared(coppice, ProblemCode::RecordsOverdue);
    assert_eq!(gauges("records"), by_age([0; 3]));
}

#[test]
fn records_above_the_persisted_height_are_reported_with_that_height() {
    let world = World::new();
    let coppice = &world.coppice;
    world.make_spent(10, &crate::pruner::world::orphans(0..1));
    world.prune(19);
    world.block(140, true);
    (0..8).for_each(|_| coppice.pass(600));
    world.block(164, true);
    (0..8).for_each(|_| coppice.pass(600));
    let says = "due at height 20 exist at height 164, 144 blocks later: blocks are persisted up to height 19";
    raised(coppice, ProblemCode::RecordsOverdue, Severity::Warning, says);
}

//! Young children: unmined transactions that are not old when a transaction that they spend from is due, because their record came long after
//! their spends, their parent was mined by a call that lags, or `unmined_tx_retention` was raised. No record is deleted while a live unmined
//! transaction spends from it.

use super::world::*;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;

/// A parent that is mined at a height, and its child, which has no record.
fn family(world: &World, salt: u64, height: u32) -> (Tx, Tx) {
    let parent = Tx::orphan(salt, 1);
    let child = Tx::of(salt + 1_000_000, &[(parent.txid, 0)], 1);
    world.create(height, &[&parent]);
    world.mine(height, &[&parent]);
    (parent, child)
}

fn preserved(world: &World, families: &[(Tx, Tx)]) -> Vec<bool> {
    families.iter().map(|(parent, _)| world.heights(parent).1.is_some()).collect()
}

#[test]
fn parent_is_kept_under_a_child_whose_record_came_at_any_height_after_its_spend() {
    for upgraded in [false, true] {
        let world = World::new();
        let due = 100 + RETENTION;
        let families: Vec<(Tx, Tx)> = (1..=u64::from(RETENTION)).map(|salt| family(&world, salt, 100)).collect();
        families.iter().for_each(|(parent, child)| world.spend(100, child, &[parent]));
        for (height, (_, child)) in (101..).zip(&families) {
            world.create(height, &[child]);
            if upgraded {
                world.coppice.upgrade();
            }
            // The last run is at the height at which the parents are due.
            world.prune(height);
            assert!(families.iter().all(|(parent, _)| world.record(parent).is_some()), "at {height}");
        }
        assert_eq!(world.last().safe_height, Some(due));
        // Children that were created at 106 and later would be old at 112 and later; those before are old by now, except that of 105.
        assert_eq!(preserved(&world, &families), vec![true; families.len()]);
        assert_eq!(world.count(&families.iter().map(|(parent, _)| parent.clone()).collect::<Vec<_>>()), families.len());
    }
}

#[test]
fn only_parents_that_are_due_before_a_child_is_old_are_preserved_before() {
    let world = World::new();
    let mut families: Vec<(Tx, Tx)> = (1..=2).map(|salt| family(&world, salt, 100)).collect();
    // The first parent is due at 110. The child of the other one is old at 110: it is created at 104, and 104 < 110 - 5.
    families.iter().for_each(|(parent, child)| world.spend(100, child, &[parent]));
    world.create(105, &[&families[0].1]);
    world.create(104, &[&families[1].1]);
    families.push(family(&world, 3, 105));
    world.spend(105, &families[2].1, &[&families[2].0]);
    world.create(105, &[&families[2].1]);
    world.prune(106);
    assert_eq!(preserved(&world, &families), [true, false, false]);
    world.prune(110);
    assert_eq!(preserved(&world, &families), [true, true, false]);
    world.prune(111);
    assert_eq!(preserved(&world, &families), [true, true, true]);
}

#[test]
fn parent_is_kept_that_a_lagging_call_mined_after_its_child_came() {
    let world = World::new();
    world.prune(116);
    let parent = Tx::orphan(1, 1);
    let child = Tx::of(2, &[(parent.txid, 0)], 1);
    world.create(116, &[&parent, &child]);
    world.spend(116, &child, &[&parent]);
    world.mine(110, &[&parent]);
    assert_eq!(world.heights(&parent), (Some(120), None));
    assert_eq!(world.prune(120).counts.records_deleted, 0);
    assert_eq!(world.heights(&parent), (None, Some(120 + PRESERVATION)), "the child is old only at 122");
}

#[test]
fn parent_is_kept_although_the_retention_of_unmined_transactions_was_raised() {
    let world = World::new();
    let before = family(&world, 1, 100);
    let after = family(&world, 2, 100);
    world.spend(100, &before.1, &[&before.0]);
    world.spend(100, &after.1, &[&after.0]);
    world.create(100, &[&before.1]);
    world.prune(101);
    world.retention(60);
    world.create(102, &[&after.1]);
    let job = world.prune(110);
    assert_eq!((world.status().unmined_cutoff_height, job.counts.records_deleted), (80, 0));
    assert_eq!(world.heights(&before.0), (None, Some(110 + PRESERVATION)));
    assert_eq!(world.heights(&after.0), (None, Some(110 + PRESERVATION)));
}

#[test]
fn child_with_many_parents_keeps_each_of_them_in_small_steps() {
    let world = World::new();
    let parents: Vec<Tx> = (1..=300).map(|salt| Tx::orphan(salt, 1)).collect();
    let all: Vec<&Tx> = parents.iter().collect();
    let inputs: Vec<([u8; 32], u32)> = parents.iter().map(|parent| (parent.txid, 0)).collect();
    let child = Tx::of(1_000, &inputs, 1);
    world.create(100, &all);
    world.mine(100, &all);
    world.spend(100, &child, &all);
    world.create(109, &[&child]);
    world.slow();
    assert_eq!(world.prune(110).counts.records_deleted, 0);
    assert!(parents.iter().all(|parent| world.heights(parent) == (None, Some(110 + PRESERVATION))));
    // The child is mined and spent: nothing holds the parents when their preservation ends.
    world.mine(111, &[&child]);
    world.spend_by_stranger(111, &child, 0..1);
    world.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1_000_000_000), ..Default::default() });
    world.prune(110 + PRESERVATION);
    world.prune(110 + PRESERVATION + RETENTION);
    assert_eq!(world.count(&parents), 0);
}

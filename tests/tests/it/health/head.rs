//! A head whose header is damaged, and the remedy that `health` names.

use super::*;
use coppice_tests::blocks::plain_id;

/// Overwrites the magic of a block's header.
fn damage_header(coppice: &Coppice, host: &ic_coppice_host::Host, number: u64) {
    // The number lies at 8, the hash at 64.
    let is_header = |head: &[u8]| head[..2] == [0x0C, 0xB1] && head[8..16] == number.to_le_bytes();
    crate::refusals::damage(coppice, host, &hash(number), is_header, 64, &[0xEE; 4]);
}

#[test]
fn an_unreadable_head_is_rolled_back_and_appended_again() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..6, 1_000);
    cleared(&coppice, ProblemCode::HeadUnreadable);
    damage_header(&coppice, &host, 5);
    let problem = raised(&coppice, ProblemCode::HeadUnreadable, Severity::Critical, "is damaged");
    assert!(problem.action.contains("rollback_to"), "{problem:?}");
    // `health` notices the damage every half hour; the problem stays raised in between, and over an upgrade.
    coppice.pass(1_800);
    let since = || raised(&coppice, ProblemCode::HeadUnreadable, Severity::Critical, "").since_ns;
    let noticed = since();
    coppice.pass(600);
    coppice.upgrade();
    coppice.pass(600);
    assert_eq!(since(), noticed);
    let rolled_back = coppice.producer().rollback_to(4u64, None).answer().unwrap();
    assert_eq!((rolled_back.head, rolled_back.has_more), (4, false));
    cleared(&coppice, ProblemCode::HeadUnreadable);
    coppice.append_plain(5..6, 1_000);
    cleared(&coppice, ProblemCode::HeadUnreadable);
    // The block is whole again, and is pruned like any other block. The damage is reported until it is acknowledged.
    let check = |number: u64| {
        assert_eq!(coppice.block(number).unwrap().body, plain(number, 3, 1_000).body);
        (0..3).for_each(|nth| assert_eq!(coppice.location(plain_id(number, u64::from(nth))), Ok((number, nth))));
    };
    (0..6).for_each(check);
    raised(&coppice, ProblemCode::Damaged, Severity::Critical, "");
    let faults = coppice.prune_status().faults;
    coppice.operator().acknowledge_faults(faults).answer();
    assert!(health(&coppice).healthy);
    coppice.append_plain(6..12, 1_000);
    coppice.set_policy(policy(PrunePolicyArg { retain_blocks: Some(2), ..Default::default() })).unwrap();
    coppice.settle(60);
    assert_eq!((coppice.prune_status().oldest_kept_block, coppice.head()), (Some(9), Some(11)));
    (9..12).for_each(check);
    assert_eq!(coppice.location(plain_id(5, 0)), Err(ReadError::NotFound));
    assert!(health(&coppice).healthy, "{:?}", health(&coppice));
}

/// No block lies below the damaged one, so the chain continues above it.
#[test]
fn after_an_unreadable_only_block_the_next_one_is_appended() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..1, 1_000);
    damage_header(&coppice, &host, 0);
    let problem = raised(&coppice, ProblemCode::HeadUnreadable, Severity::Critical, "is damaged");
    assert!(problem.action.contains("append the next one"), "{problem:?}");
    coppice.append_plain(1..3, 1_000);
    cleared(&coppice, ProblemCode::HeadUnreadable);
    assert_eq!(coppice.block(2).unwrap().body, plain(2, 3, 1_000).body);
}

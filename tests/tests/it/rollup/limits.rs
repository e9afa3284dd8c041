//! The rollup over many blocks, at the cap of its memory, and with traps in the timer that makes blocks.

use super::*;
use ic_coppice_interface::SAFETY_SECS;

/// Keeps as many blocks, and prunes the others.
fn retain(rollup: &Rollup, blocks: u64) {
    let policy = PrunePolicyArg { retain_days: Some(0), retain_blocks: Some(blocks), ..PrunePolicyArg::default() };
    rollup.0.by(Who::Operator).set_prune_policy(&policy).answer().unwrap();
}

#[test]
fn two_thousand_blocks_with_retention_take_the_memory_of_the_first_few_hundred() {
    const BLOCKS: u64 = 2_000;
    const KEPT: u64 = 50;
    let rollup = Rollup::new();
    retain(&rollup, KEPT);
    let mut plateau = 0;
    for number in 1..=BLOCKS {
        rollup.pay_each(1);
        rollup.0.pass(6);
        if number == BLOCKS / 4 {
            plateau = rollup.storage().billed_bytes;
        }
        if number == BLOCKS / 2 {
            rollup.upgrade();
        }
    }
    (0..3).for_each(|_| rollup.0.pass(60));
    assert_eq!((rollup.0.head(), rollup.waiting()), (Some(BLOCKS), 0));
    assert_eq!(rollup.balances(), [1_000_000 - BLOCKS, BLOCKS]);
    assert_eq!(rollup.storage().billed_bytes, plateau);
    let status = rollup.0.prune_status();
    assert!(status.pruned_before_block > BLOCKS - 2 * KEPT, "{status:?}");
    let kept = BLOCKS + 1 - status.pruned_before_block;
    assert_eq!(rollup.0.find_all(key(Who::Rival).as_bytes(), 1_000).len() as u64, kept);
    assert!(rollup.0.health().healthy, "{:?}", rollup.0.health().problems);
}

/// New accounts take memory until it ends. Nothing is lost or half done, and all goes on when memory grows again.
#[test]
fn full_memory_stops_the_rollup_and_loses_no_payment() {
    let (ic, host) = coppice_ic::embedded();
    let rollup = Rollup::on(ic);
    let billed = rollup.storage().billed_bytes >> 16;
    (1..=10_000).for_each(|growth| host.faults().refuse_growth(growth));
    let mut paid = 0;
    let stopped = (0..20_000u64).find_map(|number| {
        let mut bytes = [1; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let to = Account { subaccount: Some(ByteBuf::from(bytes)), ..account(Who::Rival) };
        let transfer = Transfer { to, ..transfer(1) };
        let answer: Result<Result<u64, PayError>, Reject> = rollup.update(Who::Stranger, "pay", (transfer,));
        match answer {
            Ok(Ok(_)) => {
                paid += 1;
                None
            }
            Ok(Err(PayError::Busy(why))) => Some(why),
            Ok(other) => panic!("{other:?}"),
            // The ledger's map traps, because its memory cannot grow.
            Err(trapped) => Some(trapped.message),
        }
    });
    let stopped = stopped.expect("the memory ends");
    assert!(paid > 100, "{paid}: {stopped}");
    let state = || (rollup.0.head(), rollup.waiting(), rollup.balance(Who::Stranger).amount);
    let before = state();
    assert_eq!(before.2, 1_000_000 - paid);
    assert_eq!(before.0.unwrap_or_default() * PER_BLOCK + before.1, paid, "each payment is in a block, or waits");
    rollup.upgrade();
    assert_eq!((state(), rollup.storage().billed_bytes >> 16), (before, billed));
    host.faults().clear();
    (0..20).for_each(|_| rollup.0.pass(6));
    assert_eq!((rollup.waiting(), rollup.pay(1)), (0, Ok(paid)));
    assert_eq!(rollup.balances(), [1_000_000 - paid - 1, 1]);
}

/// A trap anywhere in any message of the timers, the one that makes the block among them: the payment is in a block, or waits for the next.
#[test]
fn trap_in_a_message_of_the_timers_leaves_the_payment_waiting_or_in_its_block() {
    let (ic, host) = coppice_ic::embedded();
    let rollup = Rollup::on(ic);
    rollup.pay_each(1);
    let checkpoint = host.checkpoint();
    host.take_executions();
    rollup.0.pass(6);
    let messages = host.take_executions();
    let made = |rollup: &Rollup| (rollup.0.head(), rollup.waiting());
    assert_eq!(made(&rollup), (Some(1), 0));
    let mut undone = 0;
    for (nth, message) in (1..).zip(&messages) {
        let third = |of: u64, times: u64| (of * times / 3).max(1);
        let points = [
            TrapPoint::SystemCall(1),
            TrapPoint::SystemCall(third(message.system_calls, 2)),
            TrapPoint::Instructions(third(message.instructions, 1)),
            TrapPoint::Instructions(third(message.instructions, 2)),
            TrapPoint::End,
        ];
        for point in points {
            host.restore(&checkpoint);
            host.faults().clear();
            host.faults().trap_message(nth, point);
            rollup.0.pass(6);
            host.faults().clear();
            let (head, waiting) = made(&rollup);
            assert!(
                [(None, 1), (Some(1), 0)].contains(&(head, waiting)),
                "message {nth}, {point:?}: {head:?}, {waiting}"
            );
            undone += waiting;
            assert_eq!(rollup.balances(), [999_999, 1]);
            // If the message that fires the timers trapped, the platform's timer is lost until a block finds the safety timer overdue.
            rollup.0.pass(2 * SAFETY_SECS + 1);
            let (head, waiting) = made(&rollup);
            rollup.pay_each(PER_BLOCK - waiting);
            let next = head.unwrap_or_default() + 1;
            assert_eq!(made(&rollup), (Some(next), 0), "message {nth}, {point:?}");
            rollup.pay_each(1);
            rollup.0.pass(6);
            assert_eq!(made(&rollup), (Some(next + 1), 0), "message {nth}, {point:?}: an interval makes the block");
        }
    }
    assert!(undone >= 4, "{undone} of {} messages with five points", messages.len());
}

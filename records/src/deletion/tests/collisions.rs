//! Names that share a chain, as an attacker with the hash key could choose them: each message ends within its bound.

use super::*;

/// Rows of the chain.
const MANY: u64 = 500;
/// Instructions of an access to stable memory, so that walking the chain costs 400 million: 4,000 a row, as 100,000 rows would on the
/// platform.
const OF_ACCESS: u64 = 400_000_000 / (2 * MANY);
/// Bound of a message: what a call may use before its own work and for it, and what its last row takes: three walks of its chain.
const BOUND: u64 = MOST_INSTRUCTIONS + 2 * SHARE_INSTRUCTIONS + 3 * 400_000_000;

/// Removes rows until the message has used its instructions.
struct Metered;

impl Completion for Metered {
    fn has_budget(&mut self) -> bool {
        Ic::instructions() < MOST_INSTRUCTIONS
    }

    fn record_end(&mut self, _: &[u8; 32]) -> RecordEnd {
        RecordEnd::Gone
    }
}

/// Runs a message, and asserts that it stays within its bound. Returns its instructions.
fn message<T>(queue: &mut DeletionQueue, run: impl FnOnce(&mut DeletionQueue) -> T) -> (T, u64) {
    twin::with(|world| (world.instructions, world.instructions_per_access) = (0, OF_ACCESS));
    let answer = run(queue);
    let used = twin::with(|world| std::mem::take(&mut world.instructions_per_access).min(1) * world.instructions);
    assert!(used <= BOUND, "{used} instructions");
    (answer, used)
}

#[test]
fn rows_that_share_a_chain_come_are_found_leased_and_completed_within_each_message() {
    twin::reset();
    crate::faults::set_one_chain(true);
    let mut queue = open();
    fill(&mut queue, MANY);
    let key = |i: u64| i.to_le_bytes();
    let last = name(&key(MANY - 1)).key.to_vec();
    let (_, scheduled) = message(&mut queue, |queue| queue.schedule(&name(b"new"), 9, NOW).unwrap());
    assert!(scheduled > 400_000_000, "the walk costs {scheduled}");
    message(&mut queue, |queue| queue.schedule(&name(&last), 9, NOW).unwrap());
    let (cancelled, _) = message(&mut queue, |queue| queue.cancel(&name(&last), NOW).unwrap());
    assert!(cancelled.is_some());
    let (lease, _) = message(&mut queue, |queue| acquire(queue, 1, 400, NOW));
    assert_eq!(lease.rows.len(), 400);
    // In the worst order: each row is the last of the chain.
    let mut left: Vec<u64> = ids(&lease.rows);
    left.reverse();
    let (mut messages, mut removed) = (0, 0);
    loop {
        let report = batch(&lease.token, &left, &[], 9);
        let run = |queue: &mut DeletionQueue| queue.complete_batch(worker(1), &report, (NOW, 0), &mut Metered);
        let (done, _) = message(&mut queue, run);
        let done = done.unwrap();
        messages += 1;
        assert!(done.removed > removed, "each message removes a row");
        removed = done.removed;
        if done.remaining == 0 {
            break;
        }
    }
    assert!(removed == 400 && messages > 20, "{removed} rows in {messages} messages");
    assert_eq!(queue.rows().0, MANY - 400);
    // An upgrade and an expired lease read no chain.
    acquire(&mut queue, 1, 50, NOW);
    let mut queue = open();
    message(&mut queue, |queue| queue.tick(NOW + 100_000 * NS));
    assert_eq!(queue.pending_count(), MANY - 400);
}

#[test]
fn dead_letters_that_share_a_chain_are_dropped_within_each_message() {
    const DEAD: u64 = 60;
    twin::reset();
    crate::faults::set_one_chain(true);
    let mut queue = open();
    fill(&mut queue, MANY);
    // The rows at the end of the chain.
    (MANY - DEAD + 1..=MANY).for_each(|id| assert!(queue.increment(id, 1, NOW).unwrap().should_remove));
    queue.limits = Limits { dead: 0, ..Limits::default() };
    let mut messages = 0;
    while queue.dead_count() > 0 {
        message(&mut queue, |queue| queue.tick(NOW));
        messages += 1;
    }
    assert!(messages > 5, "{messages} messages");
    assert_eq!(queue.rows().0, MANY - DEAD);
}

use super::*;
use crate::api::StoreType;
use crate::runtime::native;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What the queue is compared with: rows by number.
#[derive(Default)]
struct Model {
    rows: BTreeMap<u64, (u8, u32, u32, u8, bool)>,
    next: u64,
}

fn key(of: u8) -> Vec<u8> {
    vec![of; 1 + usize::from(of) % 5]
}

fn name(key: &[u8], of: u8) -> BlobName<'_> {
    let store_type = StoreType::ALL[usize::from(of % 6)];
    BlobName { key, file_type: if of.is_multiple_of(2) { "tx" } else { "outputs" }, store_type }
}

/// Every record ends like this, and the message has room for so many rows.
struct Ends<'a> {
    end: RecordEnd,
    asked: &'a mut usize,
    room: u64,
}

impl Completion for Ends<'_> {
    fn goes_on(&mut self, rows: u64) -> bool {
        rows < self.room
    }

    fn record_end(&mut self, _: &[u8; 32]) -> RecordEnd {
        *self.asked += 1;
        self.end
    }
}

fn open() -> DeletionQueue {
    memory::forget();
    // A seed is drawn anew at each upgrade; the queue keeps its own.
    DeletionQueue::open(native::with(|world| {
        world.time_ns += 1;
        world.time_ns
    }))
    .unwrap()
}

#[derive(Clone, Debug)]
enum Op {
    Schedule { blob: u8, height: u32, txid: u8 },
    Complete { completed: Vec<u8>, failed: Vec<u8>, max_retries: u32, kept: bool },
    Revive(u8),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let ids = || prop::collection::vec(0u8..14, 0..4);
    prop_oneof![
        5 => (0u8..12, 1u32..9, 0u8..3).prop_map(|(blob, height, txid)| Op::Schedule { blob, height, txid }),
        4 => (ids(), ids(), 0u32..4, prop::bool::weighted(0.2))
            .prop_map(|(completed, failed, max_retries, kept)| Op::Complete { completed, failed, max_retries, kept }),
        2 => (0u8..14).prop_map(Op::Revive),
        1 => Just(Op::Reopen),
    ]
}

impl Model {
    fn schedule(&mut self, blob: u8, height: u32, txid: u8) -> Scheduled {
        if let Some((&id, row)) = self.rows.iter_mut().find(|(_, row)| row.0 == blob) {
            if row.3 != txid {
                return Scheduled::Another(id);
            }
            *row = (blob, height, 0, txid, false);
            return Scheduled::Waits(id);
        }
        self.next += 1;
        self.rows.insert(self.next, (blob, height, 0, txid, false));
        Scheduled::Waits(self.next)
    }

    fn complete(&mut self, completed: &[u8], failed: &[u8], max: u32, kept: bool) -> CompletedBlobDeletions {
        let mut done = CompletedBlobDeletions::default();
        let completed: BTreeSet<u64> = completed.iter().map(|id| u64::from(*id)).collect();
        for id in &completed {
            match self.rows.get_mut(id) {
                None => continue,
                Some(_) if !kept => drop(self.rows.remove(id)),
                Some(row) if row.4 => continue,
                Some(row) => {
                    row.4 = true;
                    done.dead += 1;
                }
            }
            done.removed += 1;
        }
        let failed: BTreeSet<u64> = failed.iter().map(|id| u64::from(*id)).collect();
        for id in failed.difference(&completed) {
            let Some(row) = self.rows.get_mut(id).filter(|row| !row.4) else { continue };
            row.2 += 1;
            if row.2 >= max.max(1) {
                row.4 = true;
                done.removed += 1;
                done.dead += 1;
            } else {
                done.retries_incremented += 1;
            }
        }
        done
    }

    fn pending(&self, height: u32) -> Vec<(u32, u64)> {
        let waits = |(id, row): (&u64, &(u8, u32, u32, u8, bool))| (!row.4 && row.1 <= height).then_some((row.1, *id));
        let mut rows: Vec<_> = self.rows.iter().filter_map(waits).collect();
        rows.sort_unstable();
        rows
    }
}

proptest! {
    #![proptest_config(crate::testing::histories(150))]

    /// Every answer and every row as a map has it, however often the queue is opened again.
    #[test]
    fn agrees_with_a_model(ops in prop::collection::vec(op(), 1..60)) {
        native::reset();
        let (mut queue, mut model) = (open(), Model::default());
        for op in ops {
            match op {
                Op::Schedule { blob, height, txid } => {
                    let key = key(blob);
                    let scheduled = queue.schedule(&name(&key, blob), height, &[txid; 32]).unwrap();
                    prop_assert_eq!(scheduled, model.schedule(blob, height, txid));
                }
                Op::Complete { completed, failed, max_retries, kept } => {
                    let ids = |ids: &[u8]| ids.iter().map(|id| u64::from(*id)).collect();
                    let (completed_ids, failed_ids) = (ids(&completed), ids(&failed));
                    let arg = CompleteBlobDeletions { completed_ids, failed_ids, max_retries };
                    let end = if kept { RecordEnd::Kept } else { RecordEnd::Gone };
                    let mut asked = 0;
                    let done = queue.complete(&arg, 5, &mut Ends { end, asked: &mut asked, room: u64::MAX });
                    let there = model.rows.keys().filter(|id| arg.completed_ids.contains(id)).count();
                    prop_assert_eq!(asked, there, "each record once");
                    prop_assert_eq!(done, model.complete(&completed, &failed, max_retries, kept));
                }
                Op::Revive(id) => {
                    let row = model.rows.get_mut(&u64::from(id)).filter(|row| row.4);
                    let revived = queue.revive(u64::from(id)).unwrap();
                    prop_assert_eq!(revived.map(|row| row.retry_count), row.as_ref().map(|_| 0));
                    if let Some(row) = row {
                        (row.2, row.4) = (0, false);
                    }
                }
                Op::Reopen => queue = open(),
            }
            for height in [0, 4, u32::MAX] {
                let mut pending: Vec<_> =
                    queue.pending(height, 1_000).iter().map(|row| (row.delete_at_height, row.id)).collect();
                prop_assert!(pending.is_sorted_by_key(|(height, _)| *height));
                pending.sort_unstable();
                prop_assert_eq!(pending, model.pending(height));
            }
            let mut dead = queue.dead(None, 1);
            let mut rows = dead.rows;
            while dead.cursor.is_some() {
                dead = queue.dead(dead.cursor, 1);
                rows.extend(dead.rows);
            }
            for (row, (id, expected)) in rows.iter().zip(model.rows.iter().filter(|(_, row)| row.4)) {
                let key = key(expected.0);
                let name = name(&key, expected.0);
                prop_assert_eq!((row.id, row.retry_count, row.delete_at_height), (*id, expected.2, expected.1));
                let shown = (row.blob_key.as_slice(), row.file_type.as_str(), row.store_type);
                prop_assert_eq!(shown, (name.key, name.file_type, name.store_type));
                prop_assert_eq!(row.txid.as_deref().map(|txid| txid[0]), Some(expected.3));
            }
            let dead = model.rows.values().filter(|row| row.4).count() as u64;
            prop_assert_eq!((rows.len() as u64, queue.dead_count()), (dead, dead));
            prop_assert_eq!(queue.pending_count(), model.rows.len() as u64 - dead);
        }
    }
}

#[test]
fn who_keeps_nothing_outside_pays_for_nothing() {
    native::reset();
    let mut queue = open();
    assert_eq!((queue.pending(u32::MAX, 0).len(), queue.revive(1)), (0, Ok(None)));
    assert!(memory::region(memory::DELETIONS).is_empty());
    let done = queue.complete(
        &CompleteBlobDeletions { completed_ids: vec![1], failed_ids: vec![2], max_retries: 1 },
        0,
        &mut Ends { end: RecordEnd::Gone, asked: &mut 0, room: u64::MAX },
    );
    assert_eq!(done, CompletedBlobDeletions::default());
}

#[test]
fn what_a_message_has_no_room_for_is_left_and_sent_again() {
    native::reset();
    let mut queue = open();
    for of in 0..6u8 {
        queue.schedule(&name(&key(of), of), 1, &[of; 32]).unwrap();
    }
    let complete = |queue: &mut DeletionQueue, completed: &[u64], failed: &[u64], room| {
        let arg = CompleteBlobDeletions { completed_ids: completed.into(), failed_ids: failed.into(), max_retries: 9 };
        let done = queue.complete(&arg, 7, &mut Ends { end: RecordEnd::Gone, asked: &mut 0, room });
        (done.removed, done.retries_incremented, done.remaining)
    };
    assert_eq!(complete(&mut queue, &[], &[], 0), (0, 0, 0));
    assert_eq!(complete(&mut queue, &[3, 3, 1], &[2, 4, 5], 0), (1, 0, 5), "one always fits");
    assert_eq!(complete(&mut queue, &[3, 1], &[2, 4, 5], 3), (1, 1, 2), "unknown ones are looked at, too");
    assert_eq!(complete(&mut queue, &[], &[4, 4, 5], 9), (0, 2, 0), "a number counts once");
    let retries = queue.pending(1, 0).iter().map(|row| (row.id, row.retry_count)).collect::<Vec<_>>();
    assert_eq!(retries, [(2, 1), (4, 1), (5, 1), (6, 0)]);
}

#[test]
fn a_row_of_another_version_is_none() {
    native::reset();
    let mut queue = open();
    queue.schedule(&name(&key(1), 1), 1, &[1; 32]).unwrap();
    let region = memory::region(memory::DELETIONS);
    let row = [&[3, 1, 2, 0][..], &1u64.to_le_bytes()].concat();
    let is_row = |at: &u64| region.read::<12>(*at)[..] == row[..];
    let at =
        (0..region.size()).step_by(8).find(is_row).expect("it begins with its kind, version and flags, and its number");
    let complete = |queue: &mut DeletionQueue| {
        let arg = CompleteBlobDeletions { completed_ids: vec![1], failed_ids: vec![], max_retries: 1 };
        queue.complete(&arg, 0, &mut Ends { end: RecordEnd::Gone, asked: &mut 0, room: u64::MAX }).removed
    };
    for (byte, wrong) in [(0, 4), (1, 0), (1, 2)] {
        let right: [u8; 1] = region.read(at + byte);
        region.write(at + byte, &[wrong]);
        assert_eq!((queue.pending(1, 0).len(), complete(&mut queue)), (0, 0), "byte {byte}");
        region.write(at + byte, &right);
    }
    assert_eq!((queue.pending(1, 0).len(), complete(&mut queue)), (1, 1));
}

#[test]
fn rows_that_go_leave_their_memory_to_those_that_come() {
    native::reset();
    let mut queue = open();
    let fill = |queue: &mut DeletionQueue, first: u64| {
        for i in first..first + 3_000 {
            let key = i.to_le_bytes();
            queue.schedule(&name(&key, 0), 1 + (i % 7) as u32, &[1; 32]).unwrap();
        }
    };
    let clear = |queue: &mut DeletionQueue| {
        let ids = queue.pending(9, 1_000).iter().map(|row| row.id).collect::<Vec<_>>();
        let arg = CompleteBlobDeletions { completed_ids: ids, failed_ids: vec![], max_retries: 1 };
        queue.complete(&arg, 0, &mut Ends { end: RecordEnd::Gone, asked: &mut 0, room: u64::MAX })
    };
    let mut sizes = Vec::new();
    for round in 0..4 {
        fill(&mut queue, round * 3_000);
        sizes.push(memory::region(memory::DELETIONS).size());
        while queue.pending_count() > 0 {
            clear(&mut queue);
        }
    }
    assert_eq!(sizes[1], sizes[3], "{sizes:?}");
}

//! Random histories against the model: all replies, rows, orders and counts are compared after each message. Any message may trap, and an
//! upgrade may come between any two messages.

use super::super::header::Counter;
use super::*;
use coppice_model::deletion::{self as model, At, Lease, Model, Said};
use ic_coppice_interface::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_bytes::ByteBuf;
use std::fmt::Debug;

const NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
enum Op {
    Schedule {
        blob: u8,
        height: u32,
    },
    Hold {
        blob: u8,
        txid: u8,
    },
    ScheduleRecord {
        blob: u8,
        height: u32,
        txid: u8,
    },
    Cancel(u8),
    Acquire {
        who: u8,
        arg: AcquireBlobDeletions,
        reached: u32,
    },
    /// Ends the leases of one worker, or of all.
    End(Option<u8>),
    Extend {
        who: u8,
        token: u8,
        secs: u64,
    },
    CompleteBatch {
        who: u8,
        token: u8,
        said: Said,
    },
    Complete(Said),
    Remove {
        id: u64,
        up_to: Option<u32>,
        kept: bool,
    },
    /// Reports while deletions are stopped.
    ReportBatch {
        who: u8,
        token: u8,
        said: Said,
    },
    Report(Said),
    ReportRow {
        id: u64,
        up_to: Option<u32>,
    },
    Increment {
        id: u64,
        max: u32,
    },
    Retry(RetryBlobDeletions),
    /// Rows up to this height are due.
    Due(Option<u32>),
    Tick,
    Upgrade,
}

/// Bounds from the settings.
const LIMITS: Limits = Limits { rows: u64::MAX, dead: 3, leases: 3, least_retries: 0 };

fn said() -> impl Strategy<Value = Said> {
    let ids = || prop::collection::vec(0u64..16, 0..6);
    let base = prop_oneof![Just(0u64), Just(1), Just(10), Just(3_600)];
    let room = prop_oneof![6 => Just(u64::MAX), 1 => 0u64..6];
    let unknown = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(0u64..16, 0..4)];
    let lists = (ids(), ids(), unknown, prop::bool::weighted(0.2), prop::option::weighted(0.2, 0u32..6));
    (lists, 0u32..5, base, prop::bool::weighted(0.15), room).prop_map(|(lists, max_retries, base_secs, kept, room)| {
        let (completed, failed, unknown, rest, up_to) = lists;
        Said { completed, failed, unknown, rest, up_to, max_retries, base_secs, kept, room }
    })
}

fn height() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..6, 1 => Just(u32::MAX)]
}

fn secs() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), Just(1), Just(20), Just(43_200)]
}

fn op() -> impl Strategy<Value = Op> {
    let store = (0u8..6).prop_map(|of| StoreType::ALL[usize::from(of)]);
    let stores = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(store, 1..4)];
    let request = prop_oneof![3 => Just(None), 2 => (0u8..3).prop_map(Some)];
    let limit = prop_oneof![Just(0u32), Just(1), 2u32..5, Just(1_000)];
    let selector = (0u8..6, prop::option::of(0u8..3)).prop_map(|(store, file_type)| BlobSelector {
        store_type: StoreType::ALL[usize::from(store)],
        file_type: file_type.map(|of| TYPES[usize::from(of)].to_string()),
    });
    let selectors = prop::collection::vec(selector, 0..5);
    let chosen = (prop::option::weighted(0.4, selectors), prop::option::weighted(0.3, 0u32..4), 0u32..8);
    let acquire = (0u8..2, height(), limit, secs(), stores, request, chosen).prop_map(
        |(who, height, limit, lock_timeout_secs, store_types, request, (selectors, safety_window, reached))| {
            let request = request.map(|of| ByteBuf::from([of]));
            let arg = AcquireBlobDeletions {
                height,
                limit,
                lock_timeout_secs,
                store_types,
                request,
                selectors,
                safety_window,
            };
            Op::Acquire { who, arg, reached }
        },
    );
    let retry = prop_oneof![
        prop::collection::vec(0u64..16, 0..4).prop_map(RetryBlobDeletions::Ids),
        (0usize..6).prop_map(|of| RetryBlobDeletions::StoreType(StoreType::ALL[of])),
    ];
    let up_to = prop::option::weighted(0.3, 0u32..6);
    prop_oneof![
        8 => (0u8..15, height()).prop_map(|(blob, height)| Op::Schedule { blob, height }),
        1 => (0u8..12, 0u8..2).prop_map(|(blob, txid)| Op::Hold { blob, txid }),
        2 => (0u8..12, height(), 0u8..2).prop_map(|(blob, height, txid)| Op::ScheduleRecord { blob, height, txid }),
        1 => (0u8..15).prop_map(Op::Cancel),
        5 => acquire,
        2 => (0u8..2, any::<u8>(), secs()).prop_map(|(who, token, secs)| Op::Extend { who, token, secs }),
        6 => (0u8..2, any::<u8>(), said()).prop_map(|(who, token, said)| Op::CompleteBatch { who, token, said }),
        2 => said().prop_map(Op::Complete),
        1 => (0u64..16, up_to.clone(), any::<bool>()).prop_map(|(id, up_to, kept)| Op::Remove { id, up_to, kept }),
        2 => (0u8..2, any::<u8>(), said()).prop_map(|(who, token, said)| Op::ReportBatch { who, token, said }),
        1 => said().prop_map(Op::Report),
        1 => (0u64..16, up_to).prop_map(|(id, up_to)| Op::ReportRow { id, up_to }),
        1 => prop::option::of(0u8..2).prop_map(Op::End),
        1 => (0u64..16, 0u32..4).prop_map(|(id, max)| Op::Increment { id, max }),
        2 => retry.prop_map(Op::Retry),
        2 => prop::option::of(height()).prop_map(Op::Due),
        1 => Just(Op::Tick),
        1 => Just(Op::Upgrade),
    ]
}

/// An operation; the seconds that pass before it (negative: the clock goes back); and the memory access at which its message first traps,
/// if any.
fn step() -> impl Strategy<Value = (Op, i64, Option<u64>)> {
    let passes = prop_oneof![
        6 => Just(0i64),
        3 => 1i64..30,
        1 => prop_oneof![Just(300i64), Just(2_000), Just(4_000), Just(43_200)],
        1 => -500i64..0
    ];
    (op(), passes, prop::option::weighted(0.2, 0u64..150))
}

fn who(which: u8) -> Principal {
    Principal::from_slice(&[which + 1; 29])
}

const TYPES: [&str; 3] = ["tx", "outputs", "subtree"];

fn open() -> DeletionQueue {
    let mut queue = super::open();
    queue.limits = LIMITS;
    queue
}

fn blob(of: u8) -> BlobName {
    let store_type = StoreType::ALL[usize::from(of % 6)];
    let file_type = TYPES[usize::from(of) % 3];
    let file_type = if of < 12 { file_type.into() } else { file_type.to_uppercase() };
    BlobName { blob_key: ByteBuf::from(vec![of; 1 + usize::from(of) % 5]), file_type, store_type }
}

/// Formats a reply as text, because the types of queue and model differ.
fn text(answer: impl Debug) -> String {
    format!("{answer:?}")
}

struct Run {
    queue: DeletionQueue,
    model: Model,
    now: u64,
    /// The token of each lease ever given, by number.
    tokens: Vec<Vec<u8>>,
}

impl Run {
    /// Returns the token of a given lease, or a wrong token.
    fn token(&self, which: u8) -> (Vec<u8>, model::Token) {
        let which = usize::from(which) % (self.tokens.len() + 2);
        match self.tokens.get(which) {
            Some(token) => (token.clone(), Some(which as u64 + 1)),
            None if which == self.tokens.len() => (vec![7; 40], None),
            None => {
                // The number is right and the hash is wrong.
                let mut token = self.tokens.last().cloned().unwrap_or_default();
                token.iter_mut().skip(8).for_each(|byte| *byte = !*byte);
                (token, None)
            }
        }
    }

    /// Returns the queue's reply as text.
    fn queue(&mut self, op: &Op) -> String {
        let now = self.now;
        match op.clone() {
            Op::Schedule { blob: of, height } => text(self.queue.schedule(&Name::from(&blob(of)), height, now)),
            Op::Hold { blob: of, txid } => {
                let (name, txid) = (blob(of), [txid; 32]);
                let admitted = self.queue.admits(&Name::from(&name), &txid);
                if admitted.is_ok() {
                    self.queue.hold(&Name::from(&name), &txid);
                }
                text(&admitted)
            }
            Op::ScheduleRecord { blob: of, height, txid } => {
                text(self.queue.schedule_record(&Name::from(&blob(of)), height, &[txid; 32]).unwrap())
            }
            Op::Cancel(of) => text(self.queue.cancel(&Name::from(&blob(of)), now)),
            Op::Acquire { who: of, arg, reached } => {
                let acquired = self.queue.acquire(who(of), &arg, reached, now);
                let shown = |lease: BlobDeletionLease| {
                    let number = Token::parse(&lease.token).unwrap().number;
                    if number as usize > self.tokens.len() {
                        self.tokens.push(lease.token.to_vec());
                    }
                    assert_eq!(self.tokens[number as usize - 1][..], lease.token[..], "the same token again");
                    (number, lease.expires_at_ns, lease.height, ids(&lease.rows))
                };
                text(acquired.map(|lease| lease.map(shown)))
            }
            Op::Extend { who: of, token, secs } => text(self.queue.extend(who(of), &self.token(token).0, secs, now)),
            Op::CompleteBatch { who: of, token, said } => {
                let arg = batch(self.token(token).0, &said);
                text(self.queue.complete_batch(who(of), &arg, (now, said.base_secs), &mut ends(&said)))
            }
            Op::Complete(said) => text(self.queue.complete(&single(&said), now, &mut ends(&said)).unwrap()),
            Op::ReportBatch { who: of, token, said } => {
                let arg = batch(self.token(token).0, &said);
                text(self.queue.report_batch(who(of), &arg, now))
            }
            Op::Report(said) => text(self.queue.report(&single(&said), now).unwrap_err()),
            Op::ReportRow { id, up_to } => text(self.queue.report_row(id, up_to.unwrap_or(u32::MAX), now).unwrap_err()),
            Op::End(of) => text(self.queue.end_leases(of.map(who), now)),
            Op::Remove { id, up_to, kept } => {
                let end = if kept { RecordEnd::Kept } else { RecordEnd::Gone };
                let ends = &mut Ends { end, ..gone() };
                text(self.queue.remove(id, up_to.unwrap_or(u32::MAX), now, ends))
            }
            Op::Increment { id, max } => text(self.queue.increment(id, max, now)),
            Op::Retry(which) => text(self.queue.retry(&which, now).unwrap()),
            Op::Due(due) => {
                self.queue.note_due(due, now);
                String::new()
            }
            Op::Tick => {
                self.queue.tick(now);
                String::new()
            }
            Op::Upgrade => {
                self.queue = open();
                String::new()
            }
        }
    }

    /// Returns the model's reply as text.
    fn model(&mut self, op: &Op) -> String {
        let now = self.now;
        let is_message = !matches!(op, Op::Hold { .. } | Op::ScheduleRecord { .. } | Op::Due(_) | Op::Upgrade);
        if is_message {
            self.model.notice(now);
        }
        let answer = self.model_answer(op, now);
        if is_message {
            self.model.bound_dead(LIMITS.dead as usize);
        }
        answer
    }

    fn model_answer(&mut self, op: &Op, now: u64) -> String {
        match op.clone() {
            Op::Schedule { blob: of, height } => text(self.model.schedule(&blob(of), height)),
            Op::Hold { blob: of, txid } => text(self.model.hold(&blob(of), txid)),
            Op::ScheduleRecord { blob: of, height, txid } => text(self.model.schedule_record(&blob(of), height, txid)),
            Op::Cancel(of) => text(self.model.cancel(&blob(of))),
            Op::Acquire { who: of, arg, reached } => {
                let acquired = self.model.acquire(who(of), &arg, reached, LIMITS.leases, now);
                let shown = |number| {
                    let lease = &self.model.leases[&number];
                    (number, lease.expires_at_ns, lease.height, &lease.rows)
                };
                text(acquired.map(|number| number.map(shown)))
            }
            Op::Extend { who: of, token, secs } => {
                let token = self.token(token).1;
                text(self.model.extend(who(of), token, secs, now))
            }
            Op::CompleteBatch { who: of, token, said } => {
                let token = self.token(token).1;
                text(self.model.complete_batch(who(of), token, &said, now))
            }
            Op::Complete(said) => text(self.model.complete(&said, now)),
            Op::ReportBatch { who: of, token, said } => {
                let token = self.token(token).1;
                text(self.model.report_batch(who(of), token, &said))
            }
            Op::Report(said) => text(self.model.report(&said.completed, said.up_to)),
            Op::ReportRow { id, up_to } => text(self.model.report(&[id], up_to)),
            Op::End(of) => text(self.model.end_leases(of.map(who), now)),
            Op::Remove { id, up_to, kept } => text(self.model.remove(id, up_to, kept)),
            Op::Increment { id, max } => text(self.model.increment(id, max, now)),
            Op::Retry(which) => text(self.model.retry(&which)),
            Op::Due(due) => {
                self.model.note_due(due, now);
                String::new()
            }
            Op::Tick | Op::Upgrade => String::new(),
        }
    }

    /// Checks that every row is only in the place where the model has it, in the same order, and that every count equals that of a scan.
    fn agrees(&self) -> Result<(), TestCaseError> {
        let Self { queue, model, .. } = self;
        let Some(store) = &queue.store else {
            prop_assert!(model.rows.is_empty());
            return Ok(());
        };
        let all = ListBlobDeletions { limit: 1_000, ..Default::default() };
        let listed = queue.list(&all);
        prop_assert_eq!(listed.cursor, None);
        prop_assert_eq!(listed.rows.len(), model.rows.len());
        for (shown, (id, row)) in listed.rows.iter().zip(&model.rows) {
            let ListedBlobDeletion { row: found, state, until_ns: until, reported_deleted } = shown;
            let name = BlobName {
                blob_key: found.blob_key.clone(),
                file_type: found.file_type.clone(),
                store_type: found.store_type,
            };
            prop_assert_eq!((found.id, &name, found.delete_at_height), (*id, &row.name, row.height));
            prop_assert_eq!((found.retry_count, found.last_retry_at_ns.unwrap_or(0)), (row.retries, row.last_retry));
            prop_assert_eq!((found.txid.as_ref().map(|txid| txid[0]), *state), (row.txid, row.at.state()));
            let expected = match row.at {
                At::Leased(number) => Some(model.leases[&number].expires_at_ns),
                At::BackingOff(until) => Some(until),
                _ => None,
            };
            prop_assert_eq!((*until, *reported_deleted), (expected, row.reported));
        }
        // The places in their order; a row in two places would be listed twice.
        let pending = |height| queue.pending(height, 1_000, None).iter().map(|row| row.id).collect::<Vec<_>>();
        for height in [0, 3, u32::MAX] {
            prop_assert_eq!(pending(height), model.waiting(height, &[], None));
        }
        let at = |at: fn(&At) -> bool| model.rows.iter().filter(move |(_, row)| at(&row.at)).map(|(id, _)| *id);
        let dead: Vec<u64> = queue.dead(None, 1_000).rows.iter().map(|row| row.id).collect();
        prop_assert_eq!(dead, at(|at| *at == At::Dead).collect::<Vec<_>>());
        let treap = store.treap();
        let first = treap.first(&store.slots, store.root.backing_off);
        let backing = std::iter::successors(first, |slot| treap.next(&store.slots, *slot));
        let backing: Vec<(u64, u64)> = backing.map(|slot| treap.key(&store.slots, slot)).collect();
        let mut expected: Vec<(u64, u64)> = model
            .rows
            .iter()
            .filter_map(|(id, row)| if let At::BackingOff(until) = row.at { Some((until, *id)) } else { None })
            .collect();
        expected.sort_unstable();
        prop_assert_eq!(backing, expected);
        let leases = store.leases.open.iter().map(|lease| {
            let rows: Vec<u64> = lease.rows(&store.slots).map(|row| row.id).collect();
            assert_eq!(rows.len(), lease.rows as usize);
            (lease.token.number, lease.holder, lease.expires_at_ns, text(lease.stage), lease.unknown as usize, rows)
        });
        let expected = model.leases.iter().map(|(number, lease)| {
            let Lease { holder, expires_at_ns, stage, unknown, rows, .. } = lease;
            (*number, *holder, *expires_at_ns, text(stage), unknown.len(), rows.clone())
        });
        prop_assert_eq!(leases.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let held: Vec<u64> = store.leases.open.iter().flat_map(|l| l.rows(&store.slots)).map(|row| row.id).collect();
        prop_assert_eq!(held.iter().collect::<BTreeSet<_>>().len(), held.len(), "no row is under two leases");

        let status = queue.status();
        for of in &status.stores {
            let count = |state: BlobDeletionState| {
                let is = |row: &&model::Row| row.at.state() == state && row.name.store_type == of.store_type;
                model.rows.values().filter(is).count() as u64
            };
            let counted = [of.held, of.waiting, of.leased, of.backing_off, of.dead];
            prop_assert_eq!(counted, BlobDeletionState::ALL.map(count));
            let oldest = model.waiting(u32::MAX, &[of.store_type], None).first().map(|id| model.rows[id].height);
            prop_assert_eq!(of.oldest_due, oldest);
            // Marks beyond these may be merged.
            if model.marks.len() <= 24 {
                prop_assert_eq!(of.due_since_ns, model.due_since(of.store_type));
            }
        }
        prop_assert_eq!(queue.dead_count(), at(|at| *at == At::Dead).count() as u64);
        let queued = at(|at| matches!(at, At::Waiting | At::Leased(_) | At::BackingOff(_))).count() as u64;
        prop_assert_eq!(queue.pending_count(), queued);
        use Counter::*;
        let of =
            [Scheduled, Cancelled, Processed, NotFound, Errors, GivenUp, Expired, Completed, Unknown, Ended, Dropped];
        prop_assert_eq!(of.map(|of| store.root.counters[of as usize]).to_vec(), model.counters);
        let ends = model.leases.values().map(Lease::next_event);
        let due = expected_due(model);
        prop_assert_eq!(queue.next_event(), ends.chain(due).min());
        Ok(())
    }
}

fn batch(token: Vec<u8>, said: &Said) -> CompleteBlobDeletionBatch {
    CompleteBlobDeletionBatch {
        token: ByteBuf::from(token),
        completed_ids: said.completed.clone(),
        failed_ids: said.failed.clone(),
        max_retries: said.max_retries,
        unknown_ids: Some(said.unknown.clone()),
        rest: said.rest.then_some(BlobDeletionRest::Completed),
    }
}

fn single(said: &Said) -> CompleteBlobDeletions {
    CompleteBlobDeletions {
        completed_ids: said.completed.clone(),
        failed_ids: said.failed.clone(),
        max_retries: said.max_retries,
        up_to_height: said.up_to,
    }
}

fn expected_due(model: &Model) -> Option<u64> {
    model.rows.values().filter_map(|row| if let At::BackingOff(until) = row.at { Some(until) } else { None }).min()
}

fn ends(said: &Said) -> Ends<'static> {
    let end = if said.kept { RecordEnd::Kept } else { RecordEnd::Gone };
    Ends { end, asked: Box::leak(Box::new(0)), room: said.room, is_first: true }
}

proptest! {
    #![proptest_config(testing::histories(2_000))]

    #[test]
    fn agrees_with_a_model(steps in prop::collection::vec(step(), 1..40)) {
        twin::reset();
        let mut run =
            Run { queue: open(), model: Model::default(), now: 1_700_000_000 * NS, tokens: Vec::new() };
        // Without a row there is no queue and nothing is counted.
        let first = (Op::Schedule { blob: 0, height: 3 }, 0, None);
        for (op, passes, traps) in std::iter::once(first).chain(steps) {
            run.now = run.now.saturating_add_signed(passes * NS as i64);
            // The platform undoes all changes of a message that traps, on the heap as well; then the message is sent again.
            let tokens = run.tokens.clone();
            twin::with(|world| world.trap_after = traps);
            let ended = twin::message(|| run.queue(&op));
            twin::with(|world| world.trap_after = None);
            let answer = match ended {
                Ok(answer) => answer,
                Err(_) => {
                    (run.queue, run.tokens) = (open(), tokens);
                    run.agrees()?;
                    run.queue(&op)
                }
            };
            let expected = run.model(&op);
            prop_assert_eq!(answer, expected, "{:?}", op);
            run.agrees()?;
        }
    }
}

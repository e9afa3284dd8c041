//! State machine test of the canister's chain part: random histories through its endpoints and its timer, compared with a plain model.
//! Histories have uploads, rollbacks and resets that take many messages, damage of headers and blobs, refused memory, traps in the
//! middle of messages, and upgrades between messages.
//!
//! The effect of damage is bounded too: undamaged blocks stay complete, an id is either found or reported as damaged, nothing gets
//! stuck, and all space can be reused.

mod batches;
mod world;

use crate::api::endpoints::{blocks, export, operation, prune};
use crate::platform::native;
use crate::state;
use candid::Principal;
use coppice_model::blocks::upload;
use coppice_model::chain::{Made, Model, Upload, Whereabouts};
use ic_coppice_chain::testing::{block, id, with_keys};
use ic_coppice_chain::{IndexTable, owners};
use ic_coppice_interface::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use world::World;

/// Small sets of ids and keys, so that they repeat.
const IDS: u64 = 10;
const KEYS: u8 = 4;
const EXPORTER: Principal = Principal::from_slice(&[7]);
/// The exporter's name.
const ARCHIVE: &str = "archive";

/// A block to be made. Some of its ids and keys are shared, the others are its own.
#[derive(Clone, Debug)]
struct Draft {
    body: usize,
    ids: Vec<u8>,
    own: u8,
    keys: Vec<(u8, u8)>,
}

/// Damage to a header or to a blob of the log.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// The header's mark is damaged.
    Header,
    /// The header names a wrong place of the payload.
    Misplaced(u64),
    /// The directory has no entry for the blob.
    Pointer,
    /// The blob's entry cannot be decoded.
    Blob,
}

#[derive(Clone, Debug)]
enum Step {
    Append(Draft),
    Upload { draft: Draft, chunk: usize, commits: u8 },
    Huge { draft: Draft, mib: u64 },
    Put(usize),
    Commit(u8),
    Abort,
    Rollback { depth: u64, times: u8 },
    Reset { first: u64, dropping: bool, right: bool },
    Prune(u64),
    Policy { retain: u64, ops: u64 },
    Enable(bool),
    Exporter(bool),
    Acknowledge(u64),
    Damage(Harm, u64),
    Time(u64),
}

fn draft() -> impl Strategy<Value = Draft> {
    let body = prop_oneof![3 => 0usize..500, 2 => 0usize..200 << 10];
    let ids = prop::collection::vec(0..IDS as u8, 0..6);
    let keys = prop::collection::vec((0u8..12, 0..KEYS + 4), 0..8);
    (body, ids, 0u8..8, keys).prop_map(|(body, ids, own, keys)| Draft { body, ids, own, keys })
}

/// `damage`: whether steps may do damage.
fn step(damage: bool) -> impl Strategy<Value = Step> {
    let harm = prop_oneof![
        Just(Harm::Header),
        prop_oneof![Just(0), 0u64..2_000_000, Just(u64::MAX), Just(1 << 50)].prop_map(Harm::Misplaced),
        Just(Harm::Pointer),
        Just(Harm::Blob),
    ];
    let time = prop::sample::select(&[60u64, 60, 60, 60, 700, 4_300][..]);
    prop_oneof![
        24 => draft().prop_map(Step::Append),
        5 => (draft(), 1usize..90 << 10, 0u8..20)
            .prop_map(|(draft, chunk, commits)| Step::Upload { draft, chunk, commits }),
        1 => (draft(), 1u64..250).prop_map(|(draft, mib)| Step::Huge { draft, mib }),
        3 => (1usize..200).prop_map(Step::Put),
        6 => (1u8..12).prop_map(Step::Commit),
        2 => Just(Step::Abort),
        4 => (0u64..5, 1u8..4).prop_map(|(depth, times)| Step::Rollback { depth, times }),
        1 => (prop_oneof![Just(0u64), 0u64..1 << 40], any::<bool>(), prop::bool::weighted(0.9))
            .prop_map(|(first, dropping, right)| Step::Reset { first, dropping, right }),
        3 => (1u64..60).prop_map(Step::Prune),
        3 => (0u64..9, prop_oneof![1u64..12, Just(10_000)]).prop_map(|(retain, ops)| Step::Policy { retain, ops }),
        1 => prop::bool::weighted(0.8).prop_map(Step::Enable),
        1 => any::<bool>().prop_map(Step::Exporter),
        3 => (0u64..4).prop_map(Step::Acknowledge),
        3 => (harm, any::<u64>()).prop_map(move |(harm, which)| match damage {
            true => Step::Damage(harm, which),
            false => Step::Time(60),
        }),
        8 => time.prop_map(Step::Time),
    ]
}

fn append(block: &AppendBlock) -> Result<(), AppendError> {
    blocks::append_block(block.clone())
}

struct Machine {
    world: World,
    model: Model,
    verify: bool,
    slice: u64,
    /// The last block that a rollback has begun to remove.
    leaving: Option<Made>,
    /// The head to which a rollback has come last.
    fell_to: Option<u64>,
}

impl Machine {
    fn new(first: u64, seed: u64, slice: u64, verify: bool) -> Self {
        let model = Model::new(first, world::CLASS, world::PRODUCER, world::EXPIRY);
        Self { world: World::new(seed, slice, verify), model, verify, slice, leaving: None, fell_to: None }
    }

    /// Sends a message that must not trap.
    fn sent<T>(&mut self, run: impl Fn() -> T) -> T {
        self.world.message(run).unwrap_or_else(|why| panic!("a trap: {why}"))
    }

    fn make(&mut self, draft: &Draft) -> Made {
        let (number, serial) = (self.model.next(), self.model.made + 1);
        let own = (0..u64::from(draft.own)).map(|i| id(1 << 32 | serial << 8 | i));
        let ids: Vec<_> = draft.ids.iter().map(|&of| id(u64::from(of))).chain(own).collect();
        let key =
            |of: u8| if of < KEYS { vec![of; usize::from(of)] } else { [&[of], &serial.to_le_bytes()[..]].concat() };
        let keys: Vec<(u32, Vec<u8>)> = match ids.len() as u32 {
            0 => Vec::new(),
            n => draft.keys.iter().map(|&(at, of)| (u32::from(at) % n, key(of))).collect(),
        };
        let keys: Vec<(u32, &[u8])> = keys.iter().map(|(at, key)| (*at, key.as_slice())).collect();
        self.model.make(with_keys(block(number, &ids, draft.body), &keys))
    }

    /// The reason why an append, or the beginning of an upload, has to wait.
    fn waits(&self) -> Option<AppendError> {
        let (left, is_stuck) = state::read(|state| {
            let chain = state.chain.state();
            (state.chain.to_clear(), chain.head().is_some() && chain.seal.is_none())
        });
        if is_stuck && self.model.rollback_to.is_none() {
            // A rollback has ended on the oldest block, which was damaged meanwhile: only a reset helps.
            assert!(self.model.kept.len() == 1 && self.model.kept[0].damaged, "a head without a seal");
            assert_eq!(self.fell_to, self.model.head(), "only a rollback ends on a head without a seal");
            return Some(AppendError::Conflict { differs: vec![BlockField::Unreadable] });
        }
        let clears = (left > 0).then_some(AppendError::ResetUnderway { left });
        self.model.refuses_append(self.world.now()).or(clears)
    }

    fn append(&mut self, draft: &Draft) {
        let made = self.make(draft);
        let waits = self.waits();
        match (self.sent(|| append(&made.block)), waits) {
            (answer, Some(error)) => assert_eq!(answer, Err(error)),
            (Err(AppendError::NoMemory(NoMemory::OutOfSpace)), None) if self.world.refused => {
                self.world.meets("appends without memory");
                self.check();
                // The same block fits once memory is available again.
                let mut answer = self.sent(|| append(&made.block));
                while answer == Err(AppendError::NoMemory(NoMemory::OutOfSpace)) {
                    assert!(self.world.refused);
                    answer = self.sent(|| append(&made.block));
                }
                self.appended(made, answer);
            }
            (answer, None) => self.appended(made, answer),
        }
    }

    /// A block for which there is memory is appended, or is too large for a message and is uploaded.
    fn appended(&mut self, made: Made, answer: Result<(), AppendError>) {
        if made.references() <= self.slice {
            assert_eq!(answer, Ok(()));
            assert_eq!(self.sent(|| append(&made.block)), Ok(()), "again changes nothing");
            self.model.append(made, self.world.now());
        } else {
            assert!(matches!(answer, Err(AppendError::TooLarge { limit, .. }) if limit == self.slice));
            self.open(made, 60_000, None);
            self.put(usize::MAX);
            self.commit(u8::MAX);
        }
    }

    fn open(&mut self, made: Made, chunk: usize, huge: Option<u64>) {
        let mut chunk = chunk.max(made.payload() as usize / 300 + 1);
        let (mut arg, mut chunks) = (upload(&made.block, chunk).0, made.payload().div_ceil(chunk as u64) as u32);
        if let Some(mib) = huge {
            (arg.lengths.body, chunk) = (mib << 20, 1 << 20);
            (arg.chunk_size, chunks) = (chunk as u32, arg.lengths.sum().div_ceil(chunk as u64) as u32);
        }
        let waits = self.waits();
        let answer = self.sent(|| blocks::begin_block(arg.clone()));
        match (answer, waits) {
            (answer, Some(error)) => assert_eq!(answer, Err(error)),
            (Err(AppendError::NoMemory(NoMemory::OutOfSpace)), None) if self.world.refused => {
                self.world.meets("uploads without memory")
            }
            (answer, None) => {
                assert_eq!(answer, Ok(UploadProgress { chunks, missing: chunks }));
                let upload = Upload::new(made, chunk, self.world.now());
                self.model.upload = Some(Upload { huge: huge.is_some(), ..upload });
            }
        }
    }

    fn put(&mut self, most: usize) {
        let Some(open) = self.model.upload.clone().filter(|open| !open.huge) else { return };
        let (begun, chunks) = upload(&open.made.block, open.chunk);
        for (chunk, bytes) in (0..).zip(chunks).filter(|(chunk, _)| !open.put.contains(chunk)).take(most) {
            let put = PutBlockChunk { number: begun.number, chunk, bytes: ByteBuf::from(bytes) };
            let answer = self.sent(|| blocks::put_block_chunk(put.clone()));
            if answer.is_err() {
                assert!(open.made.damaged && matches!(answer, Err(UploadError::Corrupt { .. })), "{answer:?}");
                return;
            }
            let now = self.world.now();
            let open = self.model.upload.as_mut().unwrap();
            open.put.insert(chunk);
            open.touched = now;
        }
    }

    fn commit(&mut self, times: u8) {
        for _ in 0..times {
            let Some(upload) = self.model.upload.clone() else { return };
            let made = &upload.made;
            let which = BlockId { number: made.block.number, hash: made.block.hash.clone() };
            let references = made.references();
            let whole = !upload.huge && upload.put.len() == made.payload().div_ceil(upload.chunk as u64) as usize;
            let answer = match self.world.message(|| blocks::commit_block(which.clone())) {
                Ok(answer) => answer,
                Err(_) if made.damaged => return,
                Err(why) => panic!("commit_block traps: {why}"),
            };
            match answer {
                Err(UploadError::Incomplete { .. }) => return assert!(!whole),
                Err(UploadError::Aborting) => return assert!(upload.aborting),
                Err(UploadError::Append(AppendError::NoMemory(NoMemory::OutOfSpace))) if self.world.refused => {
                    self.world.meets("commits without memory");
                }
                Err(error) => {
                    assert!(made.damaged, "{error:?}");
                    return self.world.meets("damaged uploads");
                }
                Ok(Commit::Done) => {
                    assert!(whole && !upload.aborting);
                    assert!(upload.entered + self.slice >= references, "more than a slice");
                    let open = self.model.upload.take().unwrap();
                    return self.model.append(open.made, self.world.now());
                }
                Ok(Commit::HasMore { entered, of }) => {
                    assert_eq!(of, references);
                    self.world.meets("slices entered");
                    let hashing = self.verify && upload.entered == 0 && entered == 0;
                    assert!(hashing || entered == upload.entered + self.slice, "{entered} after {upload:?}");
                    let now = self.world.now();
                    let open = self.model.upload.as_mut().unwrap();
                    (open.entered, open.touched) = (entered, now);
                }
            }
            self.check();
        }
    }

    fn abort(&mut self) {
        let number = self.model.upload.as_ref().map_or(self.model.next(), |upload| upload.made.block.number);
        let answer = self.sent(|| blocks::abort_block(number));
        assert_eq!(answer, Ok(self.model.upload.is_some()));
        let is_open = state::read(|state| state.chain.upload_progress().is_some());
        match &mut self.model.upload {
            Some(upload) if is_open => {
                upload.aborting = true;
                self.world.meets("aborts in slices");
            }
            upload => *upload = None,
        }
    }

    /// Removes the blocks above the head from the model.
    fn fall_to(&mut self, head: u64) {
        self.fell_to = Some(head);
        for made in self.model.roll_back(head) {
            self.world.meets(if made.damaged { "damaged blocks rolled back" } else { "blocks rolled back" });
            self.leaving = Some(made);
        }
    }

    /// Returns whether all these blocks are damaged, so that a rollback could not end there.
    fn are_damaged(&self, from: u64, to: u64) -> bool {
        (from..=to).all(|number| self.model.get(number).is_some_and(|made| made.damaged))
    }

    fn roll_back(&mut self, depth: u64, times: u8) {
        let number = self.model.head().map_or(5, |head| head.saturating_sub(depth));
        for _ in 0..times {
            let expected = self.model.refuses_rollback(number);
            let answer = self.sent(|| blocks::rollback_to(number, None));
            match (answer, expected) {
                (answer, Some(error)) => return assert_eq!(answer, Err(error)),
                (Err(RollbackError::Damaged), None) => {
                    return assert!(self.model.get(number).is_some_and(|made| made.damaged));
                }
                (answer, None) => {
                    let answer = answer.unwrap();
                    assert!(
                        self.are_damaged(answer.head + 1, number),
                        "only damaged blocks below the target are removed"
                    );
                    assert!(answer.has_more || answer.head <= number);
                    self.fall_to(answer.head);
                    self.model.rollback_to = answer.has_more.then_some(number);
                    if answer.has_more {
                        self.world.meets("rollbacks in slices");
                    }
                    self.check();
                }
            }
        }
    }

    fn reset(&mut self, first: u64, dropping: bool, right: bool) {
        let expected = state::read(|state| {
            let chain = state.chain.state();
            chain.head().map(|_| chain.head_hash.unwrap_or_default().to_bytes())
        });
        let head_hash = if right { expected.clone().unwrap_or_default() } else { [1, 2, 3].into() };
        let arg = ResetChain { head_hash, drop_unexported: dropping };
        let answer = self.sent(|| blocks::reset_chain(arg.clone()));
        let next = self.model.next();
        let bound = self.model.bounds.get(ARCHIVE).copied();
        let refused = match (&expected, bound.filter(|&bound| bound < next && !dropping)) {
            (None, _) => Some(ResetError::Empty),
            (Some(expected), _) if !right => Some(ResetError::WrongHash { expected: expected.clone() }),
            _ if self.model.upload.is_some() => self.model.open().map(ResetError::from),
            _ if self.model.rollback_to.is_some() => {
                self.model.rollback_to.map(|to| ResetError::RollbackUnderway { to })
            }
            (Some(_), Some(bound)) => {
                let exported_before_block = bound.max(self.model.oldest());
                Some(ResetError::NotExported { exporter: ARCHIVE.into(), exported_before_block })
            }
            _ => None,
        };
        match refused {
            Some(error) => assert_eq!(answer, Err(error)),
            None => {
                let left = state::read(|state| state.chain.to_clear());
                assert_eq!(
                    answer,
                    Ok(ChainReset { blocks: self.model.kept.len() as u64, left, utxo_records: Some(0) })
                );
                self.model.reset(first);
                self.world.meets("resets");
            }
        }
    }

    /// Removes pruned blocks from the model; they must be blocks that may be pruned.
    fn pruned(&mut self) {
        let (oldest, most) =
            (state::read(|state| state.chain.state().oldest), self.model.may_go_below(self.world.now()));
        if self.model.kept.is_empty() {
            return;
        }
        assert!((self.model.oldest()..=most).contains(&oldest), "pruned to {oldest}, and {most} was the most");
        while self.model.oldest() < oldest {
            let damaged = self.model.kept[0].damaged;
            self.world.meets(if damaged { "damaged blocks pruned" } else { "blocks pruned" });
            self.model.prune_oldest();
        }
    }

    fn damage(&mut self, harm: Harm, which: u64) {
        // A block in transit has a header, too.
        let (numbers, log) = state::read(|state| {
            let (chain, at) = (&state.chain, state.chain.state());
            let transit = at.transit.map(|transit| transit.number);
            ((at.oldest..at.next).chain(transit).collect::<Vec<_>>(), chain.log_blobs().collect::<Vec<_>>())
        });
        self.model.harmed += 1;
        let pick = |of: &[u64]| of[which as usize % of.len()];
        match harm {
            Harm::Header | Harm::Misplaced(_) if !numbers.is_empty() => {
                let number = pick(&numbers);
                self.harm(number);
                state::read(|state| match harm {
                    Harm::Misplaced(offset) => state.chain.misplace_header(number, offset),
                    _ => state.chain.poison_header(number),
                });
            }
            Harm::Pointer | Harm::Blob if !log.is_empty() => {
                let blob = pick(&log);
                let lies_in = |number| {
                    // A damaged header gives no blobs; its block is harmed already.
                    state::read(|state| state.chain.blobs_of(number).is_some_and(|blobs| blobs.contains(&blob)))
                };
                let harmed: Vec<u64> = numbers.into_iter().filter(|&number| lies_in(number)).collect();
                let open = self.model.upload.as_ref().map(|upload| upload.made.block.number);
                let tail = state::read(|state| state.chain.tail_blob());
                open.into_iter().filter(|_| blob >= tail).chain(harmed).for_each(|number| self.harm(number));
                state::mutate(|state| match harm {
                    Harm::Pointer => state.chain.poison_log(blob),
                    _ => state.chain.poison_blob(&state.blobs, blob),
                });
            }
            _ => {}
        }
    }

    fn harm(&mut self, number: u64) {
        match &mut self.leaving {
            Some(made) if made.block.number == number && self.model.head().is_none_or(|head| head < number) => {
                let made = made.clone();
                if self.model.upload.is_none() {
                    self.model.note_harm(&made);
                }
            }
            _ => {}
        }
        self.model.harm(number);
    }

    /// Lets time pass: begun work is finished, expired uploads are gone, and due blocks are pruned.
    fn pass(&mut self, secs: u64) {
        self.world.pass(secs);
        let (is_open, head, under_way) = state::read(|state| {
            let chain = &state.chain;
            (chain.upload_progress().is_some(), chain.state().head(), chain.is_under_way())
        });
        assert!(!under_way, "begun work is not continued");
        if let Some(upload) = &self.model.upload {
            let expired = self.model.expired(self.world.now());
            let gone = upload.aborting || expired;
            assert_eq!(is_open, !gone, "{upload:?}");
            if gone {
                self.model.upload = None;
                self.world.meets(if expired { "uploads expired" } else { "uploads undone by ticks" });
            }
        }
        if let Some(to) = self.model.rollback_to.take() {
            let ended = head.filter(|&head| head <= to && self.are_damaged(head + 1, to));
            self.world.meets("rollbacks ended by ticks");
            self.fall_to(ended.unwrap_or_else(|| panic!("a rollback to {to} ended at {head:?}")));
        }
        self.pruned();
        if self.model.is_enabled() {
            let may_go_below = self.model.may_go_below(self.world.now());
            assert_eq!(self.model.oldest(), may_go_below, "what is due is not pruned");
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(draft) => self.append(draft),
            Step::Upload { draft, chunk, commits } => {
                let made = self.make(draft);
                self.open(made, *chunk, None);
                self.put(usize::MAX);
                self.commit(*commits);
            }
            Step::Huge { draft, mib } => {
                let made = self.make(draft);
                self.open(made, 1 << 20, Some(*mib));
            }
            Step::Put(most) => self.put(*most),
            Step::Commit(times) => self.commit(*times),
            Step::Abort => self.abort(),
            Step::Rollback { depth, times } => self.roll_back(*depth, *times),
            Step::Reset { first, dropping, right } => self.reset(*first, *dropping, *right),
            Step::Prune(ops) => {
                let answer = self.sent(|| prune::prune_now(*ops));
                assert_eq!(answer.is_ok(), self.model.policy.is_some());
                self.pruned();
            }
            Step::Policy { retain, ops } => {
                let arg = PrunePolicyArg {
                    retain_blocks: Some(*retain),
                    min_kept_blocks: Some(0),
                    max_ops_per_tick: Some(*ops),
                    timer_interval_secs: Some(10),
                    pause_after_secs: Some(0),
                    ..PrunePolicyArg::default()
                };
                let change = self.sent(|| prune::set_prune_policy(arg.clone())).unwrap();
                self.model.set_policy(change.new);
            }
            Step::Enable(enabled) => {
                let arg = PrunePolicyArg { pruning_enabled: Some(*enabled), ..PrunePolicyArg::default() };
                let change = self.sent(|| prune::set_prune_policy(arg.clone())).unwrap();
                self.model.set_policy(change.new);
            }
            Step::Exporter(true) => {
                let exporter = Exporter { name: ARCHIVE.into(), principal: EXPORTER };
                self.sent(|| export::register_exporter(exporter.clone())).unwrap();
                self.model.register(ARCHIVE.into());
            }
            Step::Exporter(false) => {
                let which = RemoveExporter { name: ARCHIVE.into(), drop_guard: true };
                let answer = self.sent(|| export::remove_exporter(which.clone()));
                assert_eq!(answer.is_ok(), self.model.bounds.remove(ARCHIVE).is_some());
            }
            Step::Acknowledge(depth) => self.acknowledge(*depth),
            Step::Damage(harm, which) => self.damage(*harm, *which),
            Step::Time(secs) => self.pass(*secs),
        }
        self.check();
    }

    fn acknowledge(&mut self, depth: u64) {
        let Some(number) = self.model.head().and_then(|head| head.checked_sub(depth)) else { return };
        let Some(made) = self.model.get(number).cloned() else { return };
        native::with(|world| world.caller = EXPORTER);
        let answer = self.sent(|| export::ack_exported(number, made.block.hash.clone()));
        native::with(|world| world.caller = world::PRODUCER);
        match (self.model.ack(ARCHIVE, number, &made.block.hash), answer) {
            (None, answer) => assert!(matches!(answer, Err(AckError::NotRegistered { .. })), "{answer:?}"),
            (Some(expected), Ok(bound)) => {
                assert_eq!(Ok(bound), expected);
                self.model.bounds.insert(ARCHIVE.into(), bound);
            }
            (Some(_), Err(error)) => assert!(made.damaged, "{error:?}"),
        }
    }

    /// Compares what callers see with the model.
    fn check(&self) {
        let model = &self.model;
        state::read(|state| {
            let (chain, blobs) = (&state.chain, &state.blobs);
            assert_eq!(chain.state().head(), model.head());
            assert!(model.kept.is_empty() || chain.state().oldest == model.oldest());
            assert_eq!(chain.upload_progress().is_some(), model.upload.is_some());
            assert_eq!(chain.state().rollback_to, model.rollback_to);
            if model.harmed == 0 {
                assert_eq!(chain.state().kept_references(), model.references());
            }
            let of_one = model.kept.get((model.made * 7) as usize % model.kept.len().max(1));
            if let Some(made) = of_one.filter(|made| !made.damaged) {
                let found = chain.block(blobs, made.block.number).expect("a kept block");
                assert_eq!((&found.header.hash, &found.body), (&made.block.hash, &made.block.body));
                assert_eq!((&found.receipts, &found.index), (&made.block.receipts, &made.block.index));
            }
            let ids = (0..IDS).map(id).chain(of_one.into_iter().flat_map(|made| made.ids.clone()));
            for id in ids.chain(model.upload.iter().flat_map(|upload| upload.made.ids.clone())) {
                let found = chain.location(blobs, &id).map(|found| (found.block_number, found.position));
                match (model.locate(&id), found) {
                    (Whereabouts::At(place), found) => assert_eq!(found, place.ok_or(ReadError::NotFound)),
                    (Whereabouts::OneOf(places), Ok(found)) => {
                        assert!(places.contains(&found), "{found:?} is none of {places:?}");
                    }
                    (Whereabouts::OneOf(_), Err(ReadError::NotFound | ReadError::Corrupt { .. })) => {}
                    (Whereabouts::OneOf(_), Err(error)) => panic!("{error:?}"),
                }
            }
            for key in (0..KEYS).map(|of| vec![of; usize::from(of)]) {
                let Some(expected) = model.find(&key) else { continue };
                let page = chain.find_by_key(blobs, &key, None, 0).unwrap();
                let found = page.transactions.iter().map(|found| (found.block_number, found.position));
                assert_eq!((found.collect::<Vec<_>>(), page.cursor), (expected, None), "key {key:?}");
            }
        });
    }

    /// In the end, all kept data except the damaged is complete, and the chain can be emptied and restarted.
    fn end(mut self, first: u64) -> BTreeMap<&'static str, u64> {
        self.pass(120);
        self.abort();
        self.pass(120);
        let kept = self.model.kept.clone();
        state::read(|state| {
            for made in kept.iter().filter(|made| !made.damaged) {
                let found = state.chain.block(&state.blobs, made.block.number).expect("a kept block");
                assert_eq!((&found.body, &found.index), (&made.block.body, &made.block.index));
            }
            let chain = state.chain.state();
            assert_eq!(state.blobs.arena().kept_bytes(owners::UPLOAD), 0);
            let log = (chain.log_end - chain.log_first) * u64::from(world::CLASS);
            assert_eq!(state.blobs.arena().kept_bytes(owners::CHAIN), log);
            assert!(!state.blobs.has_quarantined());
        });
        if self.model.harmed == 0 && self.model.policy.is_some() {
            while self.sent(|| prune::prune_now(10_000)).unwrap().dropped > 0 {}
            self.pruned();
            let live = state::read(|state| state.chain.index_stats().entries);
            assert_eq!(live, self.model.distinct_ids().len() as u64, "an entry for each id, and no other");
            assert_eq!(state::read(|state| state.chain.debt(IndexTable::Ids).debt), 0);
        }
        let problems = operation::health().problems;
        assert!(!problems.iter().any(|problem| problem.code == ProblemCode::WorkSkipped), "{problems:?}");
        assert!(
            self.model.harmed > 0 || !problems.iter().any(|problem| problem.code == ProblemCode::Damaged),
            "{problems:?}"
        );
        self.reset(first, true, true);
        self.pass(120);
        state::read(|state| {
            assert_eq!(state.blobs.arena().kept_bytes(owners::CHAIN), 0);
            assert!(!state.blobs.has_quarantined());
        });
        let draft = Draft { body: 70_000, ids: vec![0, 1, 2], own: 0, keys: vec![(0, 1)] };
        self.slice = self.slice.max(4);
        self.world.set_slice(self.slice);
        (0..5).for_each(|_| {
            self.append(&draft);
            self.check();
        });
        self.sent(|| prune::acknowledge_faults(u64::MAX));
        let problems = operation::health().problems;
        assert!(!problems.iter().any(|problem| problem.code == ProblemCode::Damaged), "{problems:?}");
        self.world.met
    }
}

fn first() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), 0u64..1 << 40]
}

/// A history: the two first block numbers of the chain; the seed of the injected faults; references of a slice; whether segments are
/// verified; and the steps.
type History = ((u64, u64), u64, u64, bool, Vec<Step>);

fn history(damage: bool) -> impl Strategy<Value = History> {
    (
        (first(), first()),
        any::<u64>(),
        prop_oneof![1u64..12, 12u64..60],
        any::<bool>(),
        prop::collection::vec(step(damage), 1..100),
    )
}

fn run(((first, again), seed, slice, verify, steps): History) -> BTreeMap<&'static str, u64> {
    let mut machine = Machine::new(first, seed, slice, verify);
    steps.iter().for_each(|step| machine.step(step));
    machine.end(again)
}

proptest! {
    #![proptest_config(ic_coppice_storage::testing::histories(96))]

    #[test]
    fn any_history_agrees_with_the_model(history in history(false)) {
        run(history);
    }

    #[test]
    fn damage_stays_local(history in history(true)) {
        run(history);
    }
}

/// Faults found while an upload is undone are counted, and `health` reports them until they are acknowledged.
#[test]
fn damage_found_by_an_abort_is_counted() {
    for manual in [true, false] {
        let mut machine = Machine::new(5, 0, 2, false);
        let draft = Draft { body: 10, ids: vec![1, 2, 3, 4, 5], own: 0, keys: vec![] };
        machine.append(&Draft { ids: vec![1], ..draft.clone() });
        let made = machine.make(&draft);
        machine.open(made, 1_000, None);
        machine.put(usize::MAX);
        machine.commit(1);
        assert_eq!(machine.model.upload.as_ref().unwrap().entered, 2);
        state::mutate(|state| state.chain.poison_header(6));
        machine.harm(6);
        machine.model.harmed = 1;
        if manual {
            machine.abort();
        }
        machine.pass(if manual { 60 } else { world::EXPIRY + 700 });
        assert!(machine.model.upload.is_none(), "manual: {manual}");
        let faults = prune::get_prune_status().faults;
        assert!(faults > 0 && operation::health().problems.iter().any(|problem| problem.code == ProblemCode::Damaged));
        assert_eq!(prune::acknowledge_faults(faults), faults);
        // The safety timer does not fire here.
        let problems = operation::health().problems;
        let codes = problems.iter().filter_map(Problem::known);
        let codes: Vec<ProblemCode> =
            codes.filter(|code| *code != ProblemCode::TimerOverdue && !code.is_of_set_up()).collect();
        assert_eq!(codes, [ProblemCode::DamageAcknowledged]);
    }
}

/// The histories reach every case, so that agreement with the model means something.
#[test]
fn histories_reach_every_case() {
    let mut runner = TestRunner::deterministic();
    let mut met = BTreeMap::<_, u64>::new();
    for at in 0..120 {
        let drawn = history(at % 2 == 1).new_tree(&mut runner).unwrap().current();
        run(drawn).into_iter().for_each(|(what, times)| *met.entry(what).or_default() += times);
    }
    println!("{met:#?}");
    let all = [
        "messages",
        "traps",
        "upgrades",
        "appends without memory",
        "uploads without memory",
        "slices entered",
        "aborts in slices",
        "rollbacks in slices",
        "rollbacks ended by ticks",
        "resets",
        "blocks pruned",
        "damaged blocks pruned",
        "blocks rolled back",
        "damaged blocks rolled back",
        "damaged uploads",
        "uploads expired",
        "uploads undone by ticks",
    ];
    for what in all {
        assert!(met.get(what).is_some_and(|&times| times >= 1), "{what}: {met:#?}");
    }
}

//! Random histories of the chain's store, compared with the model: blocks, ids, keys, and readers that page meanwhile, with and without
//! shared hashes. Commits, aborts and rollbacks take one message for each few references, and the chain is reopened in between; a block
//! that is partly in the indexes is never visible.

use super::*;
use crate::owners;
use crate::testing::{block, fresh, id, reopen, with_keys};
use candid::Principal;
use coppice_model::blocks::{block_id, upload};
use coppice_model::chain::{Made, Model, Whereabouts};
use ic_coppice_interface::*;
use ic_coppice_storage::Meter;
use ic_coppice_storage::blob::{BlobStore, Class};
use ic_coppice_storage::testing::histories;
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;

const CLASS: u32 = 64 << 10;
const NOW: u64 = 1_700_000_000;
/// Small sets of ids and keys, so that they repeat.
const IDS: u64 = 30;
const KEYS: u8 = 7;

/// A block: bytes of its body, its ids, and its keys with their transactions.
#[derive(Clone, Debug)]
struct Draft {
    body: usize,
    ids: Vec<u8>,
    keys: Vec<(u32, u8)>,
}

#[derive(Clone, Debug)]
enum Step {
    Append(Draft),
    /// The second field is the number of further entries that the table of keys accepts.
    Refused(Draft, u64),
    Upload {
        draft: Draft,
        chunk: usize,
        order: u64,
        stop_at: usize,
        refused: bool,
    },
    Prune(u8),
    Sweep(IndexTable),
    Rollback(u8),
    Reset(u64),
    Reopen,
    Read {
        reader: usize,
        limit: u32,
    },
    Begin {
        reader: usize,
        key: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    // Some bodies end a few bytes before or after the end of a blob, where only the links need the next blob.
    let body = prop_oneof![2 => 0usize..500, 1 => 65_000usize..65_400, 2 => 0usize..200 << 10];
    let keys = prop::collection::vec((0u32..4, 0..KEYS), 0..12);
    let draft =
        (body, prop::collection::vec(0..IDS as u8, 0..8), keys).prop_map(|(body, ids, keys)| Draft { body, ids, keys });
    let upload = (draft.clone(), 1usize..90 << 10, any::<u64>(), 0usize..20, any::<bool>());
    prop_oneof![
        12 => draft.clone().prop_map(Step::Append),
        1 => (draft, 0u64..6).prop_map(|(draft, after)| Step::Refused(draft, after)),
        4 => upload.prop_map(|(draft, chunk, order, stop_at, refused)| {
            Step::Upload { draft, chunk, order, stop_at, refused }
        }),
        4 => (1u8..4).prop_map(Step::Prune),
        2 => prop::sample::select(&[IndexTable::Ids, IndexTable::Keys][..]).prop_map(Step::Sweep),
        4 => (1u8..4).prop_map(Step::Rollback),
        1 => (0u64..1_000).prop_map(Step::Reset),
        2 => Just(Step::Reopen),
        6 => (0usize..3, 1u32..5).prop_map(|(reader, limit)| Step::Read { reader, limit }),
        2 => (0usize..3, 0..KEYS).prop_map(|(reader, key)| Step::Begin { reader, key }),
    ]
}

/// Keys of all lengths, including an empty key.
fn key(of: u8) -> Vec<u8> {
    vec![of; usize::from(of) * 64 / 6]
}

type Rows = Vec<(u64, u32)>;

/// Pages through the transactions with a key during the history.
#[derive(Clone, Default)]
struct Reader {
    key: u8,
    rows: Rows,
    cursor: Option<KeyCursor>,
    done: bool,
}

struct World {
    chain: ChainStore,
    blobs: BlobStore,
    model: Model,
    readers: [Reader; 3],
    colliding: bool,
    /// Most references for a message of a commit, an abort or a rollback.
    slice: u64,
}

fn admission() -> Admission {
    Admission { verify_segments: true, ..Admission::default() }
}

impl World {
    fn new(colliding: bool, slice: u64, first: u64) -> Self {
        let (chain, blobs) = fresh(CLASS);
        let model = Model::new(first, CLASS, Principal::anonymous(), 0);
        let mut world = Self { chain, blobs, model, readers: Default::default(), colliding, slice };
        world.mask_hashes();
        world
    }

    fn reopen(&mut self) {
        (self.chain, self.blobs) = reopen(CLASS);
        self.mask_hashes();
    }

    /// Makes all ids and keys share four hashes.
    fn mask_hashes(&mut self) {
        self.chain.mask_hashes(if self.colliding { 3 } else { u64::MAX });
    }

    fn make(&mut self, Draft { body, ids, keys }: &Draft) -> Made {
        let ids: Vec<_> = ids.iter().map(|&i| id(u64::from(i))).collect();
        let keys = keys.iter().filter(|_| !ids.is_empty());
        let keys: Vec<(u32, Vec<u8>)> = keys.map(|&(at, of)| (at % ids.len() as u32, key(of))).collect();
        let keys: Vec<(u32, &[u8])> = keys.iter().map(|(at, key)| (*at, key.as_slice())).collect();
        self.model.make(with_keys(block(self.model.next(), &ids, *body), &keys))
    }

    fn append(&mut self, made: &Made) -> Result<(), AppendError> {
        self.chain.append(&mut self.blobs, &made.block, &admission(), NOW)
    }

    fn page(&self, key: &[u8], cursor: Option<&KeyCursor>, limit: u32) -> Result<(Rows, Option<KeyCursor>), KeyError> {
        let page = self.chain.find_by_key(&self.blobs, key, cursor, limit)?;
        assert!(page.transactions.len() <= limit as usize);
        let rows = page.transactions.into_iter().map(|found| {
            let made = self.model.get(found.block_number).expect("a kept block");
            let (hash, id) = (&made.block.hash, made.ids[found.position as usize]);
            assert_eq!((&found.block_hash, &found.id[..]), (hash, &id[..]));
            (found.block_number, found.position)
        });
        Ok((rows.collect(), page.cursor))
    }

    /// Every id and every key is where the model has it, even with a block in transit.
    fn check_indexes(&self) {
        for of in (0..IDS).map(id) {
            let found = match self.chain.location(&self.blobs, &of) {
                Err(ReadError::NotFound) => None,
                found => found.map(|found| Some((found.block_number, found.position))).unwrap(),
            };
            assert_eq!(Whereabouts::At(found), self.model.locate(&of), "id {of:?}");
        }
        for key in (0..KEYS).map(key) {
            let (mut all, mut cursor) = self.page(&key, None, 3).unwrap();
            while cursor.is_some() {
                let (rows, next) = self.page(&key, cursor.as_ref(), 3).unwrap();
                all.extend(rows);
                cursor = next;
            }
            assert_eq!(Some(all), self.model.find(&key), "key {key:?}");
        }
    }

    fn upload(&mut self, made: Made, chunk: usize, order: u64, stop_at: usize, refused: bool) {
        let (begin, chunks) = upload(&made.block, chunk.max(made.payload() as usize / 500 + 1));
        let progress = self.chain.begin(&mut self.blobs, &begin, Principal::anonymous(), &admission(), 0).unwrap();
        assert_eq!(progress.chunks as usize, chunks.len());
        let mut turn: Vec<usize> = (0..chunks.len()).collect();
        turn.sort_by_key(|&i| (i as u64 + 1).wrapping_mul(order | 1));
        for (done, &i) in turn.iter().enumerate() {
            if done == stop_at {
                self.reopen();
            }
            let put = PutBlockChunk { number: begin.number, chunk: i as u32, bytes: ByteBuf::from(&chunks[i][..]) };
            let progress = self.chain.put_chunk(&mut self.blobs, &put, 0).unwrap();
            assert_eq!(progress.missing as usize, chunks.len() - done - 1);
        }
        let which = block_id(&made.block);
        if refused {
            // A commit that fails at its last step leaves the upload unchanged.
            self.chain.keys.fail_after(0);
            let answer = self.chain.commit_upload(&mut self.blobs, &which, &Admission::default(), NOW);
            self.chain.keys.fail_after(u64::MAX);
            if answer.is_ok() {
                return self.model.append(made, NOW);
            }
            assert_eq!(answer, Err(UploadError::Append(AppendError::NoMemory(NoMemory::OutOfSpace))));
            self.reopen();
        }
        let commits = if stop_at.is_multiple_of(3) { stop_at / 3 } else { usize::MAX };
        let mut entered = 0;
        for i in 0..commits {
            self.chain.small_slices = Some(self.slice);
            let answer = self.chain.commit_upload(&mut self.blobs, &which, &admission(), NOW).unwrap();
            if answer == Commit::Done {
                self.chain.small_slices = None;
                return self.model.append(made, NOW);
            }
            entered += self.slice;
            assert_eq!(answer, Commit::HasMore { entered, of: made.references() });
            self.check_indexes();
            (0..3).for_each(|reader| self.read(reader, 2));
            assert_eq!(self.chain.block(&self.blobs, begin.number).err(), Some(ReadError::NotFound));
            if i % 2 == stop_at % 2 {
                self.reopen();
            }
            if i == stop_at {
                self.prune();
                self.chain.sweep(IndexTable::Ids, Meter::unlimited());
            }
        }
        self.chain.small_slices = Some(self.slice);
        assert_eq!(self.chain.abort_upload(&mut self.blobs, begin.number), Ok(true));
        while self.chain.is_aborting() {
            let refused = self.chain.commit_upload(&mut self.blobs, &which, &admission(), 0);
            assert_eq!(refused, Err(UploadError::Aborting));
            let answer = self.append(&made);
            assert!(matches!(answer, Err(AppendError::UploadOpen(UploadOpen { .. }))), "{answer:?}");
            self.check_indexes();
            self.reopen();
            self.chain.small_slices = Some(self.slice);
            self.chain.continue_abort(&mut self.blobs);
        }
        assert_eq!(self.chain.abort_upload(&mut self.blobs, begin.number), Ok(false));
        self.chain.small_slices = None;
    }

    fn read(&mut self, at: usize, limit: u32) {
        let mut reader = self.readers[at].clone();
        if reader.done {
            return;
        }
        let was = reader.cursor.clone();
        match self.page(&key(reader.key), was.as_ref(), limit) {
            Ok((rows, cursor)) => {
                let full = rows.len() == limit as usize;
                reader.rows.extend(rows);
                (reader.done, reader.cursor) = (cursor.is_none(), cursor);
                assert!(reader.done || full, "a page that is not the last is full");
                if reader.done {
                    // The reader has everything up to the newest block it has seen, except what was removed since.
                    let (bound, oldest) = (was.map_or(u64::MAX, |cursor| cursor.newest), self.chain.state().oldest);
                    let kept: Rows = reader.rows.iter().copied().filter(|row| row.0 >= oldest).collect();
                    let mut expected = self.model.find(&key(reader.key)).unwrap();
                    expected.retain(|row| row.0 <= bound);
                    assert_eq!(kept, expected);
                }
            }
            Err(KeyError::Reorged { common_ancestor, cursor }) => {
                reader.rows.retain(|row| row.0 <= common_ancestor);
                assert!(cursor.is_some() || reader.rows.is_empty());
                reader.cursor = cursor;
            }
            Err(error) => panic!("{error:?}"),
        }
        self.readers[at] = reader;
    }

    /// Removes the oldest block unless it is the head.
    fn prune(&mut self) {
        let expected = (self.model.kept.len() > 1).then(|| self.model.oldest());
        let removed = self.chain.remove_oldest(&mut self.blobs);
        assert!(removed.as_ref().is_none_or(|removed| removed.faults.is_empty()), "{removed:?}");
        assert_eq!(removed.map(|removed| removed.number), expected);
        if expected.is_some() {
            self.model.prune_oldest();
        }
    }

    fn roll_back(&mut self, to: u64) {
        assert_eq!(self.chain.check_rollback(to, 120), Ok(()));
        self.chain.begin_rollback(to);
        while self.chain.rollback_left().is_some() {
            let done = self.chain.continue_rollback(&mut self.blobs, self.slice, Meter::unlimited());
            assert_eq!(done.faults, Vec::<String>::new());
            if done.began {
                self.model.roll_back(self.model.next() - 2);
            }
            self.check_indexes();
            if self.chain.rollback_left().is_some() {
                let comes = Made::new(0, block(self.model.next(), &[], 5));
                assert_eq!(self.append(&comes), Err(AppendError::RollbackUnderway { to }));
            }
            self.reopen();
        }
        assert_eq!(self.chain.state().head(), Some(to));
    }

    fn reset(&mut self, head: u64, first: u64) {
        let hash = self.chain.hash(head).unwrap();
        let wrong = Err(ResetError::WrongHash { expected: hash.to_bytes() });
        assert_eq!(self.chain.check_reset(b"other", false, 120), wrong);
        assert_eq!(self.chain.check_reset(hash.as_slice(), false, 120), Ok(()));
        assert_eq!(self.chain.reset(), self.model.kept.len() as u64);
        self.model.reset(first);
        self.readers = Default::default();
        self.check_indexes();
        while self.chain.to_clear() > 0 {
            let refused = self.append(&Made::new(0, block(first, &[], 5)));
            assert_eq!(refused, Err(AppendError::ResetUnderway { left: self.chain.to_clear() }));
            assert_eq!(self.chain.clear(&mut self.blobs), Vec::<String>::new());
            self.reopen();
        }
        assert_eq!(self.blobs.arena().kept_bytes(owners::CHAIN), 0);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(draft) => {
                let made = self.make(draft);
                assert_eq!(self.append(&made), Ok(()));
                assert_eq!(self.append(&made), Ok(()), "again changes nothing");
                self.model.append(made, NOW);
            }
            Step::Refused(draft, after) => {
                let made = self.make(draft);
                self.chain.keys.fail_after(*after);
                let ids = self.chain.index_stats().entries;
                let answer = self.append(&made);
                self.chain.keys.fail_after(u64::MAX);
                match answer {
                    Ok(()) => self.model.append(made, NOW),
                    Err(error) => {
                        assert_eq!(
                            (error, self.chain.index_stats().entries),
                            (AppendError::NoMemory(NoMemory::OutOfSpace), ids)
                        );
                    }
                }
            }
            Step::Upload { draft, chunk, order, stop_at, refused } => {
                let made = self.make(draft);
                self.upload(made, *chunk, *order, *stop_at, *refused);
            }
            Step::Prune(count) => (0..*count).for_each(|_| self.prune()),
            Step::Sweep(table) => drop(self.chain.sweep(*table, Meter::unlimited())),
            Step::Rollback(count) => {
                let Some(head) = self.model.head() else { return };
                self.roll_back(head.saturating_sub(u64::from(*count)).max(self.model.oldest()));
            }
            Step::Reset(first) => {
                let Some(head) = self.model.head() else { return };
                self.reset(head, *first);
            }
            Step::Reopen => self.reopen(),
            Step::Read { reader, limit } => self.read(*reader, *limit),
            Step::Begin { reader, key } => self.readers[*reader] = Reader { key: *key, ..Reader::default() },
        }
        self.check();
    }

    /// The live entries of an index plus its debt cover the different hashes.
    fn check_entries(&self, table: IndexTable, hashes: BTreeSet<u64>) {
        let TableDebt { entries, debt, .. } = self.chain.debt(table);
        let live = hashes.len() as u64;
        assert!((live..=live + debt).contains(&entries), "{entries} entries, {live} live, a debt of {debt}");
    }

    fn check(&self) {
        self.check_indexes();
        let Self { chain, blobs, model, .. } = self;
        let state = *chain.state();
        assert_eq!((state.head(), state.kept_references()), (model.head(), model.references()));
        assert_eq!(state.keys, model.kept.iter().map(|made| made.keys.len() as u64).sum::<u64>());
        assert_eq!(chain.payload_bytes(), model.kept.iter().map(Made::payload).sum::<u64>());
        // The log has exactly the blobs that payload and links touch; nothing is quarantined.
        assert_eq!(blobs.arena().kept_bytes(owners::UPLOAD), 0);
        assert_eq!(blobs.arena().kept_bytes(owners::CHAIN), (state.log_end - state.log_first) * u64::from(CLASS));
        // Ids that share a hash have links that the model does not have.
        assert!(self.colliding || blobs.arena().kept_bytes(owners::CHAIN) == model.kept_bytes());
        assert_eq!(state.log_end, chain.log.blobs_end(state.log_tail).max(state.log_first));
        assert!(Class::all().all(|class| blobs.arena().class_counters(class).quarantined == 0));
        if let Some(number) = state.head().map(|_| state.oldest) {
            let start = chain.log.blob_of(chain.meta(number).unwrap().log_offset);
            assert_eq!(state.log_first, start.min(state.log_end));
            self.check_entries(IndexTable::Ids, model.distinct_ids().iter().map(|id| chain.id_hash(id)).collect());
            self.check_entries(IndexTable::Keys, model.distinct_keys().iter().map(|key| chain.key_hash(key)).collect());
        }
    }

    /// Every block is whole, every receipt is found, and after a sweep the indexes have no debt.
    fn end(mut self) {
        let mut before = 0;
        for made in &self.model.kept {
            let number = made.block.number;
            let found = self.chain.block(&self.blobs, number).unwrap();
            let (header, body, receipts, index) = (found.header, found.body, found.receipts, found.index);
            let (hash, parent_hash, timestamp_secs) = (header.hash, header.parent_hash.unwrap(), header.timestamp_secs);
            let whole =
                AppendBlock { number, hash, parent_hash, timestamp_secs, body, receipts, index, sha256: header.sha256 };
            assert_eq!(whole, made.block);
            assert_eq!(self.chain.references_before(number) - self.chain.state().pruned_references, before);
            before += made.references();
        }
        for id in self.model.distinct_ids() {
            let Whereabouts::At(Some((_, position))) = self.model.locate(&id) else { panic!("{id:?} is nowhere") };
            assert_eq!(self.chain.receipt(&self.blobs, &id).unwrap().bytes, vec![position as u8; 5]);
        }
        for table in [IndexTable::Ids, IndexTable::Keys] {
            self.chain.sweep(table, Meter::unlimited());
            assert_eq!(self.chain.debt(table).debt, 0);
        }
        self.check();
    }
}

fn play(colliding: bool, slice: u64, first: u64, steps: &[Step]) {
    let mut world = World::new(colliding, slice, first);
    steps.iter().for_each(|step| world.step(step));
    world.end();
}

proptest! {
    #![proptest_config(histories(80))]

    #[test]
    fn stores_agree_with_the_model(
        colliding: bool,
        slice in 1u64..6,
        first in prop_oneof![Just(0u64), any::<u32>().prop_map(u64::from)],
        steps in prop::collection::vec(step(), 1..50),
    ) {
        play(colliding, slice, first, &steps);
    }
}

/// Regression: this history failed once.
#[test]
fn colliding_id_is_found_after_reopening() {
    play(true, 1, 0, &[Step::Append(Draft { body: 0, ids: vec![0], keys: vec![] }), Step::Reopen]);
}

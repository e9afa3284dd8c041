//! Secondary keys against a plain model, and what only a test inside can cause: damage, collisions, refused growth.

use super::*;
use crate::storage::blob::{BlobStore, Owner};
use crate::testing::{block, fresh, hash, histories, id, reopen, with_keys};
use coppice_interface::*;
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

const CLASS: u32 = 64 << 10;
const NOW: u64 = 1_700_000_000;

fn append(chain: &mut ChainStore, blobs: &mut BlobStore, block: &AppendBlock) -> Result<(), AppendError> {
    chain.append(blobs, block, &Admission { verify_segments: true, ..Admission::default() }, NOW)
}

/// A block of four transactions with these keys.
fn keyed(number: u64, keys: &[(u32, &[u8])], body: usize) -> AppendBlock {
    let ids: Vec<_> = (0..4).map(|i| id(number << 8 | i)).collect();
    with_keys(block(number, &ids, body), keys)
}

/// The block on fork `fork`, on a parent of fork `parent`.
fn on_fork(block: AppendBlock, fork: u8, parent: u8) -> AppendBlock {
    AppendBlock {
        hash: hash(block.number, fork).into(),
        parent_hash: hash(block.number.wrapping_sub(1), parent).into(),
        ..block
    }
}

type Rows = Vec<(u64, u32)>;

fn rows(page: &KeyPage) -> Rows {
    page.transactions.iter().map(|found| (found.block_number, found.position)).collect()
}

fn find(
    chain: &ChainStore,
    blobs: &BlobStore,
    key: &[u8],
    cursor: Option<&KeyCursor>,
    limit: u32,
) -> Result<KeyPage, KeyError> {
    let page = chain.find_by_key(blobs, key, cursor, limit)?;
    for found in &page.transactions {
        let record = chain.record(found.block_number).unwrap();
        assert_eq!(found.block_hash, record.hash.to_bytes());
        assert_eq!(found.id, id(found.block_number << 8 | u64::from(found.position)));
    }
    Ok(page)
}

/// All transactions with a key, in pages of `limit`.
fn all(chain: &ChainStore, blobs: &BlobStore, key: &[u8], limit: u32) -> Rows {
    let (mut all, mut cursor) = (Rows::new(), None);
    loop {
        let page = find(chain, blobs, key, cursor.as_ref(), limit).unwrap();
        assert!(page.transactions.len() <= limit as usize);
        all.extend(rows(&page));
        cursor = page.cursor;
        if cursor.is_none() {
            return all;
        }
    }
}

#[test]
fn newest_first_each_transaction_once() {
    let (mut chain, mut blobs) = fresh(CLASS);
    let long = [7; 64];
    let keys: &[(u32, &[u8])] =
        &[(3, b"a"), (0, b"a"), (1, b""), (3, b"a"), (2, b"b"), (0, b"a"), (2, &long), (2, b"a")];
    append(&mut chain, &mut blobs, &keyed(10, keys, 10)).unwrap();
    append(&mut chain, &mut blobs, &keyed(11, &[], 10)).unwrap();
    append(&mut chain, &mut blobs, &keyed(12, &[(1, b"a"), (0, b"")], 10)).unwrap();
    for limit in [1, 2, 3, 4, 5, 1_000] {
        assert_eq!(all(&chain, &blobs, b"a", limit), [(12, 1), (10, 3), (10, 2), (10, 0)], "{limit} a page");
        assert_eq!(all(&chain, &blobs, b"", limit), [(12, 0), (10, 1)]);
        assert_eq!(all(&chain, &blobs, &long, limit), [(10, 2)]);
        assert_eq!(all(&chain, &blobs, b"none has it", limit), []);
    }
    assert_eq!(find(&chain, &blobs, &[0; 65], None, 1), Err(KeyError::KeyTooLong { limit: 64 }));
    assert_eq!(find(&chain, &blobs, b"a", None, 0).unwrap().transactions.len(), 4, "0: as many as there may be");
    assert_eq!(chain.key_stats().entries, 4, "an entry for each different key");
    // What is kept of a block for its keys is no part of its payload.
    let lengths = |number| chain.header(number).unwrap().lengths.sum();
    assert_eq!(chain.payload_bytes(), lengths(10) + lengths(11) + lengths(12));
    assert_eq!(chain.state().log_tail, chain.payload_bytes() + 10 * 12);
    assert_eq!(chain.meta(11).unwrap().payload_end(), chain.meta(11).unwrap().log_end());
}

#[test]
fn a_cursor_outlives_new_blocks_and_pruned_ones() {
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..6 {
        append(&mut chain, &mut blobs, &keyed(number, &[(0, b"a"), (3, b"a")], 10)).unwrap();
    }
    let first = find(&chain, &blobs, b"a", None, 3).unwrap();
    assert_eq!(rows(&first), [(5, 3), (5, 0), (4, 3)]);
    let cursor = first.cursor.unwrap();
    assert_eq!((cursor.block_number, cursor.position, cursor.key, cursor.newest), (4, 3, 1, 5));
    append(&mut chain, &mut blobs, &keyed(6, &[(2, b"a")], 10)).unwrap();
    let second = find(&chain, &blobs, b"a", Some(&cursor), 3).unwrap();
    assert_eq!(rows(&second), [(4, 0), (3, 3), (3, 0)]);
    (0..2).for_each(|_| drop(chain.remove_oldest(&mut blobs).unwrap()));
    let last = find(&chain, &blobs, b"a", second.cursor.as_ref(), 3).unwrap();
    assert_eq!((rows(&last), &last.cursor), (vec![(2, 3), (2, 0)], &None), "what was pruned is not there");
    (0..3).for_each(|_| drop(chain.remove_oldest(&mut blobs).unwrap()));
    let gone = find(&chain, &blobs, b"a", Some(&cursor), 3).unwrap();
    assert_eq!(gone, KeyPage { transactions: vec![], cursor: None }, "the cursor's block is pruned, and all before it");
    assert_eq!(all(&chain, &blobs, b"a", 1), [(6, 2), (5, 3), (5, 0)]);
    let page = find(&chain, &blobs, b"a", None, 3).unwrap();
    assert_eq!((page.transactions.len(), page.cursor), (3, None), "there is nothing behind a full page");
}

#[test]
fn a_reader_is_told_of_a_reorg_that_it_has_seen_the_blocks_of() {
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..10 {
        let keys: &[(u32, &[u8])] = if number < 8 { &[(0, b"a"), (1, b"b")] } else { &[] };
        append(&mut chain, &mut blobs, &keyed(number, keys, 10)).unwrap();
    }
    let page = find(&chain, &blobs, b"a", None, 3).unwrap();
    let cursor = page.cursor.unwrap();
    assert_eq!((cursor.block_number, cursor.newest), (5, 7));
    // Blocks that it has nothing of.
    (0..2).for_each(|_| drop(chain.remove_head(&mut blobs).unwrap()));
    assert_eq!(rows(&find(&chain, &blobs, b"a", Some(&cursor), 1).unwrap()), [(4, 0)]);
    // Some that it has.
    chain.remove_head(&mut blobs).unwrap();
    append(&mut chain, &mut blobs, &on_fork(keyed(7, &[(2, b"a")], 10), 1, 0)).unwrap();
    let told = find(&chain, &blobs, b"a", Some(&cursor), 1);
    let Err(KeyError::Reorged { common_ancestor: 6, cursor: Some(rest) }) = told else { panic!("{told:?}") };
    assert_eq!((rest.block_number, rest.position, rest.newest, rest.rollbacks), (5, 0, 6, 3));
    assert_eq!(rows(&find(&chain, &blobs, b"a", Some(&rest), 1).unwrap()), [(4, 0)]);
    // All that it has.
    (0..3).for_each(|_| drop(chain.remove_head(&mut blobs).unwrap()));
    let told = find(&chain, &blobs, b"a", Some(&rest), 1);
    assert_eq!(told, Err(KeyError::Reorged { common_ancestor: 4, cursor: None }));
    append(&mut chain, &mut blobs, &on_fork(keyed(5, &[(3, b"a")], 10), 2, 0)).unwrap();
    assert_eq!(find(&chain, &blobs, b"a", Some(&cursor), 1), told, "also where there is another block now");
    assert_eq!(all(&chain, &blobs, b"a", 2), [(5, 3), (4, 0), (3, 0), (2, 0), (1, 0), (0, 0)]);

    let cursor = find(&chain, &blobs, b"a", None, 1).unwrap().cursor.unwrap();
    let with = |change: fn(&mut KeyCursor)| {
        let mut cursor = cursor.clone();
        change(&mut cursor);
        find(&chain, &blobs, b"a", Some(&cursor), 1)
    };
    assert_eq!(with(|cursor| cursor.rollbacks += 1), Err(KeyError::Behind { head: Some(5) }));
    assert_eq!(with(|cursor| cursor.block_number = 6), Err(KeyError::Behind { head: Some(5) }));
    let bad = |page: Result<KeyPage, KeyError>| assert!(matches!(page, Err(KeyError::BadCursor { .. })), "{page:?}");
    bad(with(|cursor| cursor.block_hash = [9; 32].into()));
    bad(with(|cursor| cursor.key = 1));
    bad(with(|cursor| cursor.key = u32::MAX));
    bad(with(|cursor| cursor.block_number = 4));
    bad(find(&chain, &blobs, b"b", Some(&cursor), 1));
}

/// What one call looks at is bounded, whatever it finds.
#[test]
fn a_long_list_of_one_transaction_takes_several_calls() {
    let (mut chain, mut blobs) = fresh(CLASS);
    append(&mut chain, &mut blobs, &keyed(0, &[(2, b"a")], 10)).unwrap();
    let mut keys: Vec<(u32, &[u8])> = vec![(1, b"a"); 25_000];
    keys[3] = (0, b"a");
    append(&mut chain, &mut blobs, &keyed(1, &keys, 10)).unwrap();
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let page = find(&chain, &blobs, b"a", cursor.as_ref(), 5).unwrap();
        pages.push(rows(&page));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec![(1, 1)], vec![], vec![(1, 0), (0, 2)]]);
    assert_eq!(chain.remove_head(&mut blobs).unwrap().entries, 4);
    assert_eq!(all(&chain, &blobs, b"a", 5), [(0, 2)]);
}

/// Whatever is damaged: nothing stops, what cannot be known is said, and no answer is wrong.
#[test]
fn damage_is_named_and_never_answered() {
    let keys: &[(u32, &[u8])] = &[(0, b"a"), (1, b"b")];
    let world = || {
        let (mut chain, mut blobs) = fresh(CLASS);
        for number in 0..8 {
            append(&mut chain, &mut blobs, &keyed(number, keys, 60_000)).unwrap();
        }
        (chain, blobs)
    };
    let corrupt = |page: Result<KeyPage, KeyError>, of: u64| {
        assert!(matches!(page, Err(KeyError::Corrupt { number, .. }) if number == of), "{page:?}");
    };
    // A record in the middle.
    let (mut chain, mut blobs) = world();
    chain.poison_record(5);
    let page = find(&chain, &blobs, b"a", None, 10).unwrap();
    assert_eq!(rows(&page), [(7, 0), (6, 0)], "what comes before it");
    corrupt(find(&chain, &blobs, b"a", page.cursor.as_ref(), 10), 5);
    while chain.state().oldest < 6 {
        chain.remove_oldest(&mut blobs).unwrap();
    }
    assert_eq!(all(&chain, &blobs, b"a", 10), [(7, 0), (6, 0)]);
    // A blob with links and keys.
    let (mut chain, mut blobs) = world();
    let blob = chain.log.blob_of(chain.meta(7).unwrap().payload_end());
    chain.poison_log(blob);
    corrupt(find(&chain, &blobs, b"b", None, 10), 7);
    let removed = chain.remove_head(&mut blobs).unwrap();
    assert!(removed.faults.iter().any(|fault| fault.starts_with("block 7: its index segment")), "{:?}", removed.faults);

    // The head's record: its keys stay in the table, and name places that other blocks have then.
    for fork in [&[] as &[(u32, &[u8])], &[(3, b"b"), (2, b"a")], &[(0, b"b")], &[(0, b"c"), (0, b"b"), (0, b"b")]] {
        let (mut chain, mut blobs) = world();
        chain.poison_record(7);
        assert_eq!(chain.remove_head(&mut blobs).unwrap().faults.len(), 1);
        for key in [b"a", b"b"] {
            assert_eq!(all(&chain, &blobs, key, 1), [], "the way to the older ones is lost");
        }
        append(&mut chain, &mut blobs, &on_fork(keyed(7, fork, 10), 1, 0)).unwrap();
        let of_7 = |key: &[u8]| -> Rows {
            let mut rows: Rows = fork.iter().filter(|(_, has)| *has == key).map(|(at, _)| (7, *at)).collect();
            rows.sort();
            rows.dedup();
            rows.into_iter().rev().collect()
        };
        for key in [b"a", b"b", b"c"] {
            assert_eq!(all(&chain, &blobs, key, 1), of_7(key), "{fork:?}");
        }
        append(&mut chain, &mut blobs, &on_fork(keyed(8, &[(1, b"a"), (0, b"b")], 10), 1, 1)).unwrap();
        assert_eq!(all(&chain, &blobs, b"a", 1), [vec![(8, 1)], of_7(b"a")].concat(), "{fork:?}");
        chain.remove_head(&mut blobs).unwrap();
        for key in [b"a", b"b", b"c"] {
            assert_eq!(all(&chain, &blobs, key, 1), of_7(key), "{fork:?}");
        }
        while chain.state().oldest < 7 {
            assert!(chain.remove_oldest(&mut blobs).unwrap().faults.is_empty());
        }
    }
}

/// A link that leads nowhere, or in a circle.
#[test]
fn a_damaged_link_ends_the_call() {
    let (mut chain, mut blobs) = fresh(CLASS);
    for number in 0..4 {
        append(&mut chain, &mut blobs, &keyed(number, &[(0, b"a"), (1, b"a")], 10)).unwrap();
    }
    let links = chain.meta(3).unwrap().payload_end();
    let link = |previous: u64, at: u32| [&previous.to_le_bytes()[..], &at.to_le_bytes()].concat();
    let value = |number: u64, key: u64| number << 24 | key;
    let at = 4 + 4 * 32 + 4;
    for damaged in [link(value(3, 0), at), link(value(3, 1), at), link(value(2, 1), at + 1), link(0, u32::MAX)] {
        chain.log.write(&mut blobs, links, &damaged).unwrap();
        let first = find(&chain, &blobs, b"a", None, 1).unwrap();
        assert_eq!(rows(&first), [(3, 1)]);
        let second = find(&chain, &blobs, b"a", first.cursor.as_ref(), 1);
        let third = second.and_then(|page| match page.cursor {
            Some(cursor) => find(&chain, &blobs, b"a", Some(&cursor), 1),
            None => Ok(page),
        });
        match third {
            Err(KeyError::Corrupt { number: 3, .. }) => {}
            Ok(page) => assert_eq!((rows(&page), page.cursor), (vec![], None), "not a key of this hash"),
            other => panic!("{other:?}"),
        }
    }
    chain.log.write(&mut blobs, links, &link(value(9, 0), at)).unwrap();
    assert!(chain.remove_head(&mut blobs).unwrap().faults.is_empty());
    assert_eq!(all(&chain, &blobs, b"a", 5), [], "an heir that is not kept is none");
}

/// A random history.
#[derive(Clone, Debug)]
enum Step {
    Append { body: usize, keys: Vec<(u32, u8)> },
    Refused { keys: Vec<(u32, u8)>, after: u64 },
    Upload { body: usize, keys: Vec<(u32, u8)>, chunk: usize, refused: bool },
    Prune(u8),
    Sweep,
    Rollback(u8),
    Reopen,
    Read { reader: usize, limit: u32 },
    Begin { reader: usize, key: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    // Some end a few bytes before or behind a blob, where only the links need the next one.
    let body = prop_oneof![0usize..500, 65_000usize..65_400, 0usize..150_000];
    let keys = prop::collection::vec((0u32..4, 0u8..7), 0..12);
    prop_oneof![
        6 => (body.clone(), keys.clone()).prop_map(|(body, keys)| Step::Append { body, keys }),
        1 => (keys.clone(), 0u64..6).prop_map(|(keys, after)| Step::Refused { keys, after }),
        2 => (body, keys, 1_000usize..90_000, any::<bool>())
            .prop_map(|(body, keys, chunk, refused)| Step::Upload { body, keys, chunk, refused }),
        2 => (1u8..4).prop_map(Step::Prune),
        1 => Just(Step::Sweep),
        2 => (1u8..4).prop_map(Step::Rollback),
        1 => Just(Step::Reopen),
        6 => (0usize..3, 1u32..5).prop_map(|(reader, limit)| Step::Read { reader, limit }),
        2 => (0usize..3, 0u8..7).prop_map(|(reader, key)| Step::Begin { reader, key }),
    ]
}

/// Keys of all lengths, one of them empty.
fn key(of: u8) -> Vec<u8> {
    vec![of; usize::from(of) * 64 / 6]
}

/// Somebody who pages through the transactions with a key while everything else happens.
#[derive(Clone, Default)]
struct Reader {
    key: u8,
    rows: Rows,
    cursor: Option<KeyCursor>,
    done: bool,
}

type Model = BTreeMap<u64, Vec<(u32, u8)>>;

struct World {
    chain: ChainStore,
    blobs: BlobStore,
    model: Model,
    readers: [Reader; 3],
    colliding: bool,
    /// References of a message of a commit or a rollback.
    slice: u64,
    /// Blocks appended so far: each has a hash of its own.
    serial: u8,
}

impl World {
    fn configure(&mut self) {
        self.chain.few_hashes = self.colliding;
    }

    fn reopen(&mut self) {
        (self.chain, self.blobs) = reopen(CLASS);
        self.configure();
    }

    fn next(&mut self, first: u64, keys: &[(u32, u8)], body: usize) -> AppendBlock {
        let number = self.model.last_key_value().map_or(first, |(number, _)| number + 1);
        let keys: Vec<(u32, Vec<u8>)> = keys.iter().map(|&(transaction, of)| (transaction, key(of))).collect();
        let keys: Vec<(u32, &[u8])> = keys.iter().map(|(transaction, key)| (*transaction, key.as_slice())).collect();
        self.serial += 1;
        AppendBlock {
            hash: hash(number, self.serial).into(),
            parent_hash: self
                .chain
                .state()
                .head()
                .map_or_else(BlockHash::default, |head| self.chain.hash(head).unwrap().to_bytes()),
            ..keyed(number, &keys, body)
        }
    }

    fn upload(&mut self, block: &AppendBlock, chunk: usize, refused: bool) {
        let payload = [&block.body[..], &block.receipts[..], &block.index[..]].concat();
        let begin = BeginBlock {
            number: block.number,
            hash: block.hash.clone(),
            parent_hash: block.parent_hash.clone(),
            timestamp: block.timestamp,
            lengths: [&block.body, &block.receipts, &block.index].map(|bytes| bytes.len() as u64).into(),
            sha256: block.sha256.clone(),
            chunk_size: chunk as u32,
        };
        self.chain.begin(&mut self.blobs, &begin, &Admission::default(), NOW).unwrap();
        for (i, bytes) in payload.chunks(chunk).enumerate() {
            let put = PutBlockChunk { number: block.number, chunk: i as u32, bytes: ByteBuf::from(bytes) };
            self.chain.put_chunk(&mut self.blobs, &put, NOW).unwrap();
        }
        let id = BlockId { number: block.number, hash: block.hash.clone() };
        if refused {
            // A commit that is refused at its last step leaves the upload as it was.
            self.chain.keys.fail_after(0);
            let answer = self.chain.commit_upload(&mut self.blobs, &id, &Admission::default(), NOW);
            self.chain.keys.fail_after(u64::MAX);
            if answer.is_ok() {
                return;
            }
            assert_eq!(answer, Err(UploadError::Append(AppendError::OutOfSpace)));
            self.reopen();
        }
        let admission = Admission { verify_segments: true, ..Admission::default() };
        self.chain.small_slices = Some(self.slice);
        while self.chain.commit_upload(&mut self.blobs, &id, &admission, NOW).unwrap() != Commit::Done {
            self.check_keys();
            (0..3).for_each(|reader| self.read(reader, 2));
            self.reopen();
            self.chain.small_slices = Some(self.slice);
        }
        self.chain.small_slices = None;
    }

    /// Every key has what the model says, whatever else is half way in or out.
    fn check_keys(&self) {
        for of in 0..7 {
            assert_eq!(all(&self.chain, &self.blobs, &key(of), 3), self.expected(of, u64::MAX), "key {of}");
        }
    }

    /// What the model says of a key, in blocks up to `bound`.
    fn expected(&self, of: u8, bound: u64) -> Rows {
        let mut rows: Rows = self
            .model
            .range(..=bound)
            .flat_map(|(&number, keys)| keys.iter().filter(|key| key.1 == of).map(move |key| (number, key.0)))
            .collect();
        rows.sort();
        rows.dedup();
        rows.into_iter().rev().collect()
    }

    fn read(&mut self, at: usize, limit: u32) {
        let mut reader = self.readers[at].clone();
        if reader.done {
            return;
        }
        let was = reader.cursor.clone();
        match find(&self.chain, &self.blobs, &key(reader.key), was.as_ref(), limit) {
            Ok(page) => {
                reader.rows.extend(rows(&page));
                reader.done = page.cursor.is_none();
                reader.cursor = page.cursor;
                if reader.done {
                    // It has all up to the newest that it has seen, but for what has gone since.
                    let (bound, oldest) = (was.map_or(u64::MAX, |cursor| cursor.newest), self.chain.state().oldest);
                    let kept: Rows = reader.rows.iter().copied().filter(|row| row.0 >= oldest).collect();
                    assert_eq!(kept, self.expected(reader.key, bound));
                } else {
                    assert_eq!(page.transactions.len(), limit as usize, "a page that is not the last is full");
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

    /// Takes the oldest block out, if there is one to take.
    fn prune(&mut self) {
        let expected = (self.model.len() > 1).then(|| self.model.pop_first().unwrap().0);
        let removed = self.chain.remove_oldest(&mut self.blobs);
        assert!(removed.as_ref().is_none_or(|removed| removed.faults.is_empty()), "{removed:?}");
        assert_eq!(removed.map(|removed| removed.number), expected);
    }

    fn step(&mut self, first: u64, step: Step) {
        match step {
            Step::Append { body, keys } => {
                let new = self.next(first, &keys, body);
                assert_eq!(append(&mut self.chain, &mut self.blobs, &new), Ok(()));
                self.model.insert(new.number, keys);
            }
            Step::Refused { keys, after } => {
                let new = self.next(first, &keys, 10);
                self.chain.keys.fail_after(after);
                let ids = self.chain.index_stats().entries;
                let answer = append(&mut self.chain, &mut self.blobs, &new);
                self.chain.keys.fail_after(u64::MAX);
                match answer {
                    Ok(()) => drop(self.model.insert(new.number, keys)),
                    Err(error) => {
                        assert_eq!((error, self.chain.index_stats().entries), (AppendError::OutOfSpace, ids));
                    }
                }
            }
            Step::Upload { body, keys, chunk, refused } => {
                let new = self.next(first, &keys, body);
                self.upload(&new, chunk, refused);
                self.model.insert(new.number, keys);
            }
            Step::Prune(count) => (0..count).for_each(|_| self.prune()),
            Step::Sweep => drop(self.chain.sweep(IndexTable::Keys)),
            Step::Rollback(count) => {
                for _ in 0..count {
                    if self.model.len() <= 1 {
                        break;
                    }
                    let (head, _) = self.model.pop_last().unwrap();
                    self.chain.begin_rollback(head - 1);
                    while self.chain.rollback_left().is_some() {
                        let done = self.chain.go_on_rolling_back(&mut self.blobs, self.slice);
                        assert_eq!(done.faults, Vec::<String>::new());
                        self.check_keys();
                        self.reopen();
                    }
                }
            }
            Step::Reopen => self.reopen(),
            Step::Read { reader, limit } => self.read(reader, limit),
            Step::Begin { reader, key } => self.readers[reader] = Reader { key, ..Reader::default() },
        }
        self.check();
    }

    fn check(&self) {
        self.check_keys();
        let state = *self.chain.state();
        assert_eq!(state.keys, self.model.values().map(|keys| keys.len() as u64).sum::<u64>());
        let headers = self.model.keys().map(|&number| self.chain.header(number).unwrap());
        assert_eq!(self.chain.payload_bytes(), headers.map(|header| header.lengths.sum()).sum::<u64>());
        // The log has the blobs that payload and links touch, and no other.
        assert_eq!(self.blobs.kept_bytes(Owner::Upload), 0);
        assert_eq!(self.blobs.kept_bytes(Owner::Log), (state.log_end - state.log_first) * u64::from(CLASS));
        assert_eq!(state.log_end, self.chain.log.blobs_end(state.log_tail).max(state.log_first));
        if let Some((&oldest, _)) = self.model.first_key_value() {
            let start = self.chain.log.blob_of(self.chain.meta(oldest).unwrap().log_offset);
            assert_eq!(state.log_first, start.min(state.log_end));
            let mut hashes: Vec<u64> =
                self.model.values().flatten().map(|&(_, of)| self.chain.key_hash(&key(of))).collect();
            hashes.sort_unstable();
            hashes.dedup();
            let TableDebt { entries, debt, .. } = self.chain.debt(IndexTable::Keys);
            let live = hashes.len() as u64;
            assert!(entries >= live && entries <= live + debt, "{entries} entries, {live} live, a debt of {debt}");
            if debt == 0 {
                assert_eq!(entries, live, "an entry for each key, and no other");
            }
        }
    }
}

proptest! {
    #![proptest_config(histories(64))]

    /// Appends, uploads, refusals, prunes, sweeps, rollbacks and re-openings, with readers that page meanwhile.
    #[test]
    fn keys_agree_with_a_model(
        colliding: bool,
        slice in 1u64..6,
        first in prop_oneof![Just(0u64), any::<u32>().prop_map(u64::from)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (chain, blobs) = fresh(CLASS);
        let readers = Default::default();
        let mut world = World { chain, blobs, model: Model::new(), readers, colliding, slice, serial: 0 };
        world.configure();
        steps.into_iter().for_each(|step| world.step(first, step));
    }
}

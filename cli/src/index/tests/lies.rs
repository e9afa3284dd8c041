//! A lying replica: false answers to queries of every kind, with all options set that permit removals.

use super::*;
use crate::index::fake::{Answer, FakeBlock};
use coppice_interface::ExportChunk;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Turns an answer into a lie.
type Lie = fn(&Chain, Answer) -> Answer;

/// Lies about the position and the state of the chain.
const ANSWERS: [(&str, Lie); 16] = [
    ("pruned", |chain, _| Err(ExportError::Pruned { first_available: head(chain), common_ancestor: None })),
    ("pruned and reorganised", |chain, _| {
        Err(ExportError::Pruned { first_available: head(chain), common_ancestor: Some(10) })
    }),
    ("reorganised", |chain, _| Err(ExportError::Reorged { common_ancestor: 10, cursor: cursor(chain, 10) })),
    ("reorganised above the oldest", |chain, _| {
        let oldest = *chain.blocks.keys().next().unwrap();
        Err(ExportError::Reorged { common_ancestor: oldest, cursor: cursor(chain, oldest) })
    }),
    ("reset", |_, _| Err(ExportError::Reset { first_available: Some(3) })),
    ("another chain", |_, _| Err(ExportError::BadCursor { why: "no".into() })),
    ("restored, with another chain", |chain, _| Err(ExportError::Restored { head: chain.head() })),
    ("restored, and behind", |_, _| Err(ExportError::Restored { head: Some(3) })),
    ("damaged", |chain, answer| {
        let number = first(&answer).unwrap_or_else(|| head(chain) + 1);
        Err(ExportError::Corrupt { number, why: "no".into(), next: Some(cursor(chain, number)) })
    }),
    ("a damaged head", |chain, _| Err(ExportError::Corrupt { number: head(chain), why: "no".into(), next: None })),
    ("nothing new", |_, answer| answer.map(|page| ExportPage { chunks: Vec::new(), ..page })),
    ("late", |_, _| Err(ExportError::Behind { head: Some(3) })),
    ("a block left out", |_, answer| {
        let number = first(&answer);
        answer.map(|mut page| {
            page.chunks.retain(|chunk| Some(chunk.number) != number);
            page
        })
    }),
    ("a head far off", |_, answer| answer.map(|page| ExportPage { head: Some(u64::MAX), ..page })),
    ("a head reached", |_, answer| {
        answer.map(|page| ExportPage { head: page.chunks.last().map(|chunk| chunk.number), ..page })
    }),
    ("a chain without blocks", |_, _| Ok(ExportPage { chunks: Vec::new(), cursor: None, head: None })),
];

/// Lies about the blocks of a page that the reader can detect.
const PAGES: [(&str, Lie); 9] = [
    ("wrong bytes", |_, answer| with_chunks(answer, |chunk| chunk.bytes.iter_mut().for_each(|byte| *byte ^= 1))),
    ("wrong digests", |_, answer| with_chunks(answer, |chunk| chunk.sha256[0] ^= 1)),
    ("another parent", |_, answer| with_chunks(answer, |chunk| chunk.parent_hash = Some([9; 32].into()))),
    ("no parent", |_, answer| with_chunks(answer, |chunk| chunk.parent_hash = None)),
    ("numbers that no database holds", |_, answer| with_chunks(answer, |chunk| chunk.number = u64::MAX)),
    ("lengths that no block has", |_, answer| with_chunks(answer, |chunk| chunk.total = u64::MAX)),
    ("a cursor far on", |_, answer| with_cursor(answer, |cursor| cursor.number += 2)),
    ("no rollbacks ever", |_, answer| with_cursor(answer, |cursor| cursor.rollbacks = 0)),
    ("rollbacks to come", |_, answer| with_cursor(answer, |cursor| cursor.rollbacks += 1_000)),
];

/// Lies about the blocks of a page that the reader cannot detect.
const CONTENT: [(&str, Lie); 3] = [
    ("other payload, with digests to match", |_, answer| {
        with_chunks(answer, |chunk| {
            if chunk.segment == 0 && chunk.bytes.len() as u64 == chunk.total {
                chunk.bytes.iter_mut().for_each(|byte| *byte ^= 1);
                chunk.sha256 = ByteBuf::from(crate::feed::sha256(&chunk.bytes));
            }
        })
    }),
    ("another time", |_, answer| with_chunks(answer, |chunk| chunk.timestamp_secs -= 1)),
    ("other blocks", |_, answer| {
        let answer = with_chunks(answer, |chunk| {
            chunk.hash[0] ^= 1;
        });
        with_cursor(answer, |cursor| cursor.hash[0] ^= 1)
    }),
];

fn head(chain: &Chain) -> u64 {
    chain.head().unwrap_or_default()
}

fn first(answer: &Answer) -> Option<u64> {
    answer.as_ref().ok()?.chunks.first().map(|chunk| chunk.number)
}

/// Returns the cursor after a block, with the right hash if the chain has the block.
fn cursor(chain: &Chain, number: u64) -> ExportCursor {
    let hash = chain.blocks.get(&number).map(|block| block.hash.clone()).unwrap_or_default();
    crate::index::assemble::cursor_after(number, &hash, chain.rollbacks.len() as u64)
}

fn with_chunks(answer: Answer, change: fn(&mut ExportChunk)) -> Answer {
    answer.map(|mut page| {
        page.chunks.iter_mut().for_each(change);
        page
    })
}

fn with_cursor(answer: Answer, change: fn(&mut ExportCursor)) -> Answer {
    answer.map(|page| {
        let cursor = page.cursor.map(|mut cursor| {
            change(&mut cursor);
            cursor
        });
        ExportPage { cursor, ..page }
    })
}

/// The history of the chain, and the last contents of the database.
#[derive(Default)]
struct Watch {
    /// The chain, with its pruned blocks.
    truth: BTreeMap<u64, FakeBlock>,
    /// The hashes of all blocks that ever existed.
    ever: HashSet<Vec<u8>>,
    held: HashMap<u64, Stored>,
}

impl Watch {
    /// Records that the chain has changed above a block.
    fn chain(&mut self, chain: &Chain, above: u64) {
        self.truth.retain(|number, _| *number <= above);
        self.truth.extend(chain.blocks.iter().map(|(number, block)| (*number, block.clone())));
        self.ever.extend(chain.blocks.values().map(|block| block.hash.clone()));
    }

    /// Checks the contents of the database, and what is acknowledged. Blocks from `again` on may be missing for the moment: where blocks
    /// come by query, a rollback may go further back than necessary.
    fn check(&mut self, url: &str, bound: u64, again: u64, what: &str) {
        let found = stored(url);
        for (number, before) in self.held.iter().filter(|(number, _)| **number < again) {
            if self.truth[number].hash == before.0 {
                assert!(found.get(number) == Some(before), "{what}: block {number} of the chain is gone");
            }
        }
        assert!(found.values().all(|(hash, ..)| self.ever.contains(hash)), "{what}: a stored block never existed");
        for (number, block) in self.truth.range(..bound) {
            let same =
                found.get(number).is_some_and(|(hash, segments, _)| *hash == block.hash && *segments == block.segments);
            assert!(same, "{what}: block {number} is acknowledged, but not stored");
        }
        self.held = found;
    }
}

fn options_that_let_go() -> Options {
    Options { skip_damaged: true, accept_reset: true, accept_restore: true, ..options() }
}

/// Appends, rolls back and prunes while a replica lies in every answer, or in every second or third one.
fn live(what: &str, options: Options, lie: Lie) {
    (1..4).for_each(|every| live_with(&format!("{what}, every {every}"), options, lie, every));
}

fn live_with(what: &str, options: Options, lie: Lie, every: u64) {
    let (mut server, client) = (Sqlite::new(), Client::new(Fake::new()));
    let url = server.fresh();
    let what = format!("{what}, {options:?}");
    let mut watch = Watch::default();
    client.transport().chain().lie =
        Some(Box::new(move |chain, answer| if chain.asked.0 % every == 0 { lie(chain, answer) } else { answer }));
    let mut running = engine(&client, &url, options);
    let check = |watch: &mut Watch| {
        let chain = client.transport().chain();
        let oldest = chain.blocks.keys().next().copied().unwrap_or(u64::MAX);
        watch.check(&url, chain.bound, if options.by_query() { oldest } else { u64::MAX }, &what);
    };
    let script: [fn(&mut Chain) -> u64; 6] = [
        |chain| {
            chain.append(1, &[100, 0, 900, 2_500, 300, 1]);
            0
        },
        |chain| {
            chain.append(1, &[50, 3_000]);
            u64::MAX
        },
        |chain| {
            chain.roll_back_to(15);
            chain.append(2, &[70, 1_700, 5]);
            15
        },
        // Prunes as far as acknowledged.
        |chain| {
            chain.prune_before(14.min(chain.bound));
            chain.append(2, &[20, 30]);
            u64::MAX
        },
        |chain| {
            chain.roll_back_to(18);
            chain.append(3, &[1_200, 10]);
            chain.prune_before(17.min(chain.bound));
            18
        },
        |_| u64::MAX,
    ];
    for change in script {
        let above = change(&mut client.transport().chain());
        watch.chain(&client.transport().chain(), above);
        for _ in 0..2 {
            running.catch_up().unwrap_or_else(|error| panic!("{what}: a lie ended the run: {error:#}"));
            check(&mut watch);
        }
    }
    if options.by_query() {
        client.transport().chain().lie = None;
    }
    drop(running);
    // A run starts with an update call, so it reaches the head in spite of lies.
    let mut again = engine(&client, &url, options);
    again.catch_up().unwrap();
    check(&mut watch);
    for (number, block) in &watch.truth {
        let (hash, segments, _) = watch.held.get(number).unwrap_or_else(|| panic!("{what}: block {number} is missing"));
        assert!(*hash == block.hash && *segments == block.segments, "{what}: block {number}");
    }
    assert_eq!((watch.held.len(), again.store().held().unwrap().gap_blocks), (watch.truth.len(), 0), "{what}");
}

/// A lie about a block is detected only when the rest of the block comes; the block is then discarded, also by a later run.
#[test]
fn block_that_starts_with_a_lie_is_fetched_anew() {
    let lies: [Lie; 3] = [
        |_, answer| with_chunks(answer, |chunk| chunk.total += 1),
        |_, answer| with_chunks(answer, |chunk| chunk.sha256[0] ^= 1),
        // More bytes than the segment has, so that the canister does not know the position.
        |_, answer| {
            let answer = with_chunks(answer, |chunk| {
                chunk.total = 900_000;
                chunk.bytes = ByteBuf::from(vec![1; 5_000]);
            });
            with_cursor(answer, |cursor| (cursor.segment, cursor.offset) = (0, 5_000))
        },
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        for reopen in [false, true] {
            let (mut server, client) = (Sqlite::new(), chain(&[10]));
            let url = server.fresh();
            let options = Options { ack_every: None, ..options() };
            let mut running = engine(&client, &url, options);
            running.catch_up().unwrap();
            client.transport().chain().append(1, &[4_000, 20]);
            client.transport().chain().lie = Some(Box::new(lie));
            while running.at.block.is_none() {
                running.step().unwrap();
            }
            client.transport().chain().lie = None;
            if reopen {
                running = engine(&client, &url, options);
            }
            let notes = running.catch_up().unwrap();
            assert!(notes.iter().all(|note| note.contains("asked again")), "{at}, {reopen}: {notes:?}");
            assert_eq!(running.tip(), Some(12), "{at}, {reopen}");
            assert_eq!(stored(&url)[&11].1, client.transport().chain().blocks[&11].segments, "{at}, {reopen}");
        }
    }
}

#[test]
fn lies_remove_no_row_and_are_not_acknowledged() {
    for (what, lie) in ANSWERS.into_iter().chain(PAGES).chain(CONTENT) {
        live(what, options_that_let_go(), lie);
    }
}

/// A plain reader takes the contents of blocks, and the start of its copy, from one replica; nothing else.
#[test]
fn lies_remove_or_skip_no_row_of_a_plain_reader() {
    for (what, lie) in ANSWERS.into_iter().chain(PAGES) {
        if what != "a block left out" {
            live(what, Options { ack_every: None, ..options_that_let_go() }, lie);
        }
    }
}

/// A replica that lags behind a reorg hands out blocks that were rolled back, and they fit together.
#[test]
fn replica_that_lags_behind_a_followed_reorg_is_ignored() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
    let url = server.fresh();
    let before = client.transport().chain().blocks.clone();
    let mut engine = engine(&client, &url, Options { ack_every: None, page_bytes: 5, ..options() });
    engine.catch_up().unwrap();
    client.transport().chain().roll_back_to(11);
    client.transport().chain().append(2, &[10; 2]);
    // The engine follows the reorg, and then a replica answers that has not seen it.
    while engine.figures().reorgs == 0 {
        engine.step().unwrap();
    }
    let late = Mutex::new(Fake::new());
    late.lock().unwrap().chain().blocks = before;
    client.transport().chain().lie = Some(Box::new(move |_, answer| match answer {
        Ok(page) if !page.chunks.is_empty() => {
            let cursor = crate::index::assemble::cursor_after(11, page.chunks[0].parent_hash.as_ref().unwrap(), 0);
            let arg = candid::encode_args((Some(cursor), 0u64)).unwrap();
            candid::decode_one(&pollster::block_on(late.lock().unwrap().query("export_blocks", arg)).unwrap()).unwrap()
        }
        answer => answer,
    }));
    let notes = engine.catch_up().unwrap();
    assert!(notes[0].contains("not processed the last reorg"), "{notes:?}");
    assert_eq!(engine.tip(), Some(11));
    client.transport().chain().lie = None;
    engine.catch_up().unwrap();
    assert_eq!((engine.tip(), engine.figures().reorgs), (Some(13), 1));
}

/// At the head the engine polls by query, and confirms news by an update call.
#[test]
fn at_the_head_a_query_finds_news_and_an_update_call_fetches_it() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20, 30]));
    let url = server.fresh();
    let mut engine = engine(&client, &url, options());
    engine.catch_up().unwrap();
    assert_eq!(client.transport().chain().asked, (0, 1));
    (0..5).for_each(|_| assert!(engine.catch_up().unwrap().is_empty()));
    assert_eq!(client.transport().chain().asked, (5, 1));
    client.transport().chain().append(1, &[40]);
    engine.catch_up().unwrap();
    assert_eq!((client.transport().chain().asked, engine.tip()), ((6, 2), Some(13)));
    assert_eq!(engine.figures().unconfirmed, 0);
    client.transport().chain().lie = Some(Box::new(|_, _| Err(ExportError::Reset { first_available: None })));
    (0..3).for_each(|_| assert!(engine.catch_up().unwrap().is_empty()));
    // The update call's answer holds until a query reports something new.
    assert_eq!((client.transport().chain().asked, engine.figures().unconfirmed), ((9, 5), 3));
}

#[test]
fn reader_without_a_role_cannot_follow_a_reorg_and_changes_nothing() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
    let url = server.fresh();
    client.transport().chain().registered = false;
    let reader = Options { ack_every: None, ..options_that_let_go() };
    engine(&client, &url, reader).catch_up().unwrap();
    client.transport().chain().roll_back_to(12);
    client.transport().chain().append(2, &[20]);
    let before = dump(&url);
    let error = format!("{:#}", engine(&client, &url, reader).catch_up().unwrap_err());
    let reason = "one replica says: the chain was reorganised above block 12";
    assert!([reason, "--identity", "Nothing was changed"].iter().all(|part| error.contains(part)), "{error}");
    assert_eq!(dump(&url), before);
    client.transport().chain().registered = true;
    let mut with_role = engine(&client, &url, reader);
    with_role.catch_up().unwrap();
    assert_eq!((with_role.tip(), with_role.figures().removed_blocks), (Some(13), 2));
}

/// A block that was begun by query is not continued by a run that acknowledges.
#[test]
fn parts_of_a_block_by_query_are_not_acknowledged() {
    for options in [options(), Options { ack_every: None, ..options() }] {
        let (mut server, client) = (Sqlite::new(), chain(&[10, 4_000, 20]));
        let url = server.fresh();
        let reader = Options { ack_every: None, ..options };
        let mut by_query = engine(&client, &url, reader);
        (0..4).for_each(|_| drop(by_query.step().unwrap()));
        assert!(by_query.tip() == Some(10) && dump(&url).iter().any(|line| line.starts_with("FROM incomplete")));
        drop(by_query);
        let mut acknowledging = engine(&client, &url, options);
        assert_eq!(dump(&url).iter().any(|line| line.starts_with("FROM incomplete")), options.by_query());
        acknowledging.catch_up().unwrap();
        let bound = if options.by_query() { 0 } else { 13 };
        assert_eq!((acknowledging.tip(), client.transport().chain().bound), (Some(12), bound));
        assert_eq!(stored(&url)[&11].1, client.transport().chain().blocks[&11].segments);
    }
}

/// The canister names the lowest head since the cursor was made, which may be lower than necessary.
#[test]
fn pruned_blocks_stay_if_the_oldest_kept_block_follows_them() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 10]));
    let url = server.fresh();
    client.transport().chain().roll_back_to(12);
    client.transport().chain().append(2, &[10; 12]);
    // By query alone, so that the cursor does not count the rollbacks before it.
    client.transport().chain().registered = false;
    let mut reader = engine(&client, &url, Options { ack_every: None, ..options() });
    reader.catch_up().unwrap();
    client.transport().chain().registered = true;
    client.transport().chain().prune_before(20);
    client.transport().chain().roll_back_to(22);
    client.transport().chain().append(3, &[10; 5]);
    let notes = reader.catch_up().unwrap();
    assert!(notes[0].contains("reorganised above block 19"), "{notes:?}");
    let held = reader.store().held().unwrap();
    assert_eq!((held.first, held.last, held.blocks, held.gap_blocks), (Some(10), Some(27), 18, 0));
}

#[test]
fn ancestor_below_pruned_blocks_is_refused() {
    let lies: [fn(&mut Answer); 2] = [
        |answer| *answer = Err(ExportError::Pruned { first_available: 22, common_ancestor: Some(18) }),
        |answer| {
            let cursor = crate::index::assemble::cursor_after(18, &[1; 32], 9);
            *answer = Err(ExportError::Reorged { common_ancestor: 18, cursor });
        },
    ];
    for lie in lies {
        let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
        let url = server.fresh();
        let reader = Options { ack_every: None, ..options() };
        engine(&client, &url, reader).catch_up().unwrap();
        // A gap: the canister reports blocks below 20 as pruned, which the next run remembers.
        client.transport().chain().append(1, &[10; 10]);
        client.transport().chain().prune_before(20);
        engine(&client, &url, reader).catch_up().unwrap();
        let before = dump(&url);
        client.transport().chain().garble = Some(Box::new(lie));
        let error = engine(&client, &url, reader).catch_up().unwrap_err().to_string();
        assert!(error.contains("block 18") && error.contains("below 20") && error.contains("Nothing"), "{error}");
        assert_eq!(dump(&url), before);
        // The block below the oldest may be the ancestor of a reorg of all kept blocks.
        client.transport().chain().garble = Some(Box::new(|answer| {
            if let Err(ExportError::BadCursor { .. } | ExportError::Restored { .. }) = answer {
                *answer = Err(ExportError::Pruned { first_available: 20, common_ancestor: Some(19) });
            }
        }));
        client.transport().chain().blocks.clear();
        client.transport().chain().append(4, &[10; 16]);
        client.transport().chain().prune_before(20);
        let mut followed = engine(&client, &url, reader);
        followed.catch_up().unwrap();
        assert_eq!((followed.figures().removed_blocks, followed.tip()), (5, Some(25)));
    }
}

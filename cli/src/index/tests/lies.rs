//! A lying gateway: false answers of every kind, with all options set that permit removals.

use super::*;
use crate::index::fake::{Answer, FakeBlock};
use crate::index::header::Header;
use ic_coppice_interface::seals;
use ic_coppice_interface::{BlockHeader, ExportChunk, ExportCursor, HeaderPage, ReadError, TipCertificate};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// Turns a page into a lie.
type OfPage = fn(&Chain, Answer) -> Answer;
type HeaderAnswer = Result<HeaderPage, ReadError>;
/// Turns headers into a lie.
type OfHeaders = fn(&Chain, HeaderAnswer) -> HeaderAnswer;
/// Turns a certificate into a lie, with all certificates that were handed out before.
type OfCertificate = fn(&[TipCertificate], TipCertificate) -> Option<TipCertificate>;

/// A lie about one of the three answers.
#[derive(Clone, Copy)]
enum Lie {
    Page(OfPage),
    Headers(OfHeaders),
    Certificate(OfCertificate),
}

/// Lies about the position and the state of the chain.
const ANSWERS: [(&str, OfPage); 16] = [
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

/// Lies about the blocks of a page.
const PAGES: [(&str, OfPage); 10] = [
    ("wrong bytes", |_, answer| with_chunks(answer, |chunk| chunk.bytes.iter_mut().for_each(|byte| *byte ^= 1))),
    ("wrong digests", |_, answer| with_chunks(answer, |chunk| chunk.sha256[0] ^= 1)),
    ("another parent", |_, answer| with_chunks(answer, |chunk| chunk.parent_hash = Some([9; 32].into()))),
    ("no parent", |_, answer| with_chunks(answer, |chunk| chunk.parent_hash = None)),
    ("numbers that no database holds", |_, answer| with_chunks(answer, |chunk| chunk.number = u64::MAX)),
    ("lengths that no block has", |_, answer| with_chunks(answer, |chunk| chunk.total = u64::MAX)),
    ("a byte a page", |_, answer| {
        answer.map(|mut page| {
            page.chunks.truncate(1);
            page.chunks.iter_mut().for_each(|chunk| chunk.bytes.truncate(1));
            page
        })
    }),
    ("a cursor far on", |_, answer| with_cursor(answer, |cursor| cursor.number += 2)),
    ("no rollbacks ever", |_, answer| with_cursor(answer, |cursor| cursor.rollbacks = 0)),
    ("rollbacks to come", |_, answer| with_cursor(answer, |cursor| cursor.rollbacks += 1_000)),
];

/// Lies that fit together, which only a certificate refutes.
const CONTENT: [(&str, OfPage); 3] = [
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

/// Lies about headers, field by field.
const HEADERS: [(&str, OfHeaders); 13] = [
    ("other numbers", |_, answer| with_headers(answer, |header| header.number += 1)),
    ("other hashes", |_, answer| with_headers(answer, |header| header.hash = [8; 32].into())),
    ("long hashes", |_, answer| with_headers(answer, |header| header.hash = vec![8; 33].into())),
    ("other parents", |_, answer| with_headers(answer, |header| header.parent_hash = Some([8; 32].into()))),
    ("no parents", |_, answer| with_headers(answer, |header| header.parent_hash = None)),
    ("other times", |_, answer| with_headers(answer, |header| header.timestamp_secs -= 1)),
    ("other lengths", |_, answer| with_headers(answer, |header| header.lengths.body += 1)),
    ("impossible lengths", |_, answer| with_headers(answer, |header| header.lengths.index = u64::MAX)),
    ("other digests", |_, answer| with_headers(answer, |header| header.sha256.receipts[0] ^= 1)),
    ("other seals", |_, answer| with_headers(answer, |header| header.seal[0] ^= 1)),
    ("no header", |_, answer| answer.map(|_| HeaderPage { headers: Vec::new(), next: None })),
    ("pruned headers", |chain, _| Err(ReadError::Pruned { first_available: head(chain) })),
    ("damaged headers", |_, _| Err(ReadError::Corrupt { why: "no".into() })),
];

/// Lies about certificates, which no replica can make.
const CERTIFICATES: [(&str, OfCertificate); 5] = [
    ("no certificate", |_, _| None),
    ("a forged certificate", |_, genuine| changed(genuine, |answer| answer.certificate[20] ^= 1)),
    ("a forged tree", |_, genuine| {
        changed(genuine, |answer| {
            let last = answer.hash_tree.len() - 1;
            answer.hash_tree[last] ^= 1;
        })
    }),
    ("no tree", |_, genuine| changed(genuine, |answer| answer.hash_tree.clear())),
    ("the first certificate ever", |earlier, genuine| Some(earlier.first().cloned().unwrap_or(genuine))),
];

fn with_headers(answer: HeaderAnswer, change: fn(&mut BlockHeader)) -> HeaderAnswer {
    answer.map(|mut page| {
        page.headers.iter_mut().for_each(change);
        page
    })
}

fn changed(mut answer: TipCertificate, change: fn(&mut TipCertificate)) -> Option<TipCertificate> {
    change(&mut answer);
    Some(answer)
}

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

    /// Checks the contents of the database, and what is acknowledged.
    fn check(&mut self, url: &str, bound: u64, what: &str) {
        let found = stored(url);
        for (number, before) in &self.held {
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

/// Tells a lie in every answer whose number `every` divides.
fn tell(chain: &mut Chain, lie: Lie, every: u64) {
    match lie {
        Lie::Page(lie) => {
            chain.lie = Some(Box::new(
                move |chain, answer| if chain.asked.0.is_multiple_of(every) { lie(chain, answer) } else { answer },
            ));
        }
        Lie::Headers(lie) => {
            chain.lie_of_headers = Some(Box::new(move |chain, answer| {
                if (chain.asked_headers[0].len() as u64).is_multiple_of(every) { lie(chain, answer) } else { answer }
            }));
        }
        Lie::Certificate(lie) => {
            let mut earlier = Vec::new();
            chain.lie_of_certificate = Some(Box::new(move |chain, genuine| {
                let told = if chain.asked_certificates.is_multiple_of(every) {
                    lie(&earlier, genuine.clone())
                } else {
                    Some(genuine.clone())
                };
                earlier.push(genuine);
                told
            }));
        }
    }
}

fn fall_silent(chain: &mut Chain) {
    (chain.lie, chain.lie_of_headers, chain.lie_of_certificate) = (None, None, None);
}

/// A change of the chain, which returns the block above which it is another one.
type Change = fn(&mut Chain) -> u64;

const SCRIPT: [Change; 6] = [
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

/// Appends, rolls back and prunes while lies are told. Returns how many answers were refuted.
fn live(what: &str, options: Options, mut before: impl FnMut(&mut Chain)) -> u64 {
    let (mut server, client) = (Sqlite::new(), Client::new(Fake::new()));
    let url = server.fresh();
    let what = format!("{what}, {options:?}");
    let mut watch = Watch::default();
    before(&mut client.transport().chain());

    let (mut running, mut refuted) = (engine(&client, &url, options), 0);
    for change in SCRIPT {
        let above = change(&mut client.transport().chain());
        client.transport().chain().now += 15;
        watch.chain(&client.transport().chain(), above);
        for _ in 0..2 {
            if let Err(error) = running.settle_within(12) {
                let text = format!("{error:#}");
                assert!(text.contains("missed its proved digest 10 times"), "{what}: a lie ended the run: {text}");
                drop(running);
                running = engine(&client, &url, options);
                refuted += 10;
            }
            let bound = client.transport().chain().bound;
            watch.check(&url, bound, &what);
        }
    }
    fall_silent(&mut client.transport().chain());
    refuted += running.figures().refuted;
    running.settle().unwrap();
    let bound = client.transport().chain().bound;
    watch.check(&url, bound, &what);
    for (number, block) in &watch.truth {
        let (hash, segments, _) = watch.held.get(number).unwrap_or_else(|| panic!("{what}: block {number} is missing"));
        assert!(*hash == block.hash && *segments == block.segments, "{what}: block {number}");
    }
    assert_eq!((watch.held.len(), running.store().held().unwrap().gap_blocks), (watch.truth.len(), 0), "{what}");
    refuted
}

fn lies() -> Vec<(&'static str, Lie)> {
    let pages = ANSWERS.into_iter().chain(PAGES).chain(CONTENT).map(|(what, lie)| (what, Lie::Page(lie)));
    let headers = HEADERS.into_iter().map(|(what, lie)| (what, Lie::Headers(lie)));
    let certificates = CERTIFICATES.into_iter().map(|(what, lie)| (what, Lie::Certificate(lie)));
    pages.chain(headers).chain(certificates).collect()
}

/// Lies that show nothing false: a late replica answers the same, and what a page says of the head or the next cursor is not read.
const HARMLESS: [&str; 21] = [
    "pruned",
    "pruned and reorganised",
    "reorganised",
    "reorganised above the oldest",
    "reset",
    "another chain",
    "restored, with another chain",
    "restored, and behind",
    "nothing new",
    "late",
    "a head far off",
    "a head reached",
    "a chain without blocks",
    "a cursor far on",
    "no rollbacks ever",
    "rollbacks to come",
    "no parent",
    "no parents",
    "no header",
    "pruned headers",
    "the first certificate ever",
];

#[test]
fn no_lie_stores_moves_or_acknowledges_a_row() {
    for (what, lie) in lies() {
        for (every, ack_every) in [(1, Some(3)), (2, None), (3, Some(3))] {
            let options = Options { ack_every, ..options_that_let_go() };
            let refuted = live(&format!("{what}, every {every}"), options, |chain| tell(chain, lie, every));
            assert!(refuted > 0 || HARMLESS.contains(&what), "{what} is not counted, every {every}");
        }
    }
}

#[test]
fn all_lies_together_store_move_and_acknowledge_no_row() {
    let all = lies();
    for step in 1..all.len() {
        live(&format!("lies by {step}"), options_that_let_go(), |chain| {
            for kind in 0..3 {
                let of_kind = |lie: &Lie| match lie {
                    Lie::Page(_) => kind == 0,
                    Lie::Headers(_) => kind == 1,
                    Lie::Certificate(_) => kind == 2,
                };
                let chosen: Vec<Lie> = all.iter().map(|(_, lie)| *lie).filter(of_kind).collect();
                tell(chain, chosen[step % chosen.len()], 2 + (step as u64 + kind) % 3);
            }
        });
    }
}

#[test]
fn reader_behind_one_lying_replica_of_13_copies_10_000_blocks() {
    let (mut server, client) = (Sqlite::new(), chain(&vec![5; 10_000]));
    let url = server.fresh();
    client.transport().chain().headers_of_a_page = 1_000;
    for lie in [
        Lie::Page(|_, answer| with_chunks(answer, |chunk| chunk.bytes.iter_mut().for_each(|byte| *byte ^= 1))),
        Lie::Headers(|_, answer| with_headers(answer, |header| header.timestamp_secs -= 1)),
        Lie::Certificate(|_, genuine| changed(genuine, |answer| answer.certificate[20] ^= 1)),
    ] {
        tell(&mut client.transport().chain(), lie, 13);
    }
    let mut running = engine(&client, &url, Options { page_bytes: 10_000, tables: Tables::NONE, ..options() });
    running.settle().unwrap();
    assert_eq!((running.tip(), running.figures().blocks), (Some(10_009), 10_000));
    assert!(running.figures().refuted > 1);
    assert_eq!(certified(&url), [10_009], "after a catch-up only the head has a certificate");
}

/// Returns the blocks that have a certificate.
fn certified(url: &str) -> Vec<i64> {
    let sql = "SELECT number FROM certificates ORDER BY number";
    let mut database = Database::open(Access::volatile(url)).unwrap();
    database.transaction(|tx| tx.all(sql, &[])?.iter().map(|row| row.get(0)).collect()).unwrap()
}

#[test]
fn newest_certificate_of_each_thousand_stays_and_those_of_removed_blocks_go() {
    let (mut server, client) = (Sqlite::new(), chain(&[1; 3]));
    let url = server.fresh();
    client.transport().chain().headers_of_a_page = 1_000;
    let options = Options { page_bytes: 10_000, tables: Tables::NONE, ..options() };
    let mut running = engine(&client, &url, options);
    running.settle().unwrap();
    assert_eq!(certified(&url), [12]);
    for (more, numbers) in [(980, vec![992]), (7, vec![999]), (1, vec![999, 1_000]), (1_500, vec![999, 1_000, 2_500])] {
        client.transport().chain().append(1, &vec![1; more]);
        running.settle().unwrap();
        assert_eq!(certified(&url), numbers);
    }
    client.transport().chain().roll_back_to(2_400);
    running.settle().unwrap();
    assert_eq!(certified(&url), [999, 1_000, 2_400]);
}

/// The first header names the hash of a block that the reader never had. A page of headers that fit together, with another hash there, is
/// forgotten with its page.
#[test]
fn forged_parent_of_the_first_block_is_forgotten() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
    let url = server.fresh();
    let mut told = false;
    client.transport().chain().lie_of_headers = Some(Box::new(move |_, answer| {
        if std::mem::replace(&mut told, true) {
            return answer;
        }
        answer.map(|mut page| {
            let mut before = seals::FIRST;
            page.headers[0].parent_hash = Some([9; 32].into());
            for header in &mut page.headers {
                before = seals::seal(&before, &Header::of(header, None).unwrap().leaf().unwrap());
                header.seal = ByteBuf::from(before);
            }
            page
        })
    }));
    let mut running = engine(&client, &url, options());
    let notes = running.settle().unwrap();
    assert_eq!((running.tip(), notes.len()), (Some(14), 1), "{notes:?}");
}

/// "Nothing new" is a certificate, so a run at the head makes no update call.
#[test]
fn at_the_head_each_poll_is_one_certificate() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20, 30]));
    let url = server.fresh();
    let mut running = engine(&client, &url, options());
    running.settle().unwrap();
    let asked = |client: &Client<Fake>| {
        let chain = client.transport().chain();
        (chain.asked_certificates, chain.asked, chain.asked_headers.clone().map(|of| of.len()))
    };
    let (certificates, pages, headers) = asked(&client);
    assert_eq!((pages.1, headers[1]), (0, 0), "no update call");
    (0..5).for_each(|_| assert!(running.settle().unwrap().is_empty()));
    assert_eq!(asked(&client), (certificates + 5, pages, headers));
    client.transport().chain().append(1, &[40]);
    running.settle().unwrap();
    assert_eq!((running.tip(), asked(&client).1.1), (Some(13), 0));
}

#[test]
fn reader_without_a_role_ends_with_the_rows_of_an_exporter() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
    let (exported, read) = (server.fresh(), server.fresh());
    let reader = Options { ack_every: None, ..options() };
    let changes: [fn(&mut Chain); 4] = [
        |chain| chain.append(1, &[3_000, 20]),
        |chain| {
            chain.roll_back_to(12);
            chain.append(2, &[70; 9]);
        },
        |chain| {
            chain.append(2, &[10; 4]);
            chain.prune_before(23);
        },
        |chain| chain.append(2, &[20]),
    ];
    for change in changes {
        client.transport().chain().registered = true;
        engine(&client, &exported, options()).settle().unwrap();
        client.transport().chain().registered = false;
        engine(&client, &read, reader).settle().unwrap();
        assert_eq!(dump(&read), dump(&exported));
        change(&mut client.transport().chain());
    }
}

#[test]
fn reader_without_a_role_stops_at_damage_and_an_exporter_passes_it() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 9]));
    client.transport().chain().corrupt.insert(14);
    client.transport().chain().registered = false;
    let url = server.fresh();
    let mut reader = engine(&client, &url, Options { ack_every: None, skip_damaged: true, ..options() });
    let error = reader.settle().unwrap_err().to_string();
    assert!(error.contains("needs a role on the canister") && error.contains("Nothing was changed"), "{error}");
    assert_eq!(reader.tip(), None);
    drop(reader);
    client.transport().chain().registered = true;
    client.transport().chain().asked_headers = Default::default();
    let mut exporter = engine(&client, &url, Options { skip_damaged: true, ..options() });
    let notes = exporter.settle().unwrap();
    assert!(notes.len() == 1 && notes[0].contains("block 14 is skipped"), "{notes:?}");
    let held = exporter.store().held().unwrap();
    assert_eq!((held.blocks, held.gap_blocks, exporter.tip()), (8, 1, Some(18)));
    assert_eq!(client.transport().chain().asked_headers[1], [13, 15], "the headers before and after the damage");
    let parents = "SELECT number FROM blocks WHERE parent_hash IS NULL";
    let mut database = Database::open(Access::volatile(&url)).unwrap();
    let lacking = database
        .transaction(|tx| tx.all(parents, &[])?.iter().map(|row| row.get::<i64>(0)).collect::<Result<Vec<_>>>());
    assert_eq!(lacking.unwrap(), [15]);
}

#[test]
fn certificate_is_asked_for_after_ten_minutes_however_lively_the_pages_are() {
    let (mut server, client) = (Sqlite::new(), chain(&[10]));
    let url = server.fresh();
    let mut running = engine(&client, &url, Options { page_bytes: 10, ..options() });
    running.settle().unwrap();
    client.transport().chain().append(1, &[400]);
    while running.store().load().unwrap().block.is_none() {
        running.step().unwrap();
    }
    let asked = client.transport().chain().asked_certificates;
    (0..10).for_each(|_| drop(running.step().unwrap()));
    assert_eq!(client.transport().chain().asked_certificates, asked);
    client.transport().chain().now += 599;
    (0..3).for_each(|_| drop(running.step().unwrap()));
    assert_eq!(client.transport().chain().asked_certificates, asked);
    client.transport().chain().now += 1;
    (0..3).for_each(|_| drop(running.step().unwrap()));
    assert_eq!(client.transport().chain().asked_certificates, asked + 1);
    running.settle().unwrap();
    assert_eq!(running.tip(), Some(11));
}

use super::*;
use crate::index::database::{Database, Row};
use crate::index::fake::{Chain, Fake};
use crate::index::store::{Origin, Payload};
use anyhow::{Context, anyhow};
use coppice_canister::api::ExportCursor;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io::Write as _;

fn origin(payload: Payload) -> Origin {
    Origin { canister: "aaaaa-aa".into(), network: "memory".into(), payload }
}

fn options() -> Options {
    Options { page_bytes: 1_000, ack_every: Some(3), skip_damaged: false, accept_reset: false }
}

/// Databases that are empty each time.
trait Server {
    fn fresh(&mut self) -> String;
}

struct Sqlite(tempfile::TempDir, u32);

impl Sqlite {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), 0)
    }
}

impl Server for Sqlite {
    fn fresh(&mut self) -> String {
        self.1 += 1;
        format!("sqlite://{}/{}.db", self.0.path().display(), self.1)
    }
}

/// One schema of the server that `COPPICE_POSTGRES` names, emptied each time.
struct Postgres {
    url: String,
    schema: String,
}

impl Postgres {
    /// None, and a line that says so, where no server is named.
    fn new(test: &str) -> Option<Self> {
        let Ok(url) = std::env::var("COPPICE_POSTGRES") else {
            // Past the test harness, which hides what a passing test prints.
            let note = format!("not run on PostgreSQL: {test}; COPPICE_POSTGRES names no server");
            writeln!(std::io::stderr(), "{note}").unwrap();
            return None;
        };
        Some(Self { url, schema: format!("coppice_{test}_{}", std::process::id()) })
    }
}

impl Server for Postgres {
    fn fresh(&mut self) -> String {
        let Self { url, schema } = &self;
        let sql = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}");
        Database::open(url).unwrap().transaction(|tx| tx.define(&sql)).unwrap();
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}options[search_path]={schema}")
    }
}

/// Everything in a database, but how many transactions made it.
fn dump(url: &str) -> Vec<String> {
    let int = |row: &Row, at| format!("{:?}", row.get::<Option<i64>>(at).unwrap());
    let bytes = |row: &Row, at| match row.get::<Option<Vec<u8>>>(at).unwrap() {
        Some(bytes) => format!("{} {:02x?}", bytes.len(), crate::feed::sha256(&bytes)),
        None => "none".into(),
    };
    let text = |row: &Row, at| row.get::<String>(at).unwrap();
    let tables: [(&str, &str); 6] = [
        (
            "SELECT schema_version, canister, network, payload, cursor_number, cursor_hash, cursor_segment, cursor_offset, \
          cursor_rollbacks FROM state",
            "itttibiii",
        ),
        (
            "SELECT number, hash, parent_hash, timestamp, transactions, body_length, receipts_length, index_length, \
          body_sha256, receipts_sha256, index_sha256, body, receipts, index_segment FROM blocks ORDER BY number",
            "ibbiiiiibbbbbb",
        ),
        ("SELECT number, position, id FROM transactions ORDER BY number, position", "iib"),
        ("SELECT number, segment, starts_at, bytes FROM parts ORDER BY number, segment, starts_at", "iiib"),
        ("SELECT number, hash, segment, received FROM incomplete", "ibii"),
        ("SELECT first, last, why FROM gaps ORDER BY first", "iit"),
    ];
    let mut lines = Vec::new();
    Database::open(url)
        .unwrap()
        .transaction(|tx| {
            for (sql, columns) in tables {
                for row in tx.all(sql, &[])? {
                    let values = columns.chars().enumerate().map(|(at, column)| match column {
                        'i' => int(&row, at),
                        'b' => bytes(&row, at),
                        _ => text(&row, at),
                    });
                    lines.push(format!(
                        "{}: {}",
                        &sql[sql.find("FROM").unwrap()..],
                        values.collect::<Vec<_>>().join(", ")
                    ));
                }
            }
            Ok(())
        })
        .unwrap();
    lines
}

/// What happens to the chain, and how far the copy goes then: so many transactions, or to the head.
type Phase = (fn(&mut Chain), Option<usize>);

/// Blocks of all kinds, one over many pages, reorgs within it and behind it, a damaged block, and more pruned than indexed.
const SCENARIO: &[Phase] = &[
    (|chain| chain.append(1, &[100, 0, 900, 1_000, 300, 1]), None),
    (|chain| chain.append(1, &[200, 5_500, 50]), Some(3)),
    // In the middle of the long block, which goes, and the one before it.
    (
        |chain| {
            chain.roll_back_to(15);
            chain.append(2, &[150, 4_200, 10, 20]);
        },
        Some(3),
    ),
    (|_| {}, None),
    // The newest blocks go, and fewer come.
    (
        |chain| {
            chain.roll_back_to(16);
            chain.append(3, &[70]);
        },
        None,
    ),
    (
        |chain| {
            chain.append(3, &[10, 2_500, 30, 40]);
            chain.corrupt.insert(20);
        },
        Some(2),
    ),
    (|_| {}, None),
    // Behind the reader's back, as for one that does not acknowledge: in the middle of a block.
    (|chain| chain.append(3, &[3_000, 60]), Some(2)),
    (
        |chain| {
            chain.append(3, &[60; 8]);
            chain.prune_before(27);
        },
        None,
    ),
    // A reorg that the canister places one block too low.
    (
        |chain| {
            chain.exact = false;
            chain.roll_back_to(29);
            chain.append(4, &[500; 3]);
        },
        None,
    ),
    // The same, after which the oldest kept block is the first of the reorg.
    (
        |chain| {
            chain.roll_back_to(29);
            chain.append(5, &[500; 4]);
            chain.prune_before(30);
        },
        None,
    ),
    // One that began below what is kept, of which the canister knows no more: the newest block has another hash.
    (
        |chain| {
            chain.roll_back_to(31);
            chain.append(6, &[400; 9]);
            chain.prune_before(34);
        },
        None,
    ),
    (|chain| chain.append(6, &[2_000, 1]), None),
    // A reorg and pruning beyond it, of which the canister knows both: what is below the reorg stays.
    (
        |chain| {
            chain.exact = true;
            chain.roll_back_to(40);
            chain.append(7, &[300; 10]);
            chain.prune_before(45);
        },
        None,
    ),
];

/// Plays the scenario; dies at place number `die_at`, and goes on with the same database. Answers how many places there
/// were, which of them came, and what the database holds at the end.
fn play(url: &str, die_at: usize) -> Result<(usize, HashSet<Step>, Vec<String>)> {
    let client = Client::new(Fake::new());
    let mut watch: Option<Store> = None;
    let url_of_watch = url.to_string();
    client.transport().chain().on_ack = Some(Box::new(move |number, hash| {
        // Another connection sees nothing but what is committed.
        if watch.is_none() {
            watch = Some(Store::open(&url_of_watch, &origin(Payload::All))?);
        }
        let committed = watch.as_mut().context("no connection")?.hash_of(number)?;
        ensure!(committed.as_deref() == Some(hash), "block {number} is acknowledged, and not committed");
        Ok(())
    }));
    let (places, committed) = (Cell::new(0), Cell::new(0));
    let seen = RefCell::new(HashSet::new());
    let checkpoint = |step| -> Result<()> {
        places.set(places.get() + 1);
        seen.borrow_mut().insert(step);
        if step == Step::Committed {
            committed.set(committed.get() + 1);
        }
        if places.get() == die_at { Err(anyhow!("died")) } else { Ok(()) }
    };
    let open = || {
        Engine::open(
            &client,
            Store::open(url, &origin(Payload::All))?,
            Options { skip_damaged: true, ..options() },
            Hook(&checkpoint),
        )
    };
    let mut engine = open()?;
    for (change, transactions) in SCENARIO {
        change(&mut client.transport().chain());
        committed.set(0);
        loop {
            match engine.step() {
                Err(error) if error.to_string() == "died" => {
                    drop(engine);
                    engine = open()?;
                }
                Err(error) => return Err(error),
                Ok(Event::CaughtUp) => {
                    ensure!(transactions.is_none(), "at the head after {} transactions", committed.get());
                    break;
                }
                Ok(_) => {}
            }
            if transactions.is_some_and(|transactions| committed.get() >= transactions) {
                break;
            }
        }
    }
    drop(engine);
    Ok((places.get(), seen.take(), dump(url)))
}

struct Hook<'a>(&'a dyn Fn(Step) -> Result<()>);

impl Checkpoint for Hook<'_> {
    fn reached(&mut self, step: Step) -> Result<()> {
        (self.0)(step)
    }
}

fn a_run_that_dies_anywhere_ends_as_one_that_does_not(server: &mut impl Server) {
    let (places, seen, expected) = play(&server.fresh(), 0).unwrap();
    assert!(places > 100, "{places}");
    assert_eq!(seen.len(), 7, "{seen:?}");
    let gaps: Vec<&String> = expected.iter().filter(|line| line.starts_with("FROM gaps")).collect();
    let expected_gaps =
        ["Some(20), Some(20), it is lost", "Some(22), Some(26)", "Some(33), Some(33)", "Some(41), Some(44)"];
    assert_eq!(gaps.len(), expected_gaps.len(), "{gaps:#?}");
    assert!(gaps.iter().zip(expected_gaps).all(|(gap, expected)| gap.contains(expected)), "{gaps:#?}");
    assert!(expected.iter().filter(|line| line.starts_with("FROM blocks")).count() > 4, "{expected:#?}");
    for die_at in 1..=places {
        let (_, _, found) = play(&server.fresh(), die_at).unwrap_or_else(|error| panic!("{die_at}: {error:#}"));
        assert_eq!(found, expected, "after a death at place {die_at} of {places}");
    }
}

#[test]
fn a_run_on_sqlite_that_dies_anywhere_ends_as_one_that_does_not() {
    a_run_that_dies_anywhere_ends_as_one_that_does_not(&mut Sqlite::new());
}

#[test]
fn a_run_on_postgresql_that_dies_anywhere_ends_as_one_that_does_not() {
    if let Some(mut server) = Postgres::new("dies_anywhere") {
        a_run_that_dies_anywhere_ends_as_one_that_does_not(&mut server);
    }
}

#[test]
fn both_databases_end_with_the_same() {
    if let Some(mut server) = Postgres::new("same") {
        assert_eq!(play(&server.fresh(), 0).unwrap(), play(&Sqlite::new().fresh(), 0).unwrap());
    }
}

fn engine<'a>(client: &'a Client<Fake>, url: &str, options: Options) -> Engine<'a, Fake> {
    Engine::open(client, Store::open(url, &origin(Payload::All)).unwrap(), options, Onward).unwrap()
}

fn chain(bodies: &[usize]) -> Client<Fake> {
    let client = Client::new(Fake::new());
    client.transport().chain().append(1, bodies);
    client
}

/// A block's hash, its segments, and the length of its body as the row says.
type Stored = (Vec<u8>, [Vec<u8>; 3], i64);

/// What each stored block holds, put together as a reader does it.
fn stored(url: &str) -> HashMap<u64, Stored> {
    let mut database = Database::open(url).unwrap();
    database
        .transaction(|tx| {
            let mut blocks = HashMap::new();
            let sql = "SELECT number, hash, body, receipts, index_segment, body_length FROM blocks";
            for row in tx.all(sql, &[])? {
                let number: i64 = row.get(0)?;
                let mut segments: [Vec<u8>; 3] = Default::default();
                for (at, segment) in (0i64..).zip(&mut segments) {
                    let sql = "SELECT bytes FROM parts WHERE number = $1 AND segment = $2 ORDER BY starts_at";
                    match row.get::<Option<Vec<u8>>>(2 + at as usize)? {
                        Some(bytes) => *segment = bytes,
                        None => {
                            for part in tx.all(sql, &[number.into(), at.into()])? {
                                segment.extend(part.get::<Vec<u8>>(0)?);
                            }
                        }
                    }
                }
                blocks.insert(number as u64, (row.get(1)?, segments, row.get(5)?));
            }
            Ok(blocks)
        })
        .unwrap()
}

#[test]
fn what_is_stored_is_what_the_canister_has() {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new("stored").map(|server| Box::new(server) as Box<dyn Server>));
    for server in &mut servers {
        let url = server.fresh();
        let long = crate::index::schema::INLINE as usize;
        let client = chain(&[10, 3_000_000, long + 1_000_000, 0, 77]);
        let figures = {
            let mut engine = engine(&client, &url, Options { page_bytes: 0, ..options() });
            assert_eq!(engine.catch_up().unwrap(), Vec::<String>::new());
            engine.figures()
        };
        let found = stored(&url);
        let chain = client.transport().chain();
        assert_eq!((figures.blocks, figures.lag, found.len()), (5, 0, 5));
        assert_eq!((figures.acknowledged_before, chain.bound), (Some(15), 15));
        for (number, block) in &chain.blocks {
            let (hash, segments, length) = &found[number];
            assert!(*hash == block.hash && *segments == block.segments, "{number}");
            assert_eq!(*length as usize, block.segments[0].len());
        }
        let mut database = Database::open(&url).unwrap();
        let count = |tx: &mut crate::index::database::Tx<'_>, sql| tx.one(sql, &[])?.context("none")?.get::<i64>(0);
        let (parts, left) = database
            .transaction(|tx| {
                let parts = count(tx, "SELECT count(*) FROM parts WHERE number <> 12")?;
                Ok((parts, count(tx, "SELECT count(*) FROM incomplete")?))
            })
            .unwrap();
        assert_eq!((parts, left), (0, 0), "only a segment that no row holds is left in parts");
        let ids: Vec<u8> = database
            .transaction(|tx| {
                tx.one("SELECT id FROM transactions WHERE number = 14 AND position = 1", &[])?.context("")?.get(0)
            })
            .unwrap();
        assert_eq!(ids, crate::feed::ids_of(&chain.blocks[&14].segments[2])[1]);
    }
}

#[test]
fn headers_alone_are_verified_and_leave_no_payload() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 5_000, 0, 77]));
    let url = server.fresh();
    let store = Store::open(&url, &origin(Payload::Headers)).unwrap();
    let mut engine = Engine::open(&client, store, options(), Onward).unwrap();
    engine.catch_up().unwrap();
    let held = engine.store().held().unwrap();
    assert_eq!((held.first, held.last, held.blocks, held.gap_blocks), (Some(10), Some(13), 4, 0));
    assert_eq!(held.transactions, 3 + 1);
    assert!(stored(&url).values().all(|(_, segments, _)| segments.iter().all(Vec::is_empty)));
    drop(engine);
    let error = Store::open(&url, &origin(Payload::All)).err().unwrap().to_string();
    assert!(error.contains("--payload headers"), "{error}");
    client.transport().chain().append(1, &[3_000]);
    client.transport().chain().blocks.get_mut(&14).unwrap().digests[0][0] ^= 1;
    let store = Store::open(&url, &origin(Payload::Headers)).unwrap();
    let mut engine = Engine::open(&client, store, options(), Onward).unwrap();
    assert!(engine.catch_up().unwrap_err().to_string().contains("block 14 is damaged"));
}

/// What is stored may exist nowhere else: a reset ends the run until the operator has said that all of it may go.
#[test]
fn a_reset_changes_nothing_until_it_is_accepted_and_then_the_new_chain_is_copied() {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new("reset").map(|server| Box::new(server) as Box<dyn Server>));
    for server in &mut servers {
        // Lower than before, the same number, in the midst, higher; with a reorg before, and in the middle of a block.
        for (first, reorg, in_block) in
            [(3, false, false), (10, true, false), (10, false, true), (12, true, true), (90, false, true)]
        {
            let what = format!("begins at {first}, reorg {reorg}, in a block {in_block}");
            let url = server.fresh();
            let client = chain(&[10, 500, 2_000, 7, 9]);
            if reorg {
                client.transport().chain().roll_back_to(12);
                client.transport().chain().append(2, &[70, 80]);
            }
            let mut running = engine(&client, &url, options());
            running.catch_up().unwrap();
            if in_block {
                client.transport().chain().append(1, &[5_500]);
                (0..4).for_each(|_| drop(running.step().unwrap()));
            }
            let before = dump(&url);
            assert_eq!(before.iter().any(|line| line.starts_with("FROM incomplete")), in_block, "{what}");
            let is_refused = |running: &mut Engine<'_, Fake>| {
                for _ in 0..2 {
                    let refused = running.catch_up().unwrap_err().to_string();
                    assert!(
                        refused.contains("--accept-reset") && refused.contains("Nothing was changed"),
                        "{what}: {refused}"
                    );
                }
                assert_eq!(dump(&url), before, "{what}");
            };
            client.transport().chain().reset(first);
            is_refused(&mut running);
            is_refused(&mut engine(&client, &url, options()));
            client.transport().chain().append(9, &[100, 3_000, 0, 44]);
            is_refused(&mut running);
            is_refused(&mut engine(&client, &url, Options { skip_damaged: true, ..options() }));
            drop(running);

            let mut accepting = engine(&client, &url, Options { accept_reset: true, ..options() });
            let notes = accepting.catch_up().unwrap();
            let last = notes.last().map(String::as_str);
            assert_eq!(
                last,
                Some("the chain was reset: 5 blocks of the one before are taken out"),
                "{what}: {notes:?}"
            );
            let figures = accepting.figures();
            assert_eq!((figures.blocks, figures.removed_blocks, figures.lag), (4, 5, 0), "{what}");
            assert_eq!(accepting.catch_up().unwrap(), Vec::<String>::new(), "{what}: it is done");
            let held = accepting.store().held().unwrap();
            assert_eq!(
                (held.first, held.last, held.blocks, held.gap_blocks),
                (Some(first), Some(first + 3), 4, 0),
                "{what}"
            );
            drop(accepting);
            let (found, chain) = (stored(&url), client.transport().chain());
            assert_eq!((found.len(), chain.bound), (4, first + 4), "{what}");
            for (number, block) in &chain.blocks {
                assert!(found[number].0 == block.hash && found[number].1 == block.segments, "{what}: {number}");
            }
        }
    }
}

/// Where the new chain has no block yet the old ones go all the same, and its first is copied when it comes.
#[test]
fn an_accepted_reset_of_a_chain_without_blocks_leaves_an_empty_copy() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 500]));
    let url = server.fresh();
    engine(&client, &url, options()).catch_up().unwrap();
    client.transport().chain().reset(5);
    let mut accepting = engine(&client, &url, Options { accept_reset: true, ..options() });
    let notes = accepting.catch_up().unwrap();
    assert!(notes.last().unwrap().contains("2 blocks of the one before are taken out"), "{notes:?}");
    assert_eq!(accepting.store().held().unwrap().blocks, 0);
    client.transport().chain().append(3, &[10]);
    accepting.catch_up().unwrap();
    assert_eq!((accepting.tip(), accepting.store().held().unwrap().blocks), (Some(5), 1));
}

#[test]
fn the_database_of_another_canister_or_version_is_refused() {
    let mut server = Sqlite::new();
    let url = server.fresh();
    Store::open(&url, &origin(Payload::All)).unwrap();
    let other = Origin { canister: "2vxsx-fae".into(), ..origin(Payload::All) };
    let error = Store::open(&url, &other).err().unwrap().to_string();
    assert!(error.contains("aaaaa-aa") && error.contains("2vxsx-fae"), "{error}");
    let mut database = Database::open(&url).unwrap();
    database.transaction(|tx| tx.execute("UPDATE state SET schema_version = 9", &[])).unwrap();
    assert!(Store::open(&url, &origin(Payload::All)).err().unwrap().to_string().contains("schema 9"));
}

#[test]
fn two_indexers_on_one_database_do_not_mix() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 500, 2_000]));
    let url = server.fresh();
    let (mut one, mut two) = (engine(&client, &url, options()), engine(&client, &url, options()));
    one.catch_up().unwrap();
    let error = two.catch_up().unwrap_err().to_string();
    assert!(error.contains("another indexer"), "{error}");
}

#[test]
fn a_replica_that_is_late_is_asked_again_and_changes_nothing() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20, 30]));
    let url = server.fresh();
    let mut engine = engine(&client, &url, options());
    engine.catch_up().unwrap();
    let before = dump(&url);
    let blocks = client.transport().chain().blocks.split_off(&12);
    let notes = engine.catch_up().unwrap();
    assert!(notes.iter().any(|note| note.contains("block 11") && note.contains("late")), "{notes:?}");
    assert_eq!(dump(&url), before);
    client.transport().chain().blocks.extend(blocks);
    client.transport().chain().append(1, &[40]);
    assert_eq!(engine.catch_up().unwrap(), Vec::<String>::new());
    assert_eq!((engine.tip(), engine.figures().reorgs), (Some(13), 0));
}

#[test]
fn what_was_pruned_away_is_a_gap_and_said_to_be_one() {
    for corrupt in [false, true] {
        let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
        let url = server.fresh();
        let mut reader = engine(&client, &url, Options { ack_every: None, skip_damaged: true, ..options() });
        reader.catch_up().unwrap();
        client.transport().chain().append(1, &[20; 10]);
        client.transport().chain().prune_before(20);
        if corrupt {
            // The copy begins anew with a block that cannot be read.
            client.transport().chain().corrupt.insert(20);
        }
        let notes = reader.catch_up().unwrap();
        assert!(notes[0].contains("block 15 was pruned before it was indexed"), "{notes:?}");
        let gap = if corrupt { 6 } else { 5 };
        let held = reader.store().held().unwrap();
        assert_eq!((held.first, held.last, held.blocks, held.gap_blocks), (Some(10), Some(24), 15 - gap, gap));
        assert_eq!(reader.figures().gap_blocks, gap);
        // What is stored stays, though it is nowhere else any more.
        assert!(reader.store().hash_of(14).unwrap().is_some());
    }
}

#[test]
fn an_ancestor_that_is_another_block_here_changes_nothing() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
    let url = server.fresh();
    engine(&client, &url, options()).catch_up().unwrap();
    let before = dump(&url);
    // Installed anew: other blocks under the same numbers, and a rollback of its own.
    let anew = Client::new(Fake::new());
    anew.transport().chain().append(9, &[10; 5]);
    anew.transport().chain().roll_back_to(12);
    anew.transport().chain().append(8, &[10; 5]);
    let mut engine = engine(&anew, &url, Options { ack_every: None, ..options() });
    let error = engine.catch_up().unwrap_err().to_string();
    assert!(error.contains("block 12") && error.contains("Nothing was changed"), "{error}");
    assert_eq!(dump(&url), before);
}

#[test]
fn what_the_canister_may_not_hand_out_changes_nothing() {
    type Lie = fn(&mut ExportPage);
    let lies: [(&str, Lie); 6] = [
        ("left out", |page| drop(page.chunks.drain(..3))),
        ("comes next", |page| drop(page.chunks.remove(1))),
        ("two blocks", |page| page.chunks[1].timestamp += 1),
        ("not where its chunks end", |page| {
            page.cursor = page.cursor.take().map(|at| ExportCursor { number: 0, ..at })
        }),
        ("not where its chunks end", |page| page.cursor = None),
        ("another parent", |page| page.chunks[0].parent_hash[0] ^= 1),
    ];
    for (why, lie) in lies {
        let (mut server, client) = (Sqlite::new(), chain(&[10]));
        let url = server.fresh();
        engine(&client, &url, options()).catch_up().unwrap();
        client.transport().chain().append(1, &[20, 30]);
        let before = dump(&url);
        client.transport().chain().garble = Some(Box::new(lie));
        let error = engine(&client, &url, options()).catch_up().unwrap_err().to_string();
        assert!(error.contains(why), "{error} is not {why}");
        assert_eq!(dump(&url), before);
        client.transport().chain().garble = None;
        engine(&client, &url, options()).catch_up().unwrap();
    }
}

#[test]
fn a_wrong_byte_is_noticed_in_every_segment_whole_or_in_parts() {
    for (body, number) in [(20, 11), (3_000, 11)] {
        for segment in 0..3 {
            let (mut server, client) = (Sqlite::new(), chain(&[10, body, 30]));
            let url = server.fresh();
            let flip = move |page: &mut ExportPage| {
                let chunks = page.chunks.iter_mut().filter(|chunk| (chunk.number, chunk.segment) == (number, segment));
                chunks.filter(|chunk| chunk.offset == 0).for_each(|chunk| chunk.bytes[0] ^= 1);
            };
            client.transport().chain().garble = Some(Box::new(flip));
            let error = engine(&client, &url, options()).catch_up().unwrap_err().to_string();
            assert!(error.contains("block 11 is damaged"), "{error}");
            assert_eq!(client.transport().chain().bound, 0, "nothing of this run was acknowledged");
            // The block is asked for again from its start.
            client.transport().chain().garble = None;
            let mut honest = engine(&client, &url, options());
            honest.catch_up().unwrap();
            assert_eq!((honest.figures().blocks, honest.tip()), (2, Some(12)));
        }
    }
}

#[test]
fn damaged_blocks_are_left_out_where_that_is_asked_for() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20, 3_000, 30, 5_000, 40]));
    {
        let mut chain = client.transport().chain();
        chain.corrupt.insert(11);
        chain.blocks.get_mut(&12).unwrap().digests[0][0] ^= 1;
        chain.blocks.get_mut(&14).unwrap().segments[2] = vec![9; 40];
        let digest = crate::feed::sha256(&[9; 40]).to_vec();
        chain.blocks.get_mut(&14).unwrap().digests[2] = digest;
    }
    let url = server.fresh();
    let error = engine(&client, &url, options()).catch_up().unwrap_err().to_string();
    assert!(error.contains("block 11") && error.contains("--skip-damaged"), "{error}");
    let mut engine = engine(&client, &url, Options { skip_damaged: true, ..options() });
    let notes = engine.catch_up().unwrap();
    assert_eq!(notes.len(), 3, "{notes:?}");
    let figures = engine.figures();
    assert_eq!((figures.blocks, figures.gaps, figures.gap_blocks, figures.lag), (2, 3, 3, 0));
    assert_eq!(client.transport().chain().bound, 16);
    let held = engine.store().held().unwrap();
    assert_eq!((held.blocks, held.gap_blocks), (3, 3));
    // A damaged head is waited at, and passed when a block follows.
    client.transport().chain().append(1, &[10]);
    client.transport().chain().corrupt.insert(16);
    let notes = engine.catch_up().unwrap();
    assert!(notes.iter().any(|note| note.contains("cannot read its head, block 16")), "{notes:?}");
    client.transport().chain().append(1, &[10]);
    assert_eq!(engine.catch_up().unwrap().len(), 1);
    assert_eq!(engine.tip(), Some(17));
}

#[test]
fn one_that_is_not_registered_is_told_how_to_be() {
    let (mut server, client) = (Sqlite::new(), chain(&[10]));
    let url = server.fresh();
    client.transport().chain().registered = false;
    let error = engine(&client, &url, options()).catch_up().unwrap_err().to_string();
    let principal = client.transport().principal(Caller::Exporter).to_string();
    assert!(error.contains(&principal) && error.contains("register_exporter(record"), "{error}");
    let mut reader = engine(&client, &url, Options { ack_every: None, ..options() });
    reader.catch_up().unwrap();
    assert_eq!((reader.figures().acks, reader.tip()), (0, Some(10)));
}

#[test]
fn the_database_of_a_chain_that_never_was_is_left_alone() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20]));
    let url = server.fresh();
    engine(&client, &url, options()).catch_up().unwrap();
    let before = dump(&url);
    struct Forgetful;
    impl Transport for Forgetful {
        fn update(&self, _: Caller, _: &str, _: Vec<u8>) -> Result<Vec<u8>> {
            Ok(candid::encode_one(Err::<u64, _>(AckError::AboveHead { head: None }))?)
        }
        fn query(&self, _: &str, _: Vec<u8>) -> Result<Vec<u8>> {
            Ok(candid::encode_one(Err::<ExportPage, _>(ExportError::BadCursor { why: "no such block".into() }))?)
        }
        fn principal(&self, _: Caller) -> Principal {
            Principal::anonymous()
        }
    }
    let other = Client::new(Forgetful);
    let store = Store::open(&url, &origin(Payload::All)).unwrap();
    let error = Engine::open(&other, store, options(), Onward).unwrap().catch_up().unwrap_err().to_string();
    assert!(error.contains("no such block") && error.contains("Nothing was changed"), "{error}");
    assert_eq!(dump(&url), before);
}

#[test]
fn a_reorg_between_storing_and_acknowledging_is_followed() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20]));
    let url = server.fresh();
    let mut engine = engine(&client, &url, options());
    // Hands out block 11, and another one comes in its place before it is acknowledged.
    engine.step().unwrap();
    engine.step().unwrap();
    client.transport().chain().roll_back_to(10);
    client.transport().chain().append(2, &[20]);
    // The reorg is told of with the next page, and followed.
    let notes = engine.catch_up().unwrap();
    assert!(notes.len() == 2 && notes[0].contains("not acknowledged") && notes[1].contains("reorganised"), "{notes:?}");
    assert_eq!(engine.figures().reorgs, 1);
    assert_eq!(client.transport().chain().bound, 12);
}

#[test]
fn the_lag_is_what_the_canister_has_more() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
    let url = server.fresh();
    let mut engine = engine(&client, &url, Options { page_bytes: 30, ..options() });
    engine.step().unwrap();
    assert_eq!((engine.figures().lag, engine.figures().head), (5, Some(14)));
    engine.catch_up().unwrap();
    assert_eq!((engine.figures().lag, engine.figures().largest_lag), (0, 5));
}

//! Readers of the database: `coppice get`, and the page `docs/reference/database.md`.

use super::*;
use crate::get::archive;
use crate::get::chain::Page;
use crate::get::get;
use crate::get::query::{Order, Wanted};
use crate::get::result::Found;
use ic_coppice_interface::segments::{Index, Receipts, encode_index, encode_receipts};
use std::collections::BTreeSet;

fn servers(test: &str) -> Vec<Box<dyn Server>> {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new(test).map(|server| Box::new(server) as Box<dyn Server>));
    servers
}

fn read(url: &str, wanted: &Wanted, cursor: Option<&str>, limit: u32) -> Result<Found> {
    let page = Page { cursor: cursor.map(str::to_string), limit };
    archive::read(url, |archive| get(archive, wanted, Order::Internal, &page))
}

fn error(url: &str, wanted: &Wanted) -> String {
    format!("{:#}", read(url, wanted, None, 20).expect_err("there is no such thing"))
}

/// Returns number, position and id of each transaction over all pages, and the number of pages.
fn pages(url: &str, wanted: &Wanted, limit: u32) -> (Vec<(u64, u32, String)>, usize) {
    let (mut all, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let found = read(url, wanted, cursor.as_deref(), limit).unwrap();
        assert!(found.transactions.len() <= limit as usize);
        all.extend(found.transactions.into_iter().map(|of| (of.number, of.position, of.id)));
        pages += 1;
        cursor = found.cursor;
        if cursor.is_none() {
            return (all, pages);
        }
    }
}

/// A transaction: its id, receipt and keys.
type Sent<'a> = ([u8; 32], &'a [u8], &'a [&'a [u8]]);

fn append(chain: &mut Chain, transactions: &[Sent<'_>]) {
    chain.append(1, &[40]);
    let head = chain.head().unwrap();
    let block = chain.blocks.get_mut(&head).unwrap();
    let keys: Vec<(u32, &[u8])> =
        (0..).zip(transactions).flat_map(|(at, (_, _, keys))| keys.iter().map(move |key| (at, *key))).collect();
    block.segments[1] =
        encode_receipts(&transactions.iter().map(|(_, receipt, _)| receipt).collect::<Vec<_>>()).unwrap();
    block.segments[2] = encode_index(transactions.iter().map(|(id, ..)| *id), keys.into_iter()).unwrap();
    block.digests = block.segments.each_ref().map(|segment| crate::feed::sha256(segment).to_vec());
}

/// Blocks 10 to 13: an id in three places, two of them in one block, and a key in four.
fn chain_with_repetitions() -> Client<Fake> {
    let client = Client::new(Fake::new());
    let mut chain = client.transport().chain();
    append(&mut chain, &[([1; 32], b"a", &[b"x"]), ([2; 32], b"", &[])]);
    append(&mut chain, &[([3; 32], b"b", &[b"y", b"x", b"x"])]);
    append(&mut chain, &[([1; 32], b"c", &[b"x", b"\xff"]), ([1; 32], b"d", &[b"x"]), ([4; 32], b"e", &[])]);
    append(&mut chain, &[]);
    drop(chain);
    client
}

#[test]
fn everything_is_found_newest_first_in_pages_of_any_size() {
    for server in &mut servers("get") {
        let (url, client) = (server.fresh(), chain_with_repetitions());
        engine(&client, &url, options()).settle().unwrap();
        let id = |byte: u8| format!("{byte:02x}").repeat(32);
        let places =
            |all: &[(u64, u32, u8)]| all.iter().map(|&(number, at, of)| (number, at, id(of))).collect::<Vec<_>>();
        for (wanted, expected) in [
            (Wanted::Transaction([1; 32]), places(&[(12, 1, 1), (12, 0, 1), (10, 0, 1)])),
            (Wanted::Transaction([2; 32]), places(&[(10, 1, 2)])),
            (Wanted::Key(b"x".to_vec()), places(&[(12, 1, 1), (12, 0, 1), (11, 0, 3), (10, 0, 1)])),
            (Wanted::Key(b"y".to_vec()), places(&[(11, 0, 3)])),
            (Wanted::Block(12), places(&[(12, 0, 1), (12, 1, 1), (12, 2, 4)])),
            (Wanted::Block(13), Vec::new()),
        ] {
            for limit in 1..6 {
                let (found, pages) = pages(&url, &wanted, limit);
                assert_eq!(found, expected, "{wanted:?}");
                assert_eq!(pages, expected.len().div_ceil(limit as usize).max(1), "{wanted:?} by {limit}");
            }
        }
        let found = read(&url, &Wanted::Transaction([1; 32]), None, 20).unwrap();
        let whole: Vec<_> = found.transactions.iter().map(|of| of.whole.as_ref().unwrap()).collect();
        let receipts: Vec<_> = whole.iter().map(|whole| whole.receipt.clone().flatten().unwrap()).collect();
        assert_eq!(receipts, ["64", "63", "61"]);
        let keys: Vec<_> = whole.iter().map(|whole| whole.keys.clone().unwrap()).collect();
        assert_eq!(keys, [vec!["x"], vec!["x", "0xff"], vec!["x"]]);
        assert!(whole.iter().all(|whole| whole.bitcoin.is_none()) && whole[0].of == 3);
        let block = read(&url, &Wanted::Block(11), None, 20).unwrap().block.unwrap();
        let chain = client.transport().chain();
        assert_eq!(block.hash, crate::verify::hex(&chain.blocks[&11].hash));
        assert_eq!((block.transactions, block.keys, block.timestamp_secs), (1, Some(3), u64::MAX - 11));
        assert!(block.confirmed);
    }
}

#[test]
fn list_of_a_key_follows_a_reorg() {
    for server in &mut servers("get_reorg") {
        let (url, client) = (server.fresh(), chain_with_repetitions());
        engine(&client, &url, options()).settle().unwrap();
        let wanted = Wanted::Key(b"x".to_vec());
        assert_eq!(read(&url, &wanted, None, 2).unwrap().cursor.as_deref(), Some("12:0"));
        client.transport().chain().roll_back_to(10);
        append(&mut client.transport().chain(), &[([7; 32], b"", &[b"x"])]);
        engine(&client, &url, options()).settle().unwrap();
        let all = pages(&url, &wanted, 1).0;
        assert_eq!(all.iter().map(|of| (of.0, of.1)).collect::<Vec<_>>(), [(11, 0), (10, 0)]);
        assert!(error(&url, &Wanted::Transaction([3; 32])).contains("no block here has transaction 0303"));
        // The cursor of a page before the reorg.
        let older = read(&url, &wanted, Some("12:0"), 5).unwrap();
        assert_eq!(older.transactions.len(), 2);
    }
}

#[test]
fn missing_things_and_wrong_cursors_are_reported_with_the_reason() {
    for server in &mut servers("get_missing") {
        let (url, client) = (server.fresh(), chain(&[10; 3]));
        Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
        assert!(error(&url, &Wanted::Block(1)).contains("the database holds no block yet"));
        assert!(error(&url, &Wanted::Key(b"all".to_vec())).contains("no transaction has the key all"));
        engine(&client, &url, options()).settle().unwrap();
        client.transport().chain().append(1, &[10; 5]);
        client.transport().chain().prune_before(15);
        engine(&client, &url, options()).settle().unwrap();
        for (number, reason) in [
            (9, "the database holds blocks 10 to 17"),
            (14, "the database lacks blocks 13 to 14: pruned before it was indexed"),
            (18, "the database holds blocks 10 to 17"),
            (u64::MAX, "the database holds blocks 10 to 17"),
        ] {
            let why = error(&url, &Wanted::Block(number));
            assert_eq!(why, format!("there is no block {number} here: {reason}"));
        }
        let no_id = error(&url, &Wanted::Transaction([9; 32]));
        assert!(no_id.contains("in internal order; try --order display"), "{no_id}");
        assert!(error(&url, &Wanted::Key(b"none".to_vec())).contains("no transaction has the key none"));
        let mistyped = |digits: usize| error(&url, &Wanted::Key(vec![b'7'; digits]));
        let hint = |digits: usize| format!("an id has 64 hexadecimal digits, and this has {digits}");
        for (digits, helps) in [(55, false), (56, true), (63, true), (64, false)] {
            assert_eq!(mistyped(digits).contains(&hint(digits)), helps, "{digits}: {}", mistyped(digits));
        }
        for (wanted, cursor) in [
            (Wanted::Block(11), "x"),
            (Wanted::Block(11), "9"),
            (Wanted::Key(b"all".to_vec()), "9"),
            (Wanted::Transaction([9; 32]), "1:2:3"),
        ] {
            let why = format!("{:#}", read(&url, &wanted, Some(cursor), 20).unwrap_err());
            assert!(why.contains("begin without --cursor"), "{why}");
        }
    }
}

#[test]
fn database_without_payloads_has_blocks_and_ids_only() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20]));
    let url = server.fresh();
    let store = Store::open(Access::volatile(&url), &origin(Payload::Headers)).unwrap();
    Engine::open(&client, store, options(), Onward).unwrap().settle().unwrap();
    let found = read(&url, &Wanted::Block(11), None, 20).unwrap();
    assert_eq!((found.block.unwrap().keys, found.transactions.len()), (None, 3));
    let whole = found.transactions[1].whole.as_ref().unwrap();
    assert_eq!((&whole.keys, &whole.receipt), (&None, &None), "both are unknown");
    assert!(serde_json::to_value(whole).unwrap().get("receipt").is_none());
    assert!(error(&url, &Wanted::Key(b"all".to_vec())).contains("--payload headers"));
}

#[test]
fn long_segments_are_read_from_their_parts() {
    let (mut server, client) = (Sqlite::new(), Client::new(Fake::new()));
    let url = server.fresh();
    let long = vec![5; crate::index::schema::INLINE as usize];
    append(&mut client.transport().chain(), &[([1; 32], b"a", &[]), ([2; 32], &long, &[]), ([3; 32], b"z", &[])]);
    engine(&client, &url, Options { page_bytes: 0, ..options() }).settle().unwrap();
    let receipt =
        |byte| read(&url, &Wanted::Transaction([byte; 32]), None, 1).unwrap().transactions[0].whole.clone().unwrap();
    assert_eq!(receipt(3).receipt.flatten().unwrap(), "7a");
    assert_eq!(receipt(2).receipt.flatten().unwrap().len(), 2 * long.len());
}

#[test]
fn reader_opens_only_databases_of_the_indexer_and_changes_nothing() {
    let mut server = Sqlite::new();
    let wanted = Wanted::Block(10);
    let url = server.fresh();
    let why = error(&url, &wanted);
    assert!(why.contains("coppice index makes its tables"), "{why}");
    assert!(!std::path::Path::new(url.trim_start_matches("sqlite://")).exists(), "a reader creates no file");
    Database::open(Access::volatile(&url))
        .unwrap()
        .transaction(|tx| tx.define("CREATE TABLE other (n {key})"))
        .unwrap();
    assert!(error(&url, &wanted).contains("no tables of coppice index"));
    let (url, client) = (server.fresh(), chain(&[10]));
    // The indexer may be at work.
    let mut running = engine(&client, &url, options());
    running.settle().unwrap();
    let before = dump(&url);
    assert_eq!(read(&url, &wanted, None, 1).unwrap().chain, "SQLite");
    let written = archive::read(&url, |_| Ok(()))
        .and_then(|()| Database::open_to_read(&url).unwrap().transaction(|tx| tx.execute("DELETE FROM blocks", &[])));
    assert!(written.is_err() && dump(&url) == before);
    client.transport().chain().append(1, &[20]);
    running.settle().unwrap();
    assert!(read(&url, &Wanted::Block(11), None, 1).is_ok());
    let mut database = Database::open(Access::volatile(&url)).unwrap();
    let damage = "UPDATE blocks SET receipts = $1 WHERE number = 10";
    database.transaction(|tx| tx.execute(damage, &[(&[1; 3][..]).into()])).unwrap();
    assert!(error(&url, &wanted).contains("the receipts of block 10 are malformed"));
    database.transaction(|tx| tx.execute("UPDATE state SET schema_version = 5", &[])).unwrap();
    assert!(error(&url, &wanted).contains("schema 5"));
}

/// The page about the database.
const PAGE: &str = include_str!("../../../../docs/reference/database.md");

fn queries() -> Vec<&'static str> {
    PAGE.split("```sql\n").skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0)).collect()
}

/// Returns rows of integers, bytes in hexadecimal digits, and texts, as `columns` names them (i, b, t).
fn answer(url: &str, sql: &'static str, values: &[Value<'_>], columns: &str) -> Vec<String> {
    let rows = Database::open_to_read(url).unwrap().transaction(|tx| tx.all(sql, values)).unwrap();
    let cell = |row: &Row, (at, column)| match column {
        'i' => row.get::<i64>(at).unwrap().to_string(),
        'b' => crate::verify::hex(&row.get::<Vec<u8>>(at).unwrap()),
        _ => row.get(at).unwrap(),
    };
    rows.iter().map(|row| columns.chars().enumerate().map(|of| cell(row, of)).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn queries_of_the_page_answer_on_both_databases() {
    for server in &mut servers("page") {
        let (url, client) = (server.fresh(), chain_with_repetitions());
        engine(&client, &url, options()).settle().unwrap();
        client.transport().chain().append(1, &[1; 4]);
        client.transport().chain().prune_before(15);
        engine(&client, &url, Options { ack_every: None, page_bytes: 30, ..options() }).settle().unwrap();
        let [by_id, by_key, receipt, by_hash, lacking] = queries()[..] else { panic!("five queries") };
        let (one, x) = ([1u8; 32], b"x".as_slice());
        let chain = client.transport().chain();
        let hash = |number: u64| crate::verify::hex(&answer_hash(&url, number));
        let time = |number: u64| (u64::MAX - number).cast_signed();
        let at = |number, position| format!("{number} {position} {} {}", hash(number), time(number));
        assert_eq!(answer(&url, by_id, &[one.as_slice().into()], "iibi"), [at(12, 1), at(12, 0), at(10, 0)]);
        let last: Value<'_> = i64::MAX.into();
        let [ones, threes] = [1u8, 3].map(|byte| format!("{byte:02x}").repeat(32));
        let all = [format!("12 1 {ones}"), format!("12 0 {ones}"), format!("11 0 {threes}"), format!("10 0 {ones}")];
        assert_eq!(answer(&url, by_key, &[x.into(), last, last], "iib"), all);
        assert_eq!(answer(&url, by_key, &[x.into(), 12.into(), 0.into()], "iib"), all[2..]);
        assert_eq!(answer(&url, by_key, &[x.into(), 10.into(), 0.into()], "iib"), [""; 0]);
        assert_eq!(answer(&url, receipt, &[one.as_slice().into()], "iib"), ["12 1 64"]);
        let block = &chain.blocks[&15];
        let ids = crate::feed::ids_of(&block.segments[2]);
        let displayed = (0..).zip(ids).map(|(at, id)| format!("15 {at} {}", Order::Display.show(id)));
        assert_eq!(ids.len(), 3);
        assert_eq!(answer(&url, by_hash, &[block.hash.as_slice().into()], "iit"), displayed.collect::<Vec<_>>());
        assert_eq!(answer(&url, lacking, &[], "iit"), ["14 14 pruned before it was indexed"]);
    }
}

fn answer_hash(url: &str, number: u64) -> Vec<u8> {
    Store::open(Access::volatile(url), &origin(Payload::All)).unwrap().hash_of(number).unwrap().unwrap()
}

#[test]
fn queries_of_the_page_read_no_whole_table() {
    let mut server = Sqlite::new();
    let url = server.fresh();
    Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
    let looked_up = &queries()[..4];
    assert_eq!(looked_up.len(), 4);
    for sql in looked_up {
        let explain: &'static str = Box::leak(format!("EXPLAIN QUERY PLAN {sql}").into_boxed_str());
        let none: Vec<Value<'_>> = (0..explain.matches('$').count()).map(|_| Value::Int(None)).collect();
        let rows = Database::open(Access::volatile(&url)).unwrap().transaction(|tx| tx.all(explain, &none)).unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get::<String>(3).unwrap()).collect();
        let sorts = plan.iter().any(|step| !step.starts_with("SEARCH"));
        assert!(plan.iter().all(|step| !step.starts_with("SCAN")), "{sql}: {plan:?}");
        assert!(!sorts || sql.contains("blocks.hash = $1"), "only the transactions of one block are sorted: {plan:?}");
    }
}

/// The page names every table and view with all of its columns.
#[test]
fn page_names_every_table_with_its_columns() {
    for server in &mut servers("page_tables") {
        let url = server.fresh();
        Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
        let named = PAGE.lines().filter_map(|line| line.strip_prefix("| `")).map(|line| {
            let mut cells = line.split(" | ");
            let name = cells.next().unwrap().trim_end_matches('`').to_string();
            (name, cells.next().unwrap().replace('`', ""))
        });
        let named: Vec<(String, String)> = named.collect();
        let mut database = Database::open(Access::volatile(&url)).unwrap();
        for (table, columns) in &named {
            let sql: &'static str = Box::leak(format!("SELECT {columns} FROM {table}").into_boxed_str());
            database.transaction(|tx| tx.all(sql, &[]).map(drop)).unwrap_or_else(|error| panic!("{error:#}"));
        }
        let sql = match database.kind() {
            crate::index::database::Kind::Sqlite => "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')",
            crate::index::database::Kind::Postgres => {
                "SELECT CAST(table_name AS TEXT) FROM information_schema.tables WHERE table_schema = current_schema()"
            }
        };
        let tables = database.transaction(|tx| tx.all(sql, &[])).unwrap();
        let tables: BTreeSet<String> = tables.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(named.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>(), tables);
    }
}

#[test]
fn fake_blocks_of_these_tests_are_well_formed() {
    for block in chain_with_repetitions().transport().chain().blocks.values() {
        let index = Index::parse(&block.segments[2]).unwrap();
        assert!(Receipts::parse(&block.segments[1], index.transactions()).is_ok());
    }
}

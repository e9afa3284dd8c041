//! Rows of the tables `keys` and `receipts`: beside each block, made later, and removed with their block.

use super::*;
use ic_coppice_interface::segments::{Index, Receipts, encode_index, encode_receipts};
use std::collections::BTreeMap;

/// Points of a batch at which a run can die: before and within its transaction, and after the commit.
const BATCH_POINTS: usize = 4;
const ALL: Tables = Tables { keys: true, receipts: true };
const KEYS: Tables = Tables { keys: true, receipts: false };
const RECEIPTS: Tables = Tables { keys: false, receipts: true };

fn servers(test: &str) -> Vec<Box<dyn Server>> {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new(test).map(|server| Box::new(server) as Box<dyn Server>));
    servers
}

fn filling(tables: Tables) -> Options {
    Options { tables, accept_reset: true, ..options() }
}

/// Returns the lines of a dump that are of the two tables.
fn rows(url: &str) -> (Vec<String>, Vec<String>) {
    let lines = dump(url);
    let of = |table: &str| lines.iter().filter(|line| line.starts_with(table)).cloned().collect();
    (of("FROM keys "), of("FROM receipts "))
}

/// Returns the rows that the blocks with these numbers should have, in the form of a dump.
fn expected(chain: &Chain, numbers: impl Fn(u64) -> bool) -> (Vec<String>, Vec<String>) {
    let bytes = |bytes: &[u8]| format!("{} {:02x?}", bytes.len(), crate::feed::sha256(bytes));
    let (mut keys, mut receipts) = (BTreeMap::new(), Vec::new());
    for (number, block) in chain.blocks.iter().filter(|(number, _)| numbers(**number)) {
        let index = Index::parse(&block.segments[2]).unwrap();
        for key in index.each_key() {
            let line = format!(
                "FROM keys ORDER BY key, number, position: {}, Some({number}), Some({})",
                bytes(key.bytes),
                key.transaction
            );
            keys.insert((key.bytes.to_vec(), *number, key.transaction), line);
        }
        let segment = Receipts::parse(&block.segments[1], index.transactions()).unwrap();
        for (position, receipt) in (0..).map_while(|at| Some((at, segment.get(at)?))) {
            let place = format!("Some({number}), Some({position})");
            receipts.push(format!("FROM receipts ORDER BY number, position: {place}, {}", bytes(receipt)));
        }
    }
    (keys.into_values().collect(), receipts)
}

fn are_those_of(url: &str, client: &Client<Fake>, tables: Tables, numbers: impl Fn(u64) -> bool + Copy) {
    let (keys, receipts) = expected(&client.transport().chain(), numbers);
    assert!(!keys.is_empty() && !receipts.is_empty(), "nothing is compared");
    let none = Vec::new;
    let expected = (if tables.keys { keys } else { none() }, if tables.receipts { receipts } else { none() });
    assert_eq!(rows(url), expected, "{tables:?}");
}

#[test]
fn rows_come_with_their_blocks_in_the_tables_that_are_filled() {
    for server in &mut servers("rows") {
        for tables in [ALL, KEYS, RECEIPTS, Tables::NONE] {
            let (url, client) = (server.fresh(), chain(&[10, 500, 0, 77, 2_000, 1, 9, 30]));
            let mut running = engine(&client, &url, filling(tables));
            running.settle().unwrap();
            are_those_of(&url, &client, tables, |_| true);
            let held = running.store().held().unwrap();
            let lacking = |fills: bool| if fills { 0 } else { 8 };
            assert_eq!(held.blocks_without_keys, lacking(tables.keys));
            assert_eq!(held.blocks_without_receipts, lacking(tables.receipts));
            assert_eq!(running.figures().filled_blocks, 0);
        }
    }
}

#[test]
fn headers_alone_have_no_rows() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 500, 2_000]));
    let url = server.fresh();
    let store = Store::open(Access::volatile(&url), &origin(Payload::Headers)).unwrap();
    let mut running = Engine::open(&client, store, filling(ALL), Onward).unwrap();
    running.settle().unwrap();
    assert_eq!(rows(&url), (Vec::new(), Vec::new()));
    assert_eq!(running.store().held().unwrap().blocks_without_keys, 3);
}

/// Each run fills other tables, and a reorg, to a block that has rows or to one without, comes between.
#[test]
fn run_that_fills_another_table_makes_the_missing_rows_first() {
    for server in &mut servers("missing_rows") {
        for (head, stay) in [(15, 6), (11, 2)] {
            let (url, client) = (server.fresh(), chain(&[10; 4]));
            let run = |tables: Tables| {
                let mut running = engine(&client, &url, filling(tables));
                let notes = running.settle().unwrap();
                assert_eq!(notes.iter().any(|note| note.contains("lack rows")), running.figures().filled_blocks > 0);
                (running.figures().filled_blocks, running.figures().blocks)
            };
            assert_eq!(run(KEYS), (0, 4));
            client.transport().chain().append(1, &[20; 4]);
            assert_eq!(run(Tables::NONE), (0, 4));
            are_those_of(&url, &client, KEYS, |number| number < 14);
            client.transport().chain().roll_back_to(head);
            client.transport().chain().append(2, &[30; 3]);
            assert_eq!(run(RECEIPTS), (8, 3), "the rows are made before the reorg is known");
            let (keys, receipts) = rows(&url);
            let chain = || client.transport().chain();
            assert_eq!(receipts, expected(&chain(), |_| true).1);
            assert_eq!(keys, expected(&chain(), |number| number < 14.min(head + 1)).0);
            let blocks = stay + 3;
            let lacking = blocks - stay.min(4);
            assert_eq!(run(ALL), (lacking, 0));
            are_those_of(&url, &client, ALL, |_| true);
            assert_eq!(run(ALL), (0, 0));
        }
    }
}

#[test]
fn rows_of_orphaned_blocks_leave_both_tables() {
    for server in &mut servers("orphaned_rows") {
        let (url, client) = (server.fresh(), chain(&[10; 6]));
        let mut running = engine(&client, &url, filling(ALL));
        running.settle().unwrap();
        client.transport().chain().roll_back_to(12);
        client.transport().chain().append(2, &[70; 2]);
        running.settle().unwrap();
        are_those_of(&url, &client, ALL, |_| true);
        drop(running);
        client.transport().chain().reset(3);
        client.transport().chain().append(3, &[5; 6]);
        let mut running = engine(&client, &url, filling(ALL));
        running.settle().unwrap();
        are_those_of(&url, &client, ALL, |_| true);
        let held = running.store().held().unwrap();
        assert_eq!((held.blocks, held.blocks_without_keys, held.blocks_without_receipts), (6, 0, 0));
        assert!(held.orphaned_blocks > 0);
    }
}

#[test]
fn malformed_receipts_are_refused_with_their_block() {
    for long in [false, true] {
        let (mut server, client) = (Sqlite::new(), chain(&[10]));
        let url = server.fresh();
        client.transport().chain().append(1, &[20]);
        // A correct digest of a table with too many receipts.
        let mut receipts = encode_receipts(&[[1; 9]; 4]).unwrap();
        receipts.resize(if long { 5_000 } else { receipts.len() }, 0);
        let mut chain = client.transport().chain();
        let block = chain.blocks.get_mut(&11).unwrap();
        block.digests[1] = crate::feed::sha256(&receipts).to_vec();
        block.segments[1] = receipts;
        drop(chain);
        let error = engine(&client, &url, filling(Tables::NONE)).settle().unwrap_err().to_string();
        let expected = "block 11 is damaged: its receipts are malformed at byte 0: 4 receipts for 3 transactions";
        assert!(error.contains(expected), "{error}");
    }
}

/// A run that dies at any point of any batch continues with the next run, and ends with the same rows. On PostgreSQL, where each run copies
/// the blocks anew, it dies at the points of the first batch.
#[test]
fn making_of_rows_that_dies_anywhere_ends_alike() {
    for server in &mut servers("rows_die") {
        let client = Client::new(Fake::new());
        client.transport().chain().append(1, &vec![1; 600]);
        let kept = client.transport().chain().blocks.clone();
        let copied = |url: &str| {
            client.transport().chain().blocks = kept.clone();
            engine(&client, url, Options { page_bytes: 0, ..filling(Tables::NONE) }).settle().unwrap();
        };
        let make = |url: &str, die_at: usize| {
            let places = Cell::new(0);
            let checkpoint = |_| -> Result<()> {
                places.set(places.get() + 1);
                if places.get() == die_at { Err(anyhow!("died")) } else { Ok(()) }
            };
            let mut filled = 0;
            loop {
                let store = Store::open(Access::volatile(url), &origin(Payload::All)).unwrap();
                let mut running = Engine::open(&client, store, filling(ALL), Hook(&checkpoint)).unwrap();
                let ended = running.settle();
                filled += running.figures().filled_blocks;
                match ended {
                    Ok(_) => return (places.get(), filled),
                    Err(error) => assert_eq!(error.to_string(), "died"),
                }
            }
        };
        let url = server.fresh();
        copied(&url);
        let without_rows = server.copy_of(&url);
        let (places, filled) = make(&url, 0);
        assert_eq!(filled, 600);
        assert!(places > BATCH_POINTS, "{places} points are more than one batch");
        let whole = dump(&url);
        are_those_of(&url, &client, ALL, |_| true);
        for die_at in 1..=places.min(if without_rows.is_some() { 12 } else { BATCH_POINTS }) {
            let url = match &without_rows {
                Some(without_rows) => server.copy_of(without_rows).unwrap(),
                None => {
                    let url = server.fresh();
                    copied(&url);
                    url
                }
            };
            make(&url, die_at);
            assert!(dump(&url) == whole, "after a death at place {die_at}");
        }
    }
}

struct Hook<'a>(&'a dyn Fn(Step) -> Result<()>);

impl Checkpoint for Hook<'_> {
    fn reached(&mut self, step: Step) -> Result<()> {
        (self.0)(step)
    }
}

/// Blocks with as many keys and receipts as one statement takes, and one more or less; a long segment in parts; and the last number.
#[test]
fn rows_of_any_number_and_length_are_stored_and_made() {
    for server in &mut servers("many_rows") {
        let client = Client::new(Fake::new());
        let long = crate::index::schema::INLINE as usize;
        for (count, length) in
            [(1, 5), (255, 1), (256, 0), (257, 9), (1_000, 30), (3, long / 3 + 1), (2, long), (1, long + 1)]
        {
            let ids: Vec<[u8; 32]> = (0..count).map(|at: u32| crate::feed::sha256(&at.to_le_bytes())).collect();
            let keys: Vec<Vec<u8>> = (0..count).map(|at| at.to_be_bytes()[4 - at as usize % 5..].to_vec()).collect();
            let pairs: Vec<_> = (0..count).map(|at| (at, &*keys[at as usize])).collect();
            let index = encode_index(ids.iter().copied(), pairs.into_iter()).unwrap();
            let receipts = encode_receipts(&vec![vec![count as u8; length]; count as usize]).unwrap();
            let mut chain = client.transport().chain();
            chain.append(1, &[3]);
            let head = chain.head().unwrap();
            let block = chain.blocks.get_mut(&head).unwrap();
            block.segments = [Vec::new(), receipts, index];
            block.digests = block.segments.each_ref().map(|segment| crate::feed::sha256(segment).to_vec());
        }
        let url = server.fresh();
        engine(&client, &url, Options { page_bytes: 0, ..filling(ALL) }).settle().unwrap();
        let found = rows(&url);
        let expected = expected(&client.transport().chain(), |_| true);
        assert_eq!(found.0, expected.0);
        assert_eq!(found.1.len(), expected.1.len());
        let differ: Vec<_> = found.1.iter().zip(&expected.1).filter(|(found, expected)| found != expected).collect();
        assert!(differ.len() == 1 && differ[0].0.ends_with("none"), "one receipt is too long for a row: {differ:?}");
        let url = server.fresh();
        engine(&client, &url, Options { page_bytes: 0, ..filling(Tables::NONE) }).settle().unwrap();
        engine(&client, &url, filling(ALL)).settle().unwrap();
        assert!(rows(&url) == found, "rows that are made later are the same");
    }
}

#[test]
fn views_display_ids_and_hashes_with_their_bytes_reversed() {
    for server in &mut servers("views") {
        let (url, client) = (server.fresh(), chain(&[10, 500, 30]));
        engine(&client, &url, filling(ALL)).settle().unwrap();
        let reversed = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut database = Database::open(Access::volatile(&url)).unwrap();
        let texts = |tx: &mut crate::index::database::Tx<'_>, sql| -> Result<Vec<String>> {
            tx.all(sql, &[])?.iter().map(|row| row.get(0)).collect()
        };
        let (ids, hashes) = database
            .transaction(|tx| {
                let ids = texts(tx, "SELECT id FROM transactions_displayed WHERE number = 11 ORDER BY position")?;
                Ok((ids, texts(tx, "SELECT hash || ' ' || parent_hash FROM blocks_displayed ORDER BY number")?))
            })
            .unwrap();
        let chain = client.transport().chain();
        let expected = crate::feed::ids_of(&chain.blocks[&11].segments[2]).iter().map(|id| reversed(id));
        assert_eq!(ids, expected.collect::<Vec<_>>());
        let expected = chain.blocks.values().map(|of| format!("{} {}", reversed(&of.hash), reversed(&of.parent)));
        assert_eq!(hashes, expected.collect::<Vec<_>>());
    }
}

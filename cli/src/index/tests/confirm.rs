//! Unconfirmed blocks, and runs that acknowledge.

use super::*;
use crate::index::held::Held;
use coppice_interface::Role;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

fn reader() -> Options {
    Options { ack_every: None, ..options() }
}

/// A canister, and a replica whose queries show another chain.
struct Forked {
    canister: Fake,
    replica: Fake,
}

impl Forked {
    /// Creates both with blocks 10 to 14.
    fn new() -> Client<Self> {
        let forked = Self { canister: Fake::new(), replica: Fake::new() };
        forked.both(|chain| chain.append(1, &[10, 20, 2_500, 30, 40]));
        Client::new(forked)
    }

    fn both(&self, change: impl Fn(&mut Chain)) {
        change(&mut self.canister.chain());
        change(&mut self.replica.chain());
    }
}

impl Transport for Forked {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.canister.update(method, arg).await
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let of = if method == "export_blocks" { &self.replica } else { &self.canister };
        of.query(method, arg).await
    }
}

impl Reach for Forked {
    fn principal(&self, role: Role) -> Principal {
        self.canister.principal(role)
    }
}

fn open<'a, T: Reach>(client: &'a Client<T>, url: &str, options: Options) -> Engine<'a, T> {
    Engine::open(client, Store::open(Access::volatile(url), &origin(Payload::All)).unwrap(), options, Onward).unwrap()
}

fn held(url: &str) -> Held {
    Store::open(Access::volatile(url), &origin(Payload::All)).unwrap().held().unwrap()
}

/// Checks at each acknowledgement that all blocks up to it are stored as the canister has them.
fn watch_acks(canister: &Fake, url: &str) {
    let (url, mut store) = (url.to_string(), None);
    let truth: BTreeMap<u64, _> = canister.chain().blocks.clone();
    canister.chain().on_ack = Some(Box::new(move |number, _| {
        if store.is_none() {
            store = Some(Store::open(Access::volatile(&url), &origin(Payload::All))?);
        }
        ensure!(held(&url).unconfirmed_blocks == 0, "block {number} is acknowledged unconfirmed");
        for (number, (hash, segments, _)) in stored(&url).into_iter().filter(|(of, _)| *of <= number) {
            let truth = truth.get(&number).with_context(|| format!("there is no block {number}"))?;
            ensure!(truth.hash == hash && truth.segments == segments, "block {number} is acknowledged, but differs");
        }
        Ok(())
    }));
}

/// Asserts that all blocks of the canister are stored, acknowledged and confirmed.
fn is_whole(canister: &Fake, url: &str) {
    let (found, chain) = (stored(url), canister.chain());
    for (number, block) in &chain.blocks {
        let (hash, segments, _) = found.get(number).unwrap_or_else(|| panic!("block {number} is missing"));
        assert!(*hash == block.hash && *segments == block.segments, "block {number}");
    }
    assert_eq!((found.len(), chain.bound), (chain.blocks.len(), chain.head().unwrap() + 1));
    assert_eq!((held(url).unconfirmed_blocks, held(url).gap_blocks), (0, 0));
}

fn servers(test: &str) -> Vec<Box<dyn Server>> {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new(test).map(|server| Box::new(server) as Box<dyn Server>));
    servers
}

#[test]
fn blocks_by_query_are_confirmed_before_an_acknowledgement() {
    for server in &mut servers("confirm") {
        for by_query in [false, true] {
            let (url, client) = (server.fresh(), chain(&[10, 20, 2_500]));
            open(&client, &url, reader()).catch_up().unwrap();
            client.transport().chain().append(1, &[30; 10]);
            let mut first = open(&client, &url, if by_query { reader() } else { options() });
            first.catch_up().unwrap();
            drop(first);
            // The blocks of the first pages came by update calls.
            let unconfirmed = held(&url).unconfirmed_blocks;
            assert_eq!(unconfirmed > 0, by_query);
            watch_acks(client.transport(), &url);
            client.transport().chain().asked_headers.clear();
            let mut last = open(&client, &url, options());
            last.catch_up().unwrap();
            let figures = last.figures();
            assert_eq!((figures.confirmed, figures.removed_blocks, figures.unconfirmed), (unconfirmed, 0, 0));
            assert_eq!(client.transport().chain().asked_headers.is_empty(), unconfirmed == 0);
            is_whole(client.transport(), &url);
            assert_eq!(held(&url).orphaned_blocks, 0);
        }
    }
}

type Forge = fn(&mut ExportPage);

/// Forgeries of a block that keep its hash, so that a reader cannot detect them in the page.
const FORGERIES: [(&str, Forge); 4] = [
    ("payload", |page| {
        for chunk in page.chunks.iter_mut().filter(|chunk| chunk.segment == 0 && !chunk.bytes.is_empty()) {
            chunk.bytes.iter_mut().for_each(|byte| *byte ^= 1);
            chunk.sha256 = ByteBuf::from(crate::feed::sha256(&chunk.bytes));
        }
    }),
    ("receipts", |page| {
        for chunk in page.chunks.iter_mut().filter(|chunk| chunk.segment == 1) {
            chunk.bytes.last_mut().into_iter().for_each(|byte| *byte ^= 1);
            chunk.sha256 = ByteBuf::from(crate::feed::sha256(&chunk.bytes));
        }
    }),
    ("ids", |page| {
        for chunk in page.chunks.iter_mut().filter(|chunk| chunk.segment == 2) {
            chunk.bytes.get_mut(4).into_iter().for_each(|byte| *byte ^= 1);
            chunk.sha256 = ByteBuf::from(crate::feed::sha256(&chunk.bytes));
        }
    }),
    ("time", |page| page.chunks.iter_mut().for_each(|chunk| chunk.timestamp_secs -= 1)),
];

/// Creates a database with true blocks, forged blocks, and true blocks at the head.
fn forged(client: &Client<Fake>, url: &str, payload: Payload, forge: Forge) {
    let open = || {
        Engine::open(client, Store::open(Access::volatile(url), &origin(payload)).unwrap(), reader(), Onward).unwrap()
    };
    let mut engine = open();
    engine.catch_up().unwrap();
    client.transport().chain().append(1, &[10, 20]);
    engine.catch_up().unwrap();
    client.transport().chain().lie = Some(Box::new(move |_, mut answer| {
        if let Ok(page) = &mut answer {
            forge(page);
            let cursor =
                page.chunks.last().map(|last| crate::index::assemble::cursor_after(last.number, &last.hash, 0));
            page.cursor = cursor.or(page.cursor.take());
        }
        answer
    }));
    client.transport().chain().append(1, &[50, 60, 70]);
    engine.catch_up().unwrap();
    client.transport().chain().lie = None;
    client.transport().chain().append(1, &[80; 6]);
    engine.catch_up().unwrap();
}

#[test]
fn forged_blocks_are_orphaned_and_replaced() {
    for server in &mut servers("forged") {
        for (what, forge) in FORGERIES {
            for payload in [Payload::All, Payload::Headers] {
                let (url, client) = (server.fresh(), chain(&[10, 20, 2_500]));
                forged(&client, &url, payload, forge);
                if payload == Payload::All {
                    watch_acks(client.transport(), &url);
                }
                let store = Store::open(Access::volatile(&url), &origin(payload)).unwrap();
                let mut engine = Engine::open(&client, store, options(), Onward).unwrap();
                let notes = engine.catch_up().unwrap();
                assert!(notes.iter().any(|note| note.contains("asked for again: block 15")), "{what}: {notes:?}");
                let figures = engine.figures();
                assert_eq!((figures.removed_blocks, figures.unconfirmed, figures.reorgs), (9, 1, 0), "{what}");
                let held = engine.store().held().unwrap();
                assert_eq!((held.blocks, held.orphaned_blocks, held.unconfirmed_blocks), (14, 9, 0), "{what}");
                assert_eq!(client.transport().chain().bound, 24, "{what}");
                drop(engine);
                if payload == Payload::All {
                    is_whole(client.transport(), &url);
                }
            }
        }
    }
}

#[test]
fn payload_that_differs_from_its_digest_is_replaced() {
    let long = crate::index::schema::INLINE as usize + 7;
    for sql in [
        "UPDATE blocks SET body = $1 WHERE number = 13",
        "UPDATE blocks SET receipts = $1 WHERE number = 13",
        "UPDATE blocks SET index_segment = $1 WHERE number = 14",
        "UPDATE parts SET bytes = $1 WHERE number = 15 AND starts_at = 0",
    ] {
        let (mut server, client) = (Sqlite::new(), chain(&[10]));
        let url = server.fresh();
        let mut engine = open(&client, &url, Options { page_bytes: 0, ..reader() });
        engine.catch_up().unwrap();
        client.transport().chain().append(1, &[20, 30, 40, 50, long]);
        engine.catch_up().unwrap();
        drop(engine);
        let mut database = Database::open(Access::volatile(&url)).unwrap();
        let bytes = vec![9u8; 1_900_000];
        assert_eq!(database.transaction(|tx| tx.execute(sql, &[bytes.as_slice().into()])).unwrap(), 1, "{sql}");
        drop(database);
        watch_acks(client.transport(), &url);
        let mut engine = open(&client, &url, Options { page_bytes: 0, ..options() });
        let notes = engine.catch_up().unwrap();
        assert!(notes[0].contains("does not match its digest"), "{notes:?}");
        drop(engine);
        is_whole(client.transport(), &url);
    }
}

/// Reads up to a block without a role, so that update calls are refused.
fn read_from_the_replica(client: &Client<Forked>, url: &str, to: u64) {
    let canister = &client.transport().canister;
    canister.chain().registered = false;
    let mut engine = open(client, url, reader());
    while engine.tip() < Some(to) {
        engine.step().unwrap();
    }
    canister.chain().registered = true;
}

/// A replica has made-up blocks: as many as the canister, fewer, or more.
#[test]
fn made_up_blocks_are_orphaned() {
    for server in &mut servers("made_up") {
        for made_up in [1, 4, 9] {
            let (url, client) = (server.fresh(), Forked::new());
            let Forked { canister, replica } = client.transport();
            open(&client, &url, reader()).catch_up().unwrap();
            canister.chain().append(1, &[50; 4]);
            replica.chain().append(2, &vec![60; made_up]);
            read_from_the_replica(&client, &url, 14 + made_up as u64);
            watch_acks(canister, &url);
            let mut engine = open(&client, &url, options());
            engine.catch_up().unwrap();
            drop(engine);
            is_whole(canister, &url);
        }
        // All blocks of the canister, and made-up ones above.
        let (url, client) = (server.fresh(), Forked::new());
        let Forked { canister, replica } = client.transport();
        open(&client, &url, reader()).catch_up().unwrap();
        replica.chain().append(2, &[60; 3]);
        read_from_the_replica(&client, &url, 17);
        watch_acks(canister, &url);
        let mut engine = open(&client, &url, options());
        let notes = engine.catch_up().unwrap();
        assert!(notes.iter().any(|note| note.contains("ends at block 14")), "{notes:?}");
        drop(engine);
        is_whole(canister, &url);
    }
}

#[test]
fn unconfirmed_blocks_that_were_pruned_are_listed_and_delay_nothing() {
    for server in &mut servers("pruned") {
        let (url, client) = (server.fresh(), chain(&[10, 20]));
        let mut engine = open(&client, &url, reader());
        engine.catch_up().unwrap();
        client.transport().chain().append(1, &[30; 10]);
        engine.catch_up().unwrap();
        drop(engine);
        client.transport().chain().prune_before(18);
        for run in 0..3 {
            client.transport().chain().asked_headers.clear();
            client.transport().chain().append(1, &[40]);
            let mut engine = open(&client, &url, options());
            let notes = engine.catch_up().unwrap();
            assert!(notes.len() == 1 && notes[0].ends_with("cannot read them: 12 to 17"), "{notes:?}");
            assert_eq!(engine.store().unconfirmed_ranges(9).unwrap(), [(12, 17)]);
            let (held, figures) = (engine.store().held().unwrap(), engine.figures());
            assert_eq!((held.unconfirmed_blocks, held.blocks, held.gap_blocks), (6, 13 + run, 0));
            assert_eq!((figures.confirmed, figures.removed_blocks), (if run == 0 { 4 } else { 0 }, 0));
            assert_eq!(client.transport().chain().bound, 23 + run);
            let asked: &[u64] = if run == 0 { &[12, 18] } else { &[12] };
            assert_eq!(client.transport().chain().asked_headers, asked, "one call if no unconfirmed block is left");
        }
        // Confirmed rows in between.
        let sql = "UPDATE blocks SET confirmed = 1 WHERE number IN (13, 16)";
        let mut database = Database::open(Access::volatile(&url)).unwrap();
        database.transaction(|tx| tx.execute(sql, &[])).unwrap();
        drop(database);
        let ranges = |most| {
            Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap().unconfirmed_ranges(most).unwrap()
        };
        assert_eq!((ranges(9), ranges(2)), (vec![(12, 12), (14, 15), (17, 17)], vec![(12, 12), (14, 15)]));
    }
}

/// Below the oldest kept block only one hash is known: a block that contradicts it is removed, others stay.
#[test]
fn made_up_block_below_the_oldest_kept_one_leaves_a_gap() {
    let (mut server, client) = (Sqlite::new(), Forked::new());
    let url = server.fresh();
    let Forked { canister, replica } = client.transport();
    open(&client, &url, reader()).catch_up().unwrap();
    replica.chain().append(2, &[60; 4]);
    read_from_the_replica(&client, &url, 18);
    canister.chain().append(1, &[50; 8]);
    canister.chain().prune_before(17);
    // The canister does not know the cursor, and nothing proves that the database holds its chain.
    let before = dump(&url);
    let mut engine = open(&client, &url, options());
    let error = engine.catch_up().unwrap_err().to_string();
    assert!(error.contains("block 17") && error.contains("Nothing was changed"), "{error}");
    assert_eq!((dump(&url), canister.chain().bound), (before, 0));
    drop(engine);
    // Replaces the cursor by one that the canister knows.
    let (cursor, _) = Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap().load().unwrap();
    let mut database = Database::open(Access::volatile(&url)).unwrap();
    let hash = canister.chain().blocks[&18].hash.clone();
    let cursor = serde_json::to_string(&ExportCursor { hash: hash.clone().into(), ..cursor.unwrap() }).unwrap();
    let sql = "UPDATE state SET cursor = $1";
    database.transaction(|tx| tx.execute(sql, &[cursor.as_str().into()])).unwrap();
    let sql = "UPDATE blocks SET hash = $1 WHERE number = 18";
    database.transaction(|tx| tx.execute(sql, &[hash.as_slice().into()])).unwrap();
    drop(database);
    let mut engine = open(&client, &url, options());
    engine.catch_up().unwrap();
    let held = engine.store().held().unwrap();
    assert_eq!((held.last, held.gap_blocks, canister.chain().bound), (Some(22), 1, 23));
    assert_eq!(engine.store().unconfirmed_ranges(9).unwrap(), [(12, 15)]);
    drop(engine);
    let found = stored(&url);
    assert!(
        !found.contains_key(&16) && (17..23).all(|number| found[&number].0 == canister.chain().blocks[&number].hash)
    );
}

/// Creates a database with two confirmed and ten unconfirmed blocks, all of them true.
fn filled(server: &mut Sqlite) -> (String, Client<Fake>) {
    let (url, client) = (server.fresh(), chain(&[10, 20]));
    let mut engine = open(&client, &url, reader());
    engine.catch_up().unwrap();
    client.transport().chain().append(1, &[30; 10]);
    engine.catch_up().unwrap();
    drop(engine);
    (url, client)
}

/// Only the canister's reports of a reorg or a reset count; a difference alone is neither.
#[test]
fn reorg_or_accepted_reset_is_followed_and_another_chain_changes_nothing() {
    let mut server = Sqlite::new();
    for appended in [0, 1, 9] {
        let (url, client) = filled(&mut server);
        client.transport().chain().roll_back_to(15);
        client.transport().chain().append(2, &vec![70; appended]);
        watch_acks(client.transport(), &url);
        let mut engine = open(&client, &url, options());
        engine.catch_up().unwrap();
        assert_eq!((engine.figures().reorgs, engine.figures().removed_blocks), (1, 6));
        is_whole(client.transport(), &url);
    }
    for accept_reset in [false, true] {
        let (url, client) = filled(&mut server);
        client.transport().chain().reset(15);
        client.transport().chain().append(2, &[70; 3]);
        let before = dump(&url);
        let mut engine = open(&client, &url, Options { accept_reset, ..options() });
        if accept_reset {
            engine.catch_up().unwrap();
            is_whole(client.transport(), &url);
        } else {
            assert!(engine.catch_up().unwrap_err().to_string().contains("--accept-reset"));
            assert_eq!((dump(&url), client.transport().chain().bound), (before, 0));
        }
    }
    // The canister was installed anew, with a chain that is as long, longer, shorter or empty.
    for blocks in [12, 30, 3, 0] {
        let (url, _) = filled(&mut server);
        let before = dump(&url);
        let anew = Client::new(Fake::new());
        anew.transport().chain().append(9, &vec![10; blocks]);
        let mut engine = open(&anew, &url, Options { skip_damaged: true, accept_reset: true, ..options() });
        for _ in 0..3 {
            match engine.catch_up() {
                Err(error) => assert!(error.to_string().contains("Nothing was changed"), "{blocks}: {error:#}"),
                Ok(notes) => assert!(blocks < 12 && notes[0].contains("installed anew"), "{blocks}: {notes:?}"),
            }
        }
        assert_eq!((dump(&url), anew.transport().chain().bound), (before, 0), "{blocks}");
    }
}

/// Just confirmed blocks are rolled back.
#[test]
fn reorg_during_the_confirmation_is_followed() {
    let mut server = Sqlite::new();
    let (url, client) = filled(&mut server);
    let mut engine = open(&client, &url, options());
    while engine.figures().confirmed < 4 {
        engine.step().unwrap();
    }
    client.transport().chain().roll_back_to(13);
    client.transport().chain().append(2, &[70; 12]);
    watch_acks(client.transport(), &url);
    engine.catch_up().unwrap();
    assert_eq!(engine.figures().reorgs, 1);
    drop(engine);
    is_whole(client.transport(), &url);
}

/// Headers contradict a confirmed block without a reorg: the run asks once more, then ends.
#[test]
fn headers_that_contradict_a_confirmed_block_end_the_run_without_a_change() {
    let mut server = Sqlite::new();
    let (url, client) = filled(&mut server);
    let mut database = Database::open(Access::volatile(&url)).unwrap();
    for (sql, number) in [
        ("UPDATE blocks SET hash = $1 WHERE number = 15", 15),
        ("UPDATE blocks SET hash = $1, confirmed = 1 WHERE number = 14", 14),
    ] {
        assert_eq!(database.transaction(|tx| tx.execute(sql, &[[number; 32].as_slice().into()])).unwrap(), 1);
    }
    drop(database);
    let before = dump(&url);
    let error = open(&client, &url, options()).catch_up().unwrap_err().to_string();
    assert!(error.contains("block 15") && error.contains("Nothing was changed"), "{error}");
    let confirmed = |line: &String| line.replace(", Some(1)", "").replace(", Some(0)", "");
    assert_eq!(dump(&url).iter().map(confirmed).collect::<Vec<_>>(), before.iter().map(confirmed).collect::<Vec<_>>());
    assert_eq!(client.transport().chain().bound, 0);
}

#[test]
fn unreadable_header_ends_the_run_or_leaves_the_block_unconfirmed() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20]));
    let url = server.fresh();
    let mut engine = open(&client, &url, reader());
    engine.catch_up().unwrap();
    client.transport().chain().append(1, &[30; 6]);
    engine.catch_up().unwrap();
    drop(engine);
    client.transport().chain().corrupt.insert(14);
    let mut engine = open(&client, &url, options());
    let error = engine.catch_up().unwrap_err().to_string();
    assert!(error.contains("block 14") && error.contains("--skip-damaged"), "{error}");
    assert_eq!(client.transport().chain().bound, 0);
    drop(engine);
    let mut engine = open(&client, &url, Options { skip_damaged: true, ..options() });
    let notes = engine.catch_up().unwrap();
    assert!(
        notes.len() == 2 && notes[0].contains("block 14 stays") && notes[1].ends_with("read them: 14"),
        "{notes:?}"
    );
    assert_eq!(client.transport().chain().bound, 18);
}

#[test]
fn stopped_confirmation_acknowledges_nothing_and_the_next_run_continues() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20]));
    let url = server.fresh();
    let mut engine = open(&client, &url, reader());
    engine.catch_up().unwrap();
    client.transport().chain().append(1, &[30; 20]);
    engine.catch_up().unwrap();
    drop(engine);
    let mut engine = open(&client, &url, options());
    while engine.figures().confirmed < 8 {
        engine.step().unwrap();
    }
    engine.acknowledge_all().unwrap();
    assert_eq!((client.transport().chain().bound, held(&url).unconfirmed_blocks), (0, 12));
    drop(engine);
    client.transport().chain().asked_headers.clear();
    open(&client, &url, options()).catch_up().unwrap();
    assert_eq!(client.transport().chain().asked_headers, [20, 24, 28]);
    is_whole(client.transport(), &url);
}

#[test]
fn missing_registration_is_reported_before_the_confirmation() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20]));
    let url = server.fresh();
    client.transport().chain().registered = false;
    open(&client, &url, reader()).catch_up().unwrap();
    let error = open(&client, &url, options()).catch_up().unwrap_err().to_string();
    assert!(error.contains("register_exporter(record"), "{error}");
}

struct Hook<'a>(&'a dyn Fn() -> Result<()>);

impl Checkpoint for Hook<'_> {
    fn reached(&mut self, _: Step) -> Result<()> {
        (self.0)()
    }
}

/// The run dies at each point of confirming, replacing and acknowledging; the next run must end like one that never died.
#[test]
fn run_that_dies_anywhere_acknowledges_no_forgery_and_ends_alike() {
    let play = |server: &mut Sqlite, die_at: usize| {
        let (url, client) = (server.fresh(), chain(&[10, 20, 2_500]));
        forged(&client, &url, Payload::All, FORGERIES[0].1);
        client.transport().chain().prune_before(14);
        client.transport().chain().append(1, &[2_500, 20]);
        let truth = client.transport().chain().blocks.clone();
        let url_of_watch = url.clone();
        client.transport().chain().on_ack = Some(Box::new(move |number, _| {
            let found = stored(&url_of_watch);
            let is_true = |(of, block): (&u64, &crate::index::fake::FakeBlock)| found[of].1 == block.segments;
            ensure!(truth.range(..=number).all(is_true), "a forgery is acknowledged with block {number}");
            Ok(())
        }));
        let places = Cell::new(0);
        let hook = || {
            places.set(places.get() + 1);
            if places.get() == die_at { Err(anyhow!("died")) } else { Ok(()) }
        };
        loop {
            let store = Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
            match Engine::open(&client, store, options(), Hook(&hook)).unwrap().catch_up() {
                Ok(_) => break,
                Err(error) => assert_eq!(error.to_string(), "died"),
            }
        }
        assert_eq!(client.transport().chain().bound, 26, "{die_at}");
        (places.get(), dump(&url))
    };
    let mut server = Sqlite::new();
    let (places, expected) = play(&mut server, 0);
    assert!(places > 40, "{places}");
    for die_at in 1..=places {
        assert_eq!(play(&mut server, die_at).1, expected, "after a death at place {die_at} of {places}");
    }
}

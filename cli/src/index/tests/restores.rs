//! A canister that is restored from a snapshot, and continues along the same branch or another one.

use super::*;
use crate::index::fake::Snapshot;

fn accepting() -> Options {
    Options { accept_restore: true, ..options() }
}

fn servers(test: &str) -> Vec<Box<dyn Server>> {
    let postgres = Postgres::new(test).map(|server| Box::new(server) as Box<dyn Server>);
    [Box::new(Sqlite::new()) as Box<dyn Server>].into_iter().chain(postgres).collect()
}

/// Copies blocks 10 to 19 of a chain that has a snapshot at block 14.
fn copied(url: &str) -> (Client<Fake>, Snapshot) {
    let client = chain(&[10, 500, 2_000, 0, 77]);
    let snapshot = client.transport().chain().snapshot();
    client.transport().chain().append(1, &[20, 3_000, 40, 50, 60]);
    engine(&client, url, options()).settle().unwrap();
    assert_eq!(client.transport().chain().bound, 20);
    (client, snapshot)
}

fn rows(url: &str, sql: &'static str) -> Vec<i64> {
    let mut database = Database::open(Access::volatile(url)).unwrap();
    database.transaction(|tx| tx.all(sql, &[])?.iter().map(|row| row.get(0)).collect()).unwrap()
}

const RESTORED: &str = "SELECT number FROM orphaned WHERE restored = 1 ORDER BY removal, number";

#[test]
fn restored_canister_ends_the_run_unless_it_is_accepted() {
    for server in &mut servers("restored") {
        // The new chain: lower than the copy or higher, along another branch or the same one.
        for (salt, blocks) in [(2, 1), (2, 5), (2, 9), (1, 2), (2, 0)] {
            let url = server.fresh();
            let (client, snapshot) = copied(&url);
            client.transport().chain().restore(&snapshot);
            client.transport().chain().append(salt, &[20, 3_000, 40, 50, 60, 70, 80, 90, 100][..blocks]);
            let before = dump(&url);
            for ack_every in [Some(3), None] {
                let error = engine(&client, &url, Options { ack_every, ..options() }).settle().unwrap_err().to_string();
                assert!(error.contains("--accept-restore") && error.contains("Nothing was changed"), "{error}");
            }
            assert_eq!(dump(&url), before, "{salt} {blocks}");
            let mut running = engine(&client, &url, accepting());
            let notes = running.settle().unwrap();
            let common = if salt == 1 { 14 + blocks as u64 } else { 14 };
            let note = format!("{} blocks above block {common} moved to the table orphaned", 19 - common);
            assert!(notes.iter().any(|found| found.contains(&note)), "{notes:?}");
            let head = 14 + blocks as u64;
            assert_eq!((running.tip(), client.transport().chain().bound), (Some(head), head + 1));
            let expected: Vec<i64> = (common as i64 + 1..20).collect();
            assert_eq!(rows(&url, RESTORED), expected);
            let chain: Vec<(u64, Vec<u8>)> =
                client.transport().chain().blocks.iter().map(|(at, block)| (*at, block.hash.clone())).collect();
            let mut found: Vec<(u64, Vec<u8>)> = stored(&url).into_iter().map(|(at, (hash, ..))| (at, hash)).collect();
            found.sort();
            assert_eq!(found, chain);
            // The run goes on like any other.
            client.transport().chain().append(3, &[1, 2]);
            running.settle().unwrap();
            assert_eq!(client.transport().chain().bound, head + 3);
        }
    }
}

#[test]
fn blocks_that_a_restored_canister_lacks_stay_whatever_is_removed_later() {
    for server in &mut servers("restored_stays") {
        let url = server.fresh();
        let (client, snapshot) = copied(&url);
        // Two blocks of an earlier reorg, which may go.
        client.transport().chain().roll_back_to(17);
        client.transport().chain().append(4, &[7, 8]);
        engine(&client, &url, options()).settle().unwrap();
        client.transport().chain().restore(&snapshot);
        client.transport().chain().append(2, &[5; 6]);
        let few = Options { keep_orphaned: 3, ..accepting() };
        let mut running = engine(&client, &url, few);
        running.settle().unwrap();
        let ids = "SELECT number FROM orphaned_transactions WHERE removal IN (SELECT removal FROM orphaned WHERE \
                   restored = 1) ORDER BY removal, number, position";
        let (kept, kept_ids) = (rows(&url, RESTORED), rows(&url, ids));
        assert_eq!(kept, [15, 16, 17, 18, 19]);
        assert!(kept_ids.len() > 3, "{kept_ids:?}");
        for round in 0..4 {
            client.transport().chain().roll_back_to(16);
            client.transport().chain().append(5 + round, &[6; 4]);
            running.settle().unwrap();
            assert_eq!(rows(&url, "SELECT count(*) FROM orphaned WHERE restored = 0"), [3], "{round}");
        }
        assert_eq!((rows(&url, RESTORED), rows(&url, ids)), (kept, kept_ids));
        // A second restore keeps its blocks, too.
        client.transport().chain().restore(&snapshot);
        client.transport().chain().append(9, &[5; 2]);
        drop(running);
        engine(&client, &url, few).settle().unwrap();
        assert_eq!(rows(&url, RESTORED).len(), 5 + 6);
    }
}

/// The newest common block is found at every height, also among gaps, damaged headers and pruned blocks, with few calls.
#[test]
fn newest_common_block_is_found_at_every_height() {
    for (snapshot_at, pruned, gap, damaged) in
        (10..40).flat_map(|at| [(at, 10, None, None), (at, at.min(25), Some(20), None), (at, 10, None, Some(at))])
    {
        let (mut server, client) = (Sqlite::new(), chain(&[]));
        let url = server.fresh();
        client.transport().chain().append(1, &vec![3; snapshot_at - 9]);
        let snapshot = client.transport().chain().snapshot();
        client.transport().chain().append(1, &vec![3; 45 - snapshot_at]);
        engine(&client, &url, options()).settle().unwrap();
        if let Some(gap) = gap {
            Database::open(Access::volatile(&url))
                .unwrap()
                .transaction(|tx| tx.execute("DELETE FROM blocks WHERE number = $1", &[Value::Int(Some(gap))]))
                .unwrap();
        }
        client.transport().chain().restore(&snapshot);
        client.transport().chain().append(2, &[4; 7]);
        client.transport().chain().prune_before(pruned as u64);
        client.transport().chain().corrupt.extend(damaged.map(|at| at as u64));
        let what = format!("snapshot at {snapshot_at}, pruned before {pruned}, gap {gap:?}, damaged {damaged:?}");
        client.transport().chain().headers_of_a_page = 1_000;
        let mut running = engine(&client, &url, Options { skip_damaged: true, ..accepting() });
        let asked = client.transport().chain().asked_headers[0].len();
        if damaged == Some(10) {
            // Its oldest block cannot be read, so nothing is known.
            assert!(running.settle().unwrap_err().to_string().contains("no block that it keeps"), "{what}");
            continue;
        }
        let notes = running.settle().unwrap_or_else(|error| panic!("{what}: {error:#}"));
        // The block of the gap is not stored, and the hash of a damaged one is unknown.
        let unknown = gap == Some(snapshot_at as i64) || damaged.is_some();
        let common = if unknown { snapshot_at - 1 } else { snapshot_at };
        let note = format!("blocks above block {common} moved");
        assert!(notes.iter().any(|found| found.contains(&note)), "{what}: {notes:?}");
        let asked = client.transport().chain().asked_headers[0].len() - asked;
        assert!(asked <= 8, "{what}: {asked} headers");
        assert_eq!(running.tip(), Some(snapshot_at as u64 + 7), "{what}");
    }
}

#[test]
fn canister_without_a_common_block_changes_nothing() {
    let mut server = Sqlite::new();
    let url = server.fresh();
    let (client, snapshot) = copied(&url);
    let before = dump(&url);
    let fails = |what: &str| {
        let error = engine(&client, &url, accepting()).settle().unwrap_err().to_string();
        assert!(error.contains("no block that it keeps is in this database"), "{what}: {error}");
        assert_eq!(dump(&url), before, "{what}");
    };
    client.transport().chain().restore(&snapshot);
    client.transport().chain().append(2, &[5; 9]);
    client.transport().chain().prune_before(17);
    fails("the common block is pruned");
    client.transport().chain().blocks.clear();
    fails("no block is left");
    client.transport().chain().append(8, &[5; 12]);
    fails("another chain");
}

/// The canister rolls back after it was restored, so that it counts more rollbacks than before: its blocks move to `orphaned` like those of
/// any reorg.
#[test]
fn restored_canister_that_has_rolled_back_since_is_followed_like_a_reorg() {
    let mut server = Sqlite::new();
    for head in [13, 16] {
        let url = server.fresh();
        let (client, snapshot) = copied(&url);
        client.transport().chain().restore(&snapshot);
        client.transport().chain().append(2, &[5; 4]);
        client.transport().chain().roll_back_to(head);
        client.transport().chain().append(3, &[6; 8]);
        let mut running = engine(&client, &url, options());
        running.settle().unwrap();
        let common = head.min(14);
        let orphaned = "SELECT number FROM orphaned WHERE restored = 0 ORDER BY removal, number";
        assert_eq!(rows(&url, orphaned), (common as i64 + 1..20).collect::<Vec<i64>>());
        let newest = client.transport().chain().head().unwrap();
        assert_eq!(client.transport().chain().bound, newest + 1);
        client.transport().chain().roll_back_to(13);
        client.transport().chain().append(4, &[6; 2]);
        running.settle().unwrap();
        assert_eq!((running.tip(), running.figures().reorgs), (Some(15), 2));
    }
}

#[test]
fn run_that_dies_anywhere_while_it_follows_a_restored_canister_ends_alike() {
    let mut server = Sqlite::new();
    let mut play = |die_at: usize| {
        let url = server.fresh();
        let (client, snapshot) = copied(&url);
        client.transport().chain().restore(&snapshot);
        client.transport().chain().append(2, &[5; 7]);
        let places = Cell::new(0);
        loop {
            let die = |_: Step| {
                places.set(places.get() + 1);
                if places.get() == die_at { Err(anyhow!("died")) } else { Ok(()) }
            };
            let store = Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
            match Engine::open(&client, store, accepting(), Hook(&die)).unwrap().settle() {
                Ok(_) => return (places.get(), dump(&url)),
                Err(error) => assert_eq!(error.to_string(), "died"),
            }
        }
    };
    let (places, expected) = play(0);
    assert!(places > 10, "{places}");
    for die_at in 1..=places {
        assert_eq!(play(die_at).1, expected, "after a death at place {die_at} of {places}");
    }
}

struct Hook<'a>(&'a dyn Fn(Step) -> Result<()>);

impl Checkpoint for Hook<'_> {
    fn reached(&mut self, step: Step) -> Result<()> {
        (self.0)(step)
    }
}

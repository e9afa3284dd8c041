//! Contents and origin of the database.

use super::*;

#[test]
fn stored_blocks_equal_the_canisters() {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new("stored").map(|server| Box::new(server) as Box<dyn Server>));
    for server in &mut servers {
        let url = server.fresh();
        let long = crate::index::schema::INLINE as usize;
        let client = chain(&[10, 3_000_000, long + 1_000_000, 0, 77]);
        let figures = {
            let mut engine = engine(&client, &url, Options { page_bytes: 0, ..options() });
            assert_eq!(engine.settle().unwrap(), Vec::<String>::new());
            engine.figures()
        };
        let found = stored(&url);
        let chain = client.transport().chain();
        assert_eq!((figures.blocks, figures.lag, found.len()), (5, Some(0), 5));
        assert_eq!((figures.acknowledged_before, chain.bound), (Some(15), 15));
        for (number, block) in &chain.blocks {
            let (hash, segments, length) = &found[number];
            assert!(*hash == block.hash && *segments == block.segments, "{number}");
            assert_eq!(*length as usize, block.segments[0].len());
        }
        let mut database = Database::open(Access::volatile(&url)).unwrap();
        let count = |tx: &mut crate::index::database::Tx<'_>, sql| tx.one(sql, &[])?.context("none")?.get::<i64>(0);
        let (parts, left) = database
            .transaction(|tx| {
                let parts = count(tx, "SELECT count(*) FROM parts WHERE number <> 12")?;
                Ok((parts, count(tx, "SELECT count(*) FROM incomplete")?))
            })
            .unwrap();
        assert_eq!((parts, left), (0, 0), "only a segment too long for a row stays in parts");
        let ids: Vec<u8> = database
            .transaction(|tx| {
                tx.one("SELECT id FROM transactions WHERE number = 14 AND position = 1", &[])?.context("")?.get(0)
            })
            .unwrap();
        assert_eq!(ids, crate::feed::ids_of(&chain.blocks[&14].segments[2])[1]);
    }
}

#[test]
fn payload_headers_verifies_blocks_and_stores_no_payload() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 5_000, 0, 77]));
    let url = server.fresh();
    let store = Store::open(Access::volatile(&url), &origin(Payload::Headers)).unwrap();
    let mut engine = Engine::open(&client, store, options(), Onward).unwrap();
    engine.settle().unwrap();
    let held = engine.store().held().unwrap();
    assert_eq!((held.first, held.last, held.blocks, held.gap_blocks), (Some(10), Some(13), 4, 0));
    assert_eq!(held.transactions, 3 + 1);
    assert!(stored(&url).values().all(|(_, segments, _)| segments.iter().all(Vec::is_empty)));
    drop(engine);
    let error = Store::open(Access::volatile(&url), &origin(Payload::All)).err().unwrap().to_string();
    assert!(error.contains("--payload headers"), "{error}");
    client.transport().chain().append(1, &[3_000]);
    client.transport().chain().blocks.get_mut(&14).unwrap().digests[0][0] ^= 1;
    let store = Store::open(Access::volatile(&url), &origin(Payload::Headers)).unwrap();
    let mut engine = Engine::open(&client, store, options(), Onward).unwrap();
    assert!(engine.settle().unwrap_err().to_string().contains("block 14 has missed its proved digest 10 times"));
}

#[test]
fn database_of_another_canister_or_version_is_refused() {
    let mut server = Sqlite::new();
    let url = server.fresh();
    Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
    let other = Origin { canister: "2vxsx-fae".into(), ..origin(Payload::All) };
    let error = Store::open(Access::volatile(&url), &other).err().unwrap().to_string();
    assert!(error.contains("aaaaa-aa") && error.contains("2vxsx-fae"), "{error}");
    let mut database = Database::open(Access::volatile(&url)).unwrap();
    database.transaction(|tx| tx.execute("UPDATE state SET schema_version = 9", &[])).unwrap();
    assert!(Store::open(Access::volatile(&url), &origin(Payload::All)).err().unwrap().to_string().contains("schema 9"));
}

#[test]
fn second_indexer_on_one_database_is_refused() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 500, 2_000]));
    let url = server.fresh();
    let (mut one, mut two) = (engine(&client, &url, options()), engine(&client, &url, options()));
    one.settle().unwrap();
    let error = two.settle().unwrap_err().to_string();
    assert!(error.contains("another indexer"), "{error}");
}

#[test]
fn lag_is_the_distance_to_the_head() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 5]));
    let url = server.fresh();
    let mut engine = engine(&client, &url, Options { page_bytes: 30, ..options() });
    while engine.tip().is_none() {
        engine.step().unwrap();
    }
    let Figures { lag, largest_lag, head, .. } = engine.figures();
    assert_eq!((lag, largest_lag, head), (Some(4), Some(5), Some(14)), "before and after the page with one block");
    engine.settle().unwrap();
    assert_eq!((engine.figures().lag, engine.figures().largest_lag), (Some(0), Some(5)));
}

//! Databases that an older version made.

use super::*;

/// The tables as version 1 had them.
const SCHEMA_1: &str = include_str!("schema_1.sql");

/// A database of version 1 with the first two blocks of a chain, and the beginning of the third.
fn older(url: &str, client: &Client<Fake>) {
    let chain = client.transport().chain();
    let mut database = Database::open(url).unwrap();
    database
        .transaction(|tx| {
            tx.define(SCHEMA_1)?;
            let sql = "INSERT INTO state (id, schema_version, canister, network, payload, revision, cursor_number, \
                       cursor_hash, cursor_segment, cursor_offset, cursor_rollbacks) \
                       VALUES (1, 1, 'aaaaa-aa', 'memory', 'all', 7, 12, $1, 0, 500, 0)";
            tx.execute(sql, &[chain.blocks[&12].hash.as_slice().into()])?;
            for number in [10, 11] {
                let block = &chain.blocks[&number];
                let sql = "INSERT INTO blocks VALUES ($1, $2, $3, 0, 0, $4, 0, 0, $2, $2, $2, $5, $6, $6)";
                let values = [
                    (number as i64).into(),
                    block.hash.as_slice().into(),
                    block.parent.as_slice().into(),
                    (block.segments[0].len() as i64).into(),
                    block.segments[0].as_slice().into(),
                    (&b""[..]).into(),
                ];
                tx.execute(sql, &values)?;
            }
            let block = &chain.blocks[&12];
            let sql = "INSERT INTO parts VALUES (12, 0, 0, $1)";
            tx.execute(sql, &[block.segments[0][..500].into()])?;
            let sql = "INSERT INTO incomplete VALUES (12, $1, $2, $3, 0, 500, 2000, NULL, NULL, $4, NULL, NULL)";
            let time = (u64::MAX - 12) as i64;
            let values = [
                block.hash.as_slice().into(),
                block.parent.as_slice().into(),
                time.into(),
                (&*block.digests[0]).into(),
            ];
            tx.execute(sql, &values).map(drop)
        })
        .unwrap();
}

#[test]
fn a_database_of_version_1_is_brought_to_this_one_and_goes_on() {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new("schema").map(|server| Box::new(server) as Box<dyn Server>));
    for server in &mut servers {
        for by_query in [true, false] {
            let (url, client) = (server.fresh(), chain(&[10, 20, 2_000, 30]));
            older(&url, &client);
            let mut running = engine(&client, &url, Options { ack_every: (!by_query).then_some(3), ..options() });
            assert_eq!(running.tip(), Some(11));
            // The parts of before came by query.
            assert_eq!(dump(&url).iter().any(|line| line.starts_with("FROM incomplete")), by_query);
            running.catch_up().unwrap();
            assert_eq!(stored(&url)[&12].1, client.transport().chain().blocks[&12].segments);
            client.transport().chain().roll_back_to(10);
            client.transport().chain().append(2, &[5]);
            running.catch_up().unwrap();
            let held = running.store().held().unwrap();
            assert_eq!((held.blocks, held.last, held.orphaned_blocks), (2, Some(11), 3));
            drop(running);
            // And it is one of this version: everything is as in one that this version made.
            assert_eq!(engine(&client, &url, options()).tip(), Some(11));
        }
    }
}

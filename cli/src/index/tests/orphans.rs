//! Blocks that a reorg or a reset moves to the orphaned tables.

use super::*;

/// Returns number, hash, transactions and bytes of parts of each orphaned block.
fn orphaned(url: &str) -> Vec<(u64, Vec<u8>, u64, u64)> {
    let mut database = Database::open(Access::volatile(url)).unwrap();
    database
        .transaction(|tx| {
            let sql = "SELECT number, hash, (SELECT count(*) FROM orphaned_transactions t WHERE t.removal = o.removal \
                       AND t.number = o.number), (SELECT CAST(coalesce(sum(length(bytes)), 0) AS BIGINT) \
                       FROM orphaned_parts p WHERE p.removal = o.removal AND p.number = o.number) \
                       FROM orphaned o ORDER BY removal, number";
            let rows = tx.all(sql, &[])?;
            rows.iter()
                .map(|row| {
                    Ok((row.get::<i64>(0)? as u64, row.get(1)?, row.get::<i64>(2)? as u64, row.get::<i64>(3)? as u64))
                })
                .collect()
        })
        .unwrap()
}

fn count(url: &str, sql: &'static str) -> i64 {
    let mut database = Database::open(Access::volatile(url)).unwrap();
    database.transaction(|tx| tx.one(sql, &[])?.context("no count")?.get(0)).unwrap()
}

#[test]
fn reorg_moves_blocks_with_their_transactions_and_parts() {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new("orphans").map(|server| Box::new(server) as Box<dyn Server>));
    for server in &mut servers {
        let url = server.fresh();
        let long = crate::index::schema::INLINE as usize + 5;
        let client = chain(&[10, 20, long, 40, 50]);
        let mut running = engine(&client, &url, Options { page_bytes: 0, ..options() });
        running.settle().unwrap();
        // Nothing is kept of an incomplete block.
        client.transport().chain().append(1, &[4_000_000]);
        while count(&url, "SELECT count(*) FROM incomplete") == 0 {
            running.step().unwrap();
        }
        let before = client.transport().chain().blocks.clone();
        client.transport().chain().roll_back_to(11);
        client.transport().chain().append(2, &[70]);
        running.settle().unwrap();
        let found = orphaned(&url);
        let expected: Vec<_> = (12..15)
            .map(|number| {
                let ids = crate::feed::ids_of(&before[&number].segments[2]).len() as u64;
                (number, before[&number].hash.clone(), ids, if number == 12 { long as u64 } else { 0 })
            })
            .collect();
        assert_eq!(found, expected);
        assert!(found.iter().any(|(_, _, ids, _)| *ids > 1), "some of them have transactions");
        let held = running.store().held().unwrap();
        assert_eq!((held.blocks, held.last, held.orphaned_blocks), (3, Some(12), 3));
        assert_eq!(count(&url, "SELECT count(*) FROM parts"), 0);
        assert_eq!(count(&url, "SELECT count(*) FROM orphaned WHERE number = 13 AND length(body) = 40"), 1);
    }
}

#[test]
fn newest_orphans_are_kept_up_to_keep_orphaned() {
    // Bounds: 0, one less than removed, equal, one more, all of two reorgs, and the maximum.
    for (keep, expected) in [
        (0, vec![]),
        (1, vec![(15, 2)]),
        (2, vec![(14, 2), (15, 2)]),
        (3, vec![(15, 1), (14, 2), (15, 2)]),
        (5, vec![(13, 1), (14, 1), (15, 1), (14, 2), (15, 2)]),
        (6, vec![(12, 1), (13, 1), (14, 1), (15, 1), (14, 2), (15, 2)]),
        (u64::MAX, vec![(12, 1), (13, 1), (14, 1), (15, 1), (14, 2), (15, 2)]),
    ] {
        let (mut server, client) = (Sqlite::new(), chain(&[10; 6]));
        let url = server.fresh();
        let mut running = engine(&client, &url, Options { keep_orphaned: keep, ..options() });
        running.settle().unwrap();
        let mut of_fork = vec![client.transport().chain().blocks.clone()];
        for (head, salt, blocks) in [(11, 2, 4), (13, 3, 1)] {
            client.transport().chain().roll_back_to(head);
            client.transport().chain().append(salt, &vec![20; blocks]);
            of_fork.push(client.transport().chain().blocks.clone());
            running.settle().unwrap();
        }
        let found: Vec<_> = orphaned(&url).into_iter().map(|(number, hash, ..)| (number, hash)).collect();
        let hash = |(number, fork): &(u64, usize)| (*number, of_fork[fork - 1][number].hash.clone());
        assert_eq!(found, expected.iter().map(hash).collect::<Vec<_>>(), "{keep}");
        let theirs =
            count(&url, "SELECT count(*) FROM orphaned_transactions WHERE number NOT IN (SELECT number FROM orphaned)");
        assert_eq!(theirs, 0, "{keep}");
        assert_eq!(running.store().held().unwrap().blocks, 5);
        // A changed bound takes effect at the next reorg.
        drop(running);
        client.transport().chain().roll_back_to(13);
        client.transport().chain().append(4, &[20]);
        engine(&client, &url, Options { keep_orphaned: 1, ..options() }).settle().unwrap();
        assert_eq!(orphaned(&url).len(), 1, "{keep}");
    }
}

/// The counts of the old chain are not compared with those of the new one.
#[test]
fn reset_moves_blocks_up_to_the_bound_and_a_later_reorg_is_followed() {
    let (mut server, client) = (Sqlite::new(), chain(&[10; 6]));
    let url = server.fresh();
    let options = Options { keep_orphaned: 4, accept_reset: true, ..options() };
    engine(&client, &url, options).settle().unwrap();
    client.transport().chain().reset(3);
    client.transport().chain().append(2, &[5; 6]);
    let mut running = engine(&client, &url, options);
    running.settle().unwrap();
    let numbers: Vec<u64> = orphaned(&url).iter().map(|(number, ..)| *number).collect();
    assert_eq!((numbers, running.tip()), (vec![12, 13, 14, 15], Some(8)));
    client.transport().chain().roll_back_to(4);
    client.transport().chain().append(3, &[7; 2]);
    running.settle().unwrap();
    assert_eq!((running.tip(), running.figures().reorgs), (Some(6), 2));
}

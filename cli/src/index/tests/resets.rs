//! Resets of the canister's chain.

use super::*;

/// Stored blocks may exist nowhere else, so a reset ends the run until the operator accepts it.
#[test]
fn reset_changes_nothing_until_accepted_and_then_the_new_chain_is_copied() {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new("reset").map(|server| Box::new(server) as Box<dyn Server>));
    for server in &mut servers {
        // The new chain starts lower, at the same number, within the old range, or higher; with a reorg before, or in the middle of a
        // block.
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
            running.settle().unwrap();
            if in_block {
                client.transport().chain().append(1, &[5_500]);
                while !dump(&url).iter().any(|line| line.starts_with("FROM incomplete")) {
                    running.step().unwrap();
                }
            }
            let before = dump(&url);
            assert_eq!(before.iter().any(|line| line.starts_with("FROM incomplete")), in_block, "{what}");
            let is_refused = |running: &mut Engine<'_, Fake>| {
                for _ in 0..2 {
                    let refused = running.settle().unwrap_err().to_string();
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
            let notes = accepting.settle().unwrap();
            let last = notes.last().map(String::as_str);
            assert_eq!(last, Some("the chain was reset: 5 blocks of the old chain are removed"), "{what}: {notes:?}");
            let figures = accepting.figures();
            assert_eq!((figures.blocks, figures.removed_blocks, figures.lag), (4, 5, Some(0)), "{what}");
            assert_eq!(accepting.settle().unwrap(), Vec::<String>::new(), "{what}: the reset was processed");
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

/// The old blocks are removed even if the new chain is empty; its first block is copied when it comes.
#[test]
fn accepted_reset_to_an_empty_chain_leaves_an_empty_copy() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 500]));
    let url = server.fresh();
    engine(&client, &url, options()).settle().unwrap();
    client.transport().chain().reset(5);
    let mut accepting = engine(&client, &url, Options { accept_reset: true, ..options() });
    let notes = accepting.settle().unwrap();
    assert!(notes.last().unwrap().contains("2 blocks of the old chain are removed"), "{notes:?}");
    assert_eq!(accepting.store().held().unwrap().blocks, 0);
    client.transport().chain().append(3, &[10]);
    accepting.settle().unwrap();
    assert_eq!((accepting.tip(), accepting.store().held().unwrap().blocks), (Some(5), 1));
}

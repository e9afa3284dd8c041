//! Runs that die at any point and continue with the same database.

use super::*;

/// A change of the chain, and the number of transactions to copy then, or `None` to copy up to the head.
type Phase = (fn(&mut Chain), Option<usize>);

/// Blocks of all kinds, one of them over many pages; reorgs within and after it; a damaged block; and blocks pruned before they are
/// indexed.
const SCENARIO: &[Phase] = &[
    (|chain| chain.append(1, &[100, 0, 900, 1_000, 300, 1]), None),
    (|chain| chain.append(1, &[200, 5_500, 50]), Some(3)),
    // In the middle of the long block, which is rolled back with the block before.
    (
        |chain| {
            chain.roll_back_to(15);
            chain.append(2, &[150, 4_200, 10, 20]);
        },
        Some(3),
    ),
    (|_| {}, None),
    // The newest blocks are rolled back, and fewer follow.
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
    // The reader has not acknowledged these blocks, and is in the middle of one when they are pruned.
    (|chain| chain.append(3, &[3_000, 60]), Some(2)),
    (
        |chain| {
            chain.append(3, &[60; 8]);
            chain.prune_before(27);
        },
        None,
    ),
    // A reorg that the canister reports one block too low.
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
    // A reorg that began below the kept blocks, of which the canister knows only that the newest block has another hash.
    (
        |chain| {
            chain.roll_back_to(31);
            chain.append(6, &[400; 9]);
            chain.prune_before(34);
        },
        None,
    ),
    (|chain| chain.append(6, &[2_000, 1]), None),
    // A reorg, and pruning beyond it, both of which the canister knows: blocks below the reorg stay.
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

/// Plays the scenario, dies at point number `die_at`, and continues with the same database. Returns the number of points, the steps that
/// occurred, and the final contents of the database.
fn play(url: &str, die_at: usize) -> Result<(usize, HashSet<Step>, Vec<String>)> {
    let client = Client::new(Fake::new());
    let mut watch: Option<Store> = None;
    let url_of_watch = url.to_string();
    client.transport().chain().on_ack = Some(Box::new(move |number, hash| {
        // Another connection sees only what is committed.
        if watch.is_none() {
            watch = Some(Store::open(Access::volatile(&url_of_watch), &origin(Payload::All))?);
        }
        let committed = watch.as_mut().context("no connection")?.hash_of(number)?;
        ensure!(committed.as_deref() == Some(hash), "block {number} is acknowledged, but not committed");
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
            Store::open(Access::volatile(url), &origin(Payload::All))?,
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

fn run_that_dies_anywhere_ends_alike(server: &mut impl Server) {
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
fn sqlite_run_that_dies_anywhere_ends_alike() {
    run_that_dies_anywhere_ends_alike(&mut Sqlite::new());
}

#[test]
fn postgresql_run_that_dies_anywhere_ends_alike() {
    if let Some(mut server) = Postgres::new("dies_anywhere") {
        run_that_dies_anywhere_ends_alike(&mut server);
    }
}

#[test]
fn sqlite_and_postgresql_end_with_equal_contents() {
    if let Some(mut server) = Postgres::new("same") {
        assert_eq!(play(&server.fresh(), 0).unwrap(), play(&Sqlite::new().fresh(), 0).unwrap());
    }
}

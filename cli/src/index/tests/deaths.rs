//! Runs that die at any point and continue with the same database.

use super::*;
use crate::index::fake::Snapshot;
use std::collections::BTreeSet;
use std::ops::Range;

/// A change of the chain, and the number of transactions to copy then, or `None` to copy up to the head.
type Phase = (fn(&mut Chain), Option<usize>);

/// Steps in the order in which they were reached, each with its phase.
type Steps = Vec<(usize, Step)>;

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
    // A reorg that began below the kept blocks, so that only the canister's count of rollbacks shows how deep it was.
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

/// A canister before a phase, to be restored later.
struct Before {
    chain: Snapshot,
    corrupt: BTreeSet<u64>,
    exact: bool,
}

impl Before {
    fn of(chain: &Chain) -> Self {
        Self { chain: chain.snapshot(), corrupt: chain.corrupt.clone(), exact: chain.exact }
    }

    fn restore(&self, chain: &mut Chain) {
        chain.restore(&self.chain);
        (chain.corrupt, chain.exact) = (self.corrupt.clone(), self.exact);
    }
}

/// Plays phases of the scenario on a canister and a database. Dies at point number `die_at`, and continues with the same database. Returns
/// the steps that were reached, in order, each with its phase.
fn play(client: &Client<Fake>, url: &str, phases: Range<usize>, die_at: usize) -> Result<Steps> {
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
    let (phase, committed) = (Cell::new(phases.start), Cell::new(0));
    let reached = RefCell::new(Vec::new());
    let checkpoint = |step| -> Result<()> {
        reached.borrow_mut().push((phase.get(), step));
        if step == Step::Committed {
            committed.set(committed.get() + 1);
        }
        if reached.borrow().len() == die_at { Err(anyhow!("died")) } else { Ok(()) }
    };
    let open = || {
        Engine::open(
            client,
            Store::open(Access::volatile(url), &origin(Payload::All))?,
            Options { skip_damaged: true, ..options() },
            Hook(&checkpoint),
        )
    };
    let mut engine = open()?;
    for (number, (change, transactions)) in phases.clone().zip(&SCENARIO[phases]) {
        phase.set(number);
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
    client.transport().chain().on_ack = None;
    Ok(reached.take())
}

/// Plays the whole scenario, and dies at point number `die_at`. Returns the steps and the final contents of the database.
fn play_all(url: &str, die_at: usize) -> Result<(Steps, Vec<String>)> {
    let steps = play(&Client::new(Fake::new()), url, 0..SCENARIO.len(), die_at)?;
    Ok((steps, dump(url)))
}

struct Hook<'a>(&'a dyn Fn(Step) -> Result<()>);

impl Checkpoint for Hook<'_> {
    fn reached(&mut self, step: Step) -> Result<()> {
        (self.0)(step)
    }
}

/// Checks that the scenario has everything in which a death could matter.
fn check(steps: &[(usize, Step)], expected: &[String]) {
    assert!(steps.len() > 100, "{}", steps.len());
    let kinds: HashSet<Step> = steps.iter().map(|(_, step)| *step).collect();
    assert_eq!(kinds.len(), 9, "{kinds:?}");
    let gaps: Vec<&String> = expected.iter().filter(|line| line.starts_with("FROM gaps")).collect();
    let expected_gaps =
        ["Some(20), Some(20), it is lost", "Some(22), Some(26)", "Some(31), Some(33)", "Some(41), Some(44)"];
    assert_eq!(gaps.len(), expected_gaps.len(), "{gaps:#?}");
    assert!(gaps.iter().zip(expected_gaps).all(|(gap, expected)| gap.contains(expected)), "{gaps:#?}");
    assert!(expected.iter().filter(|line| line.starts_with("FROM blocks")).count() > 4, "{expected:#?}");
}

/// A run that dies in a phase must end that phase, or the next one, with the contents of a run that does not die, from which the rest of
/// both runs follows. So each death begins with a copy of the database and the canister before its phase.
#[test]
fn sqlite_run_that_dies_anywhere_ends_alike() {
    let (mut server, client) = (Sqlite::new(), Client::new(Fake::new()));
    let url = server.fresh();
    let (mut before, mut steps, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for phase in 0..SCENARIO.len() {
        before.push((Before::of(&client.transport().chain()), server.copy_of(&url).unwrap()));
        steps.push(play(&client, &url, phase..phase + 1, 0).unwrap());
        after.push(dump(&url));
    }
    let (all, expected) = play_all(&server.fresh(), 0).unwrap();
    check(&all, &expected);
    assert_eq!(after.last(), Some(&expected), "a run that opens the database anew before each phase");
    for (phase, (canister, copy)) in before.iter().enumerate() {
        let end = (phase + 2).min(SCENARIO.len());
        for die_at in 1..=steps[phase].len() {
            let url = server.copy_of(copy).unwrap();
            canister.restore(&mut client.transport().chain());
            play(&client, &url, phase..end, die_at).unwrap_or_else(|error| panic!("{phase}, {die_at}: {error:#}"));
            assert_eq!(dump(&url), after[end - 1], "after a death at step {die_at} of phase {phase}");
        }
    }
}

/// The steps are the same as on SQLite, so the first and the last of each kind are enough to find a commit that the server makes in parts.
#[test]
fn postgresql_run_that_dies_at_each_kind_of_step_ends_alike() {
    let Some(mut server) = Postgres::new("dies_anywhere") else { return };
    let (all, expected) = play_all(&server.fresh(), 0).unwrap();
    check(&all, &expected);
    let kind = |place: &usize| all[*place].1;
    let (mut first, mut last) = (HashSet::new(), HashSet::new());
    let mut places: Vec<usize> = (0..all.len()).filter(|place| first.insert(kind(place))).collect();
    places.extend((0..all.len()).rev().filter(|place| last.insert(kind(place))));
    for place in places {
        let (_, found) = play_all(&server.fresh(), place + 1).unwrap_or_else(|error| panic!("{place}: {error:#}"));
        assert_eq!(found, expected, "after a death at place {place}, {:?}", all[place]);
    }
}

#[test]
fn sqlite_and_postgresql_end_with_equal_contents() {
    if let Some(mut server) = Postgres::new("same") {
        assert_eq!(play_all(&server.fresh(), 0).unwrap(), play_all(&Sqlite::new().fresh(), 0).unwrap());
    }
}

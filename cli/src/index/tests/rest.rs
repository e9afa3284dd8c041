//! Replicas that report nothing new for ever.

use super::*;
use crate::client::BELIEVED;
use crate::index::rest::AT_REST;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that a test advances.
#[derive(Clone, Default)]
struct Seconds(Arc<AtomicU64>);

impl Seconds {
    fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    fn clock(&self) -> crate::index::engine::Clock {
        let seconds = self.0.clone();
        Box::new(move || Duration::from_secs(seconds.load(Ordering::SeqCst)))
    }
}

fn by_clock<'a>(client: &'a Client<Fake>, url: &str, options: Options, seconds: &Seconds) -> Engine<'a, Fake> {
    engine(client, url, options).with_clock(seconds.clock())
}

/// Makes the replica answer "nothing new" to every query.
fn nothing_new(client: &Client<Fake>) {
    client.transport().chain().lie =
        Some(Box::new(|_, answer| answer.map(|page| ExportPage { chunks: Vec::new(), ..page })));
}

fn reader() -> Options {
    Options { ack_every: None, ..options() }
}

#[test]
fn nothing_new_is_trusted_for_ten_minutes_and_update_calls_set_the_lag() {
    for options in [options(), reader()] {
        let (mut server, client, seconds) = (Sqlite::new(), chain(&[10; 5]), Seconds::default());
        let mut engine = by_clock(&client, &server.fresh(), options, &seconds);
        engine.catch_up().unwrap();
        assert_eq!(engine.figures().lag, Some(0), "{options:?}");
        nothing_new(&client);
        client.transport().chain().append(1, &[10; 50]);
        let updates = client.transport().chain().asked.1;
        // One poll per second, up to ten minutes after the update call at the start of the run.
        for _ in 0..599 {
            seconds.pass(1);
            assert!(engine.catch_up().unwrap().is_empty());
        }
        assert_eq!((client.transport().chain().asked.1, engine.tip()), (updates, Some(14)), "{options:?}");
        seconds.pass(1);
        while engine.figures().head == Some(14) {
            engine.step().unwrap();
        }
        assert_eq!(engine.figures().largest_lag, Some(50), "{options:?}: by an update call");
        // The lie continues, and is ignored as long as blocks are missing.
        engine.catch_up().unwrap();
        let figures = engine.figures();
        assert_eq!((engine.tip(), figures.lag, figures.largest_lag), (Some(64), Some(0), Some(50)), "{options:?}");
        assert!(figures.unconfirmed > 0, "{options:?}");
        assert_eq!(client.transport().chain().bound, if options.by_query() { 0 } else { 65 });
    }
}

#[test]
fn replica_that_stays_late_is_trusted_for_ten_minutes() {
    for options in [options(), reader()] {
        let (mut server, client, seconds) = (Sqlite::new(), chain(&[10; 5]), Seconds::default());
        let mut engine = by_clock(&client, &server.fresh(), options, &seconds);
        engine.catch_up().unwrap();
        client.transport().chain().lie = Some(Box::new(|_, _| Err(ExportError::Behind { head: Some(3) })));
        client.transport().chain().append(1, &[10; 3]);
        seconds.pass(AT_REST.as_secs() - 1);
        assert_eq!((engine.catch_up().unwrap().len(), engine.tip()), (1, Some(14)), "{options:?}");
        seconds.pass(1);
        engine.catch_up().unwrap();
        assert_eq!(engine.tip(), Some(17), "{options:?}");
    }
}

/// A run that ends at the head starts with an update call, which names the head.
#[test]
fn run_that_ends_at_the_head_is_not_ended_by_a_lie() {
    let (mut server, client) = (Sqlite::new(), chain(&[300; 20]));
    nothing_new(&client);
    let mut engine = engine(&client, &server.fresh(), reader());
    engine.catch_up().unwrap();
    assert_eq!((engine.tip(), engine.figures().lag), (Some(29), Some(0)));
}

#[test]
fn at_most_one_update_call_in_ten_minutes_at_rest() {
    for options in [options(), reader()] {
        let (mut server, client, seconds) = (Sqlite::new(), chain(&[10; 5]), Seconds::default());
        let mut engine = by_clock(&client, &server.fresh(), options, &seconds);
        engine.catch_up().unwrap();
        let (queries, updates) = client.transport().chain().asked;
        // One day, one poll per minute.
        for _ in 0..24 * 60 {
            seconds.pass(60);
            assert!(engine.catch_up().unwrap().is_empty());
        }
        let asked = client.transport().chain().asked;
        assert_eq!((asked.0 - queries, asked.1 - updates), (24 * 60, 144), "{options:?}");
        assert_eq!(engine.figures().unconfirmed, 0, "{options:?}");
    }
}

#[test]
fn reader_without_a_role_continues_with_unknown_lag() {
    let (mut server, client, seconds) = (Sqlite::new(), chain(&[10; 5]), Seconds::default());
    client.transport().chain().registered = false;
    let mut engine = by_clock(&client, &server.fresh(), reader(), &seconds);
    let notes = engine.catch_up().unwrap();
    assert!(notes.len() == 1 && notes[0].contains("lag is unknown") && notes[0].contains("--identity"), "{notes:?}");
    // The ingress filter's refusal is not certified, and believed only after it was repeated.
    while client.transport().chain().asked.1 < u64::from(BELIEVED) {
        assert!(engine.catch_up().unwrap().is_empty(), "the note comes once");
    }
    for _ in 0..3 {
        seconds.pass(AT_REST.as_secs());
        assert!(engine.catch_up().unwrap().is_empty(), "the note comes once");
    }
    let figures = engine.figures();
    assert_eq!((engine.tip(), figures.lag, figures.largest_lag, figures.head), (Some(14), None, None, None));
    assert_eq!(client.transport().chain().asked.1, u64::from(BELIEVED) + 3, "at the start, and every ten minutes");
    // With a role, the lag becomes known.
    client.transport().chain().registered = true;
    seconds.pass(AT_REST.as_secs());
    engine.catch_up().unwrap();
    assert_eq!(engine.figures().lag, Some(0));
}

/// A replica reports nothing new, and its gateway refuses update calls, as if the reader had no role.
#[test]
fn few_uncertified_refusals_do_not_make_nothing_new_trusted() {
    let (mut server, client, seconds) = (Sqlite::new(), chain(&[10; 5]), Seconds::default());
    let mut engine = by_clock(&client, &server.fresh(), reader(), &seconds);
    engine.catch_up().unwrap();
    nothing_new(&client);
    client.transport().chain().append(1, &[10; 50]);
    seconds.pass(AT_REST.as_secs());
    client.transport().chain().registered = false;
    let before = client.transport().chain().asked.1;
    while client.transport().chain().asked.1 < before + u64::from(BELIEVED) - 2 {
        engine.catch_up().unwrap();
    }
    assert_eq!((engine.tip(), engine.figures().lag), (Some(14), None));
    client.transport().chain().registered = true;
    engine.catch_up().unwrap();
    assert_eq!((engine.tip(), engine.figures().lag), (Some(64), Some(0)), "without waiting for ten minutes");
}

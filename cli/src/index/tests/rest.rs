//! A replica that says "nothing new", for ever.

use super::*;
use crate::client::BELIEVED;
use crate::index::rest::AT_REST;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Seconds that pass when a test says so.
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
fn nothing_new_is_believed_for_ten_minutes_and_the_lag_goes_by_update_calls() {
    for options in [options(), reader()] {
        let (mut server, client, seconds) = (Sqlite::new(), chain(&[10; 5]), Seconds::default());
        let mut engine = by_clock(&client, &server.fresh(), options, &seconds);
        engine.catch_up().unwrap();
        assert_eq!(engine.figures().lag, Some(0), "{options:?}");
        nothing_new(&client);
        client.transport().chain().append(1, &[10; 50]);
        let updates = client.transport().chain().asked.1;
        // A poll a second, up to ten minutes after the update call with which the run began.
        for _ in 0..599 {
            seconds.pass(1);
            assert!(engine.catch_up().unwrap().is_empty());
        }
        assert_eq!((client.transport().chain().asked.1, engine.tip()), (updates, Some(14)), "{options:?}");
        seconds.pass(1);
        while engine.figures().head == Some(14) {
            engine.step().unwrap();
        }
        assert_eq!(engine.figures().largest_lag, Some(50), "{options:?}: as an update call said");
        // The lie goes on, and is known to be one as long as something is missing.
        engine.catch_up().unwrap();
        let figures = engine.figures();
        assert_eq!((engine.tip(), figures.lag, figures.largest_lag), (Some(64), Some(0), Some(50)), "{options:?}");
        assert!(figures.unconfirmed > 0, "{options:?}");
        assert_eq!(client.transport().chain().bound, if options.by_query() { 0 } else { 65 });
    }
}

#[test]
fn a_replica_that_is_late_for_ever_is_believed_for_ten_minutes() {
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

/// A run that is to end at the head begins with an update call, which names it.
#[test]
fn a_run_that_ends_at_the_head_is_not_ended_by_a_lie() {
    let (mut server, client) = (Sqlite::new(), chain(&[300; 20]));
    nothing_new(&client);
    let mut engine = engine(&client, &server.fresh(), reader());
    engine.catch_up().unwrap();
    assert_eq!((engine.tip(), engine.figures().lag), (Some(29), Some(0)));
}

#[test]
fn update_calls_at_rest_are_no_more_than_one_in_ten_minutes() {
    for options in [options(), reader()] {
        let (mut server, client, seconds) = (Sqlite::new(), chain(&[10; 5]), Seconds::default());
        let mut engine = by_clock(&client, &server.fresh(), options, &seconds);
        engine.catch_up().unwrap();
        let (queries, updates) = client.transport().chain().asked;
        // A day, a poll a minute.
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
fn a_reader_without_a_role_reads_on_and_its_lag_is_unknown() {
    let (mut server, client, seconds) = (Sqlite::new(), chain(&[10; 5]), Seconds::default());
    client.transport().chain().registered = false;
    let mut engine = by_clock(&client, &server.fresh(), reader(), &seconds);
    let notes = engine.catch_up().unwrap();
    assert!(notes.len() == 1 && notes[0].contains("lag is not known") && notes[0].contains("--identity"), "{notes:?}");
    // The ingress filter's refusal is one gateway's word, and believed when it came often.
    while client.transport().chain().asked.1 < u64::from(BELIEVED) {
        assert!(engine.catch_up().unwrap().is_empty(), "it is said once");
    }
    for _ in 0..3 {
        seconds.pass(AT_REST.as_secs());
        assert!(engine.catch_up().unwrap().is_empty(), "it is said once");
    }
    let figures = engine.figures();
    assert_eq!((engine.tip(), figures.lag, figures.largest_lag, figures.head), (Some(14), None, None, None));
    assert_eq!(client.transport().chain().asked.1, u64::from(BELIEVED) + 3, "at the start, and every ten minutes");
    // As soon as it has a role, the lag is known.
    client.transport().chain().registered = true;
    seconds.pass(AT_REST.as_secs());
    engine.catch_up().unwrap();
    assert_eq!(engine.figures().lag, Some(0));
}

/// A replica says "nothing new", and its gateway refuses update calls as if the reader had no role.
#[test]
fn a_few_refusals_without_the_subnets_word_do_not_make_nothing_new_believed() {
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
    assert_eq!((engine.tip(), engine.figures().lag), (Some(64), Some(0)), "without a wait of ten minutes");
}

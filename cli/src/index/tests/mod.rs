//! Tests of the engine against a fake canister in memory, on both databases.

mod acknowledge;
mod connections;
mod copies;
mod deaths;
mod lies;
mod orphans;
mod proofs;
mod readers;
mod refusals;
mod resets;
mod restores;
mod rows;

use super::database::{Access, Database, Row, Value};
use super::engine::Engine;
use super::fake::{Chain, Fake};
use super::origin::{Origin, Payload};
use super::steps::{Checkpoint, Event, Figures, Onward, Options, Step};
use super::store::Store;
use super::tables::Tables;
use crate::client::{CanisterClient, Client};
use anyhow::{Context, Result, anyhow, ensure};
use ic_coppice_interface::{ExportError, ExportPage};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io::Write as _;

fn origin(payload: Payload) -> Origin {
    Origin { canister: "aaaaa-aa".into(), network: "memory".into(), payload }
}

fn options() -> Options {
    Options {
        page_bytes: 1_000,
        ack_every: Some(3),
        skip_damaged: false,
        accept_reset: false,
        accept_restore: false,
        keep_orphaned: 100,
        tables: Tables { keys: true, receipts: true },
    }
}

/// A source of empty databases.
trait Server {
    fn fresh(&mut self) -> String;

    /// Copies a database that nothing has open, and that may not exist yet; `None` if the server does not copy.
    fn copy_of(&mut self, _: &str) -> Option<String> {
        None
    }
}

struct Sqlite(tempfile::TempDir, u32);

impl Sqlite {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), 0)
    }
}

impl Server for Sqlite {
    fn fresh(&mut self) -> String {
        self.1 += 1;
        format!("sqlite://{}/{}.db", self.0.path().display(), self.1)
    }

    fn copy_of(&mut self, url: &str) -> Option<String> {
        let copy = self.fresh();
        for suffix in ["", "-wal"] {
            let path = |url: &str| format!("{}{suffix}", url.trim_start_matches("sqlite://"));
            if std::fs::exists(path(url)).unwrap() {
                std::fs::copy(path(url), path(&copy)).unwrap();
            }
        }
        Some(copy)
    }
}

/// A schema of the server that `COPPICE_POSTGRES` names, emptied each time.
struct Postgres {
    url: String,
    schema: String,
}

impl Postgres {
    /// Returns `None`, with a note on stderr, if no server is named.
    fn new(test: &str) -> Option<Self> {
        let Ok(url) = std::env::var("COPPICE_POSTGRES") else {
            // Written to stderr directly, because the test harness hides the output of passing tests.
            let note = format!("not run on PostgreSQL: {test}; COPPICE_POSTGRES names no server");
            writeln!(std::io::stderr(), "{note}").unwrap();
            return None;
        };
        Some(Self { url, schema: format!("coppice_{test}_{}", std::process::id()) })
    }
}

impl Server for Postgres {
    fn fresh(&mut self) -> String {
        let Self { url, schema } = &self;
        let sql = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}");
        Database::open(Access::volatile(url)).unwrap().transaction(|tx| tx.define(&sql)).unwrap();
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}options[search_path]={schema}")
    }
}

/// Returns the contents of a database, except for the number of transactions that wrote it.
fn dump(url: &str) -> Vec<String> {
    let int = |row: &Row, at| format!("{:?}", row.get::<Option<i64>>(at).unwrap());
    let bytes = |row: &Row, at| match row.get::<Option<Vec<u8>>>(at).unwrap() {
        Some(bytes) => format!("{} {:02x?}", bytes.len(), crate::feed::sha256(&bytes)),
        None => "none".into(),
    };
    let text = |row: &Row, at| row.get::<String>(at).unwrap();
    let tables: [(&str, &str); 13] = [
        ("SELECT schema_version, canister, network, payload, keys_through, receipts_through FROM state", "itttii"),
        ("SELECT key, number, position FROM keys ORDER BY key, number, position", "bii"),
        ("SELECT number, position, bytes FROM receipts ORDER BY number, position", "iib"),
        (
            "SELECT number, hash, parent_hash, timestamp_secs, transactions, body_length, receipts_length, index_length, \
          body_sha256, receipts_sha256, index_sha256, body, receipts, index_segment, seal FROM blocks ORDER BY number",
            "ibbiiiiibbbbbbb",
        ),
        ("SELECT number, position, id FROM transactions ORDER BY number, position", "iib"),
        ("SELECT number, segment, starts_at, bytes FROM parts ORDER BY number, segment, starts_at", "iiib"),
        ("SELECT number, block FROM incomplete", "it"),
        (
            "SELECT number, hash, parent_hash, timestamp_secs, transactions, body_length, receipts_length, index_length, \
          body_sha256, receipts_sha256, index_sha256, body, receipts, index_segment, seal FROM orphaned ORDER BY removal, number",
            "ibbiiiiibbbbbbb",
        ),
        ("SELECT number, position, id FROM orphaned_transactions ORDER BY removal, number, position", "iib"),
        (
            "SELECT number, segment, starts_at, bytes FROM orphaned_parts ORDER BY removal, number, segment, starts_at",
            "iiib",
        ),
        ("SELECT first, last, why FROM gaps ORDER BY first", "iit"),
        ("SELECT number, certificate, hash_tree FROM certificates ORDER BY number", "ibb"),
        ("SELECT number, before FROM runs ORDER BY number", "ib"),
    ];
    let mut lines = Vec::new();
    Database::open(Access::volatile(url))
        .unwrap()
        .transaction(|tx| {
            for (sql, columns) in tables {
                for row in tx.all(sql, &[])? {
                    let values = columns.chars().enumerate().map(|(at, column)| match column {
                        'i' => int(&row, at),
                        'b' => bytes(&row, at),
                        _ => text(&row, at),
                    });
                    lines.push(format!(
                        "{}: {}",
                        &sql[sql.find("FROM").unwrap()..],
                        values.collect::<Vec<_>>().join(", ")
                    ));
                }
            }
            Ok(())
        })
        .unwrap();
    lines
}

fn engine<'a>(client: &'a Client<Fake>, url: &str, options: Options) -> Engine<'a, Fake> {
    Engine::open(client, Store::open(Access::volatile(url), &origin(Payload::All)).unwrap(), options, Onward).unwrap()
}

/// Runs until the head, however often the engine waits for another answer.
trait Settle {
    /// Returns the notes. Ends after forty waits.
    fn settle(&mut self) -> Result<Vec<String>> {
        self.settle_within(40)
    }

    /// Does the same, and ends after this number of waits.
    fn settle_within(&mut self, most: u32) -> Result<Vec<String>>;
}

impl<T: CanisterClient, C: Checkpoint> Settle for Engine<'_, T, C> {
    fn settle_within(&mut self, most: u32) -> Result<Vec<String>> {
        let (mut notes, mut waits) = (Vec::new(), 0);
        while waits < most {
            match self.step()? {
                Event::CaughtUp => break,
                Event::Behind(note) => {
                    notes.push(note);
                    waits += 1;
                }
                Event::Note(note) => notes.push(note),
                Event::Went | Event::Stored => {}
            }
        }
        Ok(notes)
    }
}

fn chain(bodies: &[usize]) -> Client<Fake> {
    let client = Client::new(Fake::new());
    client.transport().chain().append(1, bodies);
    client
}

/// A block's hash, its segments, and the length of its body in its row.
type Stored = (Vec<u8>, [Vec<u8>; 3], i64);

/// Returns the contents of each stored block, assembled as a reader does it.
fn stored(url: &str) -> HashMap<u64, Stored> {
    let mut database = Database::open(Access::volatile(url)).unwrap();
    database
        .transaction(|tx| {
            let mut blocks = HashMap::new();
            let sql = "SELECT number, hash, body, receipts, index_segment, body_length FROM blocks";
            for row in tx.all(sql, &[])? {
                let number: i64 = row.get(0)?;
                let mut segments: [Vec<u8>; 3] = Default::default();
                for (at, segment) in (0i64..).zip(&mut segments) {
                    let sql = "SELECT bytes FROM parts WHERE number = $1 AND segment = $2 ORDER BY starts_at";
                    match row.get::<Option<Vec<u8>>>(2 + at as usize)? {
                        Some(bytes) => *segment = bytes,
                        None => {
                            for part in tx.all(sql, &[number.into(), at.into()])? {
                                segment.extend(part.get::<Vec<u8>>(0)?);
                            }
                        }
                    }
                }
                blocks.insert(number as u64, (row.get(1)?, segments, row.get(5)?));
            }
            Ok(blocks)
        })
        .unwrap()
}

//! `coppice index`: copies a canister's chain into a database, and acknowledges stored blocks so that they may be pruned.
//!
//! ```text
//!           1. get_tip_certificate            of the subnet
//!           2. get_block_headers              up to the certified seal: 32 bytes a block (ahead.rs)
//!           3. export_blocks                  each block must fit its header      one transaction
//!  canister ──────────────────────────────▶ engine ─────────────────────────────────────────────▶ store ──▶ SQLite, PostgreSQL
//!      ▲                                      │                                                     │
//!      └───── ack_exported ───────────────────┴──────────────── committed blocks only ─────────────┘
//! ```
//! **Files, in reading order**
//!
//! - `run`: the loop with its retries. `engine/`: one step after the other; `certify`, `headers`, `pull`, `acknowledge`, and `subnet` for
//!   answers that only the subnet can give. `steps`: options, events and figures of a run.
//! - Lies: `ahead` (`Proved::check`) compares each block with the proved headers, `assemble` each chunk with the header, `change`
//!   (`check_digest`) each segment with its digest; `engine/pull` handles a page that is refuted. `header`: what a block's header declares.
//! - `store` and `change`: transactions on the database. `rows`, `receipts`, `tables`: rows of a block. `database/`: SQLite and PostgreSQL;
//!   `secure`: TLS of the connection. `schema`, `origin`: the layout, and whose chain it is. `held`, `reader`: reading it.
//! - `watch`: progress, metrics and `/healthz`.

pub mod ahead;
pub mod assemble;
pub mod change;
pub mod database;
pub mod engine;
#[cfg(test)]
mod fake;
pub mod header;
pub mod held;
pub mod origin;
pub mod reader;
mod receipts;
mod rows;
pub mod run;
pub mod schema;
pub mod secure;
pub mod steps;
pub mod store;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod watch;

use crate::client::CanisterClient;
use crate::report::{Report, blocks, bytes, count, seconds_since, transactions};
use crate::stop::Stop;
use anyhow::{Result, ensure};
use database::{Access, Limits};
use engine::Engine;
use held::Held;
use origin::Payload;
use serde::Serialize;
use std::time::Instant;
use steps::Figures;
use tables::Tables;

/// The report of an indexer's run.
#[derive(Clone, Debug, Serialize)]
pub struct IndexReport {
    /// "index".
    pub command: &'static str,
    /// "SQLite" or "PostgreSQL".
    pub database: &'static str,
    /// The canister's principal.
    pub canister: String,
    /// The counts of this run.
    #[serde(flatten)]
    pub figures: Figures,
    /// The contents of the database, from this and earlier runs.
    pub held: Held,
    /// Wall-clock seconds, without the build.
    pub elapsed_secs: f64,
}

impl Report for IndexReport {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { figures, held, .. } = self;
        let number = |number: Option<u64>| number.map_or("none".into(), count);
        let lag = |lag: Option<u64>| lag.map_or("unknown: there was no certificate of the head".into(), blocks);
        vec![
            ("canister", self.canister.clone()),
            ("database", self.database.into()),
            ("holds blocks", format!("{} to {}", number(held.first), number(held.last))),
            ("holds", format!("{}, {}", blocks(held.blocks), transactions(held.transactions))),
            ("missing between these blocks", blocks(held.gap_blocks)),
            ("removed by reorgs, and kept", blocks(held.orphaned_blocks)),
            ("indexed in this run", format!("{}, {}", blocks(figures.blocks), transactions(figures.transactions))),
            ("verified: SHA-256 of every segment", bytes(figures.bytes)),
            ("stored earlier, rows made in this run", blocks(figures.filled_blocks)),
            ("blocks without rows in keys", count(held.blocks_without_keys)),
            ("blocks without rows in receipts", count(held.blocks_without_receipts)),
            ("reorgs followed", format!("{}, {} removed", count(figures.reorgs), blocks(figures.removed_blocks))),
            ("gaps left", format!("{}, {}", count(figures.gaps), blocks(figures.gap_blocks))),
            ("refuted answers", count(figures.refuted)),
            ("retried", count(figures.retried)),
            ("acknowledgements", count(figures.acks)),
            ("acknowledged before block", number(figures.acknowledged_before)),
            ("lag", lag(figures.lag)),
            ("largest lag", lag(figures.largest_lag)),
            ("seconds", format!("{:.1}", self.elapsed_secs)),
        ]
    }
}

impl IndexReport {
    /// Builds the report of an engine's run.
    ///
    /// # Errors
    /// When the database fails.
    pub fn of<T: CanisterClient>(engine: &mut Engine<'_, T>, canister: String, started: Instant) -> Result<Self> {
        Ok(Self {
            command: "index",
            database: engine.store().kind().name(),
            canister,
            figures: engine.figures(),
            held: engine.store().held()?,
            elapsed_secs: seconds_since(started),
        })
    }
}

/// Options that name a database.
#[derive(Clone, Debug, clap::Args)]
pub struct DatabaseArgs {
    /// Database for the blocks: sqlite://FILE or, on another machine, postgres://USER@HOST/NAME?sslmode=verify-full
    #[arg(
        long,
        value_name = "URL",
        env = "COPPICE_DATABASE",
        default_value = "sqlite://coppice.db",
        hide_env_values = true
    )]
    pub database: String,
    /// Allow PostgreSQL on another machine without sslmode=verify-full; machines in between can then read and change all data
    #[arg(long)]
    pub insecure_database: bool,
    /// Allow a database that a crash of its machine may empty: PostgreSQL with fsync = off, or SQLite on tmpfs, ramfs, NFS, SMB or FUSE
    #[arg(long)]
    pub volatile_database: bool,
    /// Limits of its calls.
    #[command(flatten)]
    pub limits: Limits,
    /// Parts of each block's payload to keep; all parts are verified
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Payload::All)]
    pub payload: Payload,
    /// Do not fill the table keys, which finds transactions by their secondary keys
    #[arg(long)]
    pub no_keys: bool,
    /// Fill the table receipts, with the receipt of each transaction in a row of its own
    #[arg(long)]
    pub receipts: bool,
}

impl DatabaseArgs {
    /// Checks the database's URL before anything is built or reached.
    ///
    /// # Errors
    /// When the URL names no known database, or PostgreSQL on another machine without a verified certificate; when receipts are asked for
    /// and no payload is kept.
    pub fn check(&self) -> Result<()> {
        ensure!(
            !self.receipts || self.payload == Payload::All,
            "--receipts needs --payload all, because a database without payloads has no receipts"
        );
        secure::ensure_allowed(&self.database, self.insecure_database)
    }

    /// Returns how to reach the database, in a run that `stop` ends.
    pub fn access(&self, stop: &Stop) -> Access {
        Access { url: self.database.clone(), volatile: self.volatile_database, limits: self.limits, stop: stop.clone() }
    }

    pub fn tables(&self) -> Tables {
        Tables { keys: !self.no_keys, receipts: self.receipts }
    }
}

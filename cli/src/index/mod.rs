//! `coppice index`: pulls a canister's chain into a database, and acknowledges what is stored so that it may be pruned.
//!
//! ```text
//!              export_blocks          chunks            one transaction
//!  canister ───────────────▶ engine ─────────▶ assemble ───────────────▶ store ──▶ SQLite, PostgreSQL
//!      ▲                       │                                           │
//!      └───── ack_exported ────┴───────────── only what is committed ──────┘
//! ```

mod ask;
pub mod assemble;
pub mod change;
mod confirm;
pub mod database;
pub mod engine;
#[cfg(test)]
mod fake;
pub mod origin;
mod page;
mod reorg;
mod rest;
pub mod run;
pub mod schema;
mod secure;
pub mod steps;
pub mod store;
#[cfg(test)]
mod tests;

use crate::client::Reach;
use crate::report::{Report, blocks, bytes, count, ranges, seconds_since};
use anyhow::Result;
use engine::Engine;
use origin::Payload;
use serde::Serialize;
use std::time::Instant;
use steps::Figures;
use store::Held;

/// The most ranges of numbers in a report.
const RANGES: i64 = 1_000;
/// The figures of an indexer's run.
#[derive(Clone, Debug, Serialize)]
pub struct IndexReport {
    /// "index".
    pub command: &'static str,
    /// "SQLite" or "PostgreSQL".
    pub database: &'static str,
    /// The canister's principal.
    pub canister: String,
    /// What this run did.
    #[serde(flatten)]
    pub figures: Figures,
    /// What the database holds, of this run and those before.
    pub held: Held,
    /// Blocks that stand on one replica's word: ranges of numbers, both inclusive, the lowest 1,000 ranges.
    pub unconfirmed_ranges: Vec<(u64, u64)>,
    /// Wall-clock seconds, without the build.
    pub seconds: f64,
}

impl Report for IndexReport {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { figures, held, .. } = self;
        let number = |number: Option<u64>| number.map_or("none".into(), count);
        let lag = |lag: Option<u64>| lag.map_or("unknown: no update call has named a head".into(), blocks);
        let mut rows = vec![
            ("canister", self.canister.clone()),
            ("database", self.database.into()),
            ("holds blocks", format!("{} to {}", number(held.first), number(held.last))),
            ("holds", format!("{}, {} transactions", blocks(held.blocks), count(held.transactions))),
            ("missing between them", blocks(held.gap_blocks)),
            ("taken out by reorgs, and kept", blocks(held.orphaned_blocks)),
            ("on one replica's word", blocks(held.unconfirmed_blocks)),
            ("confirmed by the subnet now", blocks(figures.confirmed)),
            ("indexed now", format!("{}, {} transactions", blocks(figures.blocks), count(figures.transactions))),
            ("verified: SHA-256 of every segment", bytes(figures.bytes)),
            ("reorgs followed", format!("{}, {} taken out", count(figures.reorgs), blocks(figures.removed_blocks))),
            ("gaps left", format!("{}, {}", count(figures.gaps), blocks(figures.gap_blocks))),
            ("answers to queries not confirmed", count(figures.unconfirmed)),
            ("tried again", count(figures.retried)),
            ("acknowledgements", count(figures.acks)),
            ("acknowledged before block", number(figures.acknowledged_before)),
            ("lag", lag(figures.lag)),
            ("largest lag", lag(figures.largest_lag)),
        ];
        if !self.unconfirmed_ranges.is_empty() {
            rows.push(("of one replica: blocks", ranges(&self.unconfirmed_ranges)));
        }
        rows.push(("seconds", format!("{:.1}", self.seconds)));
        rows
    }
}

impl IndexReport {
    /// The figures of an engine's run.
    ///
    /// # Errors
    /// When the database fails.
    pub fn of<T: Reach>(engine: &mut Engine<'_, T>, canister: String, started: Instant) -> Result<Self> {
        Ok(Self {
            command: "index",
            database: engine.store().kind().name(),
            canister,
            figures: engine.figures(),
            held: engine.store().held()?,
            unconfirmed_ranges: engine.store().unconfirmed_ranges(RANGES)?,
            seconds: seconds_since(started),
        })
    }
}

/// Options that name a database.
#[derive(Clone, Debug, clap::Args)]
pub struct DatabaseArgs {
    /// Where blocks go: sqlite://FILE or, on another machine, postgres://USER@HOST/NAME?sslmode=verify-full
    #[arg(
        long,
        value_name = "URL",
        env = "COPPICE_DATABASE",
        default_value = "sqlite://coppice.db",
        hide_env_values = true
    )]
    pub database: String,
    /// Reach PostgreSQL on another machine without sslmode=verify-full: whoever stands between can read and change all
    #[arg(long)]
    pub insecure_database: bool,
    /// What is kept of a block's payload, all of which is verified
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Payload::All)]
    pub payload: Payload,
}

impl DatabaseArgs {
    /// Checks that the database can be one, before anything is built or reached.
    ///
    /// # Errors
    /// When no database is known by the URL, or it is PostgreSQL on another machine without a verified certificate.
    pub fn check(&self) -> Result<()> {
        if self.insecure_database {
            return database::Kind::of(&self.database).map(drop);
        }
        secure::ensure_secure(&self.database)
    }
}

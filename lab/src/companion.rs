//! An indexer beside a feeder: blocks go in, the pruner takes them out behind, and the indexer is in between. The two take turns, so
//! that the same blocks make the same run: the feeder appends some, then the indexer indexes all of them, for which no chain waits.

use anyhow::{Result, ensure};
use coppice::client::{Client, Reach, Trials, Wait};
use coppice::feed;
use coppice::index::engine::Engine;
use coppice::index::origin::Origin;
use coppice::index::steps::{Event, Figures, Onward, Options};
use coppice::index::store::Store;
use coppice::ledger::Ledger;
use coppice::progress::Progress;
use coppice::report::{blocks, bytes, count};
use coppice::say;
use coppice::site::{BLOCK_INTERVAL, Site};
use coppice_interface::{AppendBlock, Exporter, RemoveExporter, Role};
use serde::Serialize;
use std::time::Duration;

/// The name under which it is registered.
const NAME: &str = "coppice-index";
/// Wait after a failure of the network.
const RETRY: Duration = Duration::from_secs(1);
/// Blocks after which it acknowledges, and whenever it is at the head.
const ACK_EVERY: u64 = 16;
/// Blocks that the feeder appends in its turn.
const TURN: u64 = 16;

/// What it did, and what the database then held.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Indexed {
    /// "SQLite" or "PostgreSQL".
    pub database: &'static str,
    /// What the run did.
    #[serde(flatten)]
    pub figures: Figures,
    /// Blocks in the database whose header, lengths, digests and number of transactions are those of what was appended; of
    /// every sixteenth the ids, too.
    pub verified_blocks: u64,
    /// Transactions in the database.
    pub stored_transactions: u64,
    /// Blocks that were pruned before they were indexed: those that the database notes as missing.
    pub pruned_before_indexed: u64,
}

impl Indexed {
    /// Rows of a report.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { figures, .. } = self;
        let indexed = format!(
            "{}, {} transactions, {}, in {}",
            blocks(figures.blocks),
            count(figures.transactions),
            bytes(figures.bytes),
            self.database
        );
        vec![
            ("indexed", indexed),
            ("indexed: in the database as appended", blocks(self.verified_blocks)),
            ("indexed: acknowledgements", count(figures.acks)),
            ("largest lag of the indexer", blocks(figures.largest_lag.unwrap_or_default())),
            ("pruned before they were indexed", blocks(self.pruned_before_indexed)),
        ]
    }
}

/// A registered exporter.
pub struct Companion<'a, T: Reach> {
    client: &'a Client<T>,
    engine: Engine<'a, T>,
    registered: bool,
    /// Blocks that were appended since it was registered.
    appended: u64,
}

impl<'a, T: Reach> Companion<'a, T> {
    /// Registers it, and opens its database, which must have no blocks.
    ///
    /// # Errors
    /// When the canister refuses, or the database cannot be used.
    pub fn start(client: &'a Client<T>, database: &str, origin: &Origin) -> Result<Self> {
        let mut store = Store::open(database, origin)?;
        let held = store.held()?;
        ensure!(
            held.blocks == 0 && held.gap_blocks == 0,
            "the database holds {} of another run, and this canister is a new one; name another database (--database)",
            blocks(held.blocks)
        );
        client
            .register_exporter(&Exporter { name: NAME.into(), principal: client.transport().principal(Role::Exporter) })
            .done()?;
        let options = Options { ack_every: Some(ACK_EVERY), ..Options::default() };
        Ok(Self { client, engine: Engine::open(client, store, options, Onward)?, registered: true, appended: 0 })
    }

    /// Feeds blocks, with the time of a block behind each, and indexes all of them. `note` sees every block that is in, and whether it
    /// went in chunks. Answers the ledger of the blocks.
    ///
    /// # Errors
    /// When the canister refuses a block or traps; as [`Engine::step`]; those of `note`.
    pub fn feed(
        &mut self,
        what: &'static str,
        total: u64,
        blocks: impl IntoIterator<Item = AppendBlock>,
        mut note: impl FnMut(&AppendBlock, bool) -> Result<()>,
    ) -> Result<Ledger>
    where
        T: Site,
    {
        let progress = Progress::new(what, total);
        let mut ledger = Ledger::default();
        for block in blocks {
            let in_chunks = feed::send(self.client, &block)?;
            ledger.record(&block);
            note(&block, in_chunks)?;
            self.appended()?;
            self.client.transport().pass(BLOCK_INTERVAL)?;
            progress.advance();
        }
        progress.finish();
        self.catch_up()?;
        Ok(ledger)
    }

    /// Counts one more appended block. If this block ends the feeder's turn, the indexer's turn comes.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn appended(&mut self) -> Result<()> {
        self.appended += 1;
        if self.appended.is_multiple_of(TURN) { self.catch_up() } else { Ok(()) }
    }

    /// Indexes until everything that was appended is indexed.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn catch_up(&mut self) -> Result<()> {
        let mut trials = Trials::default();
        let mut behind = self.is_behind();
        while behind {
            let event = match self.engine.step() {
                // Over a network: it is tried again.
                Err(error) if trials.may_retry(&error) => {
                    say!("{error:#}; trying again");
                    std::thread::sleep(RETRY);
                    continue;
                }
                event => event?,
            };
            trials.answered();
            match event {
                Event::Note(note) | Event::Behind(note) => say!("note: {note}"),
                Event::CaughtUp => behind = self.is_behind(),
                Event::Stored | Event::Went => {}
            }
        }
        Ok(())
    }

    fn is_behind(&self) -> bool {
        self.engine.figures().handled() < self.appended
    }

    /// Holds the database against what was appended.
    ///
    /// # Errors
    /// When the database fails, or is not what it should be.
    pub fn verify(&mut self, ledger: &Ledger) -> Result<Indexed> {
        let (figures, store) = (self.engine.figures(), self.engine.store());
        let (held, verified_blocks) = (store.held()?, store.count_same(ledger.entries())?);
        let expected = (ledger.entries().len() as u64, ledger.transactions());
        ensure!(
            held.gap_blocks == 0,
            "{} were pruned before they were indexed, although the indexer is a registered exporter",
            blocks(held.gap_blocks)
        );
        let found = (verified_blocks, held.transactions);
        ensure!(
            found == expected,
            "the database should hold {expected:?} blocks and transactions as they were appended, and holds {found:?}"
        );
        Ok(Indexed {
            database: store.kind().name(),
            figures,
            verified_blocks,
            stored_transactions: held.transactions,
            pruned_before_indexed: held.gap_blocks,
        })
    }

    /// The indexer itself.
    pub fn engine(&mut self) -> &mut Engine<'a, T> {
        &mut self.engine
    }

    /// Takes the exporter out again: nobody will acknowledge any more.
    ///
    /// # Errors
    /// When the canister refuses.
    pub fn unregister(&mut self) -> Result<()> {
        self.registered = false;
        self.client.remove_exporter(&leaving()).done()
    }
}

/// Whatever ends the run, pruning must not wait for an exporter that is gone.
impl<T: Reach> Drop for Companion<'_, T> {
    fn drop(&mut self) {
        if self.registered
            && let Err(error) = self.client.remove_exporter(&leaving()).done()
        {
            say!("note: the exporter {NAME} is still registered: {error:#}");
        }
    }
}

fn leaving() -> RemoveExporter {
    RemoveExporter { name: NAME.into(), drop_guard: true }
}

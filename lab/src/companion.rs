//! An indexer beside a feeder, in a thread of its own: blocks go in, the pruner takes them out behind, and the indexer is in
//! between. The two take turns, so that the same blocks make the same run: the feeder appends some, then waits until all of them are indexed, as
//! a chain does not.

use anyhow::{Result, anyhow, ensure};
use coppice::client::{Client, Reach, Trials, Wait};
use coppice::index::engine::Engine;
use coppice::index::origin::Origin;
use coppice::index::steps::{Event, Figures, Onward, Options};
use coppice::index::store::Store;
use coppice::ledger::Ledger;
use coppice::report::{blocks, bytes, count};
use coppice::say;
use coppice_interface::{Exporter, RemoveExporter, Role};
use serde::Serialize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
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

/// How far both are.
#[derive(Default)]
struct Progress {
    appended: u64,
    /// True during the indexer's turn.
    indexing: bool,
    /// No more blocks come.
    all_fed: bool,
    /// The indexer has ended, before its time or not.
    ended: bool,
}

/// Where feeder and indexer meet.
#[derive(Default)]
pub struct Pace {
    progress: Mutex<Progress>,
    moved: Condvar,
}

impl Pace {
    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress());
        self.moved.notify_all();
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more appended block. If this block ends the feeder's turn, waits until the indexer's turn ends.
    ///
    /// # Errors
    /// When the indexer has ended; its own error says why.
    pub fn appended(&self) -> Result<()> {
        self.change(|progress| {
            progress.appended += 1;
            progress.indexing = progress.appended.is_multiple_of(TURN);
        });
        let progress = self
            .moved
            .wait_while(self.progress(), |progress| !progress.ended && progress.indexing)
            .unwrap_or_else(PoisonError::into_inner);
        ensure!(!progress.ended, "the indexer has ended");
        Ok(())
    }

    /// Waits for the indexer's turn, or the end of the feed; answers how many blocks were appended.
    fn wait_for_turn(&self) -> u64 {
        self.moved
            .wait_while(self.progress(), |progress| !progress.all_fed && !progress.indexing)
            .unwrap_or_else(PoisonError::into_inner)
            .appended
    }

    /// Returns whether blocks beyond the indexed ones were appended. If there are none in this turn, waits for the indexer's next turn.
    fn has_more(&self, indexed: u64) -> bool {
        if self.progress().appended > indexed {
            return true;
        }
        self.change(|progress| progress.indexing = false);
        self.wait_for_turn() > indexed
    }
}

/// A registered exporter.
pub struct Companion<'a, T: Reach> {
    client: &'a Client<T>,
    engine: Engine<'a, T>,
    registered: bool,
}

impl<'a, T: Reach + Sync> Companion<'a, T> {
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
        Ok(Self { client, engine: Engine::open(client, store, options, Onward)?, registered: true })
    }

    /// Indexes while `feed` appends, until everything that it appended is indexed.
    ///
    /// # Errors
    /// As [`Engine::step`]; the feeder's own.
    pub fn index_while<R>(&mut self, feed: impl FnOnce(&Pace) -> Result<R>) -> Result<R> {
        let pace = Pace::default();
        let engine = &mut self.engine;
        let before = engine.figures().handled();
        std::thread::scope(|scope| {
            let indexer = scope.spawn(|| {
                let result = keep_up(engine, &pace, before);
                pace.change(|progress| progress.ended = true);
                result
            });
            let fed = feed(&pace);
            pace.change(|progress| progress.all_fed = true);
            let indexed = indexer.join().map_err(|_| anyhow!("the indexer has panicked"))?;
            // Where it has failed, the feeder knows no more than that.
            indexed.and(fed)
        })
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

fn keep_up<T: Reach>(engine: &mut Engine<'_, T>, pace: &Pace, before: u64) -> Result<()> {
    let mut trials = Trials::default();
    pace.wait_for_turn();
    loop {
        let event = match engine.step() {
            // Over a network: it is tried again.
            Err(error) if trials.go_on(&error) => {
                say!("{error:#}; trying again");
                std::thread::sleep(RETRY);
                continue;
            }
            event => event?,
        };
        trials.answered();
        let indexed = engine.figures().handled() - before;
        match event {
            Event::Note(note) | Event::Behind(note) => say!("note: {note}"),
            Event::CaughtUp if !pace.has_more(indexed) => return Ok(()),
            Event::CaughtUp | Event::Stored | Event::Went => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeder_and_indexer_take_turns_and_the_feeder_hears_that_the_indexer_has_ended() {
        for _ in 0..100 {
            let pace = Pace::default();
            std::thread::scope(|scope| {
                let indexer = scope.spawn(|| {
                    let mut turns = vec![pace.wait_for_turn()];
                    while pace.has_more(turns[turns.len() - 1]) {
                        turns.push(pace.progress().appended);
                    }
                    turns
                });
                (0..2 * TURN + 3).for_each(|_| pace.appended().unwrap());
                pace.change(|progress| progress.all_fed = true);
                assert_eq!(indexer.join().unwrap(), [TURN, 2 * TURN, 2 * TURN + 3]);
            });
            pace.change(|progress| progress.ended = true);
            assert!(pace.appended().is_err());
        }
    }
}

//! An indexer that takes turns with a feeder, so that the same blocks always give the same run: the feeder appends a message of blocks, then
//! the indexer indexes all of them. The pruner prunes behind the indexer.

use anyhow::{Result, ensure};
use ic_coppice_cli::client::{BELIEVED, BLOCK_INTERVAL, CanisterClient, Client, FIRST_WAIT, Trials, Wait};
use ic_coppice_cli::exit::why;
use ic_coppice_cli::feed;
use ic_coppice_cli::index::database::Access;
use ic_coppice_cli::index::engine::Engine;
use ic_coppice_cli::index::origin::Origin;
use ic_coppice_cli::index::steps::{Event, Figures, Onward, Options};
use ic_coppice_cli::index::store::Store;
use ic_coppice_cli::index::tables::Tables;
use ic_coppice_cli::ledger::Ledger;
use ic_coppice_cli::progress::Progress;
use ic_coppice_cli::report::{blocks, bytes, count};
use ic_coppice_cli::say;
use ic_coppice_client::Room;
use ic_coppice_interface::{AppendBlock, Exporter, RemoveExporter, Role};
use serde::Serialize;
use std::iter::Peekable;
use std::time::Duration;

/// The exporter's name.
const NAME: &str = "coppice-index";
/// Wait after a network error.
const RETRY: Duration = Duration::from_secs(1);
/// Blocks after which the indexer acknowledges. It also acknowledges at the head.
const ACK_EVERY: u64 = 16;
/// Blocks that the feeder appends in a turn, at most.
const TURN: usize = 16;

/// The indexer's work, and the contents of its database.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Indexed {
    /// "SQLite" or "PostgreSQL".
    pub database: &'static str,
    #[serde(flatten)]
    pub figures: Figures,
    /// Blocks in the database whose header, lengths, digests and number of transactions equal the appended ones; for every sixteenth block
    /// the ids, too.
    pub verified_blocks: u64,
    /// Transactions in the database.
    pub stored_transactions: u64,
    /// Blocks that were pruned before they were indexed: the database records them as missing.
    pub pruned_before_indexed: u64,
}

impl Indexed {
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

/// The indexer, a registered exporter.
pub struct LockstepIndexer<'a, T: CanisterClient> {
    client: &'a Client<T>,
    engine: Engine<'a, T>,
    registered: bool,
    /// Blocks appended since its registration.
    appended: u64,
}

impl<'a, T: CanisterClient> LockstepIndexer<'a, T> {
    /// Registers the indexer and opens its database, which must be empty. The indexer fills `tables`.
    ///
    /// # Errors
    /// When the canister refuses, or the database cannot be used.
    pub fn start(client: &'a Client<T>, database: Access, origin: &Origin, tables: Tables) -> Result<Self> {
        let mut store = Store::open(database, origin)?;
        let held = store.held()?;
        ensure!(
            held.blocks == 0 && held.gap_blocks == 0,
            "the database holds {} of another run, but this canister is new; name another database (--database)",
            blocks(held.blocks)
        );
        client
            .register_exporter(&Exporter { name: NAME.into(), principal: client.transport().principal(Role::Exporter) })
            .done()?;
        let options = Options { ack_every: Some(ACK_EVERY), tables, ..Options::default() };
        Ok(Self { client, engine: Engine::open(client, store, options, Onward)?, registered: true, appended: 0 })
    }

    /// Feeds blocks, as many in a message as it has room for, and lets the time of each pass. `note` is called after every message, with its
    /// blocks and how many of them were sent in chunks, and returns whether the indexer runs. Returns the ledger of the blocks.
    ///
    /// # Errors
    /// When the canister refuses a block or traps; as [`Engine::step`]; errors of `blocks` and `note`.
    pub fn feed(
        &mut self,
        what: &'static str,
        total: u64,
        blocks: impl IntoIterator<Item = Result<AppendBlock>>,
        mut note: impl FnMut(&[AppendBlock], u64) -> Result<bool>,
    ) -> Result<Ledger> {
        let progress = Progress::new(what, total);
        let mut ledger = Ledger::default();
        let mut blocks = blocks.into_iter().peekable();
        while let Some(message) = next_message(&mut blocks)? {
            let in_chunks = feed::send(self.client, &message)?;
            self.appended(message.len());
            if note(&message, in_chunks)? {
                self.catch_up()?;
            }
            for block in &message {
                ledger.record(block);
                self.client.transport().pass(BLOCK_INTERVAL)?;
                progress.advance();
            }
        }
        progress.finish();
        self.catch_up()?;
        Ok(ledger)
    }

    /// Counts more appended blocks.
    pub fn appended(&mut self, blocks: usize) {
        self.appended += blocks as u64;
    }

    /// Indexes until every appended block is indexed.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn catch_up(&mut self) -> Result<()> {
        let (mut trials, mut in_vain) = (Trials::default(), 0);
        let mut behind = self.is_behind();
        while behind {
            let event = match self.engine.step() {
                // Over a network: it is tried again.
                Err(error) if trials.may_retry(&error) => {
                    say!("{}; trying again", why(&error));
                    std::thread::sleep(RETRY);
                    continue;
                }
                event => event?,
            };
            trials.answered();
            match event {
                Event::Note(note) => say!("note: {note}"),
                Event::Behind(note) => {
                    in_vain += 1;
                    ensure!(in_vain < BELIEVED, note);
                    std::thread::sleep(FIRST_WAIT);
                }
                Event::CaughtUp => behind = self.is_behind(),
                Event::Stored => in_vain = 0,
                Event::Went => {}
            }
        }
        Ok(())
    }

    fn is_behind(&self) -> bool {
        self.engine.figures().handled() < self.appended
    }

    /// Compares the database with the appended blocks.
    ///
    /// # Errors
    /// When the database fails, or differs.
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
            "the database should hold {expected:?} blocks and transactions as appended, but holds {found:?}"
        );
        Ok(Indexed {
            database: store.kind().name(),
            figures,
            verified_blocks,
            stored_transactions: held.transactions,
            pruned_before_indexed: held.gap_blocks,
        })
    }

    pub fn engine(&mut self) -> &mut Engine<'a, T> {
        &mut self.engine
    }

    /// Removes the exporter, because it will not acknowledge any more.
    ///
    /// # Errors
    /// When the canister refuses.
    pub fn unregister(&mut self) -> Result<()> {
        self.registered = false;
        self.client.remove_exporter(&leaving()).done()
    }
}

/// Returns the next blocks that one message has room for, or a block that needs chunks, or `None` after the last.
fn next_message(blocks: &mut Peekable<impl Iterator<Item = Result<AppendBlock>>>) -> Result<Option<Vec<AppendBlock>>> {
    let Some(first) = blocks.next().transpose()? else { return Ok(None) };
    let mut room = Room::default();
    let mut has_room = room.takes(&first);
    let mut message = vec![first];
    while has_room && message.len() < TURN {
        match blocks.next_if(|block| block.as_ref().is_ok_and(|block| room.takes(block))) {
            Some(block) => message.push(block?),
            None => has_room = false,
        }
    }
    Ok(Some(message))
}

/// Removes the exporter however the run ends, so that pruning does not wait for it.
impl<T: CanisterClient> Drop for LockstepIndexer<'_, T> {
    fn drop(&mut self) {
        if self.registered
            && let Err(error) = self.client.remove_exporter(&leaving()).done()
        {
            say!("note: the exporter {NAME} is still registered: {}", why(&error));
        }
    }
}

fn leaving() -> RemoveExporter {
    RemoveExporter { name: NAME.into(), drop_guard: true }
}

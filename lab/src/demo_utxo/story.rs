//! The story, block by block: the chain, the persister, and the events to report.

use super::blocks::{Generator, Made};
use super::external::External;
use super::ledger::{Id, Ledger};
use super::persister::Persister;
use super::plan::{LAG, MATURITY, Plan};
use super::report::{JobFigures, Row};
use super::verify::verify;
use anyhow::{Context, Result, bail};
use bitcoin::BlockHash;
use coppice_testkit::single_calls::Block;
use ic_coppice_cli::client::{BLOCK_INTERVAL, CanisterClient, Client, Wait};
use ic_coppice_cli::progress::Progress;
use ic_coppice_cli::report::count;
use ic_coppice_cli::utxo;
use ic_coppice_interface::UtxoPrunerSettings;
use std::collections::HashSet;

/// Number of regular rows, which report only the chain's growth.
const REGULAR: u32 = 10;
/// Lag from which the persister gets a row of its own.
const LONG_LAG: u32 = *LAG.end() / 4 * 3;

/// A block of the chain.
#[derive(Clone, Debug)]
pub struct OnChain {
    pub block: Block,
    pub hash: BlockHash,
    /// Its transactions, the coinbase first.
    pub transactions: Vec<Aside>,
}

/// A transaction that may come again: unmined, or in a block that may be rolled back.
#[derive(Clone, Debug)]
pub struct Aside {
    /// Its index in the ledger.
    pub id: Id,
    /// The transaction.
    pub made: Made,
}

/// Stages of the old unmined transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Seen,
    Preserved,
    /// Its parents would be deleted by now if they were not preserved.
    Outlived,
    Mined,
    Expired,
    Gone,
}

/// A transaction that stays unmined for long, and spends the last outputs of its parents.
#[derive(Debug)]
pub struct Old {
    pub aside: Aside,
    pub parents: Vec<Id>,
    /// The height at which its parents were due.
    pub due: u32,
    pub stage: Stage,
}

impl Old {
    /// Returns true if its parents were deleted in the end.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Gone
    }
}

/// Ended jobs, and their figures.
#[derive(Default)]
pub struct Jobs {
    /// Ids of the jobs.
    pub seen: HashSet<u64>,
    /// True if a job waits or runs.
    pub due: bool,
    pub figures: JobFigures,
}

/// Events that are reported once, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    FirstSpends,
    FirstDeleted,
    PersisterStarts,
    PersisterLags,
    PersisterCaughtUp,
    Nothing,
}

/// The state of the story.
pub struct Story<'a, C> {
    pub client: &'a Client<C>,
    pub plan: Plan,
    pub generator: Generator,
    pub ledger: Ledger,
    pub persister: Persister,
    /// The blocks by height, from 1 on.
    pub chain: Vec<OnChain>,
    /// The id of the last block; ids count blocks of all branches.
    pub blocks: u32,
    /// Transactions of all applied blocks.
    pub applied: u64,
    /// The highest height of an applied block.
    pub current: u32,
    /// The highest persisted block notified to the canister.
    pub persisted: u32,
    pub settings: UtxoPrunerSettings,
    pub jobs: Jobs,
    pub rows: Vec<Row>,
    /// The loser of the reorg, and the transaction that the new branch leaves out.
    pub set_aside: Vec<Aside>,
    pub old: Option<Old>,
    /// True if the block assembly runs.
    pub assembling: bool,
    /// Billed bytes, and the height at which they last rose.
    pub billed: (u64, Option<u32>),
    /// External transactions, if there are any.
    pub external: Option<External<'a, C>>,
    next: Next,
}

impl<'a, C: CanisterClient> Story<'a, C> {
    /// Creates a story that has not begun.
    pub fn new(
        client: &'a Client<C>,
        plan: Plan,
        settings: UtxoPrunerSettings,
        billed: u64,
        external: Option<External<'a, C>>,
    ) -> Self {
        Self {
            client,
            plan,
            generator: Generator::new(plan.seed),
            ledger: Ledger::new(&plan),
            persister: Persister::new(&plan),
            chain: Vec::new(),
            blocks: 0,
            applied: 0,
            current: 0,
            persisted: 0,
            settings,
            jobs: Jobs::default(),
            rows: Vec::new(),
            set_aside: Vec::new(),
            old: None,
            assembling: true,
            billed: (billed, None),
            external,
            next: Next::FirstSpends,
        }
    }

    /// Plays the whole story.
    ///
    /// # Errors
    /// When the canister refuses something, does not prune, or differs from the ledger.
    pub fn play(&mut self) -> Result<()> {
        let progress = Progress::new("appending", self.plan.blocks.into());
        for height in 1..=self.plan.blocks {
            self.at(height).with_context(|| format!("at height {height}"))?;
            progress.advance();
        }
        progress.finish();
        if !self.old.as_ref().is_some_and(Old::is_over) {
            bail!("the parents of the old unmined transaction should have been deleted by now: {:?}", self.old);
        }
        Ok(())
    }

    /// Adds a block, and runs everything that happens before the next one.
    fn at(&mut self, height: u32) -> Result<()> {
        let plan = self.plan;
        self.block(height)?;
        if height == plan.old_seen {
            self.see_old(height)?;
        }
        if height == plan.reorg_at {
            self.reorg(height)?;
        } else {
            let persisted = self.persister.step(height);
            self.notify_persisted(persisted)?;
        }
        if height == plan.reorg_at + 1 {
            self.resume()?;
        }
        self.client.transport().pass(BLOCK_INTERVAL)?;
        let storage = self.client.get_storage_status(None).wait()?;
        if storage.billed_bytes > self.billed.0 {
            self.billed = (storage.billed_bytes, Some(height));
        }
        if !self.assembling {
            return Ok(());
        }
        self.settle(height)?;
        self.check(height)?;
        self.tell_what_is_new(height)
    }

    /// Compares the store's counts with the ledger's.
    pub fn check(&self, height: u32) -> Result<()> {
        let utxo = utxo::storage(self.client)?;
        let found = (utxo.records, [utxo.preserved, utxo.unmined, utxo.deletable]);
        let expected = (self.ledger.records(), self.ledger.indexed());
        if found != expected {
            self.name_the_difference(height)?;
            bail!("records, and those preserved, unmined and due, should be {expected:?}, but are {found:?}");
        }
        Ok(())
    }

    /// Finds the transaction that differs from the ledger.
    ///
    /// # Errors
    /// When there is one.
    pub fn name_the_difference(&self, height: u32) -> Result<()> {
        verify(self.client, &self.ledger, height).map(drop)
    }

    pub fn tell(&mut self, height: u32, event: String) -> Result<()> {
        let status = self.client.utxo_get_pruner_status().wait()?;
        let utxo = utxo::storage(self.client)?;
        self.rows.push(Row {
            height,
            event,
            persisted_height: status.last_persisted_height.unwrap_or(0),
            safe_height: status.safe_height,
            records: utxo.records,
            deleted: status.totals.records_deleted,
            preserved: utxo.preserved,
        });
        Ok(())
    }

    fn tell_what_is_new(&mut self, height: u32) -> Result<()> {
        let plan = self.plan;
        if height == plan.reorg_at + 1 {
            self.tell_resumed(height)?;
        }
        if height == plan.left_out_mined {
            self.tell(height, "the transaction that the new branch left out is mined after all".into())?;
        }
        self.tell_of_old(height)?;
        if height == plan.replay_at {
            self.replay(height)?;
        }
        self.tell_of_persister(height)?;
        if height.is_multiple_of(plan.blocks / REGULAR) && self.rows.last().is_none_or(|row| row.height < height) {
            let (transactions, spends) = (count(self.ledger.transactions()), count(self.ledger.spends()));
            self.tell(height, format!("{transactions} transactions, {spends} outputs spent so far"))?;
        }
        Ok(())
    }

    fn tell_of_persister(&mut self, height: u32) -> Result<()> {
        let lag = height - self.persisted;
        match self.next {
            Next::FirstSpends if self.ledger.spends() > 0 => {
                self.next = Next::FirstDeleted;
                self.tell(height, format!("the first coinbase is {MATURITY} blocks deep: spending begins"))
            }
            Next::FirstDeleted if self.ledger.done().deleted > 0 => {
                self.next = Next::PersisterStarts;
                let retention = self.plan.retention;
                self.tell(height, format!("the first records go, spent for {retention} blocks; no persister runs yet"))
            }
            Next::FirstDeleted | Next::PersisterStarts if self.persisted > 0 => {
                self.next = Next::PersisterLags;
                self.tell(height, format!("the block persister starts, {lag} blocks behind: it limits what may go"))
            }
            Next::PersisterLags if lag >= LONG_LAG => {
                let held = self.ledger.due_above(self.safe_height(), height);
                if held == 0 {
                    return Ok(());
                }
                self.next = Next::PersisterCaughtUp;
                self.tell(
                    height,
                    format!("the persister is {lag} blocks behind: {} due records wait for it", count(held)),
                )
            }
            Next::PersisterCaughtUp if lag <= LAG.start() + 1 => {
                self.next = Next::Nothing;
                let given_up = count(self.jobs.figures.superseded);
                self.tell(
                    height,
                    format!("it has caught up: they are gone, {given_up} jobs for heights between given up"),
                )
            }
            _ => Ok(()),
        }
    }
}

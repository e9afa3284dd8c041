//! Single events: a transaction that stays unmined, a reorg, a replay.

use super::blocks::Made;
use super::feed::InBlock;
use super::ledger::Id;
use super::plan::DEPTH;
use super::story::{Aside, Old, OnChain, Stage, Story};
use anyhow::{Context, Result, bail, ensure};
use coppice_testkit::single_calls;
use ic_coppice_cli::client::{CanisterClient, Wait, told};
use ic_coppice_cli::report::count;
use ic_coppice_cli::utxo;
use ic_coppice_interface::*;

/// Instructions of a tick while a run must be interrupted: enough for one record.
const FEW_INSTRUCTIONS: u64 = 1;

impl<C: CanisterClient> Story<'_, C> {
    /// Submits the transaction that will become old and unmined.
    pub fn see_old(&mut self, height: u32) -> Result<()> {
        let made = self.generator.of_last_outputs(height).context("no transaction has just one output left")?;
        let ids = self.create(height, &[&made])?;
        self.spend(height, &ids)?;
        let parents: Vec<Id> = self.ledger.entry(ids[0]).inputs.iter().map(|(parent, _)| *parent).collect();
        let due = self.ledger.entry(parents[0]).delete_at.context("its parents are spent, and not due")?;
        let event = format!(
            "{} is seen, which spends the last outputs of {}; it stays unmined",
            self.name(ids[0]),
            number_of_parents(parents.len())
        );
        self.old = Some(Old { aside: Aside { id: ids[0], made }, parents, due, stage: Stage::Seen });
        self.tell(height, event)
    }

    /// Returns the transactions of this block that were seen long before.
    pub fn mined_late(&mut self, height: u32) -> Result<Vec<Aside>> {
        let mut mined = Vec::new();
        if height == self.plan.left_out_mined {
            mined.push(self.aside(1)?);
        }
        if height == self.plan.old_mined {
            let old = self.old.as_mut().context("there is no old unmined transaction")?;
            ensure!(old.stage == Stage::Outlived, "its parents should have been due by now: {old:?}");
            old.stage = Stage::Mined;
            let aside = old.aside.clone();
            // A resubmission is still valid, because the transaction holds its outputs.
            let new = single_calls::spend(self.client, height, vec![(self.txid(aside.id), self.spends(aside.id))])?;
            ensure!(new == 0, "{} already holds its outputs, but {new} outputs were spent again", self.txid(aside.id));
            mined.push(aside);
        }
        mined.iter().for_each(|aside| self.generator.release(&aside.made, height));
        Ok(mined)
    }

    /// Reports the next stage of the old unmined transaction, if it is reached.
    pub fn tell_of_old(&mut self, height: u32) -> Result<()> {
        let Some(old) = &self.old else { return Ok(()) };
        let (id, parents, due, stage) = (old.aside.id, old.parents.clone(), old.due, old.stage);
        let first = self.ledger.entry(parents[0]);
        let number = number_of_parents(parents.len());
        let name = self.name(id);
        let all = |is: &dyn Fn(Id) -> bool| parents.iter().all(|parent| is(*parent));
        let (stage, event) = match (stage, first.preserve_until, first.delete_at) {
            (Stage::Seen, Some(until), _) => {
                let unmined = self.plan.unmined_retention();
                (
                    Stage::Preserved,
                    format!("{name} is unmined for more than {unmined} blocks: {number} kept until {until}"),
                )
            }
            (Stage::Preserved, ..) if self.safe_height() >= due => (
                Stage::Outlived,
                format!("due at {due}, {number} are still there: preserved, so that {name} stays valid"),
            ),
            (Stage::Mined, ..) if height == self.plan.old_mined => {
                (Stage::Mined, format!("{name} is submitted again, valid as before, and mined at last"))
            }
            (Stage::Mined, None, Some(at)) => {
                (Stage::Expired, format!("{number} of {name} are preserved no longer: they go at {at}"))
            }
            (Stage::Expired, ..) if all(&|parent| self.ledger.entry(parent).deleted) => {
                (Stage::Gone, format!("{number} of {name} are gone"))
            }
            _ => return Ok(()),
        };
        for parent in &parents {
            let there = self
                .client
                .utxo_get(&UtxoGet { txid: self.key(*parent), first: 0, limit: 0, extra_pages_cursor: None })
                .wait()?;
            match (stage, there) {
                (Stage::Gone, Err(UtxoError::TxNotFound)) => {}
                (Stage::Seen | Stage::Preserved | Stage::Outlived | Stage::Mined | Stage::Expired, Ok(_)) => {}
                (Stage::Gone, Ok(_)) => {
                    bail!("parent {} of {} is pruned, yet it has a record", self.txid(*parent), self.txid(id))
                }
                (_, Err(error)) => bail!("parent {} of {} cannot be read: {error}", self.txid(*parent), self.txid(id)),
            }
        }
        if let Some(old) = &mut self.old {
            old.stage = stage;
        }
        self.tell(height, event)
    }

    /// Rolls the tip back during a run of the pruner, and replaces it by another branch.
    pub fn reorg(&mut self, height: u32) -> Result<()> {
        self.set_instructions(FEW_INSTRUCTIONS)?;
        let persisted = self.persister.catch_up(height);
        self.notify_persisted(persisted)?;
        self.await_status("a job is due", |status| status.running.is_some() || status.pending.is_none())?;
        self.client.utxo_set_block_assembly_state(UtxoBlockAssemblyState::NotRunning, None).wait()?;
        self.assembling = false;
        self.await_status("the block assembly stopped", |status| status.running.is_none())?;
        let stopped = self.jobs.figures.stopped;
        self.note_jobs()?;
        self.tell(
            height,
            match self.jobs.figures.stopped > stopped {
                true => "reorg: the block assembly stops, and with it the run under way".into(),
                false => "reorg: the block assembly stops".into(),
            },
        )?;
        match self.client.utxo_prune(height).wait()? {
            Err(UtxoPrunerError::BlockAssemblyNotRunning) => {}
            answer => bail!("utxo_prune should be refused while the block assembly does not run: {}", told(&answer)),
        }
        let before = utxo::storage(self.client)?.records;
        let known = self.ledger.records();

        let rolled_back = self.roll_back(height)?;
        let (loser, left_out) = (self.aside(0)?, self.aside(1)?);
        let winner = self.generator.rival(&loser.made);
        let mut mined = 0;
        for OnChain { block, transactions, .. } in rolled_back {
            let again = transactions.into_iter().skip(1).filter(|of| of.id != left_out.id);
            let again: Vec<InBlock> = again
                .map(|of| match of.id == loser.id {
                    true => InBlock { made: winner.clone(), id: None },
                    false => of.into(),
                })
                .collect();
            mined += again.len() as u64;
            self.mine_again(block.height, again, &loser)?;
        }
        self.generator.release(&winner, height);

        self.await_tick()?;
        let (after, expected) = (utxo::storage(self.client)?.records, before + self.ledger.records() - known);
        ensure!(after == expected, "nothing should be pruned in a reorg: expected {expected} records, found {after}");
        let event = format!(
            "{DEPTH} blocks rolled back, {} transactions mined again, one double-spent, one left out",
            count(mined)
        );
        self.tell(height, event)
    }

    /// Rolls the last blocks back. Returns those blocks, the first one first.
    fn roll_back(&mut self, height: u32) -> Result<Vec<OnChain>> {
        let rolled_back = self.chain.split_off((height - DEPTH) as usize);
        let done = self.client.roll_back_to(u64::from(height - DEPTH)).done()?;
        ensure!(done.not_restored == Some(0), "all records should be restored: {done:?}");
        for OnChain { block, transactions, .. } in rolled_back.iter().rev() {
            for of in transactions.iter().rev() {
                self.ledger.set_mined(of.id, *block, true, block.height);
            }
            // The coinbase cannot be in any other block.
            let coinbase = transactions[0].id;
            self.ledger.set_conflicting(coinbase, block.height);
            self.generator.forget(self.txid(coinbase));
        }
        Ok(rolled_back)
    }

    /// Adds a block of the new branch with these transactions. If one of them spends what the loser holds, the block stops there, and the
    /// transaction wins.
    fn mine_again(&mut self, height: u32, again: Vec<InBlock>, loser: &Aside) -> Result<()> {
        let coinbase = InBlock { made: self.generator.coinbase(height, 1), id: None };
        let mut transactions = [vec![coinbase], again].concat();
        let block = self.append(height, &transactions)?;
        // All rolled-back transactions have records, and the loser's rival has none.
        let rival = (1..transactions.len()).find(|&at| transactions[at].id.is_none());
        if let Some(at) = rival {
            let stopped = self.ask_to_apply(block.0, block.1)?;
            let spends = |stop: &UtxoApplyStop| {
                let holder = &stop.reason;
                matches!(holder, UtxoApplyReason::Spend(UtxoSpendError::Spent { by }) if by.txid == self.key(loser.id))
            };
            ensure!(
                matches!(&stopped, Err(UtxoApplyError::Stopped(stop)) if stop.transaction as usize == at && spends(stop)),
                "block {height} should stop at transaction {at}, whose outputs {} holds: {}",
                self.txid(loser.id),
                told(&stopped)
            );
            transactions[at].id = Some(self.win(height, at as u32, &transactions[at].made, loser)?);
        }
        self.apply(block, transactions, rival.unwrap_or(0))
    }

    /// Creates the record of a transaction of the last block, which spends the same outputs as the loser, and makes it win.
    fn win(&mut self, height: u32, position: u32, made: &Made, loser: &Aside) -> Result<Id> {
        let id = self.ledger.add(made, height, None, true)?;
        let item = UtxoCreate {
            source: TransactionSource::Kept(KeptTransaction { number: height.into(), position }),
            mined: None,
            locked: Some(false),
            conflicting: true,
            fee: None,
            is_new: false,
        };
        let created = self.client.utxo_create(&UtxoCreateBatch { height, items: vec![item] }).wait()?;
        ensure!(
            matches!(&created.results[..], [Ok(created)] if created.txid == self.key(id)),
            "the record of {} should be created from block {height}: {created:?}",
            self.txid(id)
        );
        let resolved = self
            .client
            .utxo_process_conflicting(&UtxoProcessConflicting { height, winners: vec![self.key(id)] })
            .wait()?;
        let (by, spends) = (self.key(loser.id), self.spends(id).len());
        let fine = resolved.as_ref().is_ok_and(|it| it.losers == [by] && it.spent as usize == spends && !it.has_more);
        ensure!(fine, "{} should win over {}: {}", self.txid(id), self.txid(loser.id), told(&resolved));
        self.ledger.win(id, loser.id, height);
        Ok(id)
    }

    /// The new branch is now longer: starts the block assembly again.
    pub fn resume(&mut self) -> Result<()> {
        self.client.utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).wait()?;
        self.assembling = true;
        self.set_instructions(self.settings.max_instructions_per_tick)
    }

    /// Reports that the pruner has resumed.
    pub fn tell_resumed(&mut self, height: u32) -> Result<()> {
        self.tell(height, "the new branch is longer, the block assembly runs: the run goes on, nothing is lost".into())
    }

    /// Sends the spends of a pruned transaction again, and those of an existing one.
    pub fn replay(&mut self, height: u32) -> Result<()> {
        let [gone, kept] = [true, false].map(|gone| self.ledger.with_parents(gone));
        let (gone, kept) = gone.zip(kept).context("every deleted transaction has a deleted parent")?;
        let items = vec![self.item(gone), self.item(kept)];
        let spends = items[0].spends.len();
        let answer = self.client.utxo_spend(&UtxoSpendBatch { height, items }).wait()?;
        let refused = |errors: &Vec<RefusedSpend>| {
            errors.len() == spends && errors.iter().all(|error| error.error == UtxoSpendError::InvalidSpend)
        };
        ensure!(
            matches!(&answer.results[..], [Err(errors), Ok(0)] if refused(errors)),
            "{} was pruned and should be refused, and {} should spend nothing again: {}",
            self.txid(gone),
            self.txid(kept),
            spends_told(&answer)
        );
        self.check(height)?;
        self.tell(height, format!("{}, pruned, is submitted again: InvalidSpend, says its parent", self.name(gone)))
    }

    fn set_instructions(&self, max_instructions_per_tick: u64) -> Result<()> {
        let change = UtxoPrunerSettingsChange {
            max_instructions_per_tick: Some(max_instructions_per_tick),
            ..UtxoPrunerSettingsChange::default()
        };
        self.client.utxo_set_pruner_settings(&change).done().map(drop)
    }

    /// Returns the beginning of a transaction's id.
    fn name(&self, id: Id) -> String {
        self.txid(id).to_string()[..8].into()
    }
}

/// Returns the answers to spends as a text for the user, each with its first reason.
fn spends_told(answer: &Batch<Result<u32, Vec<RefusedSpend>>>) -> String {
    let told = |result: &Result<u32, Vec<RefusedSpend>>| match result {
        Ok(spent) => format!("{spent} outputs are spent"),
        Err(errors) => errors.first().map_or("no reason".into(), |error| error.error.to_string()),
    };
    answer.results.iter().map(told).collect::<Vec<_>>().join("; ")
}

fn number_of_parents(number: usize) -> String {
    if number == 1 { "1 parent".into() } else { format!("{number} parents") }
}

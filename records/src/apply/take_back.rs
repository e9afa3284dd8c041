//! Undoing of an applied block before a rollback removes the block, within the limits of one message.
//!
//! ```text
//! Unset: from the last transaction to the first, its record loses the block, and keeps its spends
//! Mark:  the coinbase, which no other block can have, is marked as a double spend with all transactions that spend from it
//! Free:  only at or below the pruned height: outputs that deleted transactions of the block hold are freed, from the first one on
//! ```
//! The last stage removes the block's note. If data is damaged, the transaction or the rest of the block is skipped, and named.

use super::message::{INSTRUCTIONS, MOST_READ};
use super::note::AppliedNote;
use super::position::{Applier, Back, Phase, Stage, Stored};
use super::window::{BodyError, WalkLimits, Window};
use super::{Stores, kept};
use crate::utxo::{BlockTerms, Call, Hash, MAX_INPUTS};
use ic_coppice_interface::UtxoRefusal;
use ic_coppice_interface::blocks::{Blocks, KeptBlock};
use ic_coppice_storage::{Ic, MOST_PAGES, Platform as _};
use std::ops::Range;

/// Ids that are read together.
const GROUP: u32 = 1_000;
/// Inputs whose outputs are freed between two looks at the budget.
const INPUTS: usize = 500;
/// Instructions of each page that a copy changes: the bytes are hashed, and lie on two pages.
const COPIED_PAGE: u64 = 4_096 * 80 / 2;
/// Pages that a record changes when it loses a block or frees an output, besides copied bytes.
const RECORD_PAGES: u64 = 48;

/// Outcome of a message's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenBack {
    /// The block is taken back whole.
    Whole,
    /// The message is full.
    Part,
    /// Memory was refused, or something else that time may change.
    Waits(UtxoRefusal),
}

/// One message's part of a block that is taken back.
struct Part<'a, 's> {
    stores: &'a mut Stores<'s>,
    block: BlockTerms<'a>,
    window: Window,
    back: Back,
    /// The message has done nothing before the next step, which is done at any cost.
    is_fresh: bool,
    /// Value of the instruction counter at which no other step begins.
    end: u64,
    /// Transactions whose records had been pruned.
    lost: u64,
    faults: &'a mut Vec<String>,
}

impl Applier {
    /// Returns whether a block must be taken back before it is removed.
    pub fn is_applied(&self, blocks: &dyn Blocks, number: u64) -> bool {
        self.stored.back.is_some_and(|back| back.number == number) || blocks.note(number).is_some()
    }

    /// Takes a part of an applied block back, the head. `is_fresh`: the message has done nothing before. Returns the outcome, and how many
    /// transactions of the part had no record any more; names what could not be read in `faults`.
    pub fn take_back(
        &mut self,
        stores: &mut Stores,
        number: u64,
        is_fresh: bool,
        faults: &mut Vec<String>,
    ) -> (TakenBack, u64) {
        let known = stores.blocks.kept(number).ok().zip(AppliedNote::of(stores.blocks, number));
        let Some((meta, note)) = known else {
            faults.push(format!("block {number}: its header is damaged: the block's transactions stay mined in it"));
            self.set(Stored { back: None, ..self.stored });
            return (TakenBack::Whole, 0);
        };
        let back = self.stored.back.filter(|back| back.number == number).unwrap_or_else(|| self.begin_back(&meta));
        self.lower(number, Some(note.height));
        let mut part = Part {
            block: BlockTerms::new(Call::at(note.height, stores.settings), note.block_id),
            window: Window::new(meta),
            back,
            is_fresh,
            end: Ic::instructions().saturating_add(INSTRUCTIONS),
            lost: 0,
            faults,
            stores,
        };
        let taken = part.run(&note).err().unwrap_or(TakenBack::Whole);
        let Part { back, lost, .. } = part;
        let back = Some(back).filter(|_| taken != TakenBack::Whole);
        if back.is_none() {
            stores.blocks.set_note(number, None);
        }
        let mut stored = Stored { back, ..self.stored };
        stored.lost.add(lost, number);
        self.set(stored);
        (taken, lost)
    }

    /// Returns the place from which a block is taken back: its end, or the position if the block is partly applied.
    fn begin_back(&self, meta: &KeptBlock) -> Back {
        let at = self.position().filter(|position| position.next == meta.number && position.is_begun());
        // The record of a large transaction may have the block already.
        let begun = at.map(|position| position.transaction + u32::from(matches!(position.phase, Phase::Spend(_))));
        let transaction = begun.unwrap_or(meta.transactions);
        Back { number: meta.number, transaction, ..Back::default() }
    }
}

impl Part<'_, '_> {
    /// Runs the stages. An error is the outcome of a part that ends before the last one.
    fn run(&mut self, note: &AppliedNote) -> Result<(), TakenBack> {
        if self.back.stage == Stage::Unset {
            self.unset()?;
            self.back.stage = Stage::Mark;
        }
        if self.back.stage == Stage::Mark {
            self.mark()?;
            self.back = Back { transaction: 0, offset: 0, stage: Stage::Free, ..self.back };
        }
        if note.height <= self.stores.utxo.pruned_height() { self.free() } else { Ok(()) }
    }

    /// Admits a step, or ends the message.
    fn step(&mut self) -> Result<(), TakenBack> {
        let utxo = &self.stores.utxo;
        let is_full = utxo.pages_changed() + RECORD_PAGES > MOST_PAGES
            || utxo.pages_read() > MOST_READ
            || Ic::instructions() > self.end;
        if is_full && !self.is_fresh {
            return Err(TakenBack::Part);
        }
        self.is_fresh = false;
        Ok(())
    }

    /// Returns the pages that a copy of a transaction's bytes may change.
    fn room(&self) -> u64 {
        let pages = MOST_PAGES.saturating_sub(self.stores.utxo.pages_changed() + RECORD_PAGES);
        pages.min(self.end.saturating_sub(Ic::instructions()) / COPIED_PAGE)
    }

    fn fault(&mut self, transaction: u32, why: impl std::fmt::Display) {
        self.faults.push(format!("block {}, transaction {transaction}: {why}", self.back.number));
    }

    /// Names a part of a transaction that is damaged, and is skipped. Any other refusal ends the message.
    fn refused(&mut self, transaction: u32, why: UtxoRefusal, what: &str) -> Result<(), TakenBack> {
        let UtxoRefusal::Corrupt { .. } = why else { return Err(TakenBack::Waits(why)) };
        self.fault(transaction, format!("{why}: {what}"));
        Ok(())
    }

    fn ids(&self, transactions: Range<u32>) -> Result<Vec<Hash>, BodyError> {
        self.window.ids((&*self.stores.blocks, &*self.stores.blobs), transactions)
    }

    /// Takes the block from the records.
    fn unset(&mut self) -> Result<(), TakenBack> {
        while self.back.transaction > 0 {
            let first = self.back.transaction.saturating_sub(GROUP);
            let ids = self.ids(first..self.back.transaction).unwrap_or_else(|error| {
                let last = self.back.transaction - 1;
                self.fault(first, format!("the ids up to transaction {last}: {error}: they stay mined in the block"));
                Vec::new()
            });
            for txid in ids.iter().rev() {
                let was_fresh = self.is_fresh;
                self.step()?;
                let room = if was_fresh { u64::MAX } else { self.room() };
                let transaction = self.back.transaction - 1;
                let bytes_of = kept::in_blocks(self.stores.blocks);
                match self.stores.utxo.take_back(self.stores.blobs, txid, &self.block, bytes_of, room) {
                    Ok(Some(_)) => {}
                    Ok(None) => return Err(TakenBack::Part),
                    Err(why) => self.refused(transaction, why, "it stays mined in the block")?,
                }
                self.back.transaction = transaction;
            }
            // Ids that cannot be read are passed over.
            self.back.transaction = first;
        }
        Ok(())
    }

    /// Marks the coinbase.
    fn mark(&mut self) -> Result<(), TakenBack> {
        let ids = self.ids(0..1.min(self.window.block.transactions));
        // Ids that cannot be read are named already.
        let Ok(Some(txid)) = ids.map(|ids| ids.first().copied()) else { return Ok(()) };
        let was_fresh = self.is_fresh;
        self.step()?;
        let most = self.end.saturating_sub(Ic::instructions());
        let utxo = &mut self.stores.utxo;
        let marked = utxo.is_lone_coinbase(&txid).and_then(|is_lone| match is_lone {
            true => utxo.mark_family(&txid, &self.block.call, most).map(|marked| marked.has_more),
            false => Ok(false),
        });
        match marked {
            Ok(false) => Ok(()),
            // A slice takes as much as a message may.
            Ok(true) => Err(TakenBack::Part),
            Err(UtxoRefusal::TooMuchWork) if !was_fresh => Err(TakenBack::Part),
            Err(why @ (UtxoRefusal::TooMuchWork | UtxoRefusal::Corrupt { .. })) => {
                let what = "the coinbase is not marked as a double spend with all that spend from it";
                self.fault(0, format!("{why}: {what}"));
                Ok(())
            }
            Err(why) => Err(TakenBack::Waits(why)),
        }
    }

    /// Frees the outputs that deleted transactions of the block hold.
    fn free(&mut self) -> Result<(), TakenBack> {
        while self.back.transaction < self.window.block.transactions {
            if let Err(error) = self.free_next()? {
                let why = format!("{error}: outputs that this and later transactions spend stay spent");
                self.fault(self.back.transaction, why);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Frees the outputs of the next transaction, if its record is gone.
    fn free_next(&mut self) -> Result<Result<(), BodyError>, TakenBack> {
        let was_fresh = self.is_fresh;
        self.step()?;
        let Self { stores, window, back, end: last, .. } = self;
        let (transaction, source) = (back.transaction, (&*stores.blocks, &*stores.blobs));
        let mut inputs = Vec::new();
        let mut read = || -> Result<_, BodyError> {
            let at = if back.offset > 0 { back.offset } else { window.begin(source)? };
            let txid = window.ids(source, transaction..transaction + 1)?.first().copied().unwrap_or_default();
            let is_gone = stores.utxo.is_gone(&txid);
            let end = window.walk(source, at, WalkLimits::until(*last), &mut |outpoint| {
                // A transaction with more inputs never had a record.
                if is_gone && inputs.len() < MAX_INPUTS as usize {
                    inputs.push(outpoint);
                }
            })?;
            Ok((txid, is_gone, end))
        };
        let (txid, is_gone, end) = match read() {
            Ok(read) => read,
            Err(BodyError::Long) if !was_fresh => return Err(TakenBack::Part),
            Err(error) => return Ok(Err(error)),
        };
        let done = self.back.input as usize;
        let left = inputs.get(done..).unwrap_or_default();
        for (inputs, first) in left.chunks(INPUTS).zip((done as u32..).step_by(INPUTS)) {
            self.step()?;
            self.back.input = first;
            if let Err(why) = self.stores.utxo.free_outputs(&txid, (first, inputs), &self.block.call) {
                self.refused(transaction, why, "outputs that it spends stay spent")?;
            }
        }
        self.lost += u64::from(is_gone);
        (self.back.transaction, self.back.offset, self.back.input) = (transaction + 1, end, 0);
        Ok(Ok(()))
    }
}

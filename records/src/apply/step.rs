//! Steps of applying: the next transactions of a block are read, hashed together, and applied one by one.

#![expect(clippy::result_large_err, reason = "a stop ends the message, so that its size costs nothing")]

use super::ids;
use super::message::{MOST_READ, Run};
use super::position::Phase;
use super::window::{BodyError, Source, WINDOW, WalkLimits, Window, bad};
use crate::utxo::{self, Body, Draft, Hash, Input, Inputs, NotApplied, Parsed, Unhashed};
use ic_coppice_interface::{Spender, UtxoApplyError, UtxoApplyReason, UtxoRefusal, UtxoSpendError};
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, MOST_PAGES, Platform as _};

/// Transactions that are hashed together.
const GROUP: u32 = 64;
/// Bytes after which a group ends.
const GROUP_BYTES: usize = 64 << 10;
/// Inputs and outputs of the largest transaction that is applied in one message.
const MOST_INPUTS: usize = 4_000;
const MOST_OUTPUTS: usize = 200_000;
/// Bytes of the largest transaction that is hashed and created in one message. A message hashes 16 MiB in 1.3 billion instructions.
const MOST_BYTES: usize = 4 << 20;
/// Inputs of a large transaction that are checked, or spend, between two looks at the budget.
const SLICE: usize = 1_000;
/// Pages that an input changes: an entry, a head, and two of the index of records to delete.
const INPUT_PAGES: u64 = 4;
/// Pages that a record changes besides its bytes: its places in the table and in the indexes.
const RECORD_PAGES: u64 = 48;

/// Progress of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is room for more.
    Done,
    /// The message is full.
    Full,
}

/// The reason why a transaction is not read, or not applied.
enum Halt {
    Body(BodyError),
    Transaction(NotApplied),
}

impl From<NotApplied> for Halt {
    fn from(refused: NotApplied) -> Self {
        Self::Transaction(refused)
    }
}

/// Returns the transaction at the start of bytes that lie at a byte of the body; `None` if the bytes end inside it.
fn first(bytes: &[u8], offset: u64) -> Result<Option<Unhashed<'_>>, Halt> {
    match Unhashed::first(bytes) {
        Ok(Some(first)) if first.parsed.extended => {
            Err(Halt::Body(bad(offset, "the transaction is in the extended form, which no block has")))
        }
        Ok(first) => Ok(first),
        Err(UtxoRefusal::BadTransaction { offset: at, why }) => Err(Halt::Body(bad(offset + at, why))),
        Err(refusal) => Err(NotApplied::record(refusal).into()),
    }
}

/// Reads the transactions that begin at a byte of the body: at least one, at most `most` and as many as a window has. A large transaction
/// is alone.
fn read<'w>(window: &'w mut Window, source: Source, offset: u64, most: u32) -> Result<Vec<Unhashed<'w>>, Halt> {
    // As many bytes as are there; then a window.
    let mut is_there = false;
    for len in [1, WINDOW] {
        is_there = is_there || first(window.read(source, offset, len).map_err(Halt::Body)?, offset)?.is_some();
    }
    if !is_there {
        let end = window.end_of(source, offset, WalkLimits::RECORD).map_err(|error| match error {
            BodyError::Long => NotApplied::record(utxo::too_long()).into(),
            error => Halt::Body(error),
        })?;
        let alone = first(window.read(source, offset, end - offset).map_err(Halt::Body)?, offset)?;
        let ends = || Halt::Body(bad(offset, "the body ends inside the transaction"));
        return alone.map(|alone| vec![alone]).ok_or_else(ends);
    }
    let mut bytes = window.read(source, offset, 1).map_err(Halt::Body)?;
    let (mut group, mut len): (Vec<Unhashed>, usize) = (Vec::new(), 0);
    while group.len() < most as usize
        && len < GROUP_BYTES
        && let Ok(Some(next)) = Unhashed::first(bytes)
        && !next.parsed.extended
    {
        len += next.raw.len();
        bytes = &bytes[next.raw.len()..];
        match (is_large(&next), group.is_empty()) {
            (true, false) => break,
            (true, true) => return Ok(vec![next]),
            _ => group.push(next),
        }
    }
    Ok(group)
}

fn is_large(transaction: &Unhashed) -> bool {
    let (inputs, outputs, bytes) = (transaction.parsed.inputs.len(), transaction.outputs(), transaction.raw.len());
    inputs > MOST_INPUTS || outputs > MOST_OUTPUTS || bytes > MOST_BYTES || pages(inputs, outputs, bytes) > MOST_PAGES
}

/// Returns the pages that a transaction may change.
fn pages(inputs: usize, outputs: usize, size: usize) -> u64 {
    let heap = if outputs > SLICE { 49 * outputs } else { 0 };
    RECORD_PAGES + (2 * size + heap + 72 * outputs + 36 * inputs) as u64 / 4_096 + INPUT_PAGES * inputs as u64
}

/// Applies the next transactions that are read and hashed together.
pub fn group(run: &mut Run) -> Result<Step, UtxoApplyError> {
    // The window is borrowed by the transactions, and the run goes on without it.
    let block = run.window.block;
    let mut window = std::mem::replace(&mut run.window, Window::new(block));
    let done = group_of(run, &mut window);
    run.window = window;
    done
}

fn group_of(run: &mut Run, window: &mut Window) -> Result<Step, UtxoApplyError> {
    let first = run.position.transaction;
    let most = (window.block.transactions - first).min(GROUP);
    let source: Source = (&*run.stores.blocks, &*run.stores.blobs);
    let ids = window.ids(source, first..first + most).map_err(|error| run.body_error(error))?;
    let Some(next) = ids.first() else { return Ok(Step::Done) };
    let mut group = match read(window, source, run.position.offset, most) {
        Ok(group) => group,
        Err(Halt::Body(error)) => return Err(run.body_error(error)),
        Err(Halt::Transaction(refused)) if run.skip != Some(*next) => return Err(run.stop(next, refused)),
        // Another message may reach further.
        Err(Halt::Transaction(_)) if run.worked => return Ok(Step::Full),
        Err(Halt::Transaction(_)) => {
            let mut skimmed = Window::new(window.block);
            let end = skimmed.end_of(source, run.position.offset, WalkLimits::until(run.end));
            let end = end.map_err(|error| run.body_error(error))?;
            run.skipped(end);
            return Ok(Step::Done);
        }
    };
    // A transaction that was begun in parts continues in parts.
    let in_parts = run.in_parts || run.position.phase != Phase::Whole;
    group.truncate(if in_parts { 1 } else { group.len() });
    if let [large] = group.as_mut_slice()
        && (in_parts || is_large(large))
    {
        let end = run.position.offset + large.raw.len() as u64;
        match run.large(large, next) {
            Ok(Step::Full) => return Ok(Step::Full),
            Ok(Step::Done) => run.move_to(end),
            Err(Halt::Body(error)) => return Err(run.body_error(error)),
            Err(Halt::Transaction(NotApplied::Stopped(..))) if run.skip == Some(*next) => run.skipped(end),
            Err(Halt::Transaction(refused)) => return Err(run.stop(next, refused)),
        }
        return Ok(Step::Done);
    }
    utxo::hash(&mut group.iter_mut().collect::<Vec<_>>());
    for (transaction, txid) in group.into_iter().zip(&ids) {
        let (raw, parsed) = (transaction.raw, transaction.parsed);
        let pages = run.stores.utxo.pages_changed() + pages(parsed.inputs.len(), parsed.outputs.len(), raw.len());
        if run.worked && (pages > MOST_PAGES || run.has_read_enough()) {
            return Ok(Step::Full);
        }
        run.check_id(&parsed, txid).map_err(|error| run.body_error(error))?;
        let end = run.position.offset + raw.len() as u64;
        match run.apply(parsed, raw, true) {
            Ok(_) => run.move_to(end),
            // Another message may have room for all of it.
            Err(NotApplied::Parts) if run.worked => return Ok(Step::Full),
            Err(NotApplied::Parts) => {
                run.in_parts = true;
                return Ok(Step::Done);
            }
            Err(NotApplied::Stopped(..)) if run.skip == Some(*txid) => run.skipped(end),
            Err(refused) => return Err(run.stop(txid, refused)),
        }
    }
    Ok(Step::Done)
}

/// Checks that no two inputs of a transaction spend one output.
fn check_twice(outpoints: &[(Hash, u32)], txid: &Hash) -> Result<(), NotApplied> {
    let mut sorted: Vec<u32> = (0..outpoints.len() as u32).collect();
    sorted.sort_unstable_by_key(|vin| (outpoints[*vin as usize], *vin));
    let twice = sorted.array_windows().filter(|[a, b]| outpoints[*a as usize] == outpoints[*b as usize]);
    let Some(&[vin, again]) = twice.min_by_key(|[_, again]| *again) else { return Ok(()) };
    let by = Spender { txid: txid.into(), vin };
    let again = Input { vin: again, outpoint: outpoints[again as usize] };
    Err(NotApplied::Stopped(Some(again), UtxoApplyReason::Spend(UtxoSpendError::Spent { by })))
}

impl Run<'_, '_> {
    fn check_id(&self, parsed: &Parsed, indexed: &Hash) -> Result<(), BodyError> {
        if parsed.txid == *indexed {
            return Ok(());
        }
        Err(bad(self.position.offset, "the transaction's id is not that of the index segment"))
    }

    fn skipped(&mut self, end: u64) {
        (self.skip, self.skipped) = (None, true);
        self.move_to(end);
    }

    /// Moves to the next transaction, which begins at a byte of the body.
    fn move_to(&mut self, offset: u64) {
        self.position.transaction += 1;
        (self.position.offset, self.position.phase, self.worked) = (offset, Phase::Whole, true);
        self.in_parts = false;
    }

    /// Applies a transaction, with the spends of its inputs or without, and returns whether it may have been pruned.
    fn apply(&mut self, parsed: Box<Parsed>, raw: &[u8], spends: bool) -> Result<bool, NotApplied> {
        let (number, offset) = (self.position.next, self.position.offset);
        let body = match self.stores.settings.copy_applied_transactions {
            true => Body::Whole(raw),
            false => Body::Kept { raw, number, offset },
        };
        let draft = Draft { parsed, size: raw.len() as u64, body };
        let (chain, at, ids, window) = (&*self.stores.blocks, self.position.transaction, &self.ids, &self.window);
        let is_later = |blobs: &BlobStore, txid: &Hash| {
            ids::position(ids, window, (chain, blobs), txid).is_some_and(|position| position > at)
        };
        let (limits, applied) = ((spends, self.end), &mut self.applied);
        self.stores.utxo.apply(self.stores.blobs, draft, &self.block, &is_later, limits, applied)
    }

    /// Continues a transaction that takes several messages: checks its inputs, then creates its record, then spends. Returns `Done` once
    /// the transaction is applied.
    fn large(&mut self, transaction: &mut Unhashed, txid: &Hash) -> Result<Step, Halt> {
        let raw = transaction.raw;
        let outpoints = transaction.parsed.inputs.to_vec();
        let count = outpoints.len() as u32;
        let slice = |first: u32| {
            let outpoints = &outpoints[first as usize..(first as usize + SLICE).min(outpoints.len())];
            Inputs { txid, first, outpoints }
        };
        loop {
            match self.position.phase {
                Phase::Whole => {
                    if self.worked {
                        return Ok(Step::Full);
                    }
                    transaction.id();
                    self.check_id(&transaction.parsed, txid).map_err(Halt::Body)?;
                    check_twice(&outpoints, txid)?;
                    if self.stores.utxo.may_be_pruned(&transaction.parsed, &self.block)? {
                        self.applied.pruned += 1;
                        return Ok(Step::Done);
                    }
                    (self.position.phase, self.worked) = (Phase::Check(0), true);
                }
                Phase::Check(first) if first < count => {
                    if self.worked && self.has_read_enough() {
                        return Ok(Step::Full);
                    }
                    let (checked, missing) = self.check(slice(first))?;
                    self.applied.missing_parents += missing;
                    (self.position.phase, self.worked) = (Phase::Check(first + checked), true);
                }
                Phase::Check(_) => {
                    // The record may take all that a message may change and read.
                    if self.worked {
                        return Ok(Step::Full);
                    }
                    // The first message has compared it with the bytes.
                    transaction.parsed.txid = *txid;
                    utxo::hash_outputs(&mut [transaction]);
                    let parsed = transaction.parsed.clone();
                    if self.apply(parsed, raw, false)? {
                        return Ok(Step::Done);
                    }
                    (self.position.phase, self.worked) = (Phase::Spend(0), true);
                }
                Phase::Spend(first) if first < count => {
                    let changed = self.stores.utxo.pages_changed() + INPUT_PAGES * SLICE as u64;
                    if self.worked && (changed > MOST_PAGES || self.has_read_enough()) {
                        return Ok(Step::Full);
                    }
                    let (done, spent) = self.stores.utxo.spend_inputs(slice(first), &self.block, self.end)?;
                    self.applied.spent += spent;
                    (self.position.phase, self.worked) = (Phase::Spend(first + done), true);
                }
                Phase::Spend(_) => return Ok(Step::Done),
            }
        }
    }

    fn has_read_enough(&self) -> bool {
        self.stores.utxo.pages_read() > MOST_READ || Ic::instructions() > self.end
    }

    fn check(&mut self, inputs: Inputs) -> Result<(u32, u32), NotApplied> {
        let (source, at): (Source, u32) = ((&*self.stores.blocks, &*self.stores.blobs), self.position.transaction);
        let (ids, window) = (&self.ids, &self.window);
        let is_later = |txid: &Hash| ids::position(ids, window, source, txid).is_some_and(|position| position > at);
        self.stores.utxo.check_inputs(inputs, &self.block, (&is_later, self.end))
    }
}

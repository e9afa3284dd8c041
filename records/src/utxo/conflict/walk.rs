//! Walk over the descendants of a transaction within one message; spenders come before the transactions that they spend from.

use crate::utxo::call::Answer;
use crate::utxo::limits::MOST_MARKED;
use crate::utxo::record::{ENTRY, Hash, Head, SPENDER_CONFLICTING, SPENT, entries, flag};
use crate::utxo::store::UtxoStore;
use ic_coppice_interface::UtxoRefusal;
use ic_coppice_storage::slots::SlotId;
use ic_coppice_storage::{Ic, Platform as _};
use std::collections::BTreeSet;

/// Outputs whose spenders are read at a time: a path of thousands of transactions is kept.
const CHUNK: u32 = 100;
/// Maximum pages that a walk reads. The platform lets a message read 524,288, and marking afterwards reads the same pages and those of
/// parents.
const MOST_READ: u64 = 350_000;

/// State of a walk.
pub(super) struct Walk<'a> {
    /// The walk enters all transactions except these winners; without winners, the transactions that are not marked as conflicting.
    winners: Option<&'a BTreeSet<Hash>>,
    deadline: u64,
    read: u64,
    /// Transactions that were entered.
    pub seen: BTreeSet<SlotId>,
    /// Winners that spend from an entered transaction.
    pub met: BTreeSet<Hash>,
    /// Finished transactions: all descendants of each come before it in this list.
    pub done: Vec<(Hash, SlotId)>,
    /// True if no transaction is left to enter.
    pub complete: bool,
}

/// A transaction on the path from the start of the walk.
struct Step {
    txid: Hash,
    slot: SlotId,
    /// The first output whose spender was not read.
    next: u32,
    /// Spenders that were read, in reverse order.
    spenders: Vec<Hash>,
}

impl<'a> Walk<'a> {
    pub fn new(winners: Option<&'a BTreeSet<Hash>>, deadline: u64) -> Self {
        let (seen, met, done) = Default::default();
        Self { winners, deadline, read: 0, seen, met, done, complete: true }
    }

    /// Counts pages that are read, and returns whether the walk may read more.
    pub fn reads(&mut self, pages: u64) -> bool {
        self.read += pages;
        self.read < MOST_READ && Ic::instructions() < self.deadline
    }
}

impl UtxoStore {
    /// Walks over a transaction and its descendants.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn walk(&self, walk: &mut Walk, from: (Hash, SlotId)) -> Answer<()> {
        if !walk.complete || !walk.seen.insert(from.1) {
            return Ok(());
        }
        let first_step = |(txid, slot)| Step { txid, slot, next: 0, spenders: Vec::new() };
        let mut path = vec![first_step(from)];
        while let Some(step) = path.last_mut() {
            if let Some(txid) = step.spenders.pop() {
                if walk.winners.is_some_and(|winners| winners.contains(&txid)) {
                    walk.met.insert(txid);
                    continue;
                }
                walk.complete = walk.reads(2);
                match self.find(&txid) {
                    Ok(found) if walk.winners.is_none() && found.head.is(flag::CONFLICTING) => {}
                    Ok(found) if walk.seen.insert(found.slot) => path.push(first_step((txid, found.slot))),
                    Ok(_) | Err(UtxoRefusal::TxNotFound) => {}
                    Err(error) => return Err(error),
                }
            } else {
                let head = self.head(step.slot);
                if step.next < head.outputs {
                    self.read_spenders(step, &head, walk.winners.is_none())?;
                    walk.complete = walk.reads(1 + u64::from(CHUNK.min(head.outputs) * ENTRY / 4_096));
                } else {
                    walk.done.push((step.txid, step.slot));
                    path.pop();
                    walk.complete = path.is_empty() || walk.done.len() < MOST_MARKED;
                }
            }
            if !walk.complete {
                break;
            }
        }
        Ok(())
    }

    /// Reads the next spenders, and passes over the marked ones if `passes_marked`.
    fn read_spenders(&self, step: &mut Step, head: &Head, passes_marked: bool) -> Answer<()> {
        let spenders = &mut step.spenders;
        entries(&self.slots, step.slot, head, (step.next, CHUNK), |_, _, entry| {
            let passed = passes_marked && entry.is(SPENDER_CONFLICTING);
            if entry.is(SPENT) && !passed && spenders.last() != Some(&entry.spender.0) {
                spenders.push(entry.spender.0);
            }
        })?;
        spenders.reverse();
        step.next = step.next.saturating_add(CHUNK);
        Ok(())
    }
}

//! Tick for blocks, the work of one of the daemon's duties (`operation/daemon/blocks.rs`):
//!
//! 1. [`Turns`](ic_coppice_storage::turns::Turns) name the message's work, so that pieces that trap are skipped.
//! 2. One piece of begun work is done: an upload that has expired, blobs in quarantine, an interrupted rollback or reset.
//! 3. Without such work, [`Pruner::tick`](ic_coppice_chain::pruning::Pruner::tick) prunes and sweeps.

use super::State;
use crate::{logs, platform};
use ic_coppice_chain::pruning::{AT_ONCE, Constraints, Piece};
use ic_coppice_storage::NS;
use ic_coppice_storage::chunks::is_expired;
use ic_coppice_storage::turns::Turn;

/// Quarantined blobs that one tick releases.
const MAX_RELEASES: u64 = 1_000;

impl State {
    /// Does the work of one tick for blocks, and returns when the next tick is wanted. `late`: earlier firings must have trapped.
    pub fn tick(&mut self, late: bool) -> u64 {
        let next = self.take_turn(late);
        self.count_faults();
        next
    }

    fn take_turn(&mut self, late: bool) -> u64 {
        let constraints = self.constraints();
        let next = match self.pruner.turn(late) {
            Turn::All => return self.work(&constraints, u64::MAX),
            Turn::Nothing | Turn::Skip(_) => return AT_ONCE,
            Turn::Few(few) => self.work(&constraints, u64::from(few)),
            Turn::Only(piece) if self.next_piece(&constraints) == Some(piece) => self.work(&constraints, 1),
            Turn::Only(_) | Turn::Find => AT_ONCE,
        };
        let piece = self.next_piece(&constraints);
        self.pruner.ended(piece);
        next
    }

    /// Runs the next work item. Work already begun comes before pruning, in a message of its own, whether or not blocks may be pruned.
    fn work(&mut self, constraints: &Constraints, pieces: u64) -> u64 {
        match self.first_piece() {
            None | Some(Piece::Block(_) | Piece::Slice(..)) => {
                let next = self.pruner.tick(&mut self.chain, &mut self.blobs, constraints, pieces);
                return self.rollback_waits_until().map_or(next, |at| next.min(at));
            }
            Some(Piece::Upload) => self.expire_upload(),
            Some(Piece::Transaction) => self.expire_transactions(),
            Some(Piece::Quarantine) => self.release_quarantined(),
            Some(Piece::Undo) => self.undo(),
        }
        AT_ONCE
    }

    /// Returns the next work item of a tick.
    fn next_piece(&self, constraints: &Constraints) -> Option<Piece> {
        self.first_piece().or_else(|| self.pruner.next_piece(&self.chain, &self.blobs, constraints))
    }

    /// Returns the next work item that comes before pruning.
    fn first_piece(&self) -> Option<Piece> {
        let (now, expiry) = (platform::time_secs(), self.config.upload_expiry_secs);
        let expired = |touched: Option<u64>| touched.is_some_and(|touched| is_expired(touched, now, expiry));
        let all = [
            (Piece::Upload, expired(self.chain.upload_touched()) && !self.chain.is_aborting()),
            (Piece::Transaction, expired(self.transaction_touched())),
            (Piece::Quarantine, self.blobs.has_quarantined()),
            (Piece::Undo, self.chain.is_under_way() && self.rollback_waits_until().is_none()),
        ];
        let first = all.into_iter().find(|&(piece, is_there)| is_there && !self.pruner.is_skipped(piece));
        first.map(|(piece, _)| piece)
    }

    /// Returns when begun work is due, in Unix nanoseconds: the first expiry of an open upload, or what a rollback, an abort or a reset has
    /// left. Ignores work that is skipped.
    pub fn begun_at(&self, now: u64) -> Option<u64> {
        let waits = |piece| !self.pruner.is_skipped(piece);
        let block = self.chain.upload_touched().filter(|_| !self.chain.is_aborting() && waits(Piece::Upload));
        let transaction = self.transaction_touched().filter(|_| waits(Piece::Transaction));
        let expires = |touched: u64| touched.saturating_add(self.config.upload_expiry_secs).saturating_mul(NS);
        let undo = self.chain.is_under_way() && waits(Piece::Undo);
        let undo = undo.then(|| self.rollback_waits_until().unwrap_or(now));
        block.into_iter().chain(transaction).map(expires).chain(undo).min()
    }

    fn expire_upload(&mut self) {
        let expiry = self.config.upload_expiry_secs;
        if let Some(number) = self.chain.expire_upload(&mut self.blobs, platform::time_secs(), expiry) {
            logs::info(&format!("upload of block {number} expired after {expiry} s"));
        }
    }

    /// Releases quarantined blobs. Normally there are none, because the message that frees a blob also releases it unless its entry is
    /// damaged.
    fn release_quarantined(&mut self) {
        let (_, faults) = self.blobs.release_quarantined(MAX_RELEASES);
        faults.iter().for_each(|fault| logs::error(&format!("quarantine: {fault}")));
        self.pruner.freed_outside_runs(&self.chain, &self.blobs, faults.len() as u64);
    }
}

//! Turns of the daemon, and pieces that are passed over because they trap (`pruning/marker.rs`).

use super::constraints::{Constraints, is_possible};
use super::piece::Piece;
use super::{Pruner, sweeper};
use crate::chain::ChainStore;
use crate::logs;
use crate::pruning::marker::{self, Turn};
use crate::storage::blob::BlobStore;

/// Pieces that are passed over at most; the oldest are tried again.
const MOST: usize = 100;

impl Pruner {
    /// What the next message is to do; `late`: it begins so late that those before it have trapped.
    pub fn turn(&mut self, late: bool) -> Turn<Piece> {
        self.ticks += 1;
        let turn = marker::turn(&mut self.stored.marker, late);
        match &turn {
            Turn::Nothing => {
                logs::error("prune: ticks do not end: the next ones do less");
                self.save();
            }
            Turn::PassOver(at) => {
                let at = *at;
                self.set_aside(at);
            }
            _ => {}
        }
        turn
    }

    fn set_aside(&mut self, at: Option<Piece>) {
        match at {
            Some(piece) => {
                logs::error(&format!("prune: passed over, as it traps: {piece}"));
                self.stored.faults += 1;
                self.stored.set_aside.retain(|&other| other != piece);
                self.stored.set_aside.push(piece);
                if self.stored.set_aside.len() > MOST {
                    self.stored.set_aside.remove(0);
                }
            }
            None => logs::error("prune: what comes next cannot be found: it traps"),
        }
        self.save();
    }

    /// Notes that a message ended that did its turn; `next` is the piece that comes next.
    pub fn ended(&mut self, next: Option<Piece>) {
        marker::ended(&mut self.stored.marker, next);
        self.save();
    }

    /// Notes that the chain was emptied: what was set aside of it is no more.
    pub fn reset(&mut self) {
        self.stored.set_aside.retain(|piece| !matches!(piece, Piece::Block(_) | Piece::Undo));
        self.save();
    }

    /// Whether a piece has trapped again and again.
    pub fn is_set_aside(&self, piece: Piece) -> bool {
        self.stored.set_aside.contains(&piece)
    }

    /// What the daemon would prune or sweep next.
    pub fn next_piece(&self, chain: &ChainStore, blobs: &BlobStore, constraints: &Constraints) -> Option<Piece> {
        let policy = self.sweep_policy();
        let sweep = self.sweep_now(sweeper::need(chain, &policy), &policy);
        let slice = || sweeper::next(chain).map(|(table, bucket)| Piece::Slice(table, bucket));
        if sweep == Some(sweeper::Need::First) {
            return slice();
        }
        let due = self.wanted(chain, blobs, constraints).filter(|due| is_possible(due, chain));
        due.map(|_| Piece::Block(chain.state().oldest)).or_else(|| sweep.and_then(|_| slice()))
    }
}

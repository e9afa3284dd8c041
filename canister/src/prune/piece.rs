//! The pieces that the daemon's work is cut into, so that one which traps again and again can be named and passed over
//! (`crate::marker`).

use super::{Constraints, Pruner, is_possible, sweeper};
use crate::blob::BlobStore;
use crate::chain::{ChainStore, IndexTable};
use crate::logs;
use crate::marker::{self, Turn};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Pieces that are passed over at most; the oldest are tried again.
const MOST: usize = 100;

/// A piece of a tick's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// Dropping the upload of a block that has expired.
    Upload,
    /// Dropping the upload of a transaction that has expired.
    Transaction,
    /// Releasing quarantined blobs.
    Quarantine,
    /// Undoing an upload, rolling back, or clearing behind a reset.
    Undo,
    /// Pruning this block.
    Block(u64),
    /// Sweeping the 128 buckets of an index that begin with this one.
    Slice(IndexTable, u64),
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upload => f.write_str("dropping an upload that has expired"),
            Self::Transaction => f.write_str("dropping the upload of a transaction that has expired"),
            Self::Quarantine => f.write_str("releasing quarantined blobs"),
            Self::Undo => f.write_str("undoing an upload, a rollback or a reset"),
            Self::Block(number) => write!(f, "block {number}: its part of the log is lost"),
            Self::Slice(table, bucket) => write!(
                f,
                "buckets {bucket} to {} of the {} index",
                bucket + 127,
                match table {
                    IndexTable::Ids => "transaction",
                    IndexTable::Keys => "key",
                }
            ),
        }
    }
}

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

//! Options, events and counts of an engine, and the values that its parts pass to each other.

use super::tables::Tables;
use anyhow::Result;
use serde::Serialize;

/// Options of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Payload bytes per page; 0 for as many as a reply holds.
    pub page_bytes: u64,
    /// Blocks after which they are acknowledged, besides at the head; `None` to never acknowledge.
    pub ack_every: Option<u64>,
    /// Skips a block that cannot be read, and records it as a gap.
    pub skip_damaged: bool,
    /// Allows a reset of the canister's chain to remove everything stored.
    pub accept_reset: bool,
    /// Follows a canister that was restored from a snapshot: blocks that the canister lacks move to `orphaned`.
    pub accept_restore: bool,
    /// The number of removed blocks, the newest ones, that are kept in `orphaned`.
    pub keep_orphaned: u64,
    /// The tables to fill besides those of blocks and transactions.
    pub tables: Tables,
}

/// A point between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Before an acknowledgement is sent.
    Acknowledge,
    /// After the acknowledgement was answered.
    Acknowledged,
    /// Before a certificate or headers are asked for.
    Prove,
    /// After they arrived.
    Proved,
    /// Before a page is asked for.
    Pull,
    /// After the page arrived.
    Pulled,
    /// Before a transaction.
    Write,
    /// After all writes of the transaction, before the commit.
    Written,
    /// After the commit.
    Committed,
}

/// An observer of the points between steps, which may end the run there.
pub trait Checkpoint {
    /// Called at each point.
    ///
    /// # Errors
    /// When the run must end here.
    fn reached(&mut self, step: Step) -> Result<()>;
}

/// A checkpoint that never ends a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Onward;

impl Checkpoint for Onward {
    fn reached(&mut self, _: Step) -> Result<()> {
        Ok(())
    }
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The step went well, with nothing to report.
    Went,
    /// A page was stored.
    Stored,
    /// There is nothing to pull, and all that can be acknowledged is.
    CaughtUp,
    /// Ask the canister again a little later; the user should see the reason once.
    Behind(String),
    /// A note for the user.
    Note(String),
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Blocks that were stored.
    pub blocks: u64,
    /// Payload bytes of the stored blocks.
    pub bytes: u64,
    /// Transactions of the stored blocks.
    pub transactions: u64,
    /// Pages that were stored.
    pub pages: u64,
    /// Reorgs that were followed.
    pub reorgs: u64,
    /// Blocks that these reorgs removed.
    pub removed_blocks: u64,
    /// Gaps that were recorded.
    pub gaps: u64,
    pub gap_blocks: u64,
    /// Answers that a certificate, a seal or a digest refuted: certificates, headers, pages and reports of damage.
    pub refuted: u64,
    /// Steps that were retried, after an error of the network or an uncertified refusal.
    pub retried: u64,
    /// Blocks that an earlier run had stored, and whose rows in `keys` and `receipts` this run has made.
    pub filled_blocks: u64,
    /// Acknowledgements that the canister accepted.
    pub acks: u64,
    /// The canister's last answer: blocks below this number are acknowledged.
    pub acknowledged_before: Option<u64>,
    /// The head in the last certificate; `None` without one.
    pub head: Option<u64>,
    /// Blocks from the newest stored one to that head; `None` without a head.
    pub lag: Option<u64>,
    /// The largest lag so far.
    pub largest_lag: Option<u64>,
}

impl Figures {
    pub(super) fn count_gap(&mut self, first: u64, last: u64) {
        self.gaps += 1;
        self.gap_blocks += last - first + 1;
    }

    /// Returns the number of blocks that the copy has passed.
    pub fn handled(&self) -> u64 {
        self.blocks + self.gap_blocks
    }
}

//! What an engine is told, says, and counts.

use anyhow::Result;
use serde::Serialize;

/// How an engine works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Payload bytes of a page; 0: as many as a reply holds.
    pub page_bytes: u64,
    /// Blocks after which they are acknowledged, and at the head; none: never.
    pub ack_every: Option<u64>,
    /// Whether a block that cannot be read is left out, and noted as a gap.
    pub skip_damaged: bool,
    /// Whether all that is stored may be taken out where the canister's chain was reset.
    pub accept_reset: bool,
    /// Blocks that a reorg or a reset took out that are kept in `orphaned`, the newest.
    pub keep_orphaned: u64,
}

impl Options {
    /// Whether blocks come by query, on the word of one replica: those that nobody acknowledges. Else each page is the answer of an update
    /// call.
    pub fn by_query(&self) -> bool {
        self.ack_every.is_none()
    }
}

/// A place between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// An acknowledgement is about to be sent.
    Acknowledge,
    /// It was heard.
    Acknowledged,
    /// Headers are about to be asked for.
    Confirm,
    /// The headers have come.
    Confirmed,
    /// A page is about to be asked for.
    Pull,
    /// It has come.
    Pulled,
    /// A transaction is about to begin.
    Write,
    /// All of it is written and not yet committed.
    Written,
    /// It is committed.
    Committed,
}

/// Is told of every place between two steps, and may end the run there.
pub trait Checkpoint {
    /// The engine is at this place.
    ///
    /// # Errors
    /// Where the run is to end.
    fn reached(&mut self, step: Step) -> Result<()>;
}

/// Never ends a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Onward;

impl Checkpoint for Onward {
    fn reached(&mut self, _: Step) -> Result<()> {
        Ok(())
    }
}

/// What a step was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something that is worth no word.
    Went,
    /// A page was stored.
    Stored,
    /// There is nothing to pull, and everything is acknowledged that can be.
    CaughtUp,
    /// The canister is to be asked again a little later; a user should read why, once.
    Behind(String),
    /// Something that a user should read.
    Note(String),
}

/// What a run has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Blocks that were stored.
    pub blocks: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Their transactions.
    pub transactions: u64,
    /// Pages that were stored.
    pub pages: u64,
    /// Reorgs that were followed.
    pub reorgs: u64,
    /// Blocks that went with them.
    pub removed_blocks: u64,
    /// Gaps that were left.
    pub gaps: u64,
    /// Blocks in them.
    pub gap_blocks: u64,
    /// Answers to queries, and blocks that came by query, that an update call did not confirm: of a replica that was late, or
    /// that lied.
    pub unconfirmed: u64,
    /// Steps that were tried again: after an error of the network, or a refusal for which the subnet does not vouch.
    pub retried: u64,
    /// Stored blocks of one replica's word that the subnet has confirmed.
    pub confirmed: u64,
    /// Acknowledgements that were heard.
    pub acks: u64,
    /// Blocks below this number are acknowledged, as the canister said last.
    pub acknowledged_before: Option<u64>,
    /// The head, as an update call said last; none where none has named one.
    pub head: Option<u64>,
    /// Blocks from the newest stored one to that head; none without one.
    pub lag: Option<u64>,
    /// The largest lag so far.
    pub largest_lag: Option<u64>,
}

impl Figures {
    /// Counts a gap, from its first block to its last.
    pub(super) fn leave_out(&mut self, first: u64, last: u64) {
        self.gaps += 1;
        self.gap_blocks += last - first + 1;
    }

    /// Blocks that the copy went past.
    pub fn handled(&self) -> u64 {
        self.blocks + self.gap_blocks
    }
}

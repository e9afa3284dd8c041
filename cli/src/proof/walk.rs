//! The walk through all blocks of a database, in batches: recomputes each seal, and checks each certificate at its own time.
//!
//! A *run* is a row of consecutive blocks, each of whose seals can be computed from the one before. A gap ends it, and so does a block whose
//! parent's hash was lost. The first seal of a run is compared if the table `runs` has the seal before it; otherwise only later blocks rely
//! on it.

use super::rows::{self, Stored};
use crate::exit::why;
use crate::index::database::Tx;
use crate::index::reader::number;
use anyhow::{Context, Result, bail};
use ic_coppice_client::certificate::{self, Vouched};
use ic_coppice_interface::TipCertificate;
use ic_coppice_interface::seals::{Seal, seal};
use serde::Serialize;

/// A row that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The seal is not that of the header.
    #[error("block {0} is wrong: its seal is not that of its header and the seal before it")]
    Seal(u64),
    /// The block before has another hash.
    #[error("block {0} is wrong: its parent's hash is not that of the block before it")]
    Parent(u64),
    /// The block before has another seal.
    #[error("block {0} is wrong: the table runs has another seal before it than the block before it has")]
    Before(u64),
    /// Blocks are missing without a row in the table `gaps`.
    #[error("block {0} is wrong: it is missing, and the table gaps does not have it")]
    Missing(u64),
    /// The certificate is not genuine.
    #[error("the certificate of block {0} does not hold for this canister and this root key: {1}")]
    Certificate(u64, String),
    /// The certificate is of another seal.
    #[error(
        "the certificate of block {block} is wrong: it is of another seal, so a block from {since} on is not the canister's"
    )]
    Certified {
        block: u64,
        /// The first block after the certificate before.
        since: u64,
    },
    /// The certificate's block is not stored.
    #[error("the certificate of block {0} is wrong: the database lacks the block")]
    Alone(u64),
    /// Nothing is proved.
    #[error("the database has no certificate, so that nothing is proved: run coppice index until it is at the head")]
    Nothing,
}

/// The newest certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Newest {
    /// The number of its block.
    pub number: u64,
    /// Its time, in nanoseconds since 1970.
    pub time_ns: u64,
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Walked {
    /// Number of the oldest block.
    pub first: Option<u64>,
    /// Number of the newest block.
    pub last: Option<u64>,
    pub blocks: u64,
    /// Blocks whose header a certificate proves.
    pub proved: u64,
    pub runs: u64,
    pub certificates: u64,
    pub newest_certificate: Option<Newest>,
    /// Blocks after the last certificate of their run, as ranges.
    pub unreached: Vec<(u64, u64)>,
    /// Blocks whose leaf, or the seal before them, is unknown, as ranges.
    pub unprovable: Vec<(u64, u64)>,
    /// Missing blocks, as ranges.
    pub gaps: Vec<(u64, u64)>,
}

/// Walks through all blocks. `vouch` verifies the subnet's certificates for the canister, and `passed` is called after each block.
///
/// # Errors
/// [`Wrong`], for the first row that is wrong; when the database fails.
pub fn walk(tx: &mut Tx<'_>, vouch: impl Fn(&[u8]) -> Result<Vouched>, passed: impl Fn()) -> Result<Walked> {
    let mut walk = Walk { walked: Walked { gaps: rows::gaps(tx)?, ..Walked::default() }, ..Walk::default() };
    alone(tx)?;
    let mut next = 0;
    loop {
        let batch = rows::blocks(tx, next, u64::MAX)?;
        let Some(last) = batch.last().map(|stored| stored.header.number) else { break };
        // No batch has more certificates than blocks, because each has its block.
        let mut certificates = rows::certificates(tx, next, last)?.into_iter().peekable();
        for stored in batch {
            walk.pass(&stored)?;
            if let Some((_, answer)) = certificates.next_if(|(number, _)| *number == stored.header.number) {
                walk.certify(&stored, answer, &vouch)?;
            }
            passed();
        }
        next = last + 1;
    }
    if walk.walked.certificates == 0 && walk.walked.blocks > 0 {
        bail!(Wrong::Nothing);
    }
    Ok(walk.end())
}

/// Refuses a certificate without its block.
fn alone(tx: &mut Tx<'_>) -> Result<()> {
    let sql = "SELECT min(number) FROM certificates \
               WHERE NOT EXISTS (SELECT 1 FROM blocks WHERE blocks.number = certificates.number)";
    let row = tx.one(sql, &[])?.context("no answer")?;
    if row.get::<Option<i64>>(0)?.is_some() {
        bail!(Wrong::Alone(number(&row, 0)?));
    }
    Ok(())
}

/// A walk under way.
#[derive(Default)]
struct Walk {
    walked: Walked,
    /// The block before: its number, hash and seal.
    last: Option<(u64, Vec<u8>, Seal)>,
    /// The first block after the last certificate of the run.
    since: Option<u64>,
    /// The blocks since then whose seal was computed.
    computed: u64,
    /// The gaps that the walk has passed.
    gaps: usize,
}

impl Walk {
    fn pass(&mut self, stored: &Stored) -> Result<()> {
        let (header, number) = (&stored.header, stored.header.number);
        let before = self.last.take();
        let follows = before.as_ref().filter(|(last, ..)| last.checked_add(1) == Some(number));
        if let (Some((last, ..)), None) = (&before, follows) {
            self.pass_gap(last + 1, number)?;
        }
        if let (Some((_, hash, _)), Some(parent)) = (follows, &header.parent_hash)
            && hash != parent
        {
            bail!(Wrong::Parent(number));
        }
        let seal_before = match (follows.map(|(.., seal)| *seal), stored.before) {
            (Some(seal), Some(other)) if seal != other => bail!(Wrong::Before(number)),
            (seal, before) => seal.or(before),
        };
        if follows.is_none() || header.parent_hash.is_none() {
            self.end_run(before.as_ref().map(|(last, ..)| *last));
            self.walked.runs += 1;
        }
        match seal_before.filter(|_| header.parent_hash.is_some()) {
            Some(before) => {
                if seal(&before, &header.leaf()?) != stored.seal {
                    bail!(Wrong::Seal(number));
                }
                self.computed += 1;
            }
            None => extend(&mut self.walked.unprovable, number),
        }
        self.since.get_or_insert(number);
        self.walked.first.get_or_insert(number);
        self.walked.last = Some(number);
        self.walked.blocks += 1;
        self.last = Some((number, header.hash.clone(), stored.seal));
        Ok(())
    }

    fn certify(
        &mut self,
        stored: &Stored,
        answer: TipCertificate,
        vouch: impl Fn(&[u8]) -> Result<Vouched>,
    ) -> Result<()> {
        let block = stored.header.number;
        let wrong = |why: String| Wrong::Certificate(block, why);
        let certified = certificate::read(answer, vouch).map_err(|error| wrong(why(&error)))?;
        match certified.head {
            Some((number, seal)) if number == block => {
                let since = self.since.unwrap_or(block);
                if seal != stored.seal {
                    bail!(Wrong::Certified { block, since });
                }
            }
            Some((number, _)) => bail!(wrong(format!("it is of block {number}"))),
            None => bail!(wrong("it is of a chain without a head".into())),
        }
        self.walked.certificates += 1;
        self.walked.newest_certificate = Some(Newest { number: block, time_ns: certified.time_ns });
        self.walked.proved += self.computed;
        (self.since, self.computed) = (None, 0);
        Ok(())
    }

    /// Checks that the table `gaps` has the blocks from `first` to the one before `next`.
    fn pass_gap(&mut self, mut first: u64, next: u64) -> Result<()> {
        while first < next {
            let gap = self.walked.gaps.get(self.gaps).copied();
            let Some((_, last)) = gap.filter(|(start, _)| *start <= first) else { bail!(Wrong::Missing(first)) };
            first = first.max(last.saturating_add(1));
            self.gaps += 1;
        }
        Ok(())
    }

    fn end_run(&mut self, last: Option<u64>) {
        if let (Some(since), Some(last)) = (self.since.take(), last) {
            self.walked.unreached.push((since, last));
        }
        self.computed = 0;
    }

    fn end(mut self) -> Walked {
        self.end_run(self.walked.last);
        self.walked
    }
}

/// Adds a number to the last range, or as a new one.
fn extend(ranges: &mut Vec<(u64, u64)>, number: u64) {
    match ranges.last_mut().filter(|(_, last)| last.checked_add(1) == Some(number)) {
        Some((_, last)) => *last = number,
        None => ranges.push((number, number)),
    }
}

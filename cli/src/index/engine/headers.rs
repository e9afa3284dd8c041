//! Headers up to the certified seal, which prove the blocks between: pulled from the newest common block on.

use super::trust::Counts;
use super::{Engine, Task};
use crate::client::{CanisterClient, Wait, is_rejected, may_pass};
use crate::index::steps::{Checkpoint, Event, Step};
use anyhow::Result;
use ic_coppice_interface::{HeaderPage, ReadError};

/// Headers per call: as many as a canister returns.
const HEADERS: u64 = 1_000;

/// Damaged blocks among these that a search passes.
const DAMAGED: u32 = 16;

/// A replica's answer.
enum Headers {
    Page(HeaderPage),
    Refused(ReadError),
    /// The answer is none of the method's.
    Garbled(String),
}

impl<T: CanisterClient, C: Checkpoint> Engine<'_, T, C> {
    /// Asks a replica for headers.
    fn query_headers(&mut self, from: u64, to: u64) -> Result<Headers> {
        self.checkpoint.reached(Step::Prove)?;
        let answer = match self.client.get_block_headers(from, to).wait() {
            Err(error) if may_pass(&error) || is_rejected(&error) => return Err(error),
            Err(error) => Headers::Garbled(format!("{error:#}")),
            Ok(Ok(page)) => Headers::Page(page),
            Ok(Err(error)) => Headers::Refused(error),
        };
        self.checkpoint.reached(Step::Proved)?;
        Ok(answer)
    }

    /// Returns a note for the user if there is one.
    pub(super) fn went(&mut self) -> Event {
        self.trust.take_note().map_or(Event::Went, Event::Note)
    }

    /// Asks for more headers, or compares the last seal with the certified one if all headers up to that block are known.
    pub(super) fn compare(&mut self, number: u64) -> Result<Event> {
        if self.ahead.next() <= number {
            let may_pull = self.ahead.is_proved() && !self.trust.is_in_doubt(self.client.transport().now());
            self.task = if may_pull { Task::Pull } else { Task::Headers };
            return Ok(self.went());
        }
        self.ahead.cut(number.saturating_add(1));
        match self.trust.certified().and_then(|certified| certified.head) {
            Some((_, seal)) if seal == self.ahead.end() => self.proved(),
            _ => Ok(self.unreached("their last seal is not the certified one")),
        }
    }

    /// Asks for the next headers below the certified head.
    pub(super) fn headers(&mut self) -> Result<Event> {
        let Some((number, _)) = self.trust.certified().and_then(|certified| certified.head) else {
            return Ok(Event::Went);
        };
        let from = self.ahead.next();
        if from > number {
            return self.compare(number);
        }
        let page = match self.query_headers(from, number.min(from.saturating_add(HEADERS - 1)))? {
            Headers::Page(page) => page,
            Headers::Refused(why @ ReadError::Corrupt { .. }) => {
                self.trust.claim(format!("a replica cannot read block {from}: {why}"));
                let is_next = self.ahead.is_empty() && self.tip().is_none_or(|tip| tip < from);
                self.task = if is_next { Task::Ask } else { Task::Anchor };
                return Ok(Event::Went);
            }
            Headers::Refused(why) => return Ok(self.unreached(&format!("a replica answers: {why}"))),
            Headers::Garbled(why) => {
                self.task = Task::Headers;
                return Ok(self.refuted(&why));
            }
        };
        let taken = self.ahead.take(&page.headers);
        if taken.is_err() && self.ahead.is_empty() && self.tip().is_some_and(|tip| tip + 1 == from) {
            // Another block follows the common one than the newest stored one, unless the replica lies.
            self.task = Task::Search(from - 1);
            return Ok(Event::Went);
        }
        match taken {
            Ok(()) if page.headers.is_empty() => Ok(self.unreached("a replica has no header")),
            Ok(()) => self.compare(number),
            Err(why) => {
                self.figures.refuted += 1;
                Ok(self.unreached(&why.to_string()))
            }
        }
    }

    /// Forgets the newest headers. They do not lead to the certified head: a replica was late, ahead or lied, or the chain was reorganised.
    fn unreached(&mut self, why: &str) -> Event {
        if !self.ahead.rewind() && !self.ahead.is_empty() {
            self.ahead.cut(self.ahead.from());
        } else if self.ahead.is_empty()
            && let Some(tip) = self.tip()
        {
            let head = self.figures.head.unwrap_or(tip);
            self.task = Task::Search(tip.min(head));
        }
        Event::Behind(format!("headers do not lead to the certified head: {why}"))
    }

    /// Compares headers with the stored blocks, up to `to`, to find the newest common block. The answer is only a hint, which headers from
    /// there to the certified head prove.
    pub(super) fn search(&mut self, to: u64) -> Result<Event> {
        let kept = self.trust.certified().and_then(|certified| certified.kept);
        let oldest = self.store.oldest()?.unwrap_or_default();
        let lowest = kept.map_or(oldest, |kept| kept.first.max(oldest));
        if to >= lowest {
            let from = lowest.max(to.saturating_sub(HEADERS - 1));
            let (mut at, mut headers, mut damaged) = (from, Vec::new(), 0);
            while at <= to && damaged < DAMAGED {
                let page = match self.query_headers(at, to)? {
                    Headers::Page(page) => page,
                    Headers::Refused(ReadError::Corrupt { .. }) => {
                        (at, damaged) = (at + 1, damaged + 1);
                        continue;
                    }
                    Headers::Refused(why) => return Ok(Event::Behind(format!("a replica has no headers: {why}"))),
                    Headers::Garbled(why) => return Ok(self.refuted(&why)),
                };
                let Some(last) = page.headers.last().map(|header| header.number).filter(|&last| last >= at) else {
                    return Ok(self.refuted(&format!("it has no header of block {at}")));
                };
                headers.extend(page.headers);
                at = last.saturating_add(1);
            }
            // The newest first, because most reorgs are short, and each look-up is a transaction.
            for header in headers.iter().rev() {
                if self.store.seal_of(header.number)?.is_some_and(|own| own == header.seal.as_slice()) {
                    return self.branch(header.number);
                }
            }
            if let Some(to) = from.checked_sub(1) {
                self.task = Task::Search(to);
                return Ok(Event::Went);
            }
        }
        if let Some((before, seal)) = kept.and_then(|kept| Some((kept.first.checked_sub(1)?, kept.before)))
            && self.store.seal_of(before)? == Some(seal)
        {
            return self.branch(before);
        }
        self.trust.claim("replicas have no block of this database".into());
        self.task = Task::Ask;
        Ok(Event::Went)
    }

    /// Goes on with the headers above a stored block.
    fn branch(&mut self, common: u64) -> Result<Event> {
        let (Some(seal), hash) = (self.store.seal_of(common)?, self.store.hash_of(common)?) else {
            return Ok(Event::Went);
        };
        self.ahead.begin(common + 1, seal, hash.as_deref());
        if self.tip() == Some(common) {
            return Ok(Event::Behind("replicas disagree about the block after the newest stored one".into()));
        }
        match self.trust.certified().and_then(|certified| certified.head) {
            Some((number, _)) if number >= common => self.compare(number),
            _ => Ok(Event::Went),
        }
    }

    /// The headers are proved: follows them with the stored rows.
    pub(super) fn proved(&mut self) -> Result<Event> {
        while self.ahead.from() <= self.tip().unwrap_or_default()
            && let Some(seal) = self.ahead.first()
            && self.store.seal_of(self.ahead.from())? == Some(seal)
        {
            let hash = self.store.hash_of(self.ahead.from())?.unwrap_or_default();
            self.ahead.advance(&hash);
        }
        let common = self.ahead.from().checked_sub(1);
        if self.tip().is_some_and(|tip| Some(tip) > common) {
            match self.trust.counts() {
                Counts::Same => self.ensure_may_restore("the newest stored block is not in the canister's chain")?,
                Counts::Unknown => {
                    let why = "the subnet does not certify the count of rollbacks until the next block is pruned";
                    return Ok(Event::Behind(why.into()));
                }
                _ => {}
            }
            return self.roll_back(common);
        }
        if self.trust.restored {
            return self.roll_back(self.tip());
        }
        self.ahead.prove();
        self.trust.prove();
        self.drop_refuted_parts()?;
        self.task = if self.ahead.is_proved() { Task::Pull } else { Task::Certify };
        Ok(self.went())
    }

    /// Discards the parts of a block that is not the proved one.
    fn drop_refuted_parts(&mut self) -> Result<()> {
        let is_proved = |block: &crate::index::assemble::Incomplete| {
            block.header.number == self.ahead.from() && self.ahead.first() == Some(block.seal)
        };
        if self.at.block.as_ref().is_none_or(is_proved) {
            return Ok(());
        }
        self.drop_parts()
    }

    /// Discards the parts of the block that has begun.
    pub(super) fn drop_parts(&mut self) -> Result<()> {
        self.store.change(|change| change.drop_incomplete())?;
        self.at.block = None;
        Ok(())
    }
}

//! Pages of proved blocks. A page is a lie if a block does not fit its proved header ([`Proved::check`](crate::index::ahead::Proved::check)), or a
//! segment its digest: `refuted_page`.

use super::{Engine, Task};
use crate::client::{CanisterClient, Wait, is_rejected, may_pass};
use crate::index::assemble::{Incomplete, Position};
use crate::index::change::{Change, Damaged, PRUNED};
use crate::index::header::{Header, Refuted};
use crate::index::steps::{Checkpoint, Event, Figures, Step};
use anyhow::{Result, bail, ensure};
use ic_coppice_interface::{ExportChunk, ExportError, ExportPage};
use std::borrow::Cow;

/// Bytes of a page below which it must not end within a block, because a replica that hands out a byte a page would keep a reader from
/// reaching the end of a block.
const LEAST: u64 = 64 << 10;
/// Pages in a row that may miss the digests of one block.
const MISSES: u32 = 10;

/// Answers that did not fit the next block.
#[derive(Debug, Default)]
pub(super) struct Misses {
    /// The block that is asked for alone, and its header if that is known.
    alone: Option<(u64, Option<Header>)>,
    /// The block whose digests were missed, and how often.
    digests: (u64, u32),
}

impl Misses {
    /// Returns the proved header of a block, if it was asked for.
    fn header(&self, number: u64) -> Option<&Header> {
        let (alone, header) = self.alone.as_ref()?;
        header.as_ref().filter(|_| *alone == number)
    }

    fn is_alone(&self, number: u64) -> bool {
        self.alone.as_ref().is_some_and(|(alone, _)| *alone == number)
    }
}

impl<T: CanisterClient, C: Checkpoint> Engine<'_, T, C> {
    /// Asks for a page of proved blocks, and stores it.
    pub(super) fn pull(&mut self) -> Result<Event> {
        if !self.ahead.is_proved() || self.trust.is_stale(self.client.transport().now()) {
            return Ok(Event::Went);
        }
        let number = self.ahead.from();
        if self.at.block.is_none() && self.misses.is_alone(number) && self.misses.header(number).is_none() {
            return self.ask_header(number);
        }
        let alone = self.misses.header(number).map(|header| header.bytes().max(1));
        let most = alone.map_or(self.options.page_bytes, |bytes| match self.options.page_bytes {
            0 => bytes,
            most => most.min(bytes),
        });
        self.checkpoint.reached(Step::Pull)?;
        let page = match self.client.export_blocks(self.cursor(), most).wait() {
            Err(error) if may_pass(&error) || is_rejected(&error) => return Err(error),
            Err(error) => {
                self.task = Task::Pull;
                return Ok(self.refuted(&format!("{error:#}")));
            }
            Ok(Ok(page)) => page,
            Ok(Err(why @ ExportError::Corrupt { .. })) => {
                self.trust.claim(format!("a replica answers: {why}"));
                self.task = Task::Ask;
                return Ok(Event::Went);
            }
            Ok(Err(why)) => return Ok(self.without_page(&format!("a replica has no page with block {number}: {why}"))),
        };
        self.checkpoint.reached(Step::Pulled)?;
        let (Some(first), Some(last)) = (page.chunks.first(), page.chunks.last()) else {
            return Ok(self.without_page(&format!("a replica has not reached block {number}")));
        };
        if first.number != number {
            return Ok(self.refuted_page(&format!("block {} came instead of block {number}", first.number)));
        }
        let is_whole = last.segment == 2 && last.offset.saturating_add(last.bytes.len() as u64) >= last.total;
        if !is_whole {
            let bytes: u64 = page.chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
            let least = if most == 0 { LEAST } else { most.min(LEAST) };
            if bytes < least {
                return Ok(self.refuted_page(&format!("a page of {bytes} bytes ends within block {}", last.number)));
            }
            // A long block is refused before its end if its header is known.
            let (first, number) = (self.at.block.as_ref().map(|block| block.header.number), last.number);
            if first != Some(number) && self.misses.header(number).is_none() {
                if number != self.ahead.from() {
                    return self.store_page(&without(page, number));
                }
                return self.ask_header(number);
            }
        }
        self.store_page(&page)
    }

    /// Asks for the header of a block, which its leaf proves, before the block itself is asked for.
    fn ask_header(&mut self, number: u64) -> Result<Event> {
        self.checkpoint.reached(Step::Prove)?;
        let answer = match self.client.get_block_headers(number, number).wait() {
            Err(error) if may_pass(&error) || is_rejected(&error) => return Err(error),
            answer => answer,
        };
        self.checkpoint.reached(Step::Proved)?;
        let parent = self.ahead.parent().map(<[u8]>::to_vec);
        let header = match answer {
            Ok(Ok(page)) => match page.headers.first().map(|header| Header::of(header, parent.as_deref())) {
                Some(header) => header,
                None => return Ok(self.without_page(&format!("a replica has no header of block {number}"))),
            },
            Ok(Err(why)) => return Ok(self.without_page(&format!("a replica has no header of block {number}: {why}"))),
            Err(why) => Err(why),
        };
        match header.and_then(|header| self.ahead.proved().check(&header).map(|_| header)) {
            Ok(header) => {
                self.misses.alone = Some((number, Some(header)));
                self.task = Task::Pull;
                Ok(Event::Went)
            }
            Err(why) => Ok(self.refuted_page(&why.to_string())),
        }
    }

    /// Handles a replica that does not hand out the next block: it is late, or the chain was reorganised.
    fn without_page(&mut self, why: &str) -> Event {
        self.trust.doubt();
        Event::Behind(why.into())
    }

    /// Handles a page that is a lie: the next block is asked for again, alone.
    fn refuted_page(&mut self, why: &str) -> Event {
        self.misses.alone = Some((self.ahead.from(), None));
        self.trust.doubt();
        let refuted = self.refuted(why);
        // Not always in turn with a certificate, because a gateway may ask its replicas in turn, too.
        self.task = if self.figures.refuted.is_multiple_of(2) { Task::Certify } else { Task::Pull };
        refuted
    }

    /// Verifies and stores a page.
    fn store_page(&mut self, page: &ExportPage) -> Result<Event> {
        match self.write_page(page) {
            Err(error) if error.is::<Refuted>() => Ok(self.refuted_page(&error.to_string())),
            result => result,
        }
    }

    fn write_page(&mut self, page: &ExportPage) -> Result<Event> {
        self.checkpoint.reached(Step::Write)?;
        let proving = self.trust.proving().and_then(|proving| Some((proving.head?, proving.answer.clone())));
        if let Some(proof) = self.trust.proof() {
            self.store.note_proof(proof);
        }
        let (checkpoint, skip, misses) = (&mut self.checkpoint, self.options.skip_damaged, &self.misses);
        let mut figures = Figures { pages: self.figures.pages + 1, ..self.figures };
        let (mut at, mut proved) = (self.at.clone(), self.ahead.proved());
        let (mut passed, mut damaged) = (Vec::new(), None);
        self.store.change(|change| {
            for chunks in page.chunks.chunk_by(|a, b| a.number == b.number) {
                let Some(number) = chunks.first().map(|chunk| chunk.number).filter(|_| proved.has_next()) else {
                    break;
                };
                let from_start = at.block.is_none();
                let mut block = match at.block.take() {
                    Some(block) => block,
                    None => {
                        let header = match misses.header(number) {
                            Some(header) => Some(header.clone()),
                            None => Header::of_chunks(chunks, proved.parent())?,
                        };
                        let Some(header) = header else { bail!(Refuted(format!("block {number} lacks a segment"))) };
                        let seal = proved.check(&header)?;
                        Incomplete::begin(header, seal)
                    }
                };
                block.take(chunks)?;
                if let Some(first) = at.expected.filter(|&next| next < number && from_start) {
                    change.add_gap(first, number - 1, PRUNED)?;
                    figures.count_gap(first, number - 1);
                    at.expected = Some(number);
                }
                match write(change, &block, from_start, chunks) {
                    Ok(None) => at.block = Some(block),
                    Ok(Some(transactions)) => {
                        figures.blocks += 1;
                        figures.bytes += block.header.bytes();
                        figures.transactions += transactions;
                        if let Some((_, answer)) = proving.as_ref().filter(|(head, _)| *head == (number, block.seal)) {
                            change.put_certificate(number, answer)?;
                        }
                        let follows = at.tip.as_ref().is_some_and(|tip| tip.number.checked_add(1) == Some(number));
                        if let Some(before) = proved.before().filter(|_| !follows) {
                            change.put_run(number, &before)?;
                        }
                        proved.pass(&block.header.hash, block.seal);
                        at.pass(&block);
                        passed.push(block.header.hash);
                    }
                    Err(error) => {
                        let why = error.downcast::<Damaged>()?;
                        change.drop_block(number)?;
                        if let (Damaged::Malformed(why), true) = (&why, skip) {
                            change.add_gap(number, number, why)?;
                            figures.count_gap(number, number);
                            at.expected = number.checked_add(1);
                            passed.push(block.header.hash);
                        }
                        damaged = Some((number, why));
                        break;
                    }
                }
            }
            checkpoint.reached(Step::Written)
        })?;
        self.stored(at, figures);
        passed.iter().for_each(|hash| self.ahead.advance(hash));
        self.checkpoint.reached(Step::Committed)?;
        match damaged {
            None => Ok(Event::Stored),
            Some((number, why)) => self.is_damaged(number, &why),
        }
    }

    /// Continues after a page that is committed.
    fn stored(&mut self, at: Position, figures: Figures) {
        if figures.handled() > self.figures.handled() {
            self.trust.saw_block(self.client.transport().now());
        }
        self.acks.stored(figures.blocks - self.figures.blocks);
        (self.at, self.figures) = (at, figures);
        self.measure_lag();
        let now = self.client.transport().now();
        let is_due = self.options.ack_every.is_some_and(|every| self.acks.is_due(every, now));
        let at_head = self.tip().is_some() && self.tip() == self.trust.certified_head();
        self.task = if self.is_behind_with_acks() && (is_due || at_head) { Task::Acknowledge } else { Task::Pull };
    }

    /// Handles a block that does not match its proved digests, or that its producer made malformed.
    fn is_damaged(&mut self, number: u64, why: &Damaged) -> Result<Event> {
        let text = match why {
            Damaged::Malformed(why) => {
                ensure!(self.options.skip_damaged, "block {number} is damaged: {why}; use --skip-damaged to skip it");
                return Ok(Event::Note(format!("block {number} is skipped: {why}")));
            }
            Damaged::Digest(text) => text,
        };
        let (of, times) = self.misses.digests;
        let times = if of == number { times + 1 } else { 1 };
        self.misses.digests = (number, times);
        ensure!(
            times < MISSES,
            "block {number} has missed its proved digest {MISSES} times: its producer declared a wrong digest, or replicas lie: {text}"
        );
        Ok(self.refuted_page(text))
    }
}

fn without(mut page: ExportPage, number: u64) -> ExportPage {
    page.chunks.retain(|chunk| chunk.number != number);
    page
}

/// Writes chunks of one block. Returns the number of transactions of a block that is now whole.
///
/// # Errors
/// [`Damaged`]; when the database fails.
fn write(
    change: &mut Change<'_, '_>,
    block: &Incomplete,
    from_start: bool,
    chunks: &[ExportChunk],
) -> Result<Option<u64>> {
    if from_start && block.is_whole() {
        let segments = [0, 1, 2].map(|segment| joined(chunks, segment));
        return change.put_block(block, [&segments[0], &segments[1], &segments[2]]).map(Some);
    }
    for chunk in chunks.iter().filter(|chunk| !chunk.bytes.is_empty()) {
        change.put_part(block.header.number, chunk.segment, chunk.offset, &chunk.bytes)?;
    }
    for chunk in chunks.iter().filter(|chunk| chunk.offset + chunk.bytes.len() as u64 == chunk.total) {
        change.check_parts(&block.header, chunk.segment)?;
    }
    if block.is_whole() {
        return change.finish_parts(block).map(Some);
    }
    change.set_incomplete(block)?;
    Ok(None)
}

fn joined(chunks: &[ExportChunk], segment: u8) -> Cow<'_, [u8]> {
    let bytes: Vec<&[u8]> =
        chunks.iter().filter(|chunk| chunk.segment == segment).map(|chunk| &chunk.bytes[..]).collect();
    match bytes[..] {
        [only] => only.into(),
        _ => bytes.concat().into(),
    }
}

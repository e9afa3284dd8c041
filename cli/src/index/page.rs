//! The engine's steps that store: a page, or what is left out.

use super::ask::Word;
use super::assemble::{Assembly, Misfit, Taken, behind};
use super::change::{Change, Damaged};
use super::engine::{Engine, Next};
use super::steps::{Checkpoint, Event, Step};
use crate::client::Reach;
use anyhow::{Error, Result, bail, ensure};
use coppice_interface::{ExportChunk, ExportCursor, ExportPage};
use std::borrow::Cow;

/// What a page brought.
#[derive(Default)]
struct Stored {
    blocks: u64,
    bytes: u64,
    transactions: u64,
    gaps: u64,
    gap_blocks: u64,
    damaged: Option<Loss>,
}

/// A block whose bytes are not what their digests say.
struct Loss {
    number: u64,
    why: String,
    /// All of it came as answers of update calls, so that the canister has no better.
    confirmed: bool,
}

impl<T: Reach, C: Checkpoint> Engine<'_, T, C> {
    /// Verifies and stores a page.
    pub(super) fn store_page(&mut self, page: &ExportPage, word: Word) -> Result<Event> {
        self.write_page(page, word).or_else(|error| match error.downcast::<Misfit>() {
            Ok(why) => self.misfit(word, why),
            Err(error) => Err(error),
        })
    }

    fn write_page(&mut self, page: &ExportPage, word: Word) -> Result<Event> {
        self.checkpoint.reached(Step::Write)?;
        // Of how much was rolled back no replica's word is taken: an older count sends the copy further back than need be, and no
        // count is not one that the canister has yet to reach.
        let counted = if word == Word::Update { page.cursor.as_ref() } else { self.cursor.as_ref() };
        let rollbacks = counted.map_or(0, |cursor| cursor.rollbacks);
        let (checkpoint, skip) = (&mut self.checkpoint, self.options.skip_damaged);
        let mut at = self.at.clone();
        let (stored, cursor) = self.store.change(|change| {
            let mut stored = Stored::default();
            let mut cursor = page.cursor.clone().map(|cursor| ExportCursor { rollbacks, ..cursor });
            if at.restart {
                change.drop_incomplete()?;
            }
            for chunks in page.chunks.chunk_by(|a, b| a.number == b.number) {
                let before = at.clone();
                let taken = at.take(chunks, word == Word::Update).map_err(misfit)?;
                if let Some((first, last)) = taken.gap {
                    change.add_gap(first, last, "pruned before it was indexed")?;
                    stored.gaps += 1;
                    stored.gap_blocks += last - first + 1;
                }
                let Taken { block, .. } = &taken;
                match write(change, &taken, chunks)? {
                    Ok(None) => {}
                    Ok(Some(transactions)) => {
                        stored.blocks += 1;
                        stored.bytes += block.bytes();
                        stored.transactions += transactions;
                    }
                    Err(Damaged { why }) => {
                        change.drop_parts(block.number)?;
                        at = Assembly { block: None, restart: false, ..before };
                        let confirmed = block.confirmed;
                        if skip && confirmed {
                            change.add_gap(block.number, block.number, &why)?;
                            stored.gaps += 1;
                            stored.gap_blocks += 1;
                            at.expected = block.number.checked_add(1);
                            cursor = Some(behind(block.number, &block.hash, rollbacks));
                        } else {
                            // All of it is asked for again, by this run or the next one.
                            cursor = at.start_of(block, rollbacks);
                            at.restart = cursor.is_none();
                            at.expected = at.expected.map(|_| block.number);
                        }
                        stored.damaged = Some(Loss { number: block.number, why, confirmed });
                        break;
                    }
                }
            }
            if stored.damaged.is_none() {
                let fits = cursor.as_ref().is_some_and(|cursor| at.is_at(cursor));
                ensure!(fits, Misfit(format!("the page's cursor {cursor:?} is not where its chunks end")));
            }
            checkpoint.reached(Step::Written)?;
            Ok(((stored, cursor.clone()), cursor))
        })?;
        self.at = at;
        self.cursor = cursor;
        let figures = &mut self.figures;
        figures.pages += 1;
        figures.blocks += stored.blocks;
        figures.bytes += stored.bytes;
        figures.transactions += stored.transactions;
        figures.gaps += stored.gaps;
        figures.gap_blocks += stored.gap_blocks;
        self.pending += stored.blocks;
        self.doubt &= word == Word::Query || stored.blocks + stored.gaps == 0;
        self.measure_lag(self.at.expected);
        let at_head = self.is_at_head();
        if self.is_behind_with_acks() && (at_head || self.options.ack_every.is_some_and(|every| self.pending >= every))
        {
            self.next = Next::Acknowledge;
        } else if at_head {
            self.next = Next::Rest;
        }
        self.checkpoint.reached(Step::Committed)?;
        match stored.damaged {
            None => Ok(Event::Stored),
            Some(Loss { why, confirmed: false, .. }) => self.misfit(Word::Query, Misfit(why)),
            Some(Loss { number, why, .. }) if skip => Ok(Event::Note(format!("block {number} is left out: {why}"))),
            Some(Loss { number, why, .. }) => bail!("block {number} is damaged: {why}; --skip-damaged leaves it out"),
        }
    }

    /// Leaves blocks out that the canister cannot read.
    pub(super) fn skip(&mut self, number: u64, last: u64, why: &str, cursor: ExportCursor) -> Result<Event> {
        self.checkpoint.reached(Step::Write)?;
        let checkpoint = &mut self.checkpoint;
        // Where the copy begins anew, what lies before was pruned.
        let pruned = self.at.expected.filter(|&expected| expected < number).map(|first| (first, number - 1));
        self.store.change(|change| {
            change.drop_incomplete()?;
            if let Some((first, last)) = pruned {
                change.add_gap(first, last, "pruned before it was indexed")?;
            }
            change.add_gap(number, last, why)?;
            checkpoint.reached(Step::Written)?;
            Ok(((), Some(cursor.clone())))
        })?;
        self.cursor = Some(cursor);
        self.at.block = None;
        self.at.restart = false;
        self.at.expected = last.checked_add(1);
        let before = pruned.map_or(0, |(first, last)| last - first + 1);
        self.figures.gaps += 1 + u64::from(before > 0);
        self.figures.gap_blocks += before + last - number + 1;
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Note(format!("block {number} is left out, as the canister cannot read it: {why}")))
    }
}

fn misfit(error: Error) -> Error {
    Misfit(error.to_string()).into()
}

/// Writes chunks of one block. Answers the transactions of a block that is now whole.
fn write(change: &mut Change<'_, '_>, taken: &Taken, chunks: &[ExportChunk]) -> Result<Result<Option<u64>, Damaged>> {
    let block = &taken.block;
    if taken.from_start && block.is_whole() {
        let segments = [0, 1, 2].map(|segment| joined(chunks, segment));
        let stored = change.put_block(block, [&segments[0], &segments[1], &segments[2]])?;
        return Ok(stored.map(Some));
    }
    for chunk in chunks.iter().filter(|chunk| !chunk.bytes.is_empty()) {
        change.put_part(block.number, chunk.segment, chunk.offset, &chunk.bytes)?;
    }
    for chunk in chunks.iter().filter(|chunk| chunk.offset + chunk.bytes.len() as u64 == chunk.total) {
        if let Err(damaged) = change.check_parts(block, chunk.segment)? {
            return Ok(Err(damaged));
        }
    }
    if block.is_whole() {
        return Ok(change.finish_parts(block)?.map(Some));
    }
    change.set_incomplete(block)?;
    Ok(Ok(None))
}

/// The bytes of a segment, all chunks of which are there.
fn joined(chunks: &[ExportChunk], segment: u8) -> Cow<'_, [u8]> {
    let mut of_segment = chunks.iter().filter(|chunk| chunk.segment == segment);
    match (of_segment.next(), of_segment.next()) {
        (Some(only), None) => Cow::Borrowed(&only.bytes),
        _ => chunks
            .iter()
            .filter(|chunk| chunk.segment == segment)
            .flat_map(|chunk| chunk.bytes.iter().copied())
            .collect(),
    }
}

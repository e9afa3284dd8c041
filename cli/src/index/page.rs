//! The engine's steps that write to the database: a page, or a gap.

use super::assemble::{Assembly, Misfit, Taken, cursor_after};
use super::change::{Change, Damaged};
use super::engine::{Engine, Next, place};
use super::steps::{Checkpoint, Event, Figures, Step, Word};
use crate::client::Reach;
use anyhow::{Error, Result, bail, ensure};
use coppice_interface::{ExportChunk, ExportCursor, ExportPage};
use std::borrow::Cow;

/// The reason for a gap of blocks that the canister no longer had.
const PRUNED: &str = "pruned before it was indexed";

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
        // The count of rollbacks is never taken from a query: a lower count would only move the copy back further than necessary, but a
        // count that the canister has not reached yet would be invalid.
        let counted = if word == Word::Update { page.cursor.as_ref() } else { self.cursor.as_ref() };
        let rollbacks = counted.map_or(0, |cursor| cursor.rollbacks);
        let (checkpoint, skip) = (&mut self.checkpoint, self.options.skip_damaged);
        let mut figures = Figures { pages: self.figures.pages + 1, ..self.figures };
        let mut at = self.at.clone();
        let (damaged, cursor) = self.store.change(|change| {
            let mut damaged = None;
            let mut cursor = page.cursor.clone().map(|cursor| ExportCursor { rollbacks, ..cursor });
            if at.restart {
                change.drop_incomplete()?;
            }
            for chunks in page.chunks.chunk_by(|a, b| a.number == b.number) {
                let before = at.clone();
                let taken = at.take(chunks, word == Word::Update).map_err(misfit)?;
                if let Some((first, last)) = taken.gap {
                    change.add_gap(first, last, PRUNED)?;
                    figures.count_gap(first, last);
                }
                match write(change, &taken, chunks) {
                    Ok(None) => {}
                    Ok(Some(transactions)) => {
                        figures.blocks += 1;
                        figures.bytes += taken.block.bytes();
                        figures.transactions += transactions;
                    }
                    Err(error) => {
                        let (Damaged { why }, block) = (error.downcast()?, taken.block);
                        change.drop_parts(block.number)?;
                        at = Assembly { block: None, restart: false, ..before };
                        if skip && block.confirmed {
                            change.add_gap(block.number, block.number, &why)?;
                            figures.count_gap(block.number, block.number);
                            at.expected = block.number.checked_add(1);
                            cursor = Some(cursor_after(block.number, &block.hash, rollbacks));
                        } else {
                            // This run or the next one asks for the whole block again.
                            cursor = at.start_of(&block, rollbacks);
                            at.restart = cursor.is_none();
                            at.expected = at.expected.map(|_| block.number);
                        }
                        damaged = Some((block, why));
                        break;
                    }
                }
            }
            if damaged.is_none() {
                let fits = cursor.as_ref().is_some_and(|cursor| at.is_at(cursor));
                let ends_at = cursor.as_ref().map_or("no block".into(), place);
                ensure!(fits, Misfit(format!("the page's cursor, at {ends_at}, is not at the end of its chunks")));
            }
            checkpoint.reached(Step::Written)?;
            Ok(((damaged, cursor.clone()), cursor))
        })?;
        self.at = at;
        self.cursor = cursor;
        self.pending += figures.blocks - self.figures.blocks;
        self.doubt &= word == Word::Query || figures.handled() == self.figures.handled();
        self.figures = figures;
        self.measure_lag(self.at.expected);
        let at_head = self.is_at_head();
        if self.is_behind_with_acks() && (at_head || self.options.ack_every.is_some_and(|every| self.pending >= every))
        {
            self.next = Next::Acknowledge;
        } else if at_head {
            self.next = Next::Rest;
        }
        self.checkpoint.reached(Step::Committed)?;
        match damaged {
            None => Ok(Event::Stored),
            Some((block, why)) if !block.confirmed => self.misfit(Word::Query, Misfit(why)),
            Some((block, why)) if skip => Ok(Event::Note(format!("block {} is skipped: {why}", block.number))),
            Some((block, why)) => bail!("block {} is damaged: {why}; use --skip-damaged to skip it", block.number),
        }
    }

    /// Records blocks that the canister cannot read as a gap.
    pub(super) fn skip(&mut self, number: u64, last: u64, why: &str, cursor: ExportCursor) -> Result<Event> {
        self.checkpoint.reached(Step::Write)?;
        let checkpoint = &mut self.checkpoint;
        // If the copy begins anew, the blocks before were pruned.
        let pruned = self.at.expected.filter(|&expected| expected < number).map(|first| (first, number - 1));
        self.store.change(|change| {
            change.drop_incomplete()?;
            if let Some((first, last)) = pruned {
                change.add_gap(first, last, PRUNED)?;
            }
            change.add_gap(number, last, why)?;
            checkpoint.reached(Step::Written)?;
            Ok(((), Some(cursor.clone())))
        })?;
        self.cursor = Some(cursor);
        self.at.block = None;
        self.at.restart = false;
        self.at.expected = last.checked_add(1);
        for (first, last) in pruned.into_iter().chain([(number, last)]) {
            self.figures.count_gap(first, last);
        }
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Note(format!("block {number} is skipped, because the canister cannot read it: {why}")))
    }
}

fn misfit(error: Error) -> Error {
    Misfit(error.to_string()).into()
}

/// Writes chunks of one block. Returns the number of transactions of a block that is now whole.
///
/// # Errors
/// [`Damaged`]; when the database fails.
fn write(change: &mut Change<'_, '_>, taken: &Taken, chunks: &[ExportChunk]) -> Result<Option<u64>> {
    let block = &taken.block;
    if taken.from_start && block.is_whole() {
        let segments = [0, 1, 2].map(|segment| joined(chunks, segment));
        return change.put_block(block, [&segments[0], &segments[1], &segments[2]]).map(Some);
    }
    for chunk in chunks.iter().filter(|chunk| !chunk.bytes.is_empty()) {
        change.put_part(block.number, chunk.segment, chunk.offset, &chunk.bytes)?;
    }
    for chunk in chunks.iter().filter(|chunk| chunk.offset + chunk.bytes.len() as u64 == chunk.total) {
        change.check_parts(block, chunk.segment)?;
    }
    if block.is_whole() {
        return change.finish_parts(block).map(Some);
    }
    change.set_incomplete(block)?;
    Ok(None)
}

/// Joins all chunks of a segment.
fn joined(chunks: &[ExportChunk], segment: u8) -> Cow<'_, [u8]> {
    let bytes: Vec<&[u8]> =
        chunks.iter().filter(|chunk| chunk.segment == segment).map(|chunk| &chunk.bytes[..]).collect();
    match bytes[..] {
        [only] => only.into(),
        _ => bytes.concat().into(),
    }
}

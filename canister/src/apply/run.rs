//! Applying the next block, as far as one message goes.

use super::message::{INSTRUCTIONS, Run};
use super::position::{Applier, Phase, Position};
use super::step::{self, Step};
use super::window::{BodyError, Window};
use super::{Stores, kept};
use crate::chain::BlockMeta;
use crate::platform;
use crate::utxo::{Applying, Call, Hash};
use coppice_interface::{BadHeight, MAX_HEIGHT, ReadError, UtxoApplied, UtxoApplyBlock, UtxoApplyError};

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer.
    pub applied: UtxoApplied,
    /// The height of the block whose last transaction this message has applied.
    pub finished: Option<u32>,
    /// The transaction was skipped that the argument names.
    pub skipped: bool,
}

/// Returns the error of a block that cannot be read.
fn unread(error: ReadError) -> UtxoApplyError {
    match error {
        ReadError::Pruned { first_available } => UtxoApplyError::Pruned { first_available },
        ReadError::Corrupt { why } => UtxoApplyError::Corrupt { why },
        _ => UtxoApplyError::NotFound,
    }
}

impl Applier {
    /// Applies a part of the next block. Repeating the call for an applied block changes nothing.
    ///
    /// # Errors
    /// [`UtxoApplyError`], and nothing has changed, except that a stop is kept for `health`.
    pub fn apply(
        &mut self,
        stores: &mut Stores,
        arg: &UtxoApplyBlock,
        by_operator: bool,
    ) -> Result<Outcome, UtxoApplyError> {
        if let Some(position) = self.position()
            && (position.base..position.next).contains(&arg.number)
        {
            return Self::applied_before(stores, arg, position);
        }
        let (position, meta) = self.enter(stores, arg, by_operator)?;
        let now = platform::instructions();
        let settings = stores.settings;
        let call = Call::at(arg.height, settings);
        let mut run = Run {
            block: Applying::new(call, arg.block_id, arg.missing_parents),
            window: Window::new(meta),
            position,
            applied: UtxoApplied::default(),
            skip: None,
            end: now.saturating_add(INSTRUCTIONS),
            in_parts: false,
            worked: false,
            skipped: false,
            stores,
        };
        run.stores.utxo.count_pages(true);
        let ended = run.run(arg);
        run.stores.utxo.count_pages(false);
        let Run { position, applied, worked, skipped, .. } = run;
        if worked || ended.is_ok() {
            self.set(Some(position));
        }
        if let Err(UtxoApplyError::Stopped(stop)) = &ended {
            self.note_stop(stop, call.now_ns);
        }
        let finished = match ended {
            Ok(finished) => finished,
            // The next call meets the error again.
            Err(_) if worked => None,
            Err(error) => return Err(error),
        };
        let transactions = if finished.is_some() { meta.transactions } else { position.transaction };
        Ok(Outcome {
            applied: UtxoApplied { has_more: finished.is_none(), transactions, ..applied },
            finished,
            skipped,
        })
    }

    /// Answers a repeated call for a block that is applied.
    fn applied_before(stores: &Stores, arg: &UtxoApplyBlock, at: &Position) -> Result<Outcome, UtxoApplyError> {
        let transactions = stores.chain.find(arg.number).map_or(0, |meta| meta.transactions);
        // Heights follow each other. The id of a pruned block went with its record, so any is accepted.
        let height = u64::from(at.height).saturating_sub(at.next - arg.number) as u32;
        if height != arg.height {
            return Err(UtxoApplyError::WrongHeight { expected: height });
        }
        if let Some((_, block_id)) = stores.chain.applied(arg.number).filter(|(_, block_id)| *block_id != arg.block_id)
        {
            return Err(UtxoApplyError::OtherId { block_id });
        }
        Ok(Outcome { applied: UtxoApplied { transactions, ..UtxoApplied::default() }, finished: None, skipped: false })
    }

    /// Checks that the block is the next one. Returns the position in it, and its metadata.
    fn enter(
        &self,
        stores: &Stores,
        arg: &UtxoApplyBlock,
        by_operator: bool,
    ) -> Result<(Position, BlockMeta), UtxoApplyError> {
        if stores.settings.require_extended {
            return Err(UtxoApplyError::NotExtended);
        }
        match arg.height {
            0 => return Err(BadHeight::Zero.into()),
            1..=MAX_HEIGHT => {}
            _ => return Err(BadHeight::TooHigh { most: MAX_HEIGHT }.into()),
        }
        let mut position = match self.position() {
            Some(position) if position.next != arg.number => {
                return Err(UtxoApplyError::NotNext { next: position.next });
            }
            Some(position) if position.height != arg.height => {
                return Err(UtxoApplyError::WrongHeight { expected: position.height });
            }
            Some(position) if position.is_begun() && position.block_id != arg.block_id => {
                return Err(UtxoApplyError::OtherId { block_id: position.block_id });
            }
            Some(position) => *position,
            None if by_operator => Position {
                base: arg.number,
                next: arg.number,
                height: arg.height,
                block_id: 0,
                hash: Default::default(),
                transaction: 0,
                offset: 0,
                phase: Phase::Whole,
            },
            None => return Err(UtxoApplyError::OperatorOnly),
        };
        // A rollback that is under way removes the blocks above its target.
        if stores.chain.state().coming_head().is_none_or(|head| arg.number > head) {
            return Err(UtxoApplyError::NotFound);
        }
        let meta = stores.chain.find(arg.number).map_err(unread)?;
        let hash = stores.chain.hash(arg.number).unwrap_or_default();
        if position.is_begun() && position.hash != hash {
            let why = format!("block {} is another one than the block that is partly applied", arg.number);
            return Err(UtxoApplyError::Corrupt { why });
        }
        (position.block_id, position.hash) = (arg.block_id, hash);
        Ok((position, meta))
    }
}

impl Run<'_, '_> {
    /// Applies transactions until the message is full or the block is finished. Returns the height of a finished block.
    fn run(&mut self, arg: &UtxoApplyBlock) -> Result<Option<u32>, UtxoApplyError> {
        let count = self.window.transactions();
        self.find_offset()?;
        self.check_skip(arg)?;
        while self.position.transaction < count {
            if step::group(self)? == Step::Full {
                return Ok(None);
            }
        }
        let Position { next, height, block_id, .. } = self.position;
        self.stores.chain.note_applied(next, Some((height, block_id)));
        self.position = Position {
            next: next + 1,
            height: height + 1,
            block_id: 0,
            transaction: 0,
            offset: 0,
            phase: Phase::Whole,
            ..self.position
        };
        self.worked = true;
        Ok(Some(height))
    }

    /// Finds the first byte of the next transaction, unless it is known. Before the first transaction the body is checked, so that a block
    /// that can never be finished is not begun.
    fn find_offset(&mut self) -> Result<(), UtxoApplyError> {
        if self.position.offset > 0 {
            return Ok(());
        }
        let Self { stores, window, position, .. } = self;
        let source = (&*stores.chain, &*stores.blobs);
        let offset = window.offset_of(source, position.transaction);
        let checked = offset.map_err(|error| (0, error)).and_then(|offset| {
            if position.transaction == 0 {
                let ids = window.ids(source, 0..window.transactions());
                ids.and_then(|ids| kept::check_distinct(&ids, offset)).map_err(|error| (0, error))?;
                window.check_lengths(source, offset)?;
            }
            Ok(offset)
        });
        match checked {
            Ok(offset) => position.offset = offset,
            Err((transaction, BodyError::Bad { at, why })) => {
                return Err(UtxoApplyError::BadBody { transaction, at, why });
            }
            Err((_, error)) => return Err(self.body_error(error)),
        }
        Ok(())
    }

    /// Checks that `skip` names the next transaction, or one before it: a repeated call, which skips nothing.
    fn check_skip(&mut self, arg: &UtxoApplyBlock) -> Result<(), UtxoApplyError> {
        let Some(skip) = &arg.skip else { return Ok(()) };
        let at = self.position.transaction;
        let next = if at < self.window.transactions() {
            let ids = self.window.ids((&*self.stores.chain, &*self.stores.blobs), at..at + 1);
            ids.map_err(|error| self.body_error(error))?.first().copied()
        } else {
            None
        };
        if next.is_some_and(|next| next == skip.as_slice()) {
            self.skip = next;
            return Ok(());
        }
        let Stores { chain, blobs, .. } = &*self.stores;
        let before = Hash::try_from(skip.as_slice()).ok();
        let before = before.and_then(|skip| chain.position_in(blobs, self.position.next, &skip));
        if before.is_none_or(|before| before >= at) {
            return Err(UtxoApplyError::WrongSkip { at: next.unwrap_or_default().into() });
        }
        Ok(())
    }
}

//! Application of the next block, within the limits of one message.

use super::message::{INSTRUCTIONS, Run};
use super::note::AppliedNote;
use super::position::{Applier, Position, Stored};
use super::step::{self, Step};
use super::window::{Window, bad};
use super::{Stores, ids};
use crate::utxo::{BlockTerms, Call, Hash};
use ic_coppice_interface::blocks::KeptBlock;
use ic_coppice_interface::{BadHeight, MAX_HEIGHT, ReadError, UtxoApplied, UtxoApplyBlock, UtxoApplyError};
use ic_coppice_storage::{Counting, Ic, Platform as _};
use std::ops::Range;

/// Result of an operation, or the reason why applying ends.
type Answer<T> = Result<T, UtxoApplyError>;

/// Outcome of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer.
    pub applied: UtxoApplied,
    /// The height of the block whose last transaction this message has applied.
    pub finished: Option<u32>,
    /// The transaction was skipped that the argument names.
    pub skipped: bool,
    /// Positions of the transactions that were skipped because of `skip_rest`.
    pub rest: Range<u32>,
}

impl Applier {
    /// Applies a part of the next block. The call changes nothing if the block is applied already.
    ///
    /// # Errors
    /// [`UtxoApplyError`]: nothing has changed, but a stop is kept and, except with `WrongSkip`, an operator's choice of `missing_parents`.
    pub fn apply(&mut self, stores: &mut Stores, arg: &UtxoApplyBlock, by_operator: bool) -> Answer<Outcome> {
        if let Some(to) = stores.blocks.rolling_back_to() {
            return Err(UtxoApplyError::RollbackUnderway { to });
        }
        let meta = stores.blocks.kept(arg.number).map_err(|error| match error {
            ReadError::Pruned { first_available } => UtxoApplyError::Pruned { first_available },
            ReadError::Corrupt { why } => UtxoApplyError::Corrupt { why },
            _ => UtxoApplyError::NotFound,
        })?;
        let hash = stores.blocks.hash_of(arg.number);
        if hash.as_slice() != arg.hash.as_slice() {
            return Err(UtxoApplyError::WrongHash { expected: hash });
        }
        let note = AppliedNote::of(stores.blocks, arg.number);
        // A block that is applied keeps its terms.
        if let Some(AppliedNote { height, block_id, .. }) = note {
            if height != arg.height {
                return Err(UtxoApplyError::WrongHeight { expected: height });
            }
            if block_id != arg.block_id {
                return Err(UtxoApplyError::OtherId { block_id });
            }
        }
        let in_force = self.missing();
        let missing = arg.missing_parents.filter(|_| by_operator).unwrap_or(in_force);
        let is_other = arg.missing_parents.is_some_and(|named| named != missing);
        if is_other && self.position().is_some() {
            return Err(UtxoApplyError::OtherChoice { in_force });
        }
        if note.is_some_and(|note| note.transactions == meta.transactions && note.offset == 0) {
            self.set(Stored { missing, ..self.stored });
            return Ok(self.known(arg, &meta));
        }
        if arg.skip_rest && !by_operator {
            return Err(UtxoApplyError::OperatorOnly);
        }
        if stores.settings.require_extended {
            return Err(UtxoApplyError::NotExtended);
        }
        let position = self.enter(arg, note, by_operator)?;
        let note = note.unwrap_or_else(|| {
            let is_replay = self.is_replay(arg.height, stores.utxo.pruned_height());
            AppliedNote { height: arg.height, block_id: arg.block_id, transactions: 0, offset: 0, is_replay }
        });
        let call = Call { missing, ..Call::at(arg.height, stores.settings) };
        let mut run = Run {
            block: BlockTerms { is_new: !note.is_replay, ..BlockTerms::new(call, arg.block_id) },
            window: Window::new(meta),
            ids: ids::Cached::new(),
            position,
            applied: UtxoApplied::default(),
            skip: None,
            end: Ic::instructions().saturating_add(INSTRUCTIONS),
            in_parts: false,
            worked: false,
            skipped: false,
            stores,
        };
        run.stores.utxo.begin_message();
        let counting = Counting::begin();
        let (mut ended, mut rest) = (run.run(arg), 0..0);
        if let (true, Err(UtxoApplyError::BadBody { .. } | UtxoApplyError::Corrupt { .. })) = (arg.skip_rest, &ended) {
            rest = run.position.transaction..meta.transactions;
            run.finish();
            ended = Ok(true);
        }
        drop(counting);
        let Run { position, applied, worked, skipped, .. } = run;
        let mut stored = self.stored;
        if !matches!(ended, Err(UtxoApplyError::WrongSkip { .. })) {
            // The calls that resolve a stop need the choice, too.
            stored.missing = missing;
        }
        if worked || ended.is_ok() {
            let noted = match ended {
                Ok(true) => AppliedNote { transactions: meta.transactions, offset: 0, ..note },
                _ => note,
            };
            noted.put(stores.blocks, arg.number);
            stored.position = Some(position);
            stored.pruned.add(u64::from(applied.pruned), arg.number);
        }
        self.set(stored);
        match &ended {
            Err(UtxoApplyError::Stopped(stop)) => self.note_stop(stop.to_string(), call.now_ns),
            Err(error @ UtxoApplyError::BadBody { .. }) => {
                self.note_stop(format!("block {}: {error}", arg.number), call.now_ns);
            }
            _ => {}
        }
        // The next call meets the error again if this one has worked.
        let is_finished = ended.or_else(|error| if worked { Ok(false) } else { Err(error) })?;
        let transactions = if is_finished { meta.transactions } else { position.transaction };
        let applied = UtxoApplied { has_more: !is_finished, transactions, ..applied };
        Ok(Outcome { applied, finished: is_finished.then_some(arg.height), skipped, rest })
    }

    /// Answers a call for a block that is applied. A position before the block passes it.
    fn known(&mut self, arg: &UtxoApplyBlock, meta: &KeptBlock) -> Outcome {
        if let Some(position) = self.stored.position.filter(|position| position.next == arg.number) {
            let position = Position::before(position.base, arg.number + 1, arg.height + 1);
            self.set(Stored { position: Some(position), ..self.stored });
        }
        let applied = UtxoApplied { known: true, transactions: meta.transactions, ..UtxoApplied::default() };
        Outcome { applied, finished: None, skipped: false, rest: 0..0 }
    }

    /// Checks that the block is the next one. Returns the position in it.
    fn enter(&self, arg: &UtxoApplyBlock, note: Option<AppliedNote>, by_operator: bool) -> Answer<Position> {
        // The first block leaves a height for the next one.
        let most = if self.position().is_some() { MAX_HEIGHT } else { MAX_HEIGHT - 1 };
        match arg.height {
            0 => return Err(BadHeight::Zero.into()),
            height if height > most => return Err(BadHeight::TooHigh { most }.into()),
            _ => {}
        }
        let position = match self.stored.position {
            Some(at) if at.next != arg.number => return Err(UtxoApplyError::NotNext { next: at.next }),
            Some(at) if at.height != arg.height => return Err(UtxoApplyError::WrongHeight { expected: at.height }),
            Some(at) => at,
            None if by_operator => Position::before(arg.number, arg.number, arg.height),
            None => return Err(UtxoApplyError::OperatorOnly),
        };
        // Applying may have ended in the middle of this block.
        Ok(match note.filter(|_| !position.is_begun()) {
            Some(note) => Position { transaction: note.transactions, offset: u64::from(note.offset), ..position },
            None => position,
        })
    }
}

impl Run<'_, '_> {
    /// Applies transactions until the message is full or the block is finished. Returns whether it is finished.
    fn run(&mut self, arg: &UtxoApplyBlock) -> Answer<bool> {
        let count = self.window.block.transactions;
        self.begin()?;
        self.check_skip(arg)?;
        while self.position.transaction < count {
            if step::group(self)? == Step::Full {
                return Ok(false);
            }
        }
        let at = self.position.offset;
        if let Some(rest @ 1..) = self.window.block.body.checked_sub(at) {
            return Err(self.body_error(bad(at, format!("{rest} bytes after the last transaction"))));
        }
        self.finish();
        Ok(true)
    }

    /// Moves to the next block.
    fn finish(&mut self) {
        let Position { base, next, height, .. } = self.position;
        self.position = Position::before(base, next + 1, height + 1);
        self.worked = true;
    }

    /// Checks the head of the body and the ids of a block that begins.
    fn begin(&mut self) -> Answer<()> {
        if self.position.offset > 0 {
            return Ok(());
        }
        let Self { stores, window, .. } = self;
        let source = (&*stores.blocks, &*stores.blobs);
        let begun = window.begin(source).and_then(|at| Ok((at, ids::read(window, source)?)));
        let (at, ids) = begun.map_err(|error| self.body_error(error))?;
        if let Some((first, second)) = ids.twice() {
            let why = format!("transactions {first} and {second} have the same id in the index segment");
            return Err(self.body_error(bad(at, why)));
        }
        (self.position.offset, self.ids) = (at, Some(ids).into());
        Ok(())
    }

    /// Checks that `skip` names the next transaction, or one before it: a repeated call, which skips nothing.
    fn check_skip(&mut self, arg: &UtxoApplyBlock) -> Answer<()> {
        let Some(skip) = &arg.skip else { return Ok(()) };
        let (at, source) = (self.position.transaction, (&*self.stores.blocks, &*self.stores.blobs));
        let ids = (at < self.window.block.transactions).then(|| self.window.ids(source, at..at + 1)).transpose();
        let next = ids.map_err(|error| self.body_error(error))?.and_then(|ids| ids.first().copied());
        if next.is_some_and(|next| next == skip.as_slice()) {
            self.skip = next;
            return Ok(());
        }
        let before = Hash::try_from(skip.as_slice()).ok();
        let before = before.and_then(|skip| ids::position(&self.ids, &self.window, source, &skip));
        if before.is_none_or(|before| before >= at) {
            return Err(UtxoApplyError::WrongSkip { at: next.unwrap_or_default().into() });
        }
        Ok(())
    }
}

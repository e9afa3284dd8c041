//! Taking the last applied block back: the last transaction first, as far as one message goes.
//!
//! A record loses the block, and keeps its spends. The coinbase, which no other block can have, is marked as a double spend with all
//! transactions that spend from it, in as many messages as that takes ([`Phase::Mark`]).

use super::message::INSTRUCTIONS;
use super::position::{Applier, Phase, Position};
use super::window::{BodyError, Window};
use super::{Stores, kept};
use crate::chain::BlockMeta;
use crate::platform;
use crate::platform::limits::MOST_PAGES;
use crate::storage::blob::BlobStore;
use crate::utxo::{Applying, Call, Hash};
use coppice_interface::{MissingParents, ReadError, UtxoRefusal, UtxoUnapplied, UtxoUnapplyError};

/// Ids that are read together.
const GROUP: u32 = 1_000;
/// Pages that a record changes when it loses a block, besides copied bytes.
const RECORD_PAGES: u64 = 48;

impl Applier {
    /// Takes a part of the last applied block back. Repeating the call for the block that was taken back last changes nothing.
    ///
    /// # Errors
    /// [`UtxoUnapplyError`], and nothing has changed.
    pub fn unapply(&mut self, stores: &mut Stores, number: u64) -> Result<UtxoUnapplied, UtxoUnapplyError> {
        let before = *self.position().ok_or(UtxoUnapplyError::NoneApplied)?;
        if number == before.next && !before.is_begun() {
            return Ok(UtxoUnapplied::default());
        }
        let last = before.last().ok_or(UtxoUnapplyError::NoneApplied)?;
        if number != last {
            return Err(UtxoUnapplyError::NotLast { last });
        }
        let meta = stores.chain.find(number).map_err(|error| match error {
            ReadError::Corrupt { why } => UtxoUnapplyError::Corrupt { why },
            _ => UtxoUnapplyError::Pruned { first_available: stores.chain.state().oldest },
        })?;
        let from = self.backwards(stores, before, &meta)?;
        let mut position = from;
        stores.utxo.count_pages(true);
        let mut done = UtxoUnapplied::default();
        let ended = back(stores, &mut position, meta, &mut done);
        stores.utxo.count_pages(false);
        if let Err(error) = ended
            && [before, from].contains(&position)
            && done.unset == 0
        {
            // A repeated call meets the error again.
            return Err(error);
        }
        stores.chain.note_applied(number, None);
        self.set(Some(position));
        (done.has_more, done.transactions) = (position.is_begun(), position.transaction);
        Ok(done)
    }

    /// Returns the position from which a block is taken back.
    fn backwards(&self, stores: &Stores, position: Position, meta: &BlockMeta) -> Result<Position, UtxoUnapplyError> {
        if position.is_begun() {
            // A large transaction whose record has the block, or a coinbase that is marked further.
            let more = u32::from(matches!(position.phase, Phase::Spend(_) | Phase::Mark));
            let transaction = position.transaction + more;
            return Ok(Position { transaction, offset: 0, phase: Phase::Whole, ..position });
        }
        // Blocks above were applied before applying began again at a lower block.
        let above = (meta.number + 1..).take_while(|above| stores.chain.applied(*above).is_some());
        if let Some(last) = above.last() {
            return Err(UtxoUnapplyError::NotLast { last });
        }
        let Some((height, block_id)) = stores.chain.applied(meta.number) else {
            let why = format!("block {}: its record does not say under which id it is applied", meta.number);
            return Err(UtxoUnapplyError::Corrupt { why });
        };
        let hash = stores.chain.hash(meta.number).unwrap_or_default();
        Ok(Position { next: meta.number, height, block_id, hash, transaction: meta.transactions, ..position })
    }
}

/// Takes transactions back until the message is full or none is left.
fn back(
    stores: &mut Stores,
    position: &mut Position,
    meta: BlockMeta,
    done: &mut UtxoUnapplied,
) -> Result<(), UtxoUnapplyError> {
    let end = platform::instructions().saturating_add(INSTRUCTIONS);
    let block = Applying::new(Call::at(position.height, stores.settings), position.block_id, MissingParents::PassOver);
    let window = Window::new(meta);
    let from = position.transaction;
    while position.transaction > 0 {
        let first = position.transaction.saturating_sub(GROUP);
        let ids = window.ids((&*stores.chain, &*stores.blobs), first..position.transaction);
        let ids = ids.map_err(unread)?;
        if ids.len() as u32 != position.transaction - first {
            return Err(UtxoUnapplyError::Corrupt {
                why: format!("block {}: its ids are not all there", position.next),
            });
        }
        for txid in ids.iter().rev() {
            let room = MOST_PAGES.saturating_sub(stores.utxo.pages_changed() + RECORD_PAGES);
            // Looking for all records of the longest block, 100,000, reads fewer pages than a message may read.
            let is_full = room == 0 || platform::instructions() > end;
            let is_first = position.transaction == from;
            if is_full && !is_first {
                return Ok(());
            }
            if !take(stores, position, &block, txid, (done, if is_first { u64::MAX } else { room }))? {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn unread(error: BodyError) -> UtxoUnapplyError {
    match error {
        BodyError::Bad { why, .. } | BodyError::Corrupt(why) => UtxoUnapplyError::Corrupt { why },
    }
}

/// Takes the block from one transaction, and returns whether the message may go on.
fn take(
    stores: &mut Stores,
    position: &mut Position,
    block: &Applying,
    txid: &Hash,
    (done, room): (&mut UtxoUnapplied, u64),
) -> Result<bool, UtxoUnapplyError> {
    let transaction = position.transaction - 1;
    let refused = |refusal: UtxoRefusal| match refusal {
        UtxoRefusal::NoMemory(why) => UtxoUnapplyError::NoMemory(why),
        refusal => UtxoUnapplyError::Refused { transaction, why: refusal.into() },
    };
    let (chain, number) = (&*stores.chain, position.next);
    let bytes_of = |blobs: &BlobStore, at: u64, len: u64| kept::bytes_of(chain, blobs, number, (at, len));
    let Some(taken) = stores.utxo.unapply(stores.blobs, txid, block, bytes_of, room).map_err(refused)? else {
        return Ok(false);
    };
    done.unset += u32::from(taken);
    position.transaction = transaction;
    if transaction == 0 {
        position.phase = Phase::Mark;
        let is_coinbase = stores.utxo.is_lone_coinbase(txid).map_err(refused)?;
        if is_coinbase && stores.utxo.set_conflicting(txid, &block.call).map_err(refused)?.has_more {
            return Ok(false);
        }
        position.phase = Phase::Whole;
    }
    Ok(true)
}

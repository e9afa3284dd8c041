//! Part of a block that one message applies: state, limits and errors of the message.

use super::Stores;
use super::ids::Cached;
use super::position::Position;
use super::window::{BodyError, Window};
use crate::utxo::{BlockTerms, Hash, Input, NotApplied};
use ic_coppice_interface::{Outpoint, UtxoApplied, UtxoApplyError, UtxoApplyStop};
use ic_coppice_storage::{Ic, Platform as _};

/// Instructions after which a message begins no other transaction.
pub(super) const INSTRUCTIONS: u64 = 2_000_000_000;

/// Pages that a message reads before it begins no other transaction. The platform lets a message read 524,288.
pub(super) const MOST_READ: u64 = 200_000;

/// One message's part of a block.
pub(super) struct Run<'a, 's> {
    pub stores: &'a mut Stores<'s>,
    pub block: BlockTerms<'a>,
    pub window: Window,
    pub ids: Cached,
    pub position: Position,
    pub applied: UtxoApplied,
    /// The transaction that is skipped if it is refused.
    pub skip: Option<Hash>,
    /// Value of the instruction counter at which no other transaction begins.
    pub end: u64,
    /// The next transaction is applied in parts, although it is not large, because its parents take too many instructions to find.
    pub in_parts: bool,
    /// The position has moved in this message.
    pub worked: bool,
    /// A transaction was skipped.
    pub skipped: bool,
}

impl Run<'_, '_> {
    /// Returns the error of a body at the position.
    pub fn body_error(&self, error: BodyError) -> UtxoApplyError {
        let (at, why) = match error {
            BodyError::Bad { at, why } => (at, why),
            BodyError::Corrupt(why) => return UtxoApplyError::Corrupt { why },
            BodyError::Long => (self.position.offset, error.to_string()),
        };
        UtxoApplyError::BadBody { transaction: self.position.transaction, at, why }
    }

    /// Returns the error of a transaction at the position.
    pub fn stop(&self, txid: &Hash, refused: NotApplied) -> UtxoApplyError {
        match refused {
            NotApplied::Memory(why) => UtxoApplyError::NoMemory(why),
            NotApplied::Parts => Ic::trap("apply: a transaction in parts was not begun"),
            NotApplied::Stopped(input, reason) => Box::new(UtxoApplyStop {
                number: self.position.next,
                transaction: self.position.transaction,
                txid: txid.into(),
                input: input.map(|input| input.vin),
                output: input.map(|Input { outpoint: (txid, vout), .. }| Outpoint { txid: txid.into(), vout }),
                reason,
            })
            .into(),
        }
    }
}

//! The pages of the build without UTXO records: the functions of `records.rs`, which show nothing.

use crate::state::State;
use maud::Markup;

pub(super) fn cards(_state: &State, _now: u64) -> Markup {
    Markup::default()
}

pub(super) fn card_of(_state: &State, _txid: &[u8]) -> Option<Markup> {
    None
}

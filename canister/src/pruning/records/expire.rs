//! Between the phases: preservations that have expired are cleared. What cannot be cleared stays preserved, which loses nothing.

use super::place::Run;
use super::step::{Message, Step};
use crate::utxo::{Call, Candidate};

/// Clears the preservation of a record.
pub fn step(run: &Run, message: &mut Message, of: &Candidate) -> Step {
    let records = &mut *message.records;
    // Without retention it would get no height, and never another one.
    if records.settings.block_height_retention == 0 {
        return Step::Stays;
    }
    let call = Call::at(run.heights.current, records.settings);
    match records.utxo.expire_preservation(of, &call) {
        Ok(()) => {
            message.counts.preservations_expired += 1;
            Step::Left
        }
        Err(error) => {
            message.keep(&of.head.txid, error);
            Step::Stays
        }
    }
}

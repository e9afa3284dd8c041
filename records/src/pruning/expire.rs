//! Step between the phases: clears expired preservations. A preservation that cannot be cleared stays, so its record is kept.

use super::place::Run;
use super::step::{Message, Step};
use crate::utxo::{Call, Candidate};

/// Clears the preservation of a record.
pub fn step(run: &Run, message: &mut Message, of: &Candidate) -> Step {
    let records = &mut *message.records;
    // Without retention the record would never get a height to be deleted at.
    if records.settings.block_height_retention == 0 {
        return Step::Stays;
    }
    let call = Call::at(run.heights.current, records.settings);
    match records.utxo.expire_preservation(of, &call) {
        Ok(()) => {
            message.counts.preservations_expired += 1;
            Step::Left
        }
        Err(error) => message.keep(&of.head.txid, error),
    }
}

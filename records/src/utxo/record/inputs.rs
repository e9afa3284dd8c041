//! Inputs of a record, and the pages after its master.

use super::head::Head;
use super::layout::{Hash, INPUT, INPUTS_OF_PAGE};
use crate::utxo::call::Answer;
use ic_coppice_interface::UtxoRefusal;
use ic_coppice_storage::bytes::{array_at, u32_at};
use ic_coppice_storage::slots::{SlotId, Slots};

/// Returns all inputs of a record: the outpoint that each spends.
///
/// # Errors
/// `Corrupt` if the directory names no page.
pub fn inputs(slots: &Slots, slot: SlotId, head: &Head) -> Answer<Vec<(Hash, u32)>> {
    inputs_from(slots, slot, head, (0, u32::MAX))
}

/// Returns at most `most` inputs, from `first` on.
///
/// # Errors
/// As [`inputs`].
pub fn inputs_from(slots: &Slots, slot: SlotId, head: &Head, (first, most): (u32, u32)) -> Answer<Vec<(Hash, u32)>> {
    let end = first.saturating_add(most).min(head.inputs);
    let mut bytes = Vec::new();
    let mut next = first;
    while next < end {
        let (from, at, rest) = match head.input_pages() {
            0 => (slot, head.inputs_at() + INPUT * next, end - next),
            _ => {
                let (page, at) = (next / INPUTS_OF_PAGE, next % INPUTS_OF_PAGE);
                let rest = (end - next).min(INPUTS_OF_PAGE - at);
                let page = page_slot(slots, slot, head, 1 + head.extra_pages + page);
                if !slots.holds(page, u64::from(INPUT * (at + rest))) {
                    let why = format!("slot {page} is not a page of inputs of slot {slot}");
                    return Err(UtxoRefusal::Corrupt { why });
                }
                (page, INPUT * at, rest)
            }
        };
        slots.read_onto(&mut bytes, from, at, (INPUT * rest) as usize);
        next += rest;
    }
    let inputs = bytes.as_chunks::<{ INPUT as usize }>().0.iter();
    Ok(inputs.map(|input| (array_at(input, 0), u32_at(input, 32))).collect())
}

/// Returns the transactions that inputs spend from, each once.
pub fn parents(inputs: &[(Hash, u32)]) -> Vec<Hash> {
    let mut parents: Vec<Hash> = inputs.iter().map(|(parent, _)| *parent).collect();
    parents.sort_unstable();
    parents.dedup();
    parents
}

/// Returns the slot that the directory names for page `page`: the master's slot for 0. The name is not checked.
#[inline]
pub fn page_slot(slots: &Slots, slot: SlotId, head: &Head, page: u32) -> SlotId {
    if page == 0 { slot } else { slots.read_u32(slot, head.directory_at() + 4 * (page - 1)) }
}

/// Returns the slots of a record's pages, first of outputs and then of inputs.
pub fn pages(slots: &Slots, slot: SlotId, head: &Head) -> impl Iterator<Item = SlotId> {
    (1..=head.extra_pages + head.input_pages()).map(move |page| page_slot(slots, slot, head, page))
}

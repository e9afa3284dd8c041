//! Rare parts of a record, in a separate slot: CBOR, and the list of double spends that spend from the transaction.
//!
//! ```text
//! 0 bytes of CBOR u32, 0 for none   4 newest page of double spends u32: see `children`   8 CBOR
//! ```

use super::head::Head;
use super::layout::at;
use crate::utxo::call::Answer;
use crate::utxo::limits::at_most;
use ic_coppice_interface::{BlockRef, NoMemory, UtxoRefusal};
use ic_coppice_storage::cbor;
use ic_coppice_storage::slots::{SlotId, Slots};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// Maximum reassignments of a record.
const MAX_REASSIGNMENTS: usize = 5_000;
/// Maximum blocks of a record besides the blocks in its head.
pub const MAX_BLOCKS: usize = 1_000;

/// Bytes before the CBOR.
const PREFIX: u32 = 8;

/// Returns the newest page of the double spends that spend from a record's transaction, or 0 for none.
pub fn children(slots: &Slots, head: &Head) -> SlotId {
    if head.extras != 0 && slots.holds(head.extras, u64::from(PREFIX)) { slots.read_u32(head.extras, 4) } else { 0 }
}

/// Sets the newest page of the double spends.
///
/// # Errors
/// `OutOfSpace`, `LowCycles`, only if the record has no extras yet; `Corrupt`. Nothing has changed.
pub fn set_children(slots: &mut Slots, slot: SlotId, head: &mut Head, page: SlotId) -> Answer<()> {
    let old = head.extras;
    if old == 0 {
        head.extras = slots.allocate(PREFIX).map_err(NoMemory::from)?;
        slots.write_u32(head.extras, 0, 0);
    } else if !slots.holds(old, u64::from(PREFIX)) {
        return Err(UtxoRefusal::Corrupt { why: format!("the extras of the record: slot {old} is none") });
    } else if page == 0 && slots.read_u32(old, 0) == 0 {
        slots.free(old);
        head.extras = 0;
    }
    if head.extras != 0 {
        slots.write_u32(head.extras, 4, page);
    }
    if head.extras != old {
        slots.write_u32(slot, at::EXTRAS, head.extras);
    }
    Ok(())
}

/// An output that was given a new owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassigned {
    pub vout: u32,
    pub old: ByteBuf,
    pub new: ByteBuf,
    pub height: u32,
}

/// Parts of a record that the head has no room for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// Blocks after the blocks of the head.
    pub blocks: Vec<BlockRef>,
    /// Heights from which on reassigned outputs are spendable, by output.
    pub spendable_in: BTreeMap<u32, u32>,
    /// Reassignments, in order.
    pub reassignments: Vec<Reassigned>,
}

impl Extras {
    /// Reads the extras of a record, which may be empty.
    ///
    /// # Errors
    /// `Corrupt` if the extras cannot be decoded.
    pub fn load(slots: &Slots, head: &Head) -> Answer<Self> {
        if head.extras == 0 {
            return Ok(Self::default());
        }
        let corrupt = |why: String| UtxoRefusal::Corrupt { why: format!("the extras of the record: {why}") };
        if !slots.holds(head.extras, u64::from(PREFIX)) {
            return Err(corrupt(format!("slot {} is none", head.extras)));
        }
        let len = slots.read_u32(head.extras, 0).min(slots.capacity(head.extras) - PREFIX);
        if len == 0 {
            return Ok(Self::default());
        }
        let mut bytes = Vec::new();
        slots.read_onto(&mut bytes, head.extras, PREFIX, len as usize);
        cbor::read(&bytes).map_err(corrupt)
    }

    /// Writes the extras; the record's head then names their slot, or none if they are empty.
    ///
    /// # Errors
    /// `TooLarge`, `OutOfSpace`, `LowCycles`; nothing has changed.
    pub fn save(&self, slots: &mut Slots, slot: SlotId, head: &mut Head) -> Answer<()> {
        at_most("blocks", self.blocks.len() as u64, MAX_BLOCKS as u64)?;
        at_most("reassignments", self.reassignments.len() as u64, MAX_REASSIGNMENTS as u64)?;
        let old = head.extras;
        let (is_empty, children) = (*self == Self::default(), children(slots, head));
        let new = if is_empty && children == 0 {
            0
        } else {
            let mut bytes = [[0; 4], children.to_le_bytes()].concat();
            if !is_empty {
                bytes = cbor::write_onto(bytes, self).map_err(|why| UtxoRefusal::Corrupt { why })?;
            }
            let len = bytes.len() as u32 - PREFIX;
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            let new = if old != 0 && slots.capacity(old) as usize >= bytes.len() {
                old
            } else {
                slots.allocate(bytes.len() as u32).map_err(NoMemory::from)?
            };
            slots.write(new, 0, &bytes);
            new
        };
        if new != old {
            slots.write_u32(slot, at::EXTRAS, new);
            head.extras = new;
            if old != 0 {
                slots.free(old);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block;
    use ciborium::Value;

    #[test]
    fn unknown_field_in_extras_and_their_parts_is_ignored() {
        let field = || ("a_field_to_come".into(), Value::Array(vec![7.into()]));
        let full = Extras {
            reassignments: vec![Reassigned { vout: 0, old: ByteBuf::from([1]), new: ByteBuf::from([2]), height: 3 }],
            blocks: (2..5).map(|i| block(i, 900)).collect(),
            ..Extras::default()
        };
        let Value::Map(mut fields) = Value::serialized(&full).unwrap() else { panic!("{full:?}") };
        for (_, list) in &mut fields {
            let Value::Array(items) = list else { continue };
            for item in items {
                let Value::Map(fields) = item else { continue };
                fields.push(field());
            }
        }
        fields.push(field());
        let mut bytes = Vec::new();
        ciborium::into_writer(&Value::Map(fields), &mut bytes).unwrap();
        assert_eq!(ciborium::from_reader::<Extras, _>(bytes.as_slice()).unwrap(), full);
    }
}

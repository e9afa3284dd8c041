//! Names of slots.

/// Id of a slot: its offset in the arena / 128 + 1; 0 for no slot.
pub type SlotId = u32;

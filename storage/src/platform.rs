//! Calls of the platform that storage needs.

use ic_stable_structures::Memory;

/// The platform below storage. Growing is a call of its [`Memory`].
pub trait Platform: Copy + 'static {
    /// Raw stable memory.
    type Memory: Memory + Clone + Default;

    /// Returns the cycles above the freezing threshold.
    fn liquid_cycles() -> u128;

    /// Returns all cycles of the canister, those below the freezing threshold included.
    fn cycle_balance() -> u128;

    /// Returns the nanoseconds since the Unix epoch. They stand still within a message.
    fn now_ns() -> u64;

    /// Returns the instructions that this message has executed so far.
    fn instructions() -> u64;

    /// Ends the message and undoes all that it did. For broken invariants only.
    fn trap(message: &str) -> !;
}

//! Calls of the platform that storage needs.

use ic_principal::Principal;
use ic_stable_structures::Memory;

/// The platform below storage. Growing is a call of its [`Memory`].
pub trait Platform: Copy + 'static {
    /// Raw stable memory.
    type Memory: Memory + Clone + Default;

    /// Returns the cycles above the freezing threshold.
    fn liquid_cycles() -> u128;

    /// Returns all cycles of the canister, those below the freezing threshold included.
    fn cycle_balance() -> u128;

    /// Returns the nanoseconds since the Unix epoch. The time is constant within a message.
    fn now_ns() -> u64;

    /// Returns the seconds since the Unix epoch.
    fn now_secs() -> u64 {
        Self::now_ns() / crate::NS
    }

    /// Returns the instructions that this message has executed so far.
    fn instructions() -> u64;

    /// Returns the sender of the message.
    fn caller() -> Principal;

    /// Returns whether all replicas of the subnet run the message; a query runs on one.
    fn is_replicated() -> bool;

    /// Writes a line to the platform's log of the canister, which keeps some 4 KiB and is lost with an upgrade.
    fn log(line: &str);

    /// Ends the message and undoes all that it did. For broken invariants only.
    fn trap(message: &str) -> !;
}

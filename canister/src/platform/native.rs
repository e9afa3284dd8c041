//! Native twin of the platform: one world per thread, controlled by a test. `ic_coppice_storage` provides its stable memory, cycles, time,
//! caller and log.

use candid::Principal;
use ic_coppice_storage::twin;
#[cfg(test)]
pub use ic_coppice_storage::twin::{message, touching};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// The state that answers the platform's calls.
pub struct World {
    /// Stable memory, instructions, cycles, time, caller and log, swapped in while [`with`] runs.
    memory: twin::World,
    /// Cycles that must be liquid when a timer fires.
    pub timer_call_cycles: u128,
    /// The hash key of new canisters; `None` leaves them without one.
    pub hash_key: Option<[u8; ic_coppice_storage::KEY]>,
    /// The reply to each draw of secret bytes.
    pub drawn: Result<Vec<u8>, String>,
    /// The method that an ingress message calls.
    pub method: String,
    /// Bytes of the message's argument.
    pub argument_bytes: u64,
    /// The message's argument.
    pub argument: Vec<u8>,
    /// The last reply, or the text of the last reject.
    pub answer: Option<Result<Vec<u8>, String>>,
    /// The canister's controllers.
    pub controllers: Vec<Principal>,
    /// The bytes that the subnet certifies.
    pub certified_data: [u8; 32],
    /// The times at which armed timers fire next, in nanoseconds since the Unix epoch.
    pub timers: BTreeMap<u8, u64>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            memory: twin::World::default(),
            timer_call_cycles: 42_100_000_000,
            hash_key: Some([7; ic_coppice_storage::KEY]),
            drawn: Err("no reply".into()),
            method: String::new(),
            argument_bytes: 0,
            argument: Vec::new(),
            answer: None,
            controllers: Vec::new(),
            certified_data: [0; 32],
            timers: BTreeMap::new(),
        }
    }
}

impl Deref for World {
    type Target = twin::World;

    fn deref(&self) -> &twin::World {
        &self.memory
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut twin::World {
        &mut self.memory
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// Reads or changes this thread's world.
pub fn with<T>(f: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| {
        twin::with(|memory| std::mem::swap(memory, &mut world.memory));
        let result = f(world);
        twin::with(|memory| std::mem::swap(memory, &mut world.memory));
        result
    })
}

/// Creates a fresh world with empty stable memory.
#[cfg(test)]
pub fn reset() {
    twin::reset();
    WORLD.set(World::default());
}

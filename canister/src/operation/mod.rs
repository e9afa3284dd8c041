//! Operation of the whole canister: timers, samples, health and storage.

pub mod daemon;
pub mod health;
pub mod sampling;
pub mod storage;

//! Operation of the whole canister: timers, samples and health.

pub mod clock;
pub mod daemon;
pub mod health;
pub mod sampling;

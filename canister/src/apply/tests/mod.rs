//! Tests of applying over the stores alone; `tests/it/apply.rs` has those through the interface.

mod hostile;
mod large;
mod meaning;
mod traps;
mod unapply;
mod world;

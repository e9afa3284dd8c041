//! Tests of applying over the stores alone; `tests/it/apply.rs` has those through the interface.

mod hostile;
mod large;
mod meaning;
mod take_back;
mod traps;
mod world;

//! Work of one message, for both pruners: its budget, and how it gets past what traps.

pub mod budget;
pub mod marker;

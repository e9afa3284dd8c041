//! Tools of both pruners: the budget of one message, and the marker that gets ticks past work that traps.

pub mod budget;
pub mod marker;

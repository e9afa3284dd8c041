//! Bounded rings: the log, the audit log, and the history of samples.

pub mod audit;
pub mod history;
mod log;

pub use log::*;

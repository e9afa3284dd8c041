//! Lines of the log: damage, refusals, and work that was given up.
//!
//! Each line goes to the platform's log, and to the canister's own log if [`keep`] has named one.

use crate::{Ic, Platform};
use std::cell::Cell;

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Damage, a refusal, or work that was given up.
    Error = 0,
    /// A normal event.
    Info = 1,
}

/// Writes a line to a log.
pub type Keep = fn(Priority, &str);

thread_local! {
    static KEEP: Cell<Option<Keep>> = const { Cell::new(None) };
}

/// Sets the canister's own log, which gets each line from now on.
pub fn keep(log: Keep) {
    KEEP.set(Some(log));
}

/// Logs damage, a refusal, or work that was given up.
pub fn error(line: &str) {
    write(Priority::Error, line);
}

/// Logs a normal event.
pub fn info(line: &str) {
    write(Priority::Info, line);
}

#[cold]
fn write(priority: Priority, line: &str) {
    Ic::log(line);
    if let Some(keep) = KEEP.get() {
        keep(priority, line);
    }
}

//! Methods that PocketIC does not have: measurements, limits, faults.

use super::Host;
use crate::execution::{Execution, Totals};
use crate::faults::Faults;
use crate::limits::Limits;

impl Host {
    /// Returns the last execution.
    pub fn last_execution(&self) -> Option<Execution> {
        self.subnet().history.last()
    }

    /// Returns the executions since the last call, oldest first; at most the last 10,000.
    pub fn take_executions(&self) -> Vec<Execution> {
        self.subnet().history.take()
    }

    /// Returns sums over all executions.
    pub fn totals(&self) -> Totals {
        self.subnet().history.totals
    }

    /// Returns a handle on the faults to inject.
    pub fn faults(&self) -> Faults {
        self.subnet().faults.clone()
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> Limits {
        self.subnet().limits.clone()
    }

    /// Changes the limits for later growths and messages.
    pub fn set_limits(&self, limits: Limits) {
        self.subnet().limits = limits;
    }
}

//! What only this host has: measurements, limits, faults.

use super::Host;
use crate::execution::{Execution, Totals};
use crate::faults::Faults;
use crate::limits::Limits;

impl Host {
    /// The last execution.
    pub fn last_execution(&self) -> Option<Execution> {
        self.subnet().history.last()
    }

    /// The executions since the last call, oldest first; at most the last 10,000.
    pub fn take_executions(&self) -> Vec<Execution> {
        self.subnet().history.take()
    }

    /// Sums over all executions.
    pub fn totals(&self) -> Totals {
        self.subnet().history.totals
    }

    /// A handle on the faults to inject.
    pub fn faults(&self) -> Faults {
        self.subnet().faults.clone()
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.subnet().limits.clone()
    }

    /// Changes the limits; a growth or message that comes later sees the new ones.
    pub fn set_limits(&self, limits: Limits) {
        self.subnet().limits = limits;
    }
}

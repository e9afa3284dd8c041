//! Methods that PocketIC does not have: measurements, limits, faults, the keys of certificates.

use std::sync::Arc;

use super::Host;
use crate::certificate::{Keys, real_time};
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

    /// Returns the root key of the network in DER, by which a canister's certificates are verified.
    pub fn root_key(&self) -> Vec<u8> {
        self.keys().root_key().to_vec()
    }

    /// Returns the keys that sign certificates.
    pub fn keys(&self) -> Arc<Keys> {
        self.subnet().keys.clone()
    }

    /// Changes the keys that sign later certificates.
    pub fn set_keys(&self, keys: Keys) {
        self.subnet().keys = Arc::new(keys);
    }

    /// Lets later certificates, and the delegation, carry the real time instead of the clock, because agents and browsers refuse old ones.
    pub fn certify_with_real_time(&self) {
        let mut subnet = self.subnet();
        subnet.keys = Arc::new(subnet.keys.delegated_at(real_time()));
        subnet.certifies_real_time = true;
    }
}

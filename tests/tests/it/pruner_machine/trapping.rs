//! Messages that trap where a history says so: on the embedded host, and on the canister that is none.

use coppice_host::{Host, INJECTED_FAULT, TrapPoint};
use coppice_ic::Reject;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Who can have a message trap.
pub enum Trapping {
    /// Nobody: a server.
    None,
    Host(Arc<Host>),
    /// The canister that is none: how often a message has trapped since it was told to.
    Reference(Rc<Cell<Option<u64>>>),
}

impl Trapping {
    pub fn can(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// From now on every message traps that comes to this point.
    pub fn begin(&self, point: TrapPoint) {
        match self {
            Self::None => {}
            Self::Host(host) => host.faults().trap_every_message(point),
            Self::Reference(trapping) => trapping.set(Some(0)),
        }
    }

    pub fn struck(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Host(host) => host.faults().injected(),
            Self::Reference(trapping) => trapping.get().unwrap_or(0),
        }
    }

    pub fn end(&self) {
        match self {
            Self::None => {}
            Self::Host(host) => host.faults().clear(),
            Self::Reference(trapping) => trapping.set(None),
        }
    }
}

/// Whether a call was rejected as its message was to trap.
pub fn is_injected(reject: &Reject) -> bool {
    reject.message.contains(INJECTED_FAULT)
}

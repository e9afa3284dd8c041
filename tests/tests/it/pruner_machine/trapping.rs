//! Injected traps: on the embedded host, and on the reference.

use coppice_ic::Reject;
use ic_coppice_host::{Host, INJECTED_FAULT, TrapPoint};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// The backend that makes messages trap.
pub enum Trapping {
    /// None: a server cannot inject traps.
    None,
    Host(Arc<Host>),
    /// The reference: the number of injected traps, or `None` while traps are off.
    Reference(Rc<Cell<Option<u64>>>),
}

impl Trapping {
    pub fn can(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// From now on every message that reaches this point traps.
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

/// Returns whether a call was rejected because of an injected trap.
pub fn is_injected(reject: &Reject) -> bool {
    reject.message.contains(INJECTED_FAULT)
}

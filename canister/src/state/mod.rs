//! State: all stores and settings, opened once and held on the heap.

pub mod clock;
mod control;
mod init;
mod key;
mod noted;
pub mod records;
pub mod tally;
mod tick;
mod undo;

pub use init::{init, upgrade};

use crate::logs::audit::AuditLog;
use crate::logs::history::History;
use crate::platform::{self, cycles};
use crate::settings::config::{self, RecordsCap};
use crate::settings::roles::Roles;
use crate::{logs, memory, places};
use clock::Clock;
use ic_coppice_chain::export::{Exporters, Guard};
use ic_coppice_chain::pruning::{Constraints, Due, Pruner};
use ic_coppice_chain::{Admission, ChainStore};
use ic_coppice_interface::{Config, HeldBy};
use ic_coppice_storage::blob::{BlobStore, Class};
use ic_coppice_storage::{HashKey, Space};
use std::cell::RefCell;
use std::rc::Rc;

/// The stores and the settings.
pub struct State {
    cells: Rc<Space>,
    /// The hash key of all tables; unset until it is drawn and stored.
    pub key: HashKey,
    /// The settings in force.
    pub config: Config,
    /// Grants of roles.
    pub roles: Roles,
    /// Time since which deletions are stopped, in Unix nanoseconds; `None` if they are not.
    pub deletions_stopped: Option<u64>,
    /// The cap on the memory of records.
    records_cap: RecordsCap,
    /// All blobs.
    pub blobs: BlobStore,
    /// The kept blocks.
    pub chain: ChainStore,
    /// UTXO records, and all that belongs to them.
    pub records: records::Stores,
    /// Policy and progress of the block pruner.
    pub pruner: Pruner,
    /// Exporters of the chain, and their acknowledged bounds.
    pub exporters: Exporters,
    /// Audit log of changes by operators and admins.
    pub audit: AuditLog,
    /// Samples of the state, and the start times of lasting problems.
    pub history: History,
    /// Times of the timers.
    pub clock: Clock,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

#[cfg(test)]
thread_local! {
    static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns how often this thread has accessed the state.
#[cfg(test)]
pub fn visits() -> u64 {
    VISITS.get()
}

/// Reads the state. Calls must not be nested.
pub fn read<T>(f: impl FnOnce(&State) -> T) -> T {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
    STATE.with_borrow(|state| f(state.as_ref().unwrap_or_else(|| platform::trap("the canister is not initialised"))))
}

/// Changes the state, and certifies what has changed. Calls must not be nested.
pub fn mutate<T>(f: impl FnOnce(&mut State) -> T) -> T {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
    STATE.with_borrow_mut(|state| {
        let state = state.as_mut().unwrap_or_else(|| platform::trap("the canister is not initialised"));
        // Reservations of an earlier message.
        state.blobs.arena().end_reservations();
        let done = f(state);
        if let Some(data) = state.chain.certify() {
            platform::set_certified_data(&data);
        }
        done
    })
}

impl State {
    /// Persists the settings, the roles and whether deletions are stopped, and applies the memory limits.
    pub fn save_config(&mut self) {
        memory::bound(self.blobs.arena(), &self.config);
        self.bound_feeding();
        let stored = config::Stored {
            config: self.config.clone(),
            roles: self.roles.clone(),
            deletions_stopped: self.deletions_stopped,
            records: self.records_cap,
        };
        config::CELL.keep(&self.cells, &stored);
    }

    /// Writes all that the heap mirrors anew before an upgrade, which drops the heap: a bit that has changed in stable memory is mended.
    pub fn rewrite(&mut self) {
        self.blobs.arena().rewrite();
        self.cells.rewrite_with(&places::HEADER);
        if config::CELL.is_damaged(&self.cells, true) {
            self.save_config();
        }
        self.rewrite_key();
        self.chain.rewrite();
        if records::KEPT {
            self.records.rewrite();
        }
        self.pruner.rewrite();
        self.exporters.rewrite();
        self.audit.rewrite();
        self.history.rewrite();
        logs::rewrite();
    }

    /// Applies the limits on feeding calls. The minimum of cycles depends on the timer's interval.
    fn bound_feeding(&mut self) {
        self.bound_records();
        cycles::set_feed_min(config::feed_min(&self.config, self.pruner.interval_secs()));
    }

    /// Returns the conditions for an append.
    pub fn admission(&self) -> Admission {
        Admission {
            upload_expiry_secs: self.config.upload_expiry_secs,
            verify_segments: self.config.verify_segments,
            missing_cycles: cycles::missing_to_feed(),
            exhausted: self.pruner.exhausted(&self.chain, &self.blobs, || self.constraints()),
        }
    }

    /// Returns the limits that override the policy: exporters, applying, the stop of deletions and the cycle reserve.
    pub fn constraints(&self) -> Constraints {
        Constraints {
            exported: self.exporters.guard(self.config.require_export),
            applying: self.records.applier.next().map(|before| Guard { before, held_by: HeldBy::UtxoApply }),
            stopped_since: self.deletions_stopped,
            low_on_cycles: cycles::are_low(self.config.min_liquid_cycles),
        }
    }

    /// Returns the blocks that are due.
    pub fn due(&self) -> Option<Due> {
        self.pruner.due(&self.chain, &self.blobs, self.constraints().guard().as_ref())
    }

    /// Number of blob slots that were written off.
    pub fn lost(&self) -> u64 {
        Class::all().map(|class| u64::from(self.blobs.arena().class_counters(class).lost)).sum()
    }
}

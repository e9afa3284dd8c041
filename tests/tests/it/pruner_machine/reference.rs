//! Reference without a canister: the interface, and a pruner that implements `docs/design/record-pruning.md` in the simplest way over the model's own
//! records. The machine is tested on it, and on its deliberate faults. The reference makes its own choice where the canister is free: which
//! of two records of a height is deleted first, and how much a tick does.

mod interface;
mod jobs;
mod run;

use super::trapping::Trapping;
use candid::Principal;
use coppice_ic::{Backend, Ic, Reject, Submitted};
use coppice_model::records::{Family, Heights, Record, Records, Settings, Txid};
use coppice_tests::coppice::{Coppice, Who};
use ic_coppice_host::INJECTED_FAULT;
use ic_coppice_interface::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Declares the faults, and lists them.
macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident,)+) => {
        /// The deliberate faults of the reference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$doc])* $fault,)+
        }

        impl Fault {
            pub const ALL: &[Self] = &[$(Self::$fault,)+];
        }
    };
}

faults! {
    /// No parents are preserved.
    SkipsPhaseOne,
    /// Phase 1 is done once, even if transactions become unmined later.
    ExaminesOnce,
    /// A transaction that becomes unmined again counts as old only after its retention.
    ForgetsReverted,
    /// Preservations never end.
    NeverExpires,
    /// Preservations end a block early.
    ExpiresEarly,
    /// The current height is used as the safe height.
    IgnoresPersisted,
    /// Defensive mode does nothing.
    IsNotDefensive,
    /// Defensive mode treats a spender without a record as stable.
    TrustsAbsentSpenders,
    /// Parents are not updated.
    UpdatesNoParents,
    /// A record with an external blob is deleted at once.
    DeletesBeforeTheBlob,
    /// A record is deleted when its blob is given up.
    DeletesRecordsOfGivenUpBlobs,
    /// A run continues while the block assembly is stopped.
    RunsWhileStopped,
    /// A run does not notice a block persister that begins meanwhile.
    KeepsItsHeight,
    /// Stopped jobs are forgotten.
    ForgetsHeights,
    /// The last due record is not deleted.
    LeavesOneRecord,
    /// An upgrade completes the run.
    EndsWithUpgrade,
    /// An upgrade makes the run skip all records that are due then.
    SkipsAfterUpgrade,
    /// A job for a lower height replaces one for a higher height.
    LowerWins,
    /// Freezing does not keep a record.
    IgnoresFreezing,
    /// A height may jump without limit.
    AcceptsAnyJump,
    /// A call that traps has still taken effect.
    KeepsTrappedChanges,
    /// A run continues while cycles are low.
    RunsOnLowCycles,
    /// Outputs held by losers stay held when a double spend wins.
    KeepsLosersSpends,
    /// Kept records are not examined again after wrong heights are corrected.
    NeverRechecksKept,
    /// Only the first thousand parents of a record are updated.
    UpdatesAThousandParents,
}

impl Fault {
    /// The number of the first history that finds the fault. A run with `COPPICE_PROGRESS` prints these numbers.
    pub fn first_history(self) -> usize {
        match self {
            Self::ForgetsHeights => 5,
            Self::LowerWins => 3,
            Self::IgnoresFreezing | Self::DeletesBeforeTheBlob => 2,
            Self::ForgetsReverted => 8,
            Self::KeepsTrappedChanges => 11,
            Self::SkipsAfterUpgrade => 14,
            Self::RunsOnLowCycles => 16,
            Self::ExaminesOnce => 18,
            Self::DeletesRecordsOfGivenUpBlobs => 30,
            Self::AcceptsAnyJump => 33,
            Self::NeverRechecksKept => 108,
            Self::UpdatesAThousandParents => 206,
            Self::KeepsLosersSpends => 258,
            Self::KeepsItsHeight => 341,
            _ => 1,
        }
    }
}

/// A run and its progress.
struct Run {
    heights: (u32, u32),
    /// A job that timed out began the run.
    kept: bool,
    phase: UtxoPrunerPhase,
    /// Old unmined transactions whose parents are preserved.
    walked: BTreeSet<Txid>,
    /// Records that phase 2 has examined.
    passed: BTreeSet<Txid>,
}

/// A record's txid, its last state, and the reply.
type Shown = (Txid, Option<Record>, Vec<u8>);

#[derive(Default)]
struct State {
    family: Family,
    fault: Option<Fault>,
    records: Records,
    settings: Settings,
    heights: Heights,
    /// By how much feeders have raised the heights since they were set.
    drawn: (u32, u32),
    processed: u32,
    last_completed: Option<UtxoPruneJob>,
    running: bool,
    /// The message comes from an operator.
    by_operator: bool,
    /// In the order of their numbers.
    jobs: Vec<UtxoPruneJob>,
    /// The ids of jobs that ended, in the order in which they ended.
    ended: Vec<u64>,
    run: Option<Run>,
    /// The height until which a kept record is not examined, and the height at which it was due.
    kept: BTreeMap<Txid, (u32, Option<u32>)>,
    /// The heights were set.
    recheck_kept: bool,
    /// Records with many inputs whose blob is deleted.
    finishing: BTreeSet<Txid>,
    /// Rows of the queue, and whether they were given up.
    rows: BTreeMap<u64, (BlobDeletion, bool)>,
    next_row: u64,
    totals: UtxoPruneCounts,
    ticks: u64,
    now: u64,
    next_tick_ns: u64,
    /// The last reply for each record, by the argument of the query.
    shown: RefCell<BTreeMap<Vec<u8>, Shown>>,
}

/// The reference, behind the trait of an Internet Computer.
struct Reference(RefCell<State>, Rc<Cell<Option<u64>>>);

impl Reference {
    /// Returns whether the next message traps.
    fn traps(&self) -> bool {
        self.1.set(self.1.get().map(|times| times + 1));
        self.1.get().is_some()
    }
}

/// A canister for the transactions of a history.
pub fn canister(family: Family, fault: Option<Fault>) -> (Coppice, Trapping) {
    let trapping = Rc::new(Cell::new(None));
    let now = 1_700_000_000_000_000_000;
    let state = State { family, fault, next_row: 1, now, next_tick_ns: now + 10_000_000_000, ..State::default() };
    let ic = Reference(RefCell::new(state), Rc::clone(&trapping));
    (Coppice { ic: Box::new(ic), id: Principal::management_canister() }, Trapping::Reference(trapping))
}

impl State {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// An upgrade, which loses nothing.
    fn upgrade(&mut self) {
        if self.has(Fault::EndsWithUpgrade) && self.running_job().is_some() {
            self.run = None;
            self.end_running(UtxoJobState::Completed, None);
        }
        let lost = self.has(Fault::SkipsAfterUpgrade);
        if let Some(run) = self.run.as_mut().filter(|run| lost && run.phase == UtxoPrunerPhase::DeleteAtHeight) {
            run.passed.extend(self.records.due(run.heights.1));
        }
        self.next_tick_ns = self.now + self.settings.pruner.tick_interval_secs * 1_000_000_000;
    }
}

impl Ic for Reference {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn create_canister(&self, _: Principal) -> Principal {
        Principal::management_canister()
    }

    fn set_controllers(&self, _: Principal, _: Principal, _: Vec<Principal>) -> Result<(), Reject> {
        Ok(())
    }

    fn install(&self, _: Principal, _: Vec<u8>, _: Vec<u8>, _: Principal) {}

    fn upgrade(&self, _: Principal, _: Vec<u8>, _: Vec<u8>, _: Principal) -> Result<(), Reject> {
        self.0.borrow_mut().upgrade();
        Ok(())
    }

    fn stop(&self, _: Principal, _: Principal) -> Result<(), Reject> {
        Ok(())
    }

    fn start(&self, _: Principal, _: Principal) -> Result<(), Reject> {
        Ok(())
    }

    fn update(&self, _: Principal, sender: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject> {
        let mut state = self.0.borrow_mut();
        let traps = self.traps();
        state.by_operator = sender == Who::Controller.principal();
        if traps && state.has(Fault::KeepsTrappedChanges) {
            state.update(method, &arg);
        }
        if traps {
            let message = INJECTED_FAULT.to_string();
            return Err(Reject { reject_code: 5, error_code: "IC0503".into(), message });
        }
        Ok(state.update(method, &arg))
    }

    fn query(&self, _: Principal, _: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject> {
        Ok(self.0.borrow().query(method, &arg))
    }

    fn submit(&self, _: Principal, _: Principal, method: &str, _: Vec<u8>) -> Result<Submitted, Reject> {
        panic!("{method} is not awaited at once")
    }

    fn wait(&self, _: Submitted) -> Result<Vec<u8>, Reject> {
        panic!("nothing is submitted")
    }

    fn tick(&self) {
        let mut state = self.0.borrow_mut();
        if state.now >= state.next_tick_ns {
            state.next_tick_ns += state.settings.pruner.tick_interval_secs * 1_000_000_000;
            if !self.traps() {
                state.tick(false);
            }
        }
    }

    fn advance_time(&self, by: Duration) {
        self.0.borrow_mut().now += by.as_nanos() as u64;
    }

    fn now(&self) -> u64 {
        self.0.borrow().now
    }

    fn cycles(&self, _: Principal) -> u128 {
        0
    }
}

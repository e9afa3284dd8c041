//! A canister that is none: the interface, and a pruner that does what `docs/design.md` 7 says in the simplest way, over the
//! model's own records. The machine is tried on it, and on its faults. It deletes as the canister may, not as it must: which
//! of two records of a height goes first, or how much a tick does, is its own business.

mod interface;
mod jobs;
mod run;
mod shown;

use super::model::{Record, Records};
use super::rules::Heights;
use super::settings::Settings;
use super::transactions::{Family, Txid};
use candid::Principal;
use coppice_canister::api::*;
use coppice_ic::{Backend, Ic, Reject, Submitted};
use coppice_tests::coppice::Coppice;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What may be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No parents are preserved.
    SkipsPhaseOne,
    /// Phase 1 is done once, whatever becomes unmined later.
    LooksOnce,
    /// Preservations never end.
    NeverExpires,
    /// They end a block early.
    ExpiresEarly,
    /// The current height is the safe one.
    IgnoresPersisted,
    /// Defensive mode does nothing.
    IsNotDefensive,
    /// Defensive mode takes what has no record for stable.
    TrustsTheAbsent,
    /// Parents are not told.
    TellsNobody,
    /// A record with a blob outside goes at once.
    DoesNotWait,
    /// A record goes when its blob is given up.
    GivesRecordsUp,
    /// A run goes on while the block assembly is stopped.
    RunsWhileStopped,
    /// A run does not notice a block persister that begins meanwhile.
    KeepsItsHeight,
    /// What was stopped is forgotten.
    ForgetsHeights,
    /// The last record that is due stays.
    LeavesOne,
    /// A run that is interrupted by an upgrade is done.
    EndsWithUpgrade,
    /// A run that is interrupted by an upgrade believes to have seen everything that is due then.
    LosesItsPlace,
    /// A lower height takes the place of a higher one.
    LowerWins,
    /// Freezing does not keep a record.
    IgnoresFreezing,
    /// A height may jump as far as it likes.
    BelievesAnything,
}

impl Fault {
    pub const ALL: [Self; 19] = [
        Self::SkipsPhaseOne,
        Self::LooksOnce,
        Self::NeverExpires,
        Self::ExpiresEarly,
        Self::IgnoresPersisted,
        Self::IsNotDefensive,
        Self::TrustsTheAbsent,
        Self::TellsNobody,
        Self::DoesNotWait,
        Self::GivesRecordsUp,
        Self::RunsWhileStopped,
        Self::KeepsItsHeight,
        Self::ForgetsHeights,
        Self::LeavesOne,
        Self::EndsWithUpgrade,
        Self::LosesItsPlace,
        Self::LowerWins,
        Self::IgnoresFreezing,
        Self::BelievesAnything,
    ];
}

/// A run, and how far it is.
struct Run {
    heights: (u32, u32),
    /// It was begun by a job that timed out.
    kept: bool,
    phase: PrunerPhase,
    /// Old unmined transactions whose parents are preserved.
    walked: BTreeSet<Txid>,
    /// Records that were looked at in phase 2.
    passed: BTreeSet<Txid>,
}

/// A record's txid, what it was, and the reply.
type Shown = (Txid, Option<Record>, Vec<u8>);

struct State {
    family: Family,
    fault: Option<Fault>,
    records: Records,
    settings: Settings,
    heights: Heights,
    processed: u32,
    last_completed: Option<PruneJob>,
    running: bool,
    /// In the order of their numbers.
    jobs: Vec<PruneJob>,
    /// When each of those that ended did so, the first first.
    ended: Vec<u64>,
    run: Option<Run>,
    /// Rows of the queue, and whether they were given up.
    rows: BTreeMap<u64, (BlobDeletion, bool)>,
    next_row: u64,
    totals: PruneCounts,
    ticks: u64,
    now: u64,
    next_tick: u64,
    /// Records as they were shown last, by the argument that asked for them.
    shown: RefCell<BTreeMap<Vec<u8>, Shown>>,
}

/// A canister that is none, on an Internet Computer that is none.
struct Reference(RefCell<State>);

/// A canister for the transactions of a history.
pub fn canister(family: Family, fault: Option<Fault>) -> Coppice {
    let now = 1_700_000_000_000_000_000;
    let state = State {
        family,
        fault,
        records: Records::default(),
        settings: Settings::default(),
        heights: Heights::default(),
        processed: 0,
        last_completed: None,
        running: false,
        jobs: Vec::new(),
        ended: Vec::new(),
        run: None,
        rows: BTreeMap::new(),
        next_row: 1,
        totals: PruneCounts::default(),
        ticks: 0,
        now,
        next_tick: now + 10_000_000_000,
        shown: RefCell::default(),
    };
    Coppice { ic: Box::new(Reference(RefCell::new(state))), id: Principal::management_canister() }
}

impl State {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// An upgrade, in which nothing is lost.
    fn upgrade(&mut self) {
        if self.has(Fault::EndsWithUpgrade) && self.running_job().is_some() {
            self.run = None;
            self.end_running(JobState::Completed, None);
        }
        let lost = self.has(Fault::LosesItsPlace);
        if let Some(run) = self.run.as_mut().filter(|run| lost && run.phase == PrunerPhase::DeleteAtHeight) {
            run.passed.extend(self.records.due(run.heights.1));
        }
        self.next_tick = self.now + self.settings.pruner.tick_interval * 1_000_000_000;
    }
}

impl Ic for Reference {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn create_canister(&self, _: Principal) -> Principal {
        Principal::management_canister()
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

    fn update(&self, _: Principal, _: Principal, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Reject> {
        Ok(self.0.borrow_mut().update(method, &arg))
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
        if state.now >= state.next_tick {
            state.next_tick += state.settings.pruner.tick_interval * 1_000_000_000;
            state.tick(false);
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

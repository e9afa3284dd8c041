//! Everything that the canister keeps, opened once and held on the heap.

mod control;
mod noted;
pub mod tally;

use crate::chain::{Admission, ChainStore, IndexTable};
use crate::deletion::{DeletionQueue, Limits};
use crate::export::Exporters;
use crate::logs;
use crate::logs::audit::AuditLog;
use crate::logs::history::History;
use crate::platform::{self, cycles};
use crate::pruning::blocks::{Constraints, Due, Limiter, Next, Piece, Pruner};
use crate::pruning::marker::Turn;
use crate::pruning::records::{Records, UtxoPruner};
use crate::settings::config::{self, RecordsCap, Settings as _};
use crate::settings::roles::Roles;
use crate::storage::blob::{BlobStore, Class, Owner};
use crate::storage::memory::{self, Region, WASM_PAGE, cell};
use crate::utxo::UtxoStore;
use coppice_interface::{
    CanisterArg, ClassStorage, Config, Grant, OwnerStorage, ProblemCode, RegionStorage, Role, StorageStatus,
};
use std::cell::RefCell;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Quarantined blobs that a tick releases.
const MAX_RELEASES: u64 = 1_000;

/// The stores and the settings.
pub struct State {
    cells: Rc<Region>,
    /// The settings in force.
    pub config: Config,
    /// Who may do what.
    pub roles: Roles,
    /// Since when deletions are stopped, in Unix nanoseconds; none: they are not.
    pub deletions_stopped: Option<u64>,
    /// The cap on the memory of records.
    records: RecordsCap,
    /// All blobs.
    pub blobs: BlobStore,
    /// The kept blocks.
    pub chain: ChainStore,
    /// UTXO records.
    pub utxo: UtxoStore,
    /// Blobs outside that are to be deleted.
    pub deletions: DeletionQueue,
    /// Policy and progress of pruning.
    pub pruner: Pruner,
    /// The pruner of UTXO records.
    pub utxo_pruner: UtxoPruner,
    /// Who copies the chain, and how far.
    pub exporters: Exporters,
    /// What operators and admins have changed.
    pub audit: AuditLog,
    /// What the canister was like.
    pub history: History,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Looks at the state.
pub fn read<T>(f: impl FnOnce(&State) -> T) -> T {
    STATE.with_borrow(|state| f(state.as_ref().unwrap_or_else(|| platform::trap("the canister is not initialised"))))
}

/// Changes the state.
pub fn mutate<T>(f: impl FnOnce(&mut State) -> T) -> T {
    STATE
        .with_borrow_mut(|state| f(state.as_mut().unwrap_or_else(|| platform::trap("the canister is not initialised"))))
}

/// Makes the state of a new canister.
///
/// # Errors
/// A sentence that says what is wrong with the argument or with memory.
pub fn init(arg: Option<CanisterArg>) -> Result<(), String> {
    let arg = match arg {
        None => coppice_interface::InitArg::default(),
        Some(CanisterArg::Init(arg)) => arg,
        Some(CanisterArg::Upgrade(_)) => return Err("a new canister takes `Init`, not `Upgrade`".into()),
    };
    let config = Config::new(&arg).map_err(|error| format!("{error:?}"))?;
    let mut roles = Roles::default();
    let admins = arg.admins.clone().unwrap_or_default();
    let grants = [(&arg.operators, Role::Operator), (&arg.producers, Role::Producer), (&admins, Role::Admin)];
    for (principals, role) in grants {
        for &principal in principals {
            roles.grant(Grant { principal, role }).map_err(|error| format!("{role:?} {principal}: {error:?}"))?;
        }
    }
    let cells = Rc::new(memory::region(memory::CELLS));
    cells.reserve(cell::END).map_err(|error| format!("{error:?}"))?;
    open(cells, config::Stored { config, roles, ..config::Stored::default() })?;
    mutate(|state| state.save_config());
    Ok(())
}

/// Opens the state of a canister that was upgraded. The cost does not depend on what is kept.
///
/// # Errors
/// A sentence where anything is not what this code writes: the upgrade is then undone.
pub fn upgrade(arg: Option<CanisterArg>) -> Result<(), String> {
    let cells = Rc::new(memory::region(memory::CELLS));
    if cells.is_empty() {
        return Err("stable memory holds no Coppice; install it anew".into());
    }
    cells.reserve(cell::END).map_err(|error| format!("{error:?}"))?;
    let stored = config::load(&cells)?.ok_or("the settings are missing")?;
    open(cells, stored)?;
    let Some(CanisterArg::Upgrade(Some(change))) = arg else { return Ok(()) };
    mutate(|state| state.set_config("canister_post_upgrade", &change)).map_err(|error| format!("{error:?}"))?;
    Ok(())
}

fn open(cells: Rc<Region>, stored: config::Stored) -> Result<(), String> {
    let config::Stored { config, roles, deletions_stopped, records } = stored;
    config.bound_memory();
    let mut blobs = BlobStore::open()?;
    blobs.set_log_class(config.class());
    let chain = ChainStore::open(Rc::clone(&cells), config.class(), hash_seed())?;
    let utxo = UtxoStore::open(Rc::clone(&cells), hash_seed())?;
    let deletions = DeletionQueue::open(hash_seed())?;
    let mut pruner = Pruner::open(Rc::clone(&cells))?;
    let utxo_pruner = UtxoPruner::open(Rc::clone(&cells))?;
    let exporters = Exporters::open(Rc::clone(&cells))?;
    let audit = AuditLog::open(Rc::clone(&cells))?;
    let history = History::open(Rc::clone(&cells))?;
    pruner.set_behind_since(history.since.of(ProblemCode::PruneBehind).map(|since_ns| since_ns / 1_000_000_000));
    logs::open(Rc::clone(&cells))?;
    let mut state = State {
        cells,
        config,
        roles,
        deletions_stopped,
        records,
        blobs,
        chain,
        utxo,
        deletions,
        pruner,
        utxo_pruner,
        exporters,
        audit,
        history,
    };
    state.bound_feeding();
    STATE.set(Some(state));
    Ok(())
}

/// The seed with which a new hash table hashes: different for each canister and installation.
fn hash_seed() -> u64 {
    xxh3_64_with_seed(platform::canister_self().as_slice(), platform::time_ns())
}

impl State {
    /// Persists settings, roles, and whether deletions are stopped, and has memory bounded by the settings.
    pub fn save_config(&mut self) {
        self.config.bound_memory();
        self.bound_feeding();
        let Self { config, roles, deletions_stopped, records, .. } = &*self;
        let stored = config::Stored {
            config: config.clone(),
            roles: roles.clone(),
            deletions_stopped: *deletions_stopped,
            records: *records,
        };
        if let Err(why) = config::save(&self.cells, &stored) {
            platform::trap(&format!("settings and roles: {why}"));
        }
    }

    /// Bounds feeding by the settings and the policy: the memory of records goes by the chain's target, and only another cap moves the
    /// reserve; the cycles go by the timer's interval.
    fn bound_feeding(&mut self) {
        let cap = self.config.records_cap(self.pruner.policy().map_or(0, |policy| policy.target_bytes));
        if cap != self.records.cap {
            self.records = RecordsCap { cap, billed: memory::records::billed() };
        }
        memory::records::set_limits(cap, self.records.billed);
        let utxo = &self.config.utxo;
        self.deletions.set_limits(Limits {
            rows: utxo.max_deletion_rows,
            dead: utxo.max_dead_blob_deletions,
            leases: utxo.max_leases_per_holder,
            least_retries: utxo.least_retries,
        });
        cycles::set_feed_min(self.config.feed_min(self.pruner.interval_secs()));
    }

    /// What settings and state say of appends by the caller.
    pub fn admission(&self) -> Admission {
        Admission {
            by: platform::caller(),
            upload_expiry_secs: self.config.upload_expiry_secs,
            verify_segments: self.config.verify_segments,
            missing_cycles: cycles::missing_to_feed(),
            exhausted: self.pruner.exhausted(&self.chain, &self.blobs, || self.constraints()),
        }
    }

    /// What stands above the policy.
    pub fn constraints(&self) -> Constraints {
        Constraints {
            exported: self.exporters.guard(self.config.require_export),
            stopped_since: self.deletions_stopped,
            min_liquid_cycles: self.config.min_liquid_cycles,
        }
    }

    /// Returns the blocks that are due.
    pub fn due(&self) -> Option<Due> {
        self.pruner.due(&self.chain, &self.blobs, self.constraints().guard().as_ref())
    }

    /// The pruner of UTXO records, with the stores that it works on.
    pub fn utxo_pruner(&mut self) -> (&mut UtxoPruner, Records<'_>) {
        let Self { utxo, blobs, deletions, config, utxo_pruner, .. } = self;
        (utxo_pruner, Records { utxo, blobs, deletions, settings: &config.utxo })
    }

    /// Goes on with the rollback that is under way: blocks are taken out from the newest on, within the budget of a tick of the pruner.
    /// Answers by how much the head fell.
    fn go_on_rolling_back(&mut self) -> u64 {
        let budget = self.pruner.policy().cloned().unwrap_or_default();
        let mut limiter = Limiter::new(budget.max_ops_per_tick, budget.max_instructions_per_tick);
        let (mut fell, mut faults) = (0, 0);
        while let Some(left) = self.chain.rollback_left() {
            let Ok(ops) = limiter.admit_part(left) else { break };
            let done = self.chain.go_on_rolling_back(&mut self.blobs, ops);
            fell += u64::from(done.began);
            faults += done.faults.len() as u64;
            for fault in &done.faults {
                logs::error(&format!("rollback: skipped: {fault}"));
            }
        }
        if fell > 0 {
            self.exporters.rolled_back(self.chain.state().next);
        }
        self.pruner.rolled_back(&self.chain, &self.blobs, faults);
        fell
    }

    /// One firing of the timer for blocks, and when the next is wanted; `late`: it begins so late that those before it have trapped.
    pub fn tick(&mut self, late: bool) -> Next {
        let next = self.take_turn(late);
        self.count_faults();
        next
    }

    /// Counts and logs what could not be read where an upload was undone.
    fn count_faults(&mut self) {
        let faults = self.chain.take_faults();
        if !faults.is_empty() {
            faults.iter().for_each(|fault| logs::error(&format!("upload: skipped: {fault}")));
            self.pruner.rolled_back(&self.chain, &self.blobs, faults.len() as u64);
        }
    }

    fn take_turn(&mut self, late: bool) -> Next {
        let constraints = self.constraints();
        let next = match self.pruner.turn(late) {
            Turn::All => return self.work(&constraints, u64::MAX),
            Turn::Nothing | Turn::PassOver(_) => return Next::AtOnce,
            Turn::Few(few) => self.work(&constraints, u64::from(few)),
            Turn::Only(piece) if self.next_piece(&constraints) == Some(piece) => self.work(&constraints, 1),
            Turn::Only(_) | Turn::Find => Next::AtOnce,
        };
        let piece = self.next_piece(&constraints);
        self.pruner.ended(piece);
        next
    }

    /// Does what comes next: what was begun before anything is pruned, in a message of its own, whether blocks may be pruned or not.
    fn work(&mut self, constraints: &Constraints, pieces: u64) -> Next {
        match self.first_piece() {
            None | Some(Piece::Block(_) | Piece::Slice(..)) => {
                return self.pruner.tick(&mut self.chain, &mut self.blobs, constraints, pieces);
            }
            Some(Piece::Upload) => self.expire_upload(),
            Some(Piece::Transaction) => self.expire_transaction(),
            Some(Piece::Quarantine) => self.release_quarantined(),
            Some(Piece::Undo) => self.undo(),
        }
        Next::AtOnce
    }

    /// What a tick would do next.
    fn next_piece(&self, constraints: &Constraints) -> Option<Piece> {
        self.first_piece().or_else(|| self.pruner.next_piece(&self.chain, &self.blobs, constraints))
    }

    /// What a tick does before anything is pruned.
    fn first_piece(&self) -> Option<Piece> {
        let (now, expiry) = (platform::time_secs(), self.config.upload_expiry_secs);
        let expired = |touched: Option<u64>| touched.is_some_and(|touched| now.saturating_sub(touched) >= expiry);
        let all = [
            (Piece::Upload, expired(self.chain.upload_touched()) && !self.chain.is_aborting()),
            (Piece::Transaction, expired(self.utxo.uploads.touched())),
            (Piece::Quarantine, self.blobs.has_quarantined()),
            (Piece::Undo, self.chain.is_under_way()),
        ];
        let first = all.into_iter().find(|&(piece, is_there)| is_there && !self.pruner.is_set_aside(piece));
        first.map(|(piece, _)| piece)
    }

    /// When the first of the open uploads expires, in Unix seconds; none that is being undone already, or is passed over.
    pub fn next_expiry(&self) -> Option<u64> {
        let waits = |piece| !self.pruner.is_set_aside(piece);
        let block = self.chain.upload_touched().filter(|_| !self.chain.is_aborting() && waits(Piece::Upload));
        let transaction = self.utxo.uploads.touched().filter(|_| waits(Piece::Transaction));
        let touched = block.into_iter().chain(transaction).min()?;
        Some(touched.saturating_add(self.config.upload_expiry_secs))
    }

    fn expire_upload(&mut self) {
        let expiry = self.config.upload_expiry_secs;
        if let Some(number) = self.chain.expire_upload(&mut self.blobs, platform::time_secs(), expiry) {
            logs::info(&format!("upload of block {number} expired after {expiry} s"));
        }
    }

    fn expire_transaction(&mut self) {
        let expiry = self.config.upload_expiry_secs;
        match self.utxo.uploads.expire(&mut self.blobs, platform::time_secs(), expiry) {
            0 => {}
            expired => logs::info(&format!("{expired} uploads of transactions expired after {expiry} s")),
        }
    }

    /// Normally there is none: a blob is released in the message that frees it, unless its entry is damaged.
    fn release_quarantined(&mut self) {
        let (_, faults) = self.blobs.release_quarantined(MAX_RELEASES);
        faults.iter().for_each(|fault| logs::error(&format!("quarantine: {fault}")));
        self.pruner.rolled_back(&self.chain, &self.blobs, faults.len() as u64);
    }

    /// Slots of the blob store that were written off.
    pub fn lost(&self) -> u64 {
        Class::all().map(|class| u64::from(self.blobs.class_counters(class).lost)).sum()
    }

    /// Goes on with what is under way in the chain: one message's worth of undoing an upload, of rolling back, or of clearing behind a
    /// reset.
    fn undo(&mut self) {
        if self.chain.is_aborting() {
            self.chain.go_on_aborting(&mut self.blobs);
        } else if self.chain.state().rollback_to.is_some() {
            self.go_on_rolling_back();
        } else if self.chain.to_clear() > 0 {
            let faults = self.chain.clear(&mut self.blobs);
            faults.iter().for_each(|fault| logs::error(&format!("reset: skipped: {fault}")));
            self.pruner.rolled_back(&self.chain, &self.blobs, faults.len() as u64);
        }
    }

    /// Where the bytes are.
    pub fn storage(&self) -> StorageStatus {
        let slots = |f: fn(&ClassStorage) -> u64, classes: &[ClassStorage]| -> u64 {
            classes.iter().map(|class| f(class) * u64::from(class.class)).sum()
        };
        let classes: Vec<ClassStorage> = Class::all()
            .map(|class| {
                let counters = self.blobs.class_counters(class);
                let kept: u64 = counters.kept.iter().map(|&kept| u64::from(kept)).sum();
                ClassStorage {
                    class: class.size(),
                    used: kept - u64::from(counters.quarantined),
                    quarantined: u64::from(counters.quarantined),
                    free: u64::from(counters.free),
                    lost: u64::from(counters.lost),
                }
            })
            .collect();
        let regions: Vec<RegionStorage> = memory::NAMES
            .iter()
            .zip(memory::region_pages())
            .map(|(name, pages)| RegionStorage { name: name.to_string(), bytes: pages * WASM_PAGE })
            .collect();
        let arena_bytes = regions[usize::from(memory::BLOB_ARENA)].bytes;
        let chain = self.chain.state();
        StorageStatus {
            billed_bytes: memory::billed_pages() * WASM_PAGE,
            max_bytes: self.config.max_stable_pages * WASM_PAGE,
            arena_bytes,
            used_bytes: slots(|class| class.used, &classes),
            quarantined_bytes: slots(|class| class.quarantined, &classes),
            reusable_bytes: self.blobs.reusable_bytes(),
            payload_bytes: self.chain.payload_bytes(),
            owners: Owner::ALL
                .iter()
                .map(|&owner| OwnerStorage { owner, kept_bytes: self.blobs.kept_bytes(owner) })
                .collect(),
            classes,
            regions,
            index_entries: self.chain.debt(IndexTable::Ids).live(),
            key_entries: self.chain.debt(IndexTable::Keys).live(),
            blocks: if chain.started { chain.blocks() } else { 0 },
            utxo: self.utxo.storage(),
        }
    }
}

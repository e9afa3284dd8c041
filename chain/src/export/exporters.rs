//! Registered exporters: keys, names and acknowledged bounds.
//!
//! Each exporter has a cell of its own, so that an acknowledgement writes the same bytes with one exporter as with a hundred. A new exporter
//! gets the first cell without one, so the cells that were written come first; an upgrade reads these and the next one.

use crate::{ChainStore, places};
use candid::Principal;
use ic_coppice_interface::{AckError, ExportStatus, Exporter, ExporterError, ExporterStatus, RemoveExporter};
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{Ic, NS, Platform as _, Space};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum registered exporters.
pub(super) const MAX_EXPORTERS: usize = 100;
/// Bytes of an exporter's cell. The longest name and the largest numbers take half of it.
const CAPACITY: usize = 320;
/// Maximum characters of a name.
const MAX_NAME: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Number of the cell.
    #[serde(skip)]
    cell: usize,
    /// `None` if the key was revoked: the name and its bound stay, and hold pruning back.
    pub(super) principal: Option<Principal>,
    /// Blocks below this number were acknowledged.
    pub(super) bound: u64,
    acknowledged_at: Option<u64>,
    registered_at: u64,
}

/// Returns the cell of this number. Its value is `None` if it has no exporter any more.
const fn cell(number: usize) -> Cell {
    let header = Header { name: "exporter", magic: *b"CPEX", version: 2 };
    Cell { at: places::EXPORTERS + (number * CAPACITY) as u64, capacity: CAPACITY, header }
}

/// Writes the cell of an exporter: its name, and the entry.
fn save(cells: &Space, name: &str, entry: &Entry) {
    cell(entry.cell).keep(cells, &Some((name, entry)));
}

/// The registered exporters.
pub struct Exporters {
    cells: Rc<Space>,
    /// The number of the first cell that was never written; [`MAX_EXPORTERS`] if there is none.
    unwritten: usize,
    pub(super) by_name: BTreeMap<String, Entry>,
}

impl Exporters {
    /// Reads the cells.
    ///
    /// # Errors
    /// A sentence that names the fault of a cell.
    pub fn open(cells: Rc<Space>) -> Result<Self, String> {
        let (mut unwritten, mut by_name) = (0, BTreeMap::new());
        while unwritten < MAX_EXPORTERS
            && let Some(exporter) = cell(unwritten).load::<Option<(String, Entry)>>(&cells)?
        {
            by_name.extend(exporter.map(|(name, entry)| (name, Entry { cell: unwritten, ..entry })));
            unwritten += 1;
        }
        Ok(Self { cells, unwritten, by_name })
    }

    fn save_all(&self) {
        self.by_name.iter().for_each(|(name, entry)| save(&self.cells, name, entry));
    }

    /// Writes the damaged cells anew that an upgrade reads.
    pub fn rewrite(&self) {
        let read = 0..(self.unwritten + 1).min(MAX_EXPORTERS);
        for number in read.filter(|&number| cell(number).is_damaged(&self.cells, number < self.unwritten)) {
            cell(number).keep(&self.cells, &self.by_name.iter().find(|(_, entry)| entry.cell == number));
        }
    }

    /// Registers an exporter with the oldest kept block as its bound: nothing more is pruned until the exporter acknowledges.
    /// Registering the same exporter again changes nothing. With `may_bind`, a name whose key was revoked gets this key and
    /// keeps its bound.
    ///
    /// # Errors
    /// [`ExporterError`]; nothing has changed.
    pub fn register(&mut self, exporter: &Exporter, oldest: u64, may_bind: bool) -> Result<(), ExporterError> {
        let Exporter { name, principal } = exporter;
        check_name(name)?;
        if *principal == Principal::anonymous() {
            return Err(ExporterError::Anonymous);
        }
        match self.by_name.get(name).map(|known| known.principal) {
            Some(Some(known)) if known == *principal => return Ok(()),
            Some(Some(principal)) => return Err(ExporterError::NameTaken { principal }),
            Some(None) if !may_bind => return Err(ExporterError::Keyless),
            Some(None) | None => {}
        }
        if let Some(name) = self.name_of(*principal) {
            return Err(ExporterError::PrincipalTaken { name: name.into() });
        }
        let principal = Some(*principal);
        let entry = if let Some(keyless) = self.by_name.get(name) {
            Entry { principal, ..keyless.clone() }
        } else {
            let is_free = |number: &usize| self.by_name.values().all(|entry| entry.cell != *number);
            let cell = (0..MAX_EXPORTERS).find(is_free);
            let cell = cell.ok_or(ExporterError::TooMany { limit: MAX_EXPORTERS as u64 })?;
            self.unwritten = self.unwritten.max(cell + 1);
            let registered_at = Ic::now_ns();
            Entry { cell, principal, bound: oldest, acknowledged_at: None, registered_at }
        };
        save(&self.cells, name, &entry);
        self.by_name.insert(name.into(), entry);
        Ok(())
    }

    /// Returns the name under which a principal exports.
    pub fn name_of(&self, principal: Principal) -> Option<&str> {
        let (name, _) = self.by_name.iter().find(|(_, entry)| entry.principal == Some(principal))?;
        Some(name)
    }

    /// Returns the principal of an exporter, `None` if its key was revoked, and its bound.
    pub fn bound_of(&self, name: &str) -> Option<(Option<Principal>, u64)> {
        self.by_name.get(name).map(|entry| (entry.principal, entry.bound))
    }

    /// Returns the names and bounds of the exporters whose key was revoked.
    pub fn keyless(&self) -> impl Iterator<Item = (&str, u64)> {
        let keyless = self.by_name.iter().filter(|(_, entry)| entry.principal.is_none());
        keyless.map(|(name, entry)| (name.as_str(), entry.bound))
    }

    /// Revokes the key of the exporter with this principal, if there is one. The exporter's name and bound stay: a stolen key cannot
    /// acknowledge any more, and the bound still guards the blocks.
    pub fn revoke(&mut self, principal: Principal) {
        let exporter = self.by_name.iter_mut().find(|(_, entry)| entry.principal == Some(principal));
        if let Some((name, entry)) = exporter {
            entry.principal = None;
            save(&self.cells, name, entry);
        }
    }

    /// Removes an exporter and returns its principal. Blocks that only this exporter held back may then be pruned.
    ///
    /// # Errors
    /// `Unknown`; `LastExporter` for the last exporter without `drop_guard`. Nothing has changed.
    pub fn remove(&mut self, which: &RemoveExporter) -> Result<Option<Principal>, ExporterError> {
        let &Entry { principal, cell: number, .. } = self.by_name.get(&which.name).ok_or(ExporterError::Unknown)?;
        if self.by_name.len() == 1 && !which.drop_guard {
            return Err(ExporterError::LastExporter);
        }
        self.by_name.remove(&which.name);
        cell(number).keep(&self.cells, &None::<()>);
        Ok(principal)
    }

    /// Records that `caller` has stored all blocks up to `number`, whose hash is `hash`. Returns the exporter's bound, `number + 1`.
    /// Repeating the call, or acknowledging an older block, changes nothing.
    ///
    /// # Errors
    /// [`AckError`]; nothing has changed.
    pub fn acknowledge(
        &mut self,
        chain: &ChainStore,
        caller: Principal,
        number: u64,
        hash: &[u8],
    ) -> Result<u64, AckError> {
        let exporter = self.by_name.iter_mut().find(|(_, entry)| entry.principal == Some(caller));
        let (name, entry) = exporter.ok_or_else(|| AckError::NotRegistered {
            why: format!("{caller} is not a registered exporter; an operator can call register_exporter"),
        })?;
        let head = chain.state().head();
        if head.is_none_or(|head| number > head) {
            return Err(AckError::AboveHead { head });
        }
        // A pruned block was acknowledged before or never existed. There is no hash to compare with, and nothing changes.
        if number < chain.state().oldest {
            return Ok(entry.bound.max(chain.state().oldest));
        }
        let kept =
            chain.hash(number).ok_or_else(|| AckError::Corrupt { why: format!("the header of block {number}") })?;
        if kept.as_slice() != hash {
            return Err(AckError::WrongHash { expected: kept.to_bytes() });
        }
        if number >= entry.bound {
            entry.bound = number + 1;
            entry.acknowledged_at = Some(Ic::now_ns());
            save(&self.cells, name, entry);
        }
        Ok(entry.bound)
    }

    /// Lowers bounds to `next` after blocks from `next` on were rolled back, because no exporter has acknowledged their replacements.
    pub fn rolled_back(&mut self, next: u64) {
        if self.by_name.values().any(|entry| entry.bound > next) {
            self.by_name.values_mut().for_each(|entry| entry.bound = entry.bound.min(next));
            self.save_all();
        }
    }

    /// Sets all bounds to 0 after the chain was emptied.
    pub fn reset(&mut self) {
        self.by_name.values_mut().for_each(|entry| entry.bound = 0);
        self.save_all();
    }

    /// Returns the name and the bound of the slowest exporter, if it has not acknowledged all blocks below `next`.
    pub fn lagging(&self, next: u64) -> Option<(&str, u64)> {
        let (name, entry) = self.by_name.iter().min_by_key(|(_, entry)| entry.bound)?;
        (entry.bound < next).then_some((name, entry.bound))
    }

    /// Returns whether no exporter is registered.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the progress of each exporter.
    pub fn status(&self, chain: &ChainStore, require_export: bool) -> ExportStatus {
        let state = chain.state();
        let now = Ic::now_secs();
        let exporters = self.by_name.iter().map(|(name, entry)| {
            // An exporter that was registered before the first block begins with that block.
            let bound = entry.bound.max(state.oldest);
            let waits = state.started && bound < state.next;
            // Not by the blocks' timestamps, which the chain sets and which may be arbitrary.
            let since = entry.acknowledged_at.unwrap_or(entry.registered_at) / NS;
            ExporterStatus {
                name: name.clone(),
                principal: entry.principal,
                exported_before_block: bound,
                lag_blocks: state.next.saturating_sub(bound),
                lag_secs: if waits { now.saturating_sub(since) } else { 0 },
                acknowledged_at_ns: entry.acknowledged_at,
                registered_at_ns: entry.registered_at,
            }
        });
        ExportStatus {
            exporters: exporters.collect(),
            exported_before_block: self.guard(require_export).map(|guard| guard.before.max(state.oldest)),
            require_export,
            head: state.head(),
        }
    }
}

fn check_name(name: &str) -> Result<(), ExporterError> {
    let bad = |why: &str| Err(ExporterError::BadName { why: why.into() });
    if name.is_empty() || name.len() > MAX_NAME {
        return bad("a name has 1 to 32 characters");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return bad("a name consists of A-Z a-z 0-9 . _ -");
    }
    Ok(())
}

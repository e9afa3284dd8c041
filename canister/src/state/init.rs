//! Opening of the state: at installation, and after an upgrade.

use super::clock::Clock;
use super::{STATE, State, key, mutate, read, records};
use crate::logs::audit::AuditLog;
use crate::logs::history::History;
use crate::settings::config;
use crate::settings::roles::Roles;
use crate::{logs, memory, places, platform};
use ic_coppice_chain::ChainStore;
use ic_coppice_chain::export::Exporters;
use ic_coppice_chain::pruning::Pruner;
use ic_coppice_interface::{ConfigChange, Grant, InitArg, ProblemCode, Role};
use ic_coppice_storage::Space;
use ic_coppice_storage::blob::BlobStore;
use std::mem::replace;
use std::rc::Rc;

/// Creates the state of a new canister.
///
/// # Errors
/// A sentence: the argument is wrong, or memory was refused.
pub fn init(arg: &InitArg) -> Result<(), String> {
    let config = config::new(arg).map_err(|error| error.to_string())?;
    let mut roles = Roles::default();
    let admins = arg.admins.clone().unwrap_or_default();
    let grants = [(&arg.operators, Role::Operator), (&arg.producers, Role::Producer), (&admins, Role::Admin)];
    for (principals, role) in grants {
        for &principal in principals {
            roles.grant(Grant { principal, role }).map_err(|error| format!("{role:?} {principal}: {error}"))?;
        }
    }
    let cells = Rc::new(memory::space(places::CELLS)?);
    if !cells.is_empty() {
        return Err("stable memory contains a chain already; an upgrade opens it".into());
    }
    cells.reserve(places::END).map_err(|error| error.to_string())?;
    cells.write_header(0, &places::HEADER);
    open(cells, config::Stored { config, roles, ..config::Stored::default() })?;
    mutate(|state| {
        state.save_config();
        if let Some(key) = platform::preset_hash_key() {
            state.set_key(key);
        }
    });
    Ok(())
}

/// Opens the state after an upgrade. The cost does not depend on the amount of data.
///
/// # Errors
/// A sentence: the argument is wrong, or a cell was not written by this code. The upgrade is then undone.
pub fn upgrade(change: Option<&ConfigChange>) -> Result<(), String> {
    let cells = Rc::new(memory::space(places::CELLS)?);
    if cells.is_empty() {
        return Err("stable memory contains no Coppice data; reinstall the canister".into());
    }
    cells.check_header(0, &places::HEADER)?;
    let mut stored: config::Stored = config::CELL.load(&cells)?.ok_or("the settings are missing")?;
    let utxo = config::utxo_settings(stored.config.utxo.clone());
    let is_other_build = replace(&mut stored.config.utxo, utxo.clone()) != utxo;
    open(cells, stored)?;
    if is_other_build {
        mutate(State::save_config);
    }
    read(|state| platform::set_certified_data(&state.chain.state().certified));
    let Some(change) = change else { return Ok(()) };
    mutate(|state| state.set_config("canister_post_upgrade", change)).map_err(|error| error.to_string())?;
    Ok(())
}

fn open(cells: Rc<Space>, stored: config::Stored) -> Result<(), String> {
    let config::Stored { config, roles, deletions_stopped, records: records_cap } = stored;
    let arena = memory::arena()?;
    memory::bound(&arena, &config);
    let mut pruner = Pruner::open(Rc::clone(&cells))?;
    let history = History::open(Rc::clone(&cells))?;
    pruner.behind_since_secs = history.since(ProblemCode::PruneBehind).map(|since_ns| since_ns / 1_000_000_000);
    logs::open(Rc::clone(&cells))?;
    let key = key::load(&cells)?;
    let state = State {
        roles,
        deletions_stopped,
        records_cap,
        blobs: BlobStore::open(arena.clone()),
        chain: ChainStore::open(&arena, Rc::clone(&cells), config::class(&config), key.clone())?,
        records: records::open(&arena, &cells, &key)?,
        pruner,
        exporters: Exporters::open(Rc::clone(&cells))?,
        audit: AuditLog::open(Rc::clone(&cells))?,
        history,
        clock: Clock::stopped(),
        cells,
        key,
        config,
    };
    STATE.with_borrow_mut(|opened| opened.insert(state).bound_feeding());
    Ok(())
}

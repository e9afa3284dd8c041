//! Coppice: a canister that keeps a chain's blocks, receipts and index in stable memory, and prunes them without growing.
//!
//! The crate joins three others: `coppice_chain` keeps the blocks, `coppice_records` the UTXO records, `coppice_storage` the memory of both.
//!
//! | module | holds |
//! |---|---|
//! | [`api`] | access control, Candid encoding, endpoints, HTTP |
//! | [`operation`] | timers, samples, health |
//! | [`state`] | all that is persisted, opened once; what joins blocks and records |
//! | [`logs`], [`settings`] | the log, the audit log, the history; settings and roles |
//! | [`memory`], [`places`] | the one address space, and the places of the canister's own data in it |
//! | [`platform`] | calls of the Internet Computer that `coppice_storage` does not make, with a native twin |

pub mod api;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(test)]
mod layouts;
pub mod logs;
#[cfg(test)]
mod machine;
pub mod memory;
pub mod operation;
#[cfg(test)]
mod persisted;
pub mod places;
pub mod platform;
pub mod settings;
#[cfg(test)]
mod shared;
pub mod state;

use api::{access, wire};
use coppice_interface::CanisterArg;
use ic_cdk::{init, inspect_message, post_upgrade, pre_upgrade};
use operation::daemon;

#[init(decode_with = "wire::canister_arg::of_init")]
fn init(arg: Option<CanisterArg>) {
    state::init(arg).unwrap_or_else(|why| platform::trap(&format!("install: {why}")));
    state::mutate(daemon::start);
}

#[pre_upgrade]
fn pre_upgrade() {
    state::mutate(state::State::rewrite);
}

#[post_upgrade(decode_with = "wire::canister_arg::of_upgrade")]
fn post_upgrade(arg: Option<CanisterArg>) {
    state::upgrade(arg).unwrap_or_else(|why| platform::trap(&format!("upgrade: {why}")));
    state::mutate(daemon::start);
}

/// Filters each ingress message before it costs anything.
#[inspect_message]
fn inspect() {
    access::inspect().unwrap_or_else(|why| platform::trap(&why));
    platform::accept_message();
}

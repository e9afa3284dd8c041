//! Coppice: a canister that keeps a chain's blocks, receipts and index in stable memory, and prunes them without growing.
//!
//! Layers, highest first. A module imports only its own layer and lower ones; `tests/source` checks this.
//!
//! | layer | modules |
//! |---|---|
//! | 8 | `api`: access control, Candid encoding, endpoints, HTTP |
//! | 7 | `operation`: timers, samples, health |
//! | 6 | `state`: all that is persisted, opened once |
//! | 5 | `pruning`: of blocks, of UTXO records |
//! | 4 | `apply`: kept blocks to UTXO records; `export`: exporters and their pages; `external`: records whose data lies outside the canister |
//! | 3 | `chain`, `utxo`, `deletion`: three independent stores |
//! | 2 | `logs`, `settings` |
//! | 1 | `storage`: spaces, blobs, tables, slots |
//! | 0 | `platform`: all calls of the Internet Computer, with a native twin; `sha256`, `text` |

pub mod api;
mod apply;
#[cfg(feature = "bench")]
pub mod bench;
pub mod chain;
pub mod deletion;
pub mod export;
pub mod external;
#[cfg(test)]
mod layouts;
pub mod logs;
#[cfg(test)]
mod machine;
pub mod operation;
#[cfg(test)]
mod persisted;
pub mod platform;
pub mod pruning;
pub mod settings;
pub mod sha256;
pub mod state;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod text;
pub mod utxo;

use api::{access, wire};
use coppice_interface::CanisterArg;
use ic_cdk::{init, inspect_message, post_upgrade, pre_upgrade};
use operation::daemon;

#[init(decode_with = "wire::canister_arg::of_init")]
fn init(arg: Option<CanisterArg>) {
    state::init(arg).unwrap_or_else(|why| platform::trap(&format!("install: {why}")));
    state::mutate(daemon::arm);
}

#[pre_upgrade]
fn pre_upgrade() {
    state::mutate(state::State::rewrite);
}

#[post_upgrade(decode_with = "wire::canister_arg::of_upgrade")]
fn post_upgrade(arg: Option<CanisterArg>) {
    state::upgrade(arg).unwrap_or_else(|why| platform::trap(&format!("upgrade: {why}")));
    state::mutate(|state| {
        daemon::arm(state);
        daemon::arm_records(state);
        daemon::arm_deletions(state);
    });
}

/// Filters each ingress message before it costs anything.
#[inspect_message]
fn inspect() {
    access::inspect().unwrap_or_else(|why| platform::trap(&why));
    platform::accept_message();
}

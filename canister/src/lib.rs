//! Coppice: an Internet Computer canister that keeps a chain's blocks, receipts and index in stable memory, and prunes
//! them for ever without growing.
//!
//! Layers, the highest first; a module imports lower layers and its own, which `tests/source` checks:
//!
//! | layer | modules |
//! |---|---|
//! | 8 | `api`: access control, Candid encoding, endpoints, HTTP |
//! | 7 | `operation`: timers, samples, health |
//! | 6 | `state`: all that is persisted, opened once |
//! | 5 | `pruning`: of blocks, of UTXO records |
//! | 4 | `export`: exporters and their pages |
//! | 3 | `chain`, `utxo`, `deletion`: three stores that do not know each other |
//! | 2 | `logs`, `settings` |
//! | 1 | `storage`: regions, blobs, tables, slots |
//! | 0 | `platform`: each call of the Internet Computer, with a native twin; `text` |

pub mod api;
pub mod chain;
pub mod deletion;
pub mod export;
pub mod logs;
#[cfg(test)]
mod machine;
pub mod operation;
#[cfg(test)]
mod persisted;
pub mod platform;
pub mod pruning;
pub mod settings;
pub mod state;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod text;
pub mod utxo;

#[cfg(feature = "bench")]
pub mod bench;

use api::{access, http, wire};
use coppice_interface::CanisterArg;
use ic_cdk::{init, inspect_message, post_upgrade};
use operation::daemon;

#[init]
fn init(arg: Option<CanisterArg>) {
    state::init(arg).unwrap_or_else(|why| platform::trap(&format!("install: {why}")));
    http::certify();
    daemon::arm();
}

#[post_upgrade(decode_with = "wire::decode_canister_arg")]
fn post_upgrade(arg: Option<CanisterArg>) {
    state::upgrade(arg).unwrap_or_else(|why| platform::trap(&format!("upgrade: {why}")));
    http::certify();
    daemon::arm();
    daemon::arm_records();
    daemon::arm_deletions();
}

/// The door: asked of each message from outside, before it costs anything.
#[inspect_message]
fn inspect() {
    access::inspect().unwrap_or_else(|why| platform::trap(&why));
    platform::accept_message();
}
/// The interface, as a custom section of the wasm that anyone may read.
#[cfg(target_family = "wasm")]
#[used]
#[unsafe(link_section = "icp:public candid:service")]
static CANDID_SERVICE: [u8; CANDID.len()] = *CANDID;
#[cfg(target_family = "wasm")]
const CANDID: &[u8; include_bytes!("../../candid/coppice.did").len()] = include_bytes!("../../candid/coppice.did");

// The endpoints of the bench are no part of the interface.
#[cfg(all(test, not(feature = "bench")))]
mod tests {
    use candid_parser::utils::{CandidSource, service_equal};
    use coppice_interface::*;
    use serde_bytes::ByteBuf;

    candid::export_service!();

    /// The interface is written by hand, and is the code's. What the code's is, this says where they differ.
    #[test]
    fn the_candid_file_is_the_interface() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../candid/coppice.did");
        let code = __export_service();
        let file = std::fs::read_to_string(path).unwrap();
        let compare = |file: &str| service_equal(CandidSource::Text(&code), CandidSource::Text(file));
        if let Err(why) = compare(&file) {
            panic!("{why}\n\n{code}");
        }
        // The comparison sees another type, a field that is gone, and another kind of call.
        for (from, to) in [
            ("  timestamp : nat64;", "  timestamp : nat32;"),
            ("  keys : nat32;\n", ""),
            ("  health : () -> (Health) query;", "  health : () -> (Health);"),
        ] {
            assert!(file.contains(from), "nothing to plant in: {from}");
            assert!(compare(&file.replacen(from, to, 1)).is_err(), "{from}");
        }
    }
}

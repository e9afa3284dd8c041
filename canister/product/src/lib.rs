//! The Coppice canister: the library `ic_coppice` with all its methods.

use ic_cdk::{init, inspect_message, post_upgrade, pre_upgrade};
use ic_coppice::{Coppice, Inspected, canister_arg};
use ic_coppice_interface::{ConfigChange, InitArg};

#[cfg(not(feature = "records"))]
ic_coppice::export!(producers, readers, operators);
#[cfg(feature = "records")]
ic_coppice::export!(producers, readers, operators, records);

#[cfg(not(feature = "records"))]
ic_coppice::service!(include_bytes!("../../../candid/blocks.did"));
#[cfg(feature = "records")]
ic_coppice::service!(include_bytes!("../../../candid/coppice.did"));

/// The commit of a release. `scripts/release` alone sets it, so that a commit does not change the hash of every build.
#[cfg(target_family = "wasm")]
const COMMIT: &str = match option_env!("COPPICE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Public metadata of the module, which tools of the platform read.
#[cfg(target_family = "wasm")]
#[used]
#[unsafe(link_section = "icp:public git_commit_id")]
static GIT_COMMIT_ID: [u8; COMMIT.len()] = {
    let mut bytes = [0; COMMIT.len()];
    bytes.copy_from_slice(COMMIT.as_bytes());
    bytes
};

#[init(decode_with = "canister_arg::of_init")]
fn init(arg: InitArg) {
    Coppice::init(&arg).unwrap_or_else(|why| ic_cdk::trap(format!("install: {why}")));
}

#[pre_upgrade]
fn pre_upgrade() {
    Coppice::pre_upgrade();
}

#[post_upgrade(decode_with = "canister_arg::of_upgrade")]
fn post_upgrade(change: Option<ConfigChange>) {
    Coppice::post_upgrade(change.as_ref()).unwrap_or_else(|why| ic_cdk::trap(format!("upgrade: {why}")));
}

/// Filters each ingress message before it costs anything.
#[inspect_message]
fn inspect_message() {
    match Coppice::inspect(coppice_methods()) {
        Inspected::Accepted => ic_cdk::api::accept_message(),
        Inspected::Refused(why) => ic_cdk::trap(why),
        Inspected::NotMine => {
            ic_cdk::trap(format!("access denied: there is no method {}", ic_cdk::api::msg_method_name()))
        }
    }
}

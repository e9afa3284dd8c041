//! Endpoints, one file per area, and the calls of them: a call checks the caller, decodes the argument, calls the endpoint and encodes the
//! reply. A canister exports the calls that it has ([`export!`](crate::export)).
//!
//! The interface crate declares and documents the methods.
#![allow(missing_docs)]

pub mod blocks;
#[cfg(feature = "records")]
pub mod deletion;
pub mod export;
pub mod http;
pub mod operation;
pub mod prune;
#[cfg(feature = "records")]
pub mod records;
#[cfg(feature = "records")]
pub mod utxo;

// `calls!` checks the caller with the function that has the name of the method's kind.
use super::access::{admit as update, admit_reader as query};
use super::wire;
use crate::operation::daemon;
use crate::platform;
use crate::state::{State, mutate};
use candid::CandidType;
#[cfg(feature = "records")]
use candid::Principal;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// Serves a call whose caller was admitted or refused.
fn serve<A, R: CandidType>(
    admitted: Result<(), String>,
    decode: fn(&[u8]) -> Result<A, String>,
    reply: &[u8],
    run: impl FnOnce(A) -> R,
) {
    let args = admitted.and_then(|()| decode(&platform::argument()));
    platform::answer(args.map(|args| wire::answer(reply, run(args))));
}

/// Runs a message that may make work due, then arms the daemon.
fn arming<T>(run: impl FnOnce(&mut State) -> T) -> T {
    mutate(|state| {
        let done = run(state);
        daemon::arm(state);
        done
    })
}

/// As [`arming`], for a message that may make blocks due or free them to be pruned.
fn arming_work<T>(run: impl FnOnce(&mut State) -> T) -> T {
    mutate(|state| {
        let done = run(state);
        daemon::arm_work(state);
        done
    })
}

macro_rules! calls {
    ($($area:ident { $($methods:tt)* })*) => { $(calls!(@area $area { $($methods)* });)* };
    (@area utxo $methods:tt) => { #[cfg(feature = "records")] calls! { @all utxo $methods } };
    (@area records $methods:tt) => { #[cfg(feature = "records")] calls! { @all records $methods } };
    (@area deletion $methods:tt) => { #[cfg(feature = "records")] calls! { @all deletion $methods } };
    (@area $area:ident $methods:tt) => { calls! { @all $area $methods } };
    (@all $area:ident {
        $($(#[doc = $doc:literal])* $kind:ident $name:ident($($arg:ident: $type:ty),*) -> $answer:ty $(, or $error:ty)?: $roles:ident, $largest:expr;)*
    }) => {
        $(pub fn $name() {
            let run = |($($arg,)*): ($($type,)*)| -> calls!(@reply $answer $(, $error)?) { super::$area::$name($($arg),*) };
            let admitted = $kind(ic_coppice_interface::access::$roles);
            serve(admitted, calls!(@decode $name), wire::tables::replies::$name, run);
        })*
    };
    (@reply $answer:ty) => { $answer };
    (@reply $answer:ty, $error:ty) => { Result<$answer, $error> };
    // Methods that are called for each block or batch.
    (@decode append_block) => { wire::read_known };
    (@decode append_blocks) => { wire::read_known };
    (@decode append_compressed) => { wire::read_known };
    (@decode utxo_create) => { wire::read_known };
    (@decode utxo_spend) => { wire::read_known };
    (@decode utxo_set_mined) => { wire::read_known };
    // Any caller may send an HTTP request.
    (@decode http_request) => { wire::read_http };
    (@decode $name:ident) => { wire::read };
}

/// The calls, one for each method. Each is the body of an export.
pub mod calls {
    use super::*;

    methods!(calls);
}

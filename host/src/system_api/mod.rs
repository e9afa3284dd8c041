//! The system API: what a canister may import from `ic0`.
//!
//! Every call is counted and charged before it has an effect, is refused in the modes that the interface
//! specification forbids it in, and touches nothing but the running message.

mod calls;
mod canister;
mod cycles;
mod environment;
mod import;
mod message;
mod stable;

use wasmtime::Linker;

use crate::context::Context;

/// Defines every import.
///
/// # Errors
/// When one is defined twice.
pub(crate) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    message::define(linker)?;
    calls::define(linker)?;
    canister::define(linker)?;
    cycles::define(linker)?;
    environment::define(linker)?;
    stable::define(linker)
}

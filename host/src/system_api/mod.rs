//! The system API: the imports from `ic0`.
//!
//! Every call is counted and charged before it has an effect, is refused in the modes in which the interface specification forbids it, and
//! affects only the running message.

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
/// When an import is defined twice.
pub(crate) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    message::define(linker)?;
    calls::define(linker)?;
    canister::define(linker)?;
    cycles::define(linker)?;
    environment::define(linker)?;
    stable::define(linker)
}

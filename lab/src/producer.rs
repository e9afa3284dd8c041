//! `coppice-lab serve --producer`: a canister of the user's own, which feeds an empty Coppice on the same host.

use crate::embedded::Embedded;
use anyhow::{Context, Result, anyhow};
use candid::{Encode, Principal};
use coppice::client::{Client, Wait};
use coppice_interface::{Grant, Role};
use std::path::Path;

/// Cycles of the producer, besides the host's.
const CYCLES: u128 = 1_000_000_000_000_000;

/// Installs a canister from a wasm file, gives it the role of a producer, and returns its principal. Its argument is the principal of Coppice;
/// `controllers` control it.
///
/// # Errors
/// When the file cannot be read, or its module cannot be installed with that argument.
pub fn install(client: &Client<Embedded>, wasm: &Path, controllers: &[Principal]) -> Result<Principal> {
    let module = std::fs::read(wasm).with_context(|| format!("cannot read {}", wasm.display()))?;
    let host = client.transport().share();
    let producer = host.create_canister();
    host.add_cycles(producer, CYCLES);
    host.try_install_canister(producer, module, Encode!(&client.transport().canister())?, None)
        .map_err(|reject| anyhow!("{}: {}", wasm.display(), reject.reject_message))?;
    let set = host.set_controllers(producer, None, controllers.to_vec());
    set.map_err(|reject| anyhow!("its controllers: {}", reject.reject_message))?;
    client.grant_role(&Grant { principal: producer, role: Role::Producer }).done()?;
    Ok(producer)
}

//! The subnet, and the environment variables from the canister's settings.

use std::collections::BTreeMap;

use wasmtime::Linker;

use super::import::{ALL, NOT_START, bytes_import, imports, text};
use crate::context::{Context, Run};
use crate::cost::SYSTEM_CALL;
use crate::trap::Trap;

/// Nodes of the subnet; all prices depend on it.
const NODES: u32 = 13;

fn name_of(run: &Run, index: u32) -> Result<&[u8], Trap> {
    let mut names = run.environment.settings.variables.keys();
    let name = names.nth(index as usize).map(String::as_bytes);
    name.ok_or_else(|| Trap::Contract(format!("there is no environment variable {index}")))
}

fn value_of<'a>(variables: &'a BTreeMap<String, String>, name: &[u8]) -> Result<&'a [u8], Trap> {
    let name = text("env_var_value", name)?;
    let value = variables.get(name).map(String::as_bytes);
    value.ok_or_else(|| Trap::Contract(format!("there is no environment variable '{name}'")))
}

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    bytes_import(linker, "subnet_self", NOT_START, |run| run.environment.keys.subnet_id().as_slice())?;
    bytes_import(linker, "root_key", NOT_START, |run| run.environment.keys.root_key())?;
    imports! { linker, call;
        [NOT_START, SYSTEM_CALL] subnet_self_node_count() -> u32 { Ok(NODES) }
        [ALL, SYSTEM_CALL] env_var_count() -> u32 { Ok(call.run().environment.settings.variables.len() as u32) }
        [ALL, SYSTEM_CALL] env_var_name_size(index: u32) -> u32 { Ok(name_of(call.run(), index)?.len() as u32) }
        [ALL, SYSTEM_CALL + u64::from(size)]
        env_var_name_copy(index: u32, target: u32, offset: u32, size: u32) -> () {
            call.copy_out(target, offset, size, |run| name_of(run, index))
        }
        [ALL, SYSTEM_CALL + u64::from(size)] env_var_name_exists(source: u32, size: u32) -> u32 {
            let (name, run) = call.read_text(source, size)?;
            Ok(u32::from(run.environment.settings.variables.contains_key(name)))
        }
        [ALL, SYSTEM_CALL + u64::from(size)] env_var_value_size(source: u32, size: u32) -> u32 {
            let (name, run) = call.read(source, size)?;
            Ok(value_of(&run.environment.settings.variables, name)?.len() as u32)
        }
        [ALL, SYSTEM_CALL + u64::from(name_size) + u64::from(size)]
        env_var_value_copy(source: u32, name_size: u32, target: u32, offset: u32, size: u32) -> () {
            let name = call.read(source, name_size)?.0.to_vec();
            call.copy_out(target, offset, size, |run| value_of(&run.environment.settings.variables, &name))
        }
    }
    Ok(())
}

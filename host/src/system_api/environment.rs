//! The subnet, and the environment variables of the canister's settings.

use std::collections::BTreeMap;

use wasmtime::Linker;

use super::import::{ALL, NOT_START, bytes_import, copy_out, heap_range, import, parts, text};
use crate::context::Context;
use crate::cost::SYSTEM_CALL;
use crate::trap::Trap;

/// The principal of the only subnet there is.
const SUBNET: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 7, 1, 2];
/// Nodes of the subnet, on which all prices depend.
const NODES: u32 = 13;
/// No threshold key exists here, so the root key is a constant of the right length.
const ROOT_KEY: [u8; 133] = [7; 133];

fn name_of(variables: &BTreeMap<String, String>, index: u32) -> Result<&[u8], Trap> {
    variables
        .keys()
        .nth(index as usize)
        .map(String::as_bytes)
        .ok_or_else(|| Trap::Contract(format!("there is no environment variable {index}")))
}

fn value_of<'a>(variables: &'a BTreeMap<String, String>, name: &[u8]) -> Result<&'a [u8], Trap> {
    let name = text("ic0.env_var_value", name)?;
    variables
        .get(name)
        .map(String::as_bytes)
        .ok_or_else(|| Trap::Contract(format!("there is no environment variable '{name}'")))
}

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    bytes_import!(linker, "subnet_self", NOT_START, |_run| &SUBNET);
    bytes_import!(linker, "root_key", NOT_START, |_run| &ROOT_KEY);
    import!(linker, "subnet_self_node_count", NOT_START, SYSTEM_CALL, |_caller| -> u32 { Ok(NODES) });
    import!(linker, "env_var_count", ALL, SYSTEM_CALL, |caller| -> u32 {
        Ok(caller.data_mut().run().environment.variables.len() as u32)
    });
    import!(linker, "env_var_name_size", ALL, SYSTEM_CALL, |caller, index: u32| -> u32 {
        Ok(name_of(&caller.data_mut().run().environment.variables, index)?.len() as u32)
    });
    import!(linker, "env_var_name_copy", ALL, SYSTEM_CALL + u64::from(size), |caller,
                                                                              index: u32,
                                                                              target: u32,
                                                                              offset: u32,
                                                                              size: u32|
     -> () {
        let (heap, run) = parts(&mut caller)?;
        let name = name_of(&run.environment.variables, index)?;
        copy_out("ic0.env_var_name_copy", heap, target, name, offset, size)
    });
    import!(linker, "env_var_name_exists", ALL, SYSTEM_CALL + u64::from(size), |caller,
                                                                                source: u32,
                                                                                size: u32|
     -> u32 {
        let (heap, run) = parts(&mut caller)?;
        let name = text("ic0.env_var_name_exists", heap_range("ic0.env_var_name_exists", heap, source, size)?)?;
        Ok(u32::from(run.environment.variables.contains_key(name)))
    });
    import!(linker, "env_var_value_size", ALL, SYSTEM_CALL + u64::from(size), |caller,
                                                                               source: u32,
                                                                               size: u32|
     -> u32 {
        let (heap, run) = parts(&mut caller)?;
        let name = heap_range("ic0.env_var_value_size", heap, source, size)?;
        Ok(value_of(&run.environment.variables, name)?.len() as u32)
    });
    import!(
        linker,
        "env_var_value_copy",
        ALL,
        SYSTEM_CALL + u64::from(name_size) + u64::from(size),
        |caller, source: u32, name_size: u32, target: u32, offset: u32, size: u32| -> () {
            let (heap, run) = parts(&mut caller)?;
            let value =
                value_of(&run.environment.variables, heap_range("ic0.env_var_value_copy", heap, source, name_size)?)?;
            copy_out("ic0.env_var_value_copy", heap, target, value, offset, size)
        }
    );
    Ok(())
}

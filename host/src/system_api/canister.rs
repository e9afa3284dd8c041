//! The canister: who it is, its timer, its certified data, its clock and its instruction counter.

use wasmtime::Linker;

use super::import::{
    ALL, CHANGES, Modes, NOT_START, bytes_import, charge, copy_out, heap_range, import, parts, principal,
};
use crate::context::Context;
use crate::cost::{IS_CONTROLLER, PERFORMANCE_COUNTER, SYSTEM_CALL};
use crate::execution::Kind;
use crate::trap::Trap;

/// Bytes that may be certified.
const MAX_CERTIFIED: u32 = 32;

const QUERY: Modes = Modes::of(&[Kind::Query]);

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    bytes_import!(linker, "canister_self", NOT_START, |run| run.environment.canister.as_slice());
    import!(linker, "canister_status", NOT_START, SYSTEM_CALL, |caller| -> u32 {
        Ok(caller.data_mut().run().environment.status)
    });
    import!(linker, "canister_version", NOT_START, SYSTEM_CALL, |caller| -> u64 {
        Ok(caller.data_mut().run().environment.version)
    });
    import!(linker, "is_controller", NOT_START, IS_CONTROLLER + u64::from(size), |caller,
                                                                                  source: u32,
                                                                                  size: u32|
     -> u32 {
        let (heap, run) = parts(&mut caller)?;
        let who = principal(heap_range("ic0.is_controller", heap, source, size)?)?;
        Ok(u32::from(run.environment.controllers.contains(&who)))
    });
    import!(linker, "time", NOT_START, SYSTEM_CALL, |caller| -> u64 { Ok(caller.data_mut().run().environment.time) });
    import!(linker, "global_timer_set", CHANGES, SYSTEM_CALL, |caller, timestamp: u64| -> u64 {
        Ok(std::mem::replace(&mut caller.data_mut().run().timer, timestamp))
    });
    import!(linker, "performance_counter", ALL, PERFORMANCE_COUNTER, |caller, counter: u32| -> u64 {
        let left = caller.get_fuel()?;
        let run = caller.data_mut().run();
        let used = run.fuel_limit().saturating_sub(left);
        let by = run.planned.counted.max(1);
        match counter {
            0 => Ok(used.saturating_mul(by)),
            1 => Ok((run.input.instructions_before + used).saturating_mul(by)),
            _ => Err(Trap::Contract(format!("Error getting performance counter type {counter}")).into()),
        }
    });
    import!(linker, "in_replicated_execution", ALL, SYSTEM_CALL, |caller| -> u32 {
        Ok(u32::from(!matches!(caller.data_mut().run().kind, Kind::Query | Kind::InspectMessage)))
    });
    import!(linker, "certified_data_set", CHANGES, SYSTEM_CALL + u64::from(size), |caller,
                                                                                   source: u32,
                                                                                   size: u32|
     -> () {
        let (heap, run) = parts(&mut caller)?;
        if size > MAX_CERTIFIED {
            let message = format!(
                "ic0_certified_data_set failed because the passed data must be no larger than \
                    {MAX_CERTIFIED} bytes. Found {size} bytes"
            );
            return Err(Trap::Contract(message).into());
        }
        run.certified_data = heap_range("ic0.certified_data_set", heap, source, size)?.to_vec();
        Ok(())
    });
    import!(linker, "data_certificate_present", NOT_START, SYSTEM_CALL, |caller| -> u32 {
        Ok(u32::from(caller.data_mut().run().environment.certificate.is_some()))
    });
    import!(linker, "data_certificate_size", QUERY, SYSTEM_CALL, |caller| -> u32 {
        Ok(caller.data_mut().run().environment.certificate.as_ref().map_or(0, |bytes| bytes.len() as u32))
    });
    import!(linker, "data_certificate_copy", QUERY, SYSTEM_CALL, |caller, target: u32, offset: u32, size: u32| -> () {
        charge(&mut caller, u64::from(size))?;
        let (heap, run) = parts(&mut caller)?;
        let bytes = run.environment.certificate.as_deref().unwrap_or_default();
        copy_out("ic0.data_certificate_copy", heap, target, bytes, offset, size)
    });
    Ok(())
}

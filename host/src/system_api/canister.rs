//! The canister's principal, timer, certified data, clock and instruction counter.

use wasmtime::Linker;

use super::import::{ALL, CHANGES, Modes, NOT_START, bytes_import, imports};
use crate::context::{Context, Run};
use crate::cost::{IS_CONTROLLER, PERFORMANCE_COUNTER, SYSTEM_CALL};
use crate::execution::Kind;
use crate::trap::Trap;

/// Most bytes of certified data.
const MAX_CERTIFIED: u32 = 32;

const QUERY: Modes = |kind| kind == Kind::Query;

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    bytes_import(linker, "canister_self", NOT_START, |run| run.environment.canister.as_slice())?;
    imports! { linker, call;
        [NOT_START, SYSTEM_CALL] canister_status() -> u32 { Ok(call.run().environment.status) }
        [NOT_START, SYSTEM_CALL] canister_version() -> u64 { Ok(call.run().environment.version) }
        [NOT_START, IS_CONTROLLER + u64::from(size)] is_controller(source: u32, size: u32) -> u32 {
            let who = call.read_principal(source, size)?;
            Ok(u32::from(call.run().environment.settings.controllers.contains(&who)))
        }
        [NOT_START, SYSTEM_CALL] time() -> u64 { Ok(call.run().environment.time) }
        [CHANGES, SYSTEM_CALL] global_timer_set(timestamp: u64) -> u64 {
            Ok(std::mem::replace(&mut call.run().timer, timestamp))
        }
        [ALL, PERFORMANCE_COUNTER] performance_counter(counter: u32) -> u64 {
            let left = call.fuel()?;
            let run = call.run();
            let used = run.fuel_limit().saturating_sub(left);
            let by = run.planned.counted.max(1);
            match counter {
                0 => Ok(used.saturating_mul(by)),
                1 => Ok((run.input.instructions_before + used).saturating_mul(by)),
                _ => Err(Trap::Contract(format!("Error getting performance counter type {counter}")).into()),
            }
        }
        [ALL, SYSTEM_CALL] in_replicated_execution() -> u32 {
            Ok(u32::from(!matches!(call.run().kind, Kind::Query | Kind::InspectMessage)))
        }
        [CHANGES, SYSTEM_CALL + u64::from(size)] certified_data_set(source: u32, size: u32) -> () {
            if size > MAX_CERTIFIED {
                let message = format!(
                    "ic0_certified_data_set failed because the passed data must be no larger than {MAX_CERTIFIED} \
                     bytes. Found {size} bytes"
                );
                return Err(Trap::Contract(message).into());
            }
            let (data, run) = call.read(source, size)?;
            run.certified_data = data.to_vec();
            Ok(())
        }
        [NOT_START, SYSTEM_CALL] data_certificate_present() -> u32 {
            Ok(u32::from(call.run().environment.certified_at.is_some()))
        }
        [QUERY, SYSTEM_CALL] data_certificate_size() -> u32 { Ok(call.run().certificate()?.len() as u32) }
        [QUERY, SYSTEM_CALL + u64::from(size)] data_certificate_copy(target: u32, offset: u32, size: u32) -> () {
            call.copy_out(target, offset, size, Run::certificate)
        }
    }
    Ok(())
}

//! Calls to other canisters, and to the canister itself.

use wasmtime::Linker;

use super::import::{CALLS, amount, imports};
use crate::context::{Closure, Context, OutgoingCall, Run};
use crate::cost::{CALL_NEW, CALL_PERFORM, SYSTEM_CALL, sending};
use crate::cycles;
use crate::limits::MAX_PAYLOAD;
use crate::reject::RejectCode;
use crate::trap::Trap;

/// Longest timeout of a best-effort call, in seconds; the platform shortens longer ones.
const MAX_TIMEOUT: u32 = 300;

/// Returns the call under construction.
fn building<'a>(run: &'a mut Run, name: &str) -> Result<&'a mut OutgoingCall, Trap> {
    run.call.as_mut().ok_or_else(|| Trap::Contract(format!("{name} called when no call is under construction")))
}

/// Drops the call under construction and refunds its cycles.
fn drop_call(run: &mut Run) {
    if let Some(call) = run.call.take() {
        run.balance += call.cycles;
    }
}

fn add_cycles(run: &mut Run, name: &str, amount: u128) -> Result<(), Trap> {
    building(run, name)?;
    if amount > run.liquid() {
        return Err(Trap::Contract(format!("{name}: insufficient liquid cycles for {amount}")));
    }
    run.balance -= amount;
    building(run, name)?.cycles += amount;
    Ok(())
}

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    imports! { linker, call;
        [CALLS, CALL_NEW] call_new(
            callee: u32, callee_size: u32, method: u32, method_size: u32, reply: u32, reply_env: u32, reject: u32,
            reject_env: u32
        ) -> () {
            drop_call(call.run());
            let callee = call.read_principal(callee, callee_size)?;
            let (method, run) = call.read_text(method, method_size)?;
            run.call = Some(OutgoingCall {
                callee,
                method: method.to_string(),
                payload: Vec::new(),
                on_reply: Closure { function: reply, env: reply_env },
                on_reject: Closure { function: reject, env: reject_env },
                on_cleanup: None,
                cycles: 0,
                timeout: None,
                prepaid: 0,
            });
            Ok(())
        }
        [CALLS, SYSTEM_CALL] call_on_cleanup(function: u32, env: u32) -> () {
            let built = building(call.run(), "ic0.call_on_cleanup")?;
            if built.on_cleanup.replace(Closure { function, env }).is_some() {
                let message =
                    "ic0.call_on_cleanup can be called at most once between `ic0.call_new` and `ic0.call_perform`";
                return Err(Trap::Contract(message.into()).into());
            }
            Ok(())
        }
        [CALLS, sending(size)] call_data_append(source: u32, size: u32) -> () {
            let (bytes, run) = call.read(source, size)?;
            let built = building(run, "ic0.call_data_append")?;
            if built.payload.len() + bytes.len() > MAX_PAYLOAD {
                let message = format!(
                    "ic0.call_data_append: request to {}:{} has a payload larger than {MAX_PAYLOAD}",
                    built.callee, built.method
                );
                return Err(Trap::Contract(message).into());
            }
            built.payload.extend_from_slice(bytes);
            Ok(())
        }
        [CALLS, SYSTEM_CALL] call_with_best_effort_response(timeout_seconds: u32) -> () {
            let built = building(call.run(), "ic0.call_with_best_effort_response")?;
            if built.timeout.replace(timeout_seconds.min(MAX_TIMEOUT)).is_some() {
                return Err(Trap::Contract("ic0.call_with_best_effort_response called twice".into()).into());
            }
            Ok(())
        }
        [CALLS, SYSTEM_CALL] call_cycles_add(low: u64) -> () {
            Ok(add_cycles(call.run(), "ic0.call_cycles_add", amount(0, low))?)
        }
        [CALLS, SYSTEM_CALL] call_cycles_add128(high: u64, low: u64) -> () {
            Ok(add_cycles(call.run(), "ic0.call_cycles_add128", amount(high, low))?)
        }
        [CALLS, CALL_PERFORM] call_perform() -> u32 {
            let run = call.run();
            let built = building(run, "ic0.call_perform")?;
            let size = (built.payload.len() + built.method.len()) as u64;
            let price = cycles::call(size, run.environment.callback_instructions);
            if run.liquid() < price {
                drop_call(run);
                return Ok(RejectCode::SysTransient as u32);
            }
            run.balance -= price;
            if let Some(mut built) = run.call.take() {
                built.prepaid = price - cycles::CALL - cycles::CALL_BYTE * u128::from(size);
                run.calls.push(built);
            }
            Ok(0)
        }
    }
    Ok(())
}

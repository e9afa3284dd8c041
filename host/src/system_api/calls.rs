//! Calls to other canisters, and to oneself.

use wasmtime::Linker;

use super::import::{CALLS, amount, heap_range, import, parts, principal, text};
use crate::context::{Closure, Context, OutgoingCall, Run};
use crate::cost::{CALL_NEW, CALL_PERFORM, SYSTEM_CALL, sending};
use crate::cycles;
use crate::limits::MAX_PAYLOAD;
use crate::reject::RejectCode;
use crate::trap::Trap;

/// Seconds to which the platform shortens every best-effort timeout.
const MAX_TIMEOUT: u32 = 300;

/// The call that is being built.
fn building<'a>(run: &'a mut Run, name: &str) -> Result<&'a mut OutgoingCall, Trap> {
    run.call.as_mut().ok_or_else(|| Trap::Contract(format!("{name} called when no call is under construction")))
}

/// Gives back what the call being built would have carried.
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
    import!(linker, "call_new", CALLS, CALL_NEW, |caller,
                                                  callee: u32,
                                                  callee_size: u32,
                                                  method: u32,
                                                  method_size: u32,
                                                  reply: u32,
                                                  reply_env: u32,
                                                  reject: u32,
                                                  reject_env: u32|
     -> () {
        let (heap, run) = parts(&mut caller)?;
        drop_call(run);
        let callee = principal(heap_range("ic0.call_new", heap, callee, callee_size)?)?;
        let method = text("ic0.call_new", heap_range("ic0.call_new", heap, method, method_size)?)?.to_string();
        run.call = Some(OutgoingCall {
            callee,
            method,
            payload: Vec::new(),
            on_reply: Closure { function: reply, env: reply_env },
            on_reject: Closure { function: reject, env: reject_env },
            on_cleanup: None,
            cycles: 0,
            timeout: None,
            prepaid: 0,
        });
        Ok(())
    });
    import!(linker, "call_on_cleanup", CALLS, SYSTEM_CALL, |caller, function: u32, env: u32| -> () {
        let call = building(caller.data_mut().run(), "ic0.call_on_cleanup")?;
        if call.on_cleanup.replace(Closure { function, env }).is_some() {
            return Err(Trap::Contract(
                "ic0.call_on_cleanup can be called at most once between `ic0.call_new` and \
                `ic0.call_perform`"
                    .into(),
            )
            .into());
        }
        Ok(())
    });
    import!(linker, "call_data_append", CALLS, sending(size), |caller, source: u32, size: u32| -> () {
        let (heap, run) = parts(&mut caller)?;
        let bytes = heap_range("ic0.call_data_append", heap, source, size)?;
        let call = building(run, "ic0.call_data_append")?;
        if call.payload.len() + bytes.len() > MAX_PAYLOAD {
            let message = format!(
                "ic0.call_data_append: request to {}:{} has a payload larger than {MAX_PAYLOAD}",
                call.callee, call.method
            );
            return Err(Trap::Contract(message).into());
        }
        call.payload.extend_from_slice(bytes);
        Ok(())
    });
    import!(linker, "call_with_best_effort_response", CALLS, SYSTEM_CALL, |caller, timeout_seconds: u32| -> () {
        let call = building(caller.data_mut().run(), "ic0.call_with_best_effort_response")?;
        if call.timeout.replace(timeout_seconds.min(MAX_TIMEOUT)).is_some() {
            return Err(Trap::Contract("ic0.call_with_best_effort_response called twice".into()).into());
        }
        Ok(())
    });
    import!(linker, "call_cycles_add", CALLS, SYSTEM_CALL, |caller, low: u64| -> () {
        Ok(add_cycles(caller.data_mut().run(), "ic0.call_cycles_add", amount(0, low))?)
    });
    import!(linker, "call_cycles_add128", CALLS, SYSTEM_CALL, |caller, high: u64, low: u64| -> () {
        Ok(add_cycles(caller.data_mut().run(), "ic0.call_cycles_add128", amount(high, low))?)
    });
    import!(linker, "call_perform", CALLS, CALL_PERFORM, |caller| -> u32 {
        let run = caller.data_mut().run();
        let call = building(run, "ic0.call_perform")?;
        let size = (call.payload.len() + call.method.len()) as u64;
        let price = cycles::call(size, run.environment.callback_instructions);
        if run.liquid() < price {
            drop_call(run);
            return Ok(RejectCode::SysTransient as u32);
        }
        run.balance -= price;
        if let Some(mut call) = run.call.take() {
            call.prepaid = price - cycles::CALL - cycles::CALL_BYTE * u128::from(size);
            run.calls.push(call);
        }
        Ok(0)
    });
    Ok(())
}

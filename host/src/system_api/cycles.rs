//! Cycles: the balance, cycles that come with a call, and costs.

use wasmtime::{Caller, Linker};

use super::import::{ALL, ANSWERS, CALLBACKS, CHANGES, Call, Modes, NOT_START, amount, imports};
use crate::context::{Context, Run};
use crate::cost::SYSTEM_CALL;
use crate::cycles;
use crate::execution::Kind;

/// Executions in which cycles that came with a call may be read and accepted.
const AVAILABLE: Modes = |kind| kind != Kind::Query && ANSWERS(kind);

/// Imports that return the cost of a threshold signature or key.
const SIGNING: [&str; 3] = ["cost_sign_with_ecdsa", "cost_sign_with_schnorr", "cost_vetkd_derive_key"];
/// Cycles of a threshold signature or key.
const SIGNATURE: u128 = 26_153_846_153;

fn http_request(request: u64, response: u64) -> u128 {
    49_140_000 + 5_200 * u128::from(request) + 10_400 * u128::from(response)
}

fn accept(run: &mut Run, limit: u128) -> u128 {
    let accepted = limit.min(run.input.cycles_available);
    run.input.cycles_available -= accepted;
    run.cycles_accepted += accepted;
    run.balance += accepted;
    accepted
}

/// Defines `<name>` and `<name>128`, which return an amount of cycles in 64 and in 128 bits.
fn amount_import(
    linker: &mut Linker<Context>,
    name: &'static str,
    modes: Modes,
    of: fn(&Run) -> u128,
) -> wasmtime::Result<()> {
    linker.func_wrap("ic0", name, move |caller: Caller<'_, Context>| {
        let mut call = Call::enter(caller, name, modes, SYSTEM_CALL)?;
        let amount = of(call.run());
        call.narrow(amount)
    })?;
    let wide = format!("{name}128");
    linker.func_wrap("ic0", &wide.clone(), move |caller: Caller<'_, Context>, target: u32| {
        let mut call = Call::enter(caller, &wide, modes, SYSTEM_CALL)?;
        let amount = of(call.run());
        call.write_cycles(target, amount)
    })?;
    Ok(())
}

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    amount_import(linker, "canister_cycle_balance", NOT_START, |run| run.balance)?;
    amount_import(linker, "msg_cycles_available", AVAILABLE, |run| run.input.cycles_available)?;
    amount_import(linker, "msg_cycles_refunded", CALLBACKS, |run| run.input.cycles_refunded)?;
    // The services behind these imports, and behind `cost_http_request` and `cost_create_canister`, do not exist here. The imports return
    // approximate costs all the same.
    for name in SIGNING {
        let cost = move |caller: Caller<'_, Context>, _: u32, _: u32, _: u32, target: u32| {
            Call::enter(caller, name, ALL, SYSTEM_CALL)?.write_cycles(target, SIGNATURE)?;
            Ok(0u32)
        };
        linker.func_wrap("ic0", name, cost)?;
    }
    imports! { linker, call;
        [NOT_START, SYSTEM_CALL] canister_liquid_cycle_balance128(target: u32) -> () {
            let liquid = call.run().liquid();
            call.write_cycles(target, liquid)
        }
        [AVAILABLE, SYSTEM_CALL] msg_cycles_accept(max: u64) -> u64 {
            let accepted = accept(call.run(), amount(0, max));
            call.narrow(accepted)
        }
        [AVAILABLE, SYSTEM_CALL] msg_cycles_accept128(high: u64, low: u64, target: u32) -> () {
            let accepted = accept(call.run(), amount(high, low));
            call.write_cycles(target, accepted)
        }
        [CHANGES, SYSTEM_CALL] cycles_burn128(high: u64, low: u64, target: u32) -> () {
            let run = call.run();
            let burned = amount(high, low).min(run.liquid());
            run.balance -= burned;
            call.write_cycles(target, burned)
        }
        [ALL, SYSTEM_CALL] cost_call(method_name_size: u64, payload_size: u64, target: u32) -> () {
            let instructions = call.run().environment.callback_instructions;
            let price = cycles::call(method_name_size.saturating_add(payload_size), instructions);
            call.write_cycles(target, price)
        }
        [ALL, SYSTEM_CALL] cost_http_request(request_size: u64, max_res_bytes: u64, target: u32) -> () {
            call.write_cycles(target, http_request(request_size, max_res_bytes))
        }
        [ALL, SYSTEM_CALL] cost_create_canister(target: u32) -> () {
            call.write_cycles(target, 500_000_000_000)
        }
    }
    Ok(())
}

//! Cycles: the balance, what a call brings, and what things cost.

use wasmtime::Linker;

use super::import::{ALL, ANSWERS, CALLBACKS, CHANGES, Modes, NOT_START, amount, import, narrow, write_cycles};
use crate::context::{Context, Run};
use crate::cost::SYSTEM_CALL;
use crate::cycles;
use crate::execution::Kind;

/// Where cycles that came with a call may be looked at and taken.
const AVAILABLE: Modes = ANSWERS.without(Modes::of(&[Kind::Query]));

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

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    import!(linker, "canister_cycle_balance", NOT_START, SYSTEM_CALL, |caller| -> u64 {
        narrow("ic0.canister_cycle_balance", caller.data_mut().run().balance)
    });
    import!(linker, "canister_cycle_balance128", NOT_START, SYSTEM_CALL, |caller, target: u32| -> () {
        let balance = caller.data_mut().run().balance;
        write_cycles("ic0.canister_cycle_balance128", &mut caller, target, balance)
    });
    import!(linker, "canister_liquid_cycle_balance128", NOT_START, SYSTEM_CALL, |caller, target: u32| -> () {
        let liquid = caller.data_mut().run().liquid();
        write_cycles("ic0.canister_liquid_cycle_balance128", &mut caller, target, liquid)
    });
    import!(linker, "msg_cycles_available", AVAILABLE, SYSTEM_CALL, |caller| -> u64 {
        narrow("ic0.msg_cycles_available", caller.data_mut().run().input.cycles_available)
    });
    import!(linker, "msg_cycles_available128", AVAILABLE, SYSTEM_CALL, |caller, target: u32| -> () {
        let available = caller.data_mut().run().input.cycles_available;
        write_cycles("ic0.msg_cycles_available128", &mut caller, target, available)
    });
    import!(linker, "msg_cycles_refunded", CALLBACKS, SYSTEM_CALL, |caller| -> u64 {
        narrow("ic0.msg_cycles_refunded", caller.data_mut().run().input.cycles_refunded)
    });
    import!(linker, "msg_cycles_refunded128", CALLBACKS, SYSTEM_CALL, |caller, target: u32| -> () {
        let refunded = caller.data_mut().run().input.cycles_refunded;
        write_cycles("ic0.msg_cycles_refunded128", &mut caller, target, refunded)
    });
    import!(linker, "msg_cycles_accept", AVAILABLE, SYSTEM_CALL, |caller, max: u64| -> u64 {
        narrow("ic0.msg_cycles_accept", accept(caller.data_mut().run(), amount(0, max)))
    });
    import!(linker, "msg_cycles_accept128", AVAILABLE, SYSTEM_CALL, |caller, high: u64, low: u64, target: u32| -> () {
        let accepted = accept(caller.data_mut().run(), amount(high, low));
        write_cycles("ic0.msg_cycles_accept128", &mut caller, target, accepted)
    });
    import!(linker, "cycles_burn128", CHANGES, SYSTEM_CALL, |caller, high: u64, low: u64, target: u32| -> () {
        let run = caller.data_mut().run();
        let burned = amount(high, low).min(run.liquid());
        run.balance -= burned;
        write_cycles("ic0.cycles_burn128", &mut caller, target, burned)
    });
    import!(linker, "cost_call", ALL, SYSTEM_CALL, |caller,
                                                    method_name_size: u64,
                                                    payload_size: u64,
                                                    target: u32|
     -> () {
        let instructions = caller.data_mut().run().environment.callback_instructions;
        let price = cycles::call(method_name_size.saturating_add(payload_size), instructions);
        write_cycles("ic0.cost_call", &mut caller, target, price)
    });
    // The services behind these don't exist here; what they cost is told all the same, roughly.
    import!(linker, "cost_http_request", ALL, SYSTEM_CALL, |caller,
                                                            request_size: u64,
                                                            max_res_bytes: u64,
                                                            target: u32|
     -> () {
        write_cycles("ic0.cost_http_request", &mut caller, target, http_request(request_size, max_res_bytes))
    });
    import!(linker, "cost_sign_with_ecdsa", ALL, SYSTEM_CALL, |caller,
                                                               _source: u32,
                                                               _size: u32,
                                                               _curve: u32,
                                                               target: u32|
     -> u32 {
        write_cycles("ic0.cost_sign_with_ecdsa", &mut caller, target, SIGNATURE)?;
        Ok(0)
    });
    import!(linker, "cost_sign_with_schnorr", ALL, SYSTEM_CALL, |caller,
                                                                 _source: u32,
                                                                 _size: u32,
                                                                 _algorithm: u32,
                                                                 target: u32|
     -> u32 {
        write_cycles("ic0.cost_sign_with_schnorr", &mut caller, target, SIGNATURE)?;
        Ok(0)
    });
    import!(linker, "cost_vetkd_derive_key", ALL, SYSTEM_CALL, |caller,
                                                                _source: u32,
                                                                _size: u32,
                                                                _curve: u32,
                                                                target: u32|
     -> u32 {
        write_cycles("ic0.cost_vetkd_derive_key", &mut caller, target, SIGNATURE)?;
        Ok(0)
    });
    import!(linker, "cost_create_canister", ALL, SYSTEM_CALL, |caller, target: u32| -> () {
        write_cycles("ic0.cost_create_canister", &mut caller, target, 500_000_000_000)
    });
    Ok(())
}

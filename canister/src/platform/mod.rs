//! Interface to the Internet Computer, with a native twin for tests.
//!
//! Only this module and `storage/src/ic.rs` call the system API. On wasm these functions call the platform; natively they read a per-thread [`native::World`] that
//! a test controls: time, the instruction counter, cycles, growth.

use candid::Principal;
use ic_coppice_storage::Platform as _;

pub use ic_coppice_storage::Ic;

/// Evaluates the first expression on the platform, and the second one, its twin, natively.
macro_rules! twinned {
    ($platform:expr, $native:expr) => {{
        #[cfg(target_family = "wasm")]
        return $platform;
        #[cfg(not(target_family = "wasm"))]
        $native
    }};
}

pub mod cycles;
pub mod meter;
#[cfg(not(target_family = "wasm"))]
pub mod native;
pub mod timers;

/// Nanoseconds since the Unix epoch. Stands still within a message.
pub fn time_ns() -> u64 {
    Ic::now_ns()
}

/// Seconds since the Unix epoch.
pub fn time_secs() -> u64 {
    Ic::now_secs()
}

/// Instructions that this message has executed so far.
pub fn instructions() -> u64 {
    Ic::instructions()
}

/// Cycles that must be liquid when a timer fires, because `ic-cdk-timers` calls the canister itself, and a call sets aside what its reply
/// may cost.
pub fn timer_call_cycles() -> u128 {
    // The method that `ic-cdk-timers` calls, with an argument of eight bytes.
    twinned!(
        ic_cdk::api::cost_call("<ic-cdk internal> timer_executor".len() as u64, 8),
        native::with(|world| world.timer_call_cycles)
    )
}

/// The sender of the message.
pub fn caller() -> Principal {
    Ic::caller()
}

/// The method that an ingress message calls, in `canister_inspect_message` only.
pub fn method_name() -> String {
    twinned!(ic_cdk::api::msg_method_name(), native::with(|world| world.method.clone()))
}

/// Bytes of the message's argument, which is not copied.
pub fn argument_bytes() -> u64 {
    twinned!(ic0::msg_arg_data_size() as u64, native::with(|world| world.argument_bytes))
}

/// The message's argument, copied.
pub fn argument() -> Vec<u8> {
    twinned!(ic_cdk::api::msg_arg_data(), native::with(|world| world.argument.clone()))
}

/// Replies to the message, or rejects it with an error text.
pub fn answer(answer: Result<Vec<u8>, String>) {
    #[cfg(target_family = "wasm")]
    match answer {
        Ok(bytes) => ic_cdk::api::msg_reply(bytes),
        Err(why) => ic_cdk::api::msg_reject(why),
    }
    #[cfg(not(target_family = "wasm"))]
    native::with(|world| world.answer = Some(answer));
}

/// Returns whether `principal` controls the canister.
pub fn is_controller(principal: &Principal) -> bool {
    twinned!(ic_cdk::api::is_controller(principal), native::with(|world| world.controllers.contains(principal)))
}

/// The canister's own principal.
pub fn canister_self() -> Principal {
    twinned!(ic_cdk::api::canister_self(), Principal::management_canister())
}

/// Asks the subnet for 32 secret bytes, and passes the Candid reply on; an error says why there is none.
pub fn draw(then: impl FnOnce(Result<Vec<u8>, String>) + 'static) {
    #[cfg(target_family = "wasm")]
    ic_cdk::futures::spawn(async move {
        use ic_cdk::call::Call;
        let call = Call::bounded_wait(Principal::management_canister(), "raw_rand");
        let reply = call.await.map(ic_cdk::call::Response::into_bytes);
        then(reply.map_err(|why| why.to_string()));
    });
    #[cfg(not(target_family = "wasm"))]
    then(native::with(|world| world.drawn.clone()));
}

/// The hash key of a native canister, which cannot wait for a reply; `None` on the platform.
pub fn preset_hash_key() -> Option<[u8; ic_coppice_storage::KEY]> {
    twinned!(None, native::with(|world| world.hash_key))
}

/// Makes the platform run all due timers right after this message.
pub fn wake_timers() {
    #[cfg(target_family = "wasm")]
    ic_cdk::api::global_timer_set(time_ns());
}

/// The subnet's certificate for the certified data; `None` outside queries.
pub fn data_certificate() -> Option<Vec<u8>> {
    twinned!(
        ic_cdk::api::data_certificate(),
        native::with(|world| (!world.replicated).then(|| world.certified_data.to_vec()))
    )
}

/// Sets the bytes that the subnet certifies from now on.
pub fn set_certified_data(data: &[u8; 32]) {
    twinned!(ic_cdk::api::certified_data_set(data), native::with(|world| world.certified_data = *data))
}

/// Traps: ends the message and undoes everything it did. For broken invariants only.
pub fn trap(message: &str) -> ! {
    Ic::trap(message)
}

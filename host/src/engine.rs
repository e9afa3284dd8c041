//! The one Wasmtime engine of the process, and the modules it has compiled.
//!
//! Compiling a canister takes seconds, and tests install the same one over and over, so engine, linker and compiled modules live as long as
//! the process. [`crate::compiled`] keeps compiled modules between processes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use wasmtime::{Config, Engine, Linker};

use crate::context::Context;
use crate::module::{CanisterModule, InvalidModule};
use crate::{cost, system_api};

/// Bytes of native stack that Wasm may use: half of a Rust thread's default.
const MAX_WASM_STACK: usize = 1 << 20;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .operator_cost(cost::operator_costs())
        .max_wasm_stack(MAX_WASM_STACK)
        .cranelift_nan_canonicalization(true)
        .wasm_bulk_memory(true)
        .wasm_multi_value(true)
        .wasm_simd(true)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(true)
        .wasm_memory64(false)
        .wasm_multi_memory(false);
    Engine::new(&config).expect("the configuration is constant and fits the engine's features")
});

static LINKER: LazyLock<Linker<Context>> = LazyLock::new(|| {
    let mut linker = Linker::new(&ENGINE);
    system_api::define(&mut linker).expect("every import is defined once");
    linker
});

type Hash = [u8; 32];

/// A compiled module. The lock makes others that want the same module wait for its compilation.
type Slot = Arc<Mutex<Option<Arc<CanisterModule>>>>;

static MODULES: LazyLock<Mutex<HashMap<Hash, Slot>>> = LazyLock::new(Mutex::default);

/// Returns the engine that every module and store belongs to.
pub(crate) fn engine() -> &'static Engine {
    &ENGINE
}

/// Returns the compiled module, compiled now or before.
///
/// # Errors
/// When the bytes are not a valid canister module.
pub(crate) fn compile(wasm: &[u8]) -> Result<Arc<CanisterModule>, InvalidModule> {
    use sha2::Digest;
    let hash: Hash = sha2::Sha256::digest(wasm).into();
    let slot = MODULES.lock().unwrap_or_else(PoisonError::into_inner).entry(hash).or_default().clone();
    // Other modules can be compiled or found meanwhile.
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = &*slot {
        return Ok(module.clone());
    }
    let module = Arc::new(CanisterModule::new(&ENGINE, &LINKER, wasm, hash)?);
    Ok(slot.insert(module).clone())
}

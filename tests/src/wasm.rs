//! The canister's wasm, built from this checkout.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The canister's wasm: the file that `COPPICE_WASM` names, else what `scripts/build-wasm` builds, once a process.
///
/// # Panics
/// Where it cannot be read or built.
pub fn canister() -> Vec<u8> {
    static WASM: OnceLock<Vec<u8>> = OnceLock::new();
    WASM.get_or_init(|| {
        if let Some(path) = std::env::var_os("COPPICE_WASM") {
            return std::fs::read(&path).unwrap_or_else(|error| panic!("COPPICE_WASM {}: {error}", path.display()));
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let status = Command::new(root.join("scripts/build-wasm")).status().expect("scripts/build-wasm starts");
        assert!(status.success(), "scripts/build-wasm: {status}");
        std::fs::read(root.join("target/coppice.wasm")).expect("scripts/build-wasm made it")
    })
    .clone()
}

//! The wasm of canisters, built from this checkout.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The canister's wasm: the file that `COPPICE_WASM` names, else the output of `scripts/build-wasm`, built once per process.
///
/// # Panics
/// If it cannot be read or built.
pub fn canister() -> Vec<u8> {
    static WASM: OnceLock<Vec<u8>> = OnceLock::new();
    WASM.get_or_init(|| named("COPPICE_WASM", "coppice")).clone()
}

/// The wasm of the canister without UTXO records: the file that `COPPICE_BLOCKS_WASM` names, else the output of `scripts/build-wasm`.
///
/// # Panics
/// If it cannot be read or built.
pub fn blocks_canister() -> Vec<u8> {
    static WASM: OnceLock<Vec<u8>> = OnceLock::new();
    WASM.get_or_init(|| named("COPPICE_BLOCKS_WASM", "coppice-blocks")).clone()
}

/// Reads the file that a variable names, or else builds the canister of this name.
fn named(variable: &str, name: &str) -> Vec<u8> {
    match std::env::var_os(variable) {
        Some(path) => std::fs::read(&path).unwrap_or_else(|error| panic!("{variable} {}: {error}", path.display())),
        None => built("build-wasm", name),
    }
}

/// The wasm of an example, or of a canister that calls this one: from the directory that `COPPICE_EXAMPLES` names, else from
/// `scripts/build-examples`, run once per process. The packages are `coppice_rollup`, `coppice_sequencer`, `coppice_shelf` and
/// `coppice_client_tests`.
///
/// # Panics
/// If it cannot be read or built.
pub fn example(package: &str) -> Vec<u8> {
    static BUILT: OnceLock<()> = OnceLock::new();
    if let Some(directory) = std::env::var_os("COPPICE_EXAMPLES") {
        let path = Path::new(&directory).join(format!("{package}.wasm"));
        return std::fs::read(&path).unwrap_or_else(|error| panic!("COPPICE_EXAMPLES {}: {error}", path.display()));
    }
    BUILT.get_or_init(|| drop(built("build-examples", package)));
    read(package)
}

/// Runs a script and reads a file that it built in `target/`.
fn built(script: &str, name: &str) -> Vec<u8> {
    let status = Command::new(root().join("scripts").join(script)).status().expect("the script starts");
    assert!(status.success(), "scripts/{script}: {status}");
    read(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(root().join("target").join(format!("{name}.wasm"))).expect("the script made it")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

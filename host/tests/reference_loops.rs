//! Holds the instruction counter against figures measured on a PocketIC server 10.0.0.
//!
//! The canister of `loops/` is built as its lock file says and answers the average instructions of a round of each
//! loop; every answer must be within 0.1 % of the server's. With `COPPICE_REFERENCE` set to the directory of another
//! such canister, that is checked too.

use std::path::{Path, PathBuf};
use std::process::Command;

use coppice_host::{Host, Principal};

/// A loop's method, its arguments and the server's answer, in the order in which they were measured.
type Figure = (&'static str, Vec<u64>, u64);

const SIZES: [u64; 4] = [256, 4 << 10, 64 << 10, 1 << 20];

fn figures() -> Vec<Figure> {
    let mut figures = Vec::new();
    let rounds = |size| if size == 1 << 20 { 50 } else { 200 };
    let raw: [(&str, [u64; 4]); 2] =
        [("raw_write", [440, 5_215, 81_656, 1_304_714]), ("raw_read", [377, 4_217, 65_658, 1_048_716])];
    for (i, size) in SIZES.into_iter().enumerate() {
        for (method, expected) in raw {
            figures.push((method, vec![rounds(size), size, size], expected[i]));
        }
    }
    let insert = [51_191, 192_615, 2_352_953, 31_370_264];
    let get = [14_883, 32_825, 253_406, 3_315_715];
    let remove = [46_644, 173_596, 2_106_383, 28_948_921];
    for (i, size) in SIZES.into_iter().enumerate() {
        let n = rounds(size);
        figures.push(("map_insert", vec![0, n, size], insert[i]));
        figures.push(("map_get", vec![0, n], get[i]));
        figures.push(("map_remove", vec![0, n], remove[i]));
    }
    for i in 0..10 {
        // Of the ten only the first and the last are published.
        let expected = [49_809, 0, 0, 0, 0, 0, 0, 0, 0, 60_854][i as usize];
        figures.push(("index_insert", vec![i * 10_000, 10_000], expected));
    }
    figures.push(("index_get", vec![5_000, 10_000], 34_423));
    figures.push(("index_remove", vec![0, 10_000], 79_723));
    for (size, expected) in [(61, 10_745), (256, 25_132), (4 << 10, 315_172), (64 << 10, 4_955_812)] {
        figures.push(("sha256", vec![100, size], expected));
    }
    figures.push(("compute", vec![20_000], 427));
    figures
}

/// Candid of some `nat64` arguments.
fn encode(arguments: &[u64]) -> Vec<u8> {
    let mut bytes = b"DIDL\0".to_vec();
    bytes.push(arguments.len() as u8);
    bytes.extend(arguments.iter().map(|_| 0x78));
    bytes.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
    bytes
}

fn target() -> PathBuf {
    // The target directory's own directory for integration tests is `<target>/tmp`.
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory").join("loops")
}

/// Builds the canister in `directory` and answers its Wasm.
fn build(directory: &Path, name: &str) -> Vec<u8> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(directory).args(["build", "--release", "--locked", "--target", "wasm32-unknown-unknown"]);
    cargo.arg("--target-dir").arg(target());
    // What was set for this test's own build (flags, coverage, profiles, wrappers) would change the code.
    for (key, _) in std::env::vars_os() {
        let text = key.to_string_lossy();
        let network = ["CARGO_HOME", "CARGO_NET", "CARGO_HTTP", "CARGO_REGISTR"].iter().any(|p| text.starts_with(p));
        if (text.starts_with("CARGO") && !network) || (text.starts_with("RUST") && !text.starts_with("RUSTUP")) {
            cargo.env_remove(&key);
        }
    }
    assert!(cargo.status().expect("cargo runs").success(), "the canister of {} does not build", directory.display());
    std::fs::read(target().join("wasm32-unknown-unknown/release").join(name)).expect("the canister was built")
}

fn check(wasm: Vec<u8>) {
    let host = Host::new();
    let canister = host.create_canister();
    host.install_canister(canister, wasm, encode(&[]), None);
    let mut worst: f64 = 0.0;
    let mut wrong = Vec::new();
    for (method, arguments, expected) in figures() {
        let reply = host
            .update_call(canister, Principal::anonymous(), method, encode(&arguments))
            .unwrap_or_else(|reject| panic!("{method}({arguments:?}): {reject}"));
        let measured = u64::from_le_bytes(reply[reply.len() - 8..].try_into().expect("a nat64"));
        if expected > 0 {
            let off = (measured as f64 - expected as f64).abs() / expected as f64;
            println!("{method}({arguments:?}): {measured}, published {expected}, off by {:.4} %", off * 100.0);
            worst = worst.max(off);
            if off > 0.001 {
                wrong.push(method);
            }
        }
    }
    println!("worst: {:.4} %", worst * 100.0);
    assert!(wrong.is_empty(), "more than 0.1 % off: {wrong:?}");
}

#[test]
fn the_counter_agrees_with_the_published_figures() {
    check(build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loops"), "loops.wasm"));
}

#[test]
fn the_counter_agrees_on_the_reference_canister() {
    let Some(reference) = std::env::var_os("COPPICE_REFERENCE") else {
        println!("not checked: COPPICE_REFERENCE is not set");
        return;
    };
    // A copy, for the directory may be read-only.
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reference");
    for file in ["Cargo.toml", "Cargo.lock", "src/lib.rs"] {
        let to = copy.join(file);
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("the copy's directory");
        let content = std::fs::read(Path::new(&reference).join(file)).expect("the reference canister");
        std::fs::write(to, content).expect("the copy");
    }
    check(build(&copy, "reference.wasm"));
}

//! Compares the instruction counter, and the cycles of whole messages, with figures measured on a PocketIC server 10.0.0.
//!
//! The canister of `loops/` is built from its lock file and returns the average instructions of an iteration of each loop. Every answer,
//! and the fall of the balance, must be within 0.1 % of the server's. `scripts/soak` also measures another such canister, if
//! `COPPICE_REFERENCE` names its directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use ic_coppice_host::{Host, Principal};

/// A loop's method, its arguments and the server's answer, in the order of measurement.
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
        // Only the first and the last of the ten are published.
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

/// Cycles that whole messages took from the balance of a fresh canister, in this order, without the fixed 1.2 M and 5 M cycles per message
/// and 2,000 per byte of the method's name and argument. They cover the loop and its surroundings, the changed heap pages, and the
/// envelope.
fn cycles() -> Vec<Figure> {
    let mut figures = vec![("compute", vec![10], 323_458), ("compute", vec![20_000], 8_902_717)];
    let raw: [(&str, [u64; 4]); 2] = [
        ("raw_write", [398_738, 439_901, 2_045_343, 27_715_949]),
        ("raw_read", [332_193, 413_421, 1_704_863, 22_347_669]),
    ];
    for (method, expected) in raw {
        figures.extend(SIZES.into_iter().zip(expected).map(|(size, cycles)| (method, vec![20, size, size], cycles)));
    }
    figures.push(("map_insert", vec![0, 20, 65_536], 32_671_141));
    figures.push(("map_get", vec![0, 20], 3_847_203));
    figures.push(("index_insert", vec![0, 2_000], 89_934_720));
    figures.push(("sha256", vec![10, 65_536], 49_951_115));
    figures
}

/// Encodes `nat64` arguments in Candid.
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

/// Builds the canister in `directory` and returns its Wasm.
fn build(directory: &Path, name: &str) -> Vec<u8> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(directory).args(["build", "--release", "--locked", "--target", "wasm32-unknown-unknown"]);
    cargo.arg("--target-dir").arg(target());
    // Variables set for this test's own build (flags, coverage, profiles, wrappers) would change the code.
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

/// A fresh canister on its own host.
struct Fresh {
    host: Host,
    canister: Principal,
}

impl Fresh {
    fn new(wasm: &[u8]) -> Self {
        let host = Host::new();
        let canister = host.create_canister();
        host.install_canister(canister, wasm.to_vec(), encode(&[]), None);
        Fresh { host, canister }
    }

    /// Calls a loop and returns its count.
    fn counted(&self, method: &str, arguments: &[u64]) -> u64 {
        // The server's figures are for a caller with a key; the principal is part of the envelope.
        let caller = Principal::self_authenticating(b"a key");
        let reply = self
            .host
            .update_call(self.canister, caller, method, encode(arguments))
            .unwrap_or_else(|reject| panic!("{method}({arguments:?}): {reject}"));
        u64::from_le_bytes(reply[reply.len() - 8..].try_into().expect("a nat64"))
    }

    /// Calls a loop and returns the cycles it took, without the fees that do not depend on its work.
    fn cycles(&self, method: &str, arguments: &[u64]) -> u64 {
        let before = self.host.cycle_balance(self.canister);
        self.counted(method, arguments);
        let bytes = method.len() + encode(arguments).len();
        let fees = 1_200_000 + 5_000_000 + 2_000 * bytes as u128;
        u64::try_from(before - self.host.cycle_balance(self.canister) - fees).expect("less than the fees themselves")
    }
}

/// Measures every figure and compares it with the published one, if there is one.
fn compare(figures: Vec<Figure>, measure: impl Fn(&str, &[u64]) -> u64) {
    let mut worst: f64 = 0.0;
    let mut wrong = Vec::new();
    for (method, arguments, expected) in figures {
        let measured = measure(method, &arguments);
        if expected > 0 {
            let off = (measured as f64 - expected as f64).abs() / expected as f64;
            println!("{method}({arguments:?}): {measured}, published {expected}, off by {:.4} %", off * 100.0);
            worst = worst.max(off);
            if off > 0.001 {
                wrong.push((method, arguments));
            }
        }
    }
    println!("worst: {:.4} %", worst * 100.0);
    assert!(wrong.is_empty(), "more than 0.1 % off: {wrong:?}");
}

fn check(wasm: &[u8]) {
    let fresh = Fresh::new(wasm);
    compare(figures(), |method, arguments| fresh.counted(method, arguments));
    let fresh = Fresh::new(wasm);
    compare(cycles(), |method, arguments| fresh.cycles(method, arguments));
}

#[test]
fn counter_and_cycles_agree_with_the_published_figures() {
    check(&build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loops"), "loops.wasm"));
}

#[test]
#[ignore = "scripts/soak measures it"]
fn counter_and_cycles_agree_on_the_reference_canister() {
    let Some(reference) = std::env::var_os("COPPICE_REFERENCE") else {
        println!("not checked: COPPICE_REFERENCE is not set");
        return;
    };
    // A copy, because the directory may be read-only.
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reference");
    for file in ["Cargo.toml", "Cargo.lock", "src/lib.rs"] {
        let to = copy.join(file);
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("the copy's directory");
        let content = std::fs::read(Path::new(&reference).join(file)).expect("the reference canister");
        std::fs::write(to, content).expect("the copy");
    }
    check(&build(&copy, "reference.wasm"));
}

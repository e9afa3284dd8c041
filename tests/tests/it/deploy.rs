//! The files with which operators deploy: the files they name exist, install, and read as intended by the tools.

use candid::decode_one;
use candid::types::value::{IDLArgs, IDLValue};
use candid_parser::parse_idl_args;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, default_arg};
use coppice_tests::wasm;
use ic_coppice_interface::{CanisterArg, Config, InitArg};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The most cycles that a full subnet reserves for one GiB of growth: ten years of storage.
const RESERVED_A_GIB: u128 = 38_000_000_000_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub fn init(name: &str) -> InitArg {
    let args: IDLArgs = parse_idl_args(&read(name)).expect("it is Candid text");
    assert!(matches!(args.args.as_slice(), [IDLValue::Variant(_)]));
    let arg: Option<CanisterArg> = decode_one(&args.to_bytes().unwrap()).unwrap();
    let Some(CanisterArg::Init(init)) = arg else { panic!("{arg:?}") };
    init
}

#[test]
fn the_init_arguments_install() {
    for (name, pages) in [("deploy/init.local.did", 131_072), ("deploy/init.production.did", 262_144)] {
        let coppice = Coppice::with(init(name));
        let config: Config = coppice.anyone().get_config().answer();
        assert_eq!((config.log_class, config.max_stable_pages), (1 << 20, pages), "{name}");
        assert_eq!(config.utxo.unwrap().least_retries, 5, "{name}");
    }
}

/// The canister cannot ask the platform for the reservation limit.
#[test]
fn the_reservation_limit_is_the_same_for_the_platform_and_the_canister() {
    let trillions = init("deploy/init.production.did").reserved_cycles_limit.unwrap() / 1_000_000_000_000;
    let icp = read("icp.yaml");
    let limits: Vec<&str> =
        icp.lines().filter_map(|line| line.trim().strip_prefix("reserved_cycles_limit: ")).collect();
    assert_eq!(limits, [format!("{trillions}t")]);
}

#[test]
fn the_production_argument_grants_no_role() {
    let init = init("deploy/init.production.did");
    assert!(init.operators.is_empty() && init.producers.is_empty(), "{init:?}");
}

#[test]
fn the_tools_files_name_existing_files() {
    let dfx: serde_json::Value = serde_json::from_str(&read("dfx.json")).expect("dfx.json is JSON");
    let canister = &dfx["canisters"]["coppice"];
    assert_eq!(canister["type"], "custom");
    for file in [&canister["candid"], &canister["init_arg_file"], &canister["build"][0]] {
        let file = file.as_str().and_then(|command| command.split(' ').next_back()).expect("a path");
        assert!(root().join(file).is_file(), "dfx.json names {file}");
    }
    let icp = read("icp.yaml");
    assert!(icp.contains("scripts/build-wasm"));
    let files: Vec<&str> = icp.lines().filter_map(|line| line.trim().strip_prefix("path: ")).collect();
    assert_eq!(files, ["deploy/init.production.did", "deploy/init.local.did"]);
    assert!(files.iter().all(|file| root().join(file).is_file()));
}

/// The icp-cli that `COPPICE_ICP` names, or that `scripts/setup --with-icp` installed; `None`, with a printed note, if there is neither.
pub fn icp() -> Option<PathBuf> {
    let named = std::env::var_os("COPPICE_ICP").map(PathBuf::from);
    let installed = root().join("target/icp-cli/node_modules/@icp-sdk/icp-cli-linux-x64/bin/icp");
    let found = named.or_else(|| installed.is_file().then_some(installed));
    if found.is_none() {
        // Written to stderr directly, because the test harness hides the output of a passing test.
        let note = "not run: icp.yaml as icp-cli reads it; COPPICE_ICP names none, and scripts/setup --with-icp installed none\n";
        std::io::stderr().write_all(note.as_bytes()).unwrap();
    }
    found
}

/// The project as icp-cli reads it: all environments with their settings resolved.
fn show(icp: &Path, project: &Path) -> Output {
    // A home of its own, because other tests run at the same time.
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(icp);
    command.args(["project", "show"]).current_dir(project).env("HOME", home.path()).env("DO_NOT_TRACK", "1");
    command.output().unwrap_or_else(|error| panic!("{}: {error}", icp.display()))
}

/// The lines below a key of a YAML text, without their indentation, up to the next key at the same depth. `text` begins at that depth.
fn below<'a>(text: &[&'a str], key: &str) -> Vec<&'a str> {
    let depth = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let start = text.iter().position(|line| line.trim_start_matches([' ', '-']).starts_with(&format!("{key}:")));
    let start = start.unwrap_or_else(|| panic!("there is no {key} in {text:#?}"));
    let at = depth(text[start]);
    text[start + 1..].iter().take_while(|line| line.trim().is_empty() || depth(line) > at).copied().collect()
}

#[test]
fn icp_cli_reads_the_intended_settings_of_each_environment() {
    let Some(icp) = icp() else { return };
    let output = show(&icp, &root());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    let production = [
        "log_visibility: controllers",
        "freezing_threshold: 180d",
        "reserved_cycles_limit: 620t",
        "wasm_memory_limit: 3gib",
        "log_memory_limit: 2mib",
    ];
    let local = [production[0], "freezing_threshold: 90d", production[3], production[4]];
    // The network `ic` is predefined.
    for (environment, network, settings, argument) in [
        ("production", "ic", &production[..], "deploy/init.production.did"),
        ("ic", "ic", &production[..], "deploy/init.production.did"),
        ("local", "local", &local[..], "deploy/init.local.did"),
    ] {
        let of = below(&below(&lines, "environments"), environment);
        assert_eq!(below(&of, "network")[0].trim(), format!("name: {network}"), "{environment}");
        let canister = below(&of, "canisters");
        let found: Vec<&str> = below(&canister, "settings").iter().map(|line| line.trim()).collect();
        let found: Vec<&str> = found.into_iter().filter(|line| *line != "controllers: null").collect();
        assert_eq!(found, settings, "{environment}");
        let content = below(&below(&canister, "init_args"), "content");
        let content: Vec<&str> = content.iter().map(|line| line.trim()).collect();
        let expected = read(argument);
        assert_eq!(content, expected.lines().map(str::trim).collect::<Vec<_>>(), "{environment}");
    }
    // The cycles reserved for the cap are within the limit, and the canister and the platform have the same limit.
    let init = init("deploy/init.production.did");
    let pages = init.max_stable_pages.unwrap();
    let reserved = u128::from(pages.div_ceil(1 << 14)) * RESERVED_A_GIB;
    assert!(reserved <= 620_000_000_000_000, "{pages} pages may have {reserved} cycles reserved");
    assert_eq!(init.reserved_cycles_limit, Some(620_000_000_000_000));
}

/// icp-cli reports each fault.
#[test]
fn icp_cli_refuses_a_faulty_project() {
    let Some(icp) = icp() else { return };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("icp-wrong");
    std::fs::create_dir_all(dir.join("deploy")).unwrap();
    for name in ["deploy/init.local.did", "deploy/init.production.did"] {
        std::fs::copy(root().join(name), dir.join(name)).unwrap();
    }
    let is_read = |yaml: &str| {
        std::fs::write(dir.join("icp.yaml"), yaml).unwrap();
        show(&icp, &dir).status.success()
    };
    let right = read("icp.yaml");
    assert!(is_read(&right));
    for (from, to) in [("180d", "soon"), ("620t", "620x"), ("init.production.did", "none.did"), ("[coppice]", "[oak]")]
    {
        assert!(!is_read(&right.replace(from, to)), "{to} for {from}");
    }
}

/// The wasm contains its interface, without comments and indentation, as public metadata.
#[test]
fn the_interface_is_in_the_wasm() {
    let name = b"icp:public candid:service";
    for (wasm, file) in [(wasm::canister(), "coppice.did"), (wasm::blocks_canister(), "blocks.did")] {
        let text = read(&format!("candid/{file}"));
        let lines = text.split_inclusive('\n').map(|line| line.trim_start_matches(' '));
        let candid = lines.filter(|line| !line.starts_with("//")).collect::<String>();
        assert!(wasm.windows(name.len()).any(|window| window == name), "{file}");
        assert!(wasm.windows(candid.len()).any(|window| window == candid.as_bytes()), "{file}");
    }
    // The wasm still installs with that section.
    let coppice = Coppice::with(default_arg());
    assert_eq!(coppice.head(), None);
}

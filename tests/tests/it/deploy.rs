//! The files with which operators deploy: what they name is there, and installs.

use candid::decode_one;
use candid::types::value::{IDLArgs, IDLValue};
use candid_parser::parse_idl_args;
use coppice_canister::api::{CanisterArg, Config};
use coppice_tests::coppice::{Coppice, default_arg};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_init_argument_of_both_tools_installs() {
    let args: IDLArgs = parse_idl_args(&read("deploy/init.local.did")).expect("it is Candid text");
    assert!(matches!(args.args.as_slice(), [IDLValue::Variant(_)]));
    let arg: Option<CanisterArg> = decode_one(&args.to_bytes().unwrap()).unwrap();
    let Some(CanisterArg::Init(init)) = arg else { panic!("{arg:?}") };
    let coppice = Coppice::with(init);
    let config: Config = coppice.ask("get_config", ());
    assert_eq!((config.log_class, config.max_stable_pages), (1 << 20, 131_072));
}

#[test]
fn the_tools_files_name_what_is_there() {
    let dfx: serde_json::Value = serde_json::from_str(&read("dfx.json")).expect("dfx.json is JSON");
    let canister = &dfx["canisters"]["coppice"];
    assert_eq!(canister["type"], "custom");
    for file in [&canister["candid"], &canister["init_arg_file"], &canister["build"][0]] {
        let file = file.as_str().expect("a path");
        assert!(root().join(file).is_file(), "dfx.json names {file}");
    }
    let icp = read("icp.yaml");
    assert!(icp.contains("scripts/build-wasm") && icp.contains("path: deploy/init.local.did"));
}

/// The wasm says its interface to anyone who asks.
#[test]
fn the_interface_is_in_the_wasm() {
    let wasm = coppice_tests::wasm::canister();
    let name = b"icp:public candid:service";
    let candid = read("candid/coppice.did");
    assert!(wasm.windows(name.len()).any(|window| window == name));
    assert!(wasm.windows(candid.len()).any(|window| window == candid.as_bytes()));
    // And it installs, so the section does not break it.
    let coppice = Coppice::with(default_arg());
    assert_eq!(coppice.head(), None);
}

//! Names that another build lacks: the laboratory's without the network, and that of `tests/ic` with the oldest client of PocketIC.
//! `scripts/soak` makes both builds.

use coppice_source::production;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Modules of the command that the feature `network` brings, and the program itself.
const OF_NETWORK: [&str; 4] = ["network", "commands", "blob_worker/s3", "main"];
/// Crates and modules that are there with the feature `network` only.
const NETWORK: [&str; 11] = [
    "crate::network",
    "crate::commands",
    "ic_coppice_cli::network",
    "ic_coppice_cli::commands",
    "s3::",
    "reqwest",
    "ic_agent",
    "async_trait",
    "http_body_util",
    "OverHttp",
    "object_store::aws",
];
/// Calls of the client of PocketIC that version 10.0.0 has; `scripts/oldest` type-checks them.
const CALLS: [&str; 15] = [
    "add_cycles",
    "advance_time",
    "await_call",
    "create_canister_with_settings",
    "cycle_balance",
    "get_time",
    "install_canister",
    "query_call",
    "set_controllers",
    "start_canister",
    "stop_canister",
    "submit_call",
    "tick",
    "update_call",
    "upgrade_canister",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the lines of production code that name something of the network.
fn names_of_network(text: &str) -> Vec<&str> {
    let production = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = production.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.filter(|line| NETWORK.iter().any(|name| line.contains(name))).collect()
}

/// Returns the methods of the client that the adapter calls.
fn calls(adapter: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let after = adapter.split("self.0").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('.'));
    after.map(|rest| rest.split(|c| !is_name(c)).next().unwrap_or_default()).collect()
}

#[test]
fn laboratory_and_what_it_uses_of_the_command_name_nothing_of_the_network() {
    let mut files = 0;
    for name in ["cli", "lab", "testkit"] {
        let source = root().join(name);
        for file in production(&source).unwrap() {
            let module = file.with_extension("");
            let is_of_network = name == "cli" && OF_NETWORK.iter().any(|of| module.starts_with(of));
            if is_of_network {
                continue;
            }
            let text = std::fs::read_to_string(source.join("src").join(&file)).unwrap();
            assert_eq!(names_of_network(&text), [""; 0], "{name}/src/{}", file.display());
            files += 1;
        }
    }
    assert!(files > 100, "{files} files");
    assert_eq!(names_of_network("use crate::network::Network;\n// reqwest\n"), ["use crate::network::Network;"]);
}

#[test]
fn adapter_calls_what_the_oldest_client_of_pocket_ic_has() {
    let adapter = std::fs::read_to_string(root().join("tests/ic/src/pocket.rs")).unwrap();
    assert_eq!(calls(&adapter), CALLS.into());
    assert_eq!(calls("self.0.tick(); self.0\n    .set_time(1)"), ["tick", "set_time"].into());
}

//! The calls of `docs/operations/deploy.md`, made by icp-cli through a gateway over the embedded host, and the indexer with the key that icp-cli made.

#[path = "../../../tests/tests/it/deploy_page/steps.rs"]
mod steps;

use crate::net::Net;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use steps::{call, is_printed, steps};

/// Returns the icp-cli that `COPPICE_ICP` names, or that `scripts/setup --with-icp` installed.
pub fn icp() -> Option<PathBuf> {
    let installed = "../target/icp-cli/node_modules/@icp-sdk/icp-cli-linux-x64/bin/icp";
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(installed);
    let named = std::env::var_os("COPPICE_ICP").map(PathBuf::from);
    named.or_else(|| installed.is_file().then_some(installed))
}

#[test]
fn icp_cli_runs_the_calls_of_the_deploy_page() {
    let Some(icp) = icp() else {
        println!("not run: there is no icp-cli (COPPICE_ICP names none, and scripts/setup --with-icp installed none)");
        return;
    };
    let net = Net::start();
    net.gateway.follow_the_clock();
    let home = net.path("home");
    std::fs::create_dir(&home).unwrap();
    let run = |arguments: &[&str]| -> Output {
        let mut command = Command::new(&icp);
        command.args(arguments).env("HOME", &home).env("DO_NOT_TRACK", "1").current_dir(&home);
        command.output().unwrap()
    };
    let stdout_of = |output: &Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout.clone()).unwrap()
    };
    stdout_of(&run(&["identity", "import", "operator", "--storage", "plaintext", "--from-pem", &net.path("key.pem")]));
    let root_key: String = net.gateway.root_key().iter().map(|byte| format!("{byte:02x}")).collect();
    let (url, canister) = (net.gateway.url(), net.canister.to_string());
    let candid = concat!(env!("CARGO_MANIFEST_DIR"), "/../candid/coppice.did");

    let (mut made, mut principals) = (0, Vec::<String>::new());
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/deploy.md")).unwrap();
    for step in steps(&page) {
        for (command, printed) in &step.commands {
            if let Some((options, method, argument)) = call(command) {
                // The sequencer's principal, then the indexer's.
                let argument = match method.as_str() {
                    "grant_role" => argument.replace('…', &principals[0]),
                    "register_exporter" => argument.replace('…', &principals[1]),
                    _ => argument,
                };
                let mut arguments = vec!["canister", "call"];
                arguments.extend(options.contains("--query").then_some("--query"));
                arguments.extend(["-n", &url, "-k", &root_key, "--candid", candid, "--identity", "operator"]);
                arguments.extend([canister.as_str(), method.as_str(), argument.as_str()]);
                let answer = run(&arguments);
                if method == "get_head" {
                    // No block was appended yet.
                    assert!(stdout_of(&answer).contains("NotFound"), "{command}");
                    continue;
                }
                let answer = stdout_of(&answer);
                assert!(is_printed(printed, &answer), "{command}\nprints\n{answer}\nand not\n{printed}");
                made += 1;
            } else if let Some(arguments) = command.strip_prefix("icp identity ") {
                let (arguments, file) = arguments.split_once(" > ").unwrap_or((arguments, ""));
                let arguments: Vec<&str> = ["identity"].into_iter().chain(arguments.split_whitespace()).collect();
                let output = stdout_of(&run(&arguments));
                if arguments[1] == "principal" {
                    principals.push(output.trim().to_string());
                } else if !file.is_empty() {
                    std::fs::write(net.path(file), &output).unwrap();
                }
            } else if command.starts_with("scripts/run index ") {
                // The indexer accepts the key that icp-cli made, and its principal is the exporter's.
                let mut index = Command::new(env!("CARGO_BIN_EXE_coppice"));
                index.args([
                    "index",
                    "--network",
                    &url,
                    "--canister",
                    &canister,
                    "--identity",
                    &net.path("indexer.pem"),
                ]);
                index.args(["--database", &net.database(), "--fetch-root-key", "--until-caught-up", "--json"]);
                index.arg("--volatile-database");
                let report = stdout_of(&index.output().unwrap());
                assert!(report.contains("\"command\":\"index\""), "{report}");
            }
        }
    }
    assert_eq!((made, principals.len()), (5, 2));
}

//! `examples/rollup/README.md`: a canister that contains Coppice on a local network, icp-cli that calls it, and an indexer that copies its
//! chain. The commands are the page's own, run by a shell.

use crate::first_deployment::icp;
use coppice_testkit::api;
use coppice_testkit::demonstration::Demonstration;
use coppice_testkit::embedded::Embedded;
use coppice_testkit::replica::Replica;
use ic_coppice_cli::client::{Client, Wait};
use ic_coppice_cli::gateway::Gateway;
use ic_coppice_interface::ReadError;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn rollup() -> Vec<u8> {
    let directory = std::env::var_os("COPPICE_EXAMPLES").map_or_else(|| root().join("target"), PathBuf::from);
    let wasm = directory.join("coppice_rollup.wasm");
    if !wasm.is_file() {
        assert!(Command::new(root().join("scripts/build-examples")).status().unwrap().success());
    }
    std::fs::read(wasm).unwrap()
}

/// Returns the two code blocks of the page: the server's, and the caller's.
fn commands() -> [String; 2] {
    let page = include_str!("../../../examples/rollup/README.md");
    let mut blocks = page.split("```sh\n").skip(1).map(|rest| rest.split_once("```").unwrap().0.to_string());
    [blocks.next().unwrap(), blocks.next().unwrap()]
}

#[test]
fn commands_of_the_page_find_pruned_payments_in_the_database() {
    let Some(icp) = icp() else {
        println!("not run: there is no icp-cli (COPPICE_ICP names none, and scripts/setup --with-icp installed none)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::create_dir(path("bin")).unwrap();
    std::os::unix::fs::symlink(icp, path("bin/icp")).unwrap();
    let shell = |script: &str| -> String {
        let bin = format!("{}:{}", path("bin"), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.args(["-euc", script]).current_dir(dir.path()).env("HOME", dir.path()).env("PATH", bin);
        let Output { status, stdout, stderr } = bash.env("DO_NOT_TRACK", "1").output().unwrap();
        let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(status.success(), "{script}\n{stdout}\n{stderr}");
        stdout
    };
    let [server, calls] = commands();
    let server: Vec<&str> = server.trim().lines().collect();
    let [build, new, serving] = server[..] else { panic!("{server:?}") };
    assert_eq!(build, "scripts/build-examples");
    shell(new);
    let options = "scripts/run serve --api --empty --wasm target/coppice_rollup.wasm --allow \"$(icp identity principal --identity me)\"";
    assert_eq!(serving, options);
    let me = shell("icp identity principal --identity me").trim().parse().unwrap();

    ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    let client: Arc<Client<Embedded>> = Arc::new(Embedded::start(rollup()).unwrap());
    api::allow(&client, &[me]).unwrap();
    assert!(calls.contains(&client.transport().canister().to_text()));
    let replica = Replica::new(client.transport().share());
    let gateway = Gateway::bind(0).unwrap().answering(Box::new(move |request| {
        api::answer(&replica, request.asked.method(), request.path(), request.asked.body())
    }));
    let url = gateway.url();
    let mut demonstration = Demonstration::complete(Arc::clone(&client)).unwrap();
    // Until the process ends.
    std::thread::spawn(move || {
        gateway.serve_while(&demonstration.client(), || {
            loop {
                demonstration.step().unwrap();
                std::thread::sleep(Duration::from_millis(100));
            }
        })
    });

    let database = format!("sqlite://{}", path("chain.db"));
    // The directory of temporary files may be in memory.
    let indexed = format!("{database} --volatile-database --receipts");
    let did = root().join("examples/rollup/rollup.did").display().to_string();
    let of_page = [
        ("sqlite://chain.db --receipts", &*indexed),
        ("sqlite://chain.db --order", &*format!("{database} --order")),
        ("http://127.0.0.1:8080", &*url),
        ("scripts/run", env!("CARGO_BIN_EXE_coppice")),
        ("examples/rollup/rollup.did", &did),
        ("sleep 1", "sleep 0.2"),
    ];
    let calls = of_page.iter().fold(calls, |calls, (of_page, here)| {
        assert!(calls.contains(of_page), "{of_page} is missing:\n{calls}");
        calls.replace(of_page, here)
    });
    let (calls, get) = calls.trim().rsplit_once('\n').unwrap();
    let output = shell(calls);
    assert!(output.contains("\"command\":\"index\""), "{output}");
    // The indexer's acknowledgement lets the canister prune.
    let pruned = || matches!(client.get_block(1u64).wait(), Ok(Err(ReadError::Pruned { .. })));
    let waited = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        pruned()
    });
    assert!(waited, "block 1 is kept");
    let found = shell(&format!("me={me}\n{get}"));
    let blocks: Vec<u64> = found.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    assert_eq!((blocks.len(), blocks.last()), (6, Some(&1)), "{found}");
}

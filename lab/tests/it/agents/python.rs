//! The code of `docs/python.md`, against `serve --api`.

use super::served::{PRINCIPAL, Served, adapted, block, code_of, not_run, root, succeed};
use std::process::Command;

#[test]
fn page_of_python_runs() {
    let python = root().join("target/python-agent/bin/python");
    if !python.is_file() {
        not_run("the page of Python; scripts/setup --with-python-agent installs its package");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&["--api", "--allow", PRINCIPAL, "--blk", &block(dir.path())]);
    // The page's paths are relative to the workspace.
    let outputs = code_of("python.md").into_iter().map(|(name, code)| {
        let file = dir.path().join(&name);
        std::fs::write(&file, adapted(&code, &served)).unwrap();
        (name, succeed(Command::new(&python).current_dir(root()).arg(&file)))
    });
    let outputs: Vec<(String, String)> = outputs.collect();
    let expected = [
        "block 702861: 000000000000000000000c835b2adcaedc20fdf6ee440009c249452c726dafae\n\
         2500 transactions, a body of 1381836 bytes\n",
        "[{'type': 'variant', 'value': {'Ok': None}}]\n",
    ];
    assert_eq!(outputs, [("client.py", expected[0]), ("identity.py", expected[1])].map(|(a, b)| (a.into(), b.into())));
}

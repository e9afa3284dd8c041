//! The Python of `docs/guide/client.md`, against `serve --api`.

use super::served::{PRINCIPAL, Served, adapted, block, code_of, not_run, root, succeed};
use std::process::Command;

#[test]
fn python_of_the_client_page_runs() {
    let python = root().join("target/python-agent/bin/python");
    if !python.is_file() {
        not_run("the Python of docs/guide/client.md; scripts/setup --with-python-agent installs its package");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&["--api", "--allow", PRINCIPAL, "--blk", &block(dir.path())]);
    // The page's paths are relative to the workspace.
    let outputs = code_of("guide/client.md").into_iter().map(|(name, code)| {
        let file = dir.path().join(&name);
        std::fs::write(&file, adapted(&code, &served)).unwrap();
        (name, succeed(Command::new(&python).current_dir(root()).arg(&file)))
    });
    let outputs: Vec<(String, String)> = outputs.collect();
    let expected = "block 702861: 000000000000000000000c835b2adcaedc20fdf6ee440009c249452c726dafae, a body of 1381836 bytes\n\
                    {'Ok': None}\n";
    assert_eq!(outputs, [("client.py".to_string(), expected.to_string())]);
}

//! The TypeScript package in an empty project: the code of `docs/guide/typescript.md`, against `serve --api`.

use super::served::{PRINCIPAL, Served, adapted, block, code_of, not_run, root, succeed};
use std::path::Path;
use std::process::Command;

/// Installs the packed package in an empty project. Returns `None` and prints a note without the package, or without npm's registry.
fn install(project: &Path) -> Option<()> {
    let packed = root().join("target/ic-coppice-0.1.0.tgz");
    if !packed.is_file() {
        not_run("the TypeScript package in a project; scripts/typescript did not build it");
        return None;
    }
    std::fs::write(project.join("package.json"), r#"{"type": "module", "private": true}"#).unwrap();
    let npm = |args: &[&str]| Command::new("npm").current_dir(project).args(args).output().unwrap();
    let installed = npm(&["install", "--no-audit", "--no-fund", "--prefer-offline", packed.to_str().unwrap()]);
    if installed.status.success() {
        return Some(());
    }
    assert!(!npm(&["ping"]).status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    not_run("the TypeScript package in a project; npm's registry does not answer");
    None
}

#[test]
fn page_of_typescript_compiles_bundles_and_runs_with_the_packed_package() {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path();
    if install(project).is_none() {
        return;
    }
    let block = block(project);
    let options = ["--api", "--allow", PRINCIPAL, "--blk", &block];
    let served = Served::start(&options);
    let files = code_of("guide/typescript.md");
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["client.ts", "more.ts", "identity.ts"]);
    for (name, code) in &files {
        std::fs::write(project.join(name), adapted(code, &served)).unwrap();
    }
    assert!(files[0].1.lines().count() <= 15, "the client has at most fifteen lines");

    let tool = |name: &str| {
        let mut command = Command::new(root().join("target/bindgen/node_modules/.bin").join(name));
        command.current_dir(project);
        command
    };
    // As a bundler resolves types, then as Node does.
    let strict = ["--strict", "--target", "es2022", "--types", ""];
    let bundler = ["--noEmit", "--module", "esnext", "--moduleResolution", "bundler"];
    succeed(tool("tsc").args(strict).args(bundler).args(&names));
    succeed(tool("tsc").args(strict).args(["--module", "nodenext"]).args(&names));
    let bundle = ["client.ts", "--bundle", "--format=esm", "--platform=browser", "--outfile=bundle.js"];
    succeed(tool("esbuild").args(bundle));

    let run = |file: &str| succeed(Command::new("node").current_dir(project).arg(file));
    let records = |served: &Served| {
        let code = "import { connect } from 'ic-coppice'; const coppice = await connect({ host: 'http://127.0.0.1:8080', \
                    canisterId: 'rwlgt-iiaaa-aaaaa-aaaaa-cai', fetchRootKey: true }); \
                    console.log((await coppice.get_config()).utxo.length, (await coppice.get_storage_status([])).utxo.length);";
        std::fs::write(project.join("records.js"), adapted(code, served)).unwrap();
        run("records.js")
    };
    assert_eq!(records(&served), "1 1\n");
    let client = run("client.js");
    let lines: Vec<&str> = client.lines().collect();
    assert_eq!(lines.len(), 5, "{client}");
    assert_eq!(lines[0], "block 702861: 000000000000000000000c835b2adcaedc20fdf6ee440009c249452c726dafae");
    assert_eq!(lines[1], "2500 transactions, a body of 1381836 bytes");
    let third = "2b22b06220e31781c94ccaa68f654d54749eb37a1ab0de9c3aadd27f075e434b: 0 keys, a receipt of 20 bytes";
    assert_eq!(lines[4], third);
    assert_eq!(run("bundle.js"), client);

    let more = run("more.js");
    assert!(more.starts_with("block 702861, position 2\n702861n 2500\n"), "{more}");
    assert!(more.contains(" bytes exported\n"), "{more}");
    assert!(more.ends_with("the canister refuses: {\"NotFound\":null}\n"), "{more}");
    let output = run("identity.js");
    assert!(output.ends_with(" lines of the log\n"), "{output}");

    // The same package with the build without UTXO records.
    let wasm = std::env::var("COPPICE_BLOCKS_WASM");
    let wasm = wasm.unwrap_or_else(|_| root().join("target/coppice-blocks.wasm").display().to_string());
    let of_blocks = Served::start(&[&options[..], &["--wasm", &wasm]].concat());
    assert_eq!(records(&of_blocks), "0 0\n");
    for (file, expected) in [("client.js", &client), ("more.js", &more)] {
        let code = std::fs::read_to_string(project.join(file)).unwrap();
        let code = code.replace(&served.url, &of_blocks.url).replace(&served.canister, &of_blocks.canister);
        std::fs::write(project.join(file), code).unwrap();
        assert_eq!(&run(file), expected);
    }

    // A canister that contains Coppice.
    let examples = std::env::var("COPPICE_EXAMPLES").unwrap_or_else(|_| root().join("target").display().to_string());
    let rollup = Served::start(&["--api", "--empty", "--wasm", &format!("{examples}/coppice_rollup.wasm")]);
    assert_eq!(records(&rollup), "0 0\n");
}

//! Layers of the canister, cycles of files in each crate, and models that do not import each other.

use coppice_source::{Graph, read};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Layers of the canister, lowest first. A module may import modules of its own layer and of lower layers.
const LAYERS: &[&[&str]] = &[
    &["platform", "sha256", "text"],
    &["storage"],
    &["logs", "settings"],
    &["chain", "utxo", "deletion"],
    &["apply", "export", "external"],
    &["pruning"],
    &["state"],
    &["operation"],
    &["api", "lib"],
];
/// Modules of one layer that must not import each other.
const APART: &[&str] = &["chain", "utxo", "deletion"];

/// The modules of `coppice_model` that are models.
const MODELS: &[&str] = &["chain", "deletion", "documents", "records"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crates of the workspace.
fn crates() -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    members.trim_matches(['[', ']']).split(", ").map(|name| name.trim_matches('"').to_owned()).collect()
}

/// The directory or file directly below `src` that contains a file.
fn module(file: &Path) -> &str {
    let first = file.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs")
}

fn layer(file: &Path) -> usize {
    let module = module(file);
    LAYERS.iter().position(|layer| layer.contains(&module)).unwrap_or_else(|| panic!("{module} has no layer"))
}

/// Imports that the layers forbid.
fn upward(graph: &Graph) -> BTreeSet<String> {
    let is_wrong = |from: &Path, to: &Path| {
        let both = [module(from), module(to)];
        layer(from) < layer(to) || (both[0] != both[1] && both.iter().all(|module| APART.contains(module)))
    };
    let wrong = graph.imports.iter().filter(|((from, to), _)| is_wrong(from, to));
    wrong.map(|((from, to), name)| format!("{} imports {name} of {}", from.display(), to.display())).collect()
}

/// Files outside `state/` that add methods to `State`.
fn files_that_extend_state(graph: &Graph) -> Vec<&Path> {
    let of_state = graph.inherent.iter().filter(|inherent| inherent.name == "State" && module(&inherent.of) == "state");
    of_state.map(|inherent| inherent.file.as_path()).filter(|file| module(file) != "state").collect()
}

fn files_in_cycles(graph: &Graph) -> usize {
    graph.cycles().iter().map(BTreeSet::len).sum()
}

#[test]
fn no_file_of_the_canister_imports_a_higher_layer() {
    let graph = read(&root().join("canister")).unwrap();
    assert_eq!(upward(&graph), BTreeSet::new());
    assert_eq!(files_that_extend_state(&graph), [] as [&Path; 0]);
}

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let with_cycles = crates().into_iter().filter_map(|name| {
        let graph = read(&root().join(&name)).unwrap();
        let cycles = graph.cycles();
        (!cycles.is_empty()).then_some((name, cycles))
    });
    let with_cycles: Vec<_> = with_cycles.collect();
    assert!(with_cycles.is_empty(), "{with_cycles:#?}");
}

/// Imports from one model to another.
fn imports_between_models(graph: &Graph) -> Vec<&(PathBuf, PathBuf)> {
    let is_shared = |from: &Path, to: &Path| {
        let both = [module(from), module(to)];
        both[0] != both[1] && both.iter().all(|module| MODELS.contains(module))
    };
    graph.imports.keys().filter(|(from, to)| is_shared(from, to)).collect()
}

/// Models with shared code would share faults.
#[test]
fn no_model_imports_another_model_or_the_canister() {
    assert_eq!(imports_between_models(&read(&root().join("model")).unwrap()), [] as [&(PathBuf, PathBuf); 0]);
    let manifest = std::fs::read_to_string(root().join("model/Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap();
    let own: Vec<&str> = dependencies.lines().filter(|line| line.starts_with("coppice")).collect();
    assert_eq!(own, ["coppice_interface.workspace = true"]);
    let planted = planted(&[
        ("lib.rs", "mod documents; mod records; mod transactions;"),
        ("records.rs", "pub struct Record;"),
        ("documents/mod.rs", "mod record; use crate::transactions::Tx;"),
        ("documents/record.rs", "use crate::records::Record;"),
        ("transactions.rs", "pub struct Tx;"),
    ]);
    assert_eq!(imports_between_models(&planted), [&("documents/record.rs".into(), "records.rs".into())]);
}

/// A crate with these files and the canister's layers.
fn planted(files: &[(&str, &str)]) -> Graph {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("Cargo.toml"), "name = \"planted\"\n").unwrap();
    for (path, text) in files {
        let path = directory.path().join("src").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    read(directory.path()).unwrap()
}

#[test]
fn a_planted_upward_import_is_found_however_it_is_written() {
    let lib = ("lib.rs", "mod api; mod state; mod storage; mod text;");
    let api = ("api.rs", "pub fn guard() {} pub struct Page; pub mod wire { pub fn arg() {} }");
    let state = ("state/mod.rs", "mod control; pub use control::Control; pub struct State;");
    let control = ("state/control.rs", "use super::State; pub struct Control; impl State { fn set(&self) {} }");
    for (text, found) in [
        ("use crate::api::Page;", "Page of api.rs"),
        ("use crate::api::{self, wire};\npub fn f() { wire::arg() }", "arg of api.rs"),
        ("use crate::api as upper;\npub fn f() { upper::guard() }", "guard of api.rs"),
        ("use crate::api::*;\npub fn f(_: Page) {}", "Page of api.rs"),
        ("pub fn f() { crate::api::guard() }", "guard of api.rs"),
        ("pub fn f() { println!(\"{:?}\", [crate::api::guard()]) }", "guard of api.rs"),
        ("#[update(guard = \"crate::api::guard\")]\nfn f() {}", "guard of api.rs"),
        ("use super::state::Control;", "Control of state/control.rs"),
    ] {
        let graph = planted(&[lib, api, state, control, ("storage.rs", text), ("text.rs", "")]);
        assert!(upward(&graph).contains(&format!("storage.rs imports {found}")), "{text}: {:?}", graph.imports);
    }
    let test = "#[cfg(test)] mod tests { use crate::api::Page; }\n#[cfg(feature = \"bench\")] use crate::api::Page;";
    for text in ["use crate::text;", "pub use other::api::Page;", test, "// use crate::api::Page;"] {
        let graph = planted(&[lib, api, state, control, ("storage.rs", text), ("text.rs", "")]);
        assert_eq!((upward(&graph), files_that_extend_state(&graph)), (BTreeSet::new(), vec![]), "{text}");
    }
    let text = "use crate::storage::Of;";
    let graph = planted(&[lib, api, state, control, ("storage.rs", "pub struct Of;"), ("text.rs", text)]);
    assert_eq!(upward(&graph), BTreeSet::from(["text.rs imports Of of storage.rs".to_owned()]));
    let text = "use crate::state::State; impl State { fn page(&self) {} }";
    let graph = planted(&[lib, ("api.rs", text), state, control, ("storage.rs", ""), ("text.rs", "")]);
    assert_eq!(files_that_extend_state(&graph), [Path::new("api.rs")]);
}

#[test]
fn a_planted_cycle_is_found_and_files_of_one_type_count_as_one() {
    let lib = ("lib.rs", "mod a; mod b; mod c;");
    let cycle = planted(&[
        lib,
        ("a.rs", "use crate::b::f; pub fn g() { f() }"),
        ("b.rs", "use crate::c::h; pub fn f() { h() }"),
        ("c.rs", "pub fn h() { crate::a::g() }"),
    ]);
    assert_eq!(files_in_cycles(&cycle), 3);
    let (store, more) =
        ("use crate::b::Answer; pub struct Store;", "use crate::a::Store; impl Store { pub fn get() {} }");
    let both = [lib, ("a.rs", store), ("b.rs", "pub struct Answer;"), ("c.rs", more)];
    assert_eq!(files_in_cycles(&planted(&both)), 0);
    let both = [lib, ("a.rs", store), ("b.rs", "use crate::a::Store; pub struct Answer(Store);"), ("c.rs", more)];
    assert_eq!(files_in_cycles(&planted(&both)), 3);
}

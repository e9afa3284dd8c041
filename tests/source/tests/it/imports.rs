//! Cycles of files in each crate, and models that do not import each other.

use coppice_source::{Graph, read};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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

fn files_in_cycles(graph: &Graph) -> usize {
    graph.cycles().iter().map(BTreeSet::len).sum()
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
    assert_eq!(imports_between_models(&read(&root().join("testkit/model")).unwrap()), [] as [&(PathBuf, PathBuf); 0]);
    let manifest = std::fs::read_to_string(root().join("testkit/model/Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap();
    let own: Vec<&str> = dependencies.lines().filter(|line| line.contains("coppice")).collect();
    assert_eq!(own, ["ic-coppice-interface.workspace = true"]);
    let planted = planted(&[
        ("lib.rs", "mod documents; mod records; mod transactions;"),
        ("records.rs", "pub struct Record;"),
        ("documents/mod.rs", "mod record; use crate::transactions::Tx;"),
        ("documents/record.rs", "use crate::records::Record;"),
        ("transactions.rs", "pub struct Tx;"),
    ]);
    assert_eq!(imports_between_models(&planted), [&("documents/record.rs".into(), "records.rs".into())]);
}

/// A crate with these files.
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

/// Imports are found however they are written.
#[test]
fn a_planted_import_is_found() {
    let lib = ("lib.rs", "mod api; mod state; mod storage; mod text;");
    let api = ("api.rs", "pub fn guard() {} pub struct Page; pub mod wire { pub fn arg() {} }");
    let state = ("state/mod.rs", "mod control; pub use control::Control; pub struct State;");
    let control = ("state/control.rs", "use super::State; pub struct Control; impl State { fn set(&self) {} }");
    let of_storage = |text| {
        let graph = planted(&[lib, api, state, control, ("storage.rs", text), ("text.rs", "")]);
        let found = graph.imports.into_iter().filter(|((from, _), _)| from == Path::new("storage.rs"));
        found.map(|((_, to), name)| format!("{name} of {}", to.display())).collect::<BTreeSet<_>>()
    };
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
        assert!(of_storage(text).contains(found), "{text}: {:?}", of_storage(text));
    }
    let test = "#[cfg(test)] mod tests { use crate::api::Page; }\n#[cfg(feature = \"bench\")] use crate::api::Page;";
    for text in ["pub use other::api::Page;", test, "// use crate::api::Page;"] {
        assert_eq!(of_storage(text), BTreeSet::new(), "{text}");
    }
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

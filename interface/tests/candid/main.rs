//! `candid/coppice.did` is a product, written by hand: these tests hold it to its rules, to the endpoints' documentation, and to the
//! interface of the last release. That it is the code's is a test of the canister.

mod lint;
mod types;

use candid::types::subtype::{OptReport, subtype_with_config};
use candid::types::{Field, Label, Type, TypeInner};
use candid_parser::utils::{CandidSource, instantiate_candid, service_compatible};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn interface() -> String {
    std::fs::read_to_string(root().join("candid/coppice.did")).unwrap()
}

#[test]
fn the_interface_keeps_every_rule() {
    let findings = lint::findings(&interface());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// What a rule finds where one thing in the interface is otherwise.
#[test]
fn each_rule_finds_what_is_planted() {
    let text = interface();
    let planted: &[(&str, &str, &str)] = &[
        ("has no comment", "// The answer of `append_block`.\ntype AppendBlockResult", "type AppendBlockResult"),
        ("has no comment", "  // The block's number.\n", ""),
        ("has no comment", "  // The header of a kept block; for anyone.\n", ""),
        ("does not stand alone", "  // The block's number.\n", "  // Its number.\n"),
        (
            "does not stand alone",
            "  // The block assembly does not run: records may not be pruned.\n",
            "  // They may not.\n",
        ),
        (
            "does not stand alone",
            "  // The number of outputs that are UTXOs, on all pages.\n",
            "  // Of them, those that are UTXOs.\n",
        ),
        ("does not stand alone", "  // The header of a kept block; for anyone.\n", "  // See there.\n"),
        ("has no comment", "  // The principal that acknowledges. It gets the role `Exporter`.\n", ""),
        ("has no name", "get_block_header : (number : nat64)", "get_block_header : (nat64)"),
        ("is not named after its method", "(AppendBlockResult);", "(PutBlockChunkResult);"),
        ("is not named after its method", "results : vec UtxoCreateResult;", "results : vec UtxoPreserveResult;"),
        ("is numbered", "UtxoCreated", "Result_31"),
        ("has a field without a name", "sha256 : SegmentDigests;", "sha256 : record { blob; blob; blob };"),
        (
            "is a parallel list",
            "  // The blocks that have the transaction.\n",
            "  // The heights of the blocks, in the same order.\n",
        ),
        (
            "says none by 0",
            "  // The moment at which the job began, in Unix nanoseconds; none before.\n",
            "  // The moment; 0: none.\n",
        ),
        ("differs by a letter", "UtxoPrunerError", "PruneErrors"),
        ("does not begin with Utxo", "UtxoPassedOver", "PassedOver"),
        (
            "is not where it is used first",
            "// Somebody who copies the chain.",
            "// A stray.\ntype Stray = nat;\n// Somebody who copies the chain.",
        ),
    ];
    for (rule, from, to) in planted {
        assert!(text.contains(from), "nothing to plant in: {from}");
        let findings = lint::findings(&text.replace(from, to));
        assert!(findings.iter().any(|finding| finding.contains(rule)), "{rule}: {findings:?}");
    }
}

/// The sentences that stand before each endpoint in the canister's source.
fn endpoints() -> BTreeMap<String, String> {
    let sources = root().join("canister/src");
    let mut files = Vec::new();
    let others = std::fs::read_dir(sources.join("api/endpoints")).unwrap();
    files.extend(others.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|of| of == "rs")));
    let mut found = BTreeMap::new();
    for file in files {
        let (mut said, mut is_endpoint, mut in_attribute) = (Vec::new(), false, false);
        for line in std::fs::read_to_string(file).unwrap().lines() {
            if let Some(sentence) = line.strip_prefix("///") {
                said.push(sentence.trim().to_string());
            } else if line.starts_with("#[") || in_attribute {
                is_endpoint |= line.starts_with("#[query") || line.starts_with("#[update");
                in_attribute = !line.ends_with(']');
            } else {
                if let Some(name) =
                    line.trim_start_matches("pub ").strip_prefix("fn ").and_then(|rest| rest.split('(').next())
                    && is_endpoint
                {
                    found.insert(name.to_string(), said.join(" "));
                }
                (said, is_endpoint) = (Vec::new(), false);
            }
        }
    }
    found
}

#[test]
fn a_methods_comment_is_its_endpoints() {
    let (text, endpoints) = (interface(), endpoints());
    assert!(endpoints.len() > 80, "{} endpoints", endpoints.len());
    assert_eq!(differing(&lint::methods(&text), &endpoints), [""; 0]);
    // The comparison sees another word, a comment that is gone, and a method that only one of them has.
    for (from, to, found) in [
        (
            "  // The header of a kept block; for anyone.",
            "  // The header of any block; for anyone.",
            vec!["get_block_header"],
        ),
        ("  // The header of a kept block; for anyone.\n", "", vec!["get_block_header"]),
        ("  get_block_header : ", "  get_header : ", vec!["get_block_header", "get_header"]),
    ] {
        assert!(text.contains(from), "nothing to plant in: {from}");
        assert_eq!(differing(&lint::methods(&text.replace(from, to)), &endpoints), found);
    }
}

/// Names of which not the same is said here and there.
fn differing(here: &BTreeMap<String, String>, there: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    names.into_iter().filter(|name| here.get(*name) != there.get(*name)).cloned().collect()
}

/// Who depends on the crate reads what who has the file reads. Each has types that the other has not: results have no name in Rust.
#[test]
fn a_types_comment_is_the_crates() {
    let (text, mut crates) = (interface(), types::comments(&root().join("interface/src")));
    let compare = |text: &str, crates: &BTreeMap<String, String>| {
        let mut file = lint::types(text);
        file.retain(|name, _| crates.contains_key(name));
        let both = crates.iter().filter(|(name, _)| file.contains_key(*name));
        (file.len(), differing(&file, &both.map(|(name, said)| (name.clone(), said.clone())).collect()))
    };
    let (compared, found) = compare(&text, &crates);
    assert!(compared > 1_200, "{compared} are compared");
    assert_eq!(found, [""; 0]);
    let number = "  // The block's number.\n";
    assert!(text.contains(number));
    assert!(!compare(&text.replacen(number, "  // Its number.\n", 1), &crates).1.is_empty());
    *crates.get_mut("UtxoCreateError.TooLarge").unwrap() += " More.";
    assert_eq!(compare(&text, &crates).1, ["UtxoCreateError.TooLarge"]);
}

/// Whether who speaks the old interface is understood by the new one: every method, and the argument of installation, which Candid's own
/// comparison leaves out.
///
/// # Errors
/// A sentence that says what is not understood.
fn understands(new: &str, old: &str) -> Result<(), String> {
    service_compatible(CandidSource::Text(new), CandidSource::Text(old)).map_err(|why| why.to_string())?;
    let load = |text| instantiate_candid(CandidSource::Text(text)).map_err(|why| why.to_string());
    let ((new_args, (mut types, _)), (old_args, (old_types, _))) = (load(new)?, load(old)?);
    let tuple = |args: Vec<Type>| -> Type {
        let field = |(at, ty)| Field { id: Label::Id(at).into(), ty };
        TypeInner::Record((0..).zip(args).map(field).collect()).into()
    };
    let old_args = types.merge_type(old_types, tuple(old_args));
    // An option that is another one's would be taken for none, without a word.
    subtype_with_config(OptReport::Error, &mut HashSet::new(), &types, &old_args, &tuple(new_args))
        .map_err(|why| format!("the argument of installation: {why}"))
}

/// Types come from the crate of the interface: nothing depends on the canister's.
#[test]
fn nobody_depends_on_the_canister() {
    let depends = |manifest: &str| {
        let lines = manifest.lines().map(str::trim_start);
        lines.into_iter().any(|line| line.starts_with("coppice_canister") || line.contains("path = \"canister\""))
    };
    assert!(depends("coppice_canister = { path = \"canister\" }") && depends("coppice_canister.workspace = true"));
    assert!(!depends("[profile.dev.package.coppice_canister]"));
    let (mut folders, mut manifests) = (vec![root()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (name, path) = (entry.file_name(), entry.path());
            let is_ours =
                entry.file_type().unwrap().is_dir() && name != "target" && !name.to_string_lossy().starts_with('.');
            if is_ours && name != "node_modules" {
                folders.push(path);
            } else if name == "Cargo.toml" {
                manifests += 1;
                assert!(!depends(&std::fs::read_to_string(&path).unwrap()), "{}", path.display());
            }
        }
    }
    assert!(manifests >= 8, "{manifests} manifests");
}

/// A client of the last release understands this interface.
#[test]
fn the_last_releases_clients_are_understood() {
    let git = |args: &[&str]| {
        let out = Command::new("git").arg("-C").arg(root()).args(args).output().expect("git is there");
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    // Only git's own word that there is no release is believed.
    if git(&["tag", "--list", "v[0-9]*"]).trim().is_empty() {
        println!("not run: there is no release yet to compare the interface with");
        return;
    }
    let tag = git(&["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]);
    understands(&interface(), &git(&["show", &format!("{}:candid/coppice.did", tag.trim())])).unwrap();
}

/// The check sees what it is for: a field that is gone from an answer, and a new one that must be there in an argument.
#[test]
fn a_change_that_breaks_clients_is_found() {
    let text = interface();
    let new = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        understands(&text.replace(from, to), &text)
    };
    new("health : ()", "health : ()").unwrap();
    assert!(new("monotonic_timestamp : nat64;", "").is_err());
    assert!(new("drop_guard : bool;", "drop_guard : bool; why : text;").is_err());
    new("drop_guard : bool;", "drop_guard : bool; why : opt text;").unwrap();
    // The argument of installation, as well: a field that must be there, one that is gone, one of another type, another argument.
    assert!(new("  operators : vec principal;", "  operators : vec principal; why : text;").is_err());
    assert!(new("  log_class : opt nat32;", "  log_class : opt text;").is_err());
    assert!(new("  Upgrade : opt ConfigChange;", "").is_err());
    assert!(
        new("service : (arg : opt CanisterArg) -> {", "service : (arg : opt CanisterArg, why : text) -> {").is_err()
    );
    new("  operators : vec principal;", "").unwrap();
    new("  operators : vec principal;", "  operators : vec principal; why : opt text;").unwrap();
}

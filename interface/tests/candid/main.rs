//! `candid/coppice.did` is a product, written by hand: these tests hold it to its rules, to the endpoints' documentation, and to the
//! interface of the last release. That it is the code's is a test of the canister.

mod lint;

use candid_parser::utils::{CandidSource, service_compatible};
use std::collections::BTreeMap;
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
    let mut files = vec![sources.join("lib.rs")];
    let others = std::fs::read_dir(sources.join("endpoints")).unwrap();
    files.extend(others.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|of| of == "rs")));
    let mut found = BTreeMap::new();
    for file in files {
        let (mut said, mut is_endpoint) = (Vec::new(), false);
        for line in std::fs::read_to_string(file).unwrap().lines() {
            if let Some(sentence) = line.strip_prefix("///") {
                said.push(sentence.trim().to_string());
            } else if line.starts_with("#[") {
                is_endpoint |= line.starts_with("#[query") || line.starts_with("#[update");
            } else {
                if let Some(name) = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next())
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
    let (methods, endpoints) = (lint::methods(&interface()), endpoints());
    assert!(endpoints.len() > 80, "{} endpoints", endpoints.len());
    assert_eq!(methods.keys().collect::<Vec<_>>(), endpoints.keys().collect::<Vec<_>>());
    for (name, said) in methods {
        assert_eq!(said, endpoints[&name], "{name}");
    }
}

/// A client of the last release understands this interface.
#[test]
fn the_last_releases_clients_are_understood() {
    let git = |args: &[&str]| {
        let out = Command::new("git").arg("-C").arg(root()).args(args).output().ok().filter(|out| out.status.success());
        out.map(|out| String::from_utf8(out.stdout).unwrap())
    };
    let Some(tag) = git(&["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]) else {
        println!("not run: there is no release yet to compare the interface with");
        return;
    };
    let old = git(&["show", &format!("{}:candid/coppice.did", tag.trim())]).expect("the release has an interface");
    service_compatible(CandidSource::Text(&interface()), CandidSource::Text(&old)).unwrap();
}

/// The check sees what it is for: a field that is gone from an answer, and a new one that must be there in an argument.
#[test]
fn a_change_that_breaks_clients_is_found() {
    let text = interface();
    let new = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        service_compatible(CandidSource::Text(&text.replace(from, to)), CandidSource::Text(&text))
    };
    new("health : ()", "health : ()").unwrap();
    assert!(new("monotonic_timestamp : nat64;", "").is_err());
    assert!(new("drop_guard : bool;", "drop_guard : bool; why : text;").is_err());
    new("drop_guard : bool;", "drop_guard : bool; why : opt text;").unwrap();
}

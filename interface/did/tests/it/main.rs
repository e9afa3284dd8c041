//! Tests of `candid/*.did`: the files are those that the program writes, agree with the crate's types, and keep the rules of comments and
//! names.

mod host;
mod lint;

use candid::Principal;
use candid::types::internal::TypeContainer;
use candid::types::subtype::{OptReport, subtype_with_config};
use candid::types::{Field, FuncMode, Function, Label, Type, TypeInner};
use candid_parser::utils::{CandidSource, instantiate_candid, service_compatible, service_equal};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn interface() -> String {
    std::fs::read_to_string(root().join("candid/coppice.did")).unwrap()
}

fn file(name: &str) -> String {
    std::fs::read_to_string(root().join("candid").join(name)).unwrap()
}

#[test]
fn files_are_those_that_the_program_writes() {
    for (name, text) in coppice_did::files(&root()).unwrap() {
        assert!(file(name) == text, "candid/{name} is stale: run `cargo run -p coppice_did`");
    }
}

/// The constants are what `candid` writes before the values of each reply.
#[test]
fn type_tables_are_those_that_the_program_writes() {
    let file = std::fs::read_to_string(root().join(coppice_did::tables::FILE)).unwrap();
    let text = coppice_did::tables::text().unwrap();
    assert!(file == text, "{} is stale: run `cargo run -p coppice_did`", coppice_did::tables::FILE);
    let [append, read] = [
        candid::encode_one(Ok::<(), AppendError>(())).unwrap(),
        candid::encode_one(Err::<Block, _>(ReadError::NotFound)).unwrap(),
    ];
    for (method, message, values) in [("append_block", append, 1), ("get_block", read, 2)] {
        let table = message[..message.len() - values].escape_ascii();
        assert!(text.contains(&format!("pub const {method}: &[u8] = b\"{table}\";")), "{method}");
    }
}

/// A client of a part can call a canister with the whole interface.
#[test]
fn parts_are_understood_by_the_whole_interface() {
    for name in ["blocks.did", "utxo.did"] {
        let part = file(name);
        service_compatible(CandidSource::Text(&interface()), CandidSource::Text(&part)).unwrap();
        let methods = lint::methods(&part).len();
        assert!(methods > 10 && methods < lint::methods(&interface()).len(), "{name} has {methods} methods");
    }
}

#[test]
fn comments_of_the_part_without_utxo_records_name_no_method_that_the_part_lacks() {
    let part = file("blocks.did");
    let own = lint::methods(&part);
    for method in coppice_did::methods::all().unwrap() {
        let is_named = part.contains(&format!("`{}`", method.name));
        assert!(!is_named || own.contains_key(method.name), "blocks.did names {}", method.name);
    }
}

#[test]
fn each_comment_ends_with_the_roles_of_its_method() {
    for method in coppice_did::methods::all().unwrap() {
        let roles: Vec<String> = method.roles.iter().map(|role| format!("`{role:?}`")).collect();
        let roles = if roles.is_empty() { "anyone".to_owned() } else { roles.join(", ") };
        assert!(method.comment.ends_with(&format!(". Callable by: {roles}.")), "{}: {}", method.name, method.comment);
    }
}

#[test]
fn the_interface_keeps_every_rule() {
    let findings = lint::findings(&interface());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn each_rule_finds_a_planted_violation() {
    let text = interface();
    let planted: &[(&str, &str, &str)] = &[
        ("has no comment", "  // The block's number.\n", ""),
        ("does not stand alone", "  // The block's number.\n", "  // Its number.\n"),
        ("has no name", "get_block : (number : nat64)", "get_block : (nat64)"),
        ("is numbered", "UtxoCreated", "Result_31"),
        ("has a field without a name", "sha256 : SegmentDigests;", "sha256 : record { blob; blob; blob };"),
        ("is a parallel list", "  // The block's number.\n", "  // The heights of the blocks, in the same order.\n"),
        ("says none by 0", "  // The block's number.\n", "  // The number; 0: none.\n"),
        ("differs by a letter", "UtxoPrunerError", "PruneErrors"),
        ("does not begin with Utxo", "UtxoSkipped", "Skipped"),
        ("BlobDeletionLease.expires_at is a time", "  expires_at_ns : nat64;\n", "  expires_at : nat64;\n"),
        (
            "backlog.lag is a time",
            "  held_blocks : nat64;\n",
            "  held_blocks : nat64;\n  // The lag.\n  backlog : record { lag : opt nat64 };\n",
        ),
        ("BadBody.at is a time", "    // The byte in the body, from 0.\n", "    // The end of the run.\n"),
        ("ListedBlobDeletion.ends is a time", "  until_ns : opt nat64;", "  ends : opt nat64;"),
        ("UtxoPrunerSettings.job_limit is a time", "  job_timeout_secs : nat64;", "  job_limit : nat32;"),
        (
            "extend_blob_deletion_batch.lock_timeout is a time",
            "lock_timeout_secs : nat64) ->",
            "lock_timeout : nat64) ->",
        ),
    ];
    for (rule, from, to) in planted {
        assert!(text.contains(from), "nothing to plant in: {from}");
        let findings = lint::findings(&text.replace(from, to));
        assert!(findings.iter().any(|finding| finding.contains(rule)), "{rule}: {findings:?}");
    }
}

macro_rules! declared {
    ($($area:ident {
        $($(#[doc = $doc:literal])* $kind:ident $name:ident($($arg:ident: $type:ty),*) -> $reply:ty $(, or $error:ty)?: $roles:ident, $largest:expr;)*
    })*) => {
        /// The interface, as Candid's own text.
        fn service() -> String {
            let mut types = TypeContainer::new();
            let mut methods: Vec<(String, Type)> = Vec::new();
            $($({
                let modes = if stringify!($kind) == "query" { vec![FuncMode::Query] } else { Vec::new() };
                let args = vec![$(types.add::<$type>()),*];
                let rets = if stringify!($reply $($error)?) == "()" { Vec::new() } else { vec![types.add::<declared!(@reply $reply $(, $error)?)>()] };
                methods.push((stringify!($name).into(), TypeInner::Func(Function { modes, args, rets }).into()));
            })*)*
            methods.sort();
            let installed = vec![types.add::<Option<CanisterArg>>()];
            let class = TypeInner::Class(installed, TypeInner::Service(methods).into()).into();
            candid::pretty::candid::compile(&types.env, &Some(class))
        }
    };
    (@reply $answer:ty) => { $answer };
    (@reply $answer:ty, $error:ty) => { Result<$answer, $error> };
}
methods!(declared);

#[test]
fn the_candid_file_means_what_the_types_mean() {
    let (declared, file) = (service(), interface());
    let compare = |file: &str| service_equal(CandidSource::Text(&declared), CandidSource::Text(file));
    if let Err(why) = compare(&file) {
        panic!("{why}\n\n{declared}");
    }
    // The comparison detects another type, a missing field, and another kind of call.
    for (from, to) in [
        ("  timestamp_secs : nat64;", "  timestamp_secs : nat32;"),
        ("  keys : nat32;\n", ""),
        ("  health : () -> (Health) query;", "  health : () -> (Health);"),
    ] {
        assert!(file.contains(from), "nothing to plant in: {from}");
        assert!(compare(&file.replacen(from, to, 1)).is_err(), "{from}");
    }
}

/// Checks that clients of the old interface can call the new one: every method, and the argument of installation, which Candid's own
/// comparison leaves out.
///
/// # Errors
/// A sentence that names the incompatibility.
fn understands(new: &str, old: &str) -> Result<(), String> {
    service_compatible(CandidSource::Text(new), CandidSource::Text(old)).map_err(|why| why.to_string())?;
    let load = |text| instantiate_candid(CandidSource::Text(text)).map_err(|why| why.to_string());
    let ((new_args, (mut types, _)), (old_args, (old_types, _))) = (load(new)?, load(old)?);
    let tuple = |args: Vec<Type>| -> Type {
        let field = |(at, ty)| Field { id: Label::Id(at).into(), ty };
        TypeInner::Record((0..).zip(args).map(field).collect()).into()
    };
    let old_args = types.merge_type(old_types, tuple(old_args));
    // An option of another type would silently be read as `null`.
    subtype_with_config(OptReport::Error, &mut HashSet::new(), &types, &old_args, &tuple(new_args))
        .map_err(|why| format!("the argument of installation: {why}"))
}

/// Types come from the interface crate, so that only canisters depend on the library.
#[test]
fn only_canisters_depend_on_the_library() {
    let depends = |manifest: &str, on: &str| manifest.lines().any(|line| line.trim_start().starts_with(on));
    let mut canisters = Vec::new();
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
                let manifest = std::fs::read_to_string(&path).unwrap();
                assert!(!depends(&manifest, "coppice_canister."), "{}", path.display());
                if depends(&manifest, "ic-coppice.") {
                    canisters.push(path.parent().unwrap().strip_prefix(root()).unwrap().to_path_buf());
                }
            }
        }
    }
    assert!(manifests >= 8, "{manifests} manifests");
    canisters.sort();
    assert_eq!(canisters, [Path::new("canister/product"), Path::new("examples/rollup")]);
}

/// A client of the last release understands this interface.
#[test]
fn clients_of_the_last_release_are_understood() {
    let git = |args: &[&str]| {
        let out = Command::new("git").arg("-C").arg(root()).args(args).output().expect("git is there");
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    if git(&["tag", "--list", "v[0-9]*"]).trim().is_empty() {
        println!("not run: there is no release yet to compare the interface with");
        return;
    }
    let tag = git(&["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]);
    understands(&interface(), &git(&["show", &format!("{}:candid/coppice.did", tag.trim())])).unwrap();
}

#[test]
fn a_change_that_breaks_clients_is_found() {
    let text = interface();
    let new = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        understands(&text.replace(from, to), &text)
    };
    new("health : ()", "health : ()").unwrap();
    assert!(new("monotonic_timestamp_secs : nat64;", "").is_err());
    assert!(new("drop_guard : bool;", "drop_guard : bool; why : text;").is_err());
    new("drop_guard : bool;", "drop_guard : bool; why : opt text;").unwrap();
    // The argument of installation, too: a required new field, a removed field, a field of another type, a second argument.
    assert!(new("  operators : vec principal;", "  operators : vec principal; why : text;").is_err());
    assert!(new("  log_class : opt nat32;", "  log_class : opt text;").is_err());
    assert!(new("  Upgrade : opt ConfigChange;", "").is_err());
    assert!(
        new("service : (arg : opt CanisterArg) -> Coppice", "service : (arg : opt CanisterArg, why : text) -> Coppice")
            .is_err()
    );
    new("  operators : vec principal;", "").unwrap();
    new("  operators : vec principal;", "  operators : vec principal; why : opt text;").unwrap();
}

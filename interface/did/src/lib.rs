//! Candid files of the interface, written from its declarations in Rust: names, types, order and comments.
//!
//! [`host()`] does the same for a canister that contains Coppice. [`sources`] reads the types, [`methods`](mod@methods) lists the methods, and [`print`](mod@print) writes both as Candid.

mod merge;
pub mod methods;
pub mod print;
pub mod sources;
pub mod tables;

use ic_coppice_interface::Role;
use ic_coppice_interface::methods::OF_RECORDS;
use methods::Method;
use print::Printer;
use sources::Types;
use std::path::Path;

/// Head of each file.
const HEAD: &str = "\
Written by `cargo run -p coppice_did` from the crate `interface`. The service comes first, and the types follow in the order of their \
use. `docs/reference/glossary.md` explains the names.

Conventions: a bound \"before\" a number excludes the number. A value that is absent is `null`, not 0. In settings 0 switches a rule \
off, and as a `limit` 0 means the default that the comment names. The name of a time or of a duration ends with its unit, `_secs` or \
`_ns`; times count from the Unix epoch. `unmined_since`, `preserve_until` and `postponed_until` are heights. Hashes of UTXO records have \
32 bytes in internal order; a hash of another length is refused with a typed error. An update may be repeated when its answer was lost; \
the comment of each method describes the effect of a repeated call, and ends with the roles that may call it. Controllers have the roles \
`Operator` and `Admin`. A query that anyone may call needs a role when it is sent as an update, unless the setting `open_queries` is \
on.";

/// Returns the files of `candid/`, each with its text, for a checkout.
///
/// # Errors
/// A source file cannot be read or parsed, or a type has a shape that Candid does not have.
pub fn files(root: &Path) -> anyhow::Result<[(&'static str, String); 3]> {
    let types = Types::read(&root.join("interface/src"))?;
    let all = methods::all()?;
    let is_of_records = |method: &&Method| OF_RECORDS.contains(&method.area);
    // Methods that a feeder may call, and the queries of its area.
    let is_for_feeder = |method: &&Method| match method.is_query {
        true => method.area == "utxo" || method.name == "health",
        false => method.roles.contains(&Role::UtxoFeeder),
    };
    let write = |about: &str, methods: &[&Method], argument: Option<&str>| {
        Printer::new(&types).file(&format!("{about}\n\n{HEAD}"), methods, argument)
    };
    Ok([
        (
            "coppice.did",
            write(
                "Coppice: keeps a chain's blocks, receipts, index and UTXO records, and prunes them.",
                &all.iter().collect::<Vec<_>>(),
                Some("CanisterArg"),
            )?,
        ),
        (
            "blocks.did",
            write(
                "Coppice without UTXO records: keeps a chain's blocks, receipts and index, and prunes them. The types are those of \
                 `coppice.did`; what is about UTXO records is `null` in answers and refused in arguments.",
                &all.iter().filter(|method| !is_of_records(method)).collect::<Vec<_>>(),
                Some("CanisterArg"),
            )?,
        ),
        (
            "utxo.did",
            write(
                "Coppice, the part that a feeder of UTXO records needs: updates of the role `UtxoFeeder`, and queries of records.",
                &all.iter().filter(is_for_feeder).collect::<Vec<_>>(),
                None,
            )?,
        ),
    ])
}

/// Returns the interface of a canister that contains Coppice. `own` is what `candid::export_service!` returns for its methods, and `exported`
/// what its `coppice_methods` returns.
///
/// # Errors
/// As [`files`]; `own` is not Candid or declares a method of Coppice; `exported` has a name that is not one.
pub fn host(own: &str, exported: &[&[&str]]) -> anyhow::Result<String> {
    let types = Types::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../src"))?;
    let all = methods::all()?;
    let exported = exported.concat();
    if let Some(unknown) = exported.iter().find(|name| !all.iter().any(|method| method.name == **name)) {
        anyhow::bail!("Coppice has no method {unknown}");
    }
    let methods: Vec<&Method> = all.iter().filter(|method| exported.contains(&method.name)).collect();
    let head = format!("A canister that contains Coppice.\n\n{HEAD}");
    merge::merge(&Printer::new(&types).file(&head, &methods, Some("CanisterArg"))?, own)
}

//! Arguments of an upgrade and of an installation: refused if they would be ignored.

use candid_parser::parse_idl_args;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::wasm;
use ic_coppice_interface::*;

/// Upgrades to the same wasm with an argument in Candid's text.
fn upgrade(coppice: &Coppice, argument: &str) -> Result<(), String> {
    let bytes = parse_idl_args(argument).unwrap_or_else(|error| panic!("{argument}: {error}")).to_bytes().unwrap();
    let upgraded = coppice.ic.upgrade(coppice.id, wasm::canister(), bytes, Who::Controller.principal());
    upgraded.map_err(|reject| format!("{} {}", reject.error_code, reject.message))
}

#[test]
fn argument_that_would_be_ignored_is_refused_with_a_sentence_and_changes_nothing() {
    let coppice = Coppice::new();
    coppice.append_plain(0..3, 100);
    let config = || coppice.anyone().get_config().answer();
    let (before, chain) = (config(), coppice.chain());
    for (argument, part) in [
        ("(\"text\")", "upgrade: the argument is not of the type opt variant { Upgrade : opt ConfigChange }"),
        ("(record { nodes = opt (34 : nat32) })", "pass (null) for none"),
        ("(opt variant { upgrade = opt record { nodes = opt (34 : nat32) } })", "pass (null) for none"),
        ("(opt variant { Upgrade = opt record { nodez = opt (34 : nat32) } })", "Upgrade has an unknown field"),
        ("(opt variant { Upgrade = opt record { nodes = opt (34 : nat32); nodez = null } })", "check the spelling"),
        (
            "(opt variant { Upgrade = opt record { utxo = opt record { nodes = opt 34 } } })",
            "utxo has an unknown field",
        ),
        ("(opt variant { Upgrade = opt record { nodes = opt \"34\" } })", "nodes is text, not nat32"),
        ("(opt variant { Upgrade = opt record { nodes = opt (0 : nat32) } })", "nodes"),
    ] {
        let refused = upgrade(&coppice, argument).expect_err(argument);
        assert!(refused.starts_with("IC0503") && refused.contains(part), "{argument}: {refused}");
        assert_eq!((config(), coppice.chain()), (before.clone(), chain.clone()), "{argument}");
    }
    // dfx passes the argument of the installation again.
    for argument in [
        "()",
        "(null)",
        "(opt variant { Upgrade })",
        "(opt variant { Init = record { operators = vec {}; producers = vec {} } })",
    ] {
        upgrade(&coppice, argument).unwrap_or_else(|why| panic!("{argument}: {why}"));
        assert_eq!(config(), before, "{argument}");
    }
    upgrade(&coppice, "(opt variant { Upgrade = opt record { nodes = opt (34 : nat32) } })").unwrap();
    assert_eq!(config(), Config { nodes: 34, ..before });
    assert_eq!(coppice.chain(), chain);
}

/// A setting of the installation that is ignored could never be changed later.
#[test]
fn installation_with_an_argument_that_would_be_ignored_is_refused() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let controller = Who::Controller.principal();
    let reinstall = |argument: &str| {
        let bytes = parse_idl_args(argument).unwrap().to_bytes().unwrap();
        let done = host.reinstall_canister(coppice.id, wasm::canister(), bytes, Some(controller));
        done.map_err(|reject| reject.reject_message)
    };
    for (argument, part) in [
        ("(record { log_class = opt (65536 : nat32) })", "install: the argument is not of the type opt variant { Init"),
        (
            "(opt variant { Init = record { log_clas = opt (65536 : nat32); operators = vec {}; producers = vec {} } })",
            "Init has an unknown field",
        ),
        (
            "(opt variant { Init = record { log_class = opt 65536; operators = vec {}; producers = vec {} } })",
            "log_class is int, not nat32",
        ),
        ("(opt variant { Upgrade = null })", "takes `Init`, not `Upgrade`"),
    ] {
        let refused = reinstall(argument).expect_err(argument);
        assert!(refused.contains(part), "{argument}: {refused}");
    }
    let init =
        "(opt variant { Init = record { log_class = opt (131072 : nat32); operators = vec {}; producers = vec {} } })";
    reinstall(init).unwrap();
    assert_eq!(coppice.anyone().get_config().answer().log_class, 131_072);
}

//! Argument of an installation or an upgrade, which must be understood as a whole.
//!
//! Candid reads an optional value of another type as absent, and skips a field that it does not know: a misspelt setting, or one of the
//! wrong type, would be ignored. Therefore the types of the message are compared with the expected ones, field by field.

use super::{platform, undecodable};
use binrw::BinRead;
use candid::CandidType;
use candid::binary_parser::Header;
use candid::types::subtype::{Gamma, OptReport, subtype_with_config};
use candid::types::{Label, Type, TypeEnv, TypeInner};
use ic_coppice_interface::{CanisterArg, ConfigChange, InitArg};
use std::io::Cursor;

/// The longest name of a type that an error quotes.
const LONGEST_TYPE: usize = 60;

/// Decodes the argument of an installation. Traps unless it is absent, or each field of it is understood.
pub fn of_init(bytes: Vec<u8>) -> InitArg {
    let arg = read(&bytes, true).and_then(|arg| match arg {
        None => Ok(InitArg::default()),
        Some(CanisterArg::Init(arg)) => Ok(arg),
        Some(CanisterArg::Upgrade(_)) => Err("a new canister takes `Init`, not `Upgrade`".into()),
    });
    arg.unwrap_or_else(|why| platform::trap(&format!("install: {why}")))
}

/// Decodes the argument of an upgrade. Traps unless it is absent, an `Init` of any kind, which is ignored, or each field of it is understood.
pub fn of_upgrade(bytes: Vec<u8>) -> Option<ConfigChange> {
    match read(&bytes, false).unwrap_or_else(|why| platform::trap(&format!("upgrade: {why}"))) {
        Some(CanisterArg::Upgrade(change)) => change,
        None | Some(CanisterArg::Init(_)) => None,
    }
}

fn read(bytes: &[u8], installs: bool) -> Result<Option<CanisterArg>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut message = Cursor::new(bytes);
    let types = Header::read_le_args(&mut message, (None,)).ok().and_then(|header| header.to_types().ok());
    let (types, arguments) = types.ok_or("the types of the argument cannot be read")?;
    let [argument] = arguments.as_slice() else {
        return if arguments.is_empty() { Ok(None) } else { Err("pass one argument, not several".into()) };
    };
    let arg = candid::decode_one(bytes).map_err(|error| undecodable(&error))?;
    let payload = match &arg {
        None => {
            let values = bytes.get(message.position() as usize..).unwrap_or_default();
            let is_null = match traced(&types, argument)?.as_ref() {
                TypeInner::Null | TypeInner::Reserved => true,
                TypeInner::Opt(_) => values == [0],
                _ => false,
            };
            let variant = if installs { "Init : InitArg" } else { "Upgrade : opt ConfigChange" };
            let why = || format!("the argument is not of the type opt variant {{ {variant} }}; pass (null) for none");
            return if is_null { Ok(None) } else { Err(why()) };
        }
        Some(CanisterArg::Init(_)) if installs => ("Init", InitArg::ty()),
        Some(CanisterArg::Upgrade(_)) if !installs => ("Upgrade", Option::<ConfigChange>::ty()),
        // `of_init` refuses `Upgrade`, and `of_upgrade` ignores `Init`.
        Some(_) => return Ok(arg),
    };
    compare(&types, &chosen(&types, argument, payload.0)?, &payload.1, payload.0)?;
    Ok(arg)
}

fn traced(types: &TypeEnv, wire: &Type) -> Result<Type, String> {
    types.trace_type(wire).map_err(|error| undecodable(&error))
}

/// Returns the type that the message has for the payload of a case of the argument's variant.
fn chosen(types: &TypeEnv, argument: &Type, case: &str) -> Result<Type, String> {
    let mut wire = traced(types, argument)?;
    while let TypeInner::Opt(inner) = wire.as_ref() {
        wire = traced(types, inner)?;
    }
    let TypeInner::Variant(cases) = wire.as_ref() else { return Err("the argument must be a variant".into()) };
    let found = cases.iter().find(|of| of.id.get_id() == Label::Named(case.into()).get_id());
    found.map(|of| of.ty.clone()).ok_or_else(|| format!("the argument has no {case}"))
}

/// Compares a type of the message with the expected type. Fails with a sentence if a value of it could be ignored.
fn compare(types: &TypeEnv, wire: &Type, expected: &Type, name: &str) -> Result<(), String> {
    let wire = traced(types, wire)?;
    match (wire.as_ref(), expected.as_ref()) {
        (TypeInner::Null, TypeInner::Opt(_)) => Ok(()),
        (TypeInner::Opt(wire), TypeInner::Opt(expected)) => compare(types, wire, expected, name),
        (_, TypeInner::Opt(expected)) => compare(types, &wire, expected, name),
        (TypeInner::Record(fields), TypeInner::Record(known)) => fields.iter().try_for_each(|field| {
            let of = known.iter().find(|of| of.id.get_id() == field.id.get_id());
            let unknown = || format!("{name} has an unknown field (hash {}): check the spelling", field.id.get_id());
            let of = of.ok_or_else(unknown)?;
            compare(types, &field.ty, &of.ty, &of.id.to_string())
        }),
        _ => {
            let same = subtype_with_config(OptReport::Error, &mut Gamma::new(), types, &wire, expected);
            same.map_err(|_| format!("{name} is {}, not {}", shown(&wire), shown(expected)))
        }
    }
}

/// Returns a type as an error shows it.
fn shown(of: &Type) -> String {
    let text = of.to_string();
    if text.len() <= LONGEST_TYPE { text } else { "of another type".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candid::types::value::IDLArgs;
    use candid_parser::parse_idl_args;

    fn read_text(text: &str, installs: bool) -> Result<Option<CanisterArg>, String> {
        let args: IDLArgs = parse_idl_args(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        read(&args.to_bytes().unwrap(), installs)
    }

    fn change(nodes: u32) -> Option<CanisterArg> {
        Some(CanisterArg::Upgrade(Some(ConfigChange { nodes: Some(nodes), ..ConfigChange::default() })))
    }

    #[test]
    fn absent_argument_changes_nothing() {
        for installs in [true, false] {
            assert_eq!(read(&[], installs), Ok(None));
            for text in ["()", "(null)", "(null : opt text)", "(null : reserved)", "(null : opt variant { Upgrade })"] {
                assert_eq!(read_text(text, installs), Ok(None), "{text}");
            }
        }
    }

    #[test]
    fn argument_that_is_understood_is_read() {
        for text in [
            "(opt variant { Upgrade = opt record { nodes = opt (34 : nat32) } })",
            "(variant { Upgrade = opt record { nodes = opt (34 : nat32) } })",
            "(opt variant { Upgrade = record { nodes = 34 : nat32; max_stable_pages = null } })",
            "(opt variant { Upgrade = opt record { nodes = opt (34 : nat32); utxo = null } })",
            "(opt variant { Upgrade = opt record { nodes = opt (34 : nat32); utxo = opt record {} } })",
        ] {
            let read = read_text(text, false).unwrap_or_else(|error| panic!("{text}: {error}"));
            let Some(CanisterArg::Upgrade(Some(of))) = read else { panic!("{text}: {read:?}") };
            assert_eq!(of.nodes, Some(34), "{text}");
        }
        for (text, arg) in [("(opt variant { Upgrade })", None), ("(opt variant { Upgrade = null })", None)] {
            assert_eq!(read_text(text, false), Ok(Some(CanisterArg::Upgrade(arg))), "{text}");
        }
        // As clients encode it that know the interface: with the types of both cases.
        let bytes = candid::encode_one(change(34)).unwrap();
        assert_eq!(read(&bytes, false), Ok(change(34)));
        let init = Some(CanisterArg::Init(InitArg { log_class: Some(65_536), ..InitArg::default() }));
        for installs in [true, false] {
            assert_eq!(read(&candid::encode_one(init.clone()).unwrap(), installs), Ok(init.clone()));
            assert_eq!(read(&candid::encode_one(init.clone().unwrap()).unwrap(), installs), Ok(init.clone()));
        }
    }

    #[test]
    fn argument_that_would_be_ignored_is_refused_with_a_sentence() {
        for (text, part) in [
            ("(\"text\")", "not of the type opt variant { Upgrade : opt ConfigChange }; pass (null)"),
            ("(opt \"text\")", "not of the type"),
            ("(\"\")", "not of the type"),
            ("(false)", "not of the type"),
            ("(opt null)", "not of the type"),
            ("(record { nodes = opt (34 : nat32) })", "not of the type"),
            ("(opt record { nodes = opt (34 : nat32) })", "not of the type"),
            ("(opt variant { upgrade = opt record { nodes = opt (34 : nat32) } })", "not of the type"),
            ("(opt variant { Upgrade = opt record { nodez = opt (34 : nat32) } })", "Upgrade has an unknown field"),
            ("(opt variant { Upgrade = opt record { nodes = null; nodez = null } })", "check the spelling"),
            ("(opt variant { Upgrade = opt record { utxo = opt record { nodes = 1 } } })", "utxo has an unknown field"),
            ("(opt variant { Upgrade = opt record { nodes = opt 34 } })", "nodes is int, not nat32"),
            ("(opt variant { Upgrade = opt record { nodes = opt \"34\" } })", "nodes is text, not nat32"),
            ("(opt variant { Upgrade = opt record { nodes = opt opt (34 : nat32) } })", "nodes is opt nat32"),
            ("(opt variant { Upgrade = \"text\" })", "Upgrade is text, not of another type"),
            ("(null, null)", "one argument"),
        ] {
            let refused = read_text(text, false).expect_err(text);
            assert!(refused.contains(part), "{text}: {refused}");
        }
        let refused =
            read_text("(opt variant { Init = record { operators = vec {}; producers = vec {}; node = 1 } })", true);
        assert!(refused.as_ref().is_err_and(|why| why.contains("Init has an unknown field")), "{refused:?}");
        assert!(read_text("(\"text\")", true).unwrap_err().contains("Init : InitArg"));
        for bytes in [&b"DIDL"[..], b"DIDX\0\0", b"\0", b"DIDL\x01\x6e\x71\x01\x00"] {
            assert!(read(bytes, false).is_err(), "{bytes:?}");
        }
    }

    /// Deployment tools pass the argument of the installation to an upgrade, which ignores it, whatever its fields.
    #[test]
    fn init_argument_of_another_version_is_accepted_in_an_upgrade() {
        let text = "(opt variant { Init = record { operators = vec {}; producers = vec {}; of_before = opt 1 } })";
        assert!(matches!(read_text(text, false), Ok(Some(CanisterArg::Init(_)))));
    }
}

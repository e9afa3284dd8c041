//! Interface of a canister that contains Coppice: its own methods, and those of Coppice that it exports.

use anyhow::{Context, Result, bail};
use candid::pretty::candid::{compile, pp_args, pp_function, pp_text, pp_ty};
use candid::types::subtype::{Gamma, equal};
use candid::types::{Field, Function, Type, TypeEnv, TypeInner};
use candid_parser::utils::CandidSource;
use std::collections::BTreeMap;

/// The line that begins the service.
const SERVICE: &str = "type Coppice = service {\n";
/// The beginning of the last line.
const ACTOR: &str = "\nservice : ";

/// New names of a canister's types.
type Names = BTreeMap<String, String>;

/// Returns `coppice`, the interface of the exported methods, with the methods and types of `own`.
///
/// A type that both declare alike is there once. A type of the canister that differs from Coppice's type of its name is renamed: `Host` stands
/// before the name. The argument of installation is the canister's, or Coppice's if the canister decodes it from bytes, as `canister_arg`
/// does.
///
/// # Errors
/// `own` is not Candid, or declares a method of Coppice.
pub fn merge(coppice: &str, own: &str) -> Result<String> {
    let load = |text: &str, of: &str| {
        let (env, service) = CandidSource::Text(text).load().with_context(|| format!("the interface of {of}"))?;
        service.map(|service| (env, service)).with_context(|| format!("the interface of {of} has no service"))
    };
    let (env, service) = load(coppice, "Coppice")?;
    let (own_env, own_service) = load(own, "the canister")?;
    for (name, _) in own_env.as_service(&own_service)? {
        if env.get_method(&service, name).is_ok() {
            bail!("the canister declares {name}, which is a method of Coppice");
        }
    }
    let names = names(&env, &own_env)?;
    let renamed = |of: &Type| rename(of, &names);
    let mut types = TypeEnv::new();
    for (name, of) in own_env.to_sorted_iter() {
        let new = names.get(name).unwrap_or(name);
        if new != name || env.find_type(name).is_err() {
            types.0.insert(new.clone(), renamed(of));
        }
    }
    let (arguments, actor) = match own_service.as_ref() {
        TypeInner::Class(arguments, actor) => (arguments.iter().map(renamed).collect(), renamed(actor)),
        _ => (Vec::new(), renamed(&own_service)),
    };
    let is_bytes = arguments.iter().any(|argument: &Type| *argument.as_ref() == TypeInner::Vec(TypeInner::Nat8.into()));
    let declared = compile(&types, &None);
    let methods: String = own_env.as_service(&actor)?.iter().map(method).collect();
    let (head, rest) = coppice.split_once(SERVICE).context("the interface of Coppice has no service")?;
    let (rest, coppice_actor) = rest.rsplit_once(ACTOR).context("the interface of Coppice ends with its service")?;
    let service = match arguments.is_empty() {
        _ if is_bytes => coppice_actor.to_string(),
        true => "Coppice\n".to_string(),
        false => format!("{} -> Coppice\n", pp_args(&arguments).pretty(80)),
    };
    Ok(format!(
        "{head}{SERVICE}\n  // ==== This canister ====\n\n{methods}\n{rest}\n// ==== This canister ====\n\n{declared}{ACTOR}{service}"
    ))
}

/// Returns the line of a method.
fn method((name, of): &(String, Type)) -> String {
    let of = match of.as_ref() {
        TypeInner::Func(function) => pp_function(function).pretty(120).to_string(),
        _ => pp_ty(of).pretty(120).to_string(),
    };
    format!("  {} : {of};\n", pp_text(name).pretty(120))
}

/// New names of those types of the canister that differ from Coppice's type of their name.
fn names(env: &TypeEnv, own: &TypeEnv) -> Result<Names> {
    // Each type of the canister under a name that no type of Coppice has.
    let aside = |name: &str| format!("{name}/own");
    let all: Names = own.0.keys().map(|name| (name.clone(), aside(name))).collect();
    let mut both = env.clone();
    both.0.extend(own.0.iter().map(|(name, of)| (aside(name), rename(of, &all))));
    let var = |name: String| Type::from(TypeInner::Var(name));
    let differs = |name: &&String| {
        env.0.contains_key(*name) && equal(&mut Gamma::new(), &both, &var((*name).clone()), &var(aside(name))).is_err()
    };
    let mut names = Names::new();
    for name in own.0.keys().filter(differs) {
        let new = format!("Host{name}");
        if env.0.contains_key(&new) || own.0.contains_key(&new) {
            bail!("the canister's type {name} differs from Coppice's, and {new} is another type");
        }
        names.insert(name.clone(), new);
    }
    Ok(names)
}

/// Returns a type in which declared types have their new names.
fn rename(of: &Type, names: &Names) -> Type {
    let renamed = |of: &Type| rename(of, names);
    let all = |of: &[Type]| of.iter().map(renamed).collect();
    let fields =
        |fields: &[Field]| fields.iter().map(|Field { id, ty }| Field { id: id.clone(), ty: renamed(ty) }).collect();
    let methods = |methods: &[(String, Type)]| methods.iter().map(|(name, of)| (name.clone(), renamed(of))).collect();
    match of.as_ref() {
        TypeInner::Var(name) => TypeInner::Var(names.get(name).unwrap_or(name).clone()),
        TypeInner::Opt(of) => TypeInner::Opt(renamed(of)),
        TypeInner::Vec(of) => TypeInner::Vec(renamed(of)),
        TypeInner::Record(of) => TypeInner::Record(fields(of)),
        TypeInner::Variant(of) => TypeInner::Variant(fields(of)),
        TypeInner::Func(Function { modes, args, rets }) => {
            TypeInner::Func(Function { modes: modes.clone(), args: all(args), rets: all(rets) })
        }
        TypeInner::Service(of) => TypeInner::Service(methods(of)),
        TypeInner::Class(arguments, of) => TypeInner::Class(all(arguments), renamed(of)),
        other => other.clone(),
    }
    .into()
}

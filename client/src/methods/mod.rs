//! The methods of the interface, under their own names, one file an area.
//!
//! `update` and `query` say how a method is called. What stands behind `or` is the canister's own reason why not, which comes as
//! [`Error::Refused`](crate::Error). A test holds all of them against `candid/coppice.did`.

mod blocks;
mod deletion;
mod export;
mod operation;
mod prune;
mod utxo;
mod utxo_pruner;

/// Methods of the client, and in tests what Candid says of them.
macro_rules! methods {
    ($(
        $(#[doc = $doc:literal])*
        $kind:ident $name:ident($($arg:ident: $type:ty),*) -> $reply:ty $(, or $error:ty)?;
    )*) => {
        impl<T: $crate::Transport> $crate::Client<T> {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// When the canister refuses, or there is no answer.
                pub async fn $name(&self $(, $arg: $type)*) -> methods!(@result $reply $(, $error)?) {
                    methods!(@call self, $kind, stringify!($name), ($($arg,)*) $(, $error)?)
                }
            )*
        }

        /// The methods and their types.
        #[cfg(test)]
        pub(super) fn signatures(types: &mut candid::types::internal::TypeContainer) -> Vec<super::Signature> {
            vec![$(
                super::Signature {
                    method: stringify!($name),
                    query: stringify!($kind) == "query",
                    args: vec![$(types.add::<$type>()),*],
                    replies: vec![types.add::<methods!(@answer $reply $(, $error)?)>()],
                }
            ),*]
        }
    };
    (@result $reply:ty) => { Result<$reply, $crate::CallError> };
    (@result $reply:ty, $error:ty) => { Result<$reply, $crate::Error<$error>> };
    (@answer $reply:ty) => { $reply };
    (@answer $reply:ty, $error:ty) => { Result<$reply, $error> };
    (@call $client:ident, $kind:ident, $name:expr, $args:expr) => { $client.$kind($name, $args).await };
    (@call $client:ident, $kind:ident, $name:expr, $args:expr, $error:ty) => {
        match $client.$kind($name, $args).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err($crate::Error::<$error>::Refused(why)),
            Err(error) => Err($crate::Error::Call(error)),
        }
    };
}
use methods;

/// What Candid says of a method.
#[cfg(test)]
pub(crate) struct Signature {
    pub(crate) method: &'static str,
    query: bool,
    args: Vec<candid::types::Type>,
    pub(crate) replies: Vec<candid::types::Type>,
}

/// All methods.
#[cfg(test)]
pub(crate) fn signatures(types: &mut candid::types::internal::TypeContainer) -> Vec<Signature> {
    let areas = [
        blocks::signatures,
        deletion::signatures,
        export::signatures,
        operation::signatures,
        prune::signatures,
        utxo::signatures,
        utxo_pruner::signatures,
    ];
    let mut all: Vec<Signature> = areas.into_iter().flat_map(|area| area(types)).collect();
    all.push(utxo_pruner::assembly(types));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use candid::types::internal::TypeContainer;
    use candid::types::subtype::equal;
    use candid::types::{FuncMode, Function, Type, TypeInner};
    use candid_parser::utils::{CandidSource, instantiate_candid};
    use std::collections::{BTreeMap, BTreeSet, HashSet};
    use std::path::Path;

    /// The service, as this client speaks to it.
    fn spoken() -> String {
        let mut types = TypeContainer::new();
        let mut all = signatures(&mut types);
        all.sort_by_key(|signature| signature.method);
        let methods = all.into_iter().map(|Signature { method, query, args, replies }| {
            let modes = if query { vec![FuncMode::Query] } else { Vec::new() };
            let function = Function { modes, args, rets: replies };
            (method.to_string(), TypeInner::Func(function).into())
        });
        let service = TypeInner::Service(methods.collect()).into();
        let installed = TypeInner::Class(vec![types.add::<Option<coppice_interface::CanisterArg>>()], service).into();
        candid::pretty::candid::compile(&types.env, &Some(installed))
    }

    /// Methods that are not the same in both, by name.
    fn differing(spoken: &str, file: &str) -> Vec<String> {
        let load = |text: &str| instantiate_candid(CandidSource::Text(text)).unwrap().1;
        let ((mut types, spoken), (others, file)) = (load(spoken), load(file));
        let file = types.merge_type(others, file);
        let methods =
            |service| -> BTreeMap<String, Type> { types.as_service(service).unwrap().iter().cloned().collect() };
        let (spoken, file) = (methods(&spoken), methods(&file));
        let is_same = |name: &String| match (spoken.get(name), file.get(name)) {
            (Some(spoken), Some(file)) => equal(&mut HashSet::new(), &types, spoken, file).is_ok(),
            _ => false,
        };
        let names: BTreeSet<&String> = spoken.keys().chain(file.keys()).collect();
        names.into_iter().filter(|name| !is_same(name)).cloned().collect()
    }

    #[test]
    fn the_client_speaks_the_whole_interface_and_nothing_else() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../candid/coppice.did");
        let (spoken, file) = (spoken(), std::fs::read_to_string(file).unwrap());
        assert_eq!(differing(&spoken, &file), [""; 0]);
        // The comparison sees what it is there for.
        for (from, to, methods) in [
            ("  health : ", "  wealth : ", ["health", "wealth"].as_slice()),
            ("get_config : () -> (Config) query;", "get_config : () -> (Config);", &["get_config"]),
            ("(nat64, nat8, nat64, nat64)", "(nat64, nat8, nat64, nat32)", &["read_segment"]),
        ] {
            let other = spoken.replacen(from, to, 1);
            assert_ne!(other, spoken, "{from}");
            assert_eq!(differing(&other, &file), methods);
        }
    }
}

//! Type tables of messages as constants: the bytes before the values of a reply, and of the arguments that are read without their types.
//!
//! `candid` builds a table anew for each message, which takes 100,000 instructions for a look-up. The table depends on the type alone.

use candid::CandidType;
use candid::ser::TypeSerialize;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// The file with the constants, from the root of the checkout.
pub const FILE: &str = "canister/src/api/wire/tables.rs";

const HEAD: &str = "\
//! Type tables of messages: the bytes before the values. Written by `cargo run -p coppice_did`.
#![allow(non_upper_case_globals, dead_code)]
";

/// Returns the bytes of a message before a value of this type.
fn table<T: CandidType>() -> candid::Result<Vec<u8>> {
    let mut types = TypeSerialize::new();
    types.push_type(&T::ty())?;
    types.serialize()?;
    Ok([b"DIDL", types.get_result()].concat())
}

macro_rules! replies {
    ($($area:ident {
        $($(#[doc = $doc:literal])* $kind:ident $name:ident $args:tt -> $answer:ty $(, or $error:ty)?: $roles:ident, $largest:expr;)*
    })*) => {
        fn replies() -> candid::Result<Vec<(&'static str, Vec<u8>)>> {
            Ok(vec![$($((stringify!($name), table::<replies!(@of $answer $(, $error)?)>()?),)*)*])
        }
    };
    (@of $answer:ty) => { $answer };
    (@of $answer:ty, $error:ty) => { Result<$answer, $error> };
}
methods!(replies);

/// Arguments that the canister reads without their types, by the names of their types.
fn arguments() -> candid::Result<Vec<(&'static str, Vec<u8>)>> {
    Ok(vec![
        ("block", table::<AppendBlock>()?),
        ("blocks", table::<Vec<AppendBlock>>()?),
        ("bytes", table::<ByteBuf>()?),
        ("creations", table::<UtxoCreateBatch>()?),
        ("spends", table::<UtxoSpendBatch>()?),
        ("mined", table::<UtxoSetMinedBatch>()?),
    ])
}

fn module(name: &str, about: &str, tables: &[(&str, Vec<u8>)]) -> String {
    let constant =
        |(name, bytes): &(&str, Vec<u8>)| format!("    pub const {name}: &[u8] = b\"{}\";\n", bytes.escape_ascii());
    let constants: String = tables.iter().map(constant).collect();
    format!("\n/// {about}\n#[rustfmt::skip]\npub mod {name} {{\n{constants}}}\n")
}

/// Returns the text of the file.
///
/// # Errors
/// A type cannot be encoded.
pub fn text() -> anyhow::Result<String> {
    let replies = module("replies", "Replies, by method.", &replies()?);
    let arguments = module("arguments", "Arguments that are read without their types.", &arguments()?);
    Ok([HEAD, &replies, &arguments].concat())
}

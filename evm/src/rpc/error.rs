//! Errors of the JSON-RPC: their codes, and what they carry.

use crate::Wrong;
use crate::answer::quantity;
use crate::source::Failure;
use ic_coppice_cli::exit::why;
use jsonrpsee::types::ErrorObjectOwned;
use serde_json::{Value, json};
use std::ops::RangeInclusive;

/// An argument that is invalid here.
const INVALID: i32 = -32602;
/// The chain cannot be read now, or does not prove itself.
const INTERNAL: i32 = -32603;
/// The answer would be longer than allowed.
const LIMIT: i32 = -32005;
/// The server has no such block.
const UNKNOWN: i32 = -32000;
/// The block was pruned.
const PRUNED: i32 = 4444;

/// The reason why there is no answer.
#[derive(Debug)]
pub enum Refusal {
    /// The argument is invalid here.
    Invalid(String),
    /// There is no block at all, or none with the hash.
    Unknown(&'static str),
    /// The answer would be longer than allowed; the range would do.
    Limit(String, RangeInclusive<u64>),
    /// The chain does not answer.
    Failure(Failure),
}

impl<F: Into<Failure>> From<F> for Refusal {
    fn from(failure: F) -> Self {
        Self::Failure(failure.into())
    }
}

impl From<Refusal> for ErrorObjectOwned {
    fn from(refusal: Refusal) -> Self {
        let none = None::<Value>;
        match refusal {
            Refusal::Invalid(why) => Self::owned(INVALID, why, none),
            Refusal::Unknown(why) => Self::owned(UNKNOWN, why, none),
            Refusal::Limit(why, range) => {
                let (from, to) = (quantity(*range.start()), quantity(*range.end()));
                let text = format!("{why}; this range would do: [{}, {}]", text(&from), text(&to));
                Self::owned(LIMIT, text, Some(json!({ "fromBlock": from, "toBlock": to })))
            }
            Refusal::Failure(Failure::Pruned { first }) => {
                let data = json!({ "firstAvailableBlock": quantity(first) });
                Self::owned(PRUNED, "pruned history unavailable", Some(data))
            }
            Refusal::Failure(failure @ Failure::TooMany { .. }) => Self::owned(INTERNAL, failure.to_string(), none),
            Refusal::Failure(Failure::Failed(error)) => {
                let sentence = match error.downcast_ref::<Wrong>() {
                    Some(wrong) => format!("the block does not prove itself: {wrong}"),
                    None => why(&error),
                };
                Self::owned(INTERNAL, sentence, none)
            }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

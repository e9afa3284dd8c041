//! Decoding of replies, within quotas that follow from a reply's length.
//!
//! Candid lets a few bytes say things that take for ever to read: an argument more than the interface has, a `vec null` of 2^62 items. A
//! replica signs what it likes, so each reply is decoded within [`quotas`], over whichever transport it came.

use candid::DecoderConfig;
use candid::utils::{ArgumentDecoder, decode_args_with_config};

/// What decoding a reply may cost for each of its bytes, by `candid`'s measure ([`DecoderConfig::set_decoding_quota`]). A field's name counts
/// in full, and its value may be one byte: no reply of the interface costs 34 for a byte (a test reckons it). What the interface does not
/// have costs fifty times as much, so there is room for fields of a newer canister.
const UNITS_PER_BYTE: usize = 64;
/// What decoding any reply may cost beside.
const UNITS: usize = 100_000;
/// Bytes of a reply's table of types; those of the interface have at most 3,000.
const MAX_TYPES: usize = 16 << 10;

/// The bounds within which a reply of so many bytes is decoded.
fn quotas(bytes: usize) -> DecoderConfig {
    let mut config = DecoderConfig::new();
    // An error's text would else have all of the reply in it.
    config.set_full_error_message(false).set_max_header_len(MAX_TYPES);
    config.set_decoding_quota(bytes.saturating_mul(UNITS_PER_BYTE).saturating_add(UNITS));
    config
}

/// Decodes a reply.
///
/// # Errors
/// When the reply is not of this type, or costs more to decode than any honest reply of its length.
pub(crate) fn decode<R: for<'a> ArgumentDecoder<'a>>(reply: &[u8]) -> candid::Result<R> {
    decode_args_with_config(reply, &quotas(reply.len()))
}

#[cfg(test)]
#[path = "decode/tests.rs"]
mod tests;

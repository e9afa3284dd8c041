//! Decoding of replies, within quotas computed from a reply's length.
//!
//! A few bytes of Candid can take almost unlimited time to decode: an additional argument, or a `vec null` of 2^62 items. A replica may
//! sign any bytes, so each reply is decoded within [`quotas`], with every transport.

use candid::DecoderConfig;
use candid::utils::{ArgumentDecoder, decode_args_with_config};

/// Decoding cost allowed for each byte of a reply, by `candid`'s measure ([`DecoderConfig::set_decoding_quota`]). A field's name counts in
/// full, while its value may be one byte. No reply of the interface costs more than 34 per byte (a test computes it). A field that the
/// interface does not have costs fifty times as much; the difference leaves room for fields of a newer canister.
const UNITS_PER_BYTE: usize = 64;
/// Decoding cost allowed for any reply in addition.
const UNITS: usize = 100_000;
/// Most bytes of a reply's type table. The tables of the interface have at most 3,000.
const MAX_TYPES: usize = 16 << 10;

/// Returns the bounds for decoding a reply of this length.
fn quotas(bytes: usize) -> DecoderConfig {
    let mut config = DecoderConfig::new();
    // Otherwise an error's text would contain the whole reply.
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

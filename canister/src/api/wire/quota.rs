//! Quotas of decoding: what a message may cost before it is refused.

use candid::DecoderConfig;

/// What decoding a message may cost, by `candid`'s own measure ([`DecoderConfig::set_decoding_quota`]): a unit takes some 330
/// instructions at most. The largest batches of a feeder take five sixths of it.
pub const DECODING_QUOTA: usize = 2_800_000;
/// What skipping may cost that nobody knows: fields, arguments, options of another type. It also bounds how deep a value goes: on wasm
/// nothing else does, and the stack would overflow.
const SKIPPING_QUOTA: usize = 1_000;
/// Entries of a message's table of types. The largest of the interface has some 60.
const MAX_TYPES: usize = 500;
/// Bytes of that table.
const MAX_HEADER: usize = 16 << 10;

/// Returns the limits of decoding a message.
pub fn quotas() -> DecoderConfig {
    let mut config = DecoderConfig::new();
    config.set_decoding_quota(DECODING_QUOTA).set_skipping_quota(SKIPPING_QUOTA);
    config.set_max_type_len(MAX_TYPES).set_max_header_len(MAX_HEADER).set_full_error_message(false);
    config
}

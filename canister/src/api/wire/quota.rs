//! Quotas of decoding: limits above which a message is refused.

use candid::DecoderConfig;

/// Maximum cost of decoding a message, in `candid`'s units ([`DecoderConfig::set_decoding_quota`]); a unit takes at most some 330
/// instructions. The largest batches of a feeder cost five sixths of the quota.
pub const DECODING_QUOTA: usize = 2_800_000;
/// Maximum cost of skipping unknown data: fields, arguments, options of another type. The quota also bounds the depth of a value, because
/// on wasm nothing else does and the stack would overflow.
const SKIPPING_QUOTA: usize = 1_000;
/// Maximum entries of a message's type table. The largest table of the interface has some 60.
const MAX_TYPES: usize = 500;
/// Maximum bytes of the type table.
const MAX_HEADER: usize = 16 << 10;

/// Returns the limits of decoding a message of at most this cost.
pub fn quotas(decoding_quota: usize) -> DecoderConfig {
    let mut config = DecoderConfig::new();
    config.set_decoding_quota(decoding_quota).set_skipping_quota(SKIPPING_QUOTA);
    config.set_max_type_len(MAX_TYPES).set_max_header_len(MAX_HEADER).set_full_error_message(false);
    config
}

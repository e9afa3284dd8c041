//! Prices in cycles on a subnet of 13 nodes.

/// Cycles of an ingress message, whatever its size.
pub(crate) const INGRESS: u128 = 1_200_000;
/// Cycles of every byte of an ingress message, envelope and all.
pub(crate) const INGRESS_BYTE: u128 = 2_000;
/// Cycles of an execution, whatever its length.
pub(crate) const EXECUTION: u128 = 5_000_000;
/// Cycles of a call between canisters.
pub(crate) const CALL: u128 = 260_000;
/// Cycles of every byte of a call's payload or reply.
pub(crate) const CALL_BYTE: u128 = 1_000;
/// Bytes of the largest reply to a call, for which its caller pays in advance.
pub(crate) const MAX_REPLY: u128 = 2 << 20;

/// Cycles of a GiB of memory for a second.
const GIB_SECOND: u128 = 127_000;
const GIB_SECOND_IN_BYTE_NANOS: u128 = (1 << 30) * 1_000_000_000;

/// What memory costs over time: whole cycles; the fraction left over is carried on.
pub(crate) fn storage(bytes: u64, nanos: u64, carried: &mut u128) -> u128 {
    let parts = *carried + u128::from(bytes) * u128::from(nanos) * GIB_SECOND;
    *carried = parts % GIB_SECOND_IN_BYTE_NANOS;
    parts / GIB_SECOND_IN_BYTE_NANOS
}

/// The balance below which a canister that uses `bytes` of memory is frozen.
pub(crate) fn freezing_limit(bytes: u64, threshold_seconds: u64) -> u128 {
    (u128::from(bytes) * u128::from(threshold_seconds) * GIB_SECOND) >> 30
}

/// What an ingress message costs whose envelope has so many bytes; the canister that takes it pays.
pub(crate) fn ingress(envelope_bytes: u64) -> u128 {
    INGRESS + INGRESS_BYTE * u128::from(envelope_bytes)
}

/// What is set aside for an execution of at most `instructions`; an instruction costs one cycle.
pub(crate) fn execution(instructions: u64) -> u128 {
    EXECUTION + u128::from(instructions)
}

/// What a call costs in advance, besides the cycles it carries: itself, the longest reply and the callback.
pub(crate) fn call(payload: u64, instruction_limit: u64) -> u128 {
    CALL + CALL_BYTE * u128::from(payload) + CALL_BYTE * MAX_REPLY + execution(instruction_limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gib_for_a_year_is_about_four_trillion() {
        let mut carried = 0;
        let year = 365 * 24 * 3600;
        assert_eq!(storage(1 << 30, year * 1_000_000_000, &mut carried), 127_000 * u128::from(year));
        assert_eq!(freezing_limit(1 << 30, year), 127_000 * u128::from(year));
    }

    #[test]
    fn nothing_is_lost_to_rounding() {
        let mut carried = 0;
        let paid: u128 = (0..1_000_000).map(|_| storage(1 << 20, 1_000_000, &mut carried)).sum();
        assert_eq!(paid, 127_000 * 1_000 / 1_024);
    }
}

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

/// Instructions of storing a chunk of a module, up to 1 MiB.
const STORE_CHUNK: u64 = 200_000_000;
/// Bytes of the largest module, together with its argument, that deployment tools send in one message; larger ones come in chunks.
const MAX_WHOLE_MODULE: usize = 2_000_000;
const CHUNK: usize = 1 << 20;
/// Instructions of compiling a byte of an unpacked module, as measured for a module of 4.8 MB.
const COMPILE_BYTE: u64 = 3_000;
/// A module that the subnet has compiled before is compiled for a hundredth.
const COMPILED_BEFORE: u64 = 100;
/// Instructions of taking or loading a snapshot, besides one per byte.
const SNAPSHOT: u64 = 2_000_000_000;

/// Cycles of a GiB of memory for a second.
const GIB_SECOND: u128 = 127_000;
const GIB_SECOND_IN_BYTE_NANOS: u128 = (1 << 30) * 1_000_000_000;

/// Returns the cost of memory over time, in whole cycles; `carried` keeps the fraction.
pub(crate) fn storage(bytes: u64, nanos: u64, carried: &mut u128) -> u128 {
    let parts = *carried + u128::from(bytes) * u128::from(nanos) * GIB_SECOND;
    *carried = parts % GIB_SECOND_IN_BYTE_NANOS;
    parts / GIB_SECOND_IN_BYTE_NANOS
}

/// Returns the balance below which a canister that uses `bytes` of memory is frozen.
pub(crate) fn freezing_limit(bytes: u64, threshold_seconds: u64) -> u128 {
    (u128::from(bytes) * u128::from(threshold_seconds) * GIB_SECOND) >> 30
}

/// Seconds of storage reserved for a byte on a full subnet: about ten years.
const MAX_RESERVATION_SECONDS: u128 = 300_000_000;

/// Memory usage of the subnet, which determines how many cycles a canister reserves for each byte that it grows by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saturation {
    /// Bytes that all canisters use.
    pub(crate) usage: u64,
    /// Usage up to which nothing is reserved.
    pub(crate) threshold: u64,
    /// Usage at which the reservation per byte is largest.
    pub(crate) capacity: u64,
}

impl Saturation {
    /// Returns the saturation after growing by `bytes`.
    pub(crate) fn with(self, bytes: u64) -> Self {
        Saturation { usage: self.usage.saturating_add(bytes).min(self.capacity), ..self }
    }

    /// Returns the cycles that growing by `bytes` reserves.
    pub(crate) fn reservation(self, bytes: u64) -> u128 {
        self.with(bytes).total().saturating_sub(self.with(0).total())
    }

    /// Returns the cycles that growing from nothing to the usage reserves. The seconds rise linearly from 0 at the threshold, so the sum is
    /// a triangle.
    fn total(self) -> u128 {
        let above = u128::from(self.usage.saturating_sub(self.threshold));
        let most = u128::from(self.capacity.saturating_sub(self.threshold));
        if most == 0 {
            return 0;
        }
        (above * (MAX_RESERVATION_SECONDS * above / most) * GIB_SECOND / 2) >> 30
    }
}

/// Returns the cost of an ingress message by the size of its envelope; the receiving canister pays.
pub(crate) fn ingress(envelope_bytes: u64) -> u128 {
    INGRESS + INGRESS_BYTE * u128::from(envelope_bytes)
}

/// Returns the cycles set aside for an execution of at most `instructions`; an instruction costs one cycle.
pub(crate) fn execution(instructions: u64) -> u128 {
    EXECUTION + u128::from(instructions)
}

/// Returns the cycles charged in advance for a call, without the cycles it carries: the call, the longest reply and the callback.
pub(crate) fn call(payload: u64, instruction_limit: u64) -> u128 {
    CALL + CALL_BYTE * u128::from(payload) + CALL_BYTE * MAX_REPLY + execution(instruction_limit)
}

/// Returns the cycles of the messages that bring a module and an argument; the canister pays. `envelope` returns the size of a message
/// with an argument of that size.
pub(crate) fn bringing(module: usize, argument: usize, envelope: impl Fn(usize) -> u64) -> u128 {
    if module + argument <= MAX_WHOLE_MODULE {
        return ingress(envelope(module + argument));
    }
    let chunks = (0..module).step_by(CHUNK).map(|from| CHUNK.min(module - from));
    let stored: u128 = chunks.map(|bytes| ingress(envelope(bytes)) + execution(STORE_CHUNK)).sum();
    stored + ingress(envelope(argument + module.div_ceil(CHUNK) * 32))
}

/// Returns the instructions of compiling a module, by its unpacked bytes.
pub(crate) fn compiling(unpacked: u64) -> u64 {
    COMPILE_BYTE * unpacked
}

/// Returns the cycles of taking a snapshot of `bytes`.
pub(crate) fn taking(bytes: u64) -> u128 {
    execution(SNAPSHOT + bytes)
}

/// Returns the cycles of loading a snapshot of `bytes`, whose module has `unpacked` bytes.
pub(crate) fn loading(bytes: u64, unpacked: u64) -> u128 {
    execution(SNAPSHOT) + execution(compiling(unpacked) / COMPILED_BEFORE + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u128 = 1_000_000_000;

    /// Figures of the reference server: a module of 4.8 MB costs 10.7 G to bring and 14.5 G to compile; a snapshot of a new Coppice canister
    /// of 235 MB costs 2.24 G to take and 2.39 G to load.
    #[test]
    fn installations_and_snapshots_cost_what_the_reference_server_charges() {
        let (module, near) = (4_823_929, |cycles: u128, expected: u128| cycles.abs_diff(expected) <= expected / 100);
        let envelope = |bytes| bytes as u64 + 150;
        assert!(near(bringing(module, 1_000, envelope), 107 * G / 10));
        assert!(near(execution(compiling(module as u64)), 1_457 * G / 100));
        let bytes = 235_000_000;
        assert!(near(taking(bytes), 224 * G / 100) && near(loading(bytes, module as u64), 239 * G / 100));
        // A compressed module comes in one message.
        assert_eq!(bringing(1_400_000, 1_000, envelope), ingress(1_401_150));
        let edge = |module| bringing(module, 1_000, envelope);
        assert!(edge(MAX_WHOLE_MODULE - 1_000) + execution(STORE_CHUNK) < edge(MAX_WHOLE_MODULE - 999));
    }

    #[test]
    fn gib_for_a_year_costs_about_4_t() {
        let mut carried = 0;
        let year = 365 * 24 * 3600;
        assert_eq!(storage(1 << 30, year * 1_000_000_000, &mut carried), 127_000 * u128::from(year));
        assert_eq!(freezing_limit(1 << 30, year), 127_000 * u128::from(year));
    }

    #[test]
    fn growth_reserves_more_on_a_fuller_subnet() {
        let (gib, most) = (1 << 30, MAX_RESERVATION_SECONDS * GIB_SECOND);
        let at = |usage: u64| Saturation { usage: usage * gib, threshold: 100 * gib, capacity: 200 * gib };
        assert_eq!(at(0).reservation(100 * gib), 0);
        assert_eq!(at(0).reservation(101 * gib), most / 100 / 2);
        assert_eq!(at(150).reservation(2 * gib), most * 51 * 2 / 100);
        // About 38 T per GiB on a full subnet, and nothing beyond its capacity.
        assert_eq!(at(199).reservation(gib), most * 199 / 200);
        assert_eq!(at(200).reservation(gib), 0);
        assert_eq!(Saturation { usage: 0, threshold: gib, capacity: gib }.reservation(gib), 0);
    }

    #[test]
    fn rounding_loses_no_fraction() {
        let mut carried = 0;
        let paid: u128 = (0..1_000_000).map(|_| storage(1 << 20, 1_000_000, &mut carried)).sum();
        assert_eq!(paid, 127_000 * 1_000 / 1_024);
    }
}

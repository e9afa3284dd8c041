//! The platform's limits, which a test may lower or raise.

use std::time::Duration;

use crate::execution::Kind;

/// Bytes of a page of the operating system, the platform's unit of charging and tracking.
pub(crate) const OS_PAGE: usize = 4096;
/// Bytes of a Wasm page, the unit in which stable memory grows.
pub(crate) const WASM_PAGE: u64 = 65_536;
/// Wasm pages of the largest stable memory: 500 GiB.
pub(crate) const MAX_WASM_PAGES: u64 = 500 * (1 << 30) / WASM_PAGE;

/// Bytes of the largest argument of a call between canisters, and of the largest reply to an update: 2 MiB.
pub const MAX_PAYLOAD: usize = 2 << 20;
/// Bytes of the largest ingress message, its envelope and the 32 bytes of its id included.
pub const MAX_INGRESS: usize = 2_097_152;
/// Bytes of the largest reply to a query: 3 MiB.
pub const MAX_QUERY_REPLY: usize = 3 << 20;

/// Instructions that a message pays for each distinct page (4 KiB) of stable memory that it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StablePagePrices {
    /// For the first access of a page, by reading or by writing.
    pub first_access: u64,
    /// For the first write of a page, whether it was read before or not.
    pub first_write: u64,
}

impl StablePagePrices {
    /// Prices of the reference server, PocketIC 10.0.0: reading is free, and a written page costs 1,000.
    pub const TODAY: Self = Self { first_access: 0, first_write: 1_000 };
    /// Approximate prices of newer replicas: 5,000 for the first access, and 5,000 for the first write.
    pub const TOMORROW: Self = Self { first_access: 5_000, first_write: 5_000 };
}

/// Limits of a message and of the subnet, and the one price that newer replicas change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of an update, a timer or a callback: 40 B.
    pub update_instructions: u64,
    /// Instructions of a query: 5 B.
    pub query_instructions: u64,
    /// Instructions of `canister_inspect_message`: 200 M.
    pub inspect_instructions: u64,
    /// Instructions of an installation or an upgrade, all hooks together: 300 B.
    pub install_instructions: u64,
    /// Bytes of distinct stable pages that an update may read, and may write: 2 GiB each.
    pub update_stable_bytes: u64,
    /// The same for a query: 1 GiB each.
    pub query_stable_bytes: u64,
    /// The same for a hook of an installation or upgrade: 8 GiB each.
    pub install_stable_bytes: u64,
    /// Prices of the stable memory pages that a message touches, counted within its instructions. Default: [`StablePagePrices::TODAY`].
    pub stable_page_prices: StablePagePrices,
    /// Wasm pages (64 KiB) of stable memory of one canister: 500 GiB.
    pub canister_stable_pages: u64,
    /// Wasm pages (64 KiB) of stable memory of all canisters together: unlimited. Growing beyond returns -1.
    pub subnet_stable_pages: u64,
    /// Bytes in use by all canisters together, up to which growing memory reserves no cycles: 750 GiB.
    pub subnet_reservation_bytes: u64,
    /// Bytes that the subnet has for canisters, at which growing reserves the most: 2 TiB.
    pub subnet_bytes: u64,
    /// Bytes in use by canisters that are not on this host: 0.
    pub subnet_bytes_elsewhere: u64,
    /// Instructions of a round, including those for heap pages: 7 B. With 0 a round executes nothing.
    pub round_instructions: u64,
    /// Bytes of stable pages and heap pages that a round may dirty: 75 MiB. With less than one page of 4 KiB a round executes nothing.
    pub round_dirty_bytes: u64,
    /// Time by which a round moves the clock: 1 second.
    pub round_duration: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            update_instructions: 40_000_000_000,
            query_instructions: 5_000_000_000,
            inspect_instructions: 200_000_000,
            install_instructions: 300_000_000_000,
            update_stable_bytes: 2 << 30,
            query_stable_bytes: 1 << 30,
            install_stable_bytes: 8 << 30,
            stable_page_prices: StablePagePrices::TODAY,
            canister_stable_pages: MAX_WASM_PAGES,
            subnet_stable_pages: u64::MAX,
            subnet_reservation_bytes: 750 << 30,
            subnet_bytes: 2 << 40,
            subnet_bytes_elsewhere: 0,
            round_instructions: 7_000_000_000,
            round_dirty_bytes: 75 << 20,
            round_duration: Duration::from_secs(1),
        }
    }
}

impl Limits {
    pub(crate) fn instructions(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Start | Kind::Init | Kind::PreUpgrade | Kind::PostUpgrade => self.install_instructions,
            Kind::InspectMessage => self.inspect_instructions,
            Kind::Query => self.query_instructions,
            _ => self.update_instructions,
        }
    }

    /// Returns the most 4 KiB pages of stable memory that may be read, and the most that may be written.
    pub(crate) fn stable_accesses(&self, kind: Kind) -> u64 {
        let bytes = match kind {
            Kind::Start | Kind::Init | Kind::PreUpgrade | Kind::PostUpgrade => self.install_stable_bytes,
            Kind::InspectMessage | Kind::Query => self.query_stable_bytes,
            _ => self.update_stable_bytes,
        };
        bytes / OS_PAGE as u64
    }
}

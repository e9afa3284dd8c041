//! Prices of stable memory pages.

use ic_coppice_host::{Limits, StablePagePrices};

/// The platform whose page prices apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// The reference server.
    Today,
    /// Newer replicas.
    Tomorrow,
}

impl Price {
    /// Returns the platform's limits with these prices.
    pub fn limits(self) -> Limits {
        let stable_page_prices = match self {
            Self::Today => StablePagePrices::TODAY,
            Self::Tomorrow => StablePagePrices::TOMORROW,
        };
        Limits { stable_page_prices, ..Limits::default() }
    }
}

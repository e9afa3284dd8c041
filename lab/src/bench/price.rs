//! Prices of pages of stable memory.

use coppice_host::{Limits, StablePagePrices};

/// What charges for the pages of stable memory that are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// The reference server.
    Today,
    /// Newer replicas.
    Tomorrow,
}

impl Price {
    /// The platform with these prices.
    pub fn limits(self) -> Limits {
        let stable_page_prices = match self {
            Self::Today => StablePagePrices::TODAY,
            Self::Tomorrow => StablePagePrices::TOMORROW,
        };
        Limits { stable_page_prices, ..Limits::default() }
    }
}

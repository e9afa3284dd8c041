//! The types of the Candid interface (`candid/coppice.did`), one file an area.

mod chain;
mod operation;
mod prune;

pub use chain::*;
pub use operation::*;
pub use prune::*;

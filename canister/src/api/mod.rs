//! The types of the Candid interface (`candid/coppice.did`), one file an area.

mod chain;
mod export;
mod keys;
mod operation;
mod prune;
mod utxo;

pub use chain::*;
pub use export::*;
pub use keys::*;
pub use operation::*;
pub use prune::*;
pub use utxo::*;

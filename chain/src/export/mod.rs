//! Exporters: programs that copy the chain, and their progress (`pruning-spec-v1.md` 8.5, `docs/design/export.md`).
//!
//! Pruning must not overtake exporters. An exporter pulls pages of blocks with a query, stores them, and acknowledges them. An exporter's
//! bound is the first block that it has not acknowledged; the smallest bound guards all blocks from there on. Nothing overrides the guard, not even
//! a full canister: at the emergency mark appends are refused, and the refusal names the exporter that holds pruning back.
//!
//! ```text
//!  pruned_before_block        guard                        head
//! ───────┼──────────────────────┼───────────────┼────────────┼──
//!  gone  │ may be pruned        │ a acknowledged│ b too      │ nobody yet
//!                               └ bound of b… ──┴ bound of a ┘   the smallest is the guard
//! ```

mod exporters;
mod guard;
mod page;

pub use exporters::Exporters;
pub use guard::{Guard, is_of_guard};
pub use page::page;

#[cfg(test)]
mod tests;

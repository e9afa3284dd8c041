//! Proofs that a block was in a canister's chain, and the check of all seals of a database (`docs/design/export.md`).
//!
//! ```text
//! database ──▶ rows ─┬─▶ walk: all seals, all certificates                   coppice verify
//!                    └─▶ make ──▶ Proof                                      coppice prove
//!                                   └──▶ check: needs no database            coppice check-proof
//! ```
//! A proof has the header of a block, the seal before it, the leaves of later blocks up to the next certified one, and that one's certificate.
//! No payload is read.

pub mod check;
pub mod digits;
pub mod format;
pub mod make;
pub mod print;
pub mod rows;
#[cfg(test)]
mod tests;
pub mod walk;

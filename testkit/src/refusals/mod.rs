//! Commands against a canister that refuses, once for each case of the error of each method that a command calls: the user reads the error's
//! sentence, and never its `Debug` form.
//!
//! ```text
//! Commands ──▶ played: processes ──▶ play: runs ──▶ judge
//!                                     └─ World: a canister behind a Liar, which records an honest run and then refuses a Case
//! ```
//! A test of a program names its commands in [`Commands`]; another test, ignored, is the process that runs one of them.

mod blocks;
mod cases;
mod commands;
mod judge;
mod liar;
mod play;
mod samples;
mod world;

pub use blocks::{chain, framed};
pub use cases::{Case, Method, all};
pub use commands::{Commands, OF_COPPICE, Row, Run, Treated};
pub use judge::{judge, uncalled};
pub use liar::Liar;
pub use play::{Ran, play, played};
pub use world::World;

//! An Internet Computer in a process: runs the real Wasm of canisters, charges by the platform's prices, and needs no network.
//!
//! # Why
//! A canister's cost depends on instructions, on stable pages, and on the work that survives a trap. Measuring it takes the real Wasm,
//! with thousands of messages, stopped between any two of them. [`Host`] has PocketIC's names and signatures, so a test written for one runs on
//! the other. Only this host has [`Host::step`], [`Host::run_round`], [`Execution`], [`Faults`], [`Limits`] and [`Checkpoint`].
//!
//! # How
//! Wasmtime runs the code and counts the operators by the platform's prices. System calls are charged on top, and at the end of a message
//! the heap pages that it changed. An instance is kept from message to message, together with a shadow copy of its heap and globals to roll
//! back to; after a message the pages that it has written are compared with the copy. Stable memory is a sparse table of pages with an undo
//! log. Messages wait in one queue and are executed one at a time: either as fast as the caller asks, or in rounds, which model how long a
//! client waits when there is more work than fits a second.
//!
//! # Differences from the platform
//! - `memory.grow`, `table.grow`, `data.drop` and `elem.drop` cost 255 instructions, not 300. Printed bytes, including a trap's message,
//!   cost 1 instruction each; the platform charges about 50 as long as its log has room.
//! - A heap page is charged if its content changed. The platform detects changes by page faults, and sometimes charges for a page that was
//!   written without a change.
//! - Ingress is charged as on a PocketIC server, whose envelopes are unsigned: a key and a signature are 137 bytes more.
//! - Canisters start with 100 T cycles. There is one subnet, of 13 nodes, that is never loaded: messages don't expire, and a best-effort
//!   call times out when the clock is moved past its deadline. Only in [`Host::run_round`] do messages wait for lack of time. [`Limits`]
//!   set how full the subnet is, and so how many cycles growing memory reserves. An installation reserves as it grows, not at its end, and
//!   a growing message sees the whole subnet, not the share of one core.
//! - Compiling a module costs 3,000 instructions per byte of it, as measured for one of 4.8 MB; the platform counts the operators of its
//!   instrumented code. Calls of the management canister are free, except the messages that bring a module, compiling it, running its
//!   hooks, and snapshots. The chunks of a module take no memory.
//! - The number of snapshots is not limited. A snapshot that is loaded brings neither settings, cycles, log nor timer back: the timer that is
//!   set then stays, as on the platform.
//! - The clock moves only by [`Host::advance_time`] and [`Host::set_time`].
//! - The management canister answers `raw_rand`, from a fixed seed or as [`Faults::answer_random`] plans, and rejects everything
//!   else.
//! - A module with `canister_heartbeat` or `canister_on_low_wasm_memory` is refused; timers run.
//! - A query's certificate is signed when the canister reads it, with fixed keys ([`certificate`]), and shows the host's clock or the real
//!   time ([`Host::certify_with_real_time`]). Queries can't make calls.
//! - A timer that comes due while the canister is frozen or stopped waits until the canister runs again. As on the platform, a timer that
//!   traps has fired and is no longer set.
//! - Tables aren't rolled back; no compiler makes code that changes them.

mod call_context;
mod canister;
pub mod certificate;
mod compiled;
mod context;
mod cost;
mod cycles;
mod deadlines;
mod engine;
mod execution;
mod faults;
mod heap;
mod host;
mod ingress;
mod install;
mod instance;
mod lifecycle;
mod limits;
mod log;
mod management;
mod module;
mod page_set;
mod reject;
mod rounds;
mod schedule;
mod settings;
mod snapshot;
mod stable_memory;
mod subnet;
mod system_api;
mod trap;
mod written;

pub use call_context::MessageId;
pub use candid::Principal;
pub use compiled::{default_module_cache, set_module_cache};
pub use execution::{Execution, Kind, Outcome, Totals};
pub use faults::{Faults, StableAccess, TrapPoint};
pub use host::Host;
pub use ingress::largest_argument;
pub use limits::{Limits, MAX_INGRESS, MAX_PAYLOAD, MAX_QUERY_REPLY, StablePagePrices};
pub use log::LogRecord;
pub use reject::{ErrorCode, RejectCode, RejectResponse};
pub use rounds::{Completed, Round};
pub use settings::{CanisterSettings, CanisterStatus, Status};
pub use snapshot::{Checkpoint, Snapshot};
pub use trap::INJECTED_FAULT;

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! An Internet Computer in a process: runs the real Wasm of canisters, counts what the platform counts, and needs no
//! network.
//!
//! # Why
//! What a canister costs is decided by instructions, by stable pages and by what survives a trap. Only the real Wasm
//! shows it, thousands of messages at a time, stopped between any two of them. [`Host`] follows PocketIC's names and
//! signatures, so a test written for one runs on the other; what only this host has is named as such: [`Host::step`],
//! [`Host::run_round`], [`Execution`], [`Faults`], [`Limits`], [`Checkpoint`].
//!
//! # How
//! Wasmtime runs the code and counts the operators by the platform's prices; the system API is charged on top, and at a
//! message's end the pages of the heap that it changed. An instance lives on from message to message, beside a shadow
//! copy of its heap and globals to go back to. Stable memory is a sparse table of pages with an undo log. Messages wait
//! in one queue and are executed one at a time: as fast as somebody asks for it, or in rounds, for what a client waits
//! where there is more to do than fits a second.
//!
//! # What differs from the platform
//! - `memory.grow`, `table.grow`, `data.drop` and `elem.drop` cost 255 instructions, not 300. What is printed, a trap's
//!   message included, costs an instruction a byte; the platform takes some 50 for what its log has room for.
//! - A page of the heap is charged where its content changed. The platform finds out by page faults, and now and then
//!   charges for a page that was written and didn't change.
//! - Ingress is charged as on a PocketIC server, whose envelopes aren't signed: a key and a signature are 137 bytes more.
//! - Canisters start with 100 T cycles. There is one subnet, of 13 nodes, that is never loaded: messages don't expire, and a
//!   best-effort call times out when the clock is moved past its deadline. Only [`Host::run_round`] lets messages wait for lack of time. How full the subnet is,
//!   and so what growing reserves, is what [`Limits`] say; an installation reserves as it grows, not at its end, and a
//!   message that grows sees the whole subnet, not the share of one of its cores.
//! - The clock moves only by [`Host::advance_time`] and [`Host::set_time`].
//! - The management canister answers `raw_rand`, from a fixed seed, and rejects everything else.
//! - A query's data certificate is the certified data itself, signed by nobody. Queries can't make calls.
//! - A timer that comes due while the canister is frozen or stopped waits until it isn't. As on the platform, one that
//!   traps has fired and isn't set any more.
//! - Tables aren't rolled back; no compiler makes code that changes them.

mod call_context;
mod canister;
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

//! Newer replicas charge for every page of stable memory that a message touches, some ten times what is charged today. No message
//! comes near a limit of the platform there either, with the largest settings and the worst inputs: on the embedded host only,
//! as no server charges so yet.

mod batches;
mod blocks;
mod conflicts;
mod inputs;
mod large;
mod ticks;

use coppice_host::{Execution, Host, Limits, Outcome, StablePagePrices};
use coppice_interface::ConfigChange;
use coppice_tests::coppice::{Coppice, default_arg};
use std::sync::Arc;

/// Instructions that a tick may take by the settings, at most.
const TICK: u64 = 2_000_000_000;
/// 4 KiB pages that a message may change, heap and stable memory together, before the platform slows a canister down.
const DIRTIED: u64 = (75 << 20) / 4_096;

/// A canister with small log blobs where pages have tomorrow's price.
fn tomorrow() -> (Coppice, Arc<Host>) {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    host.set_limits(Limits { stable_page_prices: StablePagePrices::TOMORROW, ..Limits::default() });
    // What a block's pages take, not its digests.
    coppice.configure(ConfigChange { verify_segments: Some(false), ..ConfigChange::default() });
    (coppice, host)
}

/// The most that a message took since the last time: instructions, and pages changed. Says so.
fn most(host: &Host, what: &str) -> (u64, u64) {
    let messages = host.take_executions();
    assert!(messages.iter().all(|message| message.outcome == Outcome::Completed), "{what}");
    let largest = |of: fn(&Execution) -> u64| messages.iter().map(of).max().expect("there was a message");
    let instructions = largest(|message| message.instructions_charged);
    let dirtied = largest(|message| message.heap_pages_written + message.stable_pages_written);
    let read = largest(|message| message.stable_pages_read);
    let heap = largest(|message| message.heap_pages_written);
    let count = messages.len();
    println!(
        "{what}: of {count} messages the largest took {instructions} instructions, changed {dirtied} pages, {heap} of the heap, and \
         read {read}"
    );
    (instructions, dirtied)
}

//! Prices of newer replicas, which charge about ten times today's price for every page of stable memory that a message touches. No message
//! comes near a limit of the platform there either, with the largest settings and the worst inputs. Runs on the embedded host only, because
//! no server charges these prices yet.

mod batches;
mod blocks;
mod conflicts;
mod inputs;
mod large;
mod ticks;

use coppice_tests::coppice::{Coppice, default_arg};
use ic_coppice_host::{Execution, Host, Limits, Outcome, StablePagePrices};
use ic_coppice_interface::ConfigChange;
use std::sync::Arc;

/// The most instructions that the settings allow a tick.
const TICK: u64 = 2_000_000_000;
/// 4 KiB pages that a message may change, heap and stable memory together, before the platform slows a canister down.
const DIRTIED: u64 = (75 << 20) / 4_096;

/// A canister with small log blobs under tomorrow's page prices.
fn tomorrow() -> (Coppice, Arc<Host>) {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    host.set_limits(Limits { stable_page_prices: StablePagePrices::TOMORROW, ..Limits::default() });
    // Measures a block's pages and not its digests.
    coppice.configure(ConfigChange { verify_segments: Some(false), ..ConfigChange::default() });
    (coppice, host)
}

/// The most that a message took since the last call: instructions, and changed pages. Prints both.
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

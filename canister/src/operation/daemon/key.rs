//! Draw of the hash key, without which nothing is entered. `init` cannot call, so a one-shot asks for the key right after the installation.
//!
//! A draw that is rejected or malformed is repeated after `RETRY_SECS`. A reply that is lost, for example by an upgrade, is noticed by the
//! hooks and by the safety timer. The first key that is stored stays, whatever replies come later.

use crate::logs;
use crate::platform::cycles::{self, Pause};
use crate::platform::timers::Timer;
use crate::platform::{self};
use crate::state::{State, mutate};
use ic_coppice_storage::NS;
use std::mem::replace;

/// Seconds between a draw that failed and the next.
const RETRY_SECS: u64 = 10;

/// Arms the one-shot if there is no key and the cycles pay for timers.
pub fn arm(state: &State, after_secs: u64) {
    if !state.key.is_set() && cycles::pause() != Some(Pause::UntilACall) {
        Timer::Key.once(after_secs * NS, true, || platform::draw(|reply| mutate(|state| take(state, reply))));
    }
}

/// Takes the reply to a draw; logs the first of several failures.
pub fn take(state: &mut State, reply: Result<Vec<u8>, String>) {
    if let Err(why) = state.take_random(reply) {
        if !replace(&mut state.clock.logged_draw, true) {
            logs::error(&format!("hash key: raw_rand gave none ({why}): asked again every {RETRY_SECS} seconds"));
        }
        arm(state, RETRY_SECS);
    }
}

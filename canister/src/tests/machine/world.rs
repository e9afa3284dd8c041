//! Test fixture: a canister that may be upgraded between any two messages. Any message may trap in the middle and be sent again, and may be
//! refused memory.

use crate::api::endpoints::operation;
use crate::operation::daemon;
use crate::platform::timers::Timer;
use crate::platform::{cycles, native};
use crate::{memory, state};
use candid::Principal;
use ic_coppice_chain::owners;
use ic_coppice_interface::{ConfigChange, InitArg};
use ic_coppice_storage::NS;
use std::collections::BTreeMap;

/// Bytes of a blob of the log.
pub const CLASS: u32 = 64 << 10;
/// Seconds after which an upload that is not continued expires.
pub const EXPIRY: u64 = 3_600;
/// Sender of the messages: a producer with all other roles.
pub const PRODUCER: Principal = Principal::from_slice(&[1]);

/// Random outcomes of messages, drawn for each message from one seed.
pub struct World {
    draws: u64,
    slice: u64,
    /// True if memory was refused to the last message.
    pub refused: bool,
    /// Events of a history, with their counts.
    pub met: BTreeMap<&'static str, u64>,
}

impl World {
    /// Returns a new canister whose messages enter, or remove, `slice` references.
    pub fn new(seed: u64, slice: u64, verify: bool) -> Self {
        native::reset();
        native::with(|world| (world.caller, world.controllers) = (PRODUCER, vec![PRODUCER]));
        memory::forget();
        cycles::forget();
        let arg = InitArg { log_class: Some(CLASS), ..InitArg::default() };
        state::init(&arg).unwrap();
        state::mutate(daemon::start);
        let settings = ConfigChange {
            verify_segments: Some(verify),
            upload_expiry_secs: Some(EXPIRY),
            require_export: Some(false),
            ..ConfigChange::default()
        };
        operation::set_config(settings).unwrap();
        let mut world = Self { draws: seed, slice, refused: false, met: BTreeMap::new() };
        world.configure();
        // Blobs of another owner, so that the arena is too small early, at a random point of the history.
        let left = world.draw(100);
        state::mutate(|state| {
            let arena = state.blobs.arena().clone();
            while arena.end() < 16 << 20 || arena.available(state.chain.log_class()) > left {
                state.blobs.allocate(CLASS, owners::KEY_INDEX).unwrap();
            }
        });
        world
    }

    fn configure(&self) {
        state::mutate(|state| state.chain.small_slices = Some(self.slice));
    }

    /// Has messages enter, or take out, so many references.
    pub fn set_slice(&mut self, slice: u64) {
        self.slice = slice;
        self.configure();
    }

    /// SplitMix64.
    fn draw(&mut self, below: u64) -> u64 {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.draws ^ self.draws >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB).rotate_left(33) % below
    }

    fn upgrade(&mut self) {
        memory::forget();
        cycles::forget();
        state::upgrade(None).unwrap();
        state::mutate(|state| {
            daemon::start(state);
        });
        self.configure();
    }

    /// A message that comes until no trap was injected into it.
    ///
    /// # Errors
    /// What the trap says, where the message itself traps.
    pub fn message<T>(&mut self, run: impl Fn() -> T) -> Result<T, String> {
        self.meets("messages");
        if self.draw(12) == 0 {
            self.meets("upgrades");
            self.upgrade();
        }
        if self.draw(6) == 0 {
            let at = self.draw(1 << 12) >> self.draw(13);
            native::with(|world| world.trap_after = Some(at));
            let ended = native::message(&run);
            let struck = native::with(|world| world.trap_after.take()).is_none();
            if !struck {
                self.refused = false;
                return ended.inspect_err(|_| self.upgrade());
            }
            assert!(ended.is_err(), "a trap that nobody noticed");
            self.meets("traps");
            self.upgrade();
        }
        self.refused = self.draw(3) == 0;
        if self.refused {
            let pages = memory::billed_pages();
            native::with(|world| world.max_pages = pages);
        }
        let ended = native::message(&run);
        native::with(|world| world.max_pages = 8_192_000);
        ended.inspect_err(|_| self.upgrade())
    }

    /// Counts something that was met.
    pub fn meets(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// Unix seconds.
    pub fn now(&self) -> u64 {
        crate::platform::time_secs()
    }

    /// Lets time pass, with each firing of the timer in it.
    pub fn pass(&mut self, secs: u64) {
        let end = native::with(|world| world.time_ns) + secs * NS;
        for _ in 0..20_000 {
            let at = state::read(|state| state.pruner.next_tick_ns);
            if at > end {
                native::with(|world| world.time_ns = end);
                return;
            }
            native::with(|world| world.time_ns = at.max(world.time_ns));
            let now = native::with(|world| world.time_ns);
            self.message(|| state::mutate(|state| daemon::fire(state, Timer::Work, now)))
                .unwrap_or_else(|why| panic!("a tick traps: {why}"));
        }
        panic!("ticks follow each other for ever");
    }
}

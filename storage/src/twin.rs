//! Native twin of the platform: sparse stable memory, cycles, time, caller and log, controlled by tests; one world per thread.

use crate::{OS_PAGE, Platform, WASM_PAGE, space};
use ic_principal::Principal;
use ic_stable_structures::Memory;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// Pages of 4 KiB of stable memory that were touched, each counted once.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Pages read or written.
    pub accessed: HashSet<u64>,
    /// Pages written.
    pub dirtied: HashSet<u64>,
}

/// Stable memory, cycles, time, caller and log, with the platform's behaviour.
pub struct World {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// The instruction counter's reading.
    pub instructions: u64,
    /// Instructions that each reading adds to the counter, so that tests can reach limits.
    pub instructions_per_reading: u64,
    /// Instructions that each access to stable memory adds to the counter, so that tests can count what is walked.
    pub instructions_per_access: u64,
    /// The sender of the message.
    pub caller: Principal,
    /// True if all replicas run the message; otherwise it is a query.
    pub replicated: bool,
    /// Lines of the platform's log.
    pub log: Vec<String>,
    /// Cycles above the freezing threshold.
    pub liquid_cycles: u128,
    /// Cycles below the freezing threshold.
    pub frozen_cycles: u128,
    /// Cycles by which a raw page raises the freezing threshold.
    pub page_threshold: u128,
    /// Cycles that a raw page reserves.
    pub page_reservation: u128,
    /// Maximum cycles that may be reserved.
    pub reserved_limit: u128,
    /// Cycles that are reserved.
    pub reserved: u128,
    /// Raw pages at which growth is refused.
    pub max_pages: u64,
    /// Touched pages, while [`touching`] runs.
    pub touched: Option<Touched>,
    /// Addresses of writes, in order, while recording is on.
    pub writes: Option<Vec<u64>>,
    /// Number of accesses to stable memory, growth included, that still succeed; the next one traps.
    pub trap_after: Option<u64>,
    pages: u64,
    /// The pages that were written. A message shares them with the state before it, and copies those that it changes.
    content: HashMap<u64, Rc<[u8]>>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            time_ns: 1_700_000_000_000_000_000,
            instructions: 0,
            instructions_per_reading: 0,
            instructions_per_access: 0,
            caller: Principal::anonymous(),
            replicated: false,
            log: Vec::new(),
            liquid_cycles: 100_000_000_000_000,
            frozen_cycles: 0,
            page_threshold: 0,
            page_reservation: 0,
            reserved_limit: 5_000_000_000_000,
            reserved: 0,
            max_pages: 8_192_000,
            touched: None,
            writes: None,
            trap_after: None,
            pages: 0,
            content: HashMap::new(),
        }
    }
}

impl World {
    /// Charges the cycles for new pages, as the platform does.
    fn pay(&mut self, pages: u128) {
        let (threshold, reservation) = (pages * self.page_threshold, pages * self.page_reservation);
        assert!(self.liquid_cycles >= threshold, "IC0532: memory grows and cannot be paid");
        assert!(reservation == 0 || self.reserved + reservation <= self.reserved_limit, "IC0534");
        self.liquid_cycles -= threshold;
        self.frozen_cycles += threshold;
        self.reserved += reservation;
        // Reserved cycles cover the same amount of the freezing threshold.
        let from_frozen = reservation.min(self.frozen_cycles);
        self.frozen_cycles -= from_frozen;
        let rest = reservation - from_frozen;
        assert!(self.liquid_cycles >= rest, "IC0532: cycles to reserve are missing");
        self.liquid_cycles -= rest;
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// Reads or changes this thread's world.
pub fn with<T>(f: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(f)
}

/// Creates a fresh world with empty stable memory.
pub fn reset() {
    with(|world| *world = World::default());
}

/// Runs `run`, and returns the pages that it touched.
pub fn touching<T>(run: impl FnOnce() -> T) -> (T, Touched) {
    with(|world| world.touched = Some(Touched::default()));
    let result = run();
    (result, with(|world| world.touched.take()).unwrap_or_default())
}

/// Runs a message. If it traps, stable memory is restored; state on the heap must be opened again.
///
/// # Errors
/// The text of the trap.
pub fn message<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let before = with(|world| (world.pages, world.content.clone()));
    catch_unwind(AssertUnwindSafe(run)).map_err(|trap| {
        with(|world| (world.pages, world.content) = before);
        let text = trap.downcast_ref::<String>().cloned();
        text.or_else(|| trap.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
    })
}

/// The twin as a [`Platform`].
#[derive(Clone, Copy)]
pub struct Twin;

impl Platform for Twin {
    type Memory = SparseMemory;

    fn liquid_cycles() -> u128 {
        with(|world| world.liquid_cycles)
    }

    fn cycle_balance() -> u128 {
        with(|world| world.liquid_cycles.saturating_add(world.frozen_cycles))
    }

    fn now_ns() -> u64 {
        with(|world| world.time_ns)
    }

    fn instructions() -> u64 {
        with(|world| {
            world.instructions = world.instructions.saturating_add(world.instructions_per_reading);
            world.instructions
        })
    }

    fn caller() -> Principal {
        with(|world| world.caller)
    }

    fn is_replicated() -> bool {
        with(|world| world.replicated)
    }

    fn log(line: &str) {
        with(|world| world.log.push(line.to_string()));
    }

    fn trap(message: &str) -> ! {
        panic!("{message}")
    }
}

/// The world's stable memory. Pages never written use no memory.
#[derive(Clone, Default)]
pub struct SparseMemory;

impl SparseMemory {
    /// Counts an access, and traps if that is planned, without output, because the trap is not a failure of the test.
    fn access(world: &mut World) {
        world.instructions = world.instructions.saturating_add(world.instructions_per_access);
        match &mut world.trap_after {
            None => {}
            Some(0) => {
                world.trap_after = None;
                resume_unwind(Box::new("an injected trap"));
            }
            Some(left) => *left -= 1,
        }
    }

    /// Counts an access to a range, and records the touched pages.
    fn touch(world: &mut World, offset: u64, len: usize, writes: bool) {
        Self::access(world);
        assert!(offset + len as u64 <= world.pages * WASM_PAGE, "stable memory: out of bounds");
        let Some(touched) = world.touched.as_mut().filter(|_| len > 0) else { return };
        let pages = offset / OS_PAGE..=(offset + len as u64 - 1) / OS_PAGE;
        touched.accessed.extend(pages.clone());
        if writes {
            touched.dirtied.extend(pages);
        }
    }

    /// Splits a range by pages: for each the page, the part within the page, and the part within the range.
    fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
        space::parts(offset, len).map(|(from, part)| {
            let within = (from % WASM_PAGE) as usize;
            (from / WASM_PAGE, within..within + part.len(), part)
        })
    }
}

impl Memory for SparseMemory {
    fn size(&self) -> u64 {
        with(|world| world.pages)
    }

    fn grow(&self, pages: u64) -> i64 {
        with(|world| {
            Self::access(world);
            if world.pages + pages > world.max_pages {
                return -1;
            }
            world.pay(u128::from(pages));
            world.pages += pages;
            (world.pages - pages) as i64
        })
    }

    fn read(&self, offset: u64, dst: &mut [u8]) {
        with(|world| {
            Self::touch(world, offset, dst.len(), false);
            for (page, inside, part) in Self::parts(offset, dst.len()) {
                match world.content.get(&page) {
                    Some(page) => dst[part].copy_from_slice(&page[inside]),
                    None => dst[part].fill(0),
                }
            }
        })
    }

    fn write(&self, offset: u64, src: &[u8]) {
        with(|world| {
            Self::touch(world, offset, src.len(), true);
            world.writes.iter_mut().for_each(|writes| writes.push(offset));
            for (page, inside, part) in Self::parts(offset, src.len()) {
                let page = world.content.entry(page).or_insert_with(|| vec![0; WASM_PAGE as usize].into());
                Rc::make_mut(page)[inside].copy_from_slice(&src[part]);
            }
        })
    }
}

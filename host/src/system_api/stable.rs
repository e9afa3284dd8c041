//! System calls of stable memory, with 64-bit and 32-bit addresses.

use wasmtime::Linker;

use super::import::{ALL, Call, imports};
use crate::context::{Context, Run};
use crate::cost::{STABLE, STABLE_GROW};
use crate::faults::GrowthFault;
use crate::limits::WASM_PAGE;
use crate::trap::Trap;

/// Wasm pages that 32-bit addresses can reach: 4 GiB.
const MAX_32_BIT: u64 = 1 << 16;

fn out_of_bounds() -> Trap {
    Trap::Wasm("stable memory out of bounds".into())
}

/// Grows by `pages` and returns the former size, or `None` if the growth is refused.
fn grow(run: &mut Run, pages: u64, most: u64) -> Result<Option<u64>, Trap> {
    let before = run.stable.wasm_pages();
    match run.faults.next_growth() {
        Some(GrowthFault::Refuse) => return Ok(None),
        Some(GrowthFault::Trap) => {
            let bytes = pages.saturating_mul(WASM_PAGE);
            return Err(Trap::InsufficientCyclesInMemoryGrow { bytes, missing: 1 });
        }
        None => {}
    }
    match before.checked_add(pages) {
        Some(after) if after <= most.min(run.environment.stable_pages_max) => {
            run.use_memory(pages * WASM_PAGE)?;
            run.stable.set_wasm_pages(after);
            Ok(Some(before))
        }
        _ => Ok(None),
    }
}

/// Checks an access, and charges its first-touched pages, before it has an effect.
fn access(call: &mut Call, writes: bool, offset: u64, size: u64) -> wasmtime::Result<()> {
    let run = call.run();
    run.at_stable_access(writes, offset, size)?;
    run.stable.check_range(offset, size).map_err(|_| out_of_bounds())?;
    let prices = run.environment.stable_page_prices;
    let price = match writes {
        true => run.journal.price_of_writing(prices, offset, size),
        false => run.journal.price_of_reading(prices, offset, size),
    };
    call.charge(price)
}

fn read(call: &mut Call, target: u64, offset: u64, size: u64) -> wasmtime::Result<()> {
    access(call, false, offset, size)?;
    let (heap, run) = call.parts()?;
    let part = range(target, size).and_then(|range| heap.get_mut(range)).ok_or_else(out_of_heap)?;
    run.stable.read(&mut run.journal, offset, part).map_err(|_| out_of_bounds())?;
    Ok(run.check_accesses()?)
}

fn write(call: &mut Call, offset: u64, source: u64, size: u64) -> wasmtime::Result<()> {
    access(call, true, offset, size)?;
    let (heap, run) = call.parts()?;
    let part = range(source, size).and_then(|range| heap.get(range)).ok_or_else(out_of_heap)?;
    run.stable.write(&mut run.journal, offset, part).map_err(|_| out_of_bounds())?;
    Ok(run.check_accesses()?)
}

fn range(start: u64, size: u64) -> Option<std::ops::Range<usize>> {
    let end = start.checked_add(size)?;
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

fn out_of_heap() -> Trap {
    Trap::Wasm("heap out of bounds".into())
}

/// The 32-bit calls refuse to work on a memory that they cannot address completely.
fn check_32_bit(run: &Run) -> Result<(), Trap> {
    if run.stable.wasm_pages() > MAX_32_BIT {
        return Err(Trap::Wasm("32 bit stable memory api used on a memory larger than 4GB".into()));
    }
    Ok(())
}

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    imports! { linker, call;
        [ALL, 0] stable64_size() -> u64 { Ok(call.run().stable.wasm_pages()) }
        [ALL, STABLE_GROW] stable64_grow(pages: u64) -> u64 {
            Ok(grow(call.run(), pages, u64::MAX)?.unwrap_or(u64::MAX))
        }
        [ALL, STABLE.saturating_add(size)] stable64_read(target: u64, offset: u64, size: u64) -> () {
            read(call, target, offset, size)
        }
        [ALL, STABLE.saturating_add(size)] stable64_write(offset: u64, source: u64, size: u64) -> () {
            write(call, offset, source, size)
        }
        [ALL, 0] stable_size() -> u32 {
            let run = call.run();
            check_32_bit(run)?;
            Ok(run.stable.wasm_pages() as u32)
        }
        [ALL, STABLE_GROW] stable_grow(pages: u32) -> u32 {
            let run = call.run();
            check_32_bit(run)?;
            Ok(grow(run, u64::from(pages), MAX_32_BIT)?.map_or(u32::MAX, |before| before as u32))
        }
        [ALL, STABLE + u64::from(size)] stable_read(target: u32, offset: u32, size: u32) -> () {
            check_32_bit(call.run())?;
            read(call, u64::from(target), u64::from(offset), u64::from(size))
        }
        [ALL, STABLE + u64::from(size)] stable_write(offset: u32, source: u32, size: u32) -> () {
            check_32_bit(call.run())?;
            write(call, u64::from(offset), u64::from(source), u64::from(size))
        }
    }
    Ok(())
}

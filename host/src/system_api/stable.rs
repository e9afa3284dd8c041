//! Stable memory, by 64-bit and by 32-bit addresses.

use wasmtime::{Caller, Linker};

use super::import::{ALL, charge, import, parts};
use crate::context::{Context, Run};
use crate::cost::{STABLE, STABLE_GROW};
use crate::faults::GrowthFault;
use crate::limits::WASM_PAGE;
use crate::trap::Trap;

/// Wasm pages that 32-bit addresses reach: 4 GiB.
const MAX_32_BIT: u64 = 1 << 16;

fn out_of_bounds() -> Trap {
    Trap::Wasm("stable memory out of bounds".into())
}

/// Grows by `pages` and answers the former size, or nothing when it is refused.
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

/// The pages that a read touches first are charged before it has an effect.
fn read(caller: &mut Caller<'_, Context>, target: u64, offset: u64, size: u64) -> wasmtime::Result<()> {
    let run = caller.data_mut().run();
    run.at_stable_access(false, offset, size)?;
    run.stable.check_range(offset, size).map_err(|_| out_of_bounds())?;
    let price = run.journal.price_of_reading(run.environment.stable_page_prices, offset, size);
    charge(caller, price)?;
    let (heap, run) = parts(caller)?;
    let part = range(target, size).and_then(|range| heap.get_mut(range)).ok_or_else(out_of_heap)?;
    run.stable.read(&mut run.journal, offset, part).map_err(|_| out_of_bounds())?;
    Ok(run.check_accesses()?)
}

/// The pages that a write touches first are charged before it has an effect.
fn write(caller: &mut Caller<'_, Context>, offset: u64, source: u64, size: u64) -> wasmtime::Result<()> {
    let run = caller.data_mut().run();
    run.at_stable_access(true, offset, size)?;
    run.stable.check_range(offset, size).map_err(|_| out_of_bounds())?;
    let price = run.journal.price_of_writing(run.environment.stable_page_prices, offset, size);
    charge(caller, price)?;
    let (heap, run) = parts(caller)?;
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

/// The 32-bit calls refuse to work on a memory that they can't address whole.
fn check_32_bit(run: &Run) -> Result<(), Trap> {
    if run.stable.wasm_pages() > MAX_32_BIT {
        return Err(Trap::Wasm("32 bit stable memory api used on a memory larger than 4GB".into()));
    }
    Ok(())
}

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    import!(linker, "stable64_size", ALL, 0, |caller| -> u64 { Ok(caller.data_mut().run().stable.wasm_pages()) });
    import!(linker, "stable64_grow", ALL, STABLE_GROW, |caller, pages: u64| -> u64 {
        Ok(grow(caller.data_mut().run(), pages, u64::MAX)?.unwrap_or(u64::MAX))
    });
    import!(linker, "stable64_read", ALL, STABLE.saturating_add(size), |caller,
                                                                        target: u64,
                                                                        offset: u64,
                                                                        size: u64|
     -> () {
        read(&mut caller, target, offset, size)
    });
    import!(linker, "stable64_write", ALL, STABLE.saturating_add(size), |caller,
                                                                         offset: u64,
                                                                         source: u64,
                                                                         size: u64|
     -> () {
        write(&mut caller, offset, source, size)
    });

    import!(linker, "stable_size", ALL, 0, |caller| -> u32 {
        let run = caller.data_mut().run();
        check_32_bit(run)?;
        Ok(run.stable.wasm_pages() as u32)
    });
    import!(linker, "stable_grow", ALL, STABLE_GROW, |caller, pages: u32| -> u32 {
        let run = caller.data_mut().run();
        check_32_bit(run)?;
        Ok(grow(run, u64::from(pages), MAX_32_BIT)?.map_or(u32::MAX, |before| before as u32))
    });
    import!(linker, "stable_read", ALL, STABLE + u64::from(size), |caller,
                                                                   target: u32,
                                                                   offset: u32,
                                                                   size: u32|
     -> () {
        check_32_bit(caller.data_mut().run())?;
        read(&mut caller, u64::from(target), u64::from(offset), u64::from(size))
    });
    import!(linker, "stable_write", ALL, STABLE + u64::from(size), |caller,
                                                                    offset: u32,
                                                                    source: u32,
                                                                    size: u32|
     -> () {
        check_32_bit(caller.data_mut().run())?;
        write(&mut caller, u64::from(offset), u64::from(source), u64::from(size))
    });
    Ok(())
}

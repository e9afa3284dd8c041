//! Definition of imports: allowed modes, price, and access to the heap.

use candid::Principal;
use wasmtime::{Caller, Linker};

use crate::context::{Context, Run};
use crate::cost::SYSTEM_CALL;
use crate::execution::Kind;
use crate::trap::Trap;

/// Returns whether an import is allowed in an execution.
pub(super) type Modes = fn(Kind) -> bool;

/// All executions.
pub(super) const ALL: Modes = |_| true;
/// All executions except `start`.
pub(super) const NOT_START: Modes = |kind| kind != Kind::Start;
/// Executions that may change the canister's state beyond memory.
pub(super) const CHANGES: Modes = |kind| kind != Kind::Start && kind.keeps_changes();
/// Executions that may make calls.
pub(super) const CALLS: Modes =
    |kind| matches!(kind, Kind::Update | Kind::Timer | Kind::ReplyCallback | Kind::RejectCallback);
/// Executions in which a caller may wait for an answer.
pub(super) const ANSWERS: Modes = |kind| {
    matches!(kind, Kind::Update | Kind::Query | Kind::ReplicatedQuery | Kind::ReplyCallback | Kind::RejectCallback)
};
pub(super) const CALLBACKS: Modes = |kind| matches!(kind, Kind::ReplyCallback | Kind::RejectCallback);

/// Defines imports, each as `[modes, price] name(arguments) -> result { body }`. The [`Call`] is in scope in the body.
macro_rules! imports {
    ($linker:ident, $call:ident;
     $([$modes:expr, $price:expr] $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $body:block)+) => {
        $($linker.func_wrap(
            "ic0",
            stringify!($name),
            |caller: wasmtime::Caller<'_, $crate::context::Context> $(, $arg: $ty)*| -> wasmtime::Result<$ret> {
                #[allow(unused_variables, reason = "a constant needs nothing of the call")]
                let $call = &mut $crate::system_api::import::Call::enter(caller, stringify!($name), $modes, $price)?;
                $body
            },
        )?;)+
    };
}
pub(super) use imports;

/// Defines `<name>_size` and `<name>_copy` for bytes of the running message.
pub(super) fn bytes_import(
    linker: &mut Linker<Context>,
    name: &str,
    modes: Modes,
    of: fn(&Run) -> &[u8],
) -> wasmtime::Result<()> {
    let [size_name, copy_name] = ["size", "copy"].map(|what| format!("{name}_{what}"));
    linker.func_wrap("ic0", &size_name.clone(), move |caller: Caller<'_, Context>| {
        let mut call = Call::enter(caller, &size_name, modes, SYSTEM_CALL)?;
        Ok(of(call.run()).len() as u32)
    })?;
    let copy = move |caller: Caller<'_, Context>, target: u32, offset: u32, size: u32| {
        let mut call = Call::enter(caller, &copy_name, modes, SYSTEM_CALL + u64::from(size))?;
        call.copy_out(target, offset, size, |run| Ok(of(run)))
    };
    linker.func_wrap("ic0", &format!("{name}_copy"), copy)?;
    Ok(())
}

/// A system call, checked and charged.
pub(super) struct Call<'a> {
    name: &'a str,
    caller: Caller<'a, Context>,
}

impl<'a> Call<'a> {
    /// Counts, checks and charges a system call, before it has an effect.
    pub(super) fn enter(
        mut caller: Caller<'a, Context>,
        name: &'a str,
        modes: Modes,
        price: u64,
    ) -> wasmtime::Result<Self> {
        let run = caller.data_mut().run();
        run.at_system_call(name)?;
        if !modes(run.kind) {
            let message = format!("\"ic0_{name}\" cannot be executed in {} mode", run.kind.mode());
            return Err(Trap::Contract(message).into());
        }
        let mut call = Call { name, caller };
        call.charge(price)?;
        Ok(call)
    }

    /// Charges instructions, and traps if too few are left.
    pub(super) fn charge(&mut self, price: u64) -> wasmtime::Result<()> {
        match self.caller.get_fuel()?.checked_sub(price) {
            Some(left) => self.caller.set_fuel(left),
            None => {
                self.caller.set_fuel(0)?;
                Err(Trap::InstructionLimit(self.run().limit).into())
            }
        }
    }

    /// Returns the instructions that are left.
    pub(super) fn fuel(&self) -> wasmtime::Result<u64> {
        self.caller.get_fuel()
    }

    /// Returns the running message.
    pub(super) fn run(&mut self) -> &mut Run {
        self.caller.data_mut().run()
    }

    /// Returns the heap and the running message.
    pub(super) fn parts(&mut self) -> wasmtime::Result<(&mut [u8], &mut Run)> {
        let memory = self.caller.data().memory.ok_or_else(|| Trap::Contract("the module has no memory".into()))?;
        let (heap, context) = memory.data_and_store_mut(&mut self.caller);
        Ok((heap, context.run()))
    }

    /// Returns a range of the heap for reading, and the running message.
    pub(super) fn read(&mut self, source: u32, size: u32) -> wasmtime::Result<(&[u8], &mut Run)> {
        let name = self.name;
        let (heap, run) = self.parts()?;
        Ok((heap_range(heap, source, size).ok_or_else(|| out_of_heap(name, source, size))?, run))
    }

    /// Returns a text passed by the canister, and the running message.
    pub(super) fn read_text(&mut self, source: u32, size: u32) -> wasmtime::Result<(&str, &mut Run)> {
        let name = self.name;
        let (bytes, run) = self.read(source, size)?;
        Ok((text(name, bytes)?, run))
    }

    /// Returns a principal passed by the canister.
    pub(super) fn read_principal(&mut self, source: u32, size: u32) -> wasmtime::Result<Principal> {
        let (bytes, _) = self.read(source, size)?;
        let broken = |_| Trap::Contract(format!("{} bytes are not a principal", bytes.len()));
        Ok(Principal::try_from_slice(bytes).map_err(broken)?)
    }

    /// Copies a part of the running message's bytes to the heap.
    pub(super) fn copy_out(
        &mut self,
        target: u32,
        offset: u32,
        size: u32,
        of: impl FnOnce(&Run) -> Result<&[u8], Trap>,
    ) -> wasmtime::Result<()> {
        let name = self.name;
        let (heap, run) = self.parts()?;
        let bytes = of(run)?;
        let part = bytes.get(offset as usize..offset as usize + size as usize).ok_or_else(|| {
            let message = format!("ic0.{name} payload: offset={offset} + length={size} exceeds size {}", bytes.len());
            Trap::Contract(message)
        })?;
        let end = target as usize + size as usize;
        heap.get_mut(target as usize..end).ok_or_else(|| out_of_heap(name, target, size))?.copy_from_slice(part);
        Ok(())
    }

    /// Writes an amount of cycles to the heap, as 16 bytes in little-endian order.
    pub(super) fn write_cycles(&mut self, target: u32, amount: u128) -> wasmtime::Result<()> {
        let name = self.name;
        let (heap, _) = self.parts()?;
        let place = heap.get_mut(target as usize..).and_then(<[u8]>::first_chunk_mut);
        *place.ok_or_else(|| out_of_heap(name, target, 16))? = amount.to_le_bytes();
        Ok(())
    }

    /// Converts an amount of cycles for the old imports, which carry only 64 bits.
    pub(super) fn narrow(&self, amount: u128) -> wasmtime::Result<u64> {
        let too_many = |_| Trap::Contract(format!("ic0.{}: {amount} cycles do not fit 64 bits", self.name));
        Ok(u64::try_from(amount).map_err(too_many)?)
    }
}

/// Returns a range of the heap, or `None` if the heap is shorter.
pub(super) fn heap_range(heap: &[u8], source: u32, size: u32) -> Option<&[u8]> {
    heap.get(source as usize..source as usize + size as usize)
}

fn out_of_heap(name: &str, start: u32, size: u32) -> Trap {
    Trap::Contract(format!("ic0.{name} heap: start={start} + length={size} exceeds heap size"))
}

pub(super) fn amount(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Returns a text passed by a canister to an import.
pub(super) fn text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Trap> {
    std::str::from_utf8(bytes).map_err(|_| Trap::Contract(format!("ic0.{name}: not UTF-8")))
}

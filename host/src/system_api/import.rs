//! Definition of imports: the modes in which each is allowed, its price, and access to the heap.

use candid::Principal;
use wasmtime::{Caller, Linker};

use crate::context::{Context, Run};
use crate::cost::SYSTEM_CALL;
use crate::execution::Kind;
use crate::trap::Trap;

/// Says whether an import is allowed in an execution.
pub(super) type Modes = fn(Kind) -> bool;

/// Everywhere.
pub(super) const ALL: Modes = |_| true;
/// Everywhere but in `start`.
pub(super) const NOT_START: Modes = |kind| kind != Kind::Start;
/// Where changes of the canister's state beyond memory are allowed.
pub(super) const CHANGES: Modes = |kind| kind != Kind::Start && kind.keeps_changes();
/// Where calls may be made.
pub(super) const CALLS: Modes =
    |kind| matches!(kind, Kind::Update | Kind::Timer | Kind::ReplyCallback | Kind::RejectCallback);
/// Where a caller may be waiting for an answer.
pub(super) const ANSWERS: Modes = |kind| {
    matches!(kind, Kind::Update | Kind::Query | Kind::ReplicatedQuery | Kind::ReplyCallback | Kind::RejectCallback)
};
pub(super) const CALLBACKS: Modes = |kind| matches!(kind, Kind::ReplyCallback | Kind::RejectCallback);

/// Defines imports, each as `[modes, price] name(arguments) -> result { body }`; the body has the [`Call`].
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

/// A system call that is allowed and paid for.
pub(super) struct Call<'a> {
    name: &'a str,
    caller: Caller<'a, Context>,
}

impl<'a> Call<'a> {
    /// What every system call does first.
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

    /// Charges instructions, and traps when none are left.
    pub(super) fn charge(&mut self, price: u64) -> wasmtime::Result<()> {
        match self.caller.get_fuel()?.checked_sub(price) {
            Some(left) => self.caller.set_fuel(left),
            None => {
                self.caller.set_fuel(0)?;
                Err(Trap::InstructionLimit(self.run().limit).into())
            }
        }
    }

    /// Instructions that are left.
    pub(super) fn fuel(&self) -> wasmtime::Result<u64> {
        self.caller.get_fuel()
    }

    /// The running message.
    pub(super) fn run(&mut self) -> &mut Run {
        self.caller.data_mut().run()
    }

    /// The heap and the running message.
    pub(super) fn parts(&mut self) -> wasmtime::Result<(&mut [u8], &mut Run)> {
        let memory = self.caller.data().memory.ok_or_else(|| Trap::Contract("the module has no memory".into()))?;
        let (heap, context) = memory.data_and_store_mut(&mut self.caller);
        Ok((heap, context.run()))
    }

    /// A range of the heap, to read from, and the running message.
    pub(super) fn read(&mut self, source: u32, size: u32) -> wasmtime::Result<(&[u8], &mut Run)> {
        let name = self.name;
        let (heap, run) = self.parts()?;
        Ok((heap_range(heap, source, size).ok_or_else(|| out_of_heap(name, source, size))?, run))
    }

    /// A text that the canister hands over, and the running message.
    pub(super) fn read_text(&mut self, source: u32, size: u32) -> wasmtime::Result<(&str, &mut Run)> {
        let name = self.name;
        let (bytes, run) = self.read(source, size)?;
        Ok((text(name, bytes)?, run))
    }

    /// A principal that the canister hands over.
    pub(super) fn read_principal(&mut self, source: u32, size: u32) -> wasmtime::Result<Principal> {
        let (bytes, _) = self.read(source, size)?;
        let broken = |_| Trap::Contract(format!("{} bytes are no principal", bytes.len()));
        Ok(Principal::try_from_slice(bytes).map_err(broken)?)
    }

    /// Copies to the heap a part of bytes that the running message has.
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

    /// An amount of cycles for the old imports that can carry 64 bits only.
    pub(super) fn narrow(&self, amount: u128) -> wasmtime::Result<u64> {
        let too_many = |_| Trap::Contract(format!("ic0.{}: {amount} cycles do not fit 64 bits", self.name));
        Ok(u64::try_from(amount).map_err(too_many)?)
    }
}

/// A range of the heap, where the heap is that long.
pub(super) fn heap_range(heap: &[u8], source: u32, size: u32) -> Option<&[u8]> {
    heap.get(source as usize..source as usize + size as usize)
}

fn out_of_heap(name: &str, start: u32, size: u32) -> Trap {
    Trap::Contract(format!("ic0.{name} heap: start={start} + length={size} exceeds heap size"))
}

pub(super) fn amount(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// A text that a canister handed over to an import.
pub(super) fn text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Trap> {
    std::str::from_utf8(bytes).map_err(|_| Trap::Contract(format!("ic0.{name}: not UTF-8")))
}

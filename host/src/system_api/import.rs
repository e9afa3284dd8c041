//! Definition of imports: the modes in which each is allowed, its price, and access to the heap.

use wasmtime::Caller;

use crate::context::{Context, Run};
use crate::execution::Kind;
use crate::trap::Trap;

/// A set of execution kinds.
#[derive(Clone, Copy)]
pub(super) struct Modes(u16);

impl Modes {
    pub(super) const fn of(kinds: &[Kind]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < kinds.len() {
            bits |= 1 << kinds[i] as u16;
            i += 1;
        }
        Modes(bits)
    }

    pub(super) const fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    pub(super) const fn without(self, other: Modes) -> Self {
        Modes(self.0 & !other.0)
    }
}

/// Everywhere.
pub(super) const ALL: Modes = Modes(u16::MAX);
/// Everywhere but in `start`.
pub(super) const NOT_START: Modes = ALL.without(Modes::of(&[Kind::Start]));
/// Where changes of the canister's state beyond memory are allowed.
pub(super) const CHANGES: Modes =
    NOT_START.without(Modes::of(&[Kind::InspectMessage, Kind::Query, Kind::ReplicatedQuery]));
/// Where calls may be made.
pub(super) const CALLS: Modes = Modes::of(&[Kind::Update, Kind::Timer, Kind::ReplyCallback, Kind::RejectCallback]);
/// Where a caller may be waiting for an answer.
pub(super) const ANSWERS: Modes =
    Modes::of(&[Kind::Update, Kind::Query, Kind::ReplicatedQuery, Kind::ReplyCallback, Kind::RejectCallback]);
pub(super) const CALLBACKS: Modes = Modes::of(&[Kind::ReplyCallback, Kind::RejectCallback]);

/// Defines one import: `name, modes, price, |caller, arguments| -> result { body }`.
macro_rules! import {
    ($linker:ident, $name:expr, $modes:expr, $price:expr,
     |$caller:ident $(, $arg:ident: $ty:ty)*| -> $ret:ty $body:block) => {
        $linker.func_wrap("ic0", $name, |mut $caller: wasmtime::Caller<'_, $crate::context::Context> $(, $arg: $ty)*|
            -> wasmtime::Result<$ret> {
            $crate::system_api::import::enter(&mut $caller, $name, $modes, $price)?;
            $body
        })?;
    };
}
pub(super) use import;

/// Defines `<name>_size` and `<name>_copy` for bytes of the running message.
macro_rules! bytes_import {
    ($linker:ident, $name:literal, $modes:expr, |$run:ident| $bytes:expr) => {
        $crate::system_api::import::import!(
            $linker,
            concat!($name, "_size"),
            $modes,
            $crate::cost::SYSTEM_CALL,
            |caller| -> u32 {
                let $run = caller.data_mut().run();
                let bytes: &[u8] = $bytes;
                Ok(bytes.len() as u32)
            }
        );
        $crate::system_api::import::import!(
            $linker,
            concat!($name, "_copy"),
            $modes,
            $crate::cost::SYSTEM_CALL + u64::from(size),
            |caller, target: u32, offset: u32, size: u32| -> () {
                let (heap, $run) = $crate::system_api::import::parts(&mut caller)?;
                let bytes: &[u8] = $bytes;
                $crate::system_api::import::copy_out(concat!("ic0.", $name, "_copy"), heap, target, bytes, offset, size)
            }
        );
    };
}
pub(super) use bytes_import;

/// What every system call does first.
pub(super) fn enter(caller: &mut Caller<'_, Context>, name: &str, modes: Modes, price: u64) -> wasmtime::Result<()> {
    let run = caller.data_mut().run();
    run.at_system_call(name)?;
    if !modes.contains(run.kind) {
        let message = format!("\"ic0_{name}\" cannot be executed in {} mode", run.kind.mode());
        return Err(Trap::Contract(message).into());
    }
    charge(caller, price)
}

/// Charges instructions, and traps when none are left.
pub(super) fn charge(caller: &mut Caller<'_, Context>, price: u64) -> wasmtime::Result<()> {
    match caller.get_fuel()?.checked_sub(price) {
        Some(left) => caller.set_fuel(left),
        None => {
            caller.set_fuel(0)?;
            let limit = caller.data_mut().run().limit;
            Err(Trap::InstructionLimit(limit).into())
        }
    }
}

/// The heap and the running message.
pub(super) fn parts<'a>(caller: &'a mut Caller<'_, Context>) -> wasmtime::Result<(&'a mut [u8], &'a mut Run)> {
    let memory = caller.data().memory.ok_or_else(|| Trap::Contract("the module has no memory".into()))?;
    let (heap, context) = memory.data_and_store_mut(caller);
    Ok((heap, context.run()))
}

/// A range of the heap, to read from.
pub(super) fn heap_range<'a>(name: &str, heap: &'a [u8], source: u32, size: u32) -> Result<&'a [u8], Trap> {
    let end = source as usize + size as usize;
    heap.get(source as usize..end).ok_or_else(|| out_of_heap(name, source, size))
}

pub(super) fn out_of_heap(name: &str, start: u32, size: u32) -> Trap {
    Trap::Contract(format!("{name} heap: start={start} + length={size} exceeds heap size"))
}

/// Copies a part of `bytes` to the heap.
pub(super) fn copy_out(
    name: &str,
    heap: &mut [u8],
    target: u32,
    bytes: &[u8],
    offset: u32,
    size: u32,
) -> wasmtime::Result<()> {
    let part = bytes.get(offset as usize..offset as usize + size as usize).ok_or_else(|| {
        Trap::Contract(format!("{name} payload: offset={offset} + length={size} exceeds size {}", bytes.len()))
    })?;
    let end = target as usize + size as usize;
    heap.get_mut(target as usize..end).ok_or_else(|| out_of_heap(name, target, size))?.copy_from_slice(part);
    Ok(())
}

/// Writes an amount of cycles to the heap, as 16 bytes in little-endian order.
pub(super) fn write_cycles(
    name: &str,
    caller: &mut Caller<'_, Context>,
    target: u32,
    amount: u128,
) -> wasmtime::Result<()> {
    let (heap, _) = parts(caller)?;
    copy_out(name, heap, target, &amount.to_le_bytes(), 0, 16)
}

pub(super) fn amount(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// An amount of cycles for the old imports that can carry 64 bits only.
pub(super) fn narrow(name: &str, amount: u128) -> wasmtime::Result<u64> {
    u64::try_from(amount).map_err(|_| Trap::Contract(format!("{name}: {amount} cycles do not fit 64 bits")).into())
}

/// A principal that a canister handed over.
pub(super) fn principal(bytes: &[u8]) -> Result<candid::Principal, Trap> {
    candid::Principal::try_from_slice(bytes)
        .map_err(|_| Trap::Contract(format!("{} bytes are no principal", bytes.len())))
}

/// A text that a canister handed over.
pub(super) fn text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Trap> {
    std::str::from_utf8(bytes).map_err(|_| Trap::Contract(format!("{name}: not UTF-8")))
}

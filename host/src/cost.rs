//! The platform's price, in instructions, of every Wasm operator and every system call.
//!
//! Wasmtime counts the operators itself (fuel). The host charges system calls on top of the `call` that makes them. A price in Wasmtime is
//! a `u8`, so `memory.grow` and the like (300 on the platform) are charged 255. Growing is rare enough that the difference is below 0.01 %
//! of any message.

use wasmtime::OperatorCost;

/// Instructions of a read or a write of stable memory, besides one per byte. Asking for its size costs only the `call`, because the
/// platform keeps the size in the module's own memory.
pub(crate) const STABLE: u64 = 20;
/// Instructions of growing stable memory.
pub(crate) const STABLE_GROW: u64 = 100;
/// Instructions of `debug_print`, besides one per byte.
pub(crate) const DEBUG_PRINT: u64 = 100;
/// Instructions of `performance_counter`.
pub(crate) const PERFORMANCE_COUNTER: u64 = 200;
/// Instructions of most system calls, besides one per byte copied.
pub(crate) const SYSTEM_CALL: u64 = 500;
/// Instructions of `is_controller`.
pub(crate) const IS_CONTROLLER: u64 = 1_000;
/// Instructions of `call_new`.
pub(crate) const CALL_NEW: u64 = 1_500;
/// Instructions of `call_perform`.
pub(crate) const CALL_PERFORM: u64 = 5_000;
/// Instructions for each 4 KiB page of the heap whose content a message changed, charged at its end.
pub(crate) const CHANGED_HEAP_PAGE: u64 = 1_000;

/// Instructions of a system call that sends bytes in a reply, a reject or a call: 50 per byte.
pub(crate) fn sending(bytes: u32) -> u64 {
    SYSTEM_CALL + 50 * u64::from(bytes)
}

/// The platform's prices as Wasmtime's table of operator costs: those of `instruction_to_cost` in the replica's
/// `rs/embedders/src/wasm_utils/instrumentation.rs`.
///
/// Wasmtime's default is 1 for every operator except a few that are 0, which fits most of the table. Wasmtime also charges
/// 1 on entry of every function, besides the `call`; so does the platform.
pub(crate) fn operator_costs() -> OperatorCost {
    macro_rules! prices {
        ($($price:expr => $($operator:ident)+;)+) => {
            OperatorCost { $($($operator: $price,)+)+ ..OperatorCost::new() }
        };
    }
    prices! {
        0 => Block Else End Loop;
        1 => Nop Drop Return Unreachable;
        2 => GlobalGet GlobalSet If Br BrIf BrTable
             F32Add F32Sub F32Mul F32Ceil F32Floor F32Trunc F32Nearest F32Copysign
             F64Add F64Sub F64Mul F64Ceil F64Floor F64Trunc F64Nearest;
        2 => I8x16LtU I8x16GtU I16x8LtU I16x8GtU I32x4LtU I32x4GtU I8x16ShrU I16x8Shl I16x8ShrS I16x8ShrU
             I32x4Shl I32x4ShrS I32x4ShrU I64x2Shl I64x2ShrU I32x4Mul I16x8ExtAddPairwiseI8x16U
             I16x8ExtMulHighI8x16S I16x8ExtMulHighI8x16U I32x4ExtMulLowI16x8S I32x4ExtMulHighI16x8S
             I32x4ExtMulLowI16x8U I32x4ExtMulHighI16x8U
             F32x4Ceil F32x4Floor F32x4Trunc F32x4Nearest F32x4Abs F32x4Neg F32x4Add F32x4Sub F32x4Mul
             F64x2Ceil F64x2Floor F64x2Trunc F64x2Nearest F64x2Abs F64x2Neg F64x2Add F64x2Sub F64x2Mul
             I32x4TruncSatF32x4S I32x4TruncSatF64x2SZero;
        3 => F32Eq F32Ne F32Lt F32Gt F32Le F32Ge F64Eq F64Ne F64Lt F64Gt F64Le F64Ge F32Div F64Copysign
             F32ConvertI32S F32ConvertI64S F64ConvertI32S F64ConvertI64S I8x16Shuffle;
        3 => ReturnCall;
        3 => I8x16Popcnt I8x16Shl I8x16ShrS I32x4ExtAddPairwiseI16x8U I64x2ShrS I32x4TruncSatF64x2UZero;
        4 => I64x2Mul F32x4Min F32x4Max F64x2Min I32x4TruncSatF32x4U F32x4ConvertI32x4U;
        5 => F32x4Sqrt F64x2Max;
        5 => F64Div F32Sqrt TableGet TableSet RefIsNull;
        5 => Call;
        8 => F64Sqrt;
        10 => I32DivS I32DivU I32RemS I32RemU I64DivS I64DivU I64RemS I64RemU;
        10 => CallIndirect F32x4Div;
        12 => F64x2Div;
        14 => F64x2Sqrt;
        16 => F32ConvertI32U F32ConvertI64U F64ConvertI32U F64ConvertI64U;
        18 => F32Min F32Max F64Min F64Max;
        20 => MemorySize
              I32TruncF32S I32TruncF32U I32TruncF64S I32TruncF64U I64TruncF32S I64TruncF32U I64TruncF64S I64TruncF64U
              I32TruncSatF32S I32TruncSatF32U I32TruncSatF64S I32TruncSatF64U
              I64TruncSatF32S I64TruncSatF32U I64TruncSatF64S I64TruncSatF64U;
        60 => ReturnCallIndirect;
        100 => TableSize MemoryFill MemoryCopy MemoryInit TableFill TableCopy TableInit;
        130 => RefFunc;
        255 => MemoryGrow TableGrow DataDrop ElemDrop;
    }
}

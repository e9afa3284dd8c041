//! Compressed argument: the length of the plain argument, and the plain argument as a raw deflate stream (RFC 1951).
//!
//! ```text
//! u32 plain length, little-endian ‖ deflate stream
//! ```
//! **Constraint.** A message of 2 MiB can hold a stream of 2 GiB, a stream whose 1.6 million empty blocks take 60,000 instructions a byte, or a
//! plain argument that takes billions of instructions to read.
//!
//! **Design.** The declared length is checked before memory is taken: at most 8 MiB, and no more than the stream can have. The output is one
//! buffer of exactly this length. The stream goes through the decompressor in pieces of 512 bytes, and the instruction counter is read before
//! each. The plain bytes are read by the fast path only (`known.rs`), whose cost is linear: a client of these bytes has the project's own
//! type table.

use super::known::{self, Argument};
use ic_coppice_interface::AppendError;
use ic_coppice_storage::{Ic, Platform as _};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// Bytes of the declared length.
const LENGTH: usize = 4;
/// Bytes of the longest plain argument.
pub const MAX_PLAIN: usize = 8 << 20;
/// Plain bytes that a byte of a stream has at most.
const MOST_RATIO: usize = 1_032;
/// Bytes of the stream between two readings of the instruction counter, at most 60,000 instructions each.
const PIECE: usize = 512;
/// Instructions after which no other piece is decompressed. Blocks of a chain take 30 to 60 instructions a plain byte.
const INSTRUCTIONS: u64 = 220_000_000;
/// Maximum cost of reading the plain argument, in the units of `known.rs`: each byte, and 10,000 blocks, more than a message appends. The most
/// expensive argument of this cost takes 85 million instructions.
const READING_QUOTA: usize = MAX_PLAIN + 10_000 * 200;

/// Returns the error of an argument that cannot be read; `at`: its bytes before the invalid one.
fn unreadable(at: usize, why: impl Into<String>) -> AppendError {
    AppendError::BadEncoding { segment: 0, offset: at as u64, why: why.into() }
}

/// Decompresses and reads an argument.
///
/// # Errors
/// `BadEncoding`, after at most 400 million instructions.
pub fn read<T: Argument>(bytes: &[u8]) -> Result<T, AppendError> {
    let value = known::read(&plain(bytes)?, READING_QUOTA);
    let why = "the plain bytes are not the argument with the type table of this version, in its shortest form";
    value.ok_or_else(|| unreadable(LENGTH, why))
}

/// Decompresses an argument.
fn plain(bytes: &[u8]) -> Result<Vec<u8>, AppendError> {
    let Some((length, stream)) = bytes.split_first_chunk::<LENGTH>() else {
        return Err(unreadable(0, "the argument begins with the plain length in 4 bytes"));
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > MAX_PLAIN {
        return Err(unreadable(0, format!("the plain argument has {length} bytes; at most {MAX_PLAIN}")));
    }
    if length > stream.len().saturating_mul(MOST_RATIO) {
        return Err(unreadable(0, format!("a stream of {} bytes has no {length} plain bytes", stream.len())));
    }
    let (mut plain, mut filled, mut read) = (vec![0; length], 0, 0);
    let mut state = Box::<DecompressorOxide>::default();
    let end = Ic::instructions().saturating_add(INSTRUCTIONS);
    loop {
        if Ic::instructions() > end {
            return Err(unreadable(LENGTH + read, "the stream takes too many instructions: send fewer blocks"));
        }
        let rest = &stream[read..];
        let piece = &rest[..rest.len().min(PIECE)];
        let more = if piece.len() < rest.len() { TINFL_FLAG_HAS_MORE_INPUT } else { 0 };
        let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | more;
        let (status, consumed, written) = decompress(&mut state, piece, &mut plain, filled, flags);
        (read, filled) = (read + consumed, filled + written);
        let why = match status {
            TINFLStatus::Done if read < stream.len() => "bytes follow the end of the stream",
            TINFLStatus::Done if filled < length => "the plain argument is shorter than its declared length",
            TINFLStatus::Done => return Ok(plain),
            // The end of the stream may lie in the next piece when the output is full.
            TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput if more != 0 && consumed > 0 => continue,
            TINFLStatus::HasMoreOutput => "the plain argument is longer than its declared length",
            TINFLStatus::FailedCannotMakeProgress => "the stream is cut off",
            _ => "invalid deflate stream",
        };
        return Err(unreadable(LENGTH + read, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::AppendBlock;
    use ic_coppice_storage::twin;
    use miniz_oxide::deflate::compress_to_vec;
    use proptest::prelude::*;
    use serde_bytes::ByteBuf;

    fn with_length(length: usize, stream: &[u8]) -> Vec<u8> {
        [&(length as u32).to_le_bytes()[..], stream].concat()
    }

    fn compressed(plain: &[u8]) -> Vec<u8> {
        with_length(plain.len(), &compress_to_vec(plain, 6))
    }

    /// Returns the bytes before the invalid one, and the reason.
    fn refusal(error: AppendError) -> (u64, String) {
        match error {
            AppendError::BadEncoding { segment: 0, offset, why } => (offset, why),
            other => panic!("{other:?}"),
        }
    }

    fn why(bytes: &[u8]) -> String {
        refusal(plain(bytes).unwrap_err()).1
    }

    fn blocks(count: usize, body: usize) -> Vec<AppendBlock> {
        let block = |number| AppendBlock {
            number: number as u64,
            body: ByteBuf::from((0..body).map(|at| (at * at % 251) as u8).collect::<Vec<_>>()),
            ..ic_coppice_chain::testing::block(number as u64, &[[1; 32]], 0)
        };
        (0..count).map(block).collect()
    }

    #[test]
    fn compressed_argument_is_read_to_the_same_value() {
        for (count, body) in [(0, 0), (1, 100), (700, 100), (12, 190_000)] {
            let blocks = blocks(count, body);
            let argument = compressed(&candid::encode_one(&blocks).unwrap());
            assert_eq!(read::<Vec<AppendBlock>>(&argument), Ok(blocks));
        }
    }

    #[test]
    fn lengths_are_checked_before_and_after_the_stream() {
        assert!(why(&[1, 2, 3]).contains("4 bytes"));
        assert!(why(&with_length(MAX_PLAIN + 1, &[0; 20_000])).contains("at most 8388608"));
        assert!(why(&with_length(1_033, &[3])).contains("has no 1033 plain bytes"));
        let stream = compress_to_vec(&[7; 5_000], 6);
        assert!(plain(&with_length(5_000, &stream)).is_ok());
        assert!(why(&with_length(4_999, &stream)).contains("longer than its declared"));
        assert!(why(&with_length(5_001, &stream)).contains("shorter than its declared"));
        assert!(why(&with_length(5_000, &[&stream[..], &[0]].concat())).contains("follow the end"));
        assert!(why(&with_length(5_000, &stream[..stream.len() - 1])).contains("cut off"));
        assert!(why(&with_length(0, &[])).contains("cut off"));
        // An invalid block type.
        assert!(why(&with_length(5_000, &[0xFF; 40])).contains("invalid deflate"));
    }

    /// The TypeScript package has the type table as a constant, because its Candid library orders tables in another way.
    #[test]
    fn type_table_of_the_typescript_package_is_the_one_that_is_read() {
        let encoder = include_str!("../../../../packages/coppice/src/append.ts");
        let table: String = Vec::<AppendBlock>::TABLE.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(encoder.contains(&format!("fromHex(\"{table}\")")), "{table}");
    }

    /// A plain stream that ends at the end of a piece, or a little after it.
    #[test]
    fn streams_of_any_length_end_at_their_last_byte() {
        for length in (0..3 * PIECE).step_by(7).chain(PIECE - 12..PIECE + 12) {
            let bytes: Vec<u8> = (0..length).map(|at| ((at * 31 % 253) ^ (at >> 3)) as u8).collect();
            let stored = compress_to_vec(&bytes, 0);
            for stream in [compress_to_vec(&bytes, 6), stored] {
                assert_eq!(plain(&with_length(length, &stream)).as_ref(), Ok(&bytes));
                let longer = [&stream[..], &[0; 9]].concat();
                assert!(why(&with_length(length, &longer)).contains("follow the end"), "{length}");
            }
        }
    }

    /// Returns bytes of which nothing but the unused bits can be compressed.
    fn noise(len: usize, bits: u32) -> Vec<u8> {
        let mut state = 0x9E37_79B9u32;
        let draw = |_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> (32 - bits)) as u8
        };
        (0..len).map(draw).collect()
    }

    /// The output is full before the end of a stream whose last bytes lie in another piece.
    #[test]
    fn stream_may_end_just_behind_the_edge_of_a_piece() {
        let mut edges = 0;
        for length in 0..2_400 {
            let bytes = noise(length, 6);
            let stream = compress_to_vec(&bytes, 6);
            edges += u32::from(stream.len() > PIECE && stream.len() % PIECE <= 2);
            assert_eq!(plain(&with_length(length, &stream)).as_ref(), Ok(&bytes), "{length}");
        }
        assert!(edges > 2, "{edges}");
    }

    #[test]
    fn stream_that_takes_too_many_instructions_ends_between_two_pieces() {
        twin::reset();
        let argument = compressed(&noise(100_000, 6));
        assert!(argument.len() > 40 * PIECE);
        let read_at = |per_reading: u64| {
            twin::with(|world| (world.instructions, world.instructions_per_reading) = (0, per_reading));
            let read = plain(&argument);
            twin::with(|world| world.instructions_per_reading = 0);
            read.map(|_| ()).map_err(refusal).map_err(|(at, why)| (at, why.contains("too many instructions")))
        };
        assert_eq!(read_at(INSTRUCTIONS / 1_000), Ok(()));
        assert_eq!(read_at(INSTRUCTIONS / 10), Err(((LENGTH + 10 * PIECE) as u64, true)));
    }

    #[test]
    fn other_type_tables_and_longer_forms_are_not_read() {
        let refused = |plain: &[u8]| refusal(read::<Vec<AppendBlock>>(&compressed(plain)).unwrap_err()).1;
        let no = |plain: &[u8]| refused(plain).contains("type table");
        let message = candid::encode_one(blocks(3, 10)).unwrap();
        assert!(no(b"") && no(b"DIDL\0\0") && no(&candid::encode_one(7u8).unwrap()));
        assert!(no(&[&message[..], &[0]].concat()) && no(&message[..message.len() - 1]));
        let start = Vec::<AppendBlock>::TABLE.len();
        assert_eq!(message[start], 3);
        let longer = [&message[..start], &[0x83, 0], &message[start + 1..]].concat();
        assert!(no(&longer));
        // More blocks than the quota has units for: each takes 24 bytes at least.
        let many = candid::encode_one(vec![AppendBlock::default(); 150_000]).unwrap();
        assert!(many.len() < MAX_PLAIN && no(&many));
    }

    proptest! {
        /// Changed, cut or random bytes are read to the plain bytes or refused, and nothing panics.
        #[test]
        fn hostile_streams_are_refused(
            bytes in prop::collection::vec(0u8..9, 0..3_000), harm in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
            cut: prop::sample::Index, noise in prop::collection::vec(any::<u8>(), 0..2_000), declared in 0usize..5_000,
        ) {
            let mut argument = compressed(&bytes);
            prop_assert_eq!(plain(&argument), Ok(bytes));
            prop_assert!(plain(&argument[..cut.index(argument.len())]).is_err());
            for (at, byte) in harm {
                let at = at.index(argument.len());
                argument[at] = byte;
            }
            if let Ok(found) = plain(&argument) {
                prop_assert_eq!(found.len(), u32::from_le_bytes(*argument.first_chunk().unwrap()) as usize);
            }
            let _ = plain(&with_length(declared, &noise));
            prop_assert!(read::<Vec<AppendBlock>>(&noise).is_err());
        }
    }
}

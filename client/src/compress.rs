//! Compressed lists of blocks, if they cost the canister less than the plain ones.

use miniz_oxide::deflate::compress_to_vec;

/// Cycles that the canister pays for each byte of an ingress message, on a subnet of 13 nodes.
const PER_BYTE: u64 = 2_000;
/// Cycles that decompressing takes for each plain byte, at most: instructions, and changed pages of the heap.
const PER_PLAIN_BYTE: u64 = 60;
/// Level of compression; higher levels save less than a hundredth more.
const LEVEL: u8 = 6;
/// Bytes below which an argument is not compressed, because most of them are the type table and hashes.
const SHORTEST: usize = 256;

/// Returns an argument of `append_blocks` as `append_compressed` takes it, or `None` if that costs the canister more.
pub(crate) fn compressed(argument: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(argument.len()).ok()?.to_le_bytes();
    if argument.len() < SHORTEST {
        return None;
    }
    let stream = compress_to_vec(argument, LEVEL);
    let (plain, short) = (argument.len() as u64, (length.len() + stream.len()) as u64);
    let costs_less = short * PER_BYTE + plain * PER_PLAIN_BYTE < plain * PER_BYTE;
    costs_less.then(|| [&length[..], &stream].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::noise;
    use miniz_oxide::inflate::decompress_to_vec;

    #[test]
    fn argument_is_compressed_if_its_bytes_save_more_than_decompressing_takes() {
        let mut bytes = noise(100_000);
        assert_eq!(compressed(&bytes), None);
        // 2 % of the bytes are saved.
        bytes.extend([0; 2_000]);
        assert_eq!(compressed(&bytes), None);
        // 9 %.
        bytes.extend([0; 8_000]);
        let short = compressed(&bytes).unwrap();
        let (length, stream) = short.split_first_chunk().unwrap();
        assert_eq!(u32::from_le_bytes(*length), 110_000);
        assert_eq!(decompress_to_vec(stream).unwrap(), bytes);
        assert_eq!(compressed(&[0; SHORTEST - 1]), None);
        assert!(compressed(&[0; SHORTEST]).is_some());
    }
}

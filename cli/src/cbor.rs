//! Values in CBOR, as the network sends them: with or without the tag by which CBOR describes itself.

use anyhow::{Result, ensure};
use cbor4ii::core::dec::Read;
use cbor4ii::core::utils::SliceReader;
use cbor4ii::serde::Deserializer;
use serde::Deserialize;

/// The tag 55799, which means only that CBOR follows.
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Reads a value.
///
/// # Errors
/// When the bytes are not the value's CBOR, or more bytes follow it.
pub fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    let bytes = bytes.strip_prefix(&SELF_DESCRIBED).unwrap_or(bytes);
    let mut deserializer = Deserializer::new(SliceReader::new(bytes));
    let value = T::deserialize(&mut deserializer)?;
    ensure!(deserializer.into_inner().fill(1)?.as_ref().is_empty(), "bytes follow the value");
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_read_with_and_without_the_tag() {
        assert_eq!(read::<Vec<u8>>(&[0x82, 1, 2]).unwrap(), [1, 2]);
        assert_eq!(read::<Vec<u8>>(&[0xd9, 0xd9, 0xf7, 0x82, 1, 2]).unwrap(), [1, 2]);
    }

    #[test]
    fn bytes_after_the_value_and_cut_values_are_refused() {
        for bytes in [&[0x82, 1, 2, 3][..], &[0xd9, 0xd9, 0xf7, 0x82, 1, 2, 0xf6], &[0x82, 1], &[0xd9, 0xd9, 0xf7], &[]]
        {
            assert!(read::<Vec<u8>>(bytes).is_err(), "{bytes:?}");
        }
    }
}

//! Values in CBOR as the network sends them: with or without the tag by which CBOR describes itself.

use anyhow::{Error, Result, anyhow, ensure};
use cbor4ii::core::dec::{self, Read};
use cbor4ii::core::utils::SliceReader;
use cbor4ii::serde::{DecodeError, Deserializer};
use serde::Deserialize;
use std::convert::Infallible;

/// The tag 55799, which means only that CBOR follows.
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Reads a value.
///
/// # Errors
/// When the bytes are not the value's CBOR, or more bytes follow it.
pub fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    let bytes = bytes.strip_prefix(&SELF_DESCRIBED).unwrap_or(bytes);
    let mut deserializer = Deserializer::new(SliceReader::new(bytes));
    let value = T::deserialize(&mut deserializer).map_err(sentence)?;
    ensure!(deserializer.into_inner().fill(1)?.as_ref().is_empty(), "bytes follow the value");
    Ok(value)
}

/// Returns an error as a sentence, because cbor4ii shows it by its names and braces.
fn sentence(error: DecodeError<Infallible>) -> Error {
    match error {
        DecodeError::Custom(why) => Error::msg(why),
        DecodeError::Core(dec::Error::Eof { .. }) => anyhow!("the bytes end too early"),
        DecodeError::Core(dec::Error::DepthOverflow { .. }) => anyhow!("it is nested too deeply"),
        DecodeError::Core(_) => anyhow!("a part has another type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IgnoredAny;

    #[derive(Debug, Deserialize)]
    struct ReadStateResponse {
        #[expect(dead_code, reason = "only read")]
        certificate: Vec<u8>,
    }

    #[test]
    fn value_is_read_with_and_without_the_tag() {
        assert_eq!(read::<Vec<u8>>(&[0x82, 1, 2]).unwrap(), [1, 2]);
        assert_eq!(read::<Vec<u8>>(&[0xd9, 0xd9, 0xf7, 0x82, 1, 2]).unwrap(), [1, 2]);
    }

    #[test]
    fn refused_bytes_have_a_reason_in_words() {
        for (bytes, why) in [
            (&[0x82, 1, 2, 3][..], "bytes follow the value"),
            (&[0xd9, 0xd9, 0xf7, 0x82, 1, 2, 0xf6], "bytes follow the value"),
            (&[0x82, 1], "the bytes end too early"),
            (&[0xd9, 0xd9, 0xf7], "the bytes end too early"),
            (&[], "the bytes end too early"),
            (&[0x61, b'a'], "a part has another type"),
            (&[0xd9, 0xd9, 0xf6, 0x80], "a part has another type"),
        ] {
            assert_eq!(read::<Vec<u8>>(bytes).unwrap_err().to_string(), why, "{bytes:?}");
        }
        assert_eq!(read::<IgnoredAny>(&[0x81; 1_000]).unwrap_err().to_string(), "it is nested too deeply");
        let missing = read::<ReadStateResponse>(&[0xa0]).unwrap_err().to_string();
        assert_eq!(missing, "missing field `certificate`");
    }
}

//! Bytes as lowercase hexadecimal digits in JSON. Other forms of the same bytes are refused, so that a proof has one form only.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Formatter};
use std::marker::PhantomData;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Bytes that JSON has as hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hex<T>(pub T);

/// Reads lowercase hexadecimal digits, two for each byte.
pub fn read(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| DIGITS.iter().position(|of| *of == digit).map(|at| at as u8);
    let pairs = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some(nibble(high)? << 4 | nibble(low)?),
        _ => None,
    });
    pairs.collect()
}

impl<T: AsRef<[u8]>> Serialize for Hex<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
        let digits = self.0.as_ref().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
        serializer.serialize_str(&digits.collect::<String>())
    }
}

impl<'de, T: TryFrom<Vec<u8>>> Deserialize<'de> for Hex<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Digits(PhantomData)).map(Self)
    }
}

struct Digits<T>(PhantomData<T>);

impl<T: TryFrom<Vec<u8>>> Visitor<'_> for Digits<T> {
    type Value = T;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("lowercase hexadecimal digits, two for each byte")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let bytes =
            read(text).ok_or_else(|| E::custom("a field has not lowercase hexadecimal digits, two for each byte"))?;
        let length = bytes.len();
        // Only arrays have a length of their own.
        bytes.try_into().map_err(|_| E::custom(format!("a field has {length} bytes instead of {}", size_of::<T>())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lowercase_digits_of_whole_bytes_are_read() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = serde_json::to_string(&Hex(&bytes)).unwrap();
        assert!(text.starts_with("\"000102") && text.ends_with("fdfeff\""), "{text}");
        assert_eq!(serde_json::from_str::<Hex<Vec<u8>>>(&text).unwrap().0, bytes);
        for refused in ["0", "0g", "AA", "aA", "0x00", " 00", "é"] {
            assert_eq!(read(refused), None, "{refused}");
        }
        assert_eq!(read(""), Some(Vec::new()));
        let error = serde_json::from_str::<Hex<[u8; 32]>>("\"00\"").unwrap_err().to_string();
        assert!(error.contains("1 bytes instead of 32"), "{error}");
        assert!(serde_json::from_str::<Hex<Vec<u8>>>("[0]").is_err());
    }
}

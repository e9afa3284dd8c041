//! Values as CBOR: structures are maps by the names of their fields, so that a field may be added without a new version.

pub use cbor4ii::core::Value;
use cbor4ii::core::dec::Decode;
use cbor4ii::core::utils::SliceReader;
use cbor4ii::serde::{from_slice, to_vec};
use serde::{Serialize, de::DeserializeOwned};

/// Reads a value.
///
/// # Errors
/// A sentence: the bytes are not the value's CBOR.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    from_slice(bytes).map_err(|error| error.to_string())
}

/// Appends a value to bytes.
///
/// # Errors
/// A sentence: the value has no form in CBOR.
pub fn write_onto(bytes: Vec<u8>, value: &impl Serialize) -> Result<Vec<u8>, String> {
    to_vec(bytes, value).map_err(|error| error.to_string())
}

/// Returns a value in the form that it has as CBOR.
///
/// # Errors
/// As [`write_onto`].
pub fn value_of(value: &impl Serialize) -> Result<Value, String> {
    let bytes = write_onto(Vec::new(), value)?;
    Value::decode(&mut SliceReader::new(&bytes)).map_err(|error| error.to_string())
}

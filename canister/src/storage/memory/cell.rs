//! Cells: small values at fixed places, each behind a magic and a version of its own.

use super::Region;
pub use super::places::*;
use serde::{Serialize, de::DeserializeOwned};

/// The length of what a cell holds, if this code can read it: a header of magic, version u16, reserved u16, length u32.
/// `None` where it was never written.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn check(cells: &Region, at: u64, magic: [u8; 4], version: u16) -> Result<Option<u32>, String> {
    let header: [u8; 12] = cells.read(at);
    if header == [0; 12] {
        return Ok(None);
    }
    let found = u16::from_le_bytes([header[4], header[5]]);
    if header[..4] != magic || found != version {
        let name = String::from_utf8_lossy(&magic);
        return Err(format!("cell {name}: magic {:?}, version {found}; this code reads {version}", &header[..4]));
    }
    Ok(Some(u32::from_le_bytes([header[8], header[9], header[10], header[11]])))
}

/// Reads a cell that is CBOR behind such a header. `None` where it was never written.
///
/// # Errors
/// A sentence that says what is wrong with it: nothing is ever assumed of a cell that cannot be decoded.
pub fn load<T: DeserializeOwned>(cells: &Region, at: u64, magic: [u8; 4], version: u16) -> Result<Option<T>, String> {
    let Some(len) = check(cells, at, magic, version)? else { return Ok(None) };
    let mut bytes = Vec::new();
    cells.read_onto(&mut bytes, at + 12, (len as usize).min(END as usize));
    ciborium::from_reader(bytes.as_slice())
        .map(Some)
        .map_err(|error| format!("cell {}: {error}", String::from_utf8_lossy(&magic)))
}

/// Writes such a cell, of at most `capacity` bytes.
///
/// # Errors
/// A sentence where the value is longer; nothing has changed.
pub fn save<T: Serialize>(
    cells: &Region,
    (at, capacity): (u64, usize),
    magic: [u8; 4],
    version: u16,
    value: &T,
) -> Result<(), String> {
    let mut bytes = Vec::from(magic);
    bytes.extend(version.to_le_bytes());
    bytes.extend([0; 6]);
    ciborium::into_writer(value, &mut bytes).map_err(|error| format!("{error}"))?;
    if bytes.len() > capacity {
        return Err(format!("{} bytes in a cell of {capacity}", bytes.len()));
    }
    let len = (bytes.len() - 12) as u32;
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    cells.write(at, &bytes);
    Ok(())
}

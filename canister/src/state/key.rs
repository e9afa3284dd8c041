//! The hash key: kept in a cell, and taken from a reply of `raw_rand`.

use super::State;
use crate::places;
use ic_coppice_storage::cell::Cell;
use ic_coppice_storage::header::Header;
use ic_coppice_storage::{HashKey, KEY, Space};
use serde_bytes::{ByteArray, ByteBuf};

/// The cell of the key. It is written once.
const CELL: Cell =
    Cell { at: places::KEY, capacity: 64, header: Header { name: "hash key", magic: *b"CPKY", version: 1 } };
/// Bytes of a reply of `raw_rand`.
const RANDOM: usize = 32;

/// Returns the key in the cell; an unset one if none was stored.
///
/// # Errors
/// A sentence: the cell was not written by this code.
pub fn load(cells: &Space) -> Result<HashKey, String> {
    let stored: Option<ByteArray<KEY>> = CELL.load(cells)?;
    Ok(stored.map_or_else(HashKey::default, |bytes| HashKey::of(bytes.into_array())))
}

impl State {
    /// Stores the key that a reply of `raw_rand` brings, then sets it. A key that is set stays, because all entries are hashed under it.
    ///
    /// # Errors
    /// A sentence without the reply: the call was rejected, or the reply does not have 32 bytes. Nothing has changed.
    pub fn take_random(&mut self, reply: Result<Vec<u8>, String>) -> Result<(), String> {
        if self.key.is_set() {
            return Ok(());
        }
        let random: ByteBuf = candid::decode_one(&reply?).map_err(|_| "the reply must be a blob")?;
        let bytes = random.first_chunk().filter(|_| random.len() == RANDOM);
        self.set_key(*bytes.ok_or_else(|| format!("the reply has {} bytes, not {RANDOM}", random.len()))?);
        Ok(())
    }

    /// Writes the cell anew if it is damaged.
    pub(super) fn rewrite_key(&self) {
        if let Some(key) = self.key.bytes().filter(|_| CELL.is_damaged(&self.cells, true)) {
            self.set_key(key);
        }
    }

    /// Stores the key, then sets it.
    pub(super) fn set_key(&self, bytes: [u8; KEY]) {
        CELL.keep(&self.cells, &ByteArray::new(bytes));
        self.key.set(bytes);
    }
}

#[cfg(test)]
mod tests {
    use crate::platform::native;
    use crate::state::{self, mutate, read};
    use crate::{memory, places};
    use ic_coppice_interface::InitArg;
    use ic_coppice_storage::KEY;
    use serde_bytes::ByteBuf;

    fn reply(bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(candid::encode_one(ByteBuf::from(bytes)).unwrap())
    }

    /// A canister whose key is not drawn yet.
    fn fresh() {
        native::reset();
        memory::forget();
        native::with(|world| world.hash_key = None);
        state::init(&InitArg::default()).unwrap();
    }

    fn hash() -> u64 {
        read(|state| state.key.hash(b"name"))
    }

    fn upgrade() -> Result<(), String> {
        memory::forget();
        state::upgrade(None)
    }

    #[test]
    fn malformed_reply_changes_nothing_and_the_first_whole_one_is_kept() {
        fresh();
        let garbled = Ok(candid::encode_one(7_u64).unwrap());
        let bad = [Err("rejected".into()), Ok(Vec::new()), garbled, reply(&[1; 31]), reply(&[1; 33]), reply(&[])];
        for reply in bad {
            assert!(mutate(|state| state.take_random(reply)).is_err());
            assert!(!read(|state| state.key.is_set()));
        }
        let first: [u8; 32] = std::array::from_fn(|at| at as u8);
        mutate(|state| state.take_random(reply(&first))).unwrap();
        let (key, kept) = (*first.first_chunk::<KEY>().unwrap(), hash());
        assert_eq!(kept, ic_coppice_storage::HashKey::of(key).hash(b"name"));
        for late in [reply(&[9; 32]), Err("rejected".into())] {
            assert_eq!(mutate(|state| state.take_random(late)), Ok(()));
            assert_eq!(hash(), kept);
        }
        upgrade().unwrap();
        assert_eq!(hash(), kept);
    }

    #[test]
    fn upgrade_before_the_reply_leaves_the_key_unset() {
        fresh();
        upgrade().unwrap();
        assert!(!read(|state| state.key.is_set()));
    }

    #[test]
    fn damaged_key_cell_refuses_the_upgrade() {
        fresh();
        mutate(|state| state.take_random(reply(&[1; 32]))).unwrap();
        let cells = ic_coppice_storage::testing::cells();
        let cell: [u8; 64] = cells.read(places::KEY);
        for (byte, wrong) in [(0, b'X'), (4, 2), (8, 3), (12, 0xFF)] {
            let mut damaged = cell;
            damaged[byte] = wrong;
            cells.write(places::KEY, &damaged);
            assert!(upgrade().unwrap_err().contains("hash key"), "byte {byte}");
        }
        cells.write(places::KEY, &cell);
        upgrade().unwrap();
    }
}

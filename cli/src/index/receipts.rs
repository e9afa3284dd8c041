//! A receipts segment, divided into receipts.

use super::schema::INLINE;
use anyhow::{Error, Result, anyhow};
use ic_coppice_interface::segments::{BadSegment, check_receipts, receipts_table_len};

/// Divides a receipts segment that comes in parts into receipts. Holds the table of end offsets and one receipt.
pub(super) struct Splitter {
    transactions: u32,
    length: u64,
    table: Vec<u8>,
    /// The position of the next receipt.
    next: u32,
    /// Bytes of the next receipt that have come, and those of them that are held.
    came: u64,
    held: Vec<u8>,
}

impl Splitter {
    /// Creates a splitter of a segment of `length` bytes.
    pub fn new(transactions: u32, length: u64) -> Self {
        Self { transactions, length, table: Vec::new(), next: 0, came: 0, held: Vec::new() }
    }

    fn end(&self, position: u32) -> u64 {
        let at = 4 + 4 * position as usize;
        let end = self.table.get(at..).and_then(|rest| rest.first_chunk());
        end.map_or(0, |end| u64::from(u32::from_le_bytes(*end)))
    }

    /// Takes the next part of the segment. Calls `put` with the position and bytes of each receipt that is complete; without bytes if they
    /// are more than [`INLINE`].
    ///
    /// # Errors
    /// When the segment is malformed; errors of `put`.
    pub fn take(&mut self, part: &[u8], mut put: impl FnMut(u32, Option<&[u8]>) -> Result<()>) -> Result<()> {
        let table = receipts_table_len(self.transactions).min(self.length) as usize;
        let (head, mut rest) = part.split_at(part.len().min(table - self.table.len()));
        self.table.extend_from_slice(head);
        if self.table.len() < table {
            return Ok(());
        }
        if !head.is_empty() {
            check_receipts(&self.table, self.length, self.transactions).map_err(malformed)?;
        }
        while self.next < self.transactions {
            let start = self.next.checked_sub(1).map_or(0, |before| self.end(before));
            let length = self.end(self.next) - start;
            let (bytes, after) = rest.split_at(rest.len().min((length - self.came) as usize));
            (self.came, rest) = (self.came + bytes.len() as u64, after);
            let is_whole = self.came == length;
            if length > INLINE {
                if is_whole {
                    put(self.next, None)?;
                }
            } else if is_whole && self.held.is_empty() {
                put(self.next, Some(bytes))?;
            } else {
                self.held.extend_from_slice(bytes);
                if is_whole {
                    put(self.next, Some(&self.held))?;
                    self.held.clear();
                }
            }
            if !is_whole {
                break;
            }
            (self.next, self.came) = (self.next + 1, 0);
        }
        Ok(())
    }
}

fn malformed(bad: BadSegment) -> Error {
    anyhow!("the receipts are malformed at byte {}: {}", bad.at, bad.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::segments::encode_receipts;

    /// Returns the receipts of a segment that comes in parts of `size` bytes.
    fn split(segment: &[u8], transactions: u32, size: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let (mut splitter, mut found) = (Splitter::new(transactions, segment.len() as u64), Vec::new());
        for part in segment.chunks(size) {
            splitter.take(part, |position, bytes| {
                assert_eq!(position as usize, found.len());
                found.push(bytes.map(<[u8]>::to_vec));
                Ok(())
            })?;
        }
        Ok(found)
    }

    #[test]
    fn receipts_are_split_alike_however_their_segment_is_cut() {
        let receipts: Vec<Vec<u8>> =
            [0, 5, 0, 0, 300, 1, 0].iter().map(|&length| (0..length).map(|at| at as u8).collect()).collect();
        for some in [&receipts[..], &receipts[..1], &receipts[1..2], &receipts[4..5], &[]] {
            let segment = encode_receipts(some).unwrap();
            for size in (1..=segment.len()).chain([usize::MAX]) {
                let found = split(&segment, some.len() as u32, size).unwrap();
                assert_eq!(found, some.iter().cloned().map(Some).collect::<Vec<_>>(), "{size}");
            }
        }
        let error = split(&[2, 0, 0, 0, 0, 0, 0, 0], 1, 3).unwrap_err().to_string();
        assert_eq!(error, "the receipts are malformed at byte 0: 2 receipts for 1 transactions");
    }

    #[test]
    fn receipt_longer_than_a_row_has_no_bytes() {
        let most = INLINE as usize;
        let segment = encode_receipts(&[vec![1; most], vec![2; most + 1], vec![3; 2]]).unwrap();
        for size in [1 << 20, usize::MAX] {
            let found = split(&segment, 3, size).unwrap();
            assert_eq!(found, [Some(vec![1; most]), None, Some(vec![3; 2])], "{size}");
        }
    }
}

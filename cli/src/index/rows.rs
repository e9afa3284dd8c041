//! Rows of the tables `keys` and `receipts`, which answer by key and by transaction after the canister has pruned a block.
//!
//! The rows are made from a block's segments, in the transaction that stores the block. `state.keys_through` is the last block whose keys
//! are in `keys`: all stored blocks up to this one have their rows, and no later block has any; `state.receipts_through` is the same for
//! `receipts`. If a run fills a table that an earlier run did not fill, the rows of the blocks between are made from the stored segments
//! first, a batch of blocks in each transaction.

use super::change::{Change, Damaged, int};
use super::database::Value;
use super::schema::INLINE;
use anyhow::{Context, Result, ensure};
use coppice_interface::segments::{Index, check_receipts, receipts_table_len};
use std::sync::LazyLock;

/// Stored blocks of a batch, at most.
const FILL_BLOCKS: i64 = 256;
/// Bytes of segments after which a batch ends.
const FILL_BYTES: u64 = 8 << 20;
/// Bytes of receipts in one statement, unless one receipt alone has more.
const STATEMENT_BYTES: usize = 1 << 20;
/// Statements insert 1, 2, 4, … rows: this is the binary logarithm of the most.
const MOST: usize = 8;

/// The tables that a run fills besides `blocks`, `transactions` and `parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Fills `keys`.
    pub keys: bool,
    /// Fills `receipts`.
    pub receipts: bool,
}

impl Default for Tables {
    fn default() -> Self {
        Self { keys: true, receipts: false }
    }
}

impl Tables {
    /// No table.
    pub const NONE: Self = Self { keys: false, receipts: false };
}

/// The last block whose rows each table has; `None` if it has no rows of any block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Through {
    /// Of `keys`.
    pub keys: Option<u64>,
    /// Of `receipts`.
    pub receipts: Option<u64>,
}

impl Through {
    /// Returns the last block whose rows all of these tables have.
    pub(super) fn of(self, tables: Tables) -> Option<u64> {
        let through = [(tables.keys, self.keys), (tables.receipts, self.receipts)];
        through.into_iter().filter(|(fills, _)| *fills).map(|(_, through)| through).min().flatten()
    }

    /// Returns the same after all blocks above one were removed.
    pub(super) fn below(self, block: Option<u64>) -> Self {
        Self { keys: self.keys.min(block), receipts: self.receipts.min(block) }
    }
}

/// Statements that insert rows of one block: the first value is the block's number, then come two values for each row.
struct Insert([String; MOST + 1]);

impl Insert {
    fn into(table: &str, columns: [&str; 2]) -> Self {
        Self(std::array::from_fn(|at| {
            let rows = (0..1 << at).map(|row| format!("($1, ${}, ${})", 2 * row + 2, 2 * row + 3));
            let [one, two] = columns;
            format!("INSERT INTO {table} (number, {one}, {two}) VALUES {}", rows.collect::<Vec<_>>().join(", "))
        }))
    }
}

static KEYS: LazyLock<Insert> = LazyLock::new(|| Insert::into("keys", ["key", "position"]));
static RECEIPTS: LazyLock<Insert> = LazyLock::new(|| Insert::into("receipts", ["position", "bytes"]));

/// Divides a receipts segment that comes in parts into receipts. Holds the table of end offsets and one receipt.
struct Splitter {
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
    fn new(transactions: u32, length: u64) -> Self {
        Self { transactions, length, table: Vec::new(), next: 0, came: 0, held: Vec::new() }
    }

    fn end(&self, position: u32) -> u64 {
        let at = 4 + 4 * position as usize;
        let end = self.table.get(at..).and_then(|rest| rest.first_chunk());
        end.map_or(0, |end| u64::from(u32::from_le_bytes(*end)))
    }

    /// Takes the next part of the segment. Calls `put` with the position and bytes of each receipt that is complete; without bytes if they
    /// are more than [`INLINE`].
    fn take(&mut self, part: &[u8], mut put: impl FnMut(u32, Option<&[u8]>) -> Result<()>) -> Result<()> {
        let table = receipts_table_len(self.transactions).min(self.length) as usize;
        let (head, mut rest) = part.split_at(part.len().min(table - self.table.len()));
        self.table.extend_from_slice(head);
        if self.table.len() < table {
            return Ok(());
        }
        if !head.is_empty() {
            check_table(&self.table, self.length, self.transactions)?;
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

/// Checks the table at the beginning of a receipts segment of `length` bytes.
///
/// # Errors
/// [`Damaged`].
pub(super) fn check_table(table: &[u8], length: u64, transactions: u32) -> Result<()> {
    check_receipts(table, length, transactions)
        .map_err(|bad| Damaged { why: format!("its receipts are malformed at byte {}: {}", bad.at, bad.why) }.into())
}

impl Change<'_, '_> {
    /// Stores the rows of a block that is newer than all blocks with rows. `receipts` is the segment, or `None` if it is in `parts`.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) fn put_rows(
        &mut self,
        number: u64,
        index: &Index<'_>,
        receipts: (Option<&[u8]>, u64),
        tables: Tables,
    ) -> Result<()> {
        if tables.keys {
            self.put_keys(number, index)?;
            self.through.keys = Some(number);
        }
        if tables.receipts {
            self.put_receipts(number, index.transactions(), receipts)?;
            self.through.receipts = Some(number);
        }
        Ok(())
    }

    fn put_keys(&mut self, number: u64, index: &Index<'_>) -> Result<()> {
        let mut keys: Vec<(&[u8], u32)> = index.each_key().map(|key| (key.bytes, key.transaction)).collect();
        keys.sort_unstable();
        // A transaction may have a key twice.
        keys.dedup();
        let rows: Vec<_> = keys.iter().map(|(key, position)| [(*key).into(), i64::from(*position).into()]).collect();
        self.insert_rows(&KEYS, number, &rows)
    }

    fn put_receipts(&mut self, number: u64, transactions: u32, receipts: (Option<&[u8]>, u64)) -> Result<()> {
        let (bytes, length) = receipts;
        if length == 0 {
            return Ok(());
        }
        let mut splitter = Splitter::new(transactions, length);
        if let Some(bytes) = bytes {
            return self.put_complete(number, &mut splitter, bytes);
        }
        let mut at = 0;
        while at < length {
            let part = self.part(number, 1, at)?;
            let part = part.with_context(|| format!("block {number}: a part is missing in the database"))?;
            self.put_complete(number, &mut splitter, &part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Stores the receipts that a part of their segment completes.
    fn put_complete(&mut self, number: u64, splitter: &mut Splitter, part: &[u8]) -> Result<()> {
        let (mut rows, mut bytes) = (Vec::<(u32, Option<Vec<u8>>)>::new(), 0);
        let put = |this: &mut Self, rows: &mut Vec<(u32, Option<Vec<u8>>)>| {
            let values: Vec<_> = rows
                .iter()
                .map(|(position, bytes)| [i64::from(*position).into(), Value::Bytes(bytes.as_deref())])
                .collect();
            this.insert_rows(&RECEIPTS, number, &values)?;
            rows.clear();
            anyhow::Ok(())
        };
        splitter.take(part, |position, receipt| {
            bytes += receipt.map_or(0, <[u8]>::len);
            rows.push((position, receipt.map(<[u8]>::to_vec)));
            if bytes >= STATEMENT_BYTES || rows.len() == 1 << MOST {
                bytes = 0;
                put(self, &mut rows)?;
            }
            Ok(())
        })?;
        put(self, &mut rows)
    }

    /// Inserts rows of one block, with as few statements as possible.
    fn insert_rows(&mut self, insert: &'static Insert, number: u64, rows: &[[Value<'_>; 2]]) -> Result<()> {
        let mut rest = rows;
        while let Some(at) = rest.len().checked_ilog2() {
            let at = MOST.min(at as usize);
            let (now, later) = rest.split_at(1 << at);
            let mut values = vec![int(number)?.into()];
            values.extend(now.iter().flatten());
            self.tx.execute(&insert.0[at], &values)?;
            rest = later;
        }
        Ok(())
    }

    /// Makes the rows of stored blocks that lack them: of the oldest ones, a batch. Returns how many blocks these were; 0 if none lacks any.
    ///
    /// # Errors
    /// When the database fails, or holds something that this code does not write.
    pub fn fill(&mut self) -> Result<u64> {
        let above = self.through.of(self.tables).map_or(Ok(-1), int)?;
        let sql = "SELECT number, transactions, index_length, receipts_length FROM blocks WHERE number > $1 \
                   ORDER BY number LIMIT $2";
        let rows = self.tx.all(sql, &[above.into(), FILL_BLOCKS.into()])?;
        let (mut filled, mut bytes) = (0, 0);
        for row in rows {
            let [number, transactions, index, receipts] = [0, 1, 2, 3].map(|column| row.get::<i64>(column));
            let (number, receipts) = (number?.cast_unsigned(), receipts?.cast_unsigned());
            let tables = Tables {
                keys: self.tables.keys && Some(number) > self.through.keys,
                receipts: self.tables.receipts && Some(number) > self.through.receipts,
            };
            self.fill_block(number, transactions?, tables, receipts)?;
            filled += 1;
            bytes += index?.cast_unsigned() + if tables.receipts { receipts } else { 0 };
            if bytes >= FILL_BYTES {
                break;
            }
        }
        Ok(filled)
    }

    /// Makes the rows of one stored block.
    fn fill_block(&mut self, number: u64, transactions: i64, tables: Tables, receipts_length: u64) -> Result<()> {
        let sql = "SELECT index_segment FROM blocks WHERE number = $1";
        let row = self.tx.one(sql, &[int(number)?.into()])?.context("the block is gone")?;
        let index = row.get::<Option<Vec<u8>>>(0)?.unwrap_or_default();
        let index = Index::parse(&index).ok().filter(|index| i64::from(index.transactions()) == transactions);
        let index = index.with_context(|| {
            format!(
                "the database holds another index segment of block {number} than the indexer wrote: start with another database \
                 (--database)"
            )
        })?;
        let mut receipts = None;
        if tables.receipts {
            let sql = "SELECT receipts FROM blocks WHERE number = $1";
            let row = self.tx.one(sql, &[int(number)?.into()])?.context("the block is gone")?;
            receipts = row.get::<Option<Vec<u8>>>(0)?;
            let stored = receipts.as_ref().map(|bytes| bytes.len() as u64);
            ensure!(
                stored.is_none_or(|stored| stored == receipts_length),
                "the database holds another receipts segment of block {number} than the indexer wrote: start with another database \
                 (--database)"
            );
        }
        self.put_rows(number, &index, (receipts.as_deref(), receipts_length), tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coppice_interface::segments::encode_receipts;

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
        assert_eq!(error, "its receipts are malformed at byte 0: 2 receipts for 1 transactions");
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

    #[test]
    fn table_with_fewer_blocks_decides_what_all_tables_have() {
        let through = Through { keys: Some(7), receipts: Some(3) };
        let of = |keys, receipts| through.of(Tables { keys, receipts });
        assert_eq!(
            [of(true, false), of(false, true), of(true, true), of(false, false)],
            [Some(7), Some(3), Some(3), None]
        );
        assert_eq!(Through { keys: None, ..through }.of(Tables { keys: true, receipts: true }), None);
        assert_eq!(through.below(Some(5)), Through { keys: Some(5), receipts: Some(3) });
        assert_eq!(through.below(None), Through::default());
    }
}

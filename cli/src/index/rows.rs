//! Rows of the tables `keys` and `receipts`, which answer by key and by transaction after the canister has pruned a block.
//!
//! The rows are made from a block's segments, in the transaction that stores the block. `state.keys_through` is the last block whose keys
//! are in `keys`: all stored blocks up to this one have their rows, and no later block has any; `state.receipts_through` is the same for
//! `receipts`. If a run fills a table that an earlier run did not fill, the rows of the blocks between are made from the stored segments
//! first, a batch of blocks in each transaction.

use super::change::{Change, int};
use super::database::Value;
use super::receipts::Splitter;
use super::tables::Tables;
use anyhow::{Context, Result, ensure};
use ic_coppice_interface::segments::Index;
use std::sync::LazyLock;

/// Stored blocks of a batch, at most.
const FILL_BLOCKS: i64 = 256;
/// Bytes of segments after which a batch ends.
const FILL_BYTES: u64 = 8 << 20;
/// Bytes of receipts in one statement, unless one receipt alone has more.
const STATEMENT_BYTES: usize = 1 << 20;
/// Statements insert 1, 2, 4, … rows: this is the binary logarithm of the most.
const MOST: usize = 8;

/// Positions and bytes of receipts.
type ReceiptRows = Vec<(u32, Option<Vec<u8>>)>;

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

impl Change<'_, '_> {
    /// Stores the rows of a block that is newer than all blocks with rows. `receipts` is the segment, or `None` if it is in `parts`, and the
    /// segment's length.
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
        let (mut rows, mut bytes) = (ReceiptRows::new(), 0);
        let put = |this: &mut Self, rows: &mut ReceiptRows| {
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

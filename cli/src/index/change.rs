//! Changes of the database: each change is one transaction, the cursor included.
//!
//! Memory stays bounded for blocks of any size. Chunks of an incomplete block go to `parts`, and digests are computed over `parts` one row
//! at a time. Only segments of up to [`INLINE`] bytes are joined into a whole block's row; longer ones stay in `parts`. So memory holds at
//! most a page and three such segments, besides the database's cache.

use super::assemble::{Declared, Incomplete, Misfit, SEGMENTS};
use super::database::{Tx, Value};
use super::origin::Payload;
use super::schema::INLINE;
use super::tables::{Tables, Through};
use crate::verify::hex;
use anyhow::{Context, Result, bail, ensure};
use coppice_interface::BlockHeader;
use coppice_interface::segments::{BadSegment, Index, check_receipts, receipts_table_len};
use sha2::{Digest, Sha256};

/// A segment that does not match its digest, or a malformed index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Damaged {
    /// The reason, a sentence.
    pub why: String,
}

/// The result of comparing a stored block with the subnet's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// There is no unconfirmed block with this number.
    Absent,
    /// The block equals the subnet's, and is marked as confirmed.
    Same,
    /// The subnet's block has another hash.
    Another,
    /// The hash is the subnet's, but another part of the block differs.
    Differs {
        /// The difference, a sentence.
        why: String,
    },
}

/// The removed blocks that stay in `orphaned`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest blocks that reorgs and resets removed, up to this number.
    Newest(u64),
    /// All of them, for good: the canister was restored, so the blocks may exist nowhere else.
    All,
}

/// A change in progress.
pub struct Change<'a, 'b> {
    pub(super) tx: &'a mut Tx<'b>,
    payload: Payload,
    /// The number of this removal, larger than that of any earlier change.
    removal: i64,
    forgets_pruned: bool,
    /// The tables to fill.
    pub(super) tables: Tables,
    /// The blocks whose rows these tables have.
    pub(super) through: Through,
}

impl<'a, 'b> Change<'a, 'b> {
    /// Starts a change.
    pub(super) fn new(
        tx: &'a mut Tx<'b>,
        payload: Payload,
        removal: i64,
        (tables, through): (Tables, Through),
    ) -> Self {
        Self { tx, payload, removal, forgets_pruned: false, tables, through }
    }

    /// Returns whether the canister has another chain or an earlier state now, so that what it reported as pruned is not valid any more.
    pub(super) fn forgets_pruned(&self) -> bool {
        self.forgets_pruned
    }

    /// Stores a chunk of an incomplete block.
    ///
    /// # Errors
    /// When the database fails.
    pub fn put_part(&mut self, block: u64, segment: u8, starts_at: u64, bytes: &[u8]) -> Result<()> {
        let sql = "INSERT INTO parts (number, segment, starts_at, bytes) VALUES ($1, $2, $3, $4)";
        let values = [int(block)?.into(), i64::from(segment).into(), int(starts_at)?.into(), bytes.into()];
        self.tx.execute(sql, &values).map(drop)
    }

    /// Stores the progress of the incomplete block.
    ///
    /// # Errors
    /// When the database fails.
    pub fn set_incomplete(&mut self, block: &Incomplete) -> Result<()> {
        self.tx.execute("DELETE FROM incomplete", &[])?;
        let sql = "INSERT INTO incomplete (number, block) VALUES ($1, $2)";
        let text = serde_json::to_string(block)?;
        self.tx.execute(sql, &[int(block.number)?.into(), text.as_str().into()]).map(drop)
    }

    /// Deletes the incomplete block and its chunks.
    ///
    /// # Errors
    /// When the database fails.
    pub fn drop_incomplete(&mut self) -> Result<()> {
        self.tx.execute("DELETE FROM parts WHERE number IN (SELECT number FROM incomplete)", &[])?;
        self.tx.execute("DELETE FROM incomplete", &[]).map(drop)
    }

    /// Deletes the chunks of a block.
    ///
    /// # Errors
    /// When the database fails.
    pub fn drop_parts(&mut self, block: u64) -> Result<()> {
        self.tx.execute("DELETE FROM parts WHERE number = $1", &[int(block)?.into()])?;
        self.tx.execute("DELETE FROM incomplete", &[]).map(drop)
    }

    /// Checks a segment in `parts` against its digest, one part at a time.
    ///
    /// # Errors
    /// [`Damaged`]; when the database fails, or a part is missing.
    pub fn check_parts(&mut self, block: &Incomplete, segment: u8) -> Result<()> {
        let declared = declared(block, segment)?;
        let mut sha256 = Sha256::new();
        let are_there = self.for_each_part(block.number, segment, declared.length, |bytes| sha256.update(bytes))?;
        ensure!(are_there, "block {}: a part is missing in the database", block.number);
        check(declared, &sha256.finalize(), block.number, segment)
    }

    /// Reads a segment part by part, and returns whether all parts are there.
    fn for_each_part(&mut self, block: u64, segment: u8, length: u64, mut each: impl FnMut(&[u8])) -> Result<bool> {
        let mut at = 0;
        while at < length {
            let Some(bytes) = self.part(block, segment, at)? else { return Ok(false) };
            each(&bytes);
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Reads the part that starts at a byte of a segment; `None` if there is no part, or an empty one.
    pub(super) fn part(&mut self, block: u64, segment: u8, starts_at: u64) -> Result<Option<Vec<u8>>> {
        let sql = "SELECT bytes FROM parts WHERE number = $1 AND segment = $2 AND starts_at = $3";
        let values = [int(block)?.into(), i64::from(segment).into(), int(starts_at)?.into()];
        let bytes = self.tx.one(sql, &values)?.map(|row| row.get::<Vec<u8>>(0)).transpose()?;
        Ok(bytes.filter(|bytes| !bytes.is_empty()))
    }

    /// Reads the first bytes of a segment, or the whole segment if it is shorter.
    fn first_bytes(&mut self, block: u64, segment: u8, bytes: u64) -> Result<Vec<u8>> {
        let mut first = Vec::new();
        while (first.len() as u64) < bytes {
            let part = self.part(block, segment, first.len() as u64)?;
            first.extend(part.with_context(|| format!("block {block}: a part is missing in the database"))?);
        }
        first.truncate(bytes as usize);
        Ok(first)
    }

    /// Stores a whole block whose chunks are in `parts` and whose segments were checked. Returns the number of its transactions.
    ///
    /// # Errors
    /// [`Damaged`]; when the database fails.
    pub fn finish_parts(&mut self, block: &Incomplete) -> Result<u64> {
        let mut inline: [Option<Vec<u8>>; SEGMENTS] = Default::default();
        let [_, receipts, index] = [0, 1, 2].map(|segment| declared(block, segment).map(|of| of.length));
        let (receipts, index) = (receipts?, index?);
        if index > INLINE {
            bail!(Damaged { why: format!("its index has {index} bytes, more than a canister accepts") });
        }
        // The number of transactions, with which an index begins; a malformed index is found below.
        let transactions = self.first_bytes(block.number, 2, index.min(4))?;
        let transactions = transactions.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let table = self.first_bytes(block.number, 1, receipts_table_len(transactions).min(INLINE).min(receipts))?;
        for (segment, bytes) in (0..).zip(&mut inline) {
            let length = declared(block, segment)?.length;
            let index = usize::from(segment) == SEGMENTS - 1;
            if length <= INLINE && (index || self.payload == Payload::All) {
                let mut whole = Vec::with_capacity(length as usize);
                let are_there =
                    self.for_each_part(block.number, segment, length, |part| whole.extend_from_slice(part))?;
                ensure!(are_there, "block {}: a part is missing in the database", block.number);
                *bytes = Some(whole);
            }
            if length <= INLINE || self.payload == Payload::Headers {
                let sql = "DELETE FROM parts WHERE number = $1 AND segment = $2";
                self.tx.execute(sql, &[int(block.number)?.into(), i64::from(segment).into()])?;
            }
        }
        self.tx.execute("DELETE FROM incomplete", &[])?;
        self.insert(block, [inline[0].as_deref(), inline[1].as_deref(), inline[2].as_deref()], &table)
    }

    /// Checks the segments of a whole block and stores it, unless it is damaged. Returns the number of its transactions.
    ///
    /// # Errors
    /// [`Damaged`]; when the database fails.
    pub fn put_block(&mut self, block: &Incomplete, segments: [&[u8]; SEGMENTS]) -> Result<u64> {
        for (segment, bytes) in (0..).zip(segments) {
            check(declared(block, segment)?, &Sha256::digest(bytes), block.number, segment)?;
        }
        self.insert(block, segments.map(Some), segments[1])
    }

    /// Inserts a block and all of its rows. `receipts` begins with the table of the receipts.
    fn insert(&mut self, block: &Incomplete, segments: [Option<&[u8]>; SEGMENTS], receipts: &[u8]) -> Result<u64> {
        let damaged = |what: &'static str| {
            move |BadSegment { at, why, .. }| Damaged { why: format!("its {what} malformed at byte {at}: {why}") }
        };
        let index = Index::parse(segments[2].unwrap_or_default()).map_err(damaged("index is"))?;
        let receipts_length = declared(block, 1)?.length;
        let table = receipts_table_len(index.transactions()).min(receipts.len() as u64) as usize;
        check_receipts(&receipts[..table], receipts_length, index.transactions()).map_err(damaged("receipts are"))?;
        let transactions = i64::from(index.transactions());
        let sql = "INSERT INTO blocks (number, hash, parent_hash, timestamp_secs, transactions, body_length, \
                   receipts_length, index_length, body_sha256, receipts_sha256, index_sha256, body, receipts, \
                   index_segment, confirmed) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
        let mut values: Vec<Value<'_>> = vec![
            int(block.number)?.into(),
            block.hash.as_slice().into(),
            Value::Bytes(block.parent_hash.as_deref()),
            // Stored as signed 64 bits, because a chain may use any 64-bit time.
            (block.timestamp_secs as i64).into(),
            transactions.into(),
        ];
        for segment in 0..SEGMENTS as u8 {
            values.push(int(declared(block, segment)?.length)?.into());
        }
        for segment in 0..SEGMENTS as u8 {
            values.push(declared(block, segment)?.sha256.as_slice().into());
        }
        let kept = self.payload == Payload::All;
        values.extend(segments.map(|bytes| Value::Bytes(bytes.filter(|_| kept))));
        values.push(i64::from(block.confirmed).into());
        self.tx.execute(sql, &values)?;
        if transactions > 0 {
            // All ids are passed as one run of bytes, and split in the database.
            let sql = "WITH RECURSIVE places (place) AS \
                       (SELECT CAST(0 AS BIGINT) UNION ALL SELECT place + 1 FROM places WHERE place + 1 < $3) \
                       INSERT INTO transactions (number, position, id) \
                       SELECT $1, place, substr($2, CAST(place AS INTEGER) * 32 + 1, 32) FROM places";
            let ids = index.all_ids().as_flattened();
            self.tx.execute(sql, &[int(block.number)?.into(), ids.into(), transactions.into()])?;
        }
        self.put_rows(block.number, &index, (segments[1], receipts_length), self.tables)?;
        Ok(transactions as u64)
    }

    /// Compares an unconfirmed block with the subnet's header, and its payload with the digests there. Marks an equal block as confirmed;
    /// leaves a different one unchanged.
    ///
    /// # Errors
    /// When the database fails.
    pub fn confirm(&mut self, header: &BlockHeader) -> Result<Compared> {
        let number = header.number;
        let sql = "SELECT hash, parent_hash, timestamp_secs, transactions, body_length, receipts_length, index_length, \
                   body_sha256, receipts_sha256, index_sha256, body, receipts, index_segment FROM blocks \
                   WHERE number = $1 AND confirmed = 0";
        let Some(row) = self.tx.one(sql, &[int(number)?.into()])? else { return Ok(Compared::Absent) };
        let differs = |what: &str| Ok(Compared::Differs { why: format!("the subnet has another {what}") });
        if row.get::<Vec<u8>>(0)? != header.hash.as_slice() {
            return Ok(Compared::Another);
        }
        // The subnet may have lost the parent's hash since.
        let parent = row.get::<Option<Vec<u8>>>(1)?;
        if header.parent_hash.is_some() && parent.as_deref() != header.parent_hash.as_deref().map(Vec::as_slice) {
            return differs("parent");
        }
        if row.get::<i64>(2)? as u64 != header.timestamp_secs {
            return differs("time");
        }
        for (segment, (length, sha256)) in header.lengths.each().into_iter().zip(header.sha256.each()).enumerate() {
            if row.get::<i64>(4 + segment)? as u64 != *length {
                return differs(&format!("length of segment {segment}"));
            }
            if row.get::<Vec<u8>>(4 + SEGMENTS + segment)? != sha256.as_slice() {
                return differs(&format!("digest of segment {segment}"));
            }
            if self.payload == Payload::Headers {
                continue;
            }
            let mut found = Sha256::new();
            let are_there = match row.get::<Option<Vec<u8>>>(4 + 2 * SEGMENTS + segment)? {
                Some(bytes) => {
                    found.update(bytes);
                    true
                }
                None => self.for_each_part(number, segment as u8, *length, |bytes| found.update(bytes))?,
            };
            if !are_there || *found.finalize() != **sha256 {
                return Ok(Compared::Differs { why: format!("segment {segment} does not match its digest") });
            }
        }
        if row.get::<i64>(3)? != i64::from(header.transactions) {
            return differs("number of transactions");
        }
        self.tx.execute("UPDATE blocks SET confirmed = 1 WHERE number = $1", &[int(number)?.into()])?;
        Ok(Compared::Same)
    }

    /// Records that blocks are missing, both numbers inclusive.
    ///
    /// # Errors
    /// When the database fails.
    pub fn add_gap(&mut self, first: u64, last: u64, why: &str) -> Result<()> {
        let sql = "INSERT INTO gaps (first, last, why) VALUES ($1, $2, $3) \
                   ON CONFLICT (first) DO UPDATE SET last = excluded.last, why = excluded.why";
        // PostgreSQL's texts cannot hold zero bytes.
        let why = why.replace('\0', " ");
        self.tx.execute(sql, &[int(first)?.into(), int(last)?.into(), why.as_str().into()]).map(drop)
    }

    /// Removes everything above a block, or everything, and returns how many whole blocks were removed. `orphaned` then holds the blocks
    /// to keep.
    ///
    /// # Errors
    /// When the database fails.
    pub fn remove_above(&mut self, block: Option<u64>, keep: Keep) -> Result<u64> {
        let above: Value<'_> = block.map_or(Ok(-1), int)?.into();
        self.forgets_pruned = block.is_none() || keep == Keep::All;
        self.drop_incomplete()?;
        self.orphan_above(above, keep)?;
        self.tx.execute("DELETE FROM parts WHERE number > $1", &[above])?;
        self.tx.execute("DELETE FROM transactions WHERE number > $1", &[above])?;
        self.tx.execute("DELETE FROM keys WHERE number > $1", &[above])?;
        self.tx.execute("DELETE FROM receipts WHERE number > $1", &[above])?;
        self.through = self.through.below(block);
        self.tx.execute("DELETE FROM gaps WHERE first > $1", &[above])?;
        self.tx.execute("UPDATE gaps SET last = $1 WHERE last > $1", &[above])?;
        self.tx.execute("DELETE FROM blocks WHERE number > $1", &[above])
    }

    /// Copies the blocks above a block to `orphaned`, as far as they are kept, and deletes the oldest rows of reorgs and resets beyond the
    /// limit there.
    fn orphan_above(&mut self, above: Value<'_>, keep: Keep) -> Result<()> {
        let (most, restored) = match keep {
            Keep::Newest(most) => (i64::try_from(most).unwrap_or(i64::MAX), 0_i64),
            Keep::All => (i64::MAX, 1_i64),
        };
        let blocks =
            "INSERT INTO orphaned SELECT $2, $4, blocks.* FROM blocks WHERE number > $1 ORDER BY number DESC LIMIT $3";
        self.tx.execute(blocks, &[above, self.removal.into(), most.into(), restored.into()])?;
        let theirs = [
            "INSERT INTO orphaned_transactions SELECT $2, transactions.* FROM transactions \
             WHERE number > $1 AND number IN (SELECT number FROM orphaned WHERE removal = $2)",
            "INSERT INTO orphaned_parts SELECT $2, parts.* FROM parts \
             WHERE number > $1 AND number IN (SELECT number FROM orphaned WHERE removal = $2)",
        ];
        for sql in theirs {
            self.tx.execute(sql, &[above, self.removal.into()])?;
        }
        if keep == Keep::All {
            return Ok(());
        }
        let first_beyond = "SELECT removal, number FROM orphaned WHERE restored = 0 \
                            ORDER BY removal DESC, number DESC LIMIT 1 OFFSET $1";
        let Some(row) = self.tx.one(first_beyond, &[most.into()])? else { return Ok(()) };
        let (removal, number): (i64, i64) = (row.get(0)?, row.get(1)?);
        // A removal is of a restored canister as a whole.
        let beyond = [
            "DELETE FROM orphaned_transactions WHERE (removal < $1 OR removal = $1 AND number <= $2) \
             AND removal NOT IN (SELECT removal FROM orphaned WHERE restored = 1)",
            "DELETE FROM orphaned_parts WHERE (removal < $1 OR removal = $1 AND number <= $2) \
             AND removal NOT IN (SELECT removal FROM orphaned WHERE restored = 1)",
            "DELETE FROM orphaned WHERE (removal < $1 OR removal = $1 AND number <= $2) AND restored = 0",
        ];
        for sql in beyond {
            self.tx.execute(sql, &[removal.into(), number.into()])?;
        }
        Ok(())
    }
}

/// Converts a number to the integer type of databases.
pub(super) fn int(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| Misfit(format!("{number} has more than 63 bits")).into())
}

fn declared(block: &Incomplete, segment: u8) -> Result<&Declared> {
    match block.segments.get(usize::from(segment)) {
        Some(Some(declared)) => Ok(declared),
        _ => bail!("block {}: no chunk of segment {segment} has come", block.number),
    }
}

fn check(declared: &Declared, found: &[u8], block: u64, segment: u8) -> Result<()> {
    let [digest, found] = [&declared.sha256, found].map(hex);
    ensure!(
        found == digest,
        Damaged { why: format!("segment {segment} of block {block} hashes to {found}, not to {digest}") }
    );
    Ok(())
}

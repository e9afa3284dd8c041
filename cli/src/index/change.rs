//! Changes of the database: each change is one transaction, the cursor included.
//!
//! Memory stays bounded for blocks of any size. Chunks of an incomplete block go to `parts`, and digests are computed over `parts` one row
//! at a time. Only segments of up to [`INLINE`] bytes are joined into a whole block's row; longer ones stay in `parts`. So memory holds at
//! most a page and three such segments, besides the database's cache.

use super::assemble::Incomplete;
use super::database::{Tx, Value};
use super::header::{Header, Refuted, SEGMENTS};
use super::origin::Payload;
use super::schema::INLINE;
use super::tables::{Tables, Through};
use crate::verify::hex;
use anyhow::{Context, Result, bail, ensure};
use ic_coppice_interface::TipCertificate;
use ic_coppice_interface::seals::Seal;
use ic_coppice_interface::segments::{BadSegment, Index, check_receipts, receipts_table_len};
use sha2::{Digest, Sha256};

/// A whole block that is not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// A segment does not match its digest: a replica lies, or the producer declared a wrong digest.
    #[error("{0}")]
    Digest(String),
    /// The receipts or the index are malformed, although they match their digests: the producer made them.
    #[error("{0}")]
    Malformed(String),
}

/// The removed blocks that stay in `orphaned`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest blocks that reorgs and resets removed, up to this number.
    Newest(u64),
    /// All of them, for good: the canister was restored, so the blocks may exist nowhere else.
    All,
}

/// The reason for a gap of blocks that the canister no longer had.
pub const PRUNED: &str = "pruned before it was indexed";

/// A change in progress.
pub struct Change<'a, 'b> {
    pub(super) tx: &'a mut Tx<'b>,
    payload: Payload,
    /// The number of this removal, larger than that of any earlier change.
    removal: i64,
    pub(super) tables: Tables,
    /// The blocks whose rows these tables have.
    pub(super) through: Through,
}

impl<'a, 'b> Change<'a, 'b> {
    pub(super) fn new(
        tx: &'a mut Tx<'b>,
        payload: Payload,
        removal: i64,
        (tables, through): (Tables, Through),
    ) -> Self {
        Self { tx, payload, removal, tables, through }
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
        self.tx.execute(sql, &[int(block.header.number)?.into(), text.as_str().into()]).map(drop)
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
    pub fn drop_block(&mut self, block: u64) -> Result<()> {
        self.tx.execute("DELETE FROM parts WHERE number = $1", &[int(block)?.into()])?;
        self.tx.execute("DELETE FROM incomplete", &[]).map(drop)
    }

    /// Checks a segment in `parts` against its digest, one part at a time.
    ///
    /// # Errors
    /// [`Damaged`]; when the database fails, or a part is missing.
    pub fn check_parts(&mut self, header: &Header, segment: u8) -> Result<()> {
        let length = header.segments.get(usize::from(segment)).map_or(0, |declared| declared.length.into());
        let mut sha256 = Sha256::new();
        let are_there = self.for_each_part(header.number, segment, length, |bytes| sha256.update(bytes))?;
        ensure!(are_there, "block {}: a part is missing in the database", header.number);
        check_digest(header, segment, &sha256.finalize())
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
        let (number, mut inline) = (block.header.number, [const { None::<Vec<u8>> }; SEGMENTS]);
        let [_, receipts, index] = block.header.segments.each_ref().map(|declared| u64::from(declared.length));
        if index > INLINE {
            bail!(Damaged::Malformed(format!("its index has {index} bytes, more than a canister accepts")));
        }
        // The number of transactions, with which an index begins; a malformed index is found below.
        let transactions = self.first_bytes(number, 2, index.min(4))?;
        let transactions = transactions.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let table = self.first_bytes(number, 1, receipts_table_len(transactions).min(INLINE).min(receipts))?;
        for ((segment, bytes), declared) in (0..).zip(&mut inline).zip(&block.header.segments) {
            let length = u64::from(declared.length);
            let index = usize::from(segment) == SEGMENTS - 1;
            if length <= INLINE && (index || self.payload == Payload::All) {
                let mut whole = Vec::with_capacity(length as usize);
                let are_there = self.for_each_part(number, segment, length, |part| whole.extend_from_slice(part))?;
                ensure!(are_there, "block {number}: a part is missing in the database");
                *bytes = Some(whole);
            }
            if length <= INLINE || self.payload == Payload::Headers {
                let sql = "DELETE FROM parts WHERE number = $1 AND segment = $2";
                self.tx.execute(sql, &[int(number)?.into(), i64::from(segment).into()])?;
            }
        }
        self.tx.execute("DELETE FROM incomplete", &[])?;
        self.insert(block, inline.each_ref().map(Option::as_deref), &table)
    }

    /// Checks the segments of a whole block and stores it, unless it is damaged. Returns the number of its transactions.
    ///
    /// # Errors
    /// [`Damaged`]; when the database fails.
    pub fn put_block(&mut self, block: &Incomplete, segments: [&[u8]; SEGMENTS]) -> Result<u64> {
        for (segment, bytes) in (0..).zip(segments) {
            check_digest(&block.header, segment, &Sha256::digest(bytes))?;
        }
        self.insert(block, segments.map(Some), segments[1])
    }

    /// Inserts a block and all of its rows. `receipts` begins with the table of the receipts.
    fn insert(&mut self, block: &Incomplete, segments: [Option<&[u8]>; SEGMENTS], receipts: &[u8]) -> Result<u64> {
        let Incomplete { header, seal, .. } = block;
        let damaged = |what: &'static str| {
            move |BadSegment { at, why, .. }| Damaged::Malformed(format!("its {what} malformed at byte {at}: {why}"))
        };
        let index = Index::parse(segments[2].unwrap_or_default()).map_err(damaged("index is"))?;
        let receipts_length = u64::from(header.segments[1].length);
        let table = receipts_table_len(index.transactions()).min(receipts.len() as u64) as usize;
        check_receipts(&receipts[..table], receipts_length, index.transactions()).map_err(damaged("receipts are"))?;
        let transactions = i64::from(index.transactions());
        let sql = "INSERT INTO blocks (number, hash, parent_hash, timestamp_secs, transactions, body_length, \
                   receipts_length, index_length, body_sha256, receipts_sha256, index_sha256, body, receipts, \
                   index_segment, seal) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
        let mut values: Vec<Value<'_>> = vec![
            int(header.number)?.into(),
            header.hash.as_slice().into(),
            Value::Bytes(header.parent_hash.as_deref()),
            // Stored as signed 64 bits, because a chain may use any 64-bit time.
            (header.timestamp_secs as i64).into(),
            transactions.into(),
        ];
        values.extend(header.segments.iter().map(|declared| Value::from(i64::from(declared.length))));
        values.extend(header.segments.iter().map(|declared| Value::from(&declared.sha256[..])));
        let kept = self.payload == Payload::All;
        values.extend(segments.map(|bytes| Value::Bytes(bytes.filter(|_| kept))));
        values.push(Value::from(&seal[..]));
        self.tx.execute(sql, &values)?;
        if transactions > 0 {
            // All ids are passed as one run of bytes, and split in the database.
            let sql = "WITH RECURSIVE places (place) AS \
                       (SELECT CAST(0 AS BIGINT) UNION ALL SELECT place + 1 FROM places WHERE place + 1 < $3) \
                       INSERT INTO transactions (number, position, id) \
                       SELECT $1, place, substr($2, CAST(place AS INTEGER) * 32 + 1, 32) FROM places";
            let ids = index.all_ids().as_flattened();
            self.tx.execute(sql, &[int(header.number)?.into(), ids.into(), transactions.into()])?;
        }
        self.put_rows(header.number, &index, (segments[1], receipts_length), self.tables)?;
        Ok(transactions as u64)
    }

    /// Stores the certificate of a block. The newest one of each thousand block numbers stays.
    ///
    /// # Errors
    /// When the database fails.
    pub fn put_certificate(&mut self, number: u64, certificate: &TipCertificate) -> Result<()> {
        let (number, first) = (int(number)?, int(number - number % 1_000)?);
        self.tx.execute("DELETE FROM certificates WHERE number >= $1", &[first.into()])?;
        let sql = "INSERT INTO certificates (number, certificate, hash_tree) VALUES ($1, $2, $3)";
        let TipCertificate { certificate, hash_tree } = certificate;
        self.tx.execute(sql, &[number.into(), certificate[..].into(), hash_tree[..].into()]).map(drop)
    }

    /// Stores the seal before a block that follows no stored block, so that the block can be proved.
    ///
    /// # Errors
    /// When the database fails.
    pub fn put_run(&mut self, number: u64, before: &Seal) -> Result<()> {
        let sql = "INSERT INTO runs (number, before) VALUES ($1, $2) \
                   ON CONFLICT (number) DO UPDATE SET before = excluded.before";
        self.tx.execute(sql, &[int(number)?.into(), before[..].into()]).map(drop)
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
        self.drop_incomplete()?;
        self.orphan_above(above, keep)?;
        self.tx.execute("DELETE FROM parts WHERE number > $1", &[above])?;
        self.tx.execute("DELETE FROM transactions WHERE number > $1", &[above])?;
        self.tx.execute("DELETE FROM keys WHERE number > $1", &[above])?;
        self.tx.execute("DELETE FROM receipts WHERE number > $1", &[above])?;
        self.through = self.through.below(block);
        self.tx.execute("DELETE FROM certificates WHERE number > $1", &[above])?;
        self.tx.execute("DELETE FROM runs WHERE number > $1", &[above])?;
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
    i64::try_from(number).map_err(|_| Refuted(format!("{number} has more than 63 bits")).into())
}

fn check_digest(header: &Header, segment: u8, found: &[u8]) -> Result<()> {
    let declared = header.segments.get(usize::from(segment)).map_or(&[][..], |declared| &declared.sha256);
    let (block, [declared, found]) = (header.number, [declared, found].map(hex));
    let why = || format!("segment {segment} of block {block} hashes to {found}, not to {declared}");
    ensure!(found == declared, Damaged::Digest(why()));
    Ok(())
}

//! The copy of a chain in a database of `coppice index`, read in one transaction, so that everything belongs to one chain.

use super::chain::{Chain, Header, Keyed, List, Place};
use crate::index::database::{Kind, Row, Tx, Value};
use crate::index::reader::{self, int, number, why_missing};
use crate::say;
use anyhow::{Context, Result, bail, ensure};
use ic_coppice_interface::segments::{ID, MAX_BLOCK, encode_index};

/// A database, in one transaction.
pub struct Archive<'a, 'b> {
    tx: &'a mut Tx<'b>,
    kind: Kind,
    has_payload: bool,
}

/// Opens a database and reads it in one transaction.
///
/// # Errors
/// When the database cannot be opened or was not made by this version of `coppice index`; errors of `work`.
pub fn read<R>(url: &str, work: impl FnOnce(&mut Archive<'_, '_>) -> Result<R>) -> Result<R> {
    reader::read(url, |tx, kind| {
        let row = tx.one("SELECT payload FROM state", &[])?.context("the database has no row in the table state")?;
        let has_payload = row.get::<String>(0)? == "all";
        work(&mut Archive { tx, kind, has_payload })
    })
}

fn place(row: &Row) -> Result<Place> {
    let position = number(row, 1)?;
    let position = position.try_into().with_context(|| format!("the database holds the position {position}"))?;
    Ok(Place { number: number(row, 0)?, position })
}

/// Returns the place after which a list continues, as two values of a statement.
fn after(cursor: Option<&str>) -> Result<[Value<'static>; 2]> {
    let Some(text) = cursor else { return Ok([i64::MAX.into(), i64::MAX.into()]) };
    let read = || {
        let (number, position) = text.split_once(':')?;
        Some([int(number.parse().ok()?)?.into(), i64::from(position.parse::<u32>().ok()?).into()])
    };
    read().with_context(|| {
        format!("{text:?} is not a cursor that a list of this database ended with: begin without --cursor")
    })
}

/// Returns the first `limit` items, and the cursor after them if there is another item.
fn list<T>(mut items: Vec<T>, limit: u32, place: impl Fn(&T) -> Place) -> List<T> {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let last = items.last().filter(|_| more).map(place);
    List { items, cursor: last.map(|Place { number, position }| format!("{number}:{position}")) }
}

impl Archive<'_, '_> {
    /// Returns a long segment from its parts.
    fn joined(&mut self, block: u64, segment: u8, length: u64) -> Result<Vec<u8>> {
        let sql = "SELECT bytes FROM parts WHERE number = $1 AND segment = $2 AND starts_at = $3";
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length.min(MAX_BLOCK) {
            let at = int(bytes.len() as u64);
            let values = [Value::Int(int(block)), i64::from(segment).into(), Value::Int(at)];
            let part = self.tx.one(sql, &values)?.map(|row| row.get::<Vec<u8>>(0)).transpose()?;
            let part = part.filter(|part| !part.is_empty());
            bytes.extend(part.with_context(|| format!("block {block}: a part of segment {segment} is missing"))?);
        }
        Ok(bytes)
    }

    /// Writes a note if some stored blocks have no rows in `keys`.
    fn check_keys(&mut self) -> Result<()> {
        ensure!(self.has_payload, "the database was begun with --payload headers, so it has no keys");
        let sql = "SELECT count(*), min(number) FROM blocks \
                   WHERE number > (SELECT coalesce(keys_through, -1) FROM state)";
        let row = self.tx.one(sql, &[])?.context("no answer")?;
        let Some(first) = row.get::<Option<i64>>(1)? else { return Ok(()) };
        say!(
            "note: the list is incomplete, because the table keys lacks {} blocks from block {first} on; coppice index without --no-keys \
             adds them",
            number(&row, 0)?
        );
        Ok(())
    }
}

impl Chain for Archive<'_, '_> {
    fn name(&self) -> String {
        self.kind.name().into()
    }

    fn header(&mut self, block: u64) -> Result<Header> {
        let sql = "SELECT hash, parent_hash, timestamp_secs, body_length, receipts_length, index_length, body_sha256, \
                   receipts_sha256, index_sha256 FROM blocks WHERE number = $1";
        let row = int(block).map(|block| self.tx.one(sql, &[block.into()])).transpose()?.flatten();
        let Some(row) = row else { bail!("there is no block {block} here: {}", why_missing(self.tx, block)?) };
        let mut header = Header {
            number: block,
            hash: row.get(0)?,
            parent_hash: row.get(1)?,
            timestamp_secs: row.get::<i64>(2)?.cast_unsigned(),
            lengths: [0; 3],
            sha256: Default::default(),
            confirmed: true,
        };
        for segment in 0..3 {
            header.lengths[segment] = number(&row, 3 + segment)?;
            header.sha256[segment] = row.get(6 + segment)?;
        }
        Ok(header)
    }

    fn segment(&mut self, header: &Header, segment: u8) -> Result<Option<Vec<u8>>> {
        let block = header.number;
        if !self.has_payload {
            if segment < 2 {
                return Ok(None);
            }
            let sql = "SELECT id FROM transactions WHERE number = $1 ORDER BY position";
            let rows = self.tx.all(sql, &[Value::Int(int(block))])?;
            let ids: Vec<Vec<u8>> = rows.iter().map(|row| row.get(0)).collect::<Result<_>>()?;
            let ids: Result<Vec<[u8; ID]>, _> = ids.into_iter().map(TryInto::try_into).collect();
            let ids = ids.ok().with_context(|| format!("block {block}: the database holds an id without 32 bytes"))?;
            return Ok(Some(encode_index(ids.into_iter(), [].into_iter())?));
        }
        let sql = [
            "SELECT body FROM blocks WHERE number = $1",
            "SELECT receipts FROM blocks WHERE number = $1",
            "SELECT index_segment FROM blocks WHERE number = $1",
        ];
        let (sql, length) = (sql[usize::from(segment)], header.lengths[usize::from(segment)]);
        let row = self.tx.one(sql, &[Value::Int(int(block))])?.context("the block is gone")?;
        match row.get(0)? {
            Some(bytes) => Ok(Some(bytes)),
            None => self.joined(block, segment, length).map(Some),
        }
    }

    fn places(&mut self, id: &[u8; ID], cursor: Option<&str>, limit: u32) -> Result<List<Place>> {
        let [number, position] = after(cursor)?;
        let sql = "SELECT number, position FROM transactions WHERE id = $1 AND (number, position) < ($2, $3) \
                   ORDER BY number DESC, position DESC LIMIT $4";
        let values = [id.as_slice().into(), number, position, (i64::from(limit) + 1).into()];
        let rows = self.tx.all(sql, &values)?;
        let places: Vec<Place> = rows.iter().map(place).collect::<Result<_>>()?;
        Ok(list(places, limit, |place| *place))
    }

    fn where_pruned(&self) -> Option<&'static str> {
        None
    }

    fn why_only_newest(&self) -> Option<&'static str> {
        None
    }

    fn with_key(&mut self, key: &[u8], cursor: Option<&str>, limit: u32) -> Result<List<Keyed>> {
        self.check_keys()?;
        let [number, position] = after(cursor)?;
        let sql = "SELECT keys.number, keys.position, blocks.hash, transactions.id FROM keys \
                   JOIN blocks ON blocks.number = keys.number \
                   JOIN transactions ON transactions.number = keys.number AND transactions.position = keys.position \
                   WHERE keys.key = $1 AND (keys.number, keys.position) < ($2, $3) \
                   ORDER BY keys.number DESC, keys.position DESC LIMIT $4";
        let rows = self.tx.all(sql, &[key.into(), number, position, (i64::from(limit) + 1).into()])?;
        let keyed = |row: &Row| Ok(Keyed { place: place(row)?, block_hash: row.get(2)?, id: row.get(3)? });
        let items: Vec<Keyed> = rows.iter().map(keyed).collect::<Result<_>>()?;
        Ok(list(items, limit, |keyed| keyed.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_of_another_form_is_refused() {
        let value = |value: &Value<'_>| match value {
            Value::Int(int) => int.unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(after(Some("7:3")).unwrap().each_ref().map(value), [7, 3]);
        assert_eq!(after(None).unwrap().each_ref().map(value), [i64::MAX; 2]);
        for text in ["", "7", "7:", ":3", "7:3:1", "-7:3", "18446744073709551615:1", "7:4294967296"] {
            assert!(after(Some(text)).unwrap_err().to_string().contains("--cursor"), "{text}");
        }
    }

    #[test]
    fn list_has_a_cursor_only_before_another_item() {
        let place = |number| Place { number, position: 1 };
        let of = |numbers: &[u64]| list(numbers.iter().map(|number| place(*number)).collect(), 2, |place| *place);
        assert_eq!(of(&[9, 8, 7]), List { items: vec![place(9), place(8)], cursor: Some("8:1".into()) });
        assert_eq!(of(&[9, 8]).cursor, None);
        assert_eq!(of(&[]).cursor, None);
    }
}

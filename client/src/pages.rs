//! Pagers: exports, headers, and transactions with a secondary key.

use crate::{Client, Error, Transport};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// Reads the chain from a cursor on, page by page. The caller stores what it reads, together with the cursor after it; a new pager with
/// that cursor continues there.
///
/// On an error the pager stays at its place. The caller then acts by the error:
///
/// - `Behind`: ask again a little later.
/// - `Reorged`: remove everything read above `common_ancestor`, and [`resume`](Self::resume) at the error's cursor.
/// - `Corrupt`: [`resume`](Self::resume) at `next`, which skips the block. Without `next` the block is the head: wait for the next one.
/// - `Pruned`: create a new pager without a cursor, which begins at the oldest kept block. The blocks pruned before it are lost to this
///   reader. With a `common_ancestor`, remove everything read above it: it is no longer on the chain.
/// - `Reset`: create a new pager without a cursor. Everything read so far belongs to another chain.
/// - `Restored`: find the newest common block by `get_block_headers`, keep everything read above it elsewhere, and
///   [`resume`](Self::resume) there.
/// - `BadCursor`: the cursor is invalid or, if a query answers, its block is unknown to one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportPager {
    cursor: Option<ExportCursor>,
    max_bytes: u64,
}

impl ExportPager {
    /// Creates a pager that begins after a cursor or, without one, at the oldest kept block. A page has `max_bytes` of payload; 0: as many
    /// as a reply holds.
    pub fn new(cursor: Option<ExportCursor>, max_bytes: u64) -> Self {
        Self { cursor, max_bytes }
    }

    /// Returns the cursor after the last page.
    pub fn cursor(&self) -> Option<&ExportCursor> {
        self.cursor.as_ref()
    }

    /// Continues after another cursor.
    pub fn resume(&mut self, cursor: ExportCursor) {
        self.cursor = Some(cursor);
    }

    /// Returns the next page, or `None` at the head, where more may come later. The answer is from a single replica, which may be late or
    /// lie: [`Client::replicated`] asks the subnet.
    ///
    /// # Errors
    /// When there is no page, or no answer.
    pub async fn next<T: Transport>(&mut self, client: &Client<T>) -> Result<Option<ExportPage>, Error<ExportError>> {
        let page = client.export_blocks(&self.cursor, self.max_bytes).await?;
        if page.chunks.is_empty() {
            return Ok(None);
        }
        self.cursor.clone_from(&page.cursor);
        Ok(Some(page))
    }
}

/// Reads the headers of blocks `from` to `to`, both included, page by page, the oldest first.
///
/// On an error the pager stays at its place. The caller then acts by the error:
///
/// - `Pruned`: [`resume`](Self::resume) at `first_available`.
/// - `Corrupt`: [`resume`](Self::resume) after [`next_number`](Self::next_number), which leaves that block out.
/// - `NotFound`: the first block is above the head, or there is no block.
///
/// A reorg between two pages is not noticed: the parent hash of a page's first header then differs from the hash before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPager {
    next: Option<u64>,
    to: u64,
}

impl HeaderPager {
    /// Creates a pager over blocks `from` to `to`, both included. It is empty if `from` is above `to`.
    pub fn new(from: u64, to: u64) -> Self {
        Self { next: (from <= to).then_some(from), to }
    }

    /// Returns the first block of the next page, or `None` at the end.
    pub fn next_number(&self) -> Option<u64> {
        self.next
    }

    /// Continues at another block, or ends if `from` is above the last block.
    pub fn resume(&mut self, from: u64) {
        *self = Self::new(from, self.to);
    }

    /// Returns the next headers, or `None` at the end. The answer is from a single replica, which may be late or lie:
    /// [`Client::replicated`] asks the subnet.
    ///
    /// # Errors
    /// When there is no page, or no answer.
    pub async fn next<T: Transport>(
        &mut self,
        client: &Client<T>,
    ) -> Result<Option<Vec<BlockHeader>>, Error<ReadError>> {
        let Some(from) = self.next else { return Ok(None) };
        let page = client.get_block_headers(from, self.to).await?;
        // A page that does not lead on is the last one, because a lie could otherwise be repeated without end.
        let next_after = from.saturating_add(page.headers.len() as u64);
        self.next = page.next.filter(|&next| next == next_after && from < next && next <= self.to);
        Ok(Some(page.headers))
    }
}

/// Reads the transactions with a secondary key, newest first, page by page.
///
/// On an error the pager stays at its place. The caller then acts by the error:
///
/// - `Behind`: ask again a little later.
/// - `Reorged`: remove everything read above `common_ancestor`, and [`resume`](Self::resume) at the error's cursor. Without a cursor the
///   list begins anew.
/// - `Reset`: [`resume`](Self::resume) without a cursor. Everything read so far belongs to another chain.
/// - `Corrupt`: ask again after the block was pruned. Until then, which older transactions have the key is unknown.
/// - `BadCursor`, `KeyTooLong`: no page ever ended with the cursor, or no transaction has such a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPager {
    key: ByteBuf,
    limit: u32,
    cursor: Option<KeyCursor>,
    ended: bool,
}

impl KeyPager {
    /// Creates a pager over all transactions with a key. A page has at most `limit`; 0: as many as a page holds.
    pub fn new(key: &[u8], limit: u32) -> Self {
        Self { key: ByteBuf::from(key), limit, cursor: None, ended: false }
    }

    /// Continues after another cursor; without one, begins anew.
    pub fn resume(&mut self, cursor: Option<KeyCursor>) {
        (self.cursor, self.ended) = (cursor, false);
    }

    /// Returns the next transactions, or `None` at the end. A page may be shorter than `limit`, even empty, although more follow.
    ///
    /// # Errors
    /// When there is no page, or no answer.
    pub async fn next<T: Transport>(
        &mut self,
        client: &Client<T>,
    ) -> Result<Option<Vec<KeyTransaction>>, Error<KeyError>> {
        if self.ended {
            return Ok(None);
        }
        let page = client.find_by_index_key(&self.key, &self.cursor, self.limit).await?;
        self.ended = page.cursor.is_none();
        self.cursor = page.cursor;
        Ok(Some(page.transactions))
    }

    /// Returns all remaining transactions in one list.
    ///
    /// # Errors
    /// As [`next`](Self::next). The transactions read before the error are lost; begin anew.
    pub async fn all<T: Transport>(mut self, client: &Client<T>) -> Result<Vec<KeyTransaction>, Error<KeyError>> {
        let mut all = Vec::new();
        while let Some(some) = self.next(client).await? {
            all.extend(some);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, block_on};
    use serde_bytes::ByteBuf;

    fn at(number: u64) -> ExportCursor {
        ExportCursor { number, hash: [1].into(), segment: 3, offset: 0, rollbacks: 0 }
    }

    fn page(number: Option<u64>, cursor: u64) -> Result<ExportPage, ExportError> {
        let chunk = |number| ExportChunk {
            number,
            hash: [1].into(),
            parent_hash: None,
            timestamp_secs: 0,
            segment: 0,
            offset: 0,
            total: 0,
            sha256: ByteBuf::new(),
            bytes: ByteBuf::new(),
        };
        Ok(ExportPage { chunks: number.into_iter().map(chunk).collect(), cursor: Some(at(cursor)), head: Some(9) })
    }

    #[test]
    fn export_advances_with_each_page_and_stays_on_an_error_or_empty_page() {
        let reorged = ExportError::Reorged { common_ancestor: 4, cursor: at(4) };
        let script = Script::default()
            .answers("export_blocks", page(Some(7), 7))
            .answers("export_blocks", Err::<ExportPage, _>(reorged))
            .answers("export_blocks", page(None, 4))
            .answers("export_blocks", page(Some(5), 5));
        let (client, mut pager) = (Client::new(script), ExportPager::default());
        assert_eq!(block_on(pager.next(&client)).unwrap().unwrap().chunks[0].number, 7);
        let error = block_on(pager.next(&client)).unwrap_err();
        let Error::Refused(ExportError::Reorged { cursor, .. }) = error else { panic!("{error:?}") };
        assert_eq!(pager.cursor(), Some(&at(7)));
        pager.resume(cursor);
        assert_eq!((block_on(pager.next(&client)).unwrap(), pager.cursor()), (None, Some(&at(4))));
        assert!(block_on(pager.next(&client)).unwrap().is_some());
        assert_eq!(pager.cursor(), Some(&at(5)));
    }

    #[test]
    fn headers_end_with_the_last_page_or_a_page_that_leads_back() {
        let header = |number| BlockHeader {
            number,
            hash: [1].into(),
            parent_hash: Some([0].into()),
            timestamp_secs: 0,
            monotonic_timestamp_secs: 0,
            transactions: 0,
            keys: 0,
            lengths: [0; 3].into(),
            sha256: BySegment::default(),
            seal: ByteBuf::default(),
        };
        let page = |numbers: &[u64], next| {
            Ok::<_, ReadError>(HeaderPage { headers: numbers.iter().copied().map(header).collect(), next })
        };
        let script = Script::default()
            .answers("get_block_headers", page(&[3, 4], Some(5)))
            .answers("get_block_headers", Err::<HeaderPage, _>(ReadError::Corrupt { why: "no".into() }))
            .answers("get_block_headers", page(&[6], Some(6)));
        let (client, mut pager) = (Client::new(script), HeaderPager::new(3, 9));
        let numbers = |page: Option<Vec<BlockHeader>>| page.unwrap().iter().map(|at| at.number).collect::<Vec<_>>();
        assert_eq!(numbers(block_on(pager.next(&client)).unwrap()), [3, 4]);
        assert!(matches!(block_on(pager.next(&client)), Err(Error::Refused(ReadError::Corrupt { .. }))));
        assert_eq!(pager.next_number(), Some(5));
        pager.resume(6);
        assert_eq!(numbers(block_on(pager.next(&client)).unwrap()), [6]);
        assert_eq!(block_on(pager.next(&client)).unwrap(), None);
        client.transport().ended();
        assert_eq!(block_on(HeaderPager::new(4, 3).next(&client)).unwrap(), None);
    }

    #[test]
    fn key_list_continues_over_empty_pages_and_ends_once() {
        let found = |block_number| KeyTransaction {
            block_number,
            block_hash: [1].into(),
            position: 0,
            id: ByteBuf::from([0; 32]),
        };
        let cursor =
            KeyCursor { block_number: 3, block_hash: [1].into(), position: 0, key: 0, newest: 9, rollbacks: 0 };
        let page = |numbers: &[u64], more: bool| {
            let transactions = numbers.iter().copied().map(found).collect();
            Ok::<_, KeyError>(KeyPage { transactions, cursor: more.then(|| cursor.clone()) })
        };
        let pages = || {
            let pages = Script::default().answers("find_by_index_key", page(&[9, 8], true));
            pages.answers("find_by_index_key", page(&[], true)).answers("find_by_index_key", page(&[3], false))
        };
        let all = block_on(KeyPager::new(b"key", 2).all(&Client::new(pages()))).unwrap();
        assert_eq!(all.iter().map(|found| found.block_number).collect::<Vec<_>>(), [9, 8, 3]);
        let (client, mut pager) = (Client::new(pages()), KeyPager::new(b"key", 2));
        for expected in [Some(2), Some(0), Some(1), None, None] {
            assert_eq!(block_on(pager.next(&client)).unwrap().map(|some| some.len()), expected);
        }
    }
}

//! A canister's chain, read by queries, each of which one replica answers.

use super::chain::{Chain, Header, Keyed, List, Place};
use crate::client::{Client, Transport, Wait};
use crate::feed::sha256;
use crate::verify::hex;
use anyhow::{Context, Result, anyhow, bail, ensure};
use ic_coppice_interface::segments::{ID, MAX_BLOCK};
use ic_coppice_interface::{KeyCursor, KeyError, ReadError};
use serde_bytes::ByteBuf;

/// Pages of a key's list without a transaction after which the search pauses and returns its cursor.
const EMPTY_PAGES: u32 = 100;
/// The remedy for a pruned block.
const ARCHIVE: &str = "a database that coppice index fills keeps pruned blocks: --database URL";

/// A canister.
pub struct Canister<'a, T> {
    client: &'a Client<T>,
    name: String,
}

impl<'a, T: Transport> Canister<'a, T> {
    /// Creates a reader of the canister with this name.
    pub fn new(client: &'a Client<T>, name: String) -> Self {
        Self { client, name }
    }

    /// Returns a sentence on a refusal.
    fn refused(what: &str, why: &ReadError) -> anyhow::Error {
        match why {
            ReadError::Pruned { .. } => anyhow!("{what}: {why}; {ARCHIVE}"),
            why => anyhow!("{what}: {why}"),
        }
    }
}

impl<T: Transport> Chain for Canister<'_, T> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn header(&mut self, number: u64) -> Result<Header> {
        let what = format!("block {number}");
        let header = self.client.header(number).wait()?.map_err(|why| Self::refused(&what, &why))?;
        ensure!(header.number == number, "{what}: the replica sent the header of block {}: try again", header.number);
        let bytes = header.lengths.sum();
        ensure!(bytes <= MAX_BLOCK, "{what}: the replica reports {bytes} bytes, more than a block can have: try again");
        Ok(Header {
            number,
            hash: header.hash.to_vec(),
            parent_hash: header.parent_hash.map(|parent| parent.to_vec()),
            timestamp_secs: header.timestamp_secs,
            lengths: header.lengths.into(),
            sha256: <[ByteBuf; 3]>::from(header.sha256).map(ByteBuf::into_vec),
            confirmed: false,
        })
    }

    fn segment(&mut self, header: &Header, segment: u8) -> Result<Option<Vec<u8>>> {
        let (number, length) = (header.number, header.lengths[usize::from(segment)]);
        let what = format!("segment {segment} of block {number}");
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            let part = self.client.read_segment(number, segment, bytes.len() as u64, length - bytes.len() as u64);
            let part = part.wait()?.map_err(|why| Self::refused(&what, &why))?.bytes;
            let after = bytes.len() + part.len();
            ensure!(
                !part.is_empty() && after as u64 <= length,
                "{what}: the replica sent {after} of {length} bytes: try again"
            );
            bytes.extend_from_slice(&part);
        }
        ensure!(
            sha256(&bytes) == *header.sha256[usize::from(segment)],
            "{what} does not match its digest: the block was replaced in a reorg while it was read, or the replica lies; try again"
        );
        Ok(Some(bytes))
    }

    fn places(&mut self, id: &[u8; ID], cursor: Option<&str>, _: u32) -> Result<List<Place>> {
        ensure!(
            cursor.is_none(),
            "a canister has no cursors of transactions, because it finds only the newest block of an id"
        );
        let items = match self.client.get_transaction_location(ByteBuf::from(*id)).wait()? {
            Ok(at) => vec![Place { number: at.block_number, position: at.position }],
            Err(why @ ReadError::NotFound) => bail!("{why}; {ARCHIVE}"),
            Err(why) => return Err(Self::refused("the transaction", &why)),
        };
        Ok(List { items, cursor: None })
    }

    fn where_pruned(&self) -> Option<&'static str> {
        Some(ARCHIVE)
    }

    fn why_only_newest(&self) -> Option<&'static str> {
        Some("a canister finds only the newest block with the transaction; a database of coppice index finds all")
    }

    fn with_key(&mut self, key: &[u8], cursor: Option<&str>, limit: u32) -> Result<List<Keyed>> {
        let mut cursor = cursor.map(parse).transpose()?;
        for _ in 0..EMPTY_PAGES {
            let page = match self.client.find_by_index_key(ByteBuf::from(key), &cursor, limit).wait()? {
                Ok(page) => page,
                Err(why) => {
                    let remedy = match &why {
                        KeyError::Reorged { cursor: Some(cursor), .. } => format!(": --cursor {}", shown(cursor)),
                        _ => String::new(),
                    };
                    bail!("the list of transactions: {why}{remedy}")
                }
            };
            cursor = page.cursor;
            if cursor.is_none() || !page.transactions.is_empty() {
                let items = page.transactions.into_iter().map(|found| Keyed {
                    place: Place { number: found.block_number, position: found.position },
                    block_hash: found.block_hash.to_vec(),
                    id: found.id.into_vec(),
                });
                return Ok(List { items: items.collect(), cursor: cursor.as_ref().map(shown) });
            }
        }
        Ok(List { items: Vec::new(), cursor: cursor.as_ref().map(shown) })
    }
}

fn shown(cursor: &KeyCursor) -> String {
    let KeyCursor { block_number, block_hash, position, key, newest, rollbacks } = cursor;
    format!("{block_number}:{position}:{key}:{newest}:{rollbacks}:{}", hex(block_hash))
}

fn parse(text: &str) -> Result<KeyCursor> {
    let read = || {
        let parts: Vec<&str> = text.split(':').collect();
        let [block_number, position, key, newest, rollbacks, hash] = parts[..] else { return None };
        let hash = hash.is_ascii().then(|| hash.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok()));
        let hash: Option<Vec<u8>> = hash?.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
        Some(KeyCursor {
            block_number: block_number.parse().ok()?,
            block_hash: hash?.into(),
            position: position.parse().ok()?,
            key: key.parse().ok()?,
            newest: newest.parse().ok()?,
            rollbacks: rollbacks.parse().ok()?,
        })
    };
    read().with_context(|| {
        format!("{text:?} is not a cursor that a list of a canister's transactions ended with: begin without --cursor")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Failure;
    use crate::get::chain::Page;
    use crate::get::get;
    use crate::get::query::{Order, Wanted};
    use crate::get::result::Found;
    use ic_coppice_interface::{BlockHeader, HeaderPage, KeyPage, SegmentPart, TransactionLocation};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn cursor_is_read_as_it_was_shown_and_other_texts_are_refused() {
        let cursor = KeyCursor {
            block_number: u64::MAX,
            block_hash: [0, 255].into(),
            position: 1,
            key: 2,
            newest: 3,
            rollbacks: 4,
        };
        assert_eq!(shown(&cursor), "18446744073709551615:1:2:3:4:00ff");
        assert_eq!(parse(&shown(&cursor)).unwrap(), cursor);
        for text in ["", "1:2", "1:2:3:4:5", "1:2:3:4:5:0g", "1:2:3:4:5:é", "1:2:3:4:5:00:", "-1:2:3:4:5:00"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("--cursor"), "{error}");
        }
    }

    /// A replica that answers each method by a function of the number of calls before.
    struct Replica(fn(&str, u32) -> Vec<u8>, AtomicU32);

    impl Transport for Replica {
        async fn update(&self, method: &str, _: Vec<u8>) -> Result<Vec<u8>, Failure> {
            panic!("{method} is sent as an update")
        }

        async fn query(&self, method: &str, _: Vec<u8>) -> Result<Vec<u8>, Failure> {
            Ok(self.0(method, self.1.fetch_add(1, Ordering::Relaxed)))
        }
    }

    fn looked_up(wanted: &Wanted, replica: fn(&str, u32) -> Vec<u8>) -> (Result<Found, String>, u32) {
        let client = Client::new(Replica(replica, AtomicU32::new(0)));
        let mut canister = Canister::new(&client, "canister".into());
        let found = get(&mut canister, wanted, Order::Internal, &Page { cursor: None, limit: 5 });
        (found.map_err(|error| format!("{error:#}")), client.transport().1.load(Ordering::Relaxed))
    }

    /// An answer of a method; `body` is the block's declared length and digest.
    fn answer(method: &str, number: u64, body: (u64, &[u8]), part: &[u8]) -> Vec<u8> {
        let empty = ByteBuf::from(sha256(&[]));
        let header = BlockHeader {
            number,
            hash: [1; 32].into(),
            parent_hash: Some([0; 32].into()),
            timestamp_secs: 0,
            monotonic_timestamp_secs: 0,
            transactions: 0,
            keys: 0,
            lengths: [body.0, 0, 0].into(),
            sha256: [ByteBuf::from(sha256(body.1)), empty.clone(), empty].into(),
            seal: ByteBuf::default(),
        };
        match method {
            "get_block_headers" => {
                candid::encode_one(Ok::<_, ReadError>(HeaderPage { headers: vec![header], next: None })).unwrap()
            }
            "read_segment" => {
                let part = SegmentPart { bytes: ByteBuf::from(part), total: u64::MAX };
                candid::encode_one(Ok::<_, ReadError>(part)).unwrap()
            }
            "get_transaction_location" => {
                let at = TransactionLocation { block_number: 7, block_hash: [1; 32].into(), position: 0 };
                candid::encode_one(Ok::<_, ReadError>(at)).unwrap()
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn lies_of_a_replica_end_with_an_error_after_few_calls() {
        type Lie = fn(&str, u32) -> Vec<u8>;
        let honest: Lie = |method, _| answer(method, 7, (2, &[5, 5]), &[5]);
        let (found, calls) = looked_up(&Wanted::Block(7), honest);
        assert_eq!((found.unwrap().block.unwrap().lengths, calls), ([2, 0, 0], 3));
        let lies: [(Lie, &str); 6] = [
            (|method, _| answer(method, 8, (2, &[5, 5]), &[5]), "the header of block 8"),
            (|method, _| answer(method, 7, (u64::MAX, &[]), &[5]), "more than a block can have"),
            (|method, _| answer(method, 7, (2, &[5, 5]), &[5; 3]), "sent 3 of 2 bytes"),
            (|method, _| answer(method, 7, (2, &[5, 5]), &[]), "sent 0 of 2 bytes"),
            (|method, _| answer(method, 7, (2, &[5, 6]), &[5]), "does not match its digest"),
            (|_, _| b"no Candid".to_vec(), ""),
        ];
        for (lie, why) in lies {
            let (found, calls) = looked_up(&Wanted::Block(7), lie);
            let error = found.unwrap_err();
            assert!(error.contains(why) && calls < 5, "{error}");
        }
        let (found, _) = looked_up(&Wanted::Transaction([1; 32]), honest);
        assert!(found.unwrap_err().contains("block 7 has 0 transactions, and none at position 0"));
    }

    #[test]
    fn key_without_a_kept_transaction_leads_to_a_database() {
        let (found, _) = looked_up(&Wanted::Key(b"k".to_vec()), |_, _| {
            candid::encode_one(Ok::<_, KeyError>(KeyPage { transactions: Vec::new(), cursor: None })).unwrap()
        });
        assert_eq!(found.unwrap_err(), format!("no transaction has the key k in a kept block; {ARCHIVE}"));
    }

    #[test]
    fn empty_pages_without_end_pause_with_a_cursor() {
        let (found, calls) = looked_up(&Wanted::Key(b"k".to_vec()), |_, call| {
            let cursor =
                KeyCursor { block_number: 9, block_hash: [1].into(), position: 0, key: call, newest: 9, rollbacks: 0 };
            candid::encode_one(Ok::<_, KeyError>(KeyPage { transactions: Vec::new(), cursor: Some(cursor) })).unwrap()
        });
        assert_eq!((found.unwrap().cursor.as_deref(), calls), (Some("9:0:99:9:0:01"), EMPTY_PAGES));
    }
}

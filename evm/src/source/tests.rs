//! A canister that answers truly, and one whose replica lies.

use super::canister::Canister;
use super::{Failure, Source};
use crate::Block;
use crate::index::{coppice_block, emitter, topic};
use crate::testing::with_blobs;
use alloy_primitives::{Address, B256};
use anyhow::Result;
use candid::{Decode, Encode, Principal};
use ic_certification::HashTree;
use ic_certification::hash_tree::{fork, label, leaf};
use ic_coppice_cli::index::header::Header;
use ic_coppice_client::certificate::Vouched;
use ic_coppice_client::command::CanisterClient;
use ic_coppice_client::{Client, Failure as Unanswered, Transport};
use ic_coppice_interface::seals::{FIRST, Seal, seal};
use ic_coppice_interface::{AppendBlock, BlockHeader, BySegment, HeaderPage, KeyPage, KeyTransaction, ReadError};
use ic_coppice_interface::{KeyError, Role, SegmentPart, TipCertificate, TransactionLocation};
use serde_bytes::ByteBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Changes an answer of a method.
type Lie = fn(&str, Vec<u8>) -> Vec<u8>;

#[derive(Default)]
struct Kept {
    blocks: Vec<(BlockHeader, AppendBlock)>,
    first: u64,
    before: Seal,
}

/// A canister in memory.
#[derive(Clone)]
struct Replica {
    kept: Arc<Mutex<Kept>>,
    lie: Lie,
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

fn truth(_: &str, answer: Vec<u8>) -> Vec<u8> {
    answer
}

impl Kept {
    fn append(&mut self, block: &Block) {
        let block = coppice_block(block, &[]).unwrap();
        let before: Seal = self.blocks.last().map_or(FIRST, |(header, _)| header.seal.as_slice().try_into().unwrap());
        let mut header = BlockHeader {
            number: block.number,
            hash: block.hash.clone(),
            parent_hash: Some(block.parent_hash.clone()),
            timestamp_secs: block.timestamp_secs,
            monotonic_timestamp_secs: block.timestamp_secs,
            transactions: 2,
            keys: 2,
            lengths: BySegment::from([&block.body, &block.receipts, &block.index].map(|bytes| bytes.len() as u64)),
            sha256: block.sha256.clone(),
            seal: ByteBuf::default(),
        };
        let leaf = Header::of(&header, None).unwrap().leaf().unwrap();
        header.seal = ByteBuf::from(seal(&before, &leaf));
        self.blocks.push((header, block));
    }

    fn get(&self, number: u64) -> Result<&(BlockHeader, AppendBlock), ReadError> {
        if number < self.first {
            return Err(ReadError::Pruned { first_available: self.first });
        }
        self.blocks.iter().find(|(header, _)| header.number == number).ok_or(ReadError::NotFound)
    }

    /// The certificate of the head: its time, and the root of its tree, which the tests' subnet vouches for.
    fn certificate(&self) -> TipCertificate {
        let counts = [0u64, 0].map(u64::to_be_bytes).concat();
        let label = |name: &str, value: Vec<u8>| -> HashTree { label(name, leaf(value)) };
        let kept = label("coppice", [&self.first.to_be_bytes()[..], &self.before, &counts].concat());
        let tree = match self.blocks.last() {
            Some((header, _)) => {
                let mut index = Vec::new();
                leb128::write::unsigned(&mut index, header.number).unwrap();
                let seal = label("last_block_hash", header.seal.to_vec());
                fork(kept, fork(seal, label("last_block_index", index)))
            }
            None => kept,
        };
        let now = now().as_nanos() as u64;
        TipCertificate {
            certificate: ByteBuf::from([&now.to_be_bytes()[..], &tree.digest()].concat()),
            hash_tree: ByteBuf::from(cbor4ii::serde::to_vec(Vec::new(), &tree).unwrap()),
        }
    }

    fn answer(&self, method: &str, arg: &[u8]) -> Vec<u8> {
        match method {
            "get_block_headers" => {
                let (from, to) = Decode!(arg, u64, u64).unwrap();
                let page = self.get(from).map(|_| {
                    let headers = self.blocks.iter().map(|(header, _)| header.clone());
                    let headers = headers.filter(|header| (from..=to).contains(&header.number)).collect();
                    HeaderPage { headers, next: None }
                });
                Encode!(&page).unwrap()
            }
            "get_block" => {
                let block = self.get(Decode!(arg, u64).unwrap()).map(|(header, block)| ic_coppice_interface::Block {
                    header: header.clone(),
                    body: block.body.clone(),
                    receipts: block.receipts.clone(),
                    index: block.index.clone(),
                });
                Encode!(&block).unwrap()
            }
            "read_segment" => {
                let (number, segment, offset, length) = Decode!(arg, u64, u8, u64, u64).unwrap();
                assert_eq!((segment, offset), (0, 0));
                let part = self.get(number).map(|(_, block)| SegmentPart {
                    bytes: ByteBuf::from(&block.body[..block.body.len().min(length as usize)]),
                    total: block.body.len() as u64,
                });
                Encode!(&part).unwrap()
            }
            "get_transaction_location" => {
                let id = Decode!(arg, ByteBuf).unwrap();
                let has = |block: &AppendBlock| block.index.windows(32).any(|some| some == id.as_slice());
                let found = self.blocks.iter().find(|(header, block)| header.number >= self.first && has(block));
                let found = found.ok_or(ReadError::NotFound).map(|(header, _)| TransactionLocation {
                    block_number: header.number,
                    block_hash: header.hash.clone(),
                    position: 0,
                });
                Encode!(&found).unwrap()
            }
            "find_by_index_key" => {
                let key = Decode!(arg, ByteBuf, Option<ic_coppice_interface::KeyCursor>, u32).unwrap().0;
                let has = |block: &AppendBlock| block.index.windows(key.len()).any(|some| some == key.as_slice());
                let found =
                    self.blocks.iter().rev().filter(|(header, block)| header.number >= self.first && has(block));
                let transactions = found.map(|(header, _)| KeyTransaction {
                    block_number: header.number,
                    block_hash: header.hash.clone(),
                    position: 0,
                    id: ByteBuf::from([0; 32]),
                });
                let page = KeyPage { transactions: transactions.collect(), cursor: None };
                Encode!(&Ok::<_, KeyError>(page)).unwrap()
            }
            "get_tip_certificate" => Encode!(&Some(self.certificate())).unwrap(),
            other => panic!("{other}"),
        }
    }
}

impl Transport for Replica {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Unanswered> {
        // The subnet does not lie.
        Ok(self.kept.lock().unwrap().answer(method, &arg))
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Unanswered> {
        let answer = self.kept.lock().unwrap().answer(method, &arg);
        Ok((self.lie)(method, answer))
    }
}

impl CanisterClient for Replica {
    fn principal(&self, _: Role) -> Principal {
        Principal::anonymous()
    }

    fn vouched(&self, certificate: &[u8]) -> Result<Vouched> {
        let (time, data) = certificate.split_first_chunk().unwrap();
        Ok(Vouched { data: data.to_vec(), time_ns: u64::from_be_bytes(*time) })
    }
}

/// Returns a chain of blocks, and a canister with it.
fn chain(count: u64, lie: Lie) -> (Vec<Block>, Replica) {
    let kept = Arc::new(Mutex::new(Kept::default()));
    let mut blocks: Vec<Block> = Vec::new();
    for number in 0..count {
        let parent = blocks.last().map_or(B256::ZERO, |block| block.hash);
        let block = with_blobs(number, parent);
        kept.lock().unwrap().append(&block);
        blocks.push(block);
    }
    (blocks, Replica { kept, lie })
}

fn canister(replica: &Replica) -> Canister<Replica> {
    Canister::new(Client::new(replica.clone()), false)
}

fn read(source: &impl Source, number: u64) -> Result<Block, Failure> {
    Ok((*source.blocks(&[number], &|_| true)?[0]).clone())
}

#[test]
fn blocks_ids_and_keys_of_a_canister_are_found() {
    let (blocks, replica) = chain(40, truth);
    let source = canister(&replica);
    assert_eq!(source.range().unwrap(), Some(0..=39));
    for number in [39, 0, 20] {
        assert_eq!(source.hash(number).unwrap(), Some(blocks[number as usize].hash));
        assert_eq!(read(&source, number).unwrap(), blocks[number as usize]);
    }
    assert_eq!(source.hash(40).unwrap(), None);
    let transaction = blocks[7].body.transactions[0].hash();
    for (id, number) in [(blocks[7].hash, Some(7)), (transaction, Some(7)), (B256::repeat_byte(0xee), None)] {
        assert_eq!(source.locate(&id).unwrap(), number);
    }
    let address = [emitter(&Address::repeat_byte(6))];
    assert_eq!(source.with_keys(&address, 10..=12, 9).unwrap(), [12, 11, 10]);
    let topics = [3, 5].map(|number| topic(0, &B256::repeat_byte(number)));
    assert_eq!(source.with_keys(&topics, 0..=39, 9).unwrap(), [5, 3]);
    // The newest 9 blocks would do.
    let many = source.with_keys(&address, 0..=39, 9);
    assert!(matches!(many, Err(Failure::TooMany { above: 30 })), "{many:?}");
    // Headers that are not wanted are read without their blocks.
    let wanted = source.blocks(&[1, 2, 3], &|header| header.number == 2).unwrap();
    assert_eq!(wanted.iter().map(|block| block.number()).collect::<Vec<_>>(), [2]);
}

#[test]
fn pruned_blocks_are_named_and_an_empty_canister_has_no_range() {
    let (_, replica) = chain(0, truth);
    assert_eq!(canister(&replica).range().unwrap(), None);
    let (blocks, replica) = chain(40, truth);
    {
        let mut kept = replica.kept.lock().unwrap();
        kept.first = 25;
        kept.before = kept.blocks[24].0.seal.as_slice().try_into().unwrap();
    }
    let source = canister(&replica);
    assert_eq!(source.range().unwrap(), Some(25..=39));
    assert!(matches!(source.hash(24), Err(Failure::Pruned { first: 25 })));
    assert!(matches!(read(&source, 0), Err(Failure::Pruned { first: 25 })));
    assert_eq!(read(&source, 25).unwrap(), blocks[25]);
    assert_eq!(source.locate(&blocks[24].hash).unwrap(), None);
}

#[test]
fn reorg_is_followed_by_the_next_certificate() {
    let (blocks, replica) = chain(40, truth);
    let source = canister(&replica);
    assert_eq!(source.hash(10).unwrap(), Some(blocks[10].hash));
    {
        let mut kept = replica.kept.lock().unwrap();
        kept.blocks.truncate(35);
        // Another block 35.
        let other = with_blobs(36, blocks[34].hash);
        let header = alloy_consensus::Header { number: 35, ..other.header.clone() };
        kept.append(&Block { hash: header.hash_slow(), header, ..other });
    }
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(source.range().unwrap(), Some(0..=35));
    assert_ne!(source.hash(35).unwrap(), Some(blocks[35].hash));
    assert_eq!(source.hash(34).unwrap(), Some(blocks[34].hash));
    assert_eq!(source.hash(36).unwrap(), None);
}

/// Replaces a sequence of bytes in an answer by another one of the same length.
fn replaced(mut answer: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    while let Some(at) = answer.windows(from.len()).position(|some| some == from) {
        answer[at..at + to.len()].copy_from_slice(to);
    }
    answer
}

#[test]
fn lies_of_a_replica_are_errors_and_never_answers() {
    let lies: [(Lie, &str); 5] = [
        // Another receipt: the log's data.
        (
            |method, answer| {
                if method == "get_block" { replaced(answer, &[0x82, 1, 2], &[0x82, 1, 3]) } else { answer }
            },
            "receiptsRoot",
        ),
        // Another transaction: its receiver.
        (
            |method, answer| {
                if method == "get_block" { replaced(answer, &[8; 20], &[9; 20]) } else { answer }
            },
            "transactionsRoot",
        ),
        // Another header: the time of each block.
        (
            |method, answer| {
                let hash = with_blobs(0, B256::ZERO).hash;
                if method == "get_block_headers" { replaced(answer, hash.as_slice(), &[9; 32]) } else { answer }
            },
            "not the one that the subnet has certified",
        ),
        // No headers.
        (
            |method, answer| match method {
                "get_block_headers" => {
                    Encode!(&Ok::<_, ReadError>(HeaderPage { headers: Vec::new(), next: None })).unwrap()
                }
                _ => answer,
            },
            "does not send the headers",
        ),
        // A tree that the certificate does not prove.
        (
            |method, answer| {
                if method == "get_tip_certificate" {
                    replaced(answer, b"last_block_index", b"last_block_indes")
                } else {
                    answer
                }
            },
            "not genuine",
        ),
    ];
    for (lie, why) in lies {
        let (_, replica) = chain(3, lie);
        let failure = read(&canister(&replica), 0).unwrap_err();
        let Failure::Failed(error) = failure else { panic!("{failure:?}") };
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
}

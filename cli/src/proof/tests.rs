//! Tests of proofs and of the walk, with a database and certificates that the tests make.

mod changed;
mod walks;

use super::digits::Hex;
use super::format::{Fields, MAX_FILE, MAX_LEAVES, Proof, Refused};
use super::make::make;
use crate::feed::sha256;
use crate::index::database::{Access, Database, Value};
use crate::index::header::{Declared, Header};
use crate::index::origin::{Origin, Payload};
use crate::index::reader;
use crate::index::store::Store;
use anyhow::{Result, ensure};
use candid::Principal;
use cbor4ii::serde::to_vec;
use ic_certification::hash_tree::{fork, label, leaf};
use ic_certification::{Certificate, HashTree};
use ic_coppice_client::certificate::{self, Vouched};
use ic_coppice_interface::seals::{Seal, seal};
use std::ops::RangeInclusive;

/// The seal before the oldest block.
const BEFORE: Seal = [9; 32];
const TIME_NS: u64 = 1_700_000_000_000_000_000;

fn canister() -> Principal {
    Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 1, 1])
}

fn leb128(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    leb128::write::unsigned(&mut bytes, number).unwrap();
    bytes
}

/// The time of the certificate of a block.
fn time_ns(number: u64) -> u64 {
    TIME_NS + number * 1_000_000_000
}

/// Returns the tree of the certified data.
fn tree(number: u64, seal: &Seal) -> HashTree {
    fork(
        label("coppice", leaf([&7_u64.to_be_bytes()[..], &BEFORE, &[0; 16]].concat())),
        fork(label("last_block_hash", leaf(seal)), label("last_block_index", leaf(leb128(number)))),
    )
}

/// Signs the data of a canister, as the tests' only subnet does.
fn certify(canister: Principal, data: &[u8], time_ns: u64) -> Vec<u8> {
    let of = label(canister.as_slice(), label("certified_data", leaf(data)));
    let tree = fork(label("canister", of), label("time", leaf(leb128(time_ns))));
    let signature = sha256(&[&b"the subnet"[..], &tree.digest()].concat()).to_vec();
    to_vec(Vec::new(), &Certificate { tree, signature, delegation: None }).unwrap()
}

/// Verifies a certificate of [`certify`].
fn vouch(canister: Principal) -> impl Fn(&[u8]) -> Result<Vouched> {
    move |bytes| {
        certificate::vouched(bytes, canister, |certificate| {
            let signature = sha256(&[&b"the subnet"[..], &certificate.tree.digest()].concat());
            ensure!(signature == certificate.signature[..], "the subnet has not signed it");
            ensure!(certificate.delegation.is_none(), "the delegation is not signed");
            Ok(())
        })
    }
}

fn hash(number: u64) -> Vec<u8> {
    sha256(&number.to_be_bytes()).to_vec()
}

fn header(number: u64) -> Header {
    let segment = |at: u64| Declared { length: (number * 3 + at) as u32, sha256: sha256(&[number as u8, at as u8]) };
    Header {
        number,
        hash: hash(number),
        parent_hash: Some(hash(number - 1)),
        // Some are above 2^63.
        timestamp_secs: if number.is_multiple_of(2) { u64::MAX - number } else { number },
        segments: [segment(0), segment(1), segment(2)],
    }
}

/// A database of a chain whose oldest block follows [`BEFORE`].
struct Archive {
    _dir: tempfile::TempDir,
    url: String,
}

impl Archive {
    /// Stores blocks, with the seal before them and certificates of some of them.
    fn new(numbers: RangeInclusive<u64>, certified: &[u64]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/a.db", dir.path().display());
        let origin = Origin { canister: canister().to_string(), network: "memory".into(), payload: Payload::Headers };
        let mut store = Store::open(Access::volatile(&url), &origin).unwrap();
        store.change(|change| change.put_run(*numbers.start(), &BEFORE)).unwrap();
        drop(store);
        let (archive, mut last) = (Self { _dir: dir, url }, BEFORE);
        let mut database = archive.open();
        let insert = "INSERT INTO blocks (number, hash, parent_hash, timestamp_secs, transactions, body_length, \
                      receipts_length, index_length, body_sha256, receipts_sha256, index_sha256, seal) \
                      VALUES ($1, $2, $3, $4, 0, $5, $6, $7, $8, $9, $10, $11)";
        let certificates = "INSERT INTO certificates (number, certificate, hash_tree) VALUES ($1, $2, $3)";
        database
            .transaction(|tx| {
                for number in numbers {
                    let header = header(number);
                    last = seal(&last, &header.leaf()?);
                    let mut values: Vec<Value<'_>> = vec![
                        (number as i64).into(),
                        header.hash[..].into(),
                        Value::Bytes(header.parent_hash.as_deref()),
                        (header.timestamp_secs as i64).into(),
                    ];
                    values.extend(header.segments.iter().map(|of| Value::from(i64::from(of.length))));
                    values.extend(header.segments.iter().map(|of| Value::from(&of.sha256[..])));
                    values.push(last[..].into());
                    tx.execute(insert, &values)?;
                    if certified.contains(&number) {
                        let tree = tree(number, &last);
                        let certificate = certify(canister(), &tree.digest(), time_ns(number));
                        let tree = to_vec(Vec::new(), &tree)?;
                        tx.execute(certificates, &[(number as i64).into(), certificate[..].into(), tree[..].into()])?;
                    }
                }
                Ok(())
            })
            .unwrap();
        drop(database);
        archive
    }

    fn open(&self) -> Database {
        Database::open(Access::volatile(&self.url)).unwrap()
    }

    fn sql(&self, sql: &str) {
        self.open().transaction(|tx| tx.define(sql)).unwrap();
    }

    fn proof(&self, block: u64) -> Result<Proof> {
        reader::read(&self.url, |tx, _| make(tx, block, vouch(canister())))
    }

    /// Returns why a block cannot be proved.
    fn why_not(&self, block: u64) -> String {
        crate::exit::why(&self.proof(block).expect_err("a proof"))
    }
}

fn file(proof: &Proof) -> String {
    serde_json::to_string(proof).unwrap()
}

#[test]
fn proof_of_each_block_before_a_certificate_is_accepted() {
    let archive = Archive::new(7..=22, &[12, 13, 20]);
    let mut last = BEFORE;
    for (block, certified) in (7..=20).map(|block| (block, if block <= 13 { 13.min(12.max(block)) } else { 20 })) {
        let proof = Proof::read(file(&archive.proof(block).unwrap()).as_bytes()).unwrap();
        let checked = proof.check(vouch(canister())).unwrap();
        last = seal(&last, &header(block).leaf().unwrap());
        assert_eq!((checked.certified, checked.time_ns, checked.seal), (certified, time_ns(certified), last));
        assert_eq!(proof.leaves.len() as u64, certified - block);
        assert_eq!(proof.header, Fields::of(&header(block)).unwrap());
    }
    for (block, why) in [
        (21, "there is no certificate of block 21 or a later one yet"),
        (6, "the database holds blocks 7 to 22"),
        (23, "the database holds blocks 7 to 22"),
        (u64::MAX, "the database holds blocks 7 to 22"),
    ] {
        assert!(archive.why_not(block).contains(why), "{}", archive.why_not(block));
    }
}

#[test]
fn proof_over_several_batches_is_accepted() {
    let archive = Archive::new(7..=2_600, &[2_600]);
    for block in [7, 1_600, 2_599, 2_600] {
        let proof = archive.proof(block).unwrap();
        assert_eq!(proof.leaves.len() as u64, 2_600 - block);
        proof.check(vouch(canister())).unwrap();
    }
}

#[test]
fn block_that_no_certificate_proves_is_refused_with_the_reason() {
    let archive = Archive::new(7..=20, &[20]);
    archive.sql(
        "DELETE FROM blocks WHERE number IN (11, 12); INSERT INTO gaps VALUES (11, 12, 'pruned before'); \
         UPDATE blocks SET parent_hash = NULL WHERE number = 16",
    );
    for (block, why) in [
        (7, "block 11 before it is missing: the database lacks blocks 11 to 12: pruned before"),
        (10, "block 11 before it is missing"),
        (11, "there is no block 11 here: the database lacks blocks 11 to 12: pruned before"),
        (13, "the database has neither the block before it nor a row of it in the table runs"),
        (14, "the leaf of block 16 is unknown, because its parent's hash was lost with a damaged header"),
        (16, "block 16 cannot be proved by its seal: its parent's hash was lost"),
    ] {
        assert!(archive.why_not(block).contains(why), "{}", archive.why_not(block));
    }
    archive.proof(17).unwrap().check(vouch(canister())).unwrap();
    archive.sql("DELETE FROM runs");
    assert!(archive.why_not(7).contains("has neither the block before it"));
}

#[test]
fn changed_database_makes_no_proof() {
    let archive = Archive::new(7..=20, &[20]);
    archive.sql("UPDATE blocks SET body_length = body_length + 1 WHERE number = 15");
    assert!(archive.why_not(12).contains("coppice verify finds the first wrong row"), "{}", archive.why_not(12));
    archive.proof(16).unwrap();
}

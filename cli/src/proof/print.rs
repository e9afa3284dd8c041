//! Reports of `coppice verify` and `coppice check-proof`.

use super::check::Checked;
use super::format::{Fields, Proof};
use super::walk::{Newest, Walked};
use crate::get::query::Order;
use crate::report::{Report, blocks, bytes, count, moment, ranges};
use crate::verify::hex;
use serde::Serialize;

/// Returns the certificate's time for people.
fn time(time_ns: u64) -> String {
    moment(time_ns / 1_000_000_000)
}

/// The report of `coppice verify`.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    /// "verify".
    pub command: &'static str,
    /// "SQLite" or "PostgreSQL".
    pub database: &'static str,
    /// The canister's principal.
    pub canister: String,
    #[serde(flatten)]
    pub walked: Walked,
    /// Wall-clock seconds.
    pub elapsed_secs: f64,
}

/// Returns the number of blocks in ranges, and the ranges.
fn counted(all: &[(u64, u64)]) -> String {
    let number: u64 = all.iter().map(|(first, last)| last.saturating_sub(*first).saturating_add(1)).sum();
    if all.is_empty() { "none".into() } else { format!("{}: {}", blocks(number), ranges(all)) }
}

impl Report for VerifyReport {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { walked, .. } = self;
        let number = |number: Option<u64>| number.map_or("none".into(), count);
        let newest =
            walked.newest_certificate.map(|Newest { number, time_ns }| format!("block {number}, {}", time(time_ns)));
        vec![
            ("canister", self.canister.clone()),
            ("database", self.database.into()),
            ("holds blocks", format!("{} to {}", number(walked.first), number(walked.last))),
            ("holds", blocks(walked.blocks)),
            ("proved: header and seal, up to a certificate", blocks(walked.proved)),
            ("certificates checked", count(walked.certificates)),
            ("newest certificate", newest.unwrap_or("none".into())),
            ("no certificate yet", counted(&walked.unreached)),
            ("not provable: no parent's hash, or no seal before", counted(&walked.unprovable)),
            ("missing between these blocks", counted(&walked.gaps)),
            ("runs", count(walked.runs)),
            ("seconds", format!("{:.1}", self.elapsed_secs)),
        ]
    }
}

/// The certificate of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Certified {
    /// The certified block, which was the head.
    pub number: u64,
    /// The certificate's time, in nanoseconds since 1970.
    pub time_ns: u64,
}

/// The header that a proof proves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    pub number: u64,
    pub hash: String,
    pub parent_hash: String,
    /// Unix seconds, as the chain declares them.
    pub timestamp_secs: u64,
    /// Bytes of body, receipts and index.
    pub lengths: [u32; 3],
    /// SHA-256 of body, receipts and index.
    pub sha256: [String; 3],
    pub seal: String,
}

/// The report of `coppice check-proof`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// "check-proof".
    pub command: &'static str,
    /// The canister's principal.
    pub canister: String,
    /// Order of the bytes of hashes: "display" or "internal".
    pub order: &'static str,
    pub block: Block,
    pub certified: Certified,
}

impl CheckReport {
    /// Returns the report of a proof that was accepted.
    pub fn of(proof: &Proof, checked: &Checked, canister: String, order: Order) -> Self {
        let Fields { number, hash, parent_hash, timestamp_secs, lengths, sha256 } = &proof.header;
        Self {
            command: "check-proof",
            canister,
            order: order.name(),
            block: Block {
                number: *number,
                hash: order.show(&hash.0),
                parent_hash: order.show(&parent_hash.0),
                timestamp_secs: *timestamp_secs,
                lengths: *lengths,
                sha256: sha256.each_ref().map(|sha256| hex(&sha256.0)),
                seal: hex(&checked.seal),
            },
            certified: Certified { number: checked.certified, time_ns: checked.time_ns },
        }
    }
}

impl Report for CheckReport {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { block, certified, .. } = self;
        let segment = |at: usize| format!("{}, SHA-256 {}", bytes(block.lengths[at].into()), block.sha256[at]);
        vec![
            ("canister", self.canister.clone()),
            ("block", block.number.to_string()),
            ("hash", block.hash.clone()),
            ("parent", block.parent_hash.clone()),
            ("time", moment(block.timestamp_secs)),
            ("body", segment(0)),
            ("receipts", segment(1)),
            ("index", segment(2)),
            ("seal", block.seal.clone()),
            ("in the chain at", time(certified.time_ns)),
            ("certified as its head", format!("block {}", certified.number)),
        ]
    }
}

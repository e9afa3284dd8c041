//! The file of a proof: a line of JSON.

use super::digits::Hex;
use crate::index::header::Header;
use ic_coppice_interface::seals::{Leaf, Seal};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io::{BufReader, Read};

/// Name of the format.
pub const FORMAT: &str = "coppice proof 1";

/// The longest file that is read, in bytes. Each later block takes 67.
pub const MAX_FILE: u64 = 1 << 30;

/// The most leaves of a proof, so that its file can be read.
pub const MAX_LEAVES: u64 = 15_000_000;

/// A proof that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The file is longer than any proof.
    #[error("invalid proof: the file has more than {MAX_FILE} bytes")]
    TooLong,
    /// The file is not of the format.
    #[error("invalid proof (format {FORMAT:?}): {0}")]
    Malformed(String),
    /// A hash is longer than that of any block.
    #[error("the header has a hash of more than 32 bytes")]
    LongHash,
    /// The certificate is not accepted, or does not prove the tree.
    #[error("the certificate does not hold for this canister and this root key: {0}")]
    Certificate(String),
    /// The certificate is of an empty chain.
    #[error("the certified chain has no head")]
    NoHead,
    /// The leaves end before or after the certified block.
    #[error("the certificate is of block {certified}, but the proof has {leaves} leaves after block {block}")]
    Number { block: u64, leaves: u64, certified: u64 },
    /// Something was changed.
    #[error("the header, the seal before it and the leaves do not lead to the certified seal")]
    Seal,
}

/// The format's name in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format;

/// The fields of a header that a leaf proves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fields {
    pub number: u64,
    /// Block hash, as the canister has it.
    pub hash: Hex<Vec<u8>>,
    pub parent_hash: Hex<Vec<u8>>,
    /// Unix seconds, as the chain declares them.
    pub timestamp_secs: u64,
    /// Bytes of body, receipts and index.
    pub lengths: [u32; 3],
    /// SHA-256 of body, receipts and index.
    pub sha256: [Hex<Seal>; 3],
}

/// A proof of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    pub format: Format,
    pub header: Fields,
    /// The seal of the block before it.
    pub seal_before: Hex<Seal>,
    /// The leaves of the blocks after it, up to the certified one.
    pub leaves: Vec<Hex<Seal>>,
    /// The subnet's certificate, as CBOR.
    pub certificate: Hex<Vec<u8>>,
    /// The hash tree of the canister's certified data, as CBOR.
    pub hash_tree: Hex<Vec<u8>>,
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(FORMAT)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)? {
            text if text == FORMAT => Ok(Self),
            text => Err(D::Error::custom(format!("it has the format {text:?}"))),
        }
    }
}

impl Fields {
    /// Returns the fields of a stored header; `None` if its parent is unknown.
    pub fn of(header: &Header) -> Option<Self> {
        Some(Self {
            number: header.number,
            hash: Hex(header.hash.clone()),
            parent_hash: Hex(header.parent_hash.clone()?),
            timestamp_secs: header.timestamp_secs,
            lengths: header.segments.each_ref().map(|segment| segment.length),
            sha256: header.segments.each_ref().map(|segment| Hex(segment.sha256)),
        })
    }

    /// Returns the leaf.
    ///
    /// # Errors
    /// [`Refused::LongHash`].
    pub fn leaf(&self) -> Result<Seal, Refused> {
        let leaf = Leaf {
            number: self.number,
            timestamp_secs: self.timestamp_secs,
            lengths: self.lengths,
            hash: &self.hash.0,
            parent_hash: &self.parent_hash.0,
            sha256: &self.sha256.map(|sha256| sha256.0),
        };
        leaf.digest().ok_or(Refused::LongHash)
    }
}

impl Proof {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Refused::TooLong`], [`Refused::Malformed`].
    pub fn read(from: impl Read) -> Result<Self, Refused> {
        Self::read_within(from, MAX_FILE)
    }

    /// Reads a file of at most `longest` bytes.
    pub(super) fn read_within(from: impl Read, longest: u64) -> Result<Self, Refused> {
        let mut from = from.take(longest + 1);
        let proof = serde_json::from_reader(BufReader::new(from.by_ref()));
        if from.limit() == 0 {
            return Err(Refused::TooLong);
        }
        proof.map_err(|why| Refused::Malformed(why.to_string()))
    }
}

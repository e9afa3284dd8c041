//! Certificate of a canister's chain by the subnet, the answer of `get_tip_certificate`: the head, its seal and the chain's beginning
//! (`docs/design/export.md`). No replica can forge it.

use crate::cbor;
use anyhow::{Context, Result, bail, ensure};
use candid::Principal;
use ic_certification::{Certificate, HashTree, LookupResult};
use ic_coppice_interface::TipCertificate;
use ic_coppice_interface::seals::Seal;

/// The data for which the subnet vouches, with a certificate's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The canister's certified data: the root of its tree.
    pub data: Vec<u8>,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
}

/// The beginning of the kept chain, and the counts by which a restored canister is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The number of the oldest kept block; 0 for a chain that never had a block.
    pub first: u64,
    /// The seal before that block.
    pub before: Seal,
    /// Resets so far.
    pub resets: u64,
    /// Blocks that were ever rolled back.
    pub rollbacks: u64,
}

/// The chain as the subnet certified it at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The head's number and seal; `None` if the chain is empty, or while a rollback passes a damaged block.
    pub head: Option<(u64, Seal)>,
    /// The beginning; `None` if the seal before it was in a damaged block.
    pub kept: Option<Kept>,
    /// The canister's answer.
    pub answer: TipCertificate,
}

/// Reads a certificate that `verify` has accepted.
///
/// # Errors
/// When it is invalid, is not accepted, or proves no certified data of this canister and no time.
pub fn vouched(bytes: &[u8], canister: Principal, verify: impl FnOnce(&Certificate) -> Result<()>) -> Result<Vouched> {
    let certificate: Certificate = cbor::read(bytes).context("it cannot be decoded")?;
    verify(&certificate)?;
    let of = |path: &[&[u8]], what: &str| match certificate.tree.lookup_path(path) {
        LookupResult::Found(value) => Ok(value.to_vec()),
        _ => bail!("it proves no {what}"),
    };
    let data = of(&[b"canister", canister.as_slice(), b"certified_data"], "certified data of this canister")?;
    Ok(Vouched { data, time_ns: number(&of(&[b"time"], "time")?)? })
}

/// Reads the canister's answer; `vouch` verifies the subnet's certificate.
///
/// # Errors
/// When the certificate is not accepted, or does not prove the tree; when the tree does not show all labels.
pub fn read(answer: TipCertificate, vouch: impl FnOnce(&[u8]) -> Result<Vouched>) -> Result<Certified> {
    let Vouched { data, time_ns } = vouch(&answer.certificate)?;
    let tree: HashTree = cbor::read(&answer.hash_tree).context("it has no hash tree")?;
    ensure!(tree.digest() == *data, "the tree is not the one that the canister has certified");
    let label = |name: &str| match tree.lookup_path([name]) {
        LookupResult::Found(value) => Ok(Some(value.to_vec())),
        LookupResult::Absent => Ok(None),
        _ => bail!("the tree does not show the label {name}"),
    };
    let head = match (label("last_block_index")?, label("last_block_hash")?) {
        (Some(index), Some(hash)) => Some((number(&index)?, seal(&hash)?)),
        (None, None) => None,
        _ => bail!("the tree shows half of the head"),
    };
    let kept = label("coppice")?.map(|leaf| kept(&leaf)).transpose()?;
    Ok(Certified { time_ns, head, kept, answer })
}

fn kept(leaf: &[u8]) -> Result<Kept> {
    let word = |at: usize| leaf.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_be_bytes(*bytes));
    let words = (word(0), word(40), word(48));
    let (Some(first), Some(resets), Some(rollbacks), 56) = (words.0, words.1, words.2, leaf.len()) else {
        bail!("the label coppice has {} bytes", leaf.len());
    };
    Ok(Kept { first, before: seal(&leaf[8..40])?, resets, rollbacks })
}

fn seal(bytes: &[u8]) -> Result<Seal> {
    bytes.try_into().with_context(|| format!("a seal has {} bytes", bytes.len()))
}

/// Reads a number in LEB128.
fn number(mut bytes: &[u8]) -> Result<u64> {
    let number = leb128::read::unsigned(&mut bytes).context("a number is not in LEB128")?;
    ensure!(bytes.is_empty(), "a number has more bytes than it needs");
    Ok(number)
}

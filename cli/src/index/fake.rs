//! A fake canister in memory, for tests: keeps a chain, exports it like the real one, and lies on request.

use super::assemble::cursor_after;
use crate::client::{CanisterClient, Failure, Transport};
use crate::feed::sha256;
use anyhow::{Result, bail, ensure};
use candid::Principal;
use cbor4ii::serde::to_vec;
use ic_certification::HashTree;
use ic_certification::hash_tree::{fork, label, leaf};
use ic_coppice_client::Reject;
use ic_coppice_client::certificate::Vouched;
use ic_coppice_interface::seals::{self, Leaf, Seal};
use ic_coppice_interface::segments::{Index, encode_index, encode_receipts};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Bytes of a page if the reader names no limit.
const PAGE_BYTES: u64 = 1_900_000;

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeBlock {
    pub hash: Vec<u8>,
    pub parent: Vec<u8>,
    pub segments: [Vec<u8>; 3],
    /// The declared digests, which may be wrong.
    pub digests: [Vec<u8>; 3],
    pub seal: Seal,
}

/// Why a cursor is invalid whose block a replica does not know.
const UNKNOWN: &str = "no such block";

/// The state of a canister, to be restored later.
#[derive(Clone)]
pub struct Snapshot {
    blocks: BTreeMap<u64, FakeBlock>,
    rollbacks: Vec<u64>,
    reset: u64,
    resets: u64,
    before: Seal,
    lost_before: bool,
    first: u64,
    bound: u64,
}

type OnAck = Box<dyn FnMut(u64, &[u8]) -> Result<()> + Send>;
/// The answer to an export call.
pub type Answer = Result<ExportPage, ExportError>;
type Garble = Box<dyn FnMut(&mut Answer) + Send>;
type Lie = Box<dyn FnMut(&Chain, Answer) -> Answer + Send>;
type LieOfHeaders = Box<dyn FnMut(&Chain, Result<HeaderPage, ReadError>) -> Result<HeaderPage, ReadError> + Send>;
type LieOfCertificate = Box<dyn FnMut(&Chain, TipCertificate) -> Option<TipCertificate> + Send>;

/// The chain, and the faults to inject.
pub struct Chain {
    pub blocks: BTreeMap<u64, FakeBlock>,
    pub corrupt: BTreeSet<u64>,
    /// The heads after each rollback.
    pub rollbacks: Vec<u64>,
    /// The number of rollbacks at the last reset, that reset included; 0 without a reset.
    reset: u64,
    resets: u64,
    /// The seal before the oldest block, and whether the canister has lost it.
    before: Seal,
    lost_before: bool,
    /// The number of the chain's first block.
    first: u64,
    pub registered: bool,
    /// The time of certificates and of readers' clocks, in seconds since 1970.
    pub now: u64,
    pub bound: u64,
    pub on_ack: Option<OnAck>,
    /// Changes every answer, of queries and update calls, like a canister that was replaced or is damaged.
    pub garble: Option<Garble>,
    /// Changes pages that queries return, like a replica that lies.
    pub lie: Option<Lie>,
    /// Does the same with headers.
    pub lie_of_headers: Option<LieOfHeaders>,
    /// Does the same with certificates.
    pub lie_of_certificate: Option<LieOfCertificate>,
    /// Queries and update calls for pages.
    pub asked: (u64, u64),
    /// Queries and update calls for headers, by the first block asked for.
    pub asked_headers: [Vec<u64>; 2],
    pub asked_certificates: u64,
    pub headers_of_a_page: usize,
    /// True if the canister finds common ancestors exactly.
    pub exact: bool,
}

impl Chain {
    pub fn head(&self) -> Option<u64> {
        self.blocks.last_key_value().map(|(number, _)| *number)
    }

    /// Appends blocks, one per body length, with some transactions. Another `salt` makes other blocks.
    pub fn append(&mut self, salt: u8, bodies: &[usize]) {
        for &body in bodies {
            let (number, parent) = match self.blocks.last_key_value() {
                Some((number, block)) => (number + 1, block.hash.clone()),
                None => (self.first, vec![0; 32]),
            };
            let hash = sha256(&[&[salt][..], &number.to_le_bytes(), &parent].concat()).to_vec();
            let ids = (0..number as u8 % 4).map(|at| sha256(&[&hash[..], &[at]].concat()));
            let ids: Vec<[u8; 32]> = if number % 7 == 3 { Vec::new() } else { ids.collect() };
            let index = if number % 7 == 3 { Vec::new() } else { index_of(number, &ids) };
            let receipt = |at: usize| vec![salt; at * 7];
            let receipts: Vec<_> = (0..ids.len()).map(receipt).collect();
            let receipts = if number % 2 == 0 { Vec::new() } else { encode_receipts(&receipts).unwrap() };
            let body = (0..body).map(|at| (at as u64 * 31 + number + u64::from(salt)) as u8).collect();
            let segments = [body, receipts, index];
            let digests = segments.each_ref().map(|segment| sha256(segment).to_vec());
            let mut block = FakeBlock { hash, parent, segments, digests, seal: [0; 32] };
            block.seal = seals::seal(&self.seal_before(number), &block.leaf(number));
            self.blocks.insert(number, block);
        }
    }

    fn seal_before(&self, number: u64) -> Seal {
        let before = number.checked_sub(1).and_then(|before| self.blocks.get(&before));
        before.map_or(self.before, |block| block.seal)
    }

    /// Recomputes all seals, because tests change blocks.
    fn seal(&mut self) {
        let numbers: Vec<u64> = self.blocks.keys().copied().collect();
        for number in numbers {
            let before = self.seal_before(number);
            if let Some(block) = self.blocks.get_mut(&number) {
                block.seal = seals::seal(&before, &block.leaf(number));
            }
        }
    }

    pub fn roll_back_to(&mut self, head: u64) {
        self.blocks.retain(|number, _| *number <= head);
        self.rollbacks.push(head);
        self.bound = self.bound.min(head + 1);
    }

    /// Empties the chain, which then begins at another number.
    pub fn reset(&mut self, first: u64) {
        self.resets += 1;
        self.seal();
        let last = self.blocks.values().next_back().map_or(self.before, |block| block.seal);
        (self.before, self.lost_before) = (seals::after_reset(&last, self.resets), false);
        self.blocks.clear();
        self.corrupt.clear();
        // No earlier head is a common ancestor any more.
        self.rollbacks = vec![u64::MAX; self.rollbacks.len() + 1];
        (self.reset, self.first, self.bound) = (self.rollbacks.len() as u64, first, 0);
    }

    /// Returns whether a cursor is of a chain before the last reset.
    fn is_of_before(&self, at: &ExportCursor) -> bool {
        let is_kept = || self.blocks.get(&at.number).is_some_and(|block| block.hash == at.hash.as_slice());
        if at.rollbacks > 0 { at.rollbacks < self.reset } else { self.reset > 0 && !is_kept() }
    }

    pub fn prune_before(&mut self, number: u64) {
        self.seal();
        let last = self.blocks.range(..number).next_back();
        if let Some((last, block)) = last {
            (self.before, self.lost_before) = (block.seal, self.corrupt.contains(last));
        }
        self.blocks.retain(|of, _| *of >= number);
    }

    /// The parent's hash; `None` if the parent is damaged.
    fn parent(&self, number: u64, block: &FakeBlock) -> Option<BlockHash> {
        let is_lost = number.checked_sub(1).is_some_and(|before| self.corrupt.contains(&before));
        (!is_lost).then(|| block.parent.clone().into())
    }

    fn cursor(&self, number: u64, segment: u8, offset: u64) -> ExportCursor {
        let hash = self.blocks.get(&number).map(|block| &block.hash);
        let hash = hash.or_else(|| self.blocks.get(&(number + 1)).map(|block| &block.parent));
        let hash = hash.filter(|_| !self.corrupt.contains(&number)).cloned().unwrap_or_default();
        ExportCursor { segment, offset, ..cursor_after(number, &hash, self.rollbacks.len() as u64) }
    }

    /// Returns the state that a snapshot of the canister has.
    pub fn snapshot(&self) -> Snapshot {
        let Self { blocks, rollbacks, reset, resets, before, lost_before, first, bound, .. } = self;
        let (blocks, rollbacks) = (blocks.clone(), rollbacks.clone());
        let (reset, resets, before, lost_before) = (*reset, *resets, *before, *lost_before);
        Snapshot { blocks, rollbacks, reset, resets, before, lost_before, first: *first, bound: *bound }
    }

    pub fn restore(&mut self, snapshot: &Snapshot) {
        let Snapshot { blocks, rollbacks, reset, resets, before, lost_before, first, bound } = snapshot.clone();
        (self.blocks, self.rollbacks, self.reset, self.first, self.bound) = (blocks, rollbacks, reset, first, bound);
        (self.resets, self.before, self.lost_before) = (resets, before, lost_before);
    }

    /// Answers an update call, for which no replica lags.
    fn export_replicated(&self, cursor: Option<ExportCursor>, max_bytes: u64) -> Result<ExportPage, ExportError> {
        let restored = ExportError::Restored { head: self.head() };
        let is_ahead = |at: &ExportCursor| at.rollbacks > self.rollbacks.len() as u64;
        if cursor.as_ref().is_some_and(|at| is_ahead(at) || self.head().is_none() && !self.is_of_before(at)) {
            return Err(restored);
        }
        self.export(cursor, max_bytes).map_err(|error| match error {
            ExportError::Behind { .. } => restored,
            ExportError::BadCursor { why } if why == UNKNOWN => restored,
            other => other,
        })
    }

    fn export(&self, cursor: Option<ExportCursor>, max_bytes: u64) -> Result<ExportPage, ExportError> {
        if cursor.as_ref().is_some_and(|at| self.is_of_before(at)) {
            return Err(ExportError::Reset { first_available: self.blocks.keys().next().copied() });
        }
        let (Some(head), Some(oldest)) = (self.head(), self.blocks.keys().next().copied()) else {
            return Ok(ExportPage { chunks: Vec::new(), cursor, head: None });
        };
        let (mut number, mut segment, mut offset) = match &cursor {
            None => (oldest, 0, 0),
            Some(at) => {
                let lowest = self.rollbacks.get(at.rollbacks as usize..).unwrap_or_default().iter().min().copied();
                let lowest = lowest.filter(|&lowest| lowest < at.number);
                // An inexact chain returns one block lower.
                let lowest = lowest.map(|lowest| if self.exact { lowest } else { lowest.saturating_sub(1) });
                let pruned = ExportError::Pruned { first_available: oldest, common_ancestor: lowest };
                if at.number + u64::from(at.segment == 3) < oldest {
                    return Err(pruned);
                }
                let kept = match self.blocks.get(&oldest) {
                    Some(block) if at.number < oldest => Some(&block.parent),
                    _ => self.blocks.get(&at.number).map(|block| &block.hash),
                };
                let is_lost = self.corrupt.contains(&at.number) && lowest.is_none();
                if !is_lost && kept.is_none_or(|hash| hash != &**at.hash) {
                    return Err(match lowest {
                        None if at.number > head => ExportError::Behind { head: Some(head) },
                        None => ExportError::BadCursor { why: UNKNOWN.into() },
                        Some(lowest) if lowest + 1 < oldest => pruned,
                        Some(lowest) => {
                            ExportError::Reorged { common_ancestor: lowest, cursor: self.cursor(lowest, 3, 0) }
                        }
                    });
                }
                let length = |block: &FakeBlock| block.segments.get(usize::from(at.segment)).map_or(0, Vec::len) as u64;
                if self.blocks.get(&at.number).is_some_and(|block| at.offset > length(block)) {
                    return Err(ExportError::BadCursor { why: "an offset after the segment's end".into() });
                }
                if at.segment == 3 { (at.number + 1, 0, 0) } else { (at.number, at.segment, at.offset) }
            }
        };
        let mut room = if max_bytes == 0 { PAGE_BYTES } else { max_bytes.min(PAGE_BYTES) };
        let (mut chunks, mut next) = (Vec::new(), cursor);
        while let Some(block) = self.blocks.get(&number) {
            if self.corrupt.contains(&number) {
                if chunks.is_empty() {
                    let next = (number < head).then(|| self.cursor(number, 3, 0));
                    return Err(ExportError::Corrupt { number, why: "it is lost\0".into(), next });
                }
                break;
            }
            let bytes = &block.segments[usize::from(segment)];
            let rest = &bytes[offset as usize..];
            if room == 0 && !rest.is_empty() {
                break;
            }
            let part = &rest[..rest.len().min(room as usize)];
            room -= part.len() as u64;
            chunks.push(ExportChunk {
                number,
                hash: block.hash.clone().into(),
                parent_hash: self.parent(number, block),
                timestamp_secs: time(number),
                segment,
                offset,
                total: bytes.len() as u64,
                sha256: ByteBuf::from(block.digests[usize::from(segment)].clone()),
                bytes: ByteBuf::from(part),
            });
            offset += part.len() as u64;
            if offset == bytes.len() as u64 {
                (segment, offset) = (segment + 1, 0);
            }
            next = Some(self.cursor(number, segment, offset));
            if segment == 3 {
                (number, segment) = (number + 1, 0);
            }
            if room == 0 {
                break;
            }
        }
        Ok(ExportPage { chunks, cursor: next, head: Some(head) })
    }

    fn answer(&mut self, arg: &[u8], replicated: bool) -> Result<Answer> {
        let (cursor, max_bytes): (Option<ExportCursor>, u64) = candid::decode_args(arg)?;
        let mut answer = match replicated {
            true => self.export_replicated(cursor, max_bytes),
            false => self.export(cursor, max_bytes),
        };
        if let Some(garble) = &mut self.garble {
            garble(&mut answer);
        }
        Ok(answer)
    }

    fn acknowledge(&mut self, number: u64, hash: &[u8]) -> Result<Result<u64, AckError>> {
        if let Some(on_ack) = &mut self.on_ack {
            on_ack(number, hash)?;
        }
        if !self.registered {
            bail!("the caller may not do this");
        }
        if self.head().is_none_or(|head| number > head) {
            return Ok(Err(AckError::AboveHead { head: self.head() }));
        }
        Ok(match self.blocks.get(&number) {
            Some(_) if self.corrupt.contains(&number) => Err(AckError::Corrupt { why: "the test says so".into() }),
            Some(block) if block.hash != hash => Err(AckError::WrongHash { expected: block.hash.clone().into() }),
            _ => {
                self.bound = self.bound.max(number + 1);
                Ok(self.bound)
            }
        })
    }

    pub fn header(&self, number: u64) -> Result<BlockHeader, ReadError> {
        let Some(block) = self.blocks.get(&number) else {
            let oldest = self.blocks.keys().next().copied().unwrap_or_default();
            return Err(if number < oldest {
                ReadError::Pruned { first_available: oldest }
            } else {
                ReadError::NotFound
            });
        };
        if self.corrupt.contains(&number) {
            return Err(ReadError::Corrupt { why: "it is lost".into() });
        }
        Ok(BlockHeader {
            number,
            hash: block.hash.clone().into(),
            parent_hash: self.parent(number, block),
            timestamp_secs: time(number),
            monotonic_timestamp_secs: 0,
            transactions: Index::parse(&block.segments[2]).map_or(0, |index| index.transactions()),
            keys: 0,
            lengths: block.segments.each_ref().map(|segment| segment.len() as u64).into(),
            sha256: block.digests.clone().map(ByteBuf::from).into(),
            seal: ByteBuf::from(block.seal),
        })
    }

    /// Returns the certificate of the head.
    pub fn certificate(&self) -> TipCertificate {
        self.certificate_at(self.now)
    }

    /// Returns the certificate of the head at a time. Its tree is not pruned anywhere.
    pub fn certificate_at(&self, now: u64) -> TipCertificate {
        let kept = (!self.lost_before).then(|| {
            let first = self.blocks.keys().next().copied().unwrap_or_default();
            let words = [self.resets, self.rollbacks.len() as u64].map(u64::to_be_bytes);
            label("coppice", leaf([&first.to_be_bytes()[..], &self.before, &words[0], &words[1]].concat()))
        });
        let http = label("http_expr", leaf([]));
        let first = match kept {
            Some(kept) => fork(kept, http),
            None => http,
        };
        let tree = match self.blocks.last_key_value() {
            Some((number, block)) => {
                let mut index = Vec::new();
                leb128::write::unsigned(&mut index, *number).unwrap();
                fork(first, fork(label("last_block_hash", leaf(block.seal)), label("last_block_index", leaf(index))))
            }
            None => first,
        };
        certify(&tree, now)
    }

    /// Returns at most `headers_of_a_page` headers.
    fn headers(&self, from: u64, to: u64) -> Result<HeaderPage, ReadError> {
        let mut headers = vec![self.header(from)?];
        let rest = (from + 1..=to).map_while(|number| self.header(number).ok());
        headers.extend(rest.take(self.headers_of_a_page - 1));
        let next = Some(from + headers.len() as u64).filter(|next| *next <= to && self.blocks.contains_key(next));
        Ok(HeaderPage { headers, next })
    }
}

impl FakeBlock {
    pub fn leaf(&self, number: u64) -> Seal {
        let leaf = Leaf {
            number,
            timestamp_secs: time(number),
            lengths: self.segments.each_ref().map(|segment| segment.len() as u32),
            hash: &self.hash,
            parent_hash: &self.parent,
            sha256: &self.digests.each_ref().map(|digest| digest[..].try_into().unwrap()),
        };
        leaf.digest().unwrap()
    }
}

/// Bytes of a certificate's time, of its data and of its signature.
const CERTIFICATE: [usize; 3] = [8, 32, 32];

/// Signs a tree, as only the subnet can.
pub fn certify(tree: &HashTree, now: u64) -> TipCertificate {
    let signed = [&(now * 1_000_000_000).to_be_bytes()[..], &tree.digest()].concat();
    let certificate = [&signed[..], &sha256(&[b"the subnet", &signed[..]].concat())].concat();
    TipCertificate { certificate: certificate.into(), hash_tree: to_vec(Vec::new(), tree).unwrap().into() }
}

/// Verifies a signature of [`certify`].
fn vouched(certificate: &[u8]) -> Result<Vouched> {
    ensure!(certificate.len() == CERTIFICATE.iter().sum::<usize>(), "the certificate has {} bytes", certificate.len());
    let (signed, signature) = certificate.split_at(CERTIFICATE[0] + CERTIFICATE[1]);
    ensure!(sha256(&[b"the subnet", signed].concat()) == *signature, "the subnet has not signed the certificate");
    let (time, data) = signed.split_at(CERTIFICATE[0]);
    Ok(Vouched { data: data.to_vec(), time_ns: u64::from_be_bytes(time.try_into()?) })
}

/// Returns an index segment: all transactions have the key `all`, the last one has it twice, and each has the key `number % 3`.
fn index_of(number: u64, ids: &[[u8; 32]]) -> Vec<u8> {
    let some = [number as u8 % 3];
    let mut keys: Vec<(u32, &[u8])> = (0..ids.len() as u32).flat_map(|at| [(at, &b"all"[..]), (at, &some)]).collect();
    keys.extend(ids.len().checked_sub(1).map(|last| (last as u32, &b"all"[..])));
    encode_index(ids.iter().copied(), keys.into_iter()).unwrap()
}

/// Returns a block's time, which uses all 64 bits.
fn time(number: u64) -> u64 {
    u64::MAX - number
}

/// The fake canister.
pub struct Fake(Mutex<Chain>);

impl Fake {
    /// Creates an empty canister, whose caller is a registered exporter.
    pub fn new() -> Self {
        Self(Mutex::new(Chain {
            blocks: BTreeMap::new(),
            corrupt: BTreeSet::new(),
            rollbacks: Vec::new(),
            reset: 0,
            resets: 0,
            before: seals::FIRST,
            lost_before: false,
            first: 10,
            registered: true,
            now: 1_700_000_000,
            bound: 0,
            on_ack: None,
            garble: None,
            lie: None,
            lie_of_headers: None,
            lie_of_certificate: None,
            asked: (0, 0),
            asked_headers: Default::default(),
            asked_certificates: 0,
            headers_of_a_page: 4,
            exact: true,
        }))
    }

    pub fn chain(&self) -> MutexGuard<'_, Chain> {
        self.0.lock().unwrap()
    }
}

/// Returns a rejection by one replica or its ingress filter.
fn refused(error: anyhow::Error) -> Failure {
    Failure::Rejected(Reject { certified: false, ..Reject::new(4, None, format!("{error:#}")) })
}

impl Transport for Fake {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.called(method, &arg).map_err(refused)
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.asked(method, &arg).map_err(refused)
    }
}

impl CanisterClient for Fake {
    fn principal(&self, _: Role) -> Principal {
        Principal::self_authenticating(b"indexer")
    }

    fn vouched(&self, certificate: &[u8]) -> Result<Vouched> {
        vouched(certificate)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.chain().now)
    }
}

impl Fake {
    fn called(&self, method: &str, arg: &[u8]) -> Result<Vec<u8>> {
        self.chain().seal();
        match method {
            "register_exporter" => Ok(candid::encode_one(Ok::<(), ExporterError>(()))?),
            "ack_exported" => {
                let (number, hash): (u64, BlockHash) = candid::decode_args(arg)?;
                Ok(candid::encode_one(self.chain().acknowledge(number, &hash)?)?)
            }
            "export_blocks" => {
                let mut chain = self.chain();
                chain.asked.1 += 1;
                if !chain.registered {
                    bail!("the caller has no role");
                }
                Ok(candid::encode_one(chain.answer(arg, true)?)?)
            }
            "get_export_status" => self.asked(method, arg),
            "get_block_headers" => {
                let mut chain = self.chain();
                let (from, to): (u64, u64) = candid::decode_args(arg)?;
                chain.asked_headers[1].push(from);
                if !chain.registered {
                    bail!("the caller has no role");
                }
                Ok(candid::encode_one(chain.headers(from, to))?)
            }
            _ => bail!("no update method {method}"),
        }
    }

    fn asked(&self, method: &str, arg: &[u8]) -> Result<Vec<u8>> {
        let mut chain = self.chain();
        chain.seal();
        match method {
            "export_blocks" => {
                chain.asked.0 += 1;
                let mut answer = chain.answer(arg, false)?;
                if let Some(mut lie) = chain.lie.take() {
                    answer = lie(&chain, answer);
                    chain.lie = Some(lie);
                }
                Ok(candid::encode_one(answer)?)
            }
            "get_export_status" => {
                let exporters = if chain.registered { vec![self.principal(Role::Exporter)] } else { Vec::new() };
                let exporters = exporters.into_iter().map(|principal| ExporterStatus {
                    name: "indexer".into(),
                    principal: Some(principal),
                    exported_before_block: chain.bound,
                    lag_blocks: 0,
                    lag_secs: 0,
                    acknowledged_at_ns: None,
                    registered_at_ns: 0,
                });
                let head = chain.head();
                let status = ExportStatus {
                    exporters: exporters.collect(),
                    exported_before_block: None,
                    require_export: false,
                    head,
                };
                Ok(candid::encode_one(status)?)
            }
            "get_block_headers" => {
                let (from, to): (u64, u64) = candid::decode_args(arg)?;
                chain.asked_headers[0].push(from);
                let mut page = chain.headers(from, to);
                if let Some(mut lie) = chain.lie_of_headers.take() {
                    page = lie(&chain, page);
                    chain.lie_of_headers = Some(lie);
                }
                Ok(candid::encode_one(page)?)
            }
            "get_tip_certificate" => {
                chain.asked_certificates += 1;
                let mut certificate = Some(chain.certificate());
                if let Some(mut lie) = chain.lie_of_certificate.take() {
                    certificate = lie(&chain, chain.certificate());
                    chain.lie_of_certificate = Some(lie);
                }
                Ok(candid::encode_one(certificate)?)
            }
            _ => bail!("no query method {method}"),
        }
    }
}

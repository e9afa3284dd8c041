//! Certified data: values that the subnet signs, so that a reader need not trust a replica (`docs/design/export.md`).
//!
//! ```text
//!        ┌─ "coppice"            first block u64 ‖ seal before it ‖ resets u64 ‖ rolled-back blocks u64, big-endian
//!   fork ┤
//!   │    │    ┌─ "host"          labels of the canister that contains the library, each with a tree of its own
//!   │    └ fork
//!   │         └─ "http_expr"     for gateways (`canister/src/api/certified.rs`)
//! fork = certified data
//!   │    ┌─ "last_block_hash"    the head's seal
//!   fork ┤
//!        └─ "last_block_index"   the head's number, LEB128
//! ```
//! The labels of the head are those of ICRC-3. A label whose seal is unknown is absent; so are those of the head of an empty chain, and
//! `host` in a canister that certifies nothing of its own.

use super::store::ChainStore;
use ic_certification::{HashTree, fork, labeled, leaf, pruned};
use ic_coppice_interface::seals::Seal;
use sha2::{Digest as _, Sha256};

/// Digest of a part of the tree.
pub type Digest = [u8; 32];

/// Digest of the part under `http_expr`, which never changes. A constant, because hashing that part would take 60,000 instructions.
pub const HTTP: Digest = [
    0x55, 0xec, 0xc3, 0x1c, 0x3e, 0x80, 0x47, 0xfc, 0x15, 0x8f, 0x20, 0xea, 0x0a, 0xa0, 0x60, 0x9a, 0xac, 0xc7, 0xb5,
    0x7e, 0x06, 0xea, 0x40, 0xdc, 0x41, 0x86, 0x02, 0x72, 0xa7, 0xd6, 0x42, 0x91,
];

const OWN: &str = "coppice";
const HOST: &str = "host";
const LAST_HASH: &str = "last_block_hash";
const LAST_INDEX: &str = "last_block_index";
/// Bytes of the leaf `coppice`.
const OWN_LEN: usize = 8 + 32 + 8 + 8;

/// Values of the labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The leaf `coppice`.
    own: Option<[u8; OWN_LEN]>,
    /// The head's number and seal.
    last: Option<(u64, Seal)>,
    /// Digest of the part under `host`, its label included; zeros for none.
    host: Digest,
}

/// The certified labels, and the digests of the two parts if they were computed since the canister started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Certified {
    labels: Labels,
    digests: Option<[Option<Digest>; 2]>,
}

impl Labels {
    fn own_digest(&self) -> Option<Digest> {
        self.own.map(|own| labeled_digest(OWN, &own))
    }

    fn last_digest(&self) -> Option<Digest> {
        self.last.map(|(number, seal)| {
            fork_digest(labeled_digest(LAST_HASH, &seal), labeled_digest(LAST_INDEX, &leb128(number)))
        })
    }

    fn host_part(&self) -> Option<Digest> {
        Some(self.host).filter(|host| *host != [0; 32])
    }
}

/// Digest of a node, as the interface specification defines it ("Certification"): of its kind and its parts. The library's functions hash
/// part by part, which takes 1,000 instructions more for each node, as would copies of lengths that the compiler does not know.
#[inline(always)]
fn digest(kind: &str, parts: [&[u8]; 2]) -> Digest {
    let (mut message, mut end) = ([0; 96], 0);
    for part in [&[kind.len() as u8], kind.as_bytes(), parts[0], parts[1]] {
        message[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    Sha256::digest(&message[..end]).into()
}

fn labeled_digest(label: &str, value: &[u8]) -> Digest {
    digest("ic-hashtree-labeled", [label.as_bytes(), &digest("ic-hashtree-leaf", [value, &[]])])
}

fn fork_digest(left: Digest, right: Digest) -> Digest {
    digest("ic-hashtree-fork", [&left, &right])
}

fn leb128(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(10);
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Joins the parts of the tree that there are, from the inside outwards.
fn join<T>([own, last]: [Option<T>; 2], host: Option<T>, http: T, fork: impl Fn(T, T) -> T) -> T {
    let first = [host, own].into_iter().flatten().fold(http, |rest, part| fork(part, rest));
    last.into_iter().fold(first, fork)
}

impl ChainStore {
    /// The labels of the chain as it is now.
    fn labels(&self) -> Labels {
        let state = &self.state;
        let own = state.seal_before.map(|before| {
            let mut own = [0; OWN_LEN];
            own[..8].copy_from_slice(&state.oldest.to_be_bytes());
            own[8..40].copy_from_slice(&before);
            own[40..48].copy_from_slice(&state.reset.count.to_be_bytes());
            own[48..].copy_from_slice(&self.rollbacks.count().to_be_bytes());
            own
        });
        Labels { own, last: state.head().zip(state.seal), host: state.host }
    }

    /// Takes over what was certified before an upgrade.
    pub(super) fn open_certified(&mut self) {
        self.certified = Certified { labels: self.labels(), digests: None };
    }

    /// Returns the new data to certify if the chain has changed since the last call.
    pub fn certify(&mut self) -> Option<Digest> {
        if !self.saved.take() {
            return None;
        }
        let (labels, before) = (self.labels(), self.certified);
        if labels == before.labels && self.state.certified != [0; 32] {
            return None;
        }
        let known = |same: bool, i: usize| before.digests.filter(|_| same).map(|digests| digests[i]);
        let own = known(labels.own == before.labels.own, 0).unwrap_or_else(|| labels.own_digest());
        let last = known(labels.last == before.labels.last, 1).unwrap_or_else(|| labels.last_digest());
        self.certified = Certified { labels, digests: Some([own, last]) };
        self.state.certified = join([own, last], labels.host_part(), HTTP, fork_digest);
        self.save();
        self.saved.set(false);
        Some(self.state.certified)
    }

    /// The tree that proves what is under `http_expr`; `http` is that part of the tree.
    pub fn http_witness(&self, http: HashTree) -> HashTree {
        let Certified { labels, digests } = &self.certified;
        let digests = digests.unwrap_or_else(|| [labels.own_digest(), labels.last_digest()]);
        join(digests.map(|digest| digest.map(pruned)), labels.host_part().map(pruned), http, fork)
    }

    /// Sets the tree under `host`, which the certified data include from then on; `None` removes it.
    pub fn set_host(&mut self, tree: Option<&HashTree>) {
        let digest = tree.map_or([0; 32], |tree| labeled(HOST, pruned(tree.digest())).digest());
        if digest != self.state.host {
            self.state.host = digest;
            self.save();
        }
    }

    /// The tree that proves what is under `host`; `tree` is that part of the tree, with the same digest as in [`set_host`](Self::set_host).
    pub fn host_witness(&self, tree: HashTree) -> HashTree {
        let Certified { labels, digests } = &self.certified;
        let digests = digests.unwrap_or_else(|| [labels.own_digest(), labels.last_digest()]);
        join(digests.map(|digest| digest.map(pruned)), Some(labeled(HOST, tree)), pruned(HTTP), fork)
    }

    /// The tree that proves the labels of the chain; `http` is the part under `http_expr`, which is left out if no label is absent.
    pub fn head_witness(&self, http: impl FnOnce() -> HashTree) -> HashTree {
        let Labels { own, last, .. } = self.certified.labels;
        let last =
            last.map(|(number, seal)| fork(labeled(LAST_HASH, leaf(seal)), labeled(LAST_INDEX, leaf(leb128(number)))));
        let parts = [own.map(|own| labeled(OWN, leaf(own))), last];
        let http = if parts.iter().all(Option::is_some) { pruned(HTTP) } else { http() };
        join(parts, self.certified.labels.host_part().map(pruned), http, fork)
    }
}

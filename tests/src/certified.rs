//! Certified labels of the chain, read from the certificate of the head.

use crate::client::Answered;
use crate::coppice::Coppice;
use ic_certification::{Certificate, HashTree, LookupResult};
use ic_coppice_interface::TipCertificate;
use ic_coppice_interface::seals::Seal;
use ic_coppice_storage::cbor;

/// Values of the certified labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certified {
    /// Number and seal of the head.
    pub head: Option<(u64, Seal)>,
    /// The leaf `coppice`.
    pub beginning: Option<Beginning>,
}

/// The leaf `coppice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The oldest kept block.
    pub first: u64,
    /// The seal before it.
    pub before: Seal,
    /// Resets of the chain.
    pub resets: u64,
    /// Blocks rolled back.
    pub rollbacks: u64,
}

/// Returns the value of a label; `None` if the tree proves that it is absent.
fn value(tree: &HashTree, label: &str) -> Option<Vec<u8>> {
    match tree.lookup_path([label]) {
        LookupResult::Found(value) => Some(value.to_vec()),
        LookupResult::Absent => None,
        unproved => panic!("{label}: {unproved:?}"),
    }
}

impl Coppice {
    /// Reads the certificate of the head, and compares the root of its tree with what the subnet certifies.
    pub fn certified(&self) -> Certified {
        let TipCertificate { certificate, hash_tree } = self.anyone().get_tip_certificate().answer().expect("a query");
        let tree: HashTree = cbor::read(&hash_tree).expect("a hash tree");
        // After the tag of self-described CBOR.
        let bare = certificate.strip_prefix(&[0xD9, 0xD9, 0xF7]).unwrap_or(&certificate);
        let certificate: Certificate = cbor::read(bare).expect("a certificate");
        let path = [b"canister", self.id.as_slice(), b"certified_data"];
        let LookupResult::Found(certified) = certificate.tree.lookup_path(path) else { panic!("no certified data") };
        assert_eq!(certified, tree.digest(), "the certified data");
        let seal = |bytes: &[u8]| Seal::try_from(bytes).expect("a seal");
        let hash = value(&tree, "last_block_hash").map(|hash| seal(&hash));
        let index = value(&tree, "last_block_index");
        let index = index.map(|index| index.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7F)));
        assert_eq!(hash.is_some(), index.is_some());
        let beginning = value(&tree, "coppice").map(|own| {
            let word = |at: usize| u64::from_be_bytes(own[at..at + 8].try_into().expect("8 bytes"));
            assert_eq!(own.len(), 56);
            Beginning { first: word(0), before: seal(&own[8..40]), resets: word(40), rollbacks: word(48) }
        });
        Certified { head: index.zip(hash), beginning }
    }
}

//! Certificates: hash trees of the state, signed by the subnet's key; and the node's signatures.

use super::answer::{Outcome, cbor};
use anyhow::{Context, Result, anyhow};
use candid::Principal;
use ic_certification::hash_tree::{empty, fork, label, leaf};
use ic_certification::{Certificate, HashTree};
use ic_transport_types::{NodeSignature, RequestId};
use ic_verify_bls_signature::PrivateKey;

/// DER prefix of a BLS public key.
const BLS_DER: [u8; 37] = [
    0x30, 0x81, 0x82, 0x30, 0x1D, 0x06, 0x0D, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x82, 0xDC, 0x7C, 0x05, 0x03, 0x01, 0x02,
    0x01, 0x06, 0x0C, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x82, 0xDC, 0x7C, 0x05, 0x03, 0x02, 0x01, 0x03, 0x61, 0x00,
];

/// The subnet's root key and its node's key. Both are fixed, because they protect nothing.
pub struct Keys {
    root: PrivateKey,
    node: ic_ed25519::PrivateKey,
}

impl Keys {
    /// Makes the keys.
    ///
    /// # Errors
    /// When the root key is not valid.
    pub fn new() -> Result<Self> {
        let secret = [[0; 31].as_slice(), &[7]].concat();
        let root = PrivateKey::deserialize(&secret).map_err(|_| anyhow!("the root key is not valid"))?;
        Ok(Self { root, node: ic_ed25519::PrivateKey::generate_from_seed(b"node") })
    }

    /// Returns the root key in DER.
    pub fn root_key(&self) -> Vec<u8> {
        [&BLS_DER[..], &self.root.public_key().serialize()].concat()
    }

    fn node_key(&self) -> Vec<u8> {
        self.node.public_key().serialize_rfc8410_der()
    }

    /// Returns the node's signature of bytes.
    pub fn by_node(&self, signable: &[u8], timestamp: u64) -> NodeSignature {
        let signature = self.node.sign_message(signable).to_vec();
        NodeSignature { timestamp, signature, identity: Principal::self_authenticating(self.node_key()) }
    }

    /// Returns a certificate of a canister's certified data.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn of_data(&self, canister: Principal, data: &[u8], now: u64) -> Result<Vec<u8>> {
        let of = vec![(canister.as_slice().to_vec(), label(b"certified_data".to_vec(), leaf(data.to_vec())))];
        self.signed(tree(vec![(b"canister".to_vec(), tree(of)), (b"time".to_vec(), leaf(number(now)?))]))
    }

    /// Returns a certificate of the whole state, with only one call, because answers of calls are long.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn of_state(&self, call: Option<(&RequestId, &Outcome)>, now: u64) -> Result<Vec<u8>> {
        let subnet = Principal::self_authenticating(self.root_key());
        let node = Principal::self_authenticating(self.node_key());
        let everything = vec![(Principal::from_slice(&[]), Principal::from_slice(&[0xFF; 29]))];
        let ranges = serde_cbor::to_vec(&everything).context("CBOR")?;
        let name = |name: &str| name.as_bytes().to_vec();
        let mut top = Vec::new();
        if let Some((id, outcome)) = call {
            let parts = match outcome {
                Ok(reply) => vec![(name("reply"), leaf(reply.clone())), (name("status"), leaf(name("replied")))],
                Err(reject) => vec![
                    (name("error_code"), leaf(name(reject.error_code.as_deref().unwrap_or_default()))),
                    (name("reject_code"), leaf(number(reject.reject_code as u64)?)),
                    (name("reject_message"), leaf(name(&reject.reject_message))),
                    (name("status"), leaf(name("rejected"))),
                ],
            };
            top.push((name("request_status"), tree(vec![(id.to_vec(), tree(parts))])));
        }
        let nodes = tree(vec![(node.as_slice().to_vec(), tree(vec![(name("public_key"), leaf(self.node_key()))]))]);
        let of_subnet = tree(vec![
            (name("canister_ranges"), leaf(ranges)),
            (name("node"), nodes),
            (name("public_key"), leaf(self.root_key())),
            (name("type"), leaf(name("system"))),
        ]);
        top.push((name("subnet"), tree(vec![(subnet.as_slice().to_vec(), of_subnet)])));
        top.push((name("time"), leaf(number(now)?)));
        self.signed(tree(top))
    }

    fn signed(&self, tree: HashTree) -> Result<Vec<u8>> {
        let message = [&b"\x0Dic-state-root"[..], &tree.digest()].concat();
        let signature = self.root.sign(&message).serialize().to_vec();
        cbor(&Certificate { tree, signature, delegation: None })
    }
}

/// Returns a number in LEB128.
fn number(number: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    leb128::write::unsigned(&mut bytes, number).context("LEB128")?;
    Ok(bytes)
}

/// Builds a tree of sorted labels, balanced, because a decoder accepts a limited number of levels.
fn tree(mut branches: Vec<(Vec<u8>, HashTree)>) -> HashTree {
    if branches.len() > 1 {
        let right = branches.split_off(branches.len() / 2);
        return fork(tree(branches), tree(right));
    }
    branches.pop().map_or_else(empty, |(name, tree)| label(name, tree))
}

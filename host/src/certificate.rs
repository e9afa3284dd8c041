//! Certificates: hash trees of the state, signed by the subnet's key, to which the network's root key delegates.
//!
//! ```text
//! root key ── signs ──▶ delegation: the subnet's key, and the canisters that it may certify
//! subnet's key ── signs ──▶ certificate: a part of the subnet's state, and the delegation
//! ```
//! An agent that knows the root key verifies both, and that the canister is one of the delegation's. The keys are fixed, because they protect
//! nothing.

use std::collections::TryReserveError;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::SystemTime;

use candid::Principal;
use cbor4ii::serde::{EncodeError, to_vec};
use ic_certification::hash_tree::{empty, fork, label, leaf};
use ic_certification::{Certificate, Delegation, HashTree};
use ic_verify_bls_signature::PrivateKey;
use serde::Serialize;

/// The clock of a new host, and the time of its keys' delegation: 2026-01-01 in nanoseconds since 1970.
pub(crate) const FIRST_MOMENT: u64 = 1_767_225_600_000_000_000;
/// DER prefix of a BLS public key.
const BLS_DER: [u8; 37] = [
    0x30, 0x81, 0x82, 0x30, 0x1D, 0x06, 0x0D, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x82, 0xDC, 0x7C, 0x05, 0x03, 0x01, 0x02,
    0x01, 0x06, 0x0C, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x82, 0xDC, 0x7C, 0x05, 0x03, 0x02, 0x01, 0x03, 0x61, 0x00,
];
/// The tag 55799, which means only that CBOR follows.
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];
/// Number of the last id of the subnet.
const PLATFORM: u64 = 0x02FF_FFFF;

/// The keys of new hosts: the public keys and the delegation are computed once for all of them.
static SHARED: LazyLock<Arc<Keys>> = LazyLock::new(|| Arc::new(Keys::new(canisters(), FIRST_MOMENT)));

/// A certificate that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A part of it cannot be encoded in CBOR.
    #[error("a certificate cannot be encoded: {0}")]
    Cbor(#[from] EncodeError<TryReserveError>),
    /// A number cannot be encoded in LEB128.
    #[error("a number of a certificate cannot be encoded: {0}")]
    Number(#[from] std::io::Error),
}

/// The root key of the network, and the key of its subnet with the delegation.
pub struct Keys {
    root: PrivateKey,
    subnet: PrivateKey,
    canisters: RangeInclusive<Principal>,
    /// The time of the delegation, in nanoseconds since 1970.
    delegated: u64,
    public: OnceLock<Public>,
    delegation: OnceLock<Delegation>,
}

/// The public keys in DER.
struct Public {
    root: Vec<u8>,
    subnet: Vec<u8>,
    id: Principal,
}

impl Keys {
    /// Returns the keys with a delegation for these canisters, made at this time in nanoseconds since 1970.
    pub fn new(canisters: RangeInclusive<Principal>, time: u64) -> Self {
        let (public, delegation) = (OnceLock::new(), OnceLock::new());
        Self { root: private_key(7), subnet: private_key(8), canisters, delegated: time, public, delegation }
    }

    /// Returns the keys of new hosts.
    pub(crate) fn shared() -> Arc<Self> {
        SHARED.clone()
    }

    /// Returns the same keys with a delegation made at another time.
    pub(crate) fn delegated_at(&self, time: u64) -> Self {
        Self::new(self.canisters.clone(), time)
    }

    /// Returns the root key of the network, in DER.
    pub fn root_key(&self) -> &[u8] {
        &self.public().root
    }

    /// Returns the key of the subnet, in DER.
    pub fn subnet_key(&self) -> &[u8] {
        &self.public().subnet
    }

    /// Returns the id of the subnet.
    pub fn subnet_id(&self) -> &Principal {
        &self.public().id
    }

    fn public(&self) -> &Public {
        self.public.get_or_init(|| {
            let [root, subnet] =
                [&self.root, &self.subnet].map(|key| [&BLS_DER[..], &key.public_key().serialize()].concat());
            let id = Principal::self_authenticating(&subnet);
            Public { root, subnet, id }
        })
    }

    /// Returns a certificate of a canister's certified data, at a time in nanoseconds since 1970.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn of_data(&self, canister: Principal, data: &[u8], time: u64) -> Result<Vec<u8>, CertificateError> {
        let data = label(name("certified_data"), leaf(data));
        let of_canister = label(canister.as_slice().to_vec(), data);
        self.of_tree(tree(vec![(name("canister"), of_canister), (name("time"), leaf(number(time)?))]))
    }

    /// Returns a certificate of a part of the state.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn of_tree(&self, tree: HashTree) -> Result<Vec<u8>, CertificateError> {
        let delegation = match self.delegation.get() {
            Some(delegation) => delegation,
            None => {
                let delegation = self.delegate()?;
                self.delegation.get_or_init(|| delegation)
            }
        };
        signed(&self.subnet, tree, Some(delegation.clone()))
    }

    /// Signs the delegation. Agents look the canisters up in the tree's first branch, and older agents in the second.
    fn delegate(&self) -> Result<Delegation, CertificateError> {
        let of_subnet = vec![
            (name("canister_ranges"), leaf(self.canister_ranges()?)),
            (name("public_key"), leaf(self.subnet_key())),
        ];
        let tree = tree(vec![
            self.sharded_ranges()?,
            (name("subnet"), label(self.subnet_id().as_slice().to_vec(), tree(of_subnet))),
            (name("time"), leaf(number(self.delegated)?)),
        ]);
        let certificate = signed(&self.root, tree, None)?;
        Ok(Delegation { subnet_id: self.subnet_id().as_slice().to_vec(), certificate })
    }

    /// Returns the ids of the subnet's canisters as they are in the tree: a list of ranges in CBOR.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn canister_ranges(&self) -> Result<Vec<u8>, CertificateError> {
        cbor(&[(self.canisters.start(), self.canisters.end())])
    }

    /// Returns the branch `canister_ranges` of the tree, in which each list of ranges has its first id as its label.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn sharded_ranges(&self) -> Result<(Vec<u8>, HashTree), CertificateError> {
        let shard = label(self.canisters.start().as_slice().to_vec(), leaf(self.canister_ranges()?));
        Ok((name("canister_ranges"), label(self.subnet_id().as_slice().to_vec(), shard)))
    }
}

/// Returns the ids of a host's subnet: those that its canisters have, and above them those of the platform's own canisters, such as the
/// ledger of cycles, which a replica over the host may answer for.
pub fn canisters() -> RangeInclusive<Principal> {
    canister_id(0)..=canister_id(PLATFORM)
}

/// Returns the id of a canister, as the platform makes them: a number, and a class.
pub(crate) fn canister_id(number: u64) -> Principal {
    let mut bytes = [1; 10];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Principal::from_slice(&bytes)
}

/// Returns the real time, in nanoseconds since 1970.
pub fn real_time() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Returns a number in LEB128.
///
/// # Errors
/// When it cannot be encoded.
pub fn number(number: u64) -> Result<Vec<u8>, CertificateError> {
    let mut bytes = Vec::new();
    leb128::write::unsigned(&mut bytes, number)?;
    Ok(bytes)
}

/// Returns a tree of sorted labels, balanced, because a decoder accepts a limited number of levels.
pub fn tree(mut branches: Vec<(Vec<u8>, HashTree)>) -> HashTree {
    if branches.len() > 1 {
        let right = branches.split_off(branches.len() / 2);
        return fork(tree(branches), tree(right));
    }
    branches.pop().map_or_else(empty, |(name, tree)| label(name, tree))
}

fn name(name: &str) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn private_key(number: u8) -> PrivateKey {
    let mut secret = [0; 32];
    secret[31] = number;
    PrivateKey::deserialize(&secret).expect("a small number is a key")
}

fn signed(key: &PrivateKey, tree: HashTree, delegation: Option<Delegation>) -> Result<Vec<u8>, CertificateError> {
    let message = [&b"\x0Dic-state-root"[..], &tree.digest()].concat();
    let signature = key.sign(&message).serialize().to_vec();
    cbor(&Certificate { tree, signature, delegation })
}

/// Encodes a value in CBOR, with the tag by which CBOR describes itself.
///
/// # Errors
/// When it cannot be encoded.
pub fn cbor(value: &impl Serialize) -> Result<Vec<u8>, CertificateError> {
    Ok(to_vec(SELF_DESCRIBED.to_vec(), value)?)
}

//! Certificates of the whole state, signed by the keys of the host; and the node's signatures.

use super::answer::Outcome;
use anyhow::Result;
use candid::Principal;
use ic_certification::hash_tree::leaf;
use ic_coppice_host::Host;
use ic_coppice_host::certificate::{Keys as NetworkKeys, cbor, number, tree};
use ic_transport_types::{NodeSignature, RequestId};
use std::sync::Arc;

/// A canister's module and controllers.
pub struct Described {
    id: Principal,
    /// The Candid interface in the module's metadata.
    candid: Option<Vec<u8>>,
    hash: Option<Vec<u8>>,
    controllers: Vec<Principal>,
}

impl Described {
    /// Describes a canister; `None` if there is none of this principal.
    pub fn of(host: &Host, id: Principal) -> Option<Self> {
        let (hash, controllers) = host.canister_info(id)?;
        Some(Self { id, candid: host.public_metadata(id, "candid:service"), hash, controllers })
    }
}

/// The keys of the network, and that of the subnet's node, which is fixed because it protects nothing.
pub struct Keys {
    network: Arc<NetworkKeys>,
    node: ic_ed25519::PrivateKey,
}

impl Keys {
    /// Returns the keys of a host's network, and a node's.
    pub fn of(host: &Host) -> Self {
        Self { network: host.keys(), node: ic_ed25519::PrivateKey::generate_from_seed(b"node") }
    }

    /// Returns the root key in DER.
    pub fn root_key(&self) -> Vec<u8> {
        self.network.root_key().to_vec()
    }

    fn node_key(&self) -> Vec<u8> {
        self.node.public_key().serialize_rfc8410_der()
    }

    /// Returns the node's signature of bytes.
    pub fn by_node(&self, signable: &[u8], timestamp: u64) -> NodeSignature {
        let signature = self.node.sign_message(signable).to_vec();
        NodeSignature { timestamp, signature, identity: Principal::self_authenticating(self.node_key()) }
    }

    /// Returns a certificate of the whole state, with only one call, because answers of calls are long.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn of_state(
        &self,
        call: Option<(&RequestId, &Outcome)>,
        canister: Option<&Described>,
        now: u64,
    ) -> Result<Vec<u8>> {
        let node = Principal::self_authenticating(self.node_key());
        let name = |name: &str| name.as_bytes().to_vec();
        let mut top = Vec::new();
        if let Some(Described { id, candid, hash, controllers }) = canister {
            let mut parts = vec![(name("controllers"), leaf(controllers_in_cbor(controllers)?))];
            parts.extend(candid.iter().map(|candid| {
                let service = (name("candid:service"), leaf(candid.clone()));
                (name("metadata"), tree(vec![service]))
            }));
            parts.extend(hash.iter().map(|hash| (name("module_hash"), leaf(hash.clone()))));
            top.push((name("canister"), tree(vec![(id.as_slice().to_vec(), tree(parts))])));
        }
        top.push(self.network.sharded_ranges()?);
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
            (name("canister_ranges"), leaf(self.network.canister_ranges()?)),
            (name("node"), nodes),
            (name("public_key"), leaf(self.network.subnet_key())),
            (name("type"), leaf(name("system"))),
        ]);
        top.push((name("subnet"), tree(vec![(self.network.subnet_id().as_slice().to_vec(), of_subnet)])));
        top.push((name("time"), leaf(number(now)?)));
        Ok(self.network.of_tree(tree(top))?)
    }
}

/// Returns principals as a list of byte strings in CBOR.
fn controllers_in_cbor(controllers: &[Principal]) -> Result<Vec<u8>> {
    let bytes: Vec<serde_bytes::ByteBuf> = controllers.iter().map(|of| of.as_slice().to_vec().into()).collect();
    Ok(cbor(&bytes)?)
}

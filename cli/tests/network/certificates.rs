//! Certificates of a canister on the embedded host, verified by ic-agent.

use crate::net::Net;
use candid::{Decode, Encode, Principal};
use ic_agent::hash_tree::{HashTree, LookupResult};
use ic_agent::{Agent, AgentError, Certificate};
use ic_coppice_client::cbor;
use ic_coppice_host::certificate::{Keys, canisters, real_time};
use ic_coppice_interface::TipCertificate;
use std::ops::RangeInclusive;
use std::time::Duration;

/// An age that no certificate reaches.
const UNBOUNDED: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Returns an agent that trusts a root key.
fn trusting(root_key: &[u8], oldest: Duration) -> Agent {
    let agent = Agent::builder().with_url("http://127.0.0.1:1").with_ingress_expiry(oldest).build().unwrap();
    agent.set_root_key(root_key.to_vec());
    agent
}

/// Returns the certificate of the head that the canister hands out, and the root of its tree.
fn of_head(net: &Net) -> (Certificate, [u8; 32]) {
    let reply = net.host.query_call(net.canister, Principal::anonymous(), "get_tip_certificate", Encode!().unwrap());
    let tip = Decode!(&reply.unwrap(), Option<TipCertificate>).unwrap().unwrap();
    let tree: HashTree<Vec<u8>> = cbor::read(&tip.hash_tree).unwrap();
    (cbor::read(&tip.certificate).unwrap(), tree.digest())
}

/// Returns the certified data of a canister in a certificate.
fn certified_data(certificate: &Certificate, canister: Principal) -> Option<Vec<u8>> {
    match certificate.tree.lookup_path([&b"canister"[..], canister.as_slice(), b"certified_data"]) {
        LookupResult::Found(data) => Some(data.to_vec()),
        _ => None,
    }
}

#[test]
fn certificate_of_the_head_is_verified_by_an_agent() {
    let net = Net::start();
    let (certificate, root) = of_head(&net);
    // It carries the real time, so that an agent with an ordinary limit accepts it, too.
    for oldest in [UNBOUNDED, Duration::from_secs(240)] {
        trusting(&net.host.root_key(), oldest).verify(&certificate, net.canister).unwrap();
    }
    assert_eq!(certified_data(&certificate, net.canister), Some(root.to_vec()));
}

#[test]
fn certificate_of_another_root_key_is_refused() {
    let net = Net::start();
    let keys = net.host.keys();
    let refused = trusting(keys.subnet_key(), UNBOUNDED).verify(&of_head(&net).0, net.canister);
    assert!(matches!(refused, Err(AgentError::CertificateVerificationFailed())), "{refused:?}");
}

#[test]
fn certificate_with_another_range_is_refused() {
    let net = Net::start();
    let id = |number: u8| Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, number, 1, 1]);
    let agent = trusting(&net.host.root_key(), UNBOUNDED);
    let verify = |range: RangeInclusive<Principal>| {
        net.host.set_keys(Keys::new(range, real_time()));
        agent.verify(&of_head(&net).0, net.canister)
    };
    assert_eq!(net.canister, id(0));
    for range in [id(1)..=id(9), Principal::management_canister()..=Principal::anonymous()] {
        let refused = verify(range);
        assert!(matches!(refused, Err(AgentError::CertificateNotAuthorized())), "{refused:?}");
    }
    verify(id(0)..=id(0)).unwrap();
    verify(canisters()).unwrap();
}

#[test]
fn certificate_of_another_canister_does_not_have_the_data() {
    let net = Net::start();
    let (_, root) = of_head(&net);
    let other = net.host.create_canister();
    let certificate = net.host.keys().of_data(other, &root, real_time()).unwrap();
    let certificate: Certificate = cbor::read(&certificate).unwrap();
    // The subnet may certify both canisters; the path tells them apart.
    trusting(&net.host.root_key(), UNBOUNDED).verify(&certificate, net.canister).unwrap();
    assert_eq!(certified_data(&certificate, net.canister), None);
    assert_eq!(certified_data(&certificate, other), Some(root.to_vec()));
}

#[test]
fn changed_certificate_is_refused() {
    let net = Net::start();
    let (certificate, root) = of_head(&net);
    let agent = trusting(&net.host.root_key(), UNBOUNDED);
    let forged = net.host.keys().of_data(net.canister, &[root, [0; 32]].concat(), real_time()).unwrap();
    let forged = Certificate { tree: cbor::read::<Certificate>(&forged).unwrap().tree, ..certificate.clone() };
    let undelegated = Certificate { delegation: None, ..certificate };
    for changed in [forged, undelegated] {
        let refused = agent.verify(&changed, net.canister);
        assert!(matches!(refused, Err(AgentError::CertificateVerificationFailed())), "{refused:?}");
    }
}

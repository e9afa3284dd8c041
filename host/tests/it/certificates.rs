//! Certificates of certified data: signed by the subnet's key, to which the root key delegates.

use crate::common::{ANYONE, code};
use cbor4ii::core::dec::Read;
use cbor4ii::core::utils::SliceReader;
use cbor4ii::serde::Deserializer;
use ic_certification::{Certificate, HashTree, LookupResult, SubtreeLookupResult};
use ic_coppice_host::certificate::{Keys, canisters, number, real_time};
use ic_coppice_host::{ErrorCode, Host, Principal};
use ic_verify_bls_signature::verify_bls_signature;
use serde::de::DeserializeOwned;
use std::time::Duration;

const WASM: &str = r#"(module
  (import "ic0" "certified_data_set" (func $certify (param i32 i32)))
  (import "ic0" "data_certificate_present" (func $present (result i32)))
  (import "ic0" "data_certificate_size" (func $size (result i32)))
  (import "ic0" "data_certificate_copy" (func $copy (param i32 i32 i32)))
  (import "ic0" "root_key_size" (func $root_key_size (result i32)))
  (import "ic0" "root_key_copy" (func $root_key_copy (param i32 i32 i32)))
  (import "ic0" "subnet_self_size" (func $subnet_size (result i32)))
  (import "ic0" "subnet_self_copy" (func $subnet_copy (param i32 i32 i32)))
  (import "ic0" "msg_arg_data_size" (func $arg_size (result i32)))
  (import "ic0" "msg_arg_data_copy" (func $arg_copy (param i32 i32 i32)))
  (import "ic0" "msg_reply_data_append" (func $append (param i32 i32)))
  (import "ic0" "msg_reply" (func $reply))
  (memory 1)
  (func (export "canister_update certify")
    (call $arg_copy (i32.const 0) (i32.const 0) (call $arg_size))
    (call $certify (i32.const 0) (call $arg_size))
    (call $reply))
  (func (export "canister_query certificate")
    (call $copy (i32.const 0) (i32.const 0) (call $size))
    (call $append (i32.const 0) (call $size))
    (call $reply))
  (func (export "canister_query present")
    (i32.store8 (i32.const 0) (call $present))
    (call $append (i32.const 0) (i32.const 1))
    (call $reply))
  (func (export "canister_query network")
    (call $root_key_copy (i32.const 0) (i32.const 0) (call $root_key_size))
    (call $append (i32.const 0) (call $root_key_size))
    (call $subnet_copy (i32.const 0) (i32.const 0) (call $subnet_size))
    (call $append (i32.const 0) (call $subnet_size))
    (call $reply)))"#;

fn installed() -> (Host, Principal) {
    let host = Host::new();
    let canister = host.create_canister();
    host.install_canister(canister, wat::parse_str(WASM).expect("the canister is valid"), vec![], None);
    (host, canister)
}

fn query(host: &Host, canister: Principal, method: &str) -> Vec<u8> {
    host.query_call(canister, ANYONE, method, vec![]).expect("a reply")
}

fn certify(host: &Host, canister: Principal, data: &[u8]) {
    host.update_call(canister, ANYONE, "certify", data.to_vec()).expect("a reply");
}

/// Reads CBOR that begins with the tag by which it describes itself.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> T {
    let mut reader = Deserializer::new(SliceReader::new(bytes.strip_prefix(&[0xd9, 0xd9, 0xf7]).expect("the tag")));
    let value = T::deserialize(&mut reader).expect("CBOR of this type");
    assert!(reader.into_inner().fill(1).unwrap().as_ref().is_empty(), "bytes follow the value");
    value
}

fn certificate(host: &Host, canister: Principal) -> Certificate {
    read(&query(host, canister, "certificate"))
}

fn value<'a>(tree: &'a HashTree, path: &[&[u8]]) -> &'a [u8] {
    match tree.lookup_path(path) {
        LookupResult::Found(value) => value,
        other => panic!("{path:?}: {other:?}"),
    }
}

/// Returns whether a key in DER has signed a certificate.
fn is_signed(certificate: &Certificate, key: &[u8]) -> bool {
    let message = [&b"\x0Dic-state-root"[..], &certificate.tree.digest()].concat();
    verify_bls_signature(&certificate.signature, &message, &key[key.len() - 96..]).is_ok()
}

#[test]
fn certificate_is_signed_by_a_subnet_to_which_the_root_key_delegates() {
    let (host, canister) = installed();
    certify(&host, canister, b"certified");
    let certificate = certificate(&host, canister);
    assert_eq!(value(&certificate.tree, &[b"canister", canister.as_slice(), b"certified_data"]), b"certified");
    assert_eq!(value(&certificate.tree, &[b"time"]), number(host.get_time_nanos()).unwrap());

    let delegation = certificate.delegation.as_ref().expect("a delegation");
    let delegated: Certificate = read(&delegation.certificate);
    let subnet = delegation.subnet_id.as_slice();
    let key = value(&delegated.tree, &[b"subnet", subnet, b"public_key"]);
    assert_eq!(subnet, Principal::self_authenticating(key).as_slice());
    assert!(delegated.delegation.is_none() && is_signed(&delegated, &host.root_key()) && is_signed(&certificate, key));
    assert!(!is_signed(&certificate, &host.root_key()));

    // The canisters are in both places where agents look for them.
    let expected = vec![canisters().into_inner()];
    assert!(canisters().contains(&canister));
    let SubtreeLookupResult::Found(shards) = delegated.tree.lookup_subtree([&b"canister_ranges"[..], subnet]) else {
        panic!("no shards");
    };
    let paths = shards.list_paths();
    assert_eq!((paths.len(), paths[0][0].as_bytes()), (1, canisters().start().as_slice()));
    for ranges in [
        value(&shards, &[canisters().start().as_slice()]),
        value(&delegated.tree, &[b"subnet", subnet, b"canister_ranges"]),
    ] {
        assert_eq!(read::<Vec<(Principal, Principal)>>(ranges), expected);
    }
}

#[test]
fn certificate_follows_the_data_and_the_clock() {
    let (host, canister) = installed();
    assert_eq!(query(&host, canister, "certificate"), query(&host, canister, "certificate"));
    for data in [&b"one"[..], b"two", b""] {
        host.advance_time(Duration::from_secs(1));
        certify(&host, canister, data);
        let tree = certificate(&host, canister).tree;
        assert_eq!(value(&tree, &[b"canister", canister.as_slice(), b"certified_data"]), data);
        assert_eq!(value(&tree, &[b"time"]), number(host.get_time_nanos()).unwrap());
    }
}

#[test]
fn certificate_with_the_real_time_has_a_delegation_of_that_time() {
    let (host, canister) = installed();
    let before = real_time();
    host.certify_with_real_time();
    let certificate = certificate(&host, canister);
    let delegated: Certificate = read(&certificate.delegation.unwrap().certificate);
    for mut time in [value(&certificate.tree, &[b"time"]), value(&delegated.tree, &[b"time"])] {
        let time = leb128::read::unsigned(&mut time).unwrap();
        assert!((before..=real_time()).contains(&time), "{time}");
    }
    assert!(is_signed(&delegated, &host.root_key()));
}

#[test]
fn only_a_query_has_a_certificate() {
    let (host, canister) = installed();
    assert_eq!(query(&host, canister, "present"), [1]);
    assert_eq!(host.update_call(canister, ANYONE, "present", vec![]).unwrap(), [0]);
    let read = host.update_call(canister, ANYONE, "certificate", vec![]);
    assert_eq!(code(read), ErrorCode::CanisterContractViolation);
}

#[test]
fn canister_sees_the_keys_of_its_certificates() {
    let (host, canister) = installed();
    let keys = host.keys();
    assert_eq!(query(&host, canister, "network"), [keys.root_key(), keys.subnet_id().as_slice()].concat());
    assert_eq!(host.root_key(), keys.root_key());
    assert_ne!(keys.root_key(), keys.subnet_key());
}

#[test]
fn other_keys_delegate_for_other_canisters() {
    let (host, canister) = installed();
    host.set_keys(Keys::new(ANYONE..=ANYONE, 7));
    let delegation = certificate(&host, canister).delegation.unwrap();
    let delegated: Certificate = read(&delegation.certificate);
    let ranges = value(&delegated.tree, &[b"canister_ranges", &delegation.subnet_id, ANYONE.as_slice()]);
    assert_eq!(read::<Vec<(Principal, Principal)>>(ranges), [(ANYONE, ANYONE)]);
    assert_eq!(value(&delegated.tree, &[b"time"]), [7]);
}

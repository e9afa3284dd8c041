//! `coppice-lab serve --api` and hostile requests. Agents of three languages call the interface in other tests.

use super::served::{Served, block};
use candid::Principal;
use ic_certification::Label;
use ic_coppice_interface::{Grant, Role};
use ic_ed25519::PrivateKey;
use ic_transport_types::{Envelope, EnvelopeContent};
use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Returns status, headers and body of an answer.
fn ask(served: &Served, method: &str, path: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
    let address = served.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    )
    .unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head, answer[end + 4..].to_vec())
}

/// Returns the key of a caller with roles.
fn key() -> PrivateKey {
    PrivateKey::deserialize_raw_32(&[7; 32])
}

fn caller() -> Principal {
    Principal::self_authenticating(key().public_key().serialize_rfc8410_der())
}

fn envelope_of(content: EnvelopeContent) -> Vec<u8> {
    let signs = *content.sender() != Principal::anonymous();
    let sender_pubkey = signs.then(|| key().public_key().serialize_rfc8410_der());
    let sender_sig = signs.then(|| key().sign_message(&content.to_request_id().signable()).to_vec());
    Envelope { content: Cow::Owned(content), sender_pubkey, sender_sig, sender_delegation: None }.encode_bytes()
}

fn envelope(served: &Served, is_call: bool, method: &str, arg: &[u8]) -> Vec<u8> {
    let (sender, canister_id) = (Principal::anonymous(), Principal::from_text(&served.canister).unwrap());
    let (method_name, arg) = (method.to_string(), arg.to_vec());
    let (nonce, ingress_expiry, sender_info) = (None, u64::MAX, None);
    envelope_of(if is_call {
        EnvelopeContent::Call { nonce, ingress_expiry, sender, canister_id, method_name, arg, sender_info }
    } else {
        EnvelopeContent::Query { nonce, ingress_expiry, sender, canister_id, method_name, arg, sender_info }
    })
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn hostile_requests_are_refused_and_harm_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = Served::start(&["--api", "--minute-secs=0.01", "--blk", &block(dir.path())]);
    let canister = format!("/api/v3/canister/{}", served.canister);
    let (query, call) = (format!("{canister}/query"), format!("{canister}/call"));

    let (status, head, body) = ask(&served, "GET", "/api/v2/status", b"");
    assert!(status == 200 && head.contains("access-control-allow-origin: *") && contains(&body, "root_key"), "{head}");
    assert_eq!(ask(&served, "OPTIONS", &query, b"").0, 204, "a browser's preflight");
    assert_eq!(ask(&served, "GET", "/api/v2/nothing", b"").0, 404);
    assert_eq!(ask(&served, "DELETE", "/api/v2/status", b"").0, 405);
    assert_eq!(ask(&served, "POST", &query, b"no envelope").0, 400);
    assert_eq!(ask(&served, "POST", &call, &envelope(&served, false, "health", b"DIDL\0\0")).0, 400);

    // Calls that are rejected or trap; the clock of the demonstration continues.
    for method in ["health", "get_block", "append_block", "no_such_method", "http_request"] {
        for arg in [&b"DIDL\0\0"[..], b"no Candid", b""] {
            assert_eq!(ask(&served, "POST", &query, &envelope(&served, false, method, arg)).0, 200, "{method}");
            assert_eq!(ask(&served, "POST", &call, &envelope(&served, true, method, arg)).0, 200, "{method}");
        }
    }
    let answer = ask(&served, "POST", &query, &envelope(&served, false, "get_block", b"no Candid"));
    assert!(
        contains(&answer.2, "rejected") && contains(&answer.2, "IC0406"),
        "{:?}",
        String::from_utf8_lossy(&answer.2)
    );
    let (status, _, body) = ask(&served, "POST", &query, &envelope(&served, false, "health", b"DIDL\0\0"));
    assert!(status == 200 && contains(&body, "replied"));

    // The second version promises the outcome of a call.
    let second = call.replace("v3", "v2");
    assert_eq!(ask(&served, "POST", &second, &envelope(&served, true, "health", b"DIDL\0\0")).0, 200, "filtered");
    let time = |served: &Served| ask(served, "GET", "/health", b"").2;
    let before = time(&served);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_ne!(time(&served), before, "the clock runs");
    assert!(served.runs());
}

/// Agents repeat a call whose answer they did not get, as the same message.
#[test]
fn call_of_the_second_version_is_executed_once_and_its_outcome_read_later() {
    let (dir, sender) = (tempfile::tempdir().unwrap(), caller());
    let served = Served::start(&["--api", "--allow", &sender.to_text(), "--blk", &block(dir.path())]);
    let content = EnvelopeContent::Call {
        nonce: Some(vec![1]),
        ingress_expiry: u64::MAX,
        sender,
        canister_id: Principal::from_text(&served.canister).unwrap(),
        method_name: "revoke_role".into(),
        arg: candid::encode_one(Grant { principal: sender, role: Role::BlobWorker }).unwrap(),
        sender_info: None,
    };
    let id = content.to_request_id();
    let path = |what: &str| format!("/api/v2/canister/{}/{what}", served.canister);
    let state = || {
        let paths = vec![vec!["request_status".into(), Label::from_bytes(&id[..])]];
        let read = EnvelopeContent::ReadState { ingress_expiry: u64::MAX, sender: Principal::anonymous(), paths };
        ask(&served, "POST", &path("read_state"), &envelope_of(read))
    };
    assert!(!contains(&state().2, "request_status"), "the call is unknown");
    for _ in 0..2 {
        let (status, _, body) = ask(&served, "POST", &path("call"), &envelope_of(content.clone()));
        assert_eq!((status, body.len()), (202, 0));
        // A second execution would answer `false`: the role is gone.
        let (status, _, body) = state();
        let done = candid::encode_one(true).unwrap();
        assert!(status == 200 && contains(&body, "replied"), "{status}");
        assert!(body.windows(done.len()).any(|window| window == done), "the role was revoked");
    }
}

#[test]
fn without_the_option_no_agent_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&["--blk", &block(dir.path())]);
    assert_eq!(ask(&served, "GET", "/api/v2/status", b"").0, 404);
    let (status, _, body) = ask(&served, "GET", "/metrics", b"");
    assert!(status == 200 && contains(&body, "\ncoppice_appended_blocks_total 1 "));
}

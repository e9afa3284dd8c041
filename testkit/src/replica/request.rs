//! Requests of agents: the URL, and the envelope in CBOR.

use super::answer::Answer;
use super::signature;
use axum::http::StatusCode;
use candid::Principal;
use ic_coppice_client::cbor;
use ic_transport_types::{Envelope, EnvelopeContent, RequestId};

/// A call or query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The version in the URL.
    pub version: u8,
    /// The request's id: the hash of its content.
    pub id: RequestId,
    pub canister: Principal,
    pub sender: Principal,
    pub method: String,
    /// The argument in Candid.
    pub arg: Vec<u8>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The status, with the root key.
    Status,
    /// A replicated call.
    Call(Call),
    Query(Call),
    /// The state, with the outcome of a call and the module of a canister if they are named.
    ReadState {
        call: Option<RequestId>,
        canister: Option<Principal>,
    },
}

impl Request {
    /// Reads a request from its URL's path and its body.
    ///
    /// # Errors
    /// The answer to a request that is not one of these, whose body is not an envelope, or that its sender has not signed.
    pub fn read(url: &str, body: &[u8]) -> Result<Self, Answer> {
        let refused = |why: &str| Answer::refused(StatusCode::BAD_REQUEST, why);
        let path = url.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (version, what, of) = match parts[..] {
            ["api", version, "status"] => (version, "status", ""),
            ["api", version, "canister" | "subnet", of, what] => (version, what, of),
            _ => ("", "", ""),
        };
        let version = version.strip_prefix('v').and_then(|version| version.parse::<u8>().ok());
        let Some(version) = version.filter(|version| (2..=4).contains(version)) else {
            return Err(Answer::refused(StatusCode::NOT_FOUND, "there is no such path"));
        };
        if what == "status" {
            return Ok(Self::Status);
        }
        let envelope: Envelope<'_> =
            cbor::read(body).map_err(|error| refused(&format!("no envelope in CBOR: {error}")))?;
        let id = envelope.content.to_request_id();
        signature::check(&envelope).map_err(refused)?;
        let sender = *envelope.content.sender();
        if let EnvelopeContent::Call { canister_id, .. } | EnvelopeContent::Query { canister_id, .. } =
            &*envelope.content
            && *canister_id != Principal::management_canister()
            && Principal::from_text(of).ok() != Some(*canister_id)
        {
            return Err(refused("the URL names another canister than the envelope"));
        }
        match (what, envelope.content.into_owned()) {
            ("call", EnvelopeContent::Call { canister_id, method_name, arg, .. }) => {
                Ok(Self::Call(Call { version, id, canister: canister_id, sender, method: method_name, arg }))
            }
            ("query", EnvelopeContent::Query { canister_id, method_name, arg, .. }) => {
                Ok(Self::Query(Call { version, id, canister: canister_id, sender, method: method_name, arg }))
            }
            ("read_state", EnvelopeContent::ReadState { paths, .. }) => {
                let mut calls = paths.iter().filter_map(|path| match &path[..] {
                    [label, id, ..] if label.as_bytes() == b"request_status" => {
                        id.as_bytes().try_into().ok().map(RequestId::new)
                    }
                    _ => None,
                });
                let mut canisters = paths.iter().filter_map(|path| match &path[..] {
                    [label, id, ..] if label.as_bytes() == b"canister" => Principal::try_from(id.as_bytes()).ok(),
                    _ => None,
                });
                Ok(Self::ReadState { call: calls.next(), canister: canisters.next() })
            }
            _ => Err(refused("the envelope is of another request than the path")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn anonymous() -> Vec<u8> {
        let content = EnvelopeContent::Query {
            ingress_expiry: 1,
            sender: Principal::anonymous(),
            canister_id: Principal::management_canister(),
            method_name: "health".into(),
            arg: b"DIDL\0\0".to_vec(),
            nonce: None,
            sender_info: None,
        };
        let content = Cow::Owned(content);
        Envelope { content, sender_pubkey: None, sender_sig: None, sender_delegation: None }.encode_bytes()
    }

    fn status_of(url: &str, body: &[u8]) -> u16 {
        Request::read(url, body).map_or_else(|refused| refused.status.as_u16(), |_| 200)
    }

    #[test]
    fn requests_of_every_version_are_read_and_others_refused() {
        let anonymous = anonymous();
        for (url, status) in [
            ("/api/v2/status", 200),
            ("/api/v2/canister/aaaaa-aa/query", 200),
            ("/api/v3/canister/aaaaa-aa/query?x=y", 200),
            ("/api/v4/canister/aaaaa-aa/call", 400),
            ("/api/v2/canister/aaaaa-aa/nothing", 400),
            ("/api/v1/canister/aaaaa-aa/query", 404),
            ("/api/v5/canister/aaaaa-aa/query", 404),
            ("/api/2/status", 404),
            ("/api/v2/canister/query", 404),
            ("/api/", 404),
            ("", 404),
        ] {
            assert_eq!(status_of(url, &anonymous), status, "{url}");
        }
    }

    #[test]
    fn url_of_another_canister_is_refused() {
        let canister = Principal::from_slice(&[1; 10]);
        let content = EnvelopeContent::Query {
            ingress_expiry: 1,
            sender: Principal::anonymous(),
            canister_id: canister,
            method_name: "health".into(),
            arg: b"DIDL\0\0".to_vec(),
            nonce: None,
            sender_info: None,
        };
        let envelope =
            Envelope { content: Cow::Owned(content), sender_pubkey: None, sender_sig: None, sender_delegation: None };
        for (of, status) in [(canister.to_text(), 200), ("aaaaa-aa".into(), 400), ("nonsense".into(), 400)] {
            let url = format!("/api/v3/canister/{of}/query");
            assert_eq!(status_of(&url, &envelope.encode_bytes()), status, "{of}");
        }
    }

    #[test]
    fn bodies_that_are_no_envelope_are_refused() {
        let whole = anonymous();
        for end in 0..whole.len() {
            assert_eq!(status_of("/api/v3/canister/aaaaa-aa/query", &whole[..end]), 400, "{end} bytes");
        }
        assert_eq!(status_of("/api/v3/canister/aaaaa-aa/query", &[&whole[..], &[0xf6]].concat()), 400);
        // Nesting deeper than the decoder accepts.
        for before in [&b""[..], b"\xa1\x67content", b"\xa1\x67content\xa1\x61x", b"\xa1\x67unknown"] {
            let deep = [before, &[0x81; 100_000]].concat();
            assert_eq!(status_of("/api/v3/canister/aaaaa-aa/query", &deep), 400);
        }
    }

    #[test]
    fn envelope_is_read_without_the_tag_of_cbor() {
        let envelope = anonymous();
        let untagged = envelope.strip_prefix(&[0xd9, 0xd9, 0xf7]).unwrap();
        assert_eq!(status_of("/api/v3/canister/aaaaa-aa/query", untagged), 200);
    }
}

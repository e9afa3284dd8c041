//! HTTP, as gateways of the Internet Computer ask for it.

use candid::CandidType;
use coppice_macros::native_docs;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// A request over HTTP, from a gateway or anybody else.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct HttpRequest {
    /// The method: `GET` or `HEAD`; all else is answered with status 405.
    pub method: String,
    /// Path and query, of 2,048 bytes at most.
    pub url: String,
    /// The headers. None of them matters.
    pub headers: Vec<(String, String)>,
    /// The body, which is not looked at.
    pub body: ByteBuf,
    /// The version of certification that the gateway wants. Answers are of version 2.
    pub certificate_version: Option<u16>,
}

/// The answer over HTTP: a query's is one replica's.
#[native_docs]
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status_code: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: ByteBuf,
    /// The gateway is to ask again with an update call: never.
    pub upgrade: Option<bool>,
}

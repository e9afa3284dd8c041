//! HTTP interface for gateways of the Internet Computer.

use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;

/// An HTTP request, from a gateway or another caller.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method: `GET` or `HEAD`; other methods get status 405.
    pub method: String,
    /// Path and query, at most 2,048 bytes.
    pub url: String,
    /// The headers; all are ignored.
    pub headers: Vec<(String, String)>,
    /// The body; ignored.
    pub body: ByteBuf,
    /// The version of certification that the gateway expects. Answers have version 2.
    pub certificate_version: Option<u16>,
}

/// An HTTP response. The answer of a query comes from one replica.
#[candid_type]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status_code: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: ByteBuf,
    /// True if the gateway must repeat the request as an update call. It is never true.
    pub upgrade: Option<bool>,
}

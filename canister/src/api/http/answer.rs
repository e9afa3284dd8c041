//! HTTP responses before certification, and parameters of URLs.

use ic_coppice_storage::{Ic, Platform as _};

/// Returns the origin of responses: one replica for a query, the subnet for an update call.
pub fn source() -> &'static str {
    match Ic::is_replicated() {
        true => "the subnet; its replicas agree on the content",
        false => "one replica; the content is not certified",
    }
}

/// A response before the common headers are added.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The header `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Creates a response.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, body: body.into() }
    }

    /// Creates a response of plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body.into())
    }

    /// Creates a response of JSON.
    pub fn json(status: u16, body: String) -> Self {
        Self::new(status, "application/json; charset=utf-8", body)
    }
}

/// Returns the value of a name among the parameters of a URL. The first of repeated parameters wins.
pub fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = parameters.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

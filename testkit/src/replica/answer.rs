//! Answers of the replica: an HTTP status with CBOR, and the outcome of a call.

use anyhow::{Context, Result};
use axum::http::StatusCode;
use ic_coppice_host::certificate::cbor;
use ic_transport_types::RejectResponse;
use serde::Serialize;

/// The reply to a call or query, or its reject.
pub type Outcome = Result<Vec<u8>, RejectResponse>;

/// An HTTP answer: status and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    /// CBOR, or a text if the request was refused.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the answer to a request that is refused.
    pub fn refused(status: StatusCode, why: &str) -> Self {
        Self { status, body: format!("{why}\n").into_bytes() }
    }

    /// Returns the answer to a request that succeeds.
    ///
    /// # Errors
    /// When the value cannot be encoded.
    pub fn ok(value: &impl Serialize) -> Result<Self> {
        Ok(Self { status: StatusCode::OK, body: cbor(value).context("CBOR")? })
    }
}

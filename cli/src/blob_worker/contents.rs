//! Contents and path of a store's marker.

use anyhow::{Result, anyhow, ensure};
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The marker's file name. No blob can have this name, because blob names are hexadecimal.
pub const NAME: &str = "coppice-blob-store.json";
/// The version of the marker's format.
pub(super) const FORMAT: u32 = 1;

/// Description of a marker, for errors.
const SHOULD: &str = "it should be a JSON object with format, canister, store, layout and blobs, as `coppice blob-worker init` writes it";

/// A marker that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub contents: Contents,
    /// Its version: a bucket names one if versioning is on or was on, and then keeps what is deleted.
    pub version: Option<String>,
}

/// The contents of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The version of the marker's format.
    pub format: u32,
    /// The canister whose deletion queue owns the store.
    pub canister: String,
    /// The store, as workers name it.
    pub store: String,
    /// The S3 endpoint, or `None` for AWS: a bucket of the same name at another endpoint is another store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The layout of the blobs in the store.
    pub layout: String,
    /// The blobs in the store, as workers name them.
    pub blobs: BTreeSet<String>,
    /// Fields that a newer version of the command added.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

impl Contents {
    pub fn path(root: &Path) -> Path {
        root.clone().join(NAME)
    }

    /// Parses a marker.
    ///
    /// # Errors
    /// When the bytes are not a marker. A proxy before the store may answer anything, so such an error proves nothing about the store.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let is_object = serde_json::from_slice(bytes).is_ok_and(|value: serde_json::Value| value.is_object());
        ensure!(is_object, "{NAME} is invalid: {SHOULD}");
        serde_json::from_slice(bytes).map_err(|why| anyhow!("{NAME} is invalid: {why}; {SHOULD}"))
    }

    /// The fields of the marker that concern the store as a whole.
    pub(super) fn fields(&self) -> [(&'static str, String); 5] {
        let endpoint = self.endpoint.as_deref().unwrap_or("AWS");
        let (format, endpoint) = (self.format.to_string(), endpoint.to_string());
        let (canister, store, layout) = (self.canister.clone(), self.store.clone(), self.layout.clone());
        [("format", format), ("canister", canister), ("store", store), ("endpoint", endpoint), ("layout", layout)]
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}

//! Contents of a marker, and where it lies.

use anyhow::{Context as _, Result};
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The marker's name. No blob has it: their names are hexadecimal.
pub const NAME: &str = "coppice-blob-store.json";
/// The version of its form.
pub(super) const FORMAT: u32 = 1;

/// What a marker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The version of its form.
    pub format: u32,
    /// The canister whose queue says what goes.
    pub canister: String,
    /// The store, as workers name it.
    pub store: String,
    /// Where its S3 is, where that is not AWS: a bucket of that name elsewhere is another store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// How blobs are named in it.
    pub layout: String,
    /// Which blobs are in it, as workers name them.
    pub blobs: BTreeSet<String>,
    /// Fields that a newer command has added.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

impl Contents {
    /// Where it lies.
    pub fn path(root: &Path) -> Path {
        root.clone().join(NAME)
    }

    /// Reads one.
    ///
    /// # Errors
    /// When the bytes are no marker: what stands before a store may answer anything, so that says nothing of the store.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).context("it is no marker")
    }

    /// The part of the marker that is about the store as a whole.
    pub(super) fn fields(&self) -> [(&'static str, String); 5] {
        let endpoint = self.endpoint.as_deref().unwrap_or("AWS");
        let (format, endpoint) = (self.format.to_string(), endpoint.to_string());
        let (canister, store, layout) = (self.canister.clone(), self.store.clone(), self.layout.clone());
        [("format", format), ("canister", canister), ("store", store), ("endpoint", endpoint), ("layout", layout)]
    }

    /// As it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}

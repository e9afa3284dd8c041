//! A blob store: sends requests, and decides the fate of each blob from the answers.
//!
//! A request deletes one chunk of blobs: up to 1,000 in S3, where that is one call; elsewhere a single one. Each blob gets a fate:
//!
//! | the store | fate | counts against the blob |
//! |---|---|---|
//! | deleted it, or it was not there | [`Fate::Gone`], [`Fate::Absent`] | |
//! | refuses the key by a code that can only mean the key (`OF_THE_KEY`) | [`Fate::Failed`] | always |
//! | refuses the key by another code | [`Fate::Named`] | if the store deleted another blob, and still is the right store |
//! | refuses by a code that says nothing about a key (`OF_THE_STORE`), or refuses the request | [`Fate::Left`] | never |
//! | was asked, and has not answered | [`Fate::Unknown`] | never: the row stays leased, because the blob may still be deleted |

use super::contents::{Contents, Found, NAME};
use super::layout::Layout;
use super::place::Selector;
use crate::exit::without_xml;
use anyhow::{Context, Result, anyhow};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutPayload};
use std::collections::{BTreeSet, HashMap};
use std::error::Error as _;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Mutex;
use url::Url;

/// Failed S3 requests of this process.
pub static FAILED_REQUESTS: AtomicU64 = AtomicU64::new(0);

tokio::task_local! {
    /// Set when a request of this task was sent and got no answer.
    pub static UNANSWERED: AtomicBool;
}

/// Codes that can only mean the key: those of S3, and one of the library.
const OF_THE_KEY: [&str; 3] = ["InvalidPath", "KeyTooLong", "KeyTooLongError"];
/// The same for a file system: `EISDIR`, `ENOTDIR`, `ENAMETOOLONG`.
const OF_THE_FILE: [ErrorKind; 3] = [ErrorKind::IsADirectory, ErrorKind::NotADirectory, ErrorKind::InvalidFilename];
/// Codes that say nothing about a key, although S3 returns them for single keys.
const OF_THE_STORE: [&str; 12] = [
    "ServiceUnavailable",
    "SlowDown",
    "InternalError",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "OperationAborted",
    "ExpiredToken",
    "InvalidToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "NoSuchBucket",
];
/// The same for a file system.
const OF_THE_DISK: [ErrorKind; 7] = [
    ErrorKind::ReadOnlyFilesystem,
    ErrorKind::StaleNetworkFileHandle,
    ErrorKind::TimedOut,
    ErrorKind::Interrupted,
    ErrorKind::OutOfMemory,
    ErrorKind::NotConnected,
    ErrorKind::NetworkDown,
];

/// Files that a look at the folders below a store lists at most, because a store may have millions of blobs.
const MOST_LISTED: usize = 10_000;

/// The fate of a blob, or of one of its paths, ordered from best to worst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The blob was not there.
    Absent,
    /// The blob is gone; if the store does not report absence, it may never have been there.
    Gone,
    /// No blob can have this key; with the reason.
    Failed(String),
    /// The store refuses this blob; with the reason. The fates of the other blobs decide whether the blob is the cause.
    Named(String),
    /// The store has not deleted the blob; with the reason.
    Left(String),
    /// The store was asked and has not answered; with the reason.
    Unknown(String),
}

impl Fate {
    /// Returns whether the blob is not there any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Absent | Self::Gone)
    }

    /// Returns whether the row is put back unchanged.
    pub fn is_back(&self) -> bool {
        matches!(self, Self::Named(_) | Self::Left(_))
    }

    /// Returns whether the store gave a definite answer about the blob.
    pub fn is_definite(&self) -> bool {
        self.is_gone() || matches!(self, Self::Failed(_))
    }

    /// Returns why the store failed, if the cause is not the blob.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Left(why) | Self::Unknown(why) => Some(why),
            _ => None,
        }
    }
}

/// A blob in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The row's number.
    pub id: u64,
    pub path: Path,
    /// The path of the checksum that is deleted with the blob.
    pub checksum: Option<Path>,
}

/// A blob store.
#[derive(Clone, Debug)]
pub struct Store {
    /// The store's name.
    pub url: Url,
    /// The blobs in the store.
    pub of: BTreeSet<Selector>,
    pub layout: Layout,
    /// The S3 endpoint, or `None` for AWS.
    pub endpoint: Option<String>,
    object_store: Arc<dyn ObjectStore>,
    /// The folder of the blobs and the marker.
    pub root: Path,
    /// Blobs per request.
    pub chunk: usize,
    /// The store may keep versions of deleted blobs.
    pub may_keep_versions: bool,
    /// Held during a look at the marker; true once the markers above and below were right.
    pub looks: Arc<Mutex<bool>>,
}

impl Store {
    /// A store without blobs, with one blob per request.
    pub fn new(url: Url, root: Path, object_store: Arc<dyn ObjectStore>) -> Self {
        let (of, layout, looks) = (BTreeSet::new(), Layout::Hex, Arc::default());
        Self { url, of, layout, endpoint: None, object_store, root, chunk: 1, may_keep_versions: false, looks }
    }

    /// Opens a directory, named by a `file:` URL.
    ///
    /// # Errors
    /// When the URL is not a directory of this system, or the path cannot be opened.
    pub fn directory(url: Url) -> Result<Self> {
        let directory = url.to_file_path().ok().with_context(|| format!("{url} is not a directory of this system"))?;
        let root = Path::from_filesystem_path(&directory);
        let root = root.with_context(|| format!("{} cannot be opened", directory.display()))?;
        // The object store starts at the root of the file system, because there may be markers above the directory.
        Ok(Self::new(url, root, Arc::new(object_store::local::LocalFileSystem::new())))
    }

    /// Reads the store's marker; `None` if there is no marker.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a marker.
    pub async fn marker(&self) -> Result<Option<Found>> {
        self.marker_in(&self.root).await.with_context(|| format!("{}: its marker cannot be read", self.url))
    }

    async fn marker_in(&self, folder: &Path) -> Result<Option<Found>> {
        let found = async {
            let found = self.object_store.get(&Contents::path(folder)).await?;
            Ok((found.meta.version.clone(), found.bytes().await?))
        };
        match found.await {
            Ok((version, bytes)) => Ok(Some(Found { contents: Contents::parse(&bytes)?, version })),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the marker in a folder above or below the store, with the folder's name. A marker that the worker has no permission to read
    /// counts as absent.
    async fn marker_near(&self, folder: &Path) -> Result<Option<(String, Contents)>> {
        match self.marker_in(folder).await {
            Ok(found) => Ok(found.map(|found| (format!("/{folder}"), found.contents))),
            Err(error) if is_forbidden(&error) => Ok(None),
            Err(error) => Err(error.context(format!("{}: /{folder}: its marker cannot be read", self.url))),
        }
    }

    /// Reads the markers in the folders above the store, with their folders.
    ///
    /// # Errors
    /// When a marker cannot be read, except for want of permission.
    pub async fn markers_above(&self) -> Result<Vec<(String, Contents)>> {
        let mut found = Vec::new();
        let parts: Vec<_> = self.root.parts().collect();
        for depth in 0..parts.len() {
            found.extend(self.marker_near(&Path::from_iter(parts[..depth].iter().cloned())).await?);
        }
        Ok(found)
    }

    /// Reads the markers in the folders below the store that its layout writes into, with their folders.
    ///
    /// # Errors
    /// When a folder cannot be listed, or a marker cannot be read, except for want of permission.
    pub async fn markers_within(&self) -> Result<Vec<(String, Contents)>> {
        if !matches!(self.layout, Layout::Folders(_)) {
            return Ok(Vec::new());
        }
        let told = |error| self.told(error, "its folders cannot be listed");
        let folders = match self.object_store.list_with_delimiter(self.listed()).await.map_err(told) {
            Ok(listed) => listed.common_prefixes,
            Err(error) if is_forbidden(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let is_written = |folder: &Path| folder.filename().is_some_and(|name| self.layout.writes_into(name));
        // Each request to a file system costs a thread.
        let parallel = if self.url.scheme() == "file" { 1 } else { 16 };
        let looks = folders.into_iter().filter(is_written).map(|folder| async move { self.marker_near(&folder).await });
        let found: Vec<_> = futures_util::stream::iter(looks).buffered(parallel).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Reads the markers in all folders below the store, with their folders, as far as the store lists them among its first
    /// 10,000 files. The layout writes into no such folder, or [`markers_within`](Self::markers_within) has it, too.
    ///
    /// # Errors
    /// When a marker cannot be read, except for want of permission.
    pub async fn markers_below(&self) -> Result<Vec<(String, Contents)>> {
        let (mut found, own) = (Vec::new(), Contents::path(&self.root));
        let mut files = self.object_store.list(self.listed()).take(MOST_LISTED);
        while let Some(Ok(file)) = files.next().await {
            if file.location.filename() == Some(NAME) && file.location != own {
                let parts: Vec<_> = file.location.parts().collect();
                found.extend(self.marker_near(&Path::from_iter(parts[..parts.len() - 1].iter().cloned())).await?);
            }
        }
        Ok(found)
    }

    /// Returns the folder of a listing; `None` lists all.
    fn listed(&self) -> Option<&Path> {
        Some(&self.root).filter(|root| !root.is_root())
    }

    /// Writes the marker at the store's root, and returns its version. If `instead` is set, it replaces a marker; otherwise there must be
    /// no marker yet.
    ///
    /// # Errors
    /// When it cannot be written, or another process has written one meanwhile.
    pub async fn mark(&self, marker: &Contents, instead: bool) -> Result<Option<String>> {
        use object_store::Error::{AlreadyExists, Precondition};
        let (path, bytes) = (Contents::path(&self.root), PutPayload::from(marker.to_bytes()));
        let mode = if instead { PutMode::Overwrite } else { PutMode::Create };
        let put = match self.object_store.put_opts(&path, bytes.clone(), mode.into()).await {
            refused @ Err(AlreadyExists { .. } | Precondition { .. }) => refused,
            // Some stores do not support the condition.
            Err(_) => self.object_store.put(&path, bytes).await,
            done => done,
        };
        put.map(|put| put.version).map_err(|error| self.told(error, "its marker cannot be written"))
    }

    /// Adds the store's URL to an error.
    fn told(&self, error: object_store::Error, what: &str) -> anyhow::Error {
        let url = &self.url;
        if has_no_bucket(&error) {
            return anyhow!("{url}: there is no such bucket: make it first, or correct the URL or the endpoint");
        }
        anyhow::Error::new(error).context(format!("{url}: {what}"))
    }

    /// Returns whether the store has a blob.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn has(&self, target: &Target) -> Result<bool> {
        match self.object_store.head(&target.path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("{}: {}", self.url, target.path)),
        }
    }

    /// Deletes at most [`Self::chunk`] blobs in one request, and returns their fates in the same order.
    pub async fn delete(&self, targets: &[Target]) -> Vec<Fate> {
        // Two rows may have the same path, and then have the same fate.
        let paths: BTreeSet<&Path> = targets.iter().flat_map(|of| of.checksum.iter().chain([&of.path])).collect();
        let paths: Vec<Path> = paths.into_iter().cloned().collect();
        let asked = futures_util::stream::iter(paths.clone().into_iter().map(Ok)).boxed();
        let answers = async {
            let answers: Vec<_> = self.object_store.delete_stream(asked).collect().await;
            (answers, UNANSWERED.with(|unanswered| unanswered.load(Ordering::Relaxed)))
        };
        let (answers, is_open) = UNANSWERED.scope(AtomicBool::new(false), answers).await;
        let fates = by_path(&paths, answers, self.chunk == 1);
        let fate = |target: &Target| {
            // A missing checksum says nothing about the blob.
            let checksum = target.checksum.iter().map(|path| &fates[path]).filter(|fate| **fate > Fate::Gone);
            match checksum.fold(&fates[&target.path], Ord::max).clone() {
                // A request without an answer may still be done later, even if another attempt fails.
                Fate::Left(why) if is_open => Fate::Unknown(why),
                fate => fate,
            }
        };
        targets.iter().map(fate).collect()
    }
}

/// Returns the fates of one request's paths. A single error for all of them belongs to the request and says nothing about any path.
/// Otherwise each error belongs to the path at its position.
fn by_path(asked: &[Path], answers: Vec<object_store::Result<Path>>, are_single: bool) -> HashMap<Path, Fate> {
    let is_whole = answers.len() == asked.len();
    let is_its_own = |error: &object_store::Error| is_whole && (are_single || names_a_blob(error));
    let failed = answers.iter().filter_map(|answer| answer.as_ref().err()).find(|error| !is_its_own(error));
    let why =
        failed.map_or("the store's answer does not mention the blob".into(), |error| without_xml(&error.to_string()));
    let mut fates: HashMap<Path, Fate> = asked.iter().map(|path| (path.clone(), Fate::Left(why.clone()))).collect();
    for (at, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(path) => drop(fates.insert(path, Fate::Gone)),
            Err(error) if is_its_own(&error) => drop(fates.insert(asked[at].clone(), fate_of(&error))),
            Err(_) => {}
        }
    }
    fates
}

/// Start of an error for one key of a bulk deletion; it ends with S3's code. `object_store` has no type for it.
const NAMED: &str = "DeleteObjects request failed for key ";

/// S3's own codes in a 404; `object_store` has no type for them.
const S3_ABSENT: [&str; 2] = ["<Code>NoSuchKey</Code>", "<Code>NoSuchBucket</Code>"];

fn names_a_blob(error: &object_store::Error) -> bool {
    use object_store::Error::{InvalidPath, NotFound, PermissionDenied};
    // Other stores that delete many blobs at once answer for each blob.
    source(error).starts_with(NAMED)
        || matches!(error, NotFound { .. } | PermissionDenied { .. } | InvalidPath { .. }) && !is_request(error)
}

/// Returns whether an error belongs to a whole request, because it then names all paths.
fn is_request(error: &object_store::Error) -> bool {
    source(error).starts_with("Error performing ")
}

/// Returns whether an error means that the store has no such object. A 404 over HTTP may come from a proxy before the store, so only S3's
/// own codes count.
fn is_absent(error: &object_store::Error) -> bool {
    let is_s3s_own = || S3_ABSENT.iter().any(|code| source(error).contains(code));
    matches!(error, object_store::Error::NotFound { .. }) && (!is_request(error) || is_s3s_own())
}

/// Returns whether the store's bucket does not exist.
fn has_no_bucket(error: &object_store::Error) -> bool {
    source(error).contains(S3_ABSENT[1])
}

/// Returns whether a store refuses to let an object be read.
fn is_forbidden(error: &anyhow::Error) -> bool {
    use object_store::Error::{PermissionDenied, Unauthenticated};
    let is_forbidden = |error: &object_store::Error| {
        matches!(error, PermissionDenied { .. } | Unauthenticated { .. })
            || io_error(error) == Some(ErrorKind::PermissionDenied)
    };
    error.downcast_ref().is_some_and(is_forbidden)
}

/// Returns the fate for a code with which a store refuses a key.
fn fate_of_code(code: &str, why: String) -> Fate {
    match code {
        "NoSuchKey" => Fate::Absent,
        code if OF_THE_KEY.contains(&code) => Fate::Failed(why),
        code if OF_THE_STORE.contains(&code) => Fate::Left(why),
        _ => Fate::Named(why),
    }
}

fn fate_of(error: &object_store::Error) -> Fate {
    use object_store::Error::{InvalidPath, NotFound, PermissionDenied};
    let text = error.to_string();
    let code = |before: &str, after: &str| Some(text.rsplit_once(before)?.1.split_once(after)?.0.to_string());
    let why = without_xml(&text);
    match (error, io_error(error)) {
        (NotFound { .. }, _) if is_absent(error) && !has_no_bucket(error) => Fate::Absent,
        (InvalidPath { .. }, _) => Fate::Failed(why),
        _ if is_request(error) => match code("<Code>", "</Code>") {
            Some(code) if code != "NoSuchKey" => fate_of_code(&code, why),
            _ => Fate::Left(why),
        },
        _ if source(error).starts_with(NAMED) => fate_of_code(&code("(code: ", ")").unwrap_or_default(), why),
        (_, Some(kind)) if OF_THE_FILE.contains(&kind) => Fate::Failed(why),
        (_, Some(kind)) if !OF_THE_DISK.contains(&kind) => Fate::Named(why),
        (PermissionDenied { .. }, _) => Fate::Named(why),
        _ => Fate::Left(why),
    }
}

fn source(error: &object_store::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

/// Returns the kind of the operating system's error, if there is one.
fn io_error(error: &object_store::Error) -> Option<ErrorKind> {
    let mut causes = anyhow::Chain::new(error);
    causes.find_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)
}

#[cfg(test)]
#[path = "tests/store.rs"]
mod tests;

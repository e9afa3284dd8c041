//! A store: what a request to it comes to.
//!
//! A request deletes a chunk of blobs: up to a thousand in S3, where that is one call, one elsewhere. What it comes to is said for each
//! blob:
//!
//! | the store | fate | counts against the blob |
//! |---|---|---|
//! | deleted it, or it was not there | [`Fate::Gone`], [`Fate::Absent`] | |
//! | refuses the key by a code that can only mean the key (`OF_THE_KEY`) | [`Fate::Failed`] | always |
//! | refuses the key by another code | [`Fate::Named`] | where it deleted another one, and is the right store still |
//! | refuses by a code that says nothing of a key (`OF_THE_STORE`), or refuses the request | [`Fate::Left`] | never |
//! | was asked, and has not answered | [`Fate::Unknown`] | never: the row stays leased, as the blob may still go |

use super::contents::Contents;
use super::layout::Layout;
use super::place::Selector;
use anyhow::{Context, Result};
use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutPayload};
use std::collections::{BTreeSet, HashMap};
use std::error::Error as _;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Mutex;
use url::Url;

/// Requests of this process to an S3 that failed.
pub static FAILED_REQUESTS: AtomicU64 = AtomicU64::new(0);

tokio::task_local! {
    /// A request of this task was sent, and has no answer.
    pub static UNANSWERED: AtomicBool;
}

/// Codes that can only mean the key: S3's, and that of the library.
const OF_THE_KEY: [&str; 3] = ["InvalidPath", "KeyTooLong", "KeyTooLongError"];
/// The same of a file system: `EISDIR`, `ENOTDIR`, `ENAMETOOLONG`.
const OF_THE_FILE: [ErrorKind; 3] = [ErrorKind::IsADirectory, ErrorKind::NotADirectory, ErrorKind::InvalidFilename];
/// Codes that say nothing of a key, though S3 names one with them.
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
/// The same of a file system.
const OF_THE_DISK: [ErrorKind; 7] = [
    ErrorKind::ReadOnlyFilesystem,
    ErrorKind::StaleNetworkFileHandle,
    ErrorKind::TimedOut,
    ErrorKind::Interrupted,
    ErrorKind::OutOfMemory,
    ErrorKind::NotConnected,
    ErrorKind::NetworkDown,
];

/// The fate of a blob, or of one of its paths. The fate that hinders most is the largest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It was not there.
    Absent,
    /// It is gone; where the store does not say, it may not have been there.
    Gone,
    /// Its key can have no blob: why.
    Failed(String),
    /// The store refuses it: why. Whether that is the blob's doing, others tell.
    Named(String),
    /// The store has not done it: why.
    Left(String),
    /// The store was asked and has not answered: why.
    Unknown(String),
}

impl Fate {
    /// True if the blob is not there any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Absent | Self::Gone)
    }

    /// True if the row goes back as it was.
    pub fn is_back(&self) -> bool {
        matches!(self, Self::Named(_) | Self::Left(_))
    }

    /// True if it is the store's word on the blob.
    pub fn is_said(&self) -> bool {
        self.is_gone() || matches!(self, Self::Failed(_))
    }

    /// Why the store has not done what it was asked for, whatever the blob.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Left(why) | Self::Unknown(why) => Some(why),
            _ => None,
        }
    }
}

/// A blob, as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The row's number.
    pub id: u64,
    /// Where it is.
    pub path: Path,
    /// Where the checksum is that goes with it.
    pub checksum: Option<Path>,
}

/// A store.
#[derive(Clone, Debug)]
pub struct Store {
    /// What it is called.
    pub url: Url,
    /// Which blobs it has.
    pub of: BTreeSet<Selector>,
    /// How they are named.
    pub layout: Layout,
    /// Where its S3 is, where that is not AWS.
    pub endpoint: Option<String>,
    object_store: Arc<dyn ObjectStore>,
    /// Where its blobs and its marker are.
    pub root: Path,
    /// Blobs of a request.
    pub chunk: usize,
    /// Held by whoever looks at its marker.
    pub looks: Arc<Mutex<()>>,
}

impl Store {
    /// One that has no blobs yet, each of which will be a request.
    pub fn new(url: Url, root: Path, object_store: Arc<dyn ObjectStore>) -> Self {
        let (of, layout, looks) = (BTreeSet::new(), Layout::Hex, Arc::default());
        Self { url, of, layout, endpoint: None, object_store, root, chunk: 1, looks }
    }

    /// Opens a directory, named by a `file:` URL.
    ///
    /// # Errors
    /// When it is no directory of this system, or is not there.
    pub fn directory(url: Url) -> Result<Self> {
        let directory = url.to_file_path().ok().with_context(|| format!("{url} is no directory of this system"))?;
        let root = Path::from_filesystem_path(&directory);
        let root = root.with_context(|| format!("{} cannot be opened", directory.display()))?;
        // From the root of the file system on, because there may be markers above the directory.
        Ok(Self::new(url, root, Arc::new(object_store::local::LocalFileSystem::new())))
    }

    /// The marker where its blobs are, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub async fn marker(&self) -> Result<Option<Contents>> {
        self.marker_in(&self.root).await.with_context(|| format!("{}: its marker cannot be read", self.url))
    }

    async fn marker_in(&self, folder: &Path) -> Result<Option<Contents>> {
        let found = async { self.object_store.get(&Contents::path(folder)).await?.bytes().await };
        match found.await {
            Ok(bytes) => Contents::parse(&bytes).map(Some),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The markers in the folders above it, and where they are. One that may not be read counts as none.
    ///
    /// # Errors
    /// When one cannot be read.
    pub async fn markers_above(&self) -> Result<Vec<(String, Contents)>> {
        let mut found = Vec::new();
        let parts: Vec<_> = self.root.parts().collect();
        for depth in 0..parts.len() {
            let folder = Path::from_iter(parts[..depth].iter().cloned());
            match self.marker_in(&folder).await {
                Ok(marker) => found.extend(marker.map(|marker| (format!("/{folder}"), marker))),
                Err(error) if is_forbidden(&error) => {}
                Err(error) => return Err(error.context(format!("{}: /{folder}: its marker cannot be read", self.url))),
            }
        }
        Ok(found)
    }

    /// The markers in the folders below it to which its layout writes, and where they are.
    ///
    /// # Errors
    /// When a folder cannot be listed, or a marker cannot be read.
    pub async fn markers_below(&self) -> Result<Vec<(String, Contents)>> {
        let mut found = Vec::new();
        if !matches!(self.layout, Layout::Folders(_)) {
            return Ok(found);
        }
        let root = Some(&self.root).filter(|root| !root.is_root());
        for folder in self.object_store.list_with_delimiter(root).await?.common_prefixes {
            if folder.filename().is_some_and(|name| self.layout.writes_into(name)) {
                let marker = self.marker_in(&folder).await.with_context(|| format!("{}: /{folder}", self.url))?;
                found.extend(marker.map(|marker| (format!("/{folder}"), marker)));
            }
        }
        Ok(found)
    }

    /// Puts a marker at its root, in the place of one or, where there was none, only where there is none yet.
    ///
    /// # Errors
    /// When it cannot be written, or somebody else has written one meanwhile.
    pub async fn mark(&self, marker: &Contents, instead: bool) -> Result<()> {
        use object_store::Error::{AlreadyExists, Precondition};
        let (path, bytes) = (Contents::path(&self.root), PutPayload::from(marker.to_bytes()));
        let mode = if instead { PutMode::Overwrite } else { PutMode::Create };
        let put = match self.object_store.put_opts(&path, bytes.clone(), mode.into()).await {
            refused @ Err(AlreadyExists { .. } | Precondition { .. }) => refused,
            // There are stores that do not know the condition.
            Err(_) => self.object_store.put(&path, bytes).await,
            done => done,
        };
        put.map(drop).with_context(|| format!("{}: its marker cannot be written", self.url))
    }

    /// Whether it has a blob.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn has(&self, target: &Target) -> Result<bool> {
        match self.object_store.head(&target.path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("{}: {}", self.url, target.path)),
        }
    }

    /// Deletes blobs, [`Self::chunk`] at most, in one request: what became of each, in their order.
    pub async fn delete(&self, targets: &[Target]) -> Vec<Fate> {
        // Two rows may have one path, and then have one fate.
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
            let beside = target.checksum.iter().map(|path| &fates[path]).filter(|fate| **fate > Fate::Gone);
            match beside.fold(&fates[&target.path], Ord::max).clone() {
                // What has no answer may still be done later, even where another attempt fails.
                Fate::Left(why) if is_open => Fate::Unknown(why),
                fate => fate,
            }
        };
        targets.iter().map(fate).collect()
    }
}

/// The answers of one request, by path. One error for all of them is the request's, and says nothing of any; of the others, and where each
/// path is a request of its own, each answers what stands at its place.
fn by_path(asked: &[Path], answers: Vec<object_store::Result<Path>>, are_single: bool) -> HashMap<Path, Fate> {
    let is_whole = answers.len() == asked.len();
    let is_its_own = |error: &object_store::Error| is_whole && (are_single || names_a_blob(error));
    let failed = answers.iter().filter_map(|answer| answer.as_ref().err()).find(|error| !is_its_own(error));
    let why = failed.map_or("the store says nothing of it".into(), ToString::to_string);
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

/// What a bulk deletion says of one blob begins so, and ends with S3's code; `object_store` has no type for it.
const NAMED: &str = "DeleteObjects request failed for key ";

/// What S3 says with a 404; `object_store` has no type for it.
const S3_ABSENT: [&str; 2] = ["<Code>NoSuchKey</Code>", "<Code>NoSuchBucket</Code>"];

fn names_a_blob(error: &object_store::Error) -> bool {
    use object_store::Error::{InvalidPath, NotFound, PermissionDenied};
    // Of another store that deletes many at once, each answer is a blob's.
    source(error).starts_with(NAMED)
        || matches!(error, NotFound { .. } | PermissionDenied { .. } | InvalidPath { .. }) && !is_request(error)
}

/// Whether an error is that of a whole request: it names all its paths.
fn is_request(error: &object_store::Error) -> bool {
    source(error).starts_with("Error performing ")
}

/// Whether an error is that a store has no such object. A 404 over HTTP may be of something that stands before the store: only S3's own word
/// counts.
fn is_absent(error: &object_store::Error) -> bool {
    let is_s3s_own = || S3_ABSENT.iter().any(|code| source(error).contains(code));
    matches!(error, object_store::Error::NotFound { .. }) && (!is_request(error) || is_s3s_own())
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

/// The meaning of a code with which a store refuses a key.
fn fate_of_code(code: &str, why: String) -> Fate {
    match code {
        "NoSuchKey" => Fate::Absent,
        code if OF_THE_KEY.contains(&code) => Fate::Failed(why),
        code if OF_THE_STORE.contains(&code) => Fate::Left(why),
        _ => Fate::Named(why),
    }
}

/// The meaning of an error of one blob.
fn fate_of(error: &object_store::Error) -> Fate {
    use object_store::Error::{InvalidPath, NotFound, PermissionDenied};
    let why = error.to_string();
    let code = |before: &str, behind: &str| Some(why.rsplit_once(before)?.1.split_once(behind)?.0.to_string());
    match (error, io_error(error)) {
        (NotFound { .. }, _) if is_absent(error) && !why.contains(S3_ABSENT[1]) => Fate::Absent,
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

/// What the system says.
fn io_error(error: &object_store::Error) -> Option<ErrorKind> {
    let mut causes = anyhow::Chain::new(error);
    causes.find_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)
}

#[cfg(test)]
#[path = "tests/store.rs"]
mod tests;

//! Test doubles: a queue in memory, and a store with injected faults.

use crate::client::{CanisterClient, Client, Failure, GivesUp, Transport};
use async_trait::async_trait;
use candid::utils::{ArgumentDecoder, decode_args};
use candid::{CandidType, Principal, encode_one};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use ic_coppice_client::Reject;
pub use ic_coppice_interface::BlobDeletion as Row;
use ic_coppice_interface::*;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The height of the chain and of the persister.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heights {
    pub current: u32,
    /// 0 if no persister runs.
    pub persisted: u32,
}

impl Heights {
    fn due(self, window: u32) -> Option<u32> {
        let height = if self.persisted == 0 { self.current } else { self.current.min(self.persisted) };
        height.checked_sub(window).filter(|height| *height > 0)
    }
}

/// A lease of [`Fake`].
#[derive(Clone, Debug)]
struct Live {
    token: Vec<u8>,
    request: Vec<u8>,
    rows: Vec<u64>,
    /// The lease was completed, and has rows of unknown fate.
    ended: bool,
}

/// A hook that runs in the worker's thread during an acquire.
type AtAcquire = Box<dyn FnOnce(&mut State) + Send>;
/// A hook that runs in the thread of a request to a store.
type WhenAsked = Box<dyn FnOnce(&Moody) + Send>;
/// A condition to wait for.
type IsSo = Arc<dyn Fn() -> bool + Send + Sync>;

/// The state of [`Fake`].
#[derive(Default)]
pub struct State {
    pub heights: Heights,
    /// Rows by number, each with its count of failures.
    pub rows: BTreeMap<u64, (Row, u32)>,
    pub dead: Vec<u64>,
    leases: Vec<Live>,
    ended: Vec<(Vec<u8>, Vec<u8>, CompletedBlobDeletions)>,
    /// The number of next calls that are lost.
    pub unreachable: u32,
    /// The number of next calls that hang.
    pub hangs: u32,
    pub acquire_hangs: bool,
    gives_up: Option<GivesUp>,
    /// The number of next calls that a gateway refuses, as with a wrong clock of the worker.
    pub turned_away: u32,
    /// Hooks for the next acquires, one each.
    at_acquire: VecDeque<AtAcquire>,
    /// The time that an acquire or a completion takes.
    pub slow: Duration,
    /// The first answer of each acquire and completion is lost.
    pub drops_answers: bool,
    dropped: Vec<Vec<u8>>,
    /// The number of next acquires that are refused with `TooManyLeases`.
    pub later: u32,
    /// Leased rows that leave their lease before its completion.
    pub rescheduled: BTreeSet<u64>,
    /// The completions that were received, in order.
    pub completions: Vec<CompleteBlobDeletionBatch>,
    /// The requests for leases that were received.
    pub asks: Vec<AcquireBlobDeletions>,
    pub acquired: u64,
    pub extended: u64,
    /// The lengths of leases and extensions, in seconds.
    pub secs: BTreeSet<u64>,
    /// By row: the number of leases with the row.
    pub leased: BTreeMap<u64, u32>,
    /// Deletions are stopped.
    pub stopped: bool,
    /// The reports that were answered with `Stopped`.
    pub reports: Vec<CompleteBlobDeletionBatch>,
    /// All calls are refused, as for an identity without the role.
    pub refuses: bool,
    /// Queries report nothing due.
    pub hides: bool,
    /// The number of queries for due rows.
    pub looks: u64,
    /// The number of acquires that found nothing due.
    pub empty: u64,
    given: u64,
}

/// A queue in memory. Its leases end only by [`Fake::expire`] and [`State::end_all`].
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<State>>);

/// The result of a call, and of a method that may refuse.
type Called<T> = Result<T, Failure>;
type Answer<T> = Called<Result<T, BlobDeletionError>>;

fn unreachable() -> Failure {
    Failure::Lost("502".into())
}

/// The failure for a gateway's HTTP 400.
fn turned_away() -> Failure {
    Failure::Transport("400: the ingress expiry is not within what is expected".into())
}

fn read<A: for<'a> ArgumentDecoder<'a>>(arg: &[u8]) -> A {
    decode_args(arg).unwrap()
}

fn written(answer: impl CandidType) -> Called<Vec<u8>> {
    Ok(encode_one(answer).unwrap())
}

/// Returns a row of a blob `ID.tx`.
pub fn row(id: u64) -> Row {
    Row { delete_at_height: id as u32, ..named(id, &id.to_be_bytes(), "tx", StoreType::Tx) }
}

/// Returns a row of height 0.
pub fn named(id: u64, key: &[u8], file_type: &str, store_type: StoreType) -> Row {
    Row {
        id,
        blob_key: key.to_vec().into(),
        file_type: file_type.into(),
        store_type,
        delete_at_height: 0,
        retry_count: 0,
        last_retry_at_ns: None,
        txid: None,
    }
}

/// Returns the path of the blob of [`row`].
pub fn path(id: u64) -> Path {
    Path::from(format!("{id:016x}.tx"))
}

impl Fake {
    /// Creates a queue with rows, all of them due.
    pub fn new(rows: impl IntoIterator<Item = Row>) -> Self {
        let fake = Self::default();
        fake.state().heights = Heights { current: 1_000_000, persisted: 0 };
        fake.state().rows = rows.into_iter().map(|row| (row.id, (row, 0))).collect();
        fake
    }

    pub fn client(&self) -> Client<Self> {
        Client::new(self.clone())
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Returns the number of open leases.
    pub fn live(&self) -> usize {
        self.state().leases.iter().filter(|lease| !lease.ended).count()
    }

    /// Hangs until the call is given up.
    fn hang(&self, state: MutexGuard<'_, State>) -> Failure {
        let gives_up = state.gives_up.clone().unwrap();
        drop(state);
        while !gives_up() {
            std::thread::sleep(Duration::from_millis(5));
        }
        unreachable()
    }

    fn called(&self) -> Called<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.hangs > 0 {
            state.hangs -= 1;
            return Err(self.hang(state));
        }
        if state.refuses {
            let reject = Reject::new(4, Some("IC0406".into()), "not for you".into());
            return Err(Failure::Rejected(Reject { certified: true, ..reject }));
        }
        if state.unreachable > 0 {
            state.unreachable -= 1;
            return Err(unreachable());
        }
        if state.turned_away > 0 {
            state.turned_away -= 1;
            return Err(turned_away());
        }
        Ok(state)
    }

    /// Runs a hook when the next lease is granted, before its answer, or when an acquire hangs. Several hooks run on consecutive acquires.
    pub fn at_acquire(&self, hook: impl FnOnce(&mut State) + Send + 'static) {
        self.state().at_acquire.push_back(Box::new(hook));
    }

    pub fn expire(&self) {
        self.state().leases.clear();
    }
}

impl State {
    fn is_leased(&self, id: u64) -> bool {
        self.leases.iter().any(|lease| lease.rows.contains(&id))
    }

    /// Ends all leases, as their completion does.
    pub fn end_all(&mut self) {
        for lease in std::mem::take(&mut self.leases) {
            self.ended.push((lease.token, lease.request, CompletedBlobDeletions::default()));
        }
    }

    fn due(&self, height: u32, selectors: &[BlobSelector]) -> Vec<Row> {
        let is_meant = |row: &&Row| {
            let selects = |of: &BlobSelector| {
                of.store_type == row.store_type && of.file_type.as_ref().is_none_or(|of| *of == row.file_type)
            };
            row.delete_at_height <= height && !self.is_leased(row.id) && selectors.iter().any(selects)
        };
        let mut rows: Vec<Row> = self.rows.values().map(|(row, _)| row).filter(is_meant).cloned().collect();
        rows.sort_by_key(|row| (row.delete_at_height, row.id));
        rows
    }

    /// Returns a status in which all rows wait.
    fn status(&self) -> BlobDeletionStatus {
        let (held, leased, backing_off, dead) = Default::default();
        let waiting = self.rows.len() as u64;
        let store_type = StoreType::Tx;
        BlobDeletionStatus {
            deletions_stopped_since_ns: None,
            stores: vec![StoreDeletions {
                store_type,
                held,
                waiting,
                leased,
                backing_off,
                dead,
                oldest_due: None,
                due_since_ns: None,
            }],
            rows: waiting,
            max_rows: 0,
            oldest_due: None,
            leases: Vec::new(),
            metrics: Vec::new(),
        }
    }

    /// Returns a status with the configured heights.
    fn pruner(&self) -> UtxoPrunerStatus {
        UtxoPrunerStatus {
            settings: UtxoPrunerSettings::default(),
            deletions_stopped_since_ns: None,
            block_assembly: UtxoBlockAssemblyState::Running,
            block_assembly_height: None,
            current_height: self.heights.current,
            most_height: 0,
            last_persisted_height: Some(self.heights.persisted),
            last_processed_height: 0,
            safe_height: 0,
            unmined_cutoff_height: 0,
            pending: None,
            running: None,
            last_job: None,
            blocked_by: None,
            skipped: Vec::new(),
            blobs_pending: 0,
            blobs_dead: 0,
            totals: UtxoPruneCounts::default(),
            ticks: 0,
            next_tick_ns: 0,
            metrics: Vec::new(),
        }
    }

    fn acquires(&mut self) {
        if let Some(hook) = self.at_acquire.pop_front() {
            hook(self);
        }
    }

    fn loses(&mut self, call: &[u8]) -> bool {
        let first = self.drops_answers && !self.dropped.iter().any(|dropped| dropped == call);
        self.dropped.push(call.to_vec());
        first
    }
}

impl Transport for Fake {
    async fn update(&self, method: &str, arg: Vec<u8>) -> Called<Vec<u8>> {
        match method {
            "acquire_blob_deletion_batch" => {
                let (ask,): (AcquireBlobDeletions,) = read(&arg);
                written(self.acquire(&ask)?)
            }
            "extend_blob_deletion_batch" => {
                let (token, secs): (Vec<u8>, u64) = read(&arg);
                written(self.extend(&token, secs)?)
            }
            "complete_blob_deletion_batch" => {
                let (done,): (CompleteBlobDeletionBatch,) = read(&arg);
                written(self.complete(&done)?)
            }
            query => self.query(query, arg).await,
        }
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Called<Vec<u8>> {
        let mut state = self.called()?;
        match method {
            "get_blob_deletion_status" => written(state.status()),
            "utxo_get_pruner_status" => written(state.pruner()),
            "get_pending_blob_deletions" => {
                let (height, rows, selectors): (u32, u32, Option<Vec<BlobSelector>>) = read(&arg);
                let mut due = state.due(height, &selectors.unwrap());
                due.retain(|_| !state.stopped && !state.hides);
                state.looks += 1;
                due.truncate(rows as usize);
                written(due)
            }
            other => panic!("{other}"),
        }
    }
}

impl CanisterClient for Fake {
    fn principal(&self, _: Role) -> Principal {
        Principal::anonymous()
    }

    fn limit(&self, gives_up: GivesUp) {
        self.state().gives_up = Some(gives_up);
    }
}

impl Fake {
    pub fn acquire(&self, ask: &AcquireBlobDeletions) -> Answer<Option<BlobDeletionLease>> {
        let mut state = self.called()?;
        if state.acquire_hangs {
            state.acquires();
            return Err(self.hang(state));
        }
        if state.stopped {
            return Ok(Ok(None));
        }
        if state.later > 0 {
            state.later -= 1;
            return Ok(Err(BlobDeletionError::TooManyLeases { limit: 32 }));
        }
        let request = ask.request.as_ref().unwrap().to_vec();
        if state.ended.iter().any(|(_, ended, _)| *ended == request) {
            return Ok(Err(BlobDeletionError::Completed));
        }
        let height = state.heights.due(ask.safety_window.unwrap());
        if !state.leases.iter().any(|lease| lease.request == request) {
            state.asks.push(ask.clone());
            let due = height.map(|height| state.due(height, ask.selectors.as_ref().unwrap()));
            let rows: Vec<u64> = due.unwrap_or_default().iter().map(|row| row.id).take(ask.limit as usize).collect();
            if rows.is_empty() {
                state.empty += 1;
                return Ok(Ok(None));
            }
            rows.iter().for_each(|id| *state.leased.entry(*id).or_default() += 1);
            state.given += 1;
            state.acquired += 1;
            state.secs.insert(ask.lock_timeout_secs);
            let token = state.given.to_be_bytes().to_vec();
            state.leases.push(Live { token, request: request.clone(), rows, ended: false });
            state.acquires();
        }
        if state.loses(&request) {
            return Err(unreachable());
        }
        let lease = state.leases.iter().find(|lease| lease.request == request).unwrap();
        let rows = lease.rows.iter().map(|id| state.rows[id].0.clone()).collect();
        let token = lease.token.clone().into();
        let lease = BlobDeletionLease { token, expires_at_ns: 0, height: height.unwrap_or_default(), rows };
        let slow = state.slow;
        drop(state);
        std::thread::sleep(slow);
        Ok(Ok(Some(lease)))
    }

    fn extend(&self, token: &[u8], secs: u64) -> Answer<u64> {
        let mut state = self.called()?;
        if state.stopped {
            return Ok(Err(BlobDeletionError::Stopped));
        }
        state.secs.insert(secs);
        state.extended += 1;
        let lives = state.leases.iter().any(|lease| lease.token == token && !lease.ended);
        Ok(if lives { Ok(0) } else { Err(BlobDeletionError::Expired) })
    }

    fn complete(&self, done: &CompleteBlobDeletionBatch) -> Answer<CompletedBlobDeletions> {
        let mut state = self.called()?;
        let slow = state.slow;
        let token = &done.token[..];
        if let Some((_, _, answer)) = state.ended.iter().find(|(ended, ..)| ended == token) {
            return Ok(Ok(answer.clone()));
        }
        if state.stopped {
            state.reports.push(done.clone());
            return Ok(Err(BlobDeletionError::Stopped));
        }
        let Some(at) = state.leases.iter().position(|lease| lease.token == token) else {
            return Ok(Err(BlobDeletionError::Expired));
        };
        state.completions.push(done.clone());
        let left = std::mem::take(&mut state.rescheduled);
        let mut lease = state.leases.remove(at);
        lease.rows.retain(|id| !left.contains(id));
        let unknown: Vec<u64> = done.unknown_ids.iter().flatten().copied().collect();
        let mut answer = CompletedBlobDeletions::default();
        let named = |id: &u64| done.failed_ids.contains(id) || unknown.contains(id);
        let rest: Vec<u64> = lease.rows.iter().copied().filter(|id| done.rest.is_some() && !named(id)).collect();
        let all = done.completed_ids.iter().chain(&rest).map(|id| (*id, true));
        for (id, gone) in all.chain(done.failed_ids.iter().map(|id| (*id, false))) {
            if !lease.rows.contains(&id) {
                answer.skipped.push(id);
                continue;
            }
            lease.rows.retain(|row| *row != id);
            if gone {
                state.rows.remove(&id);
                answer.removed += 1;
                continue;
            }
            let failures = &mut state.rows.get_mut(&id).unwrap().1;
            *failures += 1;
            if *failures >= done.max_retries.max(1) {
                state.rows.remove(&id);
                state.dead.push(id);
                answer.dead += 1;
                answer.removed += 1;
            } else {
                answer.retries_incremented += 1;
            }
        }
        state.ended.push((token.to_vec(), lease.request.clone(), answer.clone()));
        lease.rows.retain(|id| unknown.contains(id));
        if !lease.rows.is_empty() {
            state.leases.push(Live { ended: true, ..lease });
        }
        if state.loses(token) {
            return Err(unreachable());
        }
        drop(state);
        std::thread::sleep(slow);
        Ok(Ok(answer))
    }
}

/// The behaviour of [`Moody`] on a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It deletes.
    #[default]
    Willing,
    /// It denies all deletions.
    ReadOnly,
    /// It never answers.
    Hangs,
    /// The next requests fail as a whole.
    Fails(u32),
    /// Reading its answer panics.
    Panics,
    /// It deletes, and reports a failure.
    Lies,
    /// Its marker vanishes with the first deletion, as when a disk is unmounted.
    Vanishes,
}

/// A store in memory with injected faults, which records the requests.
#[derive(Default)]
pub struct Moody {
    pub inner: InMemory,
    pub mood: Mutex<Mood>,
    /// The path that it refuses as locked.
    pub stubborn: Mutex<Option<Path>>,
    /// The path for which it denies permission.
    pub denied: Mutex<Option<Path>>,
    /// Paths that it refuses with a code.
    pub codes: Mutex<BTreeMap<Path, &'static str>>,
    /// Paths that make their request fail as a whole.
    pub poison: Mutex<Vec<Path>>,
    /// The number of next reads that fail.
    pub unreadable: AtomicU32,
    /// Objects have versions, also those from before.
    pub versioned: AtomicBool,
    reads: AtomicU32,
    /// Reads after the first one wait for this, at most half a minute.
    pub reads_held_until: Mutex<Option<IsSo>>,
    /// Requests wait for this, at most half a minute.
    pub held_until: Mutex<Option<IsSo>>,
    /// The paths whose deletion was requested.
    pub asked: Mutex<Vec<Path>>,
    /// Hooks by number of requested paths.
    when_asked: Mutex<BTreeMap<usize, WhenAsked>>,
}

impl Moody {
    /// Runs a hook when the path with this number is requested, counted from 1, before it is deleted.
    pub fn when_asked(&self, number: usize, hook: impl FnOnce(&Moody) + Send + 'static) {
        self.when_asked.lock().unwrap().insert(number, Box::new(hook));
    }

    pub fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn forget_reads(&self) {
        self.reads.store(0, Ordering::Relaxed);
    }

    /// Deletes the marker, as when a disk is unmounted.
    pub fn loses_marker(&self) {
        self.inner.delete(&Path::from(super::contents::NAME)).now_or_never().unwrap().unwrap();
    }

    /// Records a request, and runs its hooks.
    fn ask(&self, paths: &[Path]) {
        let mut asked = self.asked.lock().unwrap();
        asked.extend_from_slice(paths);
        let later = self.when_asked.lock().unwrap().split_off(&(asked.len() + 1));
        let hooks = std::mem::replace(&mut *self.when_asked.lock().unwrap(), later);
        drop(asked);
        hooks.into_values().for_each(|hook| hook(self));
    }
}

impl std::fmt::Debug for Moody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for Moody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("moody")
    }
}

fn generic(why: &str) -> Error {
    Error::Generic { store: "moody", source: why.to_string().into() }
}

#[async_trait]
impl ObjectStore for Moody {
    async fn put_opts(&self, at: &Path, bytes: PutPayload, opts: PutOptions) -> object_store::Result<PutResult> {
        self.inner.put_opts(at, bytes, opts).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, opts).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let is_first = self.reads.fetch_add(1, Ordering::Relaxed) == 0;
        let (held_until, began) = (self.reads_held_until.lock().unwrap().clone(), Instant::now());
        while !is_first
            && held_until.as_ref().is_some_and(|is_so| !is_so())
            && began.elapsed() < Duration::from_secs(30)
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let one_less = |left: u32| left.checked_sub(1);
        if self.unreadable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Err(generic("503"));
        }
        let mut found = self.inner.get_opts(at, options).await?;
        found.meta.version = self.versioned.load(Ordering::Relaxed).then(|| "null".to_string());
        Ok(found)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        // Collects the paths first, because the returned stream must not borrow `self`.
        let paths: Vec<Path> = locations.map(Result::unwrap).collect::<Vec<_>>().now_or_never().unwrap();
        self.ask(&paths);
        let mut mood = self.mood.lock().unwrap();
        let now = *mood;
        *mood = match now {
            Mood::Fails(0..=1) => Mood::Willing,
            Mood::Fails(left) => Mood::Fails(left - 1),
            other => other,
        };
        let [stubborn, denied] = [&self.stubborn, &self.denied].map(|path| path.lock().unwrap().clone());
        let poison = self.poison.lock().unwrap().clone();
        let codes = self.codes.lock().unwrap().clone();
        let (held_until, began) = (self.held_until.lock().unwrap().clone(), Instant::now());
        let inner = self.inner.clone();
        futures_util::stream::once(async move {
            while held_until.as_ref().is_some_and(|is_so| !is_so()) && began.elapsed() < Duration::from_secs(30) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            match now {
                Mood::Hangs => std::future::pending().await,
                Mood::Panics => panic!("an unreadable answer"),
                Mood::Fails(_) => return vec![Err(generic("503"))],
                _ => {}
            }
            if poison.iter().any(|poison| paths.contains(poison)) {
                return vec![Err(generic("input/output error"))];
            }
            let mut answers = Vec::new();
            for path in paths {
                if now == Mood::ReadOnly || denied.as_ref() == Some(&path) {
                    let source = "no".to_string().into();
                    answers.push(Err(Error::PermissionDenied { path: path.to_string(), source }));
                } else if let Some(code) = codes.get(&path) {
                    let why = format!("DeleteObjects request failed for key {path}: later (code: {code})");
                    answers.push(Err(generic(&why)));
                } else if stubborn.as_ref() == Some(&path) {
                    let why = format!("DeleteObjects request failed for key {path}: it is locked (code: Locked)");
                    answers.push(Err(generic(&why)));
                } else {
                    let one = futures_util::stream::once(std::future::ready(Ok(path.clone()))).boxed();
                    answers.extend(inner.delete_stream(one).collect::<Vec<_>>().await);
                }
            }
            match now {
                Mood::Lies => vec![Err(generic("the answer was lost"))],
                Mood::Vanishes => {
                    let marker = futures_util::stream::once(std::future::ready(Ok(Path::from(super::contents::NAME))));
                    inner.delete_stream(marker.boxed()).collect::<Vec<_>>().await;
                    answers
                }
                _ => answers,
            }
        })
        .flat_map(futures_util::stream::iter)
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

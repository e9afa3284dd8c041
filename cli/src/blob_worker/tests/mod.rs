//! What tests share: a queue in memory, and a store that does what it is told.

use super::queue::{Ask, Done, Heights, Lease, Noted, Queue, Refusal, Row, Waiting};
use crate::client::{Failure, GivesUp};
use anyhow::Result;
use async_trait::async_trait;
use coppice_interface::StoreType;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A lease of [`Fake`].
#[derive(Clone, Debug)]
struct Live {
    token: Vec<u8>,
    request: Vec<u8>,
    rows: Vec<u64>,
}

/// What happens in the thread of the worker that asks for a lease.
type AtAcquire = Box<dyn FnOnce(&mut State) + Send>;
/// What happens in the thread that has a request to a store.
type WhenAsked = Box<dyn FnOnce(&Moody) + Send>;
/// Whether something is so.
type IsSo = Arc<dyn Fn() -> bool + Send + Sync>;

/// What [`Fake`] has.
#[derive(Default)]
pub struct State {
    pub heights: Heights,
    /// Rows by number: the row, and how often it failed.
    pub rows: BTreeMap<u64, (Row, u32)>,
    pub dead: Vec<u64>,
    leases: Vec<Live>,
    ended: Vec<(Vec<u8>, Noted)>,
    /// The next calls do not get through.
    pub unreachable: u32,
    /// The next calls get no answer.
    pub hangs: u32,
    /// No acquire gets an answer.
    pub acquire_hangs: bool,
    gives_up: Option<GivesUp>,
    /// The next calls are turned away by what stands between, as where the worker's clock is wrong.
    pub turned_away: u32,
    /// One of them is done with each of the next acquires.
    at_acquire: VecDeque<AtAcquire>,
    /// How long an acquire takes.
    pub slow: Duration,
    /// The first answer of each acquire and complete is lost.
    pub drops_answers: bool,
    dropped: Vec<Vec<u8>>,
    /// What the next acquires answer.
    pub later: u32,
    /// Numbers that one completion looks at.
    pub room: Option<usize>,
    pub acquired: u64,
    pub extended: u64,
    /// For how many seconds leases were asked for, and extended.
    pub secs: BTreeSet<u64>,
    /// By row: leases that had it.
    pub leased: BTreeMap<u64, u32>,
    /// What is said of an identity.
    pub refuses: bool,
    given: u64,
}

/// A queue in memory. Its leases end when they are told to.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<State>>);

fn unreachable() -> anyhow::Error {
    crate::client::lost("502")
}

/// What a gateway's 400 comes to.
fn turned_away() -> anyhow::Error {
    let failure = Failure::Transport("400: the ingress expiry is not within what is expected".into());
    coppice_client::CallError { method: "a method".into(), failure }.into()
}

/// A row of a blob `ID.tx`.
pub fn row(id: u64) -> Row {
    Row { id, key: id.to_be_bytes().to_vec(), file_type: "tx".into(), store: StoreType::Tx, height: id as u32 }
}

/// The blob of [`row`].
pub fn path(id: u64) -> Path {
    Path::from(format!("{id:016x}.tx"))
}

impl Fake {
    /// With rows, all of them due.
    pub fn new(rows: impl IntoIterator<Item = Row>) -> Self {
        let fake = Self::default();
        fake.state().heights = Heights { current: 1_000_000, persisted: 0 };
        fake.state().rows = rows.into_iter().map(|row| (row.id, (row, 0))).collect();
        fake
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Leases that nobody has given back.
    pub fn live(&self) -> usize {
        self.state().leases.len()
    }

    /// A call that nobody answers until it is given up.
    fn hang(&self, state: MutexGuard<'_, State>) -> anyhow::Error {
        let gives_up = state.gives_up.clone().unwrap();
        drop(state);
        while !gives_up() {
            std::thread::sleep(Duration::from_millis(5));
        }
        unreachable()
    }

    fn called(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.hangs > 0 {
            state.hangs -= 1;
            return Err(self.hang(state));
        }
        if state.refuses {
            anyhow::bail!("IC0406: not for you");
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

    /// Does something as soon as the next lease is given, and not answered yet, or as an acquire hangs; said again, with the one behind it.
    pub fn at_acquire(&self, hook: impl FnOnce(&mut State) + Send + 'static) {
        self.state().at_acquire.push_back(Box::new(hook));
    }

    /// All leases are over.
    pub fn expire(&self) {
        self.state().leases.clear();
    }
}

impl State {
    fn is_leased(&self, id: u64) -> bool {
        self.leases.iter().any(|lease| lease.rows.contains(&id))
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

impl Queue for Fake {
    fn limit(&self, gives_up: GivesUp) {
        self.state().gives_up = Some(gives_up);
    }

    fn heights(&self) -> Result<Heights> {
        Ok(self.called()?.heights)
    }

    fn look(&self, _: bool) -> Result<(Heights, Vec<Waiting>)> {
        let state = self.called()?;
        let oldest = state.rows.values().filter(|(row, _)| !state.is_leased(row.id)).map(|(row, _)| row.height).min();
        let waiting = Waiting { store: StoreType::Tx, rows: state.rows.len() as u64, oldest };
        Ok((state.heights, vec![waiting]))
    }

    fn pending(&self, height: u32, rows: u32) -> Result<Vec<Row>> {
        let state = self.called()?;
        let due = state.rows.values().map(|(row, _)| row.clone()).filter(|row| row.height <= height);
        Ok(due.take(rows as usize).collect())
    }

    fn acquire(&self, ask: &Ask) -> Result<Result<Option<Lease>, Refusal>> {
        let mut state = self.called()?;
        if state.acquire_hangs {
            state.acquires();
            return Err(self.hang(state));
        }
        if state.later > 0 {
            state.later -= 1;
            return Ok(Err(Refusal::Later("TooManyLeases".into())));
        }
        if !state.leases.iter().any(|lease| lease.request == ask.request) {
            let due = state.rows.values().filter(|(row, _)| row.height <= ask.height && !state.is_leased(row.id));
            let rows: Vec<u64> = due.map(|(row, _)| row.id).take(ask.rows as usize).collect();
            if rows.is_empty() {
                return Ok(Ok(None));
            }
            rows.iter().for_each(|id| *state.leased.entry(*id).or_default() += 1);
            state.given += 1;
            state.acquired += 1;
            state.secs.insert(ask.secs);
            let token = state.given.to_be_bytes().to_vec();
            state.leases.push(Live { token, request: ask.request.clone(), rows });
            state.acquires();
        }
        if state.loses(&ask.request) {
            return Err(unreachable());
        }
        let lease = state.leases.iter().find(|lease| lease.request == ask.request).unwrap();
        let rows = lease.rows.iter().map(|id| state.rows[id].0.clone()).collect();
        let (lease, slow) = (Lease { token: lease.token.clone(), rows }, state.slow);
        drop(state);
        std::thread::sleep(slow);
        Ok(Ok(Some(lease)))
    }

    fn extend(&self, token: &[u8], secs: u64) -> Result<Result<(), Refusal>> {
        let mut state = self.called()?;
        state.secs.insert(secs);
        state.extended += 1;
        let lives = state.leases.iter().any(|lease| lease.token == token);
        Ok(if lives { Ok(()) } else { Err(Refusal::Over("Expired".into())) })
    }

    fn complete(&self, token: &[u8], done: &Done) -> Result<Result<Noted, Refusal>> {
        let mut state = self.called()?;
        if let Some((_, noted)) = state.ended.iter().find(|(ended, _)| ended == token) {
            return Ok(Ok(noted.clone()));
        }
        let Some(at) = state.leases.iter().position(|lease| lease.token == token) else {
            return Ok(Err(Refusal::Over("Expired".into())));
        };
        let room = state.room.unwrap_or(usize::MAX);
        let all: Vec<(u64, bool)> =
            done.gone.iter().map(|id| (*id, true)).chain(done.failed.iter().map(|id| (*id, false))).collect();
        let mut noted = Noted::default();
        for (id, gone) in all.iter().take(room) {
            if !state.leases[at].rows.contains(id) {
                noted.skipped.push(*id);
                continue;
            }
            state.leases[at].rows.retain(|row| row != id);
            if *gone {
                state.rows.remove(id);
                continue;
            }
            let failures = &mut state.rows.get_mut(id).unwrap().1;
            *failures += 1;
            if *failures >= done.max_retries.max(1) {
                state.rows.remove(id);
                state.dead.push(*id);
                noted.dead += 1;
            }
        }
        noted.remaining = all.len().saturating_sub(room) as u64;
        if noted.remaining == 0 {
            state.leases.remove(at);
            state.ended.push((token.to_vec(), noted.clone()));
            if state.loses(token) {
                return Err(unreachable());
            }
        } else if state.loses(&[token, &all.len().to_be_bytes()].concat()) {
            return Err(unreachable());
        }
        Ok(Ok(noted))
    }
}

/// How [`Moody`] takes a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It deletes.
    #[default]
    Willing,
    /// It allows nothing.
    ReadOnly,
    /// It deletes in the next requests, and then allows nothing.
    ReadOnlyAfter(u32),
    /// It never answers.
    Hangs,
    /// The next requests fail as a whole.
    Fails(u32),
    /// It reads its own answer wrong.
    Panics,
    /// It deletes, and says that it failed.
    Lies,
    /// Its marker goes with the first deletion, as where a disk is unmounted.
    Vanishes,
}

/// A store in memory that is in a mood. Some blobs it does not delete, if it is told which; and it keeps what it was asked for.
#[derive(Default)]
pub struct Moody {
    pub inner: InMemory,
    pub mood: Mutex<Mood>,
    /// It says that it cannot.
    pub stubborn: Mutex<Option<Path>>,
    /// It does not allow it.
    pub denied: Mutex<Option<Path>>,
    /// A request that has one of them fails as a whole.
    pub poison: Mutex<Vec<Path>>,
    /// The next reads fail.
    pub unreadable: AtomicU32,
    /// A request takes until this is so, or half a minute.
    pub held_until: Mutex<Option<IsSo>>,
    /// Which paths were asked to go.
    pub asked: Mutex<Vec<Path>>,
    /// By number of paths.
    when_asked: Mutex<BTreeMap<usize, WhenAsked>>,
}

impl Moody {
    /// Does something when it is asked for a path, the first one, the second, or another, before that one goes.
    pub fn when_asked(&self, number: usize, hook: impl FnOnce(&Moody) + Send + 'static) {
        self.when_asked.lock().unwrap().insert(number, Box::new(hook));
    }

    /// Its marker goes, as where a disk is unmounted.
    pub fn loses_marker(&self) {
        self.inner.delete(&Path::from(super::marker::NAME)).now_or_never().unwrap().unwrap();
    }

    /// A request for paths: what happens then.
    fn ask(&self, paths: &[Path]) {
        let mut asked = self.asked.lock().unwrap();
        asked.extend_from_slice(paths);
        let behind = self.when_asked.lock().unwrap().split_off(&(asked.len() + 1));
        let hooks = std::mem::replace(&mut *self.when_asked.lock().unwrap(), behind);
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
        let one_less = |left: u32| left.checked_sub(1);
        if self.unreadable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Err(generic("503"));
        }
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        // What goes is known before it is polled, and the streams outlive this borrow: so the paths are taken out first.
        let paths: Vec<Path> = locations.map(Result::unwrap).collect::<Vec<_>>().now_or_never().unwrap();
        self.ask(&paths);
        let mut mood = self.mood.lock().unwrap();
        let now = *mood;
        *mood = match now {
            Mood::Fails(0..=1) => Mood::Willing,
            Mood::Fails(left) => Mood::Fails(left - 1),
            Mood::ReadOnlyAfter(0..=1) => Mood::ReadOnly,
            Mood::ReadOnlyAfter(left) => Mood::ReadOnlyAfter(left - 1),
            other => other,
        };
        let [stubborn, denied] = [&self.stubborn, &self.denied].map(|path| path.lock().unwrap().clone());
        let poison = self.poison.lock().unwrap().clone();
        let (held_until, began) = (self.held_until.lock().unwrap().clone(), Instant::now());
        let inner = self.inner.clone();
        futures_util::stream::once(async move {
            while held_until.as_ref().is_some_and(|is_so| !is_so()) && began.elapsed() < Duration::from_secs(30) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            match now {
                Mood::Hangs => std::future::pending().await,
                Mood::Panics => panic!("an answer that nobody can read"),
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
                    let marker = futures_util::stream::once(std::future::ready(Ok(Path::from(super::marker::NAME))));
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

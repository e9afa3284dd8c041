//! An S3 bucket in memory that holds deletions back until a test releases them, so that no test depends on the clock. Other tests use a
//! real server; this one needs no installation.

use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use ic_coppice_cli::http_server::{Request, Server};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// The bucket's name.
pub const NAME: &str = "bucket";
/// Maximum number of parallel requests: more than a worker repeats while one is held back.
const THREADS: usize = 8;

/// The treatment of deletions.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mood {
    /// They succeed.
    #[default]
    Deletes,
    /// The deletion with this number, and later ones, are held back.
    Holds(usize),
    /// They fail.
    Fails,
    /// One in five fails: before it is done, after it is done (with a lost answer), or with a request to come later.
    Shakes,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    /// The deleted objects, in order.
    deleted: Vec<String>,
    mood: Mood,
    /// The number of deletions that are held back.
    held: usize,
    /// The number of deletions that failed.
    failed: usize,
    /// The number of deletions that were requested.
    asked: usize,
}

struct Inner {
    server: Server,
    state: Mutex<State>,
    changed: Condvar,
}

/// A bucket; dropping it stops its server.
pub struct Bucket {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Inner {
    fn answer(&self, request: &Request) -> (StatusCode, Bytes) {
        let name = request.path().trim_start_matches(&format!("/{NAME}/")).to_string();
        let mut state = self.state.lock().unwrap();
        match *request.asked.method() {
            Method::PUT => {
                state.objects.insert(name, request.asked.body().clone());
                (StatusCode::OK, Bytes::new())
            }
            Method::GET => match state.objects.get(&name) {
                Some(object) => (StatusCode::OK, object.clone()),
                None => (StatusCode::NOT_FOUND, Bytes::from_static(b"<Error><Code>NoSuchKey</Code></Error>")),
            },
            Method::DELETE => {
                let is_held =
                    |state: &State| matches!(state.mood, Mood::Holds(from) if state.deleted.len() + 1 >= from);
                state.held += 1;
                let mut state = self.changed.wait_while(state, |state| is_held(state)).unwrap();
                state.held -= 1;
                self.changed.notify_all();
                if state.mood == Mood::Fails {
                    state.failed += 1;
                    return (StatusCode::SERVICE_UNAVAILABLE, Bytes::from_static(b"slow down"));
                }
                state.asked += 1;
                let shakes = if state.mood == Mood::Shakes { state.asked % 15 } else { 0 };
                if shakes == 5 || shakes == 10 {
                    state.failed += 1;
                    let codes = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
                    return (codes[usize::from(shakes == 10)], Bytes::from_static(b"slow down"));
                }
                // As in S3, an absent object can be deleted.
                state.objects.remove(&name);
                state.deleted.push(name);
                if shakes == 14 {
                    state.failed += 1;
                    return (StatusCode::BAD_GATEWAY, Bytes::from_static(b"the answer is lost"));
                }
                (StatusCode::NO_CONTENT, Bytes::new())
            }
            _ => panic!("{request:?}"),
        }
    }
}

impl Bucket {
    /// Starts a bucket with these objects.
    pub fn start(objects: impl IntoIterator<Item = String>) -> Self {
        let objects = objects.into_iter().map(|name| (name, Bytes::from_static(b"a blob"))).collect();
        let state = Mutex::new(State { objects, ..State::default() });
        let inner = Arc::new(Inner { server: Server::bind(0).unwrap(), state, changed: Condvar::new() });
        let serve = |_| {
            let inner = inner.clone();
            std::thread::spawn(move || {
                while let Some(request) = inner.server.recv() {
                    let (status, body) = inner.answer(&request);
                    let head = Response::builder().status(status).header("etag", "\"1\"");
                    let head = head.header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT");
                    request.respond(head.body(Body::from(body)).unwrap());
                }
            })
        };
        let threads = (0..THREADS).map(serve).collect();
        Self { inner, threads }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap()
    }

    fn mood(&self, mood: Mood) {
        self.state().mood = mood;
        self.inner.changed.notify_all();
    }

    /// Lets a worker's command use the bucket as its S3, with a request for each deletion.
    pub fn of(&self, mut command: Command) -> Command {
        command
            .env("AWS_ACCESS_KEY_ID", "access")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "us-east-1");
        command.env("AWS_ENDPOINT_URL", self.inner.server.url()).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_DISABLE_BULK_DELETE", "true");
        command
    }

    /// Holds deletions back from this number on, counted from 1.
    pub fn hold_from(&self, number: usize) {
        self.mood(Mood::Holds(number));
    }

    /// Makes deletions fail, including the held ones, and waits until none is held.
    pub fn fail(&self) {
        self.mood(Mood::Fails);
        drop(self.inner.changed.wait_while(self.state(), |state| state.held > 0).unwrap());
    }

    /// Makes some deletions fail, and some lose only the answer.
    pub fn shake(&self) {
        self.mood(Mood::Shakes);
    }

    /// Puts an object into the bucket.
    pub fn put(&self, name: String) {
        self.state().objects.insert(name, Bytes::from_static(b"a blob"));
    }

    /// Makes deletions succeed, including the held ones.
    pub fn delete(&self) {
        self.mood(Mood::Deletes);
    }

    /// Returns whether a deletion is held back.
    pub fn is_holding(&self) -> bool {
        matches!(self.state().mood, Mood::Holds(_)) && self.state().held > 0
    }

    /// Returns the number of deletions that failed so far.
    pub fn failed(&self) -> usize {
        self.state().failed
    }

    /// Returns the existing objects.
    pub fn objects(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// Returns whether an object exists.
    pub fn has(&self, name: &str) -> bool {
        self.state().objects.contains_key(name)
    }

    /// Returns the deleted objects, once for each deletion.
    pub fn deleted(&self) -> Vec<String> {
        self.state().deleted.clone()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // A panic in an answer has poisoned the lock.
        if let Ok(mut state) = self.inner.state.lock() {
            state.mood = Mood::Fails;
        }
        self.inner.changed.notify_all();
        self.threads.iter().for_each(|_| self.inner.server.unblock());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

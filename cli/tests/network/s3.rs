//! A real S3 server on loopback, behind a proxy that records every request and fails one in ten.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use ic_coppice_cli::http_server::{Request, Server};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// The server's bucket.
pub const BUCKET: &str = "blobs";
/// Maximum number of parallel requests.
const THREADS: usize = 8;

/// Returns the Python with an S3 server that `scripts/setup --with-s3` installed or `COPPICE_S3_PYTHON` names, or `None` with a note on
/// stderr.
pub fn python() -> Option<PathBuf> {
    let named = std::env::var_os("COPPICE_S3_PYTHON").map(PathBuf::from);
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/s3-server/bin/python");
    let found = named.or_else(|| installed.is_file().then_some(installed));
    if found.is_none() {
        // Written to stderr directly, because the test harness hides the output of passing tests.
        let note = "not run: the blob workers on S3; scripts/setup --with-s3 installed no server, and COPPICE_S3_PYTHON names none\n";
        std::io::stderr().write_all(note.as_bytes()).unwrap();
    }
    found
}

/// A running server.
pub struct S3 {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub address: String,
}

impl S3 {
    /// Starts a server with these objects in its bucket.
    pub fn start(python: &Path, objects: &[String]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/s3_server.py");
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Self { child, stdin, stdout, address: String::new() };
        server.address = server.line();
        assert_eq!(server.ask(&format!("KEYS {}\n{}", objects.len(), objects.join("\n"))), "done");
        server
    }

    fn send(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{text}").unwrap();
        stdin.flush().unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the S3 server has ended");
        line.trim().to_string()
    }

    /// Returns the number of objects.
    pub fn objects(&mut self) -> usize {
        self.ask("LIST").parse().unwrap()
    }

    /// Returns the number of versions of all objects, without marks of deletions.
    pub fn versions(&mut self) -> usize {
        self.ask("VERSIONS").parse().unwrap()
    }

    /// Sets the bucket's versioning: `Enabled` or `Suspended`.
    pub fn versioning(&mut self, status: &str) {
        assert_eq!(self.ask(&format!("VERSIONING {status}")), "done");
    }

    /// Puts an object into the bucket.
    pub fn put(&mut self, object: &str) {
        assert_eq!(self.ask(&format!("KEYS 1\n{object}")), "done");
    }

    fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.line()
    }

    /// Lets a worker's command use the server.
    pub fn of(&self, mut command: Command) -> Command {
        command
            .env("AWS_ACCESS_KEY_ID", "access")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "us-east-1");
        command.env("AWS_ENDPOINT_URL", format!("http://{}", self.address)).env("AWS_ALLOW_HTTP", "true");
        command
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// The behaviour of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// One request in ten fails: in turn before the proxy passes it on, and after.
    OneInTenFails,
    /// All deletions are refused.
    ReadOnly,
    /// Deletions are not answered.
    Hangs,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The times of the request and of the answer.
    pub at: (Instant, Instant),
    /// The access key of the caller.
    pub by: String,
    /// The objects to delete; empty for other requests.
    pub deletes: BTreeSet<String>,
    /// True if the request was passed on.
    pub passed: bool,
    /// True if the answer was an error.
    pub failed: bool,
}

struct Inner {
    server: Server,
    to: String,
    mood: Mutex<Mood>,
    /// The number of requests so far.
    count: Mutex<u64>,
    record: Mutex<Vec<Asked>>,
}

/// A running proxy; dropping it stops it.
pub struct Proxy {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Proxy {
    pub fn start(to: &str) -> Self {
        let inner = Arc::new(Inner {
            server: Server::bind(0).unwrap(),
            to: to.into(),
            mood: Mutex::new(Mood::OneInTenFails),
            count: Mutex::default(),
            record: Mutex::default(),
        });
        let serve = |_| {
            let inner = inner.clone();
            std::thread::spawn(move || {
                while let Some(request) = inner.server.recv() {
                    inner.answer(request);
                }
            })
        };
        let threads = (0..THREADS).map(serve).collect();
        Self { inner, threads }
    }

    pub fn url(&self) -> String {
        self.inner.server.url()
    }

    pub fn mood(&self, mood: Mood) {
        *self.inner.mood.lock().unwrap() = mood;
    }

    pub fn record(&self) -> Vec<Asked> {
        self.inner.record.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.threads.iter().for_each(|_| self.inner.server.unblock());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn header<'a>(request: &'a Request, name: &'static str) -> &'a str {
    request.asked.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

impl Inner {
    fn answer(&self, request: Request) {
        let began = Instant::now();
        let deletes: BTreeSet<String> = match request.path().ends_with("?delete") {
            true => between(&String::from_utf8_lossy(request.asked.body()), "<Key>", "</Key>"),
            false => BTreeSet::new(),
        };
        let by = header(&request, "authorization").split("Credential=").nth(1).unwrap_or_default();
        let by = by.split('/').next().unwrap_or_default().to_string();
        let number = {
            let mut count = self.count.lock().unwrap();
            *count += 1;
            *count
        };
        let mood = *self.mood.lock().unwrap();
        let is_delete = !deletes.is_empty();
        let note = |passed, failed| {
            let asked = Asked { at: (began, Instant::now()), by: by.clone(), deletes: deletes.clone(), passed, failed };
            self.record.lock().unwrap().push(asked);
        };
        match mood {
            Mood::Hangs if is_delete => {
                note(false, true);
                // Kept open for longer than the worker waits.
                std::thread::sleep(std::time::Duration::from_secs(4));
                return;
            }
            Mood::ReadOnly if is_delete => {
                note(false, true);
                let error = |key: &String| {
                    format!("<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
                };
                let errors: String = deletes.iter().map(error).collect();
                let body =
                    format!("<DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{errors}</DeleteResult>");
                request.respond(body);
                return;
            }
            _ => {}
        }
        let fails = mood == Mood::OneInTenFails && number.is_multiple_of(10);
        if fails && number.is_multiple_of(20) {
            note(false, true);
            request.respond((StatusCode::SERVICE_UNAVAILABLE, "slow down"));
            return;
        }
        let (status, headers, answer) = self.pass_on(&request);
        note(true, fails || status >= 500);
        if fails {
            request.respond((StatusCode::INTERNAL_SERVER_ERROR, "the answer is lost"));
            return;
        }
        let begun = Response::builder().status(status);
        let response = headers.into_iter().fold(begun, |response, (name, value)| response.header(name, value));
        request.respond(response.body(Body::from(answer)).unwrap());
    }

    fn pass_on(&self, request: &Request) -> (u16, Vec<(String, String)>, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.to).unwrap();
        let mut head = format!("{} {} HTTP/1.1\r\nConnection: close\r\n", request.asked.method(), request.path());
        for (name, value) in request.asked.headers() {
            if !["connection", "content-length", "expect", "transfer-encoding"].contains(&name.as_str()) {
                head += &format!("{name}: {}\r\n", value.to_str().unwrap());
            }
        }
        let body = request.asked.body();
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let pairs = lines.filter_map(|line| line.split_once(": "));
        let kept =
            pairs.filter(|(name, _)| !["connection", "content-length"].contains(&name.to_ascii_lowercase().as_str()));
        let headers = kept.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        (status, headers, answer[end + 4..].to_vec())
    }
}

/// Returns all texts between two marks.
fn between(text: &str, from: &str, to: &str) -> BTreeSet<String> {
    text.split(from).skip(1).filter_map(|rest| Some(rest.split_once(to)?.0.to_string())).collect()
}

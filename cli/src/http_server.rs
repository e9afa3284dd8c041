//! Blocking HTTP server: requests arrive over a channel and are answered in turn, over axum.
//!
//! ```text
//! connection ─┐
//! connection ─┼─▶ axum, on a thread of its own ──▶ channel ──▶ recv ──▶ respond
//! connection ─┘              ▲                                             │
//!                            └─────────────────────────────────────────────┘
//! ```
//! An idle connection, as browsers keep them, does not delay the others.

use axum::Router;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::future::IntoFuture;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Longest body of a request, in bytes; no message to a canister is longer. A longer body is answered with 413.
const MAX_BODY: usize = 8 << 20;

/// A request that waits for its answer. A request that is dropped is answered with 500.
#[derive(Debug)]
pub struct Request {
    /// Method, URL and headers, with the whole body.
    pub asked: axum::http::Request<Bytes>,
    answer: oneshot::Sender<Response>,
}

impl Request {
    /// Answers the request. An answer after the client hung up is dropped.
    pub fn respond(self, answer: impl IntoResponse) {
        drop(self.answer.send(answer.into_response()));
    }

    /// Returns the URL's path with its query.
    pub fn path(&self) -> &str {
        self.asked.uri().path_and_query().map_or("/", |path| path.as_str())
    }
}

/// A server on an address of this machine, until it is dropped.
pub struct Server {
    address: SocketAddr,
    came: Mutex<Receiver<Option<Request>>>,
    wake: Sender<Option<Request>>,
    runtime: Option<Runtime>,
}

impl Server {
    /// Listens on a port; 0 picks a free port.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn bind(port: u16) -> io::Result<Self> {
        Self::bind_to((Ipv4Addr::LOCALHOST, port).into())
    }

    /// Listens on an address of this machine, which may be one that other machines reach.
    ///
    /// # Errors
    /// When the address is taken, or is not this machine's.
    pub fn bind_to(address: SocketAddr) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("http").enable_all().build()?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let (wake, came) = channel();
        let pass = wake.clone();
        let pages = Router::new().fallback(move |request| answer(pass.clone(), request));
        runtime.spawn(axum::serve(listener, pages).into_future());
        Ok(Self { address, came: Mutex::new(came), wake, runtime: Some(runtime) })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for the next request whose client still waits; returns `None` after [`unblock`](Self::unblock).
    pub fn recv(&self) -> Option<Request> {
        // The thread that holds the lock waits on the channel; the other threads wait for the lock.
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let request = came.recv().ok().flatten()?;
            if !request.answer.is_closed() {
                return Some(request);
            }
        }
    }

    /// Makes one [`recv`](Self::recv) return without a request.
    pub fn unblock(&self) {
        // Sending cannot fail, because the receiver is in `self`.
        drop(self.wake.send(None));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Sends a request through the channel, and returns its answer.
async fn answer(pass: Sender<Option<Request>>, request: extract::Request) -> Response {
    let (head, body) = request.into_parts();
    // A body with a declared length that is too long is refused before it is read.
    let fits = body.size_hint().lower() <= MAX_BODY as u64;
    let body = if fits { to_bytes(body, MAX_BODY).await.ok() } else { None };
    let Some(body) = body else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    let (answer, answered) = oneshot::channel();
    let asked = axum::http::Request::from_parts(head, body);
    drop(pass.send(Some(Request { asked, answer })));
    answered.await.unwrap_or_else(|_| (StatusCode::INTERNAL_SERVER_ERROR, Body::empty()).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    /// Reads an answer whose body has at most one line.
    fn read(stream: &mut TcpStream) -> String {
        // A longer wait means that the server hangs.
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let (mut answer, mut byte) = (String::new(), [0]);
        let length = |answer: &str| {
            let (head, body) = answer.split_once("\r\n\r\n")?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            Some((length.parse::<usize>().unwrap(), body.len()))
        };
        while length(&answer).is_none_or(|(length, came)| came < length) {
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0].into());
        }
        answer
    }

    #[test]
    fn idle_connection_does_not_block_other_requests() {
        for _ in 0..20 {
            let server = Server::bind(0).unwrap();
            // Opened before the server accepts any.
            let mut open: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(server.address).unwrap()).collect();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while let Some(request) = server.recv() {
                        let path = request.path().to_string();
                        request.respond(path);
                    }
                });
                for page in ["/?a=b", "/next"] {
                    // The first connection stays idle.
                    for stream in &mut open[1..] {
                        write!(stream, "GET {page} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
                    }
                    for stream in &mut open[1..] {
                        let answer = read(stream);
                        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(page), "{answer}");
                    }
                }
                server.unblock();
            });
        }
    }

    #[test]
    fn dropped_request_gets_500_and_long_body_413() {
        let server = Server::bind(0).unwrap();
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody").unwrap();
        let request = server.recv().unwrap();
        assert_eq!((request.asked.method().as_str(), &request.asked.body()[..]), ("POST", &b"body"[..]));
        drop(request);
        assert!(read(&mut stream).starts_with("HTTP/1.1 500"));
        write!(stream, "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n", MAX_BODY + 1).unwrap();
        assert!(read(&mut stream).starts_with("HTTP/1.1 413"));
        // A request whose client hung up is not handed out.
        let (answer, answered) = oneshot::channel();
        drop(answered);
        let asked = axum::http::Request::new(Bytes::new());
        server.wake.send(Some(Request { asked, answer })).unwrap();
        server.unblock();
        assert!(server.recv().is_none());
        assert!(Server::bind(server.address.port()).is_err(), "the port is taken");
    }
}

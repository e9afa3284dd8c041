//! `--listen`: `/metrics` and `/healthz` of a program that runs for months.
//!
//! ```text
//! index, blob-worker ── note ──▶ Watched ◀── GET /metrics, GET /healthz ── Prometheus, a supervisor
//!                                   └──▶ a line a minute, off a terminal
//! ```

use crate::http_server::Server;
use crate::progress::target;
use crate::say;
use anyhow::{Context, Result};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ic_metrics_encoder::MetricsEncoder;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Interval of the lines off a terminal.
const EVERY: Duration = Duration::from_secs(60);
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A program that is watched. Its methods answer at once, whatever the program waits for.
pub trait Watched: Send + Sync + 'static {
    /// Writes the metrics.
    ///
    /// # Errors
    /// When a name is invalid.
    fn metrics(&self, text: &mut MetricsEncoder<Vec<u8>>) -> io::Result<()>;

    /// Returns the reason why the program does no work now.
    fn fault(&self) -> Option<String>;

    /// Returns the line of a minute; `None` if the program writes its own.
    fn line(&self) -> Option<String>;
}

/// A port of a watched program, until it is dropped.
pub struct Listener {
    server: Arc<Server>,
}

impl Listener {
    /// Listens on an address.
    ///
    /// # Errors
    /// When the address is taken, or a thread cannot be started.
    pub fn new(address: SocketAddr, watched: Arc<impl Watched>) -> Result<Self> {
        let bound = Server::bind_to(address).with_context(|| format!("cannot listen on {address} (--listen)"))?;
        let server = Arc::new(bound);
        say!("listening on {}", server.url());
        let (serving, of) = (Arc::clone(&server), Arc::clone(&watched));
        let serve = move || {
            while let Some(request) = serving.recv() {
                let answer = answer(&*of, request.path());
                request.respond(answer);
            }
        };
        std::thread::Builder::new()
            .name("listen".into())
            .spawn(serve)
            .context("cannot start the thread that answers")?;
        if target().is_hidden() {
            let of = Arc::downgrade(&watched);
            let lines = move || {
                loop {
                    std::thread::sleep(EVERY);
                    let Some(watched) = of.upgrade() else { break };
                    if let Some(line) = watched.line() {
                        say!("{line}");
                    }
                }
            };
            std::thread::Builder::new()
                .name("lines".into())
                .spawn(lines)
                .context("cannot start the thread of lines")?;
        }
        Ok(Self { server })
    }

    /// The address, as a URL.
    pub fn url(&self) -> String {
        self.server.url()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.server.unblock();
    }
}

fn answer(watched: &dyn Watched, path: &str) -> Response {
    let plain = |status: StatusCode, text: String| (status, text).into_response();
    match path.split('?').next().unwrap_or_default() {
        "/metrics" => match metrics(watched) {
            Ok(text) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        },
        "/healthz" => match watched.fault() {
            None => plain(StatusCode::OK, "ok\n".into()),
            Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        _ => plain(StatusCode::NOT_FOUND, "there is /metrics and /healthz\n".into()),
    }
}

/// Returns the metrics without times: Prometheus uses that of the scrape.
fn metrics(watched: &dyn Watched) -> io::Result<String> {
    let mut text = MetricsEncoder::new(Vec::new(), NO_TIME);
    watched.metrics(&mut text)?;
    let text = String::from_utf8_lossy(&text.into_inner()).into_owned();
    Ok(text.replace(&format!(" {NO_TIME}\n"), "\n"))
}

/// The time that the encoder writes behind each value; it is removed.
const NO_TIME: i64 = i64::MIN;

/// Returns the present time in Unix seconds.
pub fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// Returns the metrics of a program, by name.
    pub fn read(watched: &dyn Watched) -> BTreeMap<String, f64> {
        let text = metrics(watched).unwrap();
        let values = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let value = |line: &str| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_string(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        };
        values.map(value).collect()
    }

    /// The metrics of the programs in `deploy/monitoring` and on the alerts' page exist.
    #[test]
    fn alerts_and_board_name_metrics_of_the_programs() {
        let files = [
            include_str!("../../deploy/monitoring/alerts.yml"),
            include_str!("../../deploy/monitoring/alerts_test.yml"),
            include_str!("../../deploy/monitoring/grafana.json"),
            include_str!("../../docs/operations/alerts.md"),
        ];
        let mut exist = read(&crate::index::watch::Watch::default());
        exist.extend(read(&crate::blob_worker::watch::Watch::default()));
        let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let mut checked = 0;
        for file in files {
            let words = file.split(|character| !is_of_name(character));
            for name in words.filter(|word| word.starts_with("coppice_indexer_") || word.starts_with("coppice_worker_"))
            {
                assert!(exist.contains_key(name), "{name}");
                checked += 1;
            }
        }
        assert!(checked > 10, "{checked}");
    }

    struct Program(Mutex<Option<String>>);

    impl Watched for Program {
        fn metrics(&self, text: &mut MetricsEncoder<Vec<u8>>) -> io::Result<()> {
            text.encode_gauge("coppice_indexer_lag_blocks", 7.0, "Blocks.")
        }

        fn fault(&self) -> Option<String> {
            self.0.lock().unwrap().clone()
        }

        fn line(&self) -> Option<String> {
            None
        }
    }

    #[test]
    fn health_and_metrics_are_answered_on_their_paths() {
        let program = Arc::new(Program(Mutex::default()));
        let listener = Listener::new(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::clone(&program)).unwrap();
        let get = |path: &str| {
            use std::io::{Read as _, Write as _};
            let mut stream = std::net::TcpStream::connect(listener.url().strip_prefix("http://").unwrap()).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.split(' ').nth(1).unwrap().to_string(), body.to_string())
        };
        assert_eq!(get("/healthz"), ("200".into(), "ok\n".into()));
        *program.0.lock().unwrap() = Some("the database is away".into());
        assert_eq!(get("/healthz"), ("503".into(), "the database is away\n".into()));
        let (status, text) = get("/metrics?x=y");
        assert!(status == "200" && text.ends_with("coppice_indexer_lag_blocks 7\n"), "{status} {text}");
        assert_eq!(get("/").0, "404");
        assert_eq!(read(&*program), BTreeMap::from([("coppice_indexer_lag_blocks".into(), 7.0)]));
    }
}

//! JSON-RPC of a node of the chain, over HTTP. Calls block, and wait for a node that does not answer.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ic_coppice_cli::exit::why;
use ic_coppice_cli::network::is_loopback;
use ic_coppice_cli::stop::{Stop, Waiter};
use ic_coppice_cli::terminal::{Level, stderr};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Duration;
use url::Url;

/// Longest answer, in bytes: a block of a large chain with its receipts has some tens of MiB in JSON.
const MAX_ANSWER: usize = 256 << 20;
/// Longest wait for an answer.
const CALL: Duration = Duration::from_secs(60);
/// Longest wait between two attempts.
const LONGEST: Duration = Duration::from_secs(15);
/// Codes of errors that no repetition helps: the method is unknown, or the argument is invalid.
const FINAL: [i64; 2] = [-32601, -32602];
/// The code of a request that is none: by a node that takes no batches.
const NO_REQUEST: i64 = -32600;
/// Statuses of a server that has no node for this caller at this URL, as long as it has never answered as one.
const NO_NODE: [StatusCode; 4] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];

/// A node that is asked by one caller at a time.
pub struct Node {
    url: Url,
    client: reqwest::Client,
    waiter: Waiter,
    stop: Stop,
    next: Cell<u64>,
    /// There was an answer of JSON-RPC.
    has_answered: Cell<bool>,
    /// The node takes several calls in one request.
    batches: Cell<bool>,
}

/// The command is to end, so that the node is not asked any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ended by a signal")]
pub struct Stopped;

#[derive(Deserialize)]
struct Answer {
    id: Value,
    #[serde(default)]
    result: Value,
    error: Option<Refusal>,
}

/// An answer that is not of JSON-RPC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url} answers {status} without JSON-RPC")]
struct Foreign {
    url: String,
    status: StatusCode,
}

/// An error that the node answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Deserialize)]
#[error("the node answers {message} ({code})")]
struct Refusal {
    code: i64,
    message: String,
}

impl Node {
    /// Creates a client without a call.
    ///
    /// # Errors
    /// When the URL is not of HTTP, or the client cannot be made.
    pub fn new(url: Url, stop: Stop) -> Result<Self> {
        ensure!(
            matches!(url.scheme(), "http" | "https"),
            "{} is not the URL of a node: it must start with http: or https:",
            shown(&url)
        );
        let mut client = reqwest::Client::builder().timeout(CALL);
        if is_loopback(&url) {
            client = client.no_proxy();
        }
        let (client, waiter) = (client.build()?, Waiter::new()?);
        let (next, has_answered, batches) = (Cell::new(1), Cell::new(false), Cell::new(true));
        Ok(Self { url, client, waiter, stop, next, has_answered, batches })
    }

    /// Calls methods in one request, in order, until the node answers all of them.
    ///
    /// # Errors
    /// [`Stopped`]; when the node does not know a method or its argument, or there has never been a node at the URL.
    pub fn call<const N: usize>(&self, calls: [(&str, Value); N]) -> Result<[Value; N]> {
        let mut wait = Duration::from_millis(250);
        loop {
            let error = match self.once(&calls) {
                Ok(answers) => return answers.try_into().map_err(|_| anyhow!("one answer a call")),
                Err(error) if error.is::<Stopped>() => return Err(error),
                Err(error) => error,
            };
            let code = error.downcast_ref().map(|Refusal { code, .. }| *code);
            if N > 1 && code == Some(NO_REQUEST) && self.batches.replace(false) {
                continue;
            }
            let is_no_node = |foreign: &Foreign| !self.has_answered.get() && NO_NODE.contains(&foreign.status);
            if code.is_some_and(|code| FINAL.contains(&code)) || error.downcast_ref().is_some_and(is_no_node) {
                return Err(error);
            }
            let text = format!("{}; asked again in {:.1} s", why(&error), wait.as_secs_f64());
            stderr().note(Level::Warn, "node", &text);
            self.stop.wait(wait);
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// Calls methods in one request, in order, without a second attempt.
    ///
    /// # Errors
    /// [`Stopped`]; when the node does not answer all of them.
    pub fn once(&self, calls: &[(&str, Value)]) -> Result<Vec<Value>> {
        ensure!(!self.stop.is_set(), Stopped);
        let size = if self.batches.get() { calls.len() } else { 1 };
        let mut answers = Vec::with_capacity(calls.len());
        for calls in calls.chunks(size.max(1)) {
            let answered =
                self.waiter.unless(|| self.stop.is_set(), self.post(calls)).unwrap_or_else(|| bail!(Stopped))?;
            answers.extend(answered);
        }
        self.has_answered.set(true);
        Ok(answers)
    }

    async fn post(&self, calls: &[(&str, Value)]) -> Result<Vec<Value>> {
        let first = self.next.get();
        self.next.set(first + calls.len() as u64);
        let requests = calls
            .iter()
            .zip(first..)
            .map(|((method, params), id)| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let mut requests: Vec<Value> = requests.collect();
        let body = if requests.len() == 1 { requests.remove(0) } else { Value::Array(requests) };
        let url = shown(&self.url);
        let sent = self.client.post(self.url.clone()).header("content-type", "application/json");
        let sent = sent.body(body.to_string()).send().await;
        // The error of the library would print the URL, which may hold a key.
        let mut response =
            sent.map_err(|error| anyhow!(error.without_url())).with_context(|| format!("{url} does not answer"))?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(some) = response.chunk().await.map_err(|error| anyhow!(error.without_url()))? {
            ensure!(bytes.len() + some.len() <= MAX_ANSWER, "{url} answers with more than {MAX_ANSWER} bytes");
            bytes.extend_from_slice(&some);
        }
        let answers: Vec<Answer> = match serde_json::from_slice(&bytes) {
            Ok(answers) => answers,
            Err(_) => match serde_json::from_slice::<Answer>(&bytes) {
                // A refusal of one call, or of the whole batch.
                Ok(Answer { error: Some(refusal), .. }) => bail!(refusal),
                Ok(answer) => vec![answer],
                Err(_) => bail!(Foreign { url, status }),
            },
        };
        let mut results = vec![None; calls.len()];
        for Answer { id, result, error } in answers {
            let at = id.as_u64().and_then(|id| usize::try_from(id.checked_sub(first)?).ok());
            let Some(slot) = at.and_then(|at| results.get_mut(at)) else { continue };
            match error {
                Some(refusal) => bail!(refusal),
                None => *slot = Some(result),
            }
        }
        ensure!(results.iter().all(Option::is_some), "{url} leaves calls of a batch unanswered");
        Ok(results.into_iter().flatten().collect())
    }
}

/// Returns a URL without a password, path and query, each of which may hold a key.
fn shown(url: &Url) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

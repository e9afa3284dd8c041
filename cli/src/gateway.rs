//! Local HTTP port that shows a canister's pages, like a gateway.
//!
//! ```text
//! browser ── HTTP ──▶ 127.0.0.1:PORT ── http_request, a query ──▶ canister: in this process, or on a network
//! ```

use crate::client::{Client, Transport, Wait};
use crate::http_server::{Request, Server};
use crate::terminal;
use anyhow::{Context, Result};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use candid::Principal;
use coppice_interface::{HttpRequest, HttpResponse};
use serde_bytes::ByteBuf;

/// Headers that are passed on; a browser sends fewer.
const MAX_HEADERS: usize = 100;

/// Answers requests that are not for a page of the canister; returns `None` for a page.
pub type Own = Box<dyn Fn(&Request) -> Option<Response> + Send + Sync>;

/// A port of 127.0.0.1 that serves a canister's pages.
pub struct Gateway {
    server: Server,
    own: Option<Own>,
}

impl Gateway {
    /// Listens on a port; 0 picks a free port.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn bind(port: u16) -> Result<Self> {
        let server = Server::bind(port).with_context(|| format!("cannot listen on 127.0.0.1:{port} (--port)"))?;
        Ok(Self { server, own: None })
    }

    /// Lets `own` answer requests before the canister does.
    pub fn answering(self, own: Own) -> Self {
        Self { own: Some(own), ..self }
    }

    /// Returns the base URL.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Prints the URL of a page of a canister on stdout, as JSON with the canister, for the process that started this one.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn announce(&self, page: &str, canister: Principal, json: bool) -> Result<()> {
        let url = format!("{}{page}", self.url());
        let line =
            if json { serde_json::json!({ "url": url, "canister": canister.to_text() }).to_string() } else { url };
        Ok(terminal::print(&line)?)
    }

    /// Answers requests until [`stop`](Self::stop).
    pub fn serve(&self, canister: &Client<impl Transport>) {
        while let Some(request) = self.server.recv() {
            let own = self.own.as_ref().and_then(|own| own(&request));
            let answer = own.map_or_else(|| ask(canister, &request), Ok);
            let answer =
                answer.unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, format!("{error:#}\n")).into_response());
            request.respond(answer);
        }
    }

    /// Answers requests while `run` runs, and ends when `run` returns or panics.
    pub fn serve_while<T>(&self, canister: &Client<impl Transport + Sync>, run: impl FnOnce() -> T) -> T {
        struct Stop<'a>(&'a Gateway);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        std::thread::scope(|scope| {
            scope.spawn(|| self.serve(canister));
            // `drop` ends the server before the scope waits for its thread.
            let _stop = Stop(self);
            run()
        })
    }

    /// Ends [`serve`](Self::serve).
    pub fn stop(&self) {
        self.server.unblock();
    }
}

fn ask(canister: &Client<impl Transport>, request: &Request) -> Result<Response> {
    let headers = request.asked.headers().iter().take(MAX_HEADERS);
    let asked = HttpRequest {
        method: request.asked.method().to_string(),
        url: request.path().into(),
        headers: headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
            .collect(),
        // No path of the canister reads the body.
        body: ByteBuf::new(),
        certificate_version: Some(2),
    };
    let HttpResponse { status_code, headers, body, .. } = canister.http_request(&asked).wait()?;
    let begun = Response::builder().status(status_code);
    let response = headers.into_iter().fold(begun, |response, (name, value)| response.header(name, value));
    response.body(Body::from(body.into_vec())).context("the canister's answer is not valid HTTP")
}

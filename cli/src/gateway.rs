//! Local HTTP port that shows a canister's pages, like a gateway.
//!
//! ```text
//! browser ── HTTP ──▶ 127.0.0.1:PORT ── http_request, a query ──▶ canister: in this process, or on a network
//! ```
//! One replica answers a query, and may lie. So a browser gets text from it and nothing that acts: the gateway sets the content security
//! policy, the type and the length, passes only some headers, and follows no redirect. A page's own reload becomes a header of the gateway.

use crate::client::{Client, Transport, Wait};
use crate::http_server::{Request, Server};
use crate::terminal;
use anyhow::{Context, Result, ensure};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use candid::Principal;
use ic_coppice_interface::{HttpRequest, HttpResponse};
use serde_bytes::ByteBuf;
use url::Url;

/// Headers of a request that are passed on; a browser sends fewer.
const MAX_HEADERS: usize = 100;
/// Headers of an answer that are passed on, besides its type: no browser acts on them.
const PASSED: [&str; 4] = ["allow", "x-coppice-source", "ic-certificate", "ic-certificateexpression"];
/// Types of an answer that are passed on; others become the second one.
const TYPES: [&str; 4] =
    [HTML, "text/plain; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8", "application/json; charset=utf-8"];
const HTML: &str = "text/html; charset=utf-8";
/// The attribute with which a page acts like a header; the gateway writes another one in its place.
const ACTING: (&str, &str) = ("http-equiv", "data-equiv");
/// Headers that the gateway sets: a page may load and run nothing, except its own style.
const OWN: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
    ),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// Answers requests that are not for a page of the canister; returns `None` for a page.
pub type Own = Box<dyn Fn(&Request) -> Option<Response> + Send + Sync>;

/// A port of 127.0.0.1 that serves a canister's pages.
pub struct Gateway {
    server: Server,
    own: Option<Own>,
    /// The network that the commands of the pages name in place of the mainnet.
    network: Option<String>,
}

impl Gateway {
    /// Listens on a port; 0 picks a free port.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn bind(port: u16) -> Result<Self> {
        let server = Server::bind(port).with_context(|| format!("cannot listen on 127.0.0.1:{port} (--port)"))?;
        Ok(Self { server, own: None, network: None })
    }

    /// Lets `own` answer requests before the canister does.
    pub fn answering(self, own: Own) -> Self {
        Self { own: Some(own), ..self }
    }

    /// Names a network in the commands of the pages.
    pub fn naming(self, network: String) -> Self {
        Self { network: Some(network), ..self }
    }

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
            let answer = own.map_or_else(|| ask(canister, &request, self.network.as_deref()), Ok);
            let answer = answer
                .unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, crate::exit::why(&error) + "\n").into_response());
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

fn ask(canister: &Client<impl Transport>, request: &Request, network: Option<&str>) -> Result<Response> {
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
    let mut answer = canister.http_request(&asked).wait()?;
    if let Some(network) = network
        && let Ok(text) = std::str::from_utf8(&answer.body)
    {
        answer.body = on_network(text, network).into_bytes().into();
    }
    inert(answer)
}

/// Domains of the mainnet, whose root key is built in and must not be fetched.
pub const MAINNET: [&str; 4] = ["icp-api.io", "icp0.io", "ic0.app", "internetcomputer.org"];

/// Returns whether a URL names the mainnet.
pub fn is_mainnet(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    MAINNET.iter().any(|name| host.strip_suffix(name).is_some_and(|sub| sub.is_empty() || sub.ends_with('.')))
}

/// Returns a text with the network of its commands, which is the mainnet (`-n ic`) in the canister's words.
pub fn on_network(text: &str, url: &str) -> String {
    let network = url.trim_end_matches('/');
    match Url::parse(url).is_ok_and(|url| is_mainnet(&url)) {
        true => text.into(),
        false => text.replace(" -n ic ", &format!(" -n {network} -k fetch ")),
    }
}

/// Returns the answer of a replica without anything in it that acts in a browser.
///
/// # Errors
/// When the answer is a redirect, or not valid HTTP.
fn inert(answer: HttpResponse) -> Result<Response> {
    let HttpResponse { status_code, headers, body, .. } = answer;
    ensure!(
        matches!(status_code, 200 | 400..600),
        "the replica's answer has the status {status_code}, which no page has"
    );
    let value =
        |of: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(of)).map(|(_, value)| value.as_str());
    let content_type = TYPES.into_iter().find(|known| Some(*known) == value("content-type")).unwrap_or(TYPES[1]);
    let mut response = Response::builder().status(status_code).header(header::CONTENT_TYPE, content_type);
    for (name, value) in PASSED.iter().filter_map(|name| Some((*name, value(name)?))) {
        response = response.header(name, value);
    }
    for (name, value) in OWN {
        response = response.header(name, HeaderValue::from_static(value));
    }
    let mut body = body.into_vec();
    if content_type == HTML {
        let (page, reload) = without_acting(&String::from_utf8_lossy(&body));
        body = page.into_bytes();
        if let Some(secs) = reload {
            response = response.header(header::REFRESH, secs);
        }
    }
    // The server sets the length.
    response.body(Body::from(body)).context("the replica's answer is not valid HTTP")
}

/// Returns a page whose elements do not act like headers, and the seconds after which the page wants to be reloaded.
fn without_acting(page: &str) -> (String, Option<u32>) {
    let lower = page.to_ascii_lowercase();
    let reload = lower.split_once("<meta http-equiv=\"refresh\" content=\"").and_then(|(_, rest)| rest.split_once('"'));
    let (mut kept, mut from) = (String::with_capacity(page.len()), 0);
    for (at, found) in lower.match_indices(ACTING.0) {
        kept.push_str(&page[from..at]);
        kept.push_str(ACTING.1);
        from = at + found.len();
    }
    kept.push_str(&page[from..]);
    (kept, reload.and_then(|(secs, _)| secs.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_network_of_the_port() {
        let action = "Top up. Type: `icp canister top-up -n ic --amount 1t aaaaa-aa`.";
        assert_eq!(on_network(action, "https://icp-api.io/"), action);
        let here = "Top up. Type: `icp canister top-up -n http://127.0.0.1:1 -k fetch --amount 1t aaaaa-aa`.";
        assert_eq!(on_network(action, "http://127.0.0.1:1/"), here);
    }

    #[test]
    fn page_keeps_its_reload_and_loses_what_acts_like_a_header() {
        let own = "<html><meta http-equiv=\"refresh\" content=\"30\"><body>Block</body>";
        assert_eq!(without_acting(own), (own.replace("http-", "data-"), Some(30)));
        assert_eq!(without_acting("<p>Ünder</p>"), ("<p>Ünder</p>".into(), None));
        for lie in [
            "<meta http-equiv=\"refresh\" content=\"0;url=http://evil\">",
            "<META HTTP-EQUIV=refresh content='0;url=http://evil'>",
            "<meta content=\"0;url=http://evil\" <meta http-equiv=\"refresh\" content=\"\">",
            "<meta http-http-equivequiv=refresh content=0;//evil>",
            "<meta http-equiv=\"set-cookie\" content=\"a=b\">",
        ] {
            let (page, reload) = without_acting(lie);
            assert!(!page.to_ascii_lowercase().contains(ACTING.0), "{page}");
            assert_eq!((reload, page.len()), (None, lie.len()), "{lie}");
        }
        // A page in another encoding is read as UTF-8, which the header names.
        let wide: Vec<u8> = "<meta http-equiv".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let body = [&[0xFF, 0xFE], &wide[..]].concat();
        let answer = |status_code, of: &str, body: &[u8]| {
            let headers = [("Content-Type", of), ("Location", "http://evil"), ("X-Coppice-Source", "one replica")];
            let headers = headers.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
            HttpResponse { status_code, headers, body: body.to_vec().into(), upgrade: None }
        };
        let shown = inert(answer(200, HTML, &body)).unwrap();
        assert_eq!(shown.headers()[header::CONTENT_TYPE], HTML);
        let read = pollster::block_on(axum::body::to_bytes(shown.into_body(), 1_000)).unwrap();
        assert!(!read.starts_with(&[0xFF]) && std::str::from_utf8(&read).is_ok());
        for (of, shown) in [(TYPES[2], TYPES[2]), ("image/svg+xml", TYPES[1]), ("text/html; charset=utf-16", TYPES[1])]
        {
            let headers = inert(answer(503, of, b"")).unwrap().headers().clone();
            assert_eq!(
                (&headers[header::CONTENT_TYPE], headers.get(header::LOCATION)),
                (&HeaderValue::from_static(shown), None)
            );
            assert_eq!(headers["x-coppice-source"], "one replica");
        }
        for status in [0, 100, 101, 199, 201, 204, 301, 302, 307, 399, 600, u16::MAX] {
            assert!(inert(answer(status, HTML, b"")).is_err(), "{status}");
        }
        assert!(inert(answer(599, HTML, b"")).is_ok());
    }
}

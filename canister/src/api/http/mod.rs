//! HTTP: the dashboard `/`, pages of kept data `/block/NUMBER` and `/tx/ID`, and `/metrics`, `/logs`, `/health`.
//!
//! Every response names its origin. The response to a query comes from one replica and its content is not certified; the subnet certifies
//! only that certification is skipped (`api/certified.rs`), so that verifying gateways pass the response on. The response to an update call comes
//! from the subnet.

mod answer;
mod json;
mod metrics;
mod page;

use crate::api::certified;
use crate::state::State;
use answer::{Answer, source};
use ic_coppice_interface::{HttpRequest, HttpResponse};
use serde_bytes::ByteBuf;

/// Maximum bytes of a URL.
const MAX_URL: usize = 2_048;
/// Content security policy: a page may load nothing except its own style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Returns the response of a path.
fn route(state: &State, url: &str) -> Answer {
    if url.len() > MAX_URL {
        return Answer::text(414, format!("a URL has at most {MAX_URL} bytes\n"));
    }
    let url = url.split('#').next().unwrap_or_default();
    let (path, parameters) = url.split_once('?').unwrap_or((url, ""));
    match path {
        "/" | "" => page::answer(state, parameters),
        "/metrics" => metrics::answer(state),
        "/health" => json::health(state),
        "/logs" => json::logs(state, parameters),
        _ => match path.trim_start_matches('/').split_once('/') {
            Some(("block", number)) => page::block(state, number),
            Some(("tx", id)) => page::transaction(state, id),
            _ => Answer::text(404, "there is /, /block/NUMBER, /tx/ID, /metrics, /health and /logs\n"),
        },
    }
}

/// Responds to a request.
pub fn respond(state: &State, request: &HttpRequest) -> HttpResponse {
    let answer = match request.method.as_str() {
        "GET" | "HEAD" => route(state, &request.url),
        _ => Answer::text(405, "GET and HEAD only\n"),
    };
    let mut headers = vec![
        ("Content-Type", answer.content_type),
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", POLICY),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Coppice-Source", source()),
    ];
    if answer.status == 405 {
        headers.push(("Allow", "GET, HEAD"));
    }
    let own = headers.into_iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let body = if request.method == "HEAD" { Vec::new() } else { answer.body };
    HttpResponse {
        status_code: answer.status,
        headers: own.chain(certified::headers(&state.chain)).collect(),
        body: ByteBuf::from(body),
        upgrade: None,
    }
}

/// Adds the headers of the certification to the host's response.
pub fn certified(state: &State, mut response: HttpResponse) -> HttpResponse {
    response.headers.extend(certified::headers(&state.chain));
    response
}

#[cfg(test)]
mod tests;

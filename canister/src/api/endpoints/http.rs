//! HTTP, as gateways ask for it.

use crate::api::{http, wire};
use crate::state::read;
use candid::candid_method;
use coppice_interface::{HttpRequest, HttpResponse};
use ic_cdk::query;

/// Answers an HTTP request; for anyone. `/` is a page that shows how the canister is, `/metrics` what a Prometheus
/// server scrapes, `/health` JSON with status 200 or 503, `/logs` the log as JSON where `public_logs` is set, else
/// status 403; 400 is a parameter that makes no sense, 404 another path, 405 another method than `GET` and `HEAD`, 414
/// a longer `url` than 2,048 bytes. A query's answer is one replica's: its content is not certified.
#[candid_method(query)]
#[query(guard = "wire::readable_http", hidden = true, decode_with = "wire::arg")]
fn http_request(request: HttpRequest) -> HttpResponse {
    read(|state| http::respond(state, &request))
}

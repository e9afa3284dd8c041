//! Endpoint for HTTP gateways.

use crate::api::http;
use crate::host;
use crate::state::read;
use ic_coppice_interface::{HttpRequest, HttpResponse};

pub fn http_request(request: HttpRequest) -> HttpResponse {
    match host::answer(&request) {
        Some(answer) => read(|state| http::certified(state, answer)),
        None => read(|state| http::respond(state, &request)),
    }
}

//! Endpoint for HTTP gateways.

use crate::api::http;
use crate::host;
use crate::state::read;
use ic_coppice_interface::{HttpRequest, HttpResponse};

pub fn http_request(request: HttpRequest) -> HttpResponse {
    let of_host = host::answer(&request);
    read(|state| of_host.map_or_else(|| http::respond(state, &request), |answer| http::certified(state, answer)))
}

//! Endpoint for HTTP gateways.

use crate::api::http;
use crate::state::read;
use coppice_interface::{HttpRequest, HttpResponse};

pub fn http_request(request: HttpRequest) -> HttpResponse {
    read(|state| http::respond(state, &request))
}

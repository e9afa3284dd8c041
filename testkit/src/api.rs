//! Answers to agents on the port of a canister's pages, and roles for the identities of their users.

use crate::embedded::Embedded;
use crate::replica::{Answer, Replica};
use anyhow::Result;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use candid::Principal;
use ic_coppice_client::Client;
use ic_coppice_client::command::Wait;
use ic_coppice_interface::{Grant, Role};

/// Where agents send their requests.
const PREFIX: &str = "/api/";
/// The roles of an identity that may change the canister. An exporter would hold back pruning until it acknowledges; an operator registers
/// it.
const ROLES: [Role; 4] = [Role::Operator, Role::Admin, Role::Producer, Role::BlobWorker];
/// Headers with which a browser lets the scripts of all pages call the interface, as on the platform.
const CORS: [(&str, &str); 3] = [
    ("access-control-allow-origin", "*"),
    ("access-control-allow-methods", "GET, POST, OPTIONS"),
    ("access-control-allow-headers", "content-type, cookie"),
];

/// Returns a replica's answer to an agent's request, or `None` if the path is none of the interface.
pub fn answer(replica: &Replica, method: &Method, path: &str, body: &[u8]) -> Option<Response> {
    path.starts_with(PREFIX).then(|| answered(replica, method, path, body))
}

fn answered(replica: &Replica, method: &Method, path: &str, body: &[u8]) -> Response {
    if method == Method::OPTIONS {
        return (StatusCode::NO_CONTENT, CORS).into_response();
    }
    if method != Method::GET && method != Method::POST {
        return (StatusCode::METHOD_NOT_ALLOWED, CORS).into_response();
    }
    let answer = replica.answer(path, body);
    let Answer { status, body } =
        answer.unwrap_or_else(|error| Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")));
    (status, CORS, [("content-type", "application/cbor")], body).into_response()
}

/// Gives principals the roles of operator, admin, producer and blob worker, and control of the canister.
///
/// # Errors
/// When the canister refuses.
pub fn allow(client: &Client<Embedded>, principals: &[Principal]) -> Result<()> {
    for &principal in principals {
        for role in ROLES {
            client.grant_role(&Grant { principal, role }).done()?;
        }
    }
    client.transport().add_controllers(principals)
}

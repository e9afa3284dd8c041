//! From HTTP to `http_request`, and back.

use crate::client::{Client, Transport, Wait};
use anyhow::{Context, Result, anyhow};
use coppice_interface::{HttpRequest, HttpResponse};
use serde_bytes::ByteBuf;
use std::net::SocketAddr;
use tiny_http::{Header, Request, Response, Server};

/// Headers that are passed on: more than a browser sends.
const MAX_HEADERS: usize = 100;

/// A port on which a canister's pages are.
pub struct Gateway {
    server: Server,
    address: SocketAddr,
}

impl Gateway {
    /// Takes a port; 0: any that is free.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let server = Server::http(address).map_err(|error| anyhow!("cannot listen on {address}: {error} (--port)"))?;
        let address = server.server_addr().to_ip().context("no port")?;
        Ok(Self { server, address })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers requests until [`stop`](Self::stop).
    ///
    /// # Errors
    /// When the port cannot be read any more.
    pub fn serve(&self, canister: &Client<impl Transport>) -> Result<()> {
        for request in self.server.incoming_requests() {
            let answer = ask(canister, &request)
                .unwrap_or_else(|error| Response::from_string(format!("{error:#}\n")).with_status_code(502));
            // Who hangs up does not want the answer.
            drop(request.respond(answer));
        }
        Ok(())
    }

    /// Answers requests while something else runs, and ends with that, however it ends. Where serving fails the process ends: nobody
    /// looks any more at what runs.
    pub fn serve_while<T>(&self, canister: &Client<impl Transport + Sync>, run: impl FnOnce() -> T) -> T {
        struct Stop<'a>(&'a Gateway);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Err(error) = self.serve(canister) {
                    eprintln!("{error:#}");
                    std::process::exit(1);
                }
            });
            // The scope waits for the thread.
            let _stop = Stop(self);
            run()
        })
    }

    /// Has [`serve`](Self::serve) end.
    pub fn stop(&self) {
        self.server.unblock();
    }
}

fn ask(canister: &Client<impl Transport>, request: &Request) -> Result<Response<std::io::Cursor<Vec<u8>>>> {
    let header = |header: &Header| (header.field.to_string(), header.value.to_string());
    let asked = HttpRequest {
        method: request.method().to_string(),
        url: request.url().into(),
        headers: request.headers().iter().take(MAX_HEADERS).map(header).collect(),
        // No path of the canister looks at one.
        body: ByteBuf::new(),
        certificate_version: Some(2),
    };
    let HttpResponse { status_code, headers, body, .. } = canister.http_request(&asked).wait()?;
    let mut response = Response::from_data(body.into_vec()).with_status_code(status_code);
    for (name, value) in headers {
        let header = Header::from_bytes(name.as_bytes(), value.as_bytes());
        response.add_header(header.map_err(|()| anyhow!("no header of HTTP: {name}"))?);
    }
    Ok(response)
}

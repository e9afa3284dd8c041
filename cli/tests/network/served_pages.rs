//! A canister's pages from a network: `coppice serve --network`, and the check of a verifying gateway.

use crate::net::Net;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use candid::{Decode, Encode, Principal};
use ic_coppice_cli::gateway::Gateway;
use ic_coppice_host::certificate::real_time;
use ic_coppice_interface::HttpRequest as Asked;
use ic_coppice_interface::HttpResponse as Answer;
use ic_http_certification::{HttpRequest, HttpResponse, StatusCode};
use ic_response_verification::{MIN_VERIFICATION_VERSION, verify_request_response_pair};
use serde_bytes::ByteBuf;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn gateway_serves_a_canisters_pages_on_a_local_port() {
    let net = Net::start();
    let gateway = Gateway::bind(0).unwrap();
    let (client, address) = (net.client(), gateway.url().replace("http://", ""));
    std::thread::scope(|scope| {
        scope.spawn(|| gateway.serve(&client));
        let answer = get(&address, "/health");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"healthy\":true"), "{answer}");
        assert!(get(&address, "/").contains(&net.canister.to_string()));
        // The network fails for a while.
        net.gateway.fail(1_000);
        let answer = get(&address, "/health");
        net.gateway.fail(0);
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(get(&address, "/health").starts_with("HTTP/1.1 200"));
        gateway.stop();
    });
}

#[test]
fn serve_command_shows_a_canister_of_a_network() {
    let net = Net::start();
    let mut command = net.command(&["serve", "--port", "0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_else(|| panic!("{line}"));
    let answer = get(address, "/metrics");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("coppice_healthy 1 "), "{answer}");
}

/// A page that would act in the reader's browser, from a replica that signs it.
#[test]
fn page_of_a_lying_replica_is_shown_without_anything_that_acts() {
    let net = Net::start();
    let gateway = Gateway::bind(0).unwrap();
    let (client, address) = (net.client(), gateway.url().replace("http://", ""));
    let truth = gateway.serve_while(&client, || {
        let truth = get(&address, "/?refresh=7");
        let lies = |status_code: u16, headers: &[(&str, &str)], body: &str| {
            let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let body = ByteBuf::from(body.as_bytes());
            let lie = Encode!(&Answer { status_code, headers, body, upgrade: None }).unwrap();
            net.gateway.lie(Some(Box::new(move |_, _| lie.clone())));
            get(&address, "/").to_ascii_lowercase()
        };
        let page = "<html><meta http-equiv=\"refresh\" content=\"0;url=http://evil\"><script>fetch('http://evil')</script></html>";
        let headers = [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Security-Policy", "default-src * 'unsafe-inline'"),
            ("Set-Cookie", "session=evil"),
            ("Location", "http://evil"),
            ("Refresh", "0;url=http://evil"),
            ("Content-Length", "5"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Encoding", "gzip"),
            ("Access-Control-Allow-Origin", "*"),
            ("Clear-Site-Data", "\"*\""),
            ("Cache-Control", "max-age=31536000"),
            ("X-Coppice-Source", "one replica"),
        ];
        let shown = lies(200, &headers, page);
        let (head, body) = shown.split_once("\r\n\r\n").unwrap();
        assert_eq!(body.len(), page.len(), "the length is that of the body");
        assert!(
            head.contains(&format!("content-length: {}\r\n", page.len())) && !body.contains("http-equiv"),
            "{shown}"
        );
        assert!(
            head.contains("content-security-policy: default-src 'none';") && head.contains("cache-control: no-store")
        );
        let named: Vec<&str> = head.lines().skip(1).filter_map(|line| line.split(':').next()).collect();
        let mut expected = vec!["content-type", "x-coppice-source", "content-security-policy", "cache-control"];
        expected.extend(["x-content-type-options", "referrer-policy", "content-length", "connection", "date"]);
        let sorted = |mut names: Vec<&str>| {
            names.sort_unstable();
            names.join(" ")
        };
        assert_eq!(sorted(named), sorted(expected), "{head}");
        for status in [100, 204, 302, 307, 700] {
            let shown = lies(status, &headers, page);
            assert!(shown.starts_with("http/1.1 502") && !shown.contains("evil"), "{status}: {shown}");
        }
        let shown = lies(200, &[("Content-Type", "image/svg+xml"), ("X-Coppice-Source", "a\r\nset-cookie: b=c")], page);
        assert!(shown.starts_with("http/1.1 502") && !shown.contains("cookie"), "{shown}");
        let shown = lies(200, &[("Content-Type", "image/svg+xml")], page);
        assert!(shown.contains("content-type: text/plain; charset=utf-8\r\n"), "{shown}");
        truth
    });
    // The canister's own page keeps its policy, and its reload as a header.
    assert!(truth.starts_with("HTTP/1.1 200") && truth.contains("\r\nrefresh: 7\r\n"), "{truth}");
    let asked = Asked {
        method: "GET".into(),
        url: "/".into(),
        headers: Vec::new(),
        body: ByteBuf::new(),
        certificate_version: None,
    };
    let reply =
        net.host.query_call(net.canister, Principal::anonymous(), "http_request", Encode!(&asked).unwrap()).unwrap();
    for (name, value) in Decode!(&reply, Answer).unwrap().headers {
        let is_kept = truth.contains(&format!("\r\n{}: {value}\r\n", name.to_ascii_lowercase()));
        assert!(is_kept || name == "IC-Certificate", "{name}: {value}: {truth}");
    }
}

/// The headers of the embedded host, whose subnet signs its certificates, verified with a gateway's own code.
#[test]
fn every_page_passes_a_verifying_gateway() {
    let net = Net::start();
    for (path, status) in [("/", 200), ("/metrics", 200), ("/health", 200), ("/logs", 403), ("/nothing?at=all", 404)] {
        let asked = Asked {
            method: "GET".into(),
            url: path.into(),
            headers: Vec::new(),
            body: ByteBuf::new(),
            certificate_version: Some(2),
        };
        let anonymous = Principal::anonymous();
        let reply = net.host.query_call(net.canister, anonymous, "http_request", Encode!(&asked).unwrap()).unwrap();
        let answer = Decode!(&reply, Answer).unwrap();
        let verify = |headers: Vec<(String, String)>| {
            let response = HttpResponse::builder()
                .with_status_code(StatusCode::from_u16(answer.status_code).unwrap())
                .with_headers(headers)
                .with_body(answer.body.to_vec())
                .build();
            let (request, canister) = (HttpRequest::get(path).build(), net.canister.as_slice());
            verify_request_response_pair(
                request,
                response,
                canister,
                real_time().into(),
                300_000_000_000,
                &net.gateway.root_key(),
                MIN_VERIFICATION_VERSION,
            )
        };
        // The same headers with a certificate of other data.
        let other = net.host.keys().of_data(net.canister, &[7; 32], real_time()).unwrap();
        let replaced = answer.headers.iter().map(|(name, value)| {
            if name != "IC-Certificate" {
                return (name.clone(), value.clone());
            }
            let (begin, rest) = value.split_once("certificate=:").unwrap();
            let (_, rest) = rest.split_once(':').unwrap();
            (name.clone(), format!("{begin}certificate=:{}:{rest}", BASE64.encode(&other)))
        });
        let replaced: Vec<(String, String)> = replaced.collect();
        assert_eq!(answer.status_code, status, "{path}");
        let verified = verify(answer.headers.clone()).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(verified.verification_version, 2, "{path}");
        // Answers with another root, or without a certificate, are refused.
        assert!(verify(replaced).is_err(), "{path}");
        assert!(verify(Vec::new()).is_err(), "{path}");
    }
}

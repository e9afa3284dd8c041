//! PostgreSQL over TLS, with a certificate of a test's own authority.

use super::World;
use super::servers::{Server, directory, not_run, openssl};
use crate::running::{Running, stderr_of};

/// Names of the server that its certificate holds.
const NAMES: &str = "subjectAltName=IP:127.0.0.1,DNS:localhost";

#[test]
fn blocks_go_to_a_server_whose_certificate_proves_itself_and_to_no_other() {
    let test = "blocks_go_to_a_server_whose_certificate_proves_itself_and_to_no_other";
    let dir = directory();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let authority = |name: &str| {
        let files = [&format!("{name}.key"), &format!("{name}.pem")].map(|name| path(name));
        let args = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=an authority"];
        openssl(&[&args[..], &["-keyout", &files[0], "-out", &files[1]]].concat())
    };
    if !authority("ca") || !authority("other") {
        return not_run(test, "OpenSSL");
    }
    let (request, names) = (path("server.csr"), path("names"));
    std::fs::write(&names, NAMES).unwrap();
    let args = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"];
    assert!(openssl(&[&args[..], &["-keyout", &path("server.key"), "-out", &request]].concat()));
    let signs = ["-CA", &path("ca.pem"), "-CAkey", &path("ca.key"), "-CAcreateserial", "-extfile", &names];
    let args = ["x509", "-req", "-days", "2", "-in", &request, "-out", &path("server.pem")];
    assert!(openssl(&[&args[..], &signs].concat()));
    let [certificate, key] = [("cert", "pem"), ("key", "key")]
        .map(|(setting, end)| format!("ssl_{setting}_file={}", path(&format!("server.{end}"))));
    let Some(server) = Server::start(test, &["ssl=on", "log_connections=on", &certificate, &key]) else { return };

    let world = World::new();
    let url = |ca: &str| format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), path(ca));
    let output = world.index(&url("ca.pem"), &["--until-caught-up"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr_of(&output));
    assert_eq!((world.bound(), server.rows()), (world.next(), super::BLOCKS));
    assert!(server.log().contains("SSL enabled"), "{}", server.log());
    // The authority of the certificate is another one.
    let mut refused = Running::start(world.index(&url("other.pem"), &["--until-caught-up"]));
    refused.wait_for_line("certificate", 1);
}

//! Certification for HTTP gateways: the certified data say that certification is skipped for all responses.
//!
//! ```text
//! certified data = root of   ┌─ "chain"      empty: reserved for certified data of the chain
//!                      fork ─┤
//!                            └─ "http_expr" ── "<*>" ── hash of the expression that certification is skipped ── ""
//! ```
//! A gateway looks up `http_expr` in the witness and compares the witness's root with the certified data. So the part under `chain` may
//! change without affecting gateways.

use crate::platform;
use ic_certification::{HashTree, empty, fork, labeled};
use ic_http_certification::utils::add_v2_certificate_header;
use ic_http_certification::{
    CERTIFICATE_EXPRESSION_HEADER_NAME, DefaultCelBuilder, HttpCertification, HttpCertificationPath,
    HttpCertificationTree, HttpCertificationTreeEntry, HttpResponse,
};

/// Label of the chain's certified data.
const CHAIN: &str = "chain";

/// Returns the path that matches all paths.
fn anything() -> HttpCertificationPath<'static> {
    HttpCertificationPath::wildcard("")
}

/// Returns the whole tree with the chain's part. The whole tree is the witness of every response, because it shows that there is no other
/// path.
fn tree(chain: HashTree) -> HashTree {
    let mut http = HttpCertificationTree::default();
    http.insert(&HttpCertificationTreeEntry::new(anything(), HttpCertification::skip()));
    fork(labeled(CHAIN, chain), http.as_hash_tree())
}

/// Root of the tree while nothing of the chain is certified. A constant, because hashing the tree would cost an upgrade 130,000
/// instructions.
const ROOT: [u8; 32] = [
    0xba, 0xe4, 0xa5, 0x43, 0xb1, 0xe7, 0x03, 0x6f, 0x7d, 0x83, 0x35, 0x6a, 0x62, 0x9e, 0x28, 0xac, 0x6b, 0x51, 0x2a,
    0x98, 0x4f, 0xa7, 0x3a, 0x7b, 0x73, 0xc7, 0x7a, 0xb0, 0xd9, 0x77, 0x93, 0xba,
];

/// Sets the root of the tree as certified data.
pub fn certify() {
    platform::set_certified_data(&ROOT);
}

/// Returns the headers by which a gateway verifies a response. Returns none without a certificate, which is absent in update calls.
pub fn headers(certificate: Option<Vec<u8>>) -> Vec<(String, String)> {
    let Some(certificate) = certificate else { return Vec::new() };
    let expression =
        (CERTIFICATE_EXPRESSION_HEADER_NAME.to_string(), DefaultCelBuilder::skip_certification().to_string());
    let mut response = HttpResponse::builder().with_headers(vec![expression]).build();
    add_v2_certificate_header(&certificate, &mut response, &tree(empty()), &anything().to_expr_path());
    response.headers().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;
    use ic_certification::{LookupResult, leaf};
    use ic_http_certification::utils::skip_certification_certified_data;

    #[test]
    fn certifying_the_chain_keeps_the_path_of_gateways() {
        let alone = tree(empty());
        let joined = tree(labeled("root", leaf([7; 32])));
        assert_ne!(alone.digest(), joined.digest());
        for tree in [&alone, &joined] {
            let paths: Vec<Vec<String>> = tree
                .list_paths()
                .into_iter()
                .map(|path| path.iter().map(|label| String::from_utf8_lossy(label.as_bytes()).into_owned()).collect())
                .collect();
            assert!(
                paths.iter().any(|path| path[0] == "http_expr" && path[1] == "<*>" && path.len() == 3),
                "{paths:?}"
            );
        }
        assert!(matches!(joined.lookup_path(["chain", "root"]), LookupResult::Found(bytes) if bytes == [7; 32]));
        // The subtree equals the tree that the library creates for canisters that certify nothing else.
        let mut http = HttpCertificationTree::default();
        http.insert(&HttpCertificationTreeEntry::new(anything(), HttpCertification::skip()));
        assert_eq!(http.root_hash(), skip_certification_certified_data());
    }

    #[test]
    fn the_root_is_certified_and_responses_have_the_certificate() {
        native::reset();
        certify();
        let root = native::with(|world| world.certified_data);
        assert_eq!(root, tree(empty()).digest(), "ROOT equals the hash of the tree");
        assert_eq!(headers(None), []);
        let found = headers(Some(b"certificate".to_vec()));
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["IC-CertificateExpression", "IC-Certificate"]);
        assert!(found[1].1.starts_with("certificate=:Y2VydGlmaWNhdGU=:, tree=:"), "{}", found[1].1);
    }
}

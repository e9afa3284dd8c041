//! What the subnet certifies for gateways: that the content of no answer is certified.
//!
//! ```text
//! certified data = root of   ┌─ "chain"      empty: the place of what will be certified of the chain
//!                      fork ─┤
//!                            └─ "http_expr" ── "<*>" ── hash of the expression that certification is skipped ── ""
//! ```
//! A gateway looks `http_expr` up in the witness and compares the witness's root with the certified data. So what stands under `chain`
//! may change without changing what gateways verify.

use crate::platform;
use ic_certification::{HashTree, empty, fork, labeled};
use ic_http_certification::utils::add_v2_certificate_header;
use ic_http_certification::{
    CERTIFICATE_EXPRESSION_HEADER_NAME, DefaultCelBuilder, HttpCertification, HttpCertificationPath,
    HttpCertificationTree, HttpCertificationTreeEntry, HttpResponse,
};

/// What is certified of the chain.
const CHAIN: &str = "chain";

/// Any path.
fn anything() -> HttpCertificationPath<'static> {
    HttpCertificationPath::wildcard("")
}

/// The whole tree, with what is certified of the chain: the same for each answer, as a witness it shows that there is no other path.
fn tree(chain: HashTree) -> HashTree {
    let mut http = HttpCertificationTree::default();
    http.insert(&HttpCertificationTreeEntry::new(anything(), HttpCertification::skip()));
    fork(labeled(CHAIN, chain), http.as_hash_tree())
}

/// The root of the tree while nothing is certified of the chain. Hashing it anew would take an upgrade 130,000 instructions.
const ROOT: [u8; 32] = [
    0xba, 0xe4, 0xa5, 0x43, 0xb1, 0xe7, 0x03, 0x6f, 0x7d, 0x83, 0x35, 0x6a, 0x62, 0x9e, 0x28, 0xac, 0x6b, 0x51, 0x2a,
    0x98, 0x4f, 0xa7, 0x3a, 0x7b, 0x73, 0xc7, 0x7a, 0xb0, 0xd9, 0x77, 0x93, 0xba,
];

/// Has the subnet certify the root of the tree.
pub fn certify() {
    platform::set_certified_data(&ROOT);
}

/// The headers by which a gateway verifies an answer; none where nothing is certified: in a call that is no query.
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
    fn a_root_of_the_chain_joins_and_gateways_find_what_they_look_for() {
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
        // Under its label it is the tree that the library makes for canisters that certify nothing else.
        let mut http = HttpCertificationTree::default();
        http.insert(&HttpCertificationTreeEntry::new(anything(), HttpCertification::skip()));
        assert_eq!(http.root_hash(), skip_certification_certified_data());
    }

    #[test]
    fn the_root_is_certified_and_an_answer_has_the_certificate() {
        native::reset();
        certify();
        let root = native::with(|world| world.certified_data);
        assert_eq!(root, tree(empty()).digest(), "ROOT is what hashing gives");
        assert_eq!(headers(None), []);
        let found = headers(Some(b"certificate".to_vec()));
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["IC-CertificateExpression", "IC-Certificate"]);
        assert!(found[1].1.starts_with("certificate=:Y2VydGlmaWNhdGU=:, tree=:"), "{}", found[1].1);
    }
}

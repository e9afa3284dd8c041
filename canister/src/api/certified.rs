//! Witnesses of the certified data (`chain/src/certified.rs`): for readers of the chain, and for HTTP gateways.
//!
//! ```text
//! "http_expr" ── "<*>" ── hash of the expression that certification is skipped ── ""
//! ```
//! A gateway looks up `http_expr` in the witness and compares the witness's root with the certified data. The entry says that certification
//! is skipped for all responses.

use crate::platform;
use ic_certification::HashTree;
use ic_coppice_chain::ChainStore;
use ic_coppice_interface::TipCertificate;
use ic_coppice_storage::cbor;
use ic_http_certification::utils::add_v2_certificate_header;
use ic_http_certification::{
    CERTIFICATE_EXPRESSION_HEADER_NAME, DefaultCelBuilder, HttpCertification, HttpCertificationPath,
    HttpCertificationTree, HttpCertificationTreeEntry, HttpResponse,
};
use serde_bytes::ByteBuf;

/// Returns the path that matches all paths.
fn anything() -> HttpCertificationPath<'static> {
    HttpCertificationPath::wildcard("")
}

/// The part of the tree under `http_expr`, whole, because it shows that there is no other path.
fn http() -> HashTree {
    let mut http = HttpCertificationTree::default();
    http.insert(&HttpCertificationTreeEntry::new(anything(), HttpCertification::skip()));
    http.as_hash_tree()
}

/// Returns the headers by which a gateway verifies a response. Returns none without a certificate, which is absent in update calls.
pub fn headers(chain: &ChainStore) -> Vec<(String, String)> {
    let Some(certificate) = platform::data_certificate() else { return Vec::new() };
    let expression =
        (CERTIFICATE_EXPRESSION_HEADER_NAME.to_string(), DefaultCelBuilder::skip_certification().to_string());
    let mut response = HttpResponse::builder().with_headers(vec![expression]).build();
    add_v2_certificate_header(&certificate, &mut response, &chain.http_witness(http()), &anything().to_expr_path());
    response.headers().to_vec()
}

/// Returns the certificate of the head; `None` in an update call.
pub fn head(chain: &ChainStore) -> Option<TipCertificate> {
    proof(|| chain.head_witness(http))
}

/// Returns the certificate of the host's part, whose tree is given; `None` in an update call.
pub fn host(chain: &ChainStore, tree: HashTree) -> Option<TipCertificate> {
    proof(|| chain.host_witness(tree))
}

fn proof(tree: impl FnOnce() -> HashTree) -> Option<TipCertificate> {
    let certificate = platform::data_certificate()?;
    let hash_tree = cbor::write_onto(Vec::new(), &tree())
        .unwrap_or_else(|why| platform::trap(&format!("the tree of the certified data: {why}")));
    Some(TipCertificate { certificate: ByteBuf::from(certificate), hash_tree: ByteBuf::from(hash_tree) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use crate::operation::daemon;
    use crate::platform::native;
    use crate::state::{self, mutate, read};
    use candid::Principal;
    use ic_certification::LookupResult;
    use ic_coppice_chain::certified::HTTP;
    use ic_coppice_chain::testing::{block, hash, id};
    use ic_coppice_interface::seals::{self, Leaf};
    use ic_coppice_interface::{AppendError, BlockField, InitArg, ResetChain, RollbackError};
    use ic_coppice_storage::Meter;
    use ic_http_certification::utils::skip_certification_certified_data;
    use sha2::{Digest, Sha256};

    fn fresh() {
        native::reset();
        memory::forget();
        crate::logs::forget();
        let producer = Principal::from_slice(&[1]);
        native::with(|world| (world.caller, world.controllers) = (producer, vec![producer]));
        state::init(&InitArg { producers: vec![producer], ..InitArg::default() }).unwrap();
        mutate(daemon::start);
    }

    fn append(number: u64) {
        mutate(|state| {
            let admission = state.admission();
            let new = block(number, &[id(number)], 10);
            state.chain.append(&mut state.blobs, &new, &admission, 1_700_000_000).unwrap();
        });
    }

    fn sealed(number: u64, before: &seals::Seal) -> seals::Seal {
        let new = block(number, &[id(number)], 10);
        let segments = [&new.body, &new.receipts, &new.index];
        let leaf = Leaf {
            number,
            timestamp_secs: new.timestamp_secs,
            lengths: segments.map(|bytes| bytes.len() as u32),
            hash: &new.hash,
            parent_hash: &new.parent_hash,
            sha256: &segments.map(|bytes| Sha256::digest(bytes).into()),
        };
        seals::seal(before, &leaf.digest().unwrap())
    }

    /// Returns the values of `coppice`, `last_block_hash` and `last_block_index`, after checking that each witness proves the certified data.
    fn certified() -> [Option<Vec<u8>>; 3] {
        read(|state| {
            let root = native::with(|world| world.certified_data);
            let head = head(&state.chain).unwrap();
            assert_eq!(head.certificate, root.to_vec(), "the native certificate is the certified data");
            let tree: HashTree = cbor::read(&head.hash_tree).unwrap();
            let gateways = state.chain.http_witness(http());
            assert_eq!((tree.digest(), gateways.digest()), (root, root));
            let paths = gateways.list_paths();
            assert!(paths.iter().all(|path| path[0].as_bytes() == b"http_expr") && paths.len() == 1, "{paths:?}");
            ["coppice", "last_block_hash", "last_block_index"].map(|label| match tree.lookup_path([label]) {
                LookupResult::Found(value) => Some(value.to_vec()),
                LookupResult::Absent => None,
                other => panic!("{label}: {other:?}"),
            })
        })
    }

    fn own(first: u64, before: &[u8; 32], resets: u64, rollbacks: u64) -> Option<Vec<u8>> {
        let word = |word: u64| word.to_be_bytes().to_vec();
        Some([word(first), before.to_vec(), word(resets), word(rollbacks)].concat())
    }

    /// The part equals the tree that the library creates for canisters that certify nothing else.
    #[test]
    fn part_of_gateways_is_constant() {
        assert_eq!((http().digest(), HTTP), (HTTP, skip_certification_certified_data()));
    }

    #[test]
    fn witnesses_prove_the_head_the_beginning_and_what_is_absent() {
        fresh();
        assert_eq!(certified(), [own(0, &seals::FIRST, 0, 0), None, None]);
        let mut seal = seals::FIRST;
        let mut sealed_before = seal;
        for number in 300..303 {
            append(number);
            (sealed_before, seal) = (seal, sealed(number, &seal));
        }
        let index = |number: u64| Some(vec![number as u8 | 0x80, (number >> 7) as u8]);
        assert_eq!(certified(), [own(300, &seals::FIRST, 0, 0), Some(seal.to_vec()), index(302)]);
        mutate(|state| state.rollback_to(301, false)).unwrap();
        assert_eq!(certified(), [own(300, &seals::FIRST, 0, 1), Some(sealed_before.to_vec()), index(301)]);
        mutate(|state| state.chain.remove_oldest(&mut state.blobs)).unwrap();
        assert_eq!(
            certified(),
            [own(301, &sealed(300, &seals::FIRST), 0, 1), Some(sealed_before.to_vec()), index(301)]
        );
        let reset = ResetChain { head_hash: hash(301, 0).to_vec().into(), drop_unexported: true };
        mutate(|state| state.reset_chain(&reset)).unwrap();
        let first = seals::after_reset(&sealed_before, 1);
        assert_eq!(certified(), [own(0, &first, 1, 2), None, None]);
        while read(|state| state.chain.to_clear()) > 0 {
            mutate(|state| state.chain.clear(&mut state.blobs));
        }
        append(7);
        assert_eq!(certified(), [own(7, &first, 1, 2), Some(sealed(7, &first).to_vec()), Some(vec![7])]);
    }

    /// A label whose seal is in a damaged header is absent until a whole header is reached.
    #[test]
    fn labels_of_a_damaged_block_are_absent() {
        fresh();
        (300..308).for_each(append);
        let seal = |number: u64| (300..=number).fold(seals::FIRST, |seal, number| sealed(number, &seal));
        for number in [300, 305] {
            mutate(|state| state.chain.poison_header(number));
        }
        assert_eq!(mutate(|state| state.rollback_to(305, false)), Err(RollbackError::Damaged));
        let mut heads = Vec::new();
        mutate(|state| {
            state.chain.small_slices = Some(1);
            state.chain.begin_rollback(304);
        });
        while read(|state| state.chain.is_under_way()) {
            mutate(|state| state.chain.continue_rollback(&mut state.blobs, 1, Meter::unlimited()));
            let head = read(|state| state.chain.state().head()).unwrap();
            heads.push(head);
            let [_, hash, index] = certified();
            let expected = (head != 305).then(|| seal(head).to_vec());
            assert_eq!((hash, index.is_some()), (expected, head != 305), "{head}");
        }
        heads.dedup();
        assert_eq!(heads, [306, 305, 304]);
        // Damaged after the rollback began: the block goes as well, because no block could follow it.
        mutate(|state| {
            state.chain.begin_rollback(303);
            state.chain.poison_header(303);
        });
        while read(|state| state.chain.is_under_way()) {
            mutate(|state| state.chain.continue_rollback(&mut state.blobs, 9, Meter::unlimited()));
        }
        assert_eq!(certified()[1..], [Some(seal(302).to_vec()), Some(vec![302u64 as u8 | 0x80, 2])]);
        append(303);
        assert_eq!(certified()[1], Some(seal(303).to_vec()));
        mutate(|state| state.chain.remove_oldest(&mut state.blobs)).unwrap();
        assert_eq!(certified()[0], None);
        mutate(|state| state.chain.remove_oldest(&mut state.blobs)).unwrap();
        assert_eq!(certified()[0], own(302, &seal(301), 0, 5));
    }

    /// A rollback that ends on the oldest block, which was damaged meanwhile, leaves a head without a seal: nothing follows it.
    #[test]
    fn nothing_follows_an_oldest_block_that_was_damaged_during_a_rollback() {
        fresh();
        (300..303).for_each(append);
        mutate(|state| {
            state.chain.begin_rollback(300);
            state.chain.poison_header(300);
        });
        while read(|state| state.chain.is_under_way()) {
            mutate(|state| state.chain.continue_rollback(&mut state.blobs, 9, Meter::unlimited()));
        }
        assert_eq!(certified()[1..], [None, None]);
        let refused = mutate(|state| {
            let (next, admission) = (block(301, &[id(301)], 10), state.admission());
            state.chain.append(&mut state.blobs, &next, &admission, 1_700_000_000)
        });
        assert_eq!(refused, Err(AppendError::Conflict { differs: vec![BlockField::Unreadable] }));
        assert_eq!(crate::Coppice::admission(), refused, "a producer is told before it makes a block");
        let reset = ResetChain { head_hash: Vec::new().into(), drop_unexported: true };
        mutate(|state| state.reset_chain(&reset)).unwrap();
        assert_eq!(certified(), [own(0, &seals::after_reset(&seals::FIRST, 1), 1, 3), None, None]);
    }

    /// An upgrade sets what was certified, without hashing.
    #[test]
    fn upgrade_keeps_the_certified_data() {
        fresh();
        append(1);
        let before = certified();
        native::with(|world| world.certified_data = [0; 32]);
        memory::forget();
        state::upgrade(None).unwrap();
        assert_eq!(certified(), before);
    }

    #[test]
    fn responses_have_the_certificate_and_updates_have_none() {
        fresh();
        native::with(|world| world.replicated = true);
        read(|state| assert_eq!((headers(&state.chain), head(&state.chain)), (Vec::new(), None)));
        native::with(|world| world.replicated = false);
        let found = read(|state| headers(&state.chain));
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["IC-CertificateExpression", "IC-Certificate"]);
        assert!(found[1].1.starts_with("certificate=:") && found[1].1.contains(":, tree=:"), "{}", found[1].1);
    }
}

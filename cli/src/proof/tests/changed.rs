//! Proofs that were changed.

use super::*;
use ic_coppice_client::cbor;

fn proof() -> Proof {
    Archive::new(7..=20, &[20]).proof(16).unwrap()
}

/// Reads and checks a file.
fn check(file: &[u8]) -> Result<(), Refused> {
    Proof::read(file)?.check(vouch(canister())).map(drop)
}

#[test]
fn proof_with_any_flipped_bit_is_refused() {
    let mut file = file(&proof()).into_bytes();
    check(&file).unwrap();
    for at in 0..file.len() {
        for bit in 0..8 {
            file[at] ^= 1 << bit;
            assert!(check(&file).is_err(), "bit {bit} of byte {at}");
            file[at] ^= 1 << bit;
        }
    }
}

#[test]
fn proof_with_any_flipped_byte_is_refused() {
    let whole = proof();
    let refused = |change: &dyn Fn(&mut Proof)| {
        let mut proof = whole.clone();
        change(&mut proof);
        assert_ne!(proof, whole);
        proof.check(vouch(canister())).unwrap_err()
    };
    for at in 0..32 {
        for change in [
            &(|proof: &mut Proof| proof.seal_before.0[at] ^= 0x80) as &dyn Fn(&mut Proof),
            &|proof| proof.header.hash.0[at] ^= 0x80,
            &|proof| proof.header.parent_hash.0[at] ^= 0x80,
            &|proof| proof.header.sha256[at % 3].0[at] ^= 0x80,
            &|proof| proof.leaves[at % 4].0[at] ^= 0x80,
        ] {
            assert_eq!(refused(change), Refused::Seal);
        }
    }
    assert_eq!(refused(&|proof| proof.header.timestamp_secs ^= 1), Refused::Seal);
    assert_eq!(refused(&|proof| proof.header.lengths.swap(0, 1)), Refused::Seal);
    assert_eq!(refused(&|proof| proof.header.sha256.swap(0, 1)), Refused::Seal);
    for at in 0..whole.certificate.0.len() {
        let why = refused(&|proof| proof.certificate.0[at] ^= 0xff);
        assert!(matches!(why, Refused::Certificate(_)), "byte {at}: {why}");
    }
    for at in 0..whole.hash_tree.0.len() {
        let why = refused(&|proof| proof.hash_tree.0[at] ^= 0xff);
        assert!(matches!(why, Refused::Certificate(_)), "byte {at}: {why}");
    }
}

#[test]
fn proof_with_a_leaf_too_few_or_too_many_is_refused() {
    let whole = proof();
    let number = |leaves| Refused::Number { block: 16, leaves, certified: 20 };
    for leaves in [0, 3, 5] {
        let mut proof = whole.clone();
        proof.leaves.resize(leaves, Hex([1; 32]));
        assert_eq!(proof.check(vouch(canister())).unwrap_err(), number(leaves as u64));
    }
    // Its number alone does not make another block of it.
    let mut moved = whole.clone();
    moved.header.number = 15;
    moved.leaves.push(Hex([1; 32]));
    assert_eq!(moved.check(vouch(canister())).unwrap_err(), Refused::Seal);
    moved.header.number = u64::MAX;
    assert_eq!(
        moved.check(vouch(canister())).unwrap_err(),
        Refused::Number { block: u64::MAX, leaves: 5, certified: 20 }
    );
    let mut swapped = whole.clone();
    swapped.leaves.swap(1, 2);
    assert_eq!(swapped.check(vouch(canister())).unwrap_err(), Refused::Seal);
    let mut long = whole;
    long.header.parent_hash.0.push(0);
    assert_eq!(long.check(vouch(canister())).unwrap_err(), Refused::LongHash);
}

#[test]
fn proof_of_another_canister_or_chain_is_refused() {
    let mut proof = proof();
    let other = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 8, 1, 1]);
    let why = proof.check(vouch(other)).unwrap_err().to_string();
    assert!(why.contains("it proves no certified data of this canister"), "{why}");
    // The same data of another canister, whose certificate is genuine.
    let tree: HashTree = cbor::read(&proof.hash_tree.0).unwrap();
    proof.certificate.0 = certify(other, &tree.digest(), TIME_NS);
    assert!(matches!(proof.check(vouch(canister())), Err(Refused::Certificate(_))));
    proof.check(vouch(other)).unwrap();
    // A genuine certificate of another chain, and one of an empty chain.
    let none = fork(label("a", leaf([])), label("z", leaf([])));
    for (tree, expected) in [(super::tree(20, &[1; 32]), Refused::Seal), (none, Refused::NoHead)] {
        proof.certificate.0 = certify(canister(), &tree.digest(), TIME_NS);
        proof.hash_tree.0 = to_vec(Vec::new(), &tree).unwrap();
        assert_eq!(proof.check(vouch(canister())).unwrap_err(), expected);
    }
}

/// A reader without an end.
struct Endless;

impl std::io::Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        buffer.fill(b' ');
        Ok(buffer.len())
    }
}

#[test]
fn files_of_other_forms_are_refused() {
    let whole = file(&proof());
    let digits = whole.split('"').max_by_key(|part| part.len()).unwrap();
    for (file, why) in [
        (String::new(), "EOF"),
        ("{}".into(), "missing field"),
        ("[1, 2]".into(), "invalid proof"),
        (whole.replace("proof 1", "proof 2"), "it has the format \"coppice proof 2\""),
        (whole.replace("{\"format\"", "{\"more\":1,\"format\""), "unknown field `more`"),
        (whole.replace("\"seal_before\"", "\"seal\""), "unknown field `seal`"),
        (whole.replace(",\"leaves\"", ",\"format\":\"coppice proof 1\",\"leaves\""), "duplicate field `format`"),
        (whole.replace(digits, &digits.to_uppercase()), "lowercase"),
        (whole.replace(digits, &digits[1..]), "two for each byte"),
        (whole.replace("\"leaves\":[\"", "\"leaves\":[\"00"), "33 bytes instead of 32"),
        (whole.replace("\"number\":16", "\"number\":18446744073709551616"), "invalid"),
        (whole.replace("\"number\":16", "\"number\":-16"), "invalid"),
        (whole.replace("\"lengths\":[", "\"lengths\":[1,"), "trailing"),
        (whole.replace("\"lengths\":[48,", "\"lengths\":[4294967344,"), "invalid value"),
        (whole.clone() + "x", "trailing characters"),
        (whole[..whole.len() - 1].into(), "EOF"),
    ] {
        assert_ne!(file, whole);
        let refused = check(file.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused} instead of {why}");
    }
    check(format!(" {whole}\n").as_bytes()).unwrap();
    let length = whole.len() as u64;
    Proof::read_within(whole.as_bytes(), length).unwrap();
    assert_eq!(Proof::read_within(whole.as_bytes(), length - 1).unwrap_err(), Refused::TooLong);
    assert_eq!(Proof::read_within(Endless, 1 << 20).unwrap_err(), Refused::TooLong);
    assert_eq!(MAX_FILE.min(MAX_LEAVES * 67), MAX_LEAVES * 67, "what is written can be read");
}

/// The certificates of the embedded host are signed by a subnet's key to which a root key delegates.
#[cfg(feature = "network")]
#[test]
fn proof_is_checked_by_the_root_key() {
    use crate::network::Verifier;
    use ic_coppice_host::certificate::{Keys, canisters};
    let (mut proof, keys) = (proof(), Keys::new(canisters(), TIME_NS));
    let tree: HashTree = cbor::read(&proof.hash_tree.0).unwrap();
    proof.certificate.0 = keys.of_data(canister(), &tree.digest(), TIME_NS).unwrap();
    let check = |proof: &Proof, key: Option<&[u8]>, of: Principal| {
        let verifier = Verifier::new(key.map(<[u8]>::to_vec)).unwrap();
        proof.check(|bytes| verifier.vouched(bytes, of))
    };
    let checked = check(&proof, Some(keys.root_key()), canister()).unwrap();
    assert_eq!((checked.certified, checked.time_ns), (20, TIME_NS));
    let other = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 8, 1, 1]);
    for (key, of) in [
        (Some(keys.subnet_key()), canister()),
        (None, canister()),
        (Some(&[0; 133][..]), canister()),
        (Some(keys.root_key()), other),
        (Some(keys.root_key()), Principal::anonymous()),
    ] {
        assert!(matches!(check(&proof, key, of), Err(Refused::Certificate(_))));
    }
    let length = proof.certificate.0.len();
    for at in (0..length).step_by(7) {
        let mut changed = proof.clone();
        changed.certificate.0[at] ^= 0xff;
        assert!(check(&changed, Some(keys.root_key()), canister()).is_err(), "byte {at} of {length}");
    }
}

//! Signatures of requests, with the two kinds of keys that agents hold: Ed25519 and ECDSA on secp256k1.

use candid::Principal;
use ic_ed25519::PublicKey;
use ic_transport_types::Envelope;
use k256::ecdsa::signature::Verifier;
use k256::ecdsa::{Signature, VerifyingKey};
use k256::pkcs8::DecodePublicKey;

/// Checks that the sender of a request is its key's principal, and that the key has signed the request's id. An anonymous request has no key.
pub fn check(envelope: &Envelope<'_>) -> Result<(), &'static str> {
    if envelope.sender_delegation.as_ref().is_some_and(|delegations| !delegations.is_empty()) {
        return Err("the key signs by a delegation, which this server does not verify");
    }
    let key = envelope.sender_pubkey.as_deref();
    if *envelope.content.sender() != key.map_or(Principal::anonymous(), Principal::self_authenticating) {
        return Err("the sender is another than the key's");
    }
    let Some(key) = key else { return Ok(()) };
    let Some(signature) = &envelope.sender_sig else { return Err("the request is not signed") };
    let signed = envelope.content.to_request_id().signable();
    let is_signed = if let Ok(key) = PublicKey::deserialize_rfc8410_der(key) {
        key.verify_signature(&signed, signature).is_ok()
    } else if let Ok(key) = VerifyingKey::from_public_key_der(key) {
        Signature::from_slice(signature).is_ok_and(|signature| key.verify(&signed, &signature).is_ok())
    } else {
        return Err("the key is neither Ed25519 nor secp256k1");
    };
    if is_signed { Ok(()) } else { Err("the signature is not that of the key over the request") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_ed25519::PrivateKey;
    use ic_transport_types::{Delegation, EnvelopeContent, SignedDelegation};
    use k256::ecdsa::SigningKey;
    use k256::ecdsa::signature::Signer;
    use k256::pkcs8::EncodePublicKey;
    use std::borrow::Cow;

    fn content(sender: Principal) -> EnvelopeContent {
        EnvelopeContent::Query {
            ingress_expiry: 1,
            sender,
            canister_id: Principal::management_canister(),
            method_name: "health".into(),
            arg: b"DIDL\0\0".to_vec(),
            nonce: None,
            sender_info: None,
        }
    }

    fn envelope(key: Option<&[u8]>, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Envelope<'static> {
        let content = content(key.map_or(Principal::anonymous(), Principal::self_authenticating));
        let sender_sig = key.map(|_| sign(&content.to_request_id().signable()));
        let sender_pubkey = key.map(<[u8]>::to_vec);
        Envelope { content: Cow::Owned(content), sender_pubkey, sender_sig, sender_delegation: None }
    }

    fn ed25519() -> Envelope<'static> {
        let key = PrivateKey::deserialize_raw_32(&[7; 32]);
        envelope(Some(&key.public_key().serialize_rfc8410_der()), |signed| key.sign_message(signed).to_vec())
    }

    fn secp256k1() -> Envelope<'static> {
        let key = SigningKey::from_slice(&[7; 32]).unwrap();
        let der = k256::PublicKey::from(key.verifying_key()).to_public_key_der().unwrap();
        let sign = |signed: &[u8]| Signer::<Signature>::sign(&key, signed).to_bytes().to_vec();
        envelope(Some(der.as_bytes()), sign)
    }

    #[test]
    fn requests_of_keys_that_signed_them_and_anonymous_ones_are_accepted() {
        assert_eq!(check(&envelope(None, |_| Vec::new())), Ok(()));
        assert_eq!((check(&ed25519()), check(&secp256k1())), (Ok(()), Ok(())));
    }

    #[test]
    fn another_sender_is_refused() {
        let why = Err("the sender is another than the key's");
        let signed = ed25519();
        let other = Envelope { content: Cow::Owned(content(Principal::management_canister())), ..signed.clone() };
        assert_eq!(check(&other), why);
        assert_eq!(check(&Envelope { sender_pubkey: None, ..signed.clone() }), why);
        assert_eq!(check(&Envelope { content: Cow::Owned(content(Principal::anonymous())), ..signed }), why);
    }

    #[test]
    fn request_that_its_key_has_not_signed_is_refused() {
        for signed in [ed25519(), secp256k1()] {
            let why = Err("the signature is not that of the key over the request");
            let signature = signed.sender_sig.clone().unwrap();
            for at in [0, 31, 32, 63] {
                let mut other = signature.clone();
                other[at] ^= 1;
                assert_eq!(check(&Envelope { sender_sig: Some(other), ..signed.clone() }), why, "byte {at}");
            }
            for len in [0, 63] {
                let short = Some(signature[..len].to_vec());
                assert_eq!(check(&Envelope { sender_sig: short, ..signed.clone() }), why, "{len} bytes");
            }
            let sender = *signed.content.sender();
            let EnvelopeContent::Query { ingress_expiry, canister_id, nonce, sender_info, .. } = content(sender) else {
                panic!("a query");
            };
            let (method_name, arg) = ("reset_chain".into(), Vec::new());
            let other =
                EnvelopeContent::Query { ingress_expiry, sender, canister_id, method_name, arg, nonce, sender_info };
            assert_eq!(check(&Envelope { content: Cow::Owned(other), ..signed.clone() }), why);
            assert_eq!(check(&Envelope { sender_sig: None, ..signed }), Err("the request is not signed"));
        }
    }

    #[test]
    fn other_keys_and_delegations_are_refused() {
        let unknown = envelope(Some(b"key"), <[u8]>::to_vec);
        assert_eq!(check(&unknown), Err("the key is neither Ed25519 nor secp256k1"));
        let delegation = Delegation { pubkey: vec![1], expiration: 1, targets: None, permissions: None };
        let delegations = Some(vec![SignedDelegation { delegation, signature: vec![1] }]);
        let why = Err("the key signs by a delegation, which this server does not verify");
        assert_eq!(check(&Envelope { sender_delegation: delegations, ..ed25519() }), why);
    }
}

//! Candid, in and out.
//!
//! *In*: an argument is decoded within quotas, the same for all methods. Two megabytes can otherwise say things that take
//! billions of instructions: a million empty elements, types of types.
//!
//! *Out*: what the generic code would do at a price. It builds and writes the whole type table of an answer each time,
//! 200,000 instructions for `variant { Ok; Err : AppendError }`, ten times what appending a small block takes.

use crate::runtime;
use candid::utils::{ArgumentDecoder, decode_args_with_config};
use candid::{CandidType, DecoderConfig};
use coppice_interface::{CanisterArg, HttpRequest};
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::cell::RefCell;
use std::marker::PhantomData;

/// No arguments at all, as deployment tools encode them.
const NOTHING: &[u8] = b"DIDL\0\0";

/// What decoding a message may cost, by `candid`'s own measure ([`DecoderConfig::set_decoding_quota`]): a unit takes some 330
/// instructions at most. The largest batches of a feeder take five sixths of it.
const DECODING_QUOTA: usize = 2_800_000;
/// What skipping may cost that nobody knows: fields, arguments, options of another type. It also bounds how deep a value goes: on wasm
/// nothing else does, and the stack would overflow.
const SKIPPING_QUOTA: usize = 1_000;
/// Entries of a message's table of types. The largest of the interface has some 60.
const MAX_TYPES: usize = 500;
/// Bytes of that table.
const MAX_HEADER: usize = 16 << 10;

fn quotas() -> DecoderConfig {
    let mut config = DecoderConfig::new();
    config.set_decoding_quota(DECODING_QUOTA).set_skipping_quota(SKIPPING_QUOTA);
    config.set_max_type_len(MAX_TYPES).set_max_header_len(MAX_HEADER).set_full_error_message(false);
    config
}

fn refuse(error: &candid::Error) -> ! {
    runtime::trap(&format!("the argument cannot be decoded: {error}"))
}

/// The arguments of a method.
pub fn args<T: for<'a> ArgumentDecoder<'a>>(bytes: Vec<u8>) -> T {
    decode_args_with_config(if bytes.is_empty() { NOTHING } else { &bytes }, &quotas())
        .unwrap_or_else(|error| refuse(&error))
}

/// The argument of a method that has one.
pub fn arg<T: CandidType + DeserializeOwned>(bytes: Vec<u8>) -> T {
    let (one,) = args::<(T,)>(bytes);
    one
}

/// What decoding an HTTP request may cost: anybody may send one. A URL of 2 KiB, fifty headers and a small body take a tenth of it.
const HTTP_QUOTA: usize = 200_000;

/// The argument of `http_request`.
pub fn http_arg(bytes: Vec<u8>) -> HttpRequest {
    let mut config = quotas();
    config.set_decoding_quota(HTTP_QUOTA);
    let (request,) = decode_args_with_config(&bytes, &config).unwrap_or_else(|error| refuse(&error));
    request
}

thread_local! {
    static OK: RefCell<Vec<(TypeId, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
}

fn encode<T: CandidType>(value: T) -> Vec<u8> {
    candid::encode_one(value).unwrap_or_else(|error| runtime::trap(&format!("the answer cannot be encoded: {error}")))
}

/// The type that a method answers with, where it has sent the answer itself.
pub type Reply<T> = PhantomData<T>;

/// Answers a message that has nothing to say where it succeeded.
pub fn reply<E: CandidType + 'static>(result: Result<(), E>) -> Reply<Result<(), E>> {
    runtime::reply(&encode_unit(result));
    PhantomData
}

/// The answer of a method that has nothing to say where it succeeds: `Ok` is encoded once and then copied.
fn encode_unit<E: CandidType + 'static>(result: Result<(), E>) -> Vec<u8> {
    if result.is_err() {
        return encode(result);
    }
    OK.with_borrow_mut(|known| {
        let id = TypeId::of::<E>();
        if let Some((_, bytes)) = known.iter().find(|(of, _)| *of == id) {
            return bytes.clone();
        }
        let bytes = encode(result);
        known.push((id, bytes.clone()));
        bytes
    })
}

/// The argument of an installation or an upgrade, where there may be none.
pub fn decode_canister_arg(bytes: Vec<u8>) -> Option<CanisterArg> {
    if bytes.is_empty() || bytes == NOTHING {
        return None;
    }
    candid::decode_one(&bytes).unwrap_or_else(|error| refuse(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coppice_interface::*;
    use serde_bytes::ByteBuf;

    #[test]
    fn a_copied_answer_is_the_encoded_one() {
        for _ in 0..2 {
            assert_eq!(encode_unit(Ok::<(), AppendError>(())), encode(Ok::<(), AppendError>(())));
            assert_eq!(encode_unit(Ok::<(), UploadError>(())), encode(Ok::<(), UploadError>(())));
            assert_ne!(encode(Ok::<(), AppendError>(())), encode(Ok::<(), UploadError>(())));
            let error = Err::<(), _>(AppendError::Gap { expected: 7 });
            assert_eq!(encode_unit(error.clone()), encode(error));
        }
    }

    /// What decoding costs.
    fn cost<T: CandidType + DeserializeOwned>(arg: &T) -> (usize, usize) {
        let bytes = candid::encode_one(arg).unwrap();
        let (_, cost) = candid::utils::decode_args_with_config_debug::<(T,)>(&bytes, &quotas()).unwrap();
        (bytes.len(), cost.decoding_quota.unwrap())
    }

    /// The largest messages that a feeder sends: whole ones of bytes, and batches of 1.5 MB of small things.
    #[test]
    fn the_largest_messages_fit_the_quota() {
        let blob = |byte: u8, len: usize| ByteBuf::from(vec![byte; len]);
        let block = AppendBlock { body: blob(1, 2_000_000), ..crate::testing::block(7, &[[1; 32]; 30], 9) };
        let create = |len: usize, n: usize| {
            let mined =
                Some(MinedIn { blocks: vec![BlockRef { block_id: 1, height: 2, subtree: 3 }], on_longest_chain: true });
            let source = TransactionSource::Raw(blob(2, len));
            let item = UtxoCreate { source, mined, locked: None, conflicting: false, fee: Some(9) };
            UtxoCreateBatch { height: 9, items: vec![item; n] }
        };
        let spend = Spend { txid: blob(3, 32), vout: 5, utxo_hash: blob(4, 32), vin: 7 };
        let spends = |per: usize, n: usize| UtxoSpendBatch {
            height: 9,
            items: vec![TransactionSpends { spender: blob(5, 32), spends: vec![spend.clone(); per] }; n],
        };
        let all = [
            ("a block", cost(&block)),
            ("a transaction", cost(&create(1_950_000, 1))),
            ("transactions of 250 bytes", cost(&create(250, 5_000))),
            ("transactions of 150 bytes", cost(&create(150, 7_000))),
            ("spends by two", cost(&spends(2, 7_000))),
            ("spends of one transaction", cost(&spends(18_000, 1))),
        ];
        for (what, (bytes, cost)) in all {
            println!("{what}: {bytes} bytes, {cost} units");
            assert!(cost < DECODING_QUOTA, "{what}: {cost}");
        }
    }

    #[test]
    fn an_argument_may_be_left_out() {
        assert_eq!(decode_canister_arg(Vec::new()), None);
        assert_eq!(decode_canister_arg(candid::encode_args(()).unwrap()), None);
        assert_eq!(decode_canister_arg(encode(None::<CanisterArg>)), None);
        let arg = CanisterArg::Init(InitArg { log_class: Some(65_536), ..InitArg::default() });
        assert_eq!(decode_canister_arg(encode(arg.clone())), Some(arg.clone()), "a plain value is an `opt` too");
        assert_eq!(decode_canister_arg(encode(Some(arg.clone()))), Some(arg));
    }
}

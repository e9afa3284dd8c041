//! What the generic Candid code would do at a price: it builds and writes the whole type table of an answer each time,
//! 200,000 instructions for `variant { Ok; Err : AppendError }`, ten times what appending a small block takes.

use crate::api::CanisterArg;
use crate::runtime;
use candid::CandidType;
use std::any::TypeId;
use std::cell::RefCell;
use std::marker::PhantomData;

/// No arguments at all, as deployment tools encode them.
const NOTHING: &[u8] = b"DIDL\0\0";

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
    candid::decode_one(&bytes)
        .unwrap_or_else(|error| runtime::trap(&format!("the argument cannot be decoded: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AppendError, InitArg, UploadError};

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

//! Candid decoding of arguments and encoding of replies.
//!
//! *Decoding*: an argument is decoded after the check of the caller's roles, within quotas that are the same for all methods except
//! `http_request`. Without quotas, two megabytes can take billions of instructions: a million empty elements, types of types. Frequent
//! methods skip the type table if it is the expected one (`known.rs`).
//!
//! *Encoding*: `candid` builds and writes the whole type table of a reply each time, which takes 200,000 instructions for `variant { Ok;
//! Err : AppendError }`, ten times the cost of appending a small block. Therefore the tables are constants (`tables.rs`), which
//! `interface/did` writes.

pub mod canister_arg;
pub mod compressed;
mod known;
mod quota;
pub mod tables;

use crate::platform;
use candid::CandidType;
use candid::ser::ValueSerializer;
use candid::utils::{ArgumentDecoder, decode_args_with_config};
use known::Argument;
use quota::{DECODING_QUOTA, quotas};
use serde::de::DeserializeOwned;

/// An empty list of arguments, as deployment tools encode it.
const NOTHING: &[u8] = b"DIDL\0\0";

fn undecodable(error: &candid::Error) -> String {
    format!("the argument cannot be decoded: {error}")
}

fn decode<A: for<'a> ArgumentDecoder<'a>>(bytes: &[u8], quota: usize) -> Result<A, String> {
    let bytes = if bytes.is_empty() { NOTHING } else { bytes };
    decode_args_with_config(bytes, &quotas(quota)).map_err(|error| undecodable(&error))
}

/// Decodes the arguments of a method.
///
/// # Errors
/// A sentence if the message is not of these types, or costs more than the quotas.
pub fn read<A: for<'a> ArgumentDecoder<'a>>(bytes: &[u8]) -> Result<A, String> {
    decode(bytes, DECODING_QUOTA)
}

/// Quota of decoding an HTTP request; lower, because any caller may send one. A URL of 2 KiB, fifty headers and a small body take a tenth
/// of it.
const HTTP_QUOTA: usize = 200_000;

/// Decodes the argument of `http_request`.
///
/// # Errors
/// As [`read`].
pub fn read_http<A: for<'a> ArgumentDecoder<'a>>(bytes: &[u8]) -> Result<A, String> {
    decode(bytes, HTTP_QUOTA)
}

/// Decodes the argument of a frequent method: by the fast path if its type table is the expected one.
///
/// # Errors
/// As [`read`].
pub fn read_known<T: Argument + CandidType + DeserializeOwned>(bytes: &[u8]) -> Result<(T,), String> {
    known::read(bytes, DECODING_QUOTA).map_or_else(|| read(bytes), |one| Ok((one,)))
}

/// Encodes a reply, whose type has this table. Traps if the value cannot be encoded.
pub fn answer<T: CandidType>(table: &[u8], value: T) -> Vec<u8> {
    let mut values = ValueSerializer::new();
    let encoded = value.idl_serialize(&mut values);
    encoded.unwrap_or_else(|error| platform::trap(&format!("the answer cannot be encoded: {error}")));
    [table, values.get_result()].concat()
}

#[cfg(test)]
mod tests {
    use super::quota::DECODING_QUOTA;
    use super::*;
    use ic_coppice_interface::*;
    use serde_bytes::ByteBuf;

    fn encode<T: CandidType>(value: T) -> Vec<u8> {
        candid::encode_one(value).unwrap()
    }

    #[test]
    fn answer_equals_the_generic_encoding() {
        let appended = tables::replies::append_block;
        for value in [Ok(()), Err(AppendError::Gap { expected: 7 })] {
            assert_eq!(answer::<Result<(), AppendError>>(appended, value.clone()), encode(value));
        }
        let batch: Batch<Result<u32, Vec<RefusedSpend>>> = Batch { results: vec![Ok(7), Err(vec![])], remaining: 3 };
        assert_eq!(answer(tables::replies::utxo_spend, batch.clone()), encode(batch));
        assert_eq!(answer(tables::replies::acknowledge_faults, 7u64), encode(7u64));
        type Location = Result<TransactionLocation, ReadError>;
        let location = TransactionLocation { block_number: 1, position: 2, block_hash: BlockHash::from([3; 32]) };
        for value in [Ok(location), Err(ReadError::NotFound)] {
            assert_eq!(answer::<Location>(tables::replies::get_transaction_location, value.clone()), encode(value));
        }
    }

    /// Returns the bytes of a message and the cost of decoding it.
    fn cost<T: CandidType + DeserializeOwned>(arg: &T) -> (usize, usize) {
        let bytes = candid::encode_one(arg).unwrap();
        let (_, cost) = candid::utils::decode_args_with_config_debug::<(T,)>(&bytes, &quotas(DECODING_QUOTA)).unwrap();
        (bytes.len(), cost.decoding_quota.unwrap())
    }

    /// The largest messages of a feeder: blobs that fill a message, and batches of 1.5 MB of small items.
    #[test]
    fn the_largest_messages_fit_the_quota() {
        let blob = |byte: u8, len: usize| ByteBuf::from(vec![byte; len]);
        let block = AppendBlock { body: blob(1, 2_000_000), ..ic_coppice_chain::testing::block(7, &[[1; 32]; 30], 9) };
        let create = |len: usize, n: usize| {
            let mined =
                Some(MinedIn { blocks: vec![BlockRef { block_id: 1, height: 2, subtree: 3 }], on_longest_chain: true });
            let source = TransactionSource::Raw(blob(2, len));
            let item = UtxoCreate { source, mined, locked: None, conflicting: false, fee: Some(9), is_new: false };
            UtxoCreateBatch { height: 9, items: vec![item; n] }
        };
        let spend = Spend { txid: [3; 32].into(), vout: 5, utxo_hash: [4; 32].into(), vin: 7 };
        let spends = |per: usize, n: usize| UtxoSpendBatch {
            height: 9,
            items: vec![TransactionSpends { spender: [5; 32].into(), spends: vec![spend.clone(); per] }; n],
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
}

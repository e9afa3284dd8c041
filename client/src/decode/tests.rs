use super::*;
use candid::types::internal::TypeContainer;
use candid::types::{Label, Type, TypeEnv, TypeInner};
use candid::utils::decode_args_with_config_debug;
use candid::{CandidType, Principal};
use ic_coppice_interface::*;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use std::time::{Duration, Instant};

/// Returns by how much values of a type cost at most beyond `units` per byte, or `None` if there is no such bound.
fn excess(env: &TypeEnv, of: &Type, units: i64) -> Option<i64> {
    let name = |label: &Label| match label {
        Label::Named(name) => name.len() as i64,
        Label::Id(_) | Label::Unnamed(_) => 4,
    };
    // A list of any length: each item must pay for itself.
    let list = |item: &Type| (excess(env, item, units)? + 3 <= 0).then_some(2 - units);
    // Candid's own costs, plus two, because named types and `struct`s around a value cost one each.
    let cost = match env.trace_type(of).unwrap().as_ref() {
        TypeInner::Null | TypeInner::Reserved => Some(1),
        TypeInner::Bool | TypeInner::Nat | TypeInner::Int | TypeInner::Nat8 | TypeInner::Int8 => Some(1 - units),
        TypeInner::Nat16 | TypeInner::Int16 => Some(2 * (1 - units)),
        TypeInner::Nat32 | TypeInner::Int32 | TypeInner::Float32 => Some(4 * (1 - units)),
        TypeInner::Nat64 | TypeInner::Int64 | TypeInner::Float64 => Some(8 * (1 - units)),
        TypeInner::Text => Some(1 - units),
        TypeInner::Principal => Some(30 - 2 * units),
        TypeInner::Opt(some) => Some(2 - units + excess(env, some, units)?.max(0)),
        TypeInner::Vec(item) => list(item),
        TypeInner::Record(fields) => {
            let field = |field: &candid::types::Field| Some(7 + name(&field.id) + excess(env, &field.ty, units)?);
            fields.iter().map(field).sum::<Option<i64>>().map(|all| 2 + all)
        }
        TypeInner::Variant(cases) => {
            let case = |case: &candid::types::Field| Some(5 + name(&case.id) + excess(env, &case.ty, units)?);
            let all: Option<Vec<i64>> = cases.iter().map(case).collect();
            all.map(|all| 2 - units + all.into_iter().max().unwrap())
        }
        other => panic!("{other:?}"),
    };
    cost.map(|cost| cost + 2)
}

/// Returns the fewest bytes of a value, if a replica omits every optional part.
fn least(env: &TypeEnv, of: &Type) -> usize {
    match env.trace_type(of).unwrap().as_ref() {
        TypeInner::Null | TypeInner::Reserved | TypeInner::Opt(_) => 0,
        TypeInner::Record(fields) => fields.iter().map(|field| least(env, &field.ty)).sum(),
        _ => 1,
    }
}

/// Collects the item types of all lists in a type.
fn items(env: &TypeEnv, of: &Type, found: &mut Vec<Type>) {
    match env.trace_type(of).unwrap().as_ref() {
        TypeInner::Opt(inner) => items(env, inner, found),
        TypeInner::Vec(item) => {
            found.push(item.clone());
            items(env, item, found);
        }
        TypeInner::Record(fields) | TypeInner::Variant(fields) => {
            fields.iter().for_each(|field| items(env, &field.ty, found));
        }
        _ => {}
    }
}

#[test]
fn every_reply_type_costs_at_most_half_its_quota() {
    let mut types = TypeContainer::new();
    let all = crate::methods::replies(&mut types);
    let replies = || all.iter().map(|(method, of)| (*method, of));
    // Half of the quota is for what the interface does not have.
    let (half, most) = (UNITS_PER_BYTE as i64 / 2, UNITS as i64 / 2);
    for (method, of) in replies() {
        let excess = excess(&types.env, of, half);
        assert!(excess.is_some_and(|excess| excess < most), "{method}: {excess:?}");
    }
    // The computation detects types that exceed the quota.
    assert!(replies().any(|(_, of)| excess(&types.env, of, half / 2).is_none()), "half as much would suffice for all");
    // Items without bytes make an endless list free to send: only the quota stops its decoding.
    let mut lists = Vec::new();
    replies().for_each(|(_, of)| items(&types.env, of, &mut lists));
    let free: Vec<String> =
        lists.iter().filter(|item| least(&types.env, item) == 0).map(|item| item.to_string()).collect();
    assert!(free.iter().all(|item| item == "opt blob"), "{free:?}");
}

/// Returns the length of a message, and the cost of decoding it.
fn cost<T: CandidType + for<'a> Deserialize<'a>>(value: T) -> (usize, usize) {
    let message = candid::encode_one(value).unwrap();
    let decoded = decode_args_with_config_debug::<(T,)>(&message, &quotas(message.len()));
    let (_, cost) = decoded.unwrap_or_else(|error| panic!("{} bytes: {error}", message.len()));
    (message.len(), cost.decoding_quota.unwrap())
}

/// Tests many of the smallest items, pages of a thousand items, and payloads of megabytes.
#[test]
fn largest_honest_replies_fit_the_quota() {
    let page = |chunk: ExportChunk, count| {
        Ok::<_, ExportError>(ExportPage { chunks: vec![chunk; count], cursor: None, head: Some(u64::MAX) })
    };
    let small = ExportChunk { bytes: ByteBuf::new(), ..chunk() };
    let nothing = UtxoSpendState { status: SpendStatus::NotFound, utxo_hash: None, spender: None };
    let spends = vec![nothing; 100_000];
    let batch = Batch { results: vec![Ok::<u32, UtxoError>(1); 100_000], remaining: 0 };
    let refused = Batch { results: vec![Err::<u32, UtxoError>(UtxoError::TxNotFound); 200_000], remaining: 0 };
    let row = BlobDeletion {
        id: 1,
        blob_key: ByteBuf::from([1; 32]),
        file_type: "tx".into(),
        store_type: StoreType::Tx,
        delete_at_height: 1,
        retry_count: 0,
        last_retry_at_ns: None,
        txid: None,
    };
    let rows = vec![row; 1_000];
    let grants = vec![Grant { principal: Principal::anonymous(), role: Role::Admin }; 1_000];
    let skipped = vec![u64::MAX; 200_000];
    let ids = CompletedBlobDeletions {
        removed: 0,
        retries_incremented: 0,
        dead: 0,
        remaining: 0,
        skipped,
        ..Default::default()
    };
    let large = ExportChunk { bytes: ByteBuf::from(vec![1; 2_000_000]), ..chunk() };
    for (bytes, cost) in [
        cost(page(small, 1_000)),
        cost(page(large, 1)),
        cost(Ok::<_, UtxoError>(spends)),
        cost(batch),
        cost(refused),
        cost(rows),
        cost(grants),
        cost(Ok::<_, BlobDeletionError>(ids)),
        cost(Ok::<(), AppendError>(())),
    ] {
        assert!(cost <= bytes * UNITS_PER_BYTE / 2 + UNITS / 2, "{bytes} bytes: {cost} units");
    }
}

fn chunk() -> ExportChunk {
    ExportChunk {
        number: 1,
        hash: [1; 32].into(),
        parent_hash: Some([1; 32].into()),
        timestamp_secs: 1,
        segment: 0,
        offset: 0,
        total: 0,
        sha256: ByteBuf::from([1; 32]),
        bytes: ByteBuf::new(),
    }
}

/// A newer canister may send more fields, which this client ignores.
#[test]
fn page_with_an_unknown_field_in_each_item_fits() {
    #[derive(CandidType)]
    struct Newer {
        id: u64,
        blob_key: ByteBuf,
        file_type: String,
        store_type: StoreType,
        delete_at_height: u32,
        retry_count: u32,
        first_tried_at_height: Option<u64>,
    }
    let newer = |_| Newer {
        id: 1,
        blob_key: ByteBuf::from([1; 32]),
        file_type: "tx".into(),
        store_type: StoreType::Tx,
        delete_at_height: 1,
        retry_count: 0,
        first_tried_at_height: Some(1),
    };
    let message = candid::encode_one((0..1_000).map(newer).collect::<Vec<_>>()).unwrap();
    let (rows,): (Vec<BlobDeletion>,) = decode(&message).unwrap();
    assert_eq!(rows.len(), 1_000);
}

/// Makes the last byte of a message, the length of a list, 2^62.
fn endless(mut message: Vec<u8>) -> Vec<u8> {
    assert_eq!(message.pop(), Some(0));
    message.extend([0x80; 8]);
    message.push(0x40);
    message
}

#[test]
fn reply_that_claims_endless_content_is_refused_quickly() {
    #[derive(CandidType)]
    struct Nothing {}
    let args = |value: Vec<u8>| candid::encode_args((7_u64, value)).unwrap();
    let bombs: [(&str, Vec<u8>); 8] = [
        ("an argument more", endless(candid::encode_args((7_u64, Vec::<()>::new())).unwrap())),
        ("lists of nothing", endless(candid::encode_args((7_u64, vec![Vec::<()>::new()])).unwrap())),
        ("empty records", endless(candid::encode_args((7_u64, Vec::<Nothing>::new())).unwrap())),
        ("two million options", candid::encode_args((7_u64, vec![None::<u8>; 2_000_000])).unwrap()),
        ("a table of types that is the message", [b"DIDL\x80\x80\x04".to_vec(), vec![0x6D; 2_000_000]].concat()),
        // type t = record { t }, in no bytes.
        ("a type that has itself", b"DIDL\x01\x6C\x01\x00\x00\x02\x78\x00\x07\0\0\0\0\0\0\0".to_vec()),
        // type t = vec t, a million deep.
        ("a list of lists", {
            let mut bomb = b"DIDL\x01\x6D\x00\x02\x78\x00\x07\0\0\0\0\0\0\0".to_vec();
            bomb.resize(1_000_000, 1);
            bomb
        }),
        ("a list that ends early", {
            let mut short = args(vec![1; 200]);
            short.truncate(100);
            short
        }),
    ];
    for (what, bomb) in bombs {
        let began = Instant::now();
        let error = decode::<(u64,)>(&bomb).err().unwrap_or_else(|| panic!("{what} is taken"));
        assert!(began.elapsed() < Duration::from_secs(5), "{what}");
        assert!(error.to_string().len() < 1_000, "{what}: {error}");
    }
    // Items that cost no bytes, in the place of a value.
    let entries = endless(candid::encode_one(Vec::<()>::new()).unwrap());
    assert!(decode::<(Vec<Option<ByteBuf>>,)>(&entries).is_err());
}

/// Tests type tables of the maximum length, in which each type names the next one, or all others.
#[test]
fn longest_type_table_is_refused_quickly() {
    let leb = |mut number: usize| {
        let mut bytes = Vec::new();
        while number > 0x7F {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let table = |types: Vec<Vec<u8>>, first: usize, value: &[u8]| {
        [&b"DIDL"[..], &leb(types.len()), &types.concat(), &[2, 0x78], &leb(first), &7_u64.to_le_bytes(), value]
            .concat()
    };
    let chain = |kind: u8| (1..=4_000).map(|at| [&[kind][..], &leb(at % 4_000)].concat()).collect::<Vec<_>>();
    let wide: Vec<Vec<u8>> = (0..60)
        .map(|at| {
            let fields = (0..100).flat_map(|field| [leb(field), leb((at + field) % 60)].concat());
            [vec![0x6C], leb(100), fields.collect()].concat()
        })
        .collect();
    for (what, bomb) in [
        ("a list of a list", table(chain(0x6D), 0, &[1; 100_000])),
        ("an option of an option", table(chain(0x6E), 0, &[1; 100_000])),
        ("records of all others", table(wide, 0, &[])),
    ] {
        let began = Instant::now();
        assert!(decode::<(u64,)>(&bomb).is_err(), "{what}");
        assert!(began.elapsed() < Duration::from_secs(5), "{what}: {:?}", began.elapsed());
    }
}

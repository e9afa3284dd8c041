//! Sample values of every case of a type, made from its Candid type: a new case of an error needs no line here.

use candid::CandidType;
use candid::types::internal::{Label, TypeContainer};
use candid::types::value::{IDLArgs, IDLField, IDLValue, VariantValue};
use candid::types::{Field, Type, TypeEnv, TypeInner};
use serde::de::DeserializeOwned;

/// The text of every sample.
const TEXT: &str = "because of a sample";
/// The number of every sample.
const NUMBER: u64 = 7;

/// A name, and a value of a type.
type Named = (String, IDLValue);

/// Returns a value of each case of `T`, named by the cases from the outermost to the innermost: `NoMemory/OutOfSpace`.
pub fn of<T: CandidType + DeserializeOwned>() -> Vec<(String, T)> {
    let mut types = TypeContainer::new();
    let of = types.add::<T>();
    let decoded = |(name, value): Named| {
        let bytes = IDLArgs::new(&[value]).to_bytes_with_types(&types.env, std::slice::from_ref(&of)).unwrap();
        (name, candid::decode_one(&bytes).unwrap())
    };
    every(&types.env, &of).into_iter().map(decoded).collect()
}

/// Returns whether a value of this type may hold a `Result`.
pub fn has_result(types: &TypeEnv, of: &Type) -> bool {
    let of = types.trace_type(of).unwrap();
    let any = |fields: &[Field]| fields.iter().any(|field| has_result(types, &field.ty));
    match of.as_ref() {
        TypeInner::Variant(fields) => fields.iter().any(|field| *field.id == Label::Named("Err".into())) || any(fields),
        TypeInner::Record(fields) => any(fields),
        TypeInner::Opt(inner) | TypeInner::Vec(inner) => has_result(types, inner),
        _ => false,
    }
}

fn every(types: &TypeEnv, of: &Type) -> Vec<Named> {
    let of = types.trace_type(of).unwrap();
    let one = |value| vec![(String::new(), value)];
    match of.as_ref() {
        TypeInner::Variant(cases) => (0..).zip(cases).flat_map(|(at, case)| of_case(types, case, at)).collect(),
        TypeInner::Record(fields) => of_record(types, fields),
        TypeInner::Opt(inner) => {
            let some = every(types, inner).into_iter().map(|(name, value)| (name, IDLValue::Opt(Box::new(value))));
            some.chain([("none".into(), IDLValue::None)]).collect()
        }
        TypeInner::Vec(inner) if *types.trace_type(inner).unwrap().as_ref() == TypeInner::Nat8 => {
            one(IDLValue::Blob(vec![7; 32]))
        }
        TypeInner::Vec(inner) => {
            every(types, inner).into_iter().map(|(name, value)| (name, IDLValue::Vec(vec![value]))).collect()
        }
        TypeInner::Null => one(IDLValue::Null),
        TypeInner::Bool => one(IDLValue::Bool(true)),
        TypeInner::Text => one(IDLValue::Text(TEXT.into())),
        TypeInner::Nat => one(IDLValue::Nat(NUMBER.into())),
        TypeInner::Nat8 => one(IDLValue::Nat8(NUMBER as u8)),
        TypeInner::Nat16 => one(IDLValue::Nat16(NUMBER as u16)),
        TypeInner::Nat32 => one(IDLValue::Nat32(NUMBER as u32)),
        TypeInner::Nat64 => one(IDLValue::Nat64(NUMBER)),
        TypeInner::Principal => one(IDLValue::Principal(candid::Principal::anonymous())),
        other => panic!("no sample of {other:?}"),
    }
}

/// Returns the values of a variant's case, the `at`-th.
fn of_case(types: &TypeEnv, case: &Field, at: u64) -> Vec<Named> {
    let id = (*case.id).clone();
    let value = |(name, val): Named| {
        let name = if name.is_empty() { id.to_string() } else { format!("{id}/{name}") };
        (name, IDLValue::Variant(VariantValue(Box::new(IDLField { id: id.clone(), val }), at)))
    };
    every(types, &case.ty).into_iter().map(value).collect()
}

/// Returns records: each value of each field once, beside the first value of the other fields.
fn of_record(types: &TypeEnv, fields: &[Field]) -> Vec<Named> {
    let values: Vec<Vec<Named>> = fields.iter().map(|field| every(types, &field.ty)).collect();
    let record = |field: usize, value: usize| {
        let picked = |at: usize| &values[at][if at == field { value } else { 0 }];
        let fields = fields.iter().enumerate();
        let fields = fields.map(|(at, field)| IDLField { id: (*field.id).clone(), val: picked(at).1.clone() });
        let name = (0..values.len()).map(|at| picked(at).0.as_str()).filter(|name| !name.is_empty());
        (name.collect::<Vec<_>>().join("+"), IDLValue::Record(fields.collect()))
    };
    let others = values.iter().enumerate().flat_map(|(field, of)| (1..of.len()).map(move |value| (field, value)));
    [(0, 0)].into_iter().chain(others).map(|(field, value)| record(field, value)).collect()
}

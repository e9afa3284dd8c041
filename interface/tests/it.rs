//! A client of this interface reads the answers of a later version, which has cases that the client does not know.

use candid::types::Label;
use candid::types::value::{IDLArgs, IDLField, IDLValue, VariantValue};
use candid::{CandidType, decode_one, encode_one, idl_hash};
use ic_coppice_interface::{
    CyclesStatus, Health, HeldBy, Problem, ProblemCode, PrunePlan, PrunePolicy, PruneProgress, PruneReason, Severity,
    StopReason,
};

/// The value of an answer, as it travels.
fn value<T: CandidType>(answer: &T) -> IDLValue {
    IDLArgs::from_bytes(&encode_one(answer).unwrap()).unwrap().args.remove(0)
}

/// A case that no client knows.
fn new_case() -> IDLValue {
    let field = IDLField { id: Label::Named("OfALaterVersion".into()), val: IDLValue::Text("with a value".into()) };
    IDLValue::Variant(VariantValue(Box::new(field), 0))
}

/// The field with this name of a record.
fn field<'a>(value: &'a mut IDLValue, name: &str) -> &'a mut IDLValue {
    let IDLValue::Record(fields) = value else { panic!("no record: {value:?}") };
    let found = fields.iter_mut().find(|field| field.id.get_id() == idl_hash(name));
    &mut found.unwrap_or_else(|| panic!("no {name}")).val
}

fn bytes(value: IDLValue) -> Vec<u8> {
    IDLArgs { args: vec![value] }.to_bytes().unwrap()
}

fn plan() -> PrunePlan {
    PrunePlan {
        policy: PrunePolicy::default(),
        reason: Some(PruneReason::Retention),
        retain_min_block: 7,
        target: 7,
        before: 3,
        held_by: Some(HeldBy::Exporter("archive".into())),
        floor_block: None,
        blocks: 3,
        ops: 5,
        blobs: 1,
        bytes: 1_000,
        progress: PruneProgress::HasMore { reason: Some(StopReason::Guard) },
    }
}

#[test]
fn who_holds_pruning_back_and_why_a_run_stopped_may_be_of_a_later_version() {
    let plan = plan();
    let mut later = value(&plan);
    assert_eq!(decode_one::<PrunePlan>(&bytes(later.clone())).unwrap(), plan);
    *field(&mut later, "held_by") = IDLValue::Opt(Box::new(new_case()));
    let read: PrunePlan = decode_one(&bytes(later.clone())).unwrap();
    assert_eq!(read, PrunePlan { held_by: None, ..plan.clone() });
    let IDLValue::Variant(progress) = field(&mut later, "progress") else { panic!("no variant") };
    *field(&mut progress.0.val, "reason") = IDLValue::Opt(Box::new(new_case()));
    let read: PrunePlan = decode_one(&bytes(later)).unwrap();
    assert_eq!(read, PrunePlan { held_by: None, progress: PruneProgress::HasMore { reason: None }, ..plan });
}

#[test]
fn a_problem_may_be_of_a_later_version() {
    let problem = |code: &str| Problem {
        code: code.into(),
        severity: Severity::Warning,
        message: "a message".into(),
        since_ns: Some(7),
        action: "an action".into(),
    };
    let health = Health {
        healthy: false,
        problems: vec![problem("ExportHeld"), problem("OfALaterVersion")],
        appends_refused: Some("the upload of block 7 is open".into()),
        cycles: Some(CyclesStatus { liquid: 5, missing: 6 }),
        version: "9".into(),
        time_ns: 8,
        looked_at_ns: Some(7),
    };
    let read: Health = decode_one(&encode_one(&health).unwrap()).unwrap();
    assert_eq!(read, health);
    let known: Vec<_> = read.problems.iter().map(Problem::known).collect();
    assert_eq!(known, [Some(ProblemCode::ExportHeld), None]);
    assert!(read.problems[0].code == ProblemCode::ExportHeld && read.problems[1].code != ProblemCode::ExportHeld);
}

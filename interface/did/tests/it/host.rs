//! Tests of the interface of a canister that contains Coppice.

use candid_parser::utils::{CandidSource, service_compatible};

const READERS: &[&str] = &["get_head", "health"];

fn merged(own: &str) -> String {
    coppice_did::host(own, &[READERS, &["set_prune_policy"]]).unwrap()
}

fn refusal(own: &str, exported: &[&[&str]]) -> String {
    coppice_did::host(own, exported).unwrap_err().to_string()
}

#[test]
fn methods_of_both_are_there_and_no_others() {
    let own = "type T = record { a : nat }; service : (text) -> { pay : (T) -> (nat64); paid : () -> (T) query }";
    let text = merged(own);
    let (env, service) = CandidSource::Text(&text).load().unwrap();
    let mut names: Vec<_> = env.as_service(&service.unwrap()).unwrap().iter().map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    assert_eq!(names, ["get_head", "health", "paid", "pay", "set_prune_policy"]);
    service_compatible(CandidSource::Text(&text), CandidSource::Text(&own.replace("(text) -> ", ""))).unwrap();
    assert!(text.ends_with("service : (text) -> Coppice\n"), "the argument is the canister's");
    assert!(text.contains("// Returns the header of the newest block"), "the comments of Coppice are there");
}

#[test]
fn type_that_both_declare_alike_is_there_once_and_another_one_is_renamed() {
    // `Health` names `Problem`, so it differs with it.
    let alike = "type Severity = variant { Critical; Warning; Notice }; service : { ask : () -> (Severity) }";
    let text = merged(alike);
    assert_eq!(text.matches("type Severity").count(), 1);
    assert!(text.contains("ask : () -> (Severity);"));
    let other = "type Problem = record { a : nat }; type Health = record { b : vec Problem }; service : { ask : (Health) -> () }";
    let text = merged(other);
    assert!(text.contains("ask : (HostHealth) -> ();") && text.contains("b : vec HostProblem"), "{text}");
    assert!(text.contains("health : () -> (Health) query;"));
    service_compatible(CandidSource::Text(&text), CandidSource::Text(other)).unwrap();
    let taken = format!("type HostHealth = text; {other}");
    assert!(refusal(&taken, &[READERS]).contains("HostHealth is another type"));
}

#[test]
fn argument_that_is_decoded_from_bytes_is_that_of_coppice() {
    let text = merged("service : (blob) -> { pay : () -> () }");
    assert!(text.ends_with("service : (arg : opt CanisterArg) -> Coppice\n"));
    assert!(merged("service : { pay : () -> () }").ends_with("service : Coppice\n"));
}

#[test]
fn wrong_interfaces_are_refused() {
    let twice = refusal("service : { get_head : () -> () }", &[READERS]);
    assert_eq!(twice, "the canister declares get_head, which is a method of Coppice");
    let unknown = refusal("service : { pay : () -> () }", &[&["get_tail"]]);
    assert_eq!(unknown, "Coppice has no method get_tail");
    assert!(refusal("service : {", &[READERS]).contains("the interface of the canister"));
    assert!(refusal("type T = nat;", &[READERS]).contains("has no service"));
}

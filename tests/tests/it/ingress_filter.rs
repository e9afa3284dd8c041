//! The ingress filter: messages that it refuses cost the canister nothing.

use candid::{Principal, encode_args};
use coppice_tests::blocks::plain;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::proxy::Proxy;
use ic_coppice_host::{Kind, largest_argument};
use ic_coppice_interface::access::RATE_LIMITED;
use ic_coppice_interface::methods::{INGRESS, Method, TABLE};
use ic_coppice_interface::*;
use std::time::Duration;

/// The longest argument that an ingress message holds.
fn longest(coppice: &Coppice, who: Who, method: &str) -> usize {
    largest_argument(coppice.id, who.principal(), method)
}

#[test]
fn a_thousand_refused_calls_of_2_mib_leave_the_balance_as_it_was() {
    let coppice = Coppice::new();
    coppice.append_plain(0..2, 100);
    let before = coppice.ic.cycles(coppice.id);
    for i in 0..1_000 {
        let who = [Who::Anonymous, Who::Stranger][i % 2];
        // A method of the producer, a query, a method of the operator, and one of the admin.
        let method = ["append_block", "get_block", "prune_now", "set_config"][i / 2 % 4];
        let argument = vec![i as u8; longest(&coppice, who, method)];
        let refused = coppice.ic.submit(coppice.id, who.principal(), method, argument);
        let reject = refused.err().unwrap_or_else(|| panic!("{method} by {who:?} is admitted"));
        assert!(reject.message.contains("access denied"), "{reject:?}");
    }
    assert_eq!(coppice.ic.cycles(coppice.id), before);
    assert_eq!(coppice.head(), Some(1));
}

/// The filter refuses a message within a few instructions, whatever its argument; an admitted message is executed once.
#[test]
fn the_ingress_filter_does_not_read_the_argument() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let mut instructions = Vec::new();
    for bytes in [0, longest(&coppice, Who::Stranger, "append_block")] {
        host.take_executions();
        let refused = coppice.ic.submit(coppice.id, Who::Stranger.principal(), "append_block", vec![1; bytes]);
        assert!(refused.is_err());
        let executions = host.take_executions();
        assert_eq!(executions.iter().map(|execution| execution.kind).collect::<Vec<_>>(), [Kind::InspectMessage]);
        instructions.push(executions[0].instructions);
    }
    assert_eq!(instructions[0], instructions[1]);
    coppice.append(&plain(0, 1, 10)).unwrap();
    let kinds: Vec<Kind> = host.take_executions().iter().map(|execution| execution.kind).collect();
    assert_eq!(kinds, [Kind::InspectMessage, Kind::Update]);
}

/// A query is admitted as an update from a caller with a role if its argument is no longer than the method takes; from every caller if the
/// setting allows it.
#[test]
fn queries_are_admitted_as_updates_with_a_role_and_a_short_argument() {
    let coppice = Coppice::new();
    coppice.append_plain(0..2, 100);
    coppice.grant(Who::Observer, Role::Observer);
    let number = encode_args((1u64,)).unwrap();
    // A second argument, unknown to the method, gives the message any length.
    let long = |bytes: usize| {
        let with = |more: usize| encode_args((None::<PrunePolicyArg>, vec![0u8; more])).unwrap();
        let arg = with(bytes - (with(bytes).len() - bytes));
        assert_eq!(arg.len(), bytes);
        arg
    };
    let denied =
        |who: Who, method: &str, arg: Vec<u8>| match coppice.ic.update(coppice.id, who.principal(), method, arg) {
            Ok(_) => false,
            // The message was admitted: skipping unknown arguments has its own quota.
            Err(reject) if reject.message.contains("cannot be decoded") => false,
            Err(reject) => {
                assert!(reject.message.contains("access denied"), "{reject:?}");
                assert!(reject.message.contains(&format!("call {method} as a query")), "{reject:?}");
                true
            }
        };
    let open = |open| coppice.configure(ConfigChange { open_queries: Some(open), ..ConfigChange::default() });
    let short = TABLE.iter().find(|of| of.name == "plan_prune").expect("it is there").largest as usize;
    for is_open in [false, true, false] {
        open(is_open);
        for who in [Who::Stranger, Who::Anonymous] {
            assert_eq!(denied(who, "get_block", number.clone()), !is_open, "{who:?}");
        }
        for who in [Who::Producer, Who::Observer, Who::Controller] {
            assert!(!denied(who, "get_block", number.clone()), "{who:?}");
        }
        for who in [Who::Anonymous, Who::Producer, Who::Controller] {
            assert!(denied(who, "plan_prune", long(short + 1)), "{who:?}");
            assert!(denied(who, "plan_prune", vec![0; longest(&coppice, who, "plan_prune")]), "{who:?}");
        }
        assert!(!denied(Who::Producer, "plan_prune", long(short)));
    }
    // An update is refused however open queries are.
    open(true);
    let append = encode_args((plain(2, 1, 10),)).unwrap();
    let refused = coppice.ic.update(coppice.id, Who::Stranger.principal(), "append_block", append.clone());
    assert!(refused.unwrap_err().message.contains("access denied"));
    // A canister's calls do not pass the filter: its queries are answered, its updates meet the guard.
    let proxy = Proxy::new(coppice.ic.as_ref(), Who::Controller.principal());
    let call = |method: &str, arg: &[u8]| proxy.update(coppice.ic.as_ref(), coppice.id, method, arg);
    open(false);
    assert!(call("get_block", &number).is_ok());
    let refused = call("append_block", &append);
    assert!(refused.unwrap_err().message.contains("access denied"));
    let grant = Grant { principal: proxy.principal(), role: Role::Producer };
    coppice.operator().grant_role(&grant).answer().unwrap();
    assert!(call("append_block", &append).is_ok());
    assert_eq!(coppice.head(), Some(2));
}

const MINUTE: Duration = Duration::from_secs(60);

/// A principal with every role that has a bucket.
fn everything(coppice: &Coppice) -> Principal {
    let principal = Who::Operator.principal();
    coppice.register(Who::Operator);
    for role in [Role::Alert, Role::BlobWorker, Role::Operator, Role::Observer, Role::Admin] {
        coppice.operator().grant_role(&Grant { principal, role }).answer().unwrap();
    }
    principal
}

/// Buckets of ten messages, which refill by one a minute.
fn small_buckets(coppice: &Coppice) {
    let (message_bucket, messages_per_minute) = (Some(10), Some(1));
    coppice.configure(ConfigChange { message_bucket, messages_per_minute, ..ConfigChange::default() });
}

fn is_limited(coppice: &Coppice, who: Principal, method: &str, arg: &[u8]) -> bool {
    match coppice.ic.update(coppice.id, who, method, arg.to_vec()) {
        Ok(_) => false,
        Err(reject) => reject.message.contains(RATE_LIMITED),
    }
}

#[test]
fn an_argument_above_the_largest_of_its_method_is_refused_and_costs_nothing() {
    let coppice = Coppice::new();
    coppice.configure(ConfigChange { message_bucket: Some(1_000_000), ..ConfigChange::default() });
    let bucketed = everything(&coppice);
    let (mut refused, mut payloads) = (0, 0);
    for of @ &Method { name: method, is_query, largest, .. } in TABLE {
        let who = if of.is_feeders() { Who::Producer.principal() } else { bucketed };
        let send = |bytes: u64| coppice.ic.update(coppice.id, who, method, vec![0; bytes as usize]);
        let before = coppice.ic.cycles(coppice.id);
        let longest = largest_argument(coppice.id, who, method) as u64;
        if largest < INGRESS {
            for bytes in [largest + 1, longest] {
                let reject = send(bytes).unwrap_err();
                assert!(reject.message.contains("access denied") && reject.message.contains("at most"), "{reject:?}");
                refused += 1;
            }
            assert_eq!(coppice.ic.cycles(coppice.id), before, "{method}");
        } else {
            payloads += 1;
        }
        // The longest allowed argument is admitted, is not Candid, and is refused in the guard.
        match send(largest.min(longest)) {
            Ok(_) => assert!(is_query, "{method}"),
            Err(reject) => assert!(!reject.message.contains("access denied"), "{method}: {reject:?}"),
        }
        assert!(coppice.ic.cycles(coppice.id) < before, "{method}");
    }
    assert_eq!((refused, payloads), (2 * (TABLE.len() - payloads), 7));
}

/// Every update draws, even one that cannot be decoded, as here.
#[test]
fn every_update_of_a_bucketed_principal_draws_even_if_it_fails() {
    let coppice = Coppice::new();
    let who = everything(&coppice);
    small_buckets(&coppice);
    let zero = encode_args((0u64,)).unwrap();
    for method in TABLE.iter().filter(|of| !of.is_query && !of.is_feeders()).map(|of| of.name) {
        // The bucket is full again.
        coppice.ic.advance_time(10 * MINUTE);
        coppice.ic.tick();
        assert!(!is_limited(&coppice, who, method, b"nonsense"), "{method}");
        for _ in 1..10 {
            assert!(!is_limited(&coppice, who, "prune_now", &zero), "{method} draws more than one");
        }
        let before = coppice.ic.cycles(coppice.id);
        assert!(is_limited(&coppice, who, "prune_now", &zero), "{method} draws nothing");
        assert_eq!(coppice.ic.cycles(coppice.id), before);
    }
}

/// The platform discards the changes of a query, so a query that is sent as an update draws nothing; an empty bucket refuses it all the
/// same.
#[test]
fn a_query_that_is_called_as_an_update_draws_nothing() {
    let coppice = Coppice::new();
    let who = everything(&coppice);
    small_buckets(&coppice);
    let (nothing, zero) = (encode_args(()).unwrap(), encode_args((0u64,)).unwrap());
    assert!((0..20).all(|_| !is_limited(&coppice, who, "get_head", &nothing)));
    assert!((0..10).all(|_| !is_limited(&coppice, who, "prune_now", &zero)));
    assert!(is_limited(&coppice, who, "get_head", &nothing));
    coppice.ic.query(coppice.id, who, "get_head", nothing).unwrap();
}

#[test]
fn an_empty_bucket_delays_no_other_caller_and_refills() {
    let coppice = Coppice::new();
    coppice.grant(Who::Operator, Role::Operator);
    coppice.grant(Who::Rival, Role::Operator);
    small_buckets(&coppice);
    let stop = |who: Who| coppice.by(who).prune_now(0).try_answer();
    // The method refuses these calls.
    for _ in 0..10 {
        stop(Who::Operator).unwrap().unwrap_err();
    }
    let limited = |who: Who| stop(who).is_err();
    assert!(limited(Who::Operator) && !limited(Who::Rival) && !limited(Who::Controller));
    // A feeder has no bucket.
    coppice.append_plain(0..30, 10);
    assert_eq!(coppice.head(), Some(29));
    coppice.ic.advance_time(MINUTE);
    coppice.ic.tick();
    assert!(!limited(Who::Operator) && limited(Who::Operator));
    // The remedy: without the role the principal has no bucket, and all its messages are refused.
    let grant = Grant { principal: Who::Operator.principal(), role: Role::Operator };
    assert!(coppice.operator().revoke_role(&grant).answer());
    let denied = coppice.ic.update(coppice.id, grant.principal, "prune_now", encode_args((0u64,)).unwrap());
    assert!(denied.unwrap_err().message.contains("access denied"));
    // An upgrade fills the buckets.
    for _ in 0..30 {
        let _ = stop(Who::Rival);
    }
    assert!(limited(Who::Rival));
    coppice.upgrade();
    assert!(!limited(Who::Rival));
}

/// Messages that arrive before the first of them is executed are all admitted. The bucket must refill for all of them before another one is
/// admitted.
#[test]
fn messages_that_arrive_together_are_admitted_and_owed() {
    let coppice = Coppice::new();
    coppice.grant(Who::Operator, Role::Operator);
    small_buckets(&coppice);
    let (who, zero) = (Who::Operator.principal(), encode_args((0u64,)).unwrap());
    let sent: Vec<_> =
        (0..30).map(|_| coppice.ic.submit(coppice.id, who, "prune_now", zero.clone()).unwrap()).collect();
    sent.into_iter().for_each(|call| drop(coppice.ic.wait(call).unwrap()));
    coppice.ic.advance_time(20 * MINUTE - Duration::from_secs(1));
    coppice.ic.tick();
    assert!(is_limited(&coppice, who, "prune_now", &zero));
    coppice.ic.advance_time(MINUTE + Duration::from_secs(1));
    coppice.ic.tick();
    assert!(!is_limited(&coppice, who, "prune_now", &zero));
}

/// Canisters pay for their calls, which do not pass the filter.
#[test]
fn canisters_have_no_bucket() {
    let coppice = Coppice::new();
    small_buckets(&coppice);
    let zero = encode_args((0u64,)).unwrap();
    let operator = Proxy::new(coppice.ic.as_ref(), Who::Controller.principal());
    let grant = Grant { principal: operator.principal(), role: Role::Operator };
    coppice.operator().grant_role(&grant).answer().unwrap();
    for _ in 0..30 {
        operator.update(coppice.ic.as_ref(), coppice.id, "prune_now", &zero).unwrap();
    }
    assert!(!is_limited(&coppice, Who::Controller.principal(), "prune_now", &zero));
}

#[test]
fn settings_of_buckets_have_bounds() {
    let coppice = Coppice::new();
    let set = |message_bucket, messages_per_minute| {
        let change = ConfigChange { message_bucket, messages_per_minute, ..ConfigChange::default() };
        coppice.operator().set_config(&change).answer()
    };
    for (bucket, rate) in [(Some(9), None), (Some(1_000_001), None), (None, Some(0)), (None, Some(1_000_001))] {
        assert!(matches!(set(bucket, rate), Err(ConfigError::BadArgument(BadArgument { .. }))), "{bucket:?}, {rate:?}");
    }
    let config = set(Some(1_000_000), Some(1_000_000)).unwrap();
    assert_eq!((config.message_bucket, config.messages_per_minute), (1_000_000, 1_000_000));
    let config = set(Some(10), Some(1)).unwrap();
    assert_eq!((config.message_bucket, config.messages_per_minute), (10, 1));
}

//! The door: what strangers send costs the canister nothing.

use candid::encode_args;
use coppice_host::Kind;
use coppice_interface::access::QUERY_ARGUMENT;
use coppice_interface::*;
use coppice_tests::blocks::plain;
use coppice_tests::client::Told;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::proxy::Proxy;

/// Bytes of the longest ingress message.
const LONGEST: usize = 2 << 20;

#[test]
fn a_thousand_refused_calls_of_2_mib_leave_the_balance_as_it_was() {
    let coppice = Coppice::new();
    coppice.append_plain(0..2, 100);
    let before = coppice.ic.cycles(coppice.id);
    for i in 0..1_000 {
        let who = [Who::Anonymous, Who::Stranger][i % 2];
        // A producer's method, a query, an operator's, and an admin's.
        let method = ["append_block", "get_block", "prune_now", "set_config"][i / 2 % 4];
        let refused = coppice.ic.submit(coppice.id, who.principal(), method, vec![i as u8; LONGEST]);
        let reject = refused.err().unwrap_or_else(|| panic!("{method} by {who:?} comes in"));
        assert!(reject.message.contains("access denied"), "{reject:?}");
    }
    assert_eq!(coppice.ic.cycles(coppice.id), before);
    assert_eq!(coppice.head(), Some(1));
}

/// What is refused at the door is refused by some instructions, whatever it sends; and what comes in is executed once.
#[test]
fn the_door_does_not_look_at_the_argument() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let mut instructions = Vec::new();
    for bytes in [0, LONGEST] {
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

/// A query as an update: with a role, and a short argument; by everybody where the setting says so.
#[test]
fn queries_come_in_as_updates_from_who_has_a_role_and_with_a_short_argument() {
    let coppice = Coppice::new();
    coppice.append_plain(0..2, 100);
    coppice.grant(Who::Observer, Role::Observer);
    let number = encode_args((1u64,)).unwrap();
    // A second argument, which the method does not know, makes it as long as one likes.
    let long = |bytes: usize| {
        let with = |more: usize| encode_args((None::<PrunePolicyArg>, vec![0u8; more])).unwrap();
        let arg = with(bytes - (with(bytes).len() - bytes));
        assert_eq!(arg.len(), bytes);
        arg
    };
    let denied =
        |who: Who, method: &str, arg: Vec<u8>| match coppice.ic.update(coppice.id, who.principal(), method, arg) {
            Ok(_) => false,
            // It came in: skipping what the method does not know has a quota of its own.
            Err(reject) if reject.message.contains("cannot be decoded") => false,
            Err(reject) => {
                assert!(reject.message.contains("access denied"), "{reject:?}");
                assert!(reject.message.contains(&format!("call {method} as a query")), "{reject:?}");
                true
            }
        };
    let open = |open| coppice.configure(ConfigChange { open_queries: Some(open), ..ConfigChange::default() });
    let short = QUERY_ARGUMENT as usize - 1;
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
            assert!(denied(who, "plan_prune", vec![0; LONGEST]), "{who:?}");
        }
        assert!(!denied(Who::Producer, "plan_prune", long(short)));
    }
    // An update stays one, however open queries are.
    open(true);
    let append = encode_args((plain(2, 1, 10),)).unwrap();
    let refused = coppice.ic.update(coppice.id, Who::Stranger.principal(), "append_block", append.clone());
    assert!(refused.unwrap_err().message.contains("access denied"));
    // A canister does not pass the door: its queries are answered, its updates meet the guard.
    let proxy = Proxy::new(coppice.ic.as_ref(), Who::Controller.principal());
    let call = |method: &str, arg: &[u8]| proxy.update(coppice.ic.as_ref(), coppice.id, method, arg);
    open(false);
    assert!(call("get_block", &number).is_ok());
    let refused = call("append_block", &append);
    assert!(refused.unwrap_err().message.contains("access denied"));
    let grant = Grant { principal: proxy.principal(), role: Role::Producer };
    coppice.operator().grant_role(&grant).told().unwrap();
    assert!(call("append_block", &append).is_ok());
    assert_eq!(coppice.head(), Some(2));
}

//! Cost of the stable memory pages that a message touches: on the reference server reading is free and writing costs 1,000; newer replicas
//! charge other prices.

use crate::common::*;
use ic_coppice_host::{ErrorCode, Host, Kind, Limits, Principal, StablePagePrices};

const READ: u64 = 0;
const WRITE: u64 = 1;
const GROW: u64 = 2;
const OS_PAGE: u64 = 4_096;
const FREE: StablePagePrices = StablePagePrices { first_access: 0, first_write: 0 };

/// Takes steps of three numbers: read (0) or write (1), offset, bytes; or grow (2), Wasm pages, unused. Writes copy the heap's second Wasm
/// page. Returns the instruction counter.
const TOUCH: &str = r#"
  (func $touch (local $i i32) (local $n i32)
    (local.set $n (i32.div_u (call $args) (i32.const 8)))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
      (if (i64.eq (call $arg (local.get $i)) (i64.const 0)) (then
        (call $stable_read (i64.const 65536)
          (call $arg (i32.add (local.get $i) (i32.const 1))) (call $arg (i32.add (local.get $i) (i32.const 2))))))
      (if (i64.eq (call $arg (local.get $i)) (i64.const 1)) (then
        (call $stable_write (call $arg (i32.add (local.get $i) (i32.const 1)))
          (i64.const 65536) (call $arg (i32.add (local.get $i) (i32.const 2))))))
      (if (i64.eq (call $arg (local.get $i)) (i64.const 2)) (then
        (drop (call $stable_grow (call $arg (i32.add (local.get $i) (i32.const 1)))))))
      (local.set $i (i32.add (local.get $i) (i32.const 3)))
      (br $next)))
    (call $reply64 (call $counter (i32.const 0))))
  (func (export "canister_update touch") (call $touch))
  (func (export "canister_query touch_query") (call $touch))
"#;

fn touching() -> (Host, Principal) {
    let host = Host::new();
    let canister = host.create_canister();
    host.install_canister(canister, wasm_with(TOUCH), vec![], None);
    update(&host, canister, "grow", &[16]).unwrap();
    (host, canister)
}

fn at(prices: StablePagePrices) -> Limits {
    Limits { stable_page_prices: prices, ..Limits::default() }
}

/// Returns the cost of the pages of some steps, by the counter inside the message. Checks that the host's count and the canister's balance
/// show the same cost. The steps are undone.
fn pages_cost(host: &Host, canister: Principal, prices: StablePagePrices, steps: &[[u64; 3]]) -> u64 {
    let from = host.checkpoint();
    let counted = |prices| {
        host.restore(&from);
        host.set_limits(at(prices));
        let before = host.cycle_balance(canister);
        let counter = update(host, canister, "touch", &steps.concat()).unwrap()[0];
        let taken = u64::try_from(before - host.cycle_balance(canister)).unwrap();
        (counter, host.last_execution().unwrap().instructions, taken)
    };
    let (counter, instructions, cycles) = counted(prices);
    let (free_counter, free_instructions, free_cycles) = counted(FREE);
    host.restore(&from);
    let price = counter - free_counter;
    assert_eq!((instructions - free_instructions, cycles - free_cycles), (price, price));
    price
}

#[test]
fn at_tomorrows_prices_first_access_and_first_write_cost_5_000_each() {
    let (host, canister) = touching();
    let cost = |steps: &[[u64; 3]]| pages_cost(&host, canister, StablePagePrices::TOMORROW, steps);
    assert_eq!(cost(&[[READ, 0, 1]]), 5_000);
    assert_eq!(cost(&[[READ, 0, 1], [READ, 1, 1], [READ, 0, OS_PAGE]]), 5_000, "the same page again is free");
    assert_eq!(cost(&[[READ, 0, 1], [WRITE, 8, 1]]), 10_000);
    assert_eq!(cost(&[[WRITE, 8, 1]]), 10_000);
    assert_eq!(cost(&[[WRITE, 8, 1], [READ, 0, 1], [WRITE, 0, OS_PAGE]]), 10_000);
    assert_eq!(cost(&[[READ, OS_PAGE - 1, 2]]), 10_000, "two bytes over a border");
    assert_eq!(cost(&[[WRITE, OS_PAGE - 1, 2]]), 20_000);
    assert_eq!(cost(&[[READ, 0, 1], [WRITE, OS_PAGE - 1, 2], [READ, 0, 2 * OS_PAGE]]), 20_000);
    assert_eq!(cost(&[[READ, 0, 0], [WRITE, 77, 0], [WRITE, 16 << 16, 0]]), 0, "no bytes, no page");
    assert_eq!(cost(&[[GROW, 100, 0]]), 0);
    assert_eq!(cost(&[[GROW, 100, 0], [WRITE, 116 * 65_536 - 1, 1]]), 10_000);
    assert_eq!(cost(&[[WRITE, 0, 65_536]]), 16 * 10_000);
}

#[test]
fn at_todays_prices_reading_is_free_and_writing_costs_1_000() {
    let (host, canister) = touching();
    assert_eq!(Limits::default().stable_page_prices, StablePagePrices::TODAY);
    let cost = |steps: &[[u64; 3]]| pages_cost(&host, canister, StablePagePrices::TODAY, steps);
    assert_eq!(cost(&[[READ, 0, 65_536]]), 0);
    assert_eq!(cost(&[[READ, 0, 1], [WRITE, 8, 1], [WRITE, 9, 1]]), 1_000);
    assert_eq!(cost(&[[WRITE, OS_PAGE - 1, 2]]), 2_000);
}

#[test]
fn each_message_pays_again() {
    let (host, canister) = touching();
    host.set_limits(at(StablePagePrices::TOMORROW));
    let touch =
        |method: &str| host.update_call(canister, ANYONE, method, bytes(&[WRITE, 0, 1])).map(|b| numbers(&b)[0]);
    let first = touch("touch").unwrap();
    assert_eq!(touch("touch").unwrap(), first);
    // A query pays for itself, and does not reduce the price of another message.
    let asked = query(&host, canister, "touch_query", &[WRITE, 0, 1]).unwrap()[0];
    assert_eq!((asked, host.last_execution().unwrap().kind), (first, Kind::Query));
    assert_eq!(touch("touch_query").unwrap(), first);
    assert_eq!(touch("touch").unwrap(), first);
}

#[test]
fn page_price_beyond_the_instruction_limit_undoes_the_message() {
    let (host, canister) = touching();
    // The counter in stable memory is 1; the steps write zeros.
    update(&host, canister, "bump", &[]).unwrap();
    let from = host.checkpoint();
    for last in [[READ, 9 * OS_PAGE, 1], [WRITE, 9 * OS_PAGE, 1]] {
        let steps = [[GROW, 5, 0], [WRITE, 0, 8], [WRITE, 20 << 16, 1], last].concat();
        host.set_limits(at(StablePagePrices::TOMORROW));
        update(&host, canister, "touch", &steps).unwrap();
        let all = host.last_execution().unwrap().instructions;
        let now = state(&host, canister);
        assert_eq!((now.stable, now.stable_pages), (0, 21));
        host.restore(&from);
        let enough = Limits { update_instructions: all, ..at(StablePagePrices::TOMORROW) };
        // The instructions after the last page cost less than its price.
        let short = Limits { update_instructions: all - 4_000, ..enough.clone() };
        host.set_limits(short);
        let reject = update(&host, canister, "touch", &steps).unwrap_err();
        assert_eq!(reject.error_code, ErrorCode::CanisterInstructionLimitExceeded);
        assert_eq!(host.last_execution().unwrap().instructions, all - 4_000);
        let now = state(&host, canister);
        assert_eq!((now.stable, now.stable_pages), (1, 16), "neither written nor grown");
        host.set_limits(enough);
        update(&host, canister, "touch", &steps).unwrap();
        host.restore(&from);
    }
}

#[test]
fn access_beyond_the_end_is_not_charged() {
    let (host, canister) = touching();
    for steps in [[READ, (16 << 16) - 1, 2], [WRITE, (16 << 16) - 1, 2], [READ, u64::MAX, 1], [WRITE, u64::MAX, 1]] {
        let counted = |prices| {
            host.set_limits(at(prices));
            let refused = update(&host, canister, "touch", &steps);
            assert_eq!(code(refused), ErrorCode::CanisterTrapped);
            host.last_execution().unwrap().instructions
        };
        assert_eq!(counted(StablePagePrices::TOMORROW), counted(FREE));
    }
}

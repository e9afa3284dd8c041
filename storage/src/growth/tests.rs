//! Tests of prices, balances and limits, in pairs on both sides of each edge.

use super::*;
use crate::testing::{arena, forget};
use crate::twin::{self, Twin};

const THRESHOLD: u128 = 1_000;
/// Raw pages of an empty arena.
const EMPTY: u64 = 16;
/// Pages of the first growth after it.
const FIRST: u128 = LEAST as u128;

/// An empty canister whose pages cost cycles.
fn fresh(liquid: u128, reservation: u128) {
    crate::testing::fresh();
    set_terms(13, u128::MAX);
    twin::with(|world| {
        world.liquid_cycles = liquid;
        world.page_threshold = THRESHOLD;
        world.page_reservation = reservation;
    });
    // The price of the installation is forgotten.
    pass(600);
}

fn pass(secs: u64) {
    twin::with(|world| world.time_ns += secs * NS);
}

/// A growth must leave two timer calls of 10 cycles each.
fn set_terms(nodes: u32, reserved_cycles_limit: u128) {
    arena().growth().set_terms(Terms { nodes, reserved_cycles_limit, kept: 20 });
}

fn reserve(end: u64) -> Result<(), GrowError> {
    arena().growth().reserve(end)
}

fn billed_pages() -> u64 {
    Raw::<Twin>::new().pages()
}

fn reserved_now() -> u128 {
    arena().growth().reserved_now()
}

#[test]
fn refused_growth_reports_the_exact_missing_cycles() {
    let needed = FIRST * THRESHOLD + 2 * 10;
    fresh(needed, 0);
    reserve(EMPTY + LEAST).unwrap();
    assert_eq!(twin::with(|world| world.liquid_cycles), 20, "the cycles of two timer calls are left");
    for short in [1, 7, FIRST * THRESHOLD - THRESHOLD] {
        fresh(needed - short, 0);
        assert_eq!(reserve(EMPTY + LEAST), Err(GrowError::LowCycles { missing: short }));
        assert!(billed_pages() <= EMPTY + 1);
        twin::with(|world| world.liquid_cycles += short);
        reserve(EMPTY + LEAST).unwrap();
        assert_eq!(twin::with(|world| world.liquid_cycles), 20);
    }
}

#[test]
fn growth_without_cycles_grows_no_page() {
    for liquid in [0, 1, 19] {
        fresh(liquid, 0);
        assert!(matches!(reserve(EMPTY + 1), Err(GrowError::LowCycles { missing: 1.. })));
        assert_eq!(billed_pages(), EMPTY);
    }
}

#[test]
fn repeatedly_refused_growth_takes_one_page_in_ten_minutes() {
    fresh(100 * THRESHOLD, 0);
    for call in 0..3_600 {
        assert!(reserve(EMPTY + 100).is_err(), "call {call}");
        pass(1);
    }
    assert_eq!(billed_pages(), EMPTY + 6);
    // The pages are part of the growth that succeeds once there are cycles.
    twin::with(|world| world.liquid_cycles += 20);
    pass(600);
    reserve(EMPTY + 100).unwrap();
    assert_eq!((billed_pages(), twin::with(|world| world.liquid_cycles)), (EMPTY + 100, 20));
}

#[test]
fn growth_is_a_sixteenth_of_memory_but_no_more_than_512_mib_beyond_need() {
    fresh(u128::MAX >> 1, 0);
    let grown = |need: u64| {
        let before = billed_pages();
        reserve(before + need).unwrap();
        billed_pages() - before
    };
    assert_eq!([grown(1), grown(15), grown(17)], [16, 16, 17], "at least 1 MiB");
    grown(16_000 - billed_pages());
    assert_eq!([grown(1), grown(1_062), grown(1_200)], [1_000, 1_062, 1_200]);
    grown(1_000_000 - billed_pages());
    assert_eq!(grown(1), 8_192);
    arena().growth().set_max_pages(billed_pages() + 3);
    assert_eq!(grown(2), 3, "up to the cap");
    assert_eq!(reserve(billed_pages() + 1), Err(GrowError::OutOfSpace));
}

/// 512 MiB at once may be too expensive when a page is not.
#[test]
fn unaffordable_generous_growth_falls_back_to_a_smaller_one() {
    fresh(u128::MAX >> 1, 0);
    reserve(1_000_000).unwrap();
    for (affordable, grown) in [(8_192, 8_192), (8_191, 4_096), (4_096, 4_096), (3, 2), (1, 1)] {
        let before = billed_pages();
        twin::with(|world| world.liquid_cycles = affordable * THRESHOLD + 20);
        pass(1);
        reserve(before + 1).unwrap();
        assert_eq!(billed_pages() - before, grown, "{affordable}");
    }
    twin::with(|world| world.liquid_cycles = THRESHOLD + 19);
    assert_eq!(reserve(billed_pages() + 1), Err(GrowError::LowCycles { missing: 1 }));
}

#[test]
fn growth_that_the_platform_refuses_is_out_of_space() {
    fresh(u128::MAX >> 1, 0);
    reserve(EMPTY + LEAST).unwrap();
    let end = billed_pages();
    twin::with(|world| world.max_pages = end + 5);
    assert_eq!(reserve(end + 6), Err(GrowError::OutOfSpace));
    assert_eq!(billed_pages(), end + 1, "the page that measured the price");
    reserve(end + 5).unwrap();
    assert_eq!(billed_pages(), end + 5);
}

#[test]
fn growth_uses_the_current_price() {
    fresh(u128::MAX >> 1, 0);
    reserve(EMPTY + 1).unwrap();
    let end = billed_pages() + LEAST;
    // The freezing threshold is raised a thousandfold.
    pass(600);
    twin::with(|world| {
        world.page_threshold = 1_000 * THRESHOLD;
        world.liquid_cycles = FIRST * THRESHOLD * 999;
    });
    assert!(matches!(reserve(end), Err(GrowError::LowCycles { .. })), "and it does not trap");
    twin::with(|world| world.page_threshold = THRESHOLD);
    assert!(matches!(reserve(end), Err(GrowError::LowCycles { .. })), "a measured price stays valid for a while");
    pass(600);
    reserve(end).unwrap();
}

/// A canister on a subnet that reserves cycles.
fn reserving(limit: u128) {
    fresh(u128::MAX >> 1, 2_000_000_000);
    twin::with(|world| world.reserved_limit = limit);
    set_terms(13, limit);
}

#[test]
fn growth_above_the_reserved_cycles_limit_is_refused() {
    // 256 pages reserve 512 G, and slightly more if the subnet fills meanwhile; 128 G are left for the heap.
    reserving(1_200_000_000_000);
    reserve(EMPTY + 256).unwrap();
    assert_eq!(reserved_now(), 512_000_000_000);
    reserve(EMPTY + 512).unwrap();
    let refused = reserve(EMPTY + 768);
    let Err(GrowError::ReservedCyclesLimit { missing }) = refused else { panic!("{refused:?}") };
    assert!((464_000_000_000..465_000_000_000).contains(&missing), "{missing}");
    assert_eq!(billed_pages(), EMPTY + 512);
    // The same after an upgrade.
    forget();
    set_terms(13, 1_200_000_000_000);
    assert_eq!(reserved_now(), 1_024_000_000_000);
    assert!(matches!(reserve(EMPTY + 768), Err(GrowError::ReservedCyclesLimit { .. })));
    // Storage is paid from the reserved cycles: after some time half of them are gone.
    let bytes_paid = arena().growth().scaled(GIB_SECOND) * u128::from(billed_pages()) / PAGES_A_GIB;
    pass((600_000_000_000 / bytes_paid) as u64);
    twin::with(|world| world.reserved -= 600_000_000_000);
    reserve(EMPTY + 768).unwrap();
}

#[test]
fn subnet_of_more_nodes_has_higher_prices() {
    reserving(5_000_000_000_000);
    reserve(EMPTY + 256).unwrap();
    let paid = |nodes: u32| {
        set_terms(nodes, 5_000_000_000_000);
        let before = reserved_now();
        pass(1_000);
        before - reserved_now()
    };
    let (thirteen, thirty_four) = (paid(13), paid(34));
    assert!(thirteen > 0 && thirty_four.abs_diff(thirteen * 34 / 13) <= 2_000, "{thirteen}, {thirty_four}");
}

#[test]
fn deferred_growth_is_made_by_a_separate_message() {
    fresh(u128::MAX >> 1, 0);
    let arena = arena();
    let growth = arena.growth();
    assert_eq!(growth.put_off(|| [20, 1].map(|more| reserve(EMPTY + more))), [Err(GrowError::Later); 2]);
    assert!(growth.is_wanted() && billed_pages() == EMPTY);
    growth.grow_wanted().unwrap();
    assert!(!growth.is_wanted() && billed_pages() == EMPTY + 20);
    growth.put_off(|| reserve(EMPTY + 20)).unwrap();
    // At the cap, and without cycles, the growth is refused and not deferred.
    growth.set_max_pages(billed_pages());
    assert_eq!(growth.put_off(|| reserve(billed_pages() + 1)), Err(GrowError::OutOfSpace));
    growth.set_max_pages(u64::MAX);
    twin::with(|world| world.liquid_cycles = 0);
    assert!(matches!(growth.put_off(|| reserve(billed_pages() + 1)), Err(GrowError::LowCycles { .. })));
    assert!(!growth.is_wanted());
}

#[test]
fn query_reports_a_refusal_without_growing() {
    fresh(u128::MAX >> 1, 0);
    reserve(EMPTY + 1).unwrap();
    let billed = billed_pages();
    twin::with(|world| world.liquid_cycles = 100 * THRESHOLD + 30);
    assert_eq!(arena().growth().refusal(100, 10), None);
    assert_eq!(arena().growth().refusal(101, 10), Some(GrowError::LowCycles { missing: THRESHOLD }));
    assert_eq!(billed_pages(), billed, "asking grows nothing");
}

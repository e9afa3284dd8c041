//! Tests of prices, balances and limits, in pairs on both sides of each edge.

use super::*;
use crate::fixture::{ARENA, CELLS, forget, manager, region};
use crate::shared::BUCKET_PAGES;
use crate::twin::{self, Twin};
use crate::{BUCKET, Region};

const THRESHOLD: u128 = 1_000;

/// An empty canister whose pages cost cycles.
fn fresh(liquid: u128, reservation: u128) {
    crate::fixture::fresh();
    set_terms(13, u128::MAX);
    // The manager's header exists since the installation.
    region(ARENA);
    twin::with(|world| {
        world.liquid_cycles = liquid;
        world.page_threshold = THRESHOLD;
        world.page_reservation = reservation;
    });
}

fn pass(secs: u64) {
    twin::with(|world| world.time_ns += secs * NS);
}

/// A growth must leave two timer calls of 10 cycles each.
fn set_terms(nodes: u32, reserved_cycles_limit: u128) {
    manager().growth().set_terms(Terms { nodes, reserved_cycles_limit, kept: 20 });
}

fn billed_pages() -> u64 {
    manager().billed_pages()
}

fn reserved_now() -> u128 {
    manager().growth().reserved_now()
}

/// Pages of a growth by one bucket.
const FIRST: u128 = BUCKET_PAGES as u128;

#[test]
fn refused_growth_reports_the_exact_missing_cycles() {
    let needed = FIRST * THRESHOLD + 2 * 10;
    fresh(needed, 0);
    region(ARENA).reserve(1).unwrap();
    assert_eq!(twin::with(|world| world.liquid_cycles), 20, "the cycles of two timer calls are left");
    for short in [1, 7, FIRST * THRESHOLD - THRESHOLD] {
        fresh(needed - short, 0);
        let a = region(ARENA);
        assert_eq!(a.reserve(1), Err(GrowError::LowCycles { missing: short }));
        assert!(a.is_empty() && billed_pages() <= 2);
        twin::with(|world| world.liquid_cycles += short);
        a.reserve(1).unwrap();
        assert_eq!(twin::with(|world| world.liquid_cycles), 20);
    }
}

#[test]
fn growth_without_cycles_grows_no_page() {
    for liquid in [0, 1, 19] {
        fresh(liquid, 0);
        assert!(matches!(region(ARENA).reserve(1), Err(GrowError::LowCycles { missing: 1.. })));
        assert_eq!(billed_pages(), 1);
    }
}

#[test]
fn repeatedly_refused_growth_takes_one_page_in_ten_minutes() {
    fresh(FIRST * THRESHOLD, 0);
    let a = region(ARENA);
    for call in 0..3_600 {
        assert!(a.reserve(1).is_err(), "call {call}");
        pass(1);
    }
    assert_eq!(billed_pages(), 7);
    // The pages are part of the growth that succeeds once there are cycles.
    twin::with(|world| world.liquid_cycles += 20);
    pass(600);
    a.reserve(1).unwrap();
    assert_eq!((u128::from(billed_pages()) - 1, twin::with(|world| world.liquid_cycles)), (FIRST, 20));
}

/// 512 MiB at once may be too expensive when 16 MiB are not.
#[test]
fn unaffordable_generous_growth_falls_back_to_a_smaller_one() {
    fresh(u128::MAX >> 1, 0);
    let a = region(ARENA);
    a.reserve(32 * 32 * BUCKET).unwrap();
    for (affordable, grown) in [(32, 32), (31, 16), (9, 8), (2, 2), (1, 1)] {
        let before = a.size();
        let pages = u128::from(affordable * BUCKET_PAGES);
        twin::with(|world| world.liquid_cycles = pages * THRESHOLD + 20);
        pass(1);
        a.reserve(before + 1).unwrap();
        assert_eq!((a.size() - before) / BUCKET, grown, "{affordable}");
    }
    twin::with(|world| world.liquid_cycles = u128::from(BUCKET_PAGES) * THRESHOLD + 19);
    assert_eq!(a.reserve(a.size() + 1), Err(GrowError::LowCycles { missing: 1 }));
}

#[test]
fn growth_uses_the_current_price() {
    fresh(u128::MAX >> 1, 0);
    let a = region(ARENA);
    a.reserve(1).unwrap();
    // The freezing threshold is raised a thousandfold.
    twin::with(|world| {
        world.page_threshold = 1_000 * THRESHOLD;
        world.liquid_cycles = u128::from(BUCKET_PAGES) * THRESHOLD * 999;
    });
    pass(1);
    assert!(matches!(a.reserve(BUCKET + 1), Err(GrowError::LowCycles { .. })), "and it is no trap");
    twin::with(|world| world.page_threshold = THRESHOLD);
    assert!(
        matches!(a.reserve(BUCKET + 1), Err(GrowError::LowCycles { .. })),
        "a measured price stays valid for a while"
    );
    pass(600);
    a.reserve(BUCKET + 1).unwrap();
}

/// A canister with its cells, on a subnet that reserves cycles.
fn reserving(limit: u128) -> Region<Twin> {
    fresh(u128::MAX >> 1, 0);
    region(CELLS).reserve(258_072).unwrap();
    twin::with(|world| {
        world.page_reservation = 2_000_000_000;
        world.reserved_limit = limit;
    });
    set_terms(13, limit);
    pass(600);
    region(ARENA)
}

#[test]
fn growth_above_the_reserved_cycles_limit_is_refused() {
    // A bucket reserves 512 G, and slightly more if the subnet fills meanwhile.
    let a = reserving(1_100_000_000_000);
    a.reserve(BUCKET).unwrap();
    assert_eq!(reserved_now(), 512_000_000_000);
    a.reserve(2 * BUCKET).unwrap();
    let refused = a.reserve(3 * BUCKET);
    let Err(GrowError::ReservedCyclesLimit { missing }) = refused else { panic!("{refused:?}") };
    assert!((436_000_000_000..437_000_000_000).contains(&missing), "{missing}");
    assert_eq!(a.size(), 2 * BUCKET);
    // The same after an upgrade, which opens the cells first.
    forget();
    region(CELLS);
    set_terms(13, 1_100_000_000_000);
    let a = region(ARENA);
    assert!(matches!(a.reserve(3 * BUCKET), Err(GrowError::ReservedCyclesLimit { .. })));
    // Storage is paid from the reserved cycles: after some time half of them are gone.
    let bytes_paid = manager().growth().scaled(GIB_SECOND) * u128::from(billed_pages()) / PAGES_A_GIB;
    pass((600_000_000_000 / bytes_paid) as u64);
    twin::with(|world| world.reserved -= 600_000_000_000);
    a.reserve(3 * BUCKET).unwrap();
}

#[test]
fn subnet_of_more_nodes_has_higher_prices() {
    let a = reserving(5_000_000_000_000);
    a.reserve(BUCKET).unwrap();
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
    let a = region(ARENA);
    assert_eq!(manager().growth().put_off(|| a.reserve(1)), Err(GrowError::Later));
    assert!(manager().growth().is_wanted() && a.is_empty() && billed_pages() == 1);
    manager().grow_wanted().unwrap();
    assert!(!manager().growth().is_wanted() && a.is_empty() && u128::from(billed_pages()) == 1 + FIRST);
    manager().growth().put_off(|| a.reserve(1)).unwrap();
    // At the cap, and without cycles, the growth is refused and not deferred.
    manager().set_max_pages(billed_pages());
    assert_eq!(manager().growth().put_off(|| a.reserve(BUCKET + 1)), Err(GrowError::OutOfSpace));
    manager().set_max_pages(u64::MAX);
    twin::with(|world| world.liquid_cycles = 0);
    assert!(matches!(manager().growth().put_off(|| a.reserve(BUCKET + 1)), Err(GrowError::LowCycles { .. })));
    assert!(!manager().growth().is_wanted());
}

#[test]
fn query_reports_a_refusal_without_growing() {
    fresh(u128::MAX >> 1, 0);
    region(ARENA).reserve(1).unwrap();
    twin::with(|world| world.liquid_cycles = 100 * THRESHOLD + 30);
    assert_eq!(manager().growth().refusal(100, 10), None);
    assert_eq!(manager().growth().refusal(101, 10), Some(GrowError::LowCycles { missing: THRESHOLD }));
    assert_eq!(u128::from(billed_pages()), 1 + FIRST, "asking grows nothing");
}

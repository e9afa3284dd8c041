//! Tests of the host with a small canister, `common/canister.wat`.

mod calls;
mod certificates;
mod charges;
mod common;
mod deadlines;
mod faults;
mod lifecycle;
mod reference_loops;
mod rollback;
mod rounds;
mod snapshots;
mod stable_pages;
mod vectors;

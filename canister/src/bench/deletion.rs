//! Benchmark of the deletion queue: fills it with rows, by rising or by random heights, and leases part of them.

use super::{key, said};
use crate::api::access;
use crate::platform;
use crate::state::mutate;
use candid::Principal;
use ic_cdk::update;
use ic_coppice_interface::{AcquireBlobDeletions, StoreType};
use ic_coppice_records::deletion::Name;
use std::cell::Cell;

/// Rows scheduled, and leases granted, in one message.
const STEP: u64 = 20_000;
const LEASES: u64 = 20;
/// Lowest height of rows without a record; rows with a record have lower heights.
const FIRST_HEIGHT: u32 = 10_000;

thread_local! {
    static FILLED: Cell<u64> = const { Cell::new(0) };
}

/// Schedules rows until there are `n`. Returns whether there are; repeat the call until then.
#[update(guard = "access::bench")]
fn bench_fill_deletions(n: u64, random: bool) -> Result<bool, String> {
    let first = FILLED.get();
    let last = n.min(first + STEP);
    mutate(|state| {
        for i in first..last {
            let random_height = (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as u32;
            let height = FIRST_HEIGHT + if random { random_height } else { i as u32 };
            let name = Name { key: &key(i), file_type: "tx", store_type: StoreType::Tx };
            said(state.records.deletions.schedule(&name, height, platform::time_ns()))?;
        }
        Ok::<_, String>(())
    })?;
    FILLED.set(last);
    Ok(last == n)
}

/// Leases rows, a thousand at a time, until `n` are leased. Returns whether they are; repeat the call until then.
#[update(guard = "access::bench")]
fn bench_lease_deletions(n: u64) -> Result<bool, String> {
    mutate(|state| {
        for _ in 0..LEASES {
            let leased: u64 = state.records.deletions.status().stores.iter().map(|store| store.leased).sum();
            if leased >= n {
                return Ok(true);
            }
            let arg = AcquireBlobDeletions {
                height: u32::MAX,
                limit: (n - leased).min(1_000) as u32,
                lock_timeout_secs: 43_200,
                store_types: vec![],
                request: None,
                ..Default::default()
            };
            // One holder has at most 32 leases.
            let holder = Principal::from_slice(&(leased / 32_000).to_be_bytes());
            said(state.records.deletions.acquire(holder, &arg, 0, platform::time_ns()))?.ok_or("nothing waits")?;
        }
        Ok(false)
    })
}

//! Measures the host's speed on this machine: `cargo run -p coppice_host --example speed`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::*;

fn main() {
    let (host, canister) = installed();
    update(&host, canister, "grow", &[1_024]).unwrap();
    for heap_mib in [5, 16, 64] {
        let pages = heap_mib * 16;
        let now = update(&host, canister, "grow_heap", &[0]).unwrap()[0];
        update(&host, canister, "grow_heap", &[pages - now]).unwrap();
        for (name, size, count) in [("16 bytes", 16, 2_000), ("1 MB", 1_000_000, 500), ("2 MB", 2_000_000, 300)] {
            let mut argument = bytes(&[0, size]);
            argument.resize(size as usize, 7);
            for method in ["echo", "write"] {
                let start = Instant::now();
                for i in 0..count {
                    if let Some(byte) = argument.get_mut(20) {
                        *byte = i as u8;
                    }
                    host.update_call(canister, ANYONE, method, argument.clone()).unwrap();
                }
                let rate = count as f64 / start.elapsed().as_secs_f64();
                println!("heap {heap_mib} MiB, {method} of {name}: {rate:.0} messages a second");
            }
        }
    }
}

//! The index of a chain that was long and is short gives its memory back, in messages of bounded cost, also over upgrades.

use coppice_tests::blocks::{block, id};
use coppice_tests::coppice::{Coppice, default_arg};
use ic_coppice_host::{Kind, Outcome};
use ic_coppice_interface::*;

const BLOCKS: u64 = 30;
const IDS: u64 = 5_000;
/// Instructions and changed pages of 4 KiB that a message of a timer may take.
const MOST: (u64, u64) = (2_000_000_000, 8_000);

fn index_bytes(coppice: &Coppice) -> u64 {
    let owners = coppice.storage().owners;
    owners.iter().find(|of| of.owner == Owner::TransactionIndex).map_or(0, |of| of.kept_bytes)
}

#[test]
fn a_pruned_index_gives_its_pages_back() {
    let (coppice, host) = Coppice::embedded(default_arg());
    for number in 0..BLOCKS {
        let ids: Vec<_> = (0..IDS).map(|nth| id(number << 20 | nth)).collect();
        coppice.append(&block(number, &ids, 10)).unwrap();
    }
    let full = index_bytes(&coppice);
    assert!(full > 4 << 20, "{full} bytes for {} ids", BLOCKS * IDS);
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(1), ..PrunePolicyArg::default() }).unwrap();
    host.take_executions();
    let mut sizes = vec![full];
    for _ in 0..40 {
        coppice.pass(60);
        coppice.upgrade();
        sizes.push(index_bytes(&coppice));
    }
    assert!(sizes.windows(2).all(|pair| pair[1] <= pair[0]), "{sizes:?}");
    // Two kept blocks: at a quarter of its slots the table has 10,000 · 4 / 28 buckets of 512 bytes.
    let left = sizes.last().copied().unwrap();
    assert!(left <= (1 << 20) + (256 << 10), "{left} of {full} bytes are left");
    let mut most = (0, 0);
    for message in
        host.take_executions().iter().filter(|message| !matches!(message.kind, Kind::Query | Kind::InspectMessage))
    {
        assert_eq!(message.outcome, Outcome::Completed);
        let changed = message.stable_pages_written + message.heap_pages_written;
        most = (most.0.max(message.instructions), most.1.max(changed));
    }
    println!("from {full} to {left} bytes: at most {} instructions and {} pages a message", most.0, most.1);
    assert!(most.0 <= MOST.0 && most.1 <= MOST.1, "{most:?}");
    for number in [BLOCKS - 2, BLOCKS - 1] {
        assert_eq!(coppice.location(id(number << 20 | 7)), Ok((number, 7)));
    }
    assert_eq!(coppice.location(id(7)), Err(ReadError::NotFound));
}

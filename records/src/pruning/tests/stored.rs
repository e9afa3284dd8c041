//! Persisted state: another version is refused.

use super::service::Service;
use crate::places;
use crate::pruning::UtxoPruner;
use crate::testing::Tx;
use ic_coppice_interface::*;
use std::rc::Rc;

/// Returns a pruner whose persisted fields are all in use.
fn busy() -> Service {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..5).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() });
    s.pruner.notify_block(1_290, true, false).unwrap();
    s.settle();
    let parent = Tx::orphan(1, 1);
    s.make(&Tx::of(2, &[(parent.txid, 0)], 1));
    txs.iter().for_each(|tx| s.make_due(tx));
    s.pruner.notify_block(1_300, true, false).unwrap();
    (0..3).for_each(|_| s.tick(1));
    s.pruner.notify_block(1_301, true, false).unwrap();
    assert!(s.status().running.is_some() && s.status().pending.is_some());
    s
}

#[test]
fn other_versions_and_unreadable_bytes_are_refused() {
    let mut s = busy();
    let cells = ic_coppice_storage::testing::cells();
    let open = || UtxoPruner::open(&ic_coppice_storage::testing::arena(), Rc::clone(&cells)).map(drop);
    let bytes: [u8; 16] = cells.read(places::UTXO_PRUNER);
    for (at, byte) in [(0, b'X'), (4, 0), (4, bytes[4] - 1), (4, bytes[4] + 1), (5, 1), (12, 0xFF)] {
        let mut wrong = bytes;
        wrong[at] = byte;
        cells.write(places::UTXO_PRUNER, &wrong);
        assert!(open().is_err(), "byte {at}");
    }
    cells.write(places::UTXO_PRUNER, &bytes);
    assert_eq!(open(), Ok(()));
    s.reopen();
    s.settle();
    assert_eq!(s.status().last_processed_height, 1_301);
}

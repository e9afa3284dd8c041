//! Persisted state: new optional fields need no new version, and another version is refused.

use super::service::Service;
use crate::pruning::records::{CELL, Stored, UtxoPruner};
use crate::storage::memory;
use crate::storage::places;
use crate::utxo::tests::world::Tx;
use ciborium::Value;
use coppice_interface::*;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::rc::Rc;

/// Stand-in for a future version with one more field.
#[derive(Serialize, Deserialize)]
struct Next<T> {
    #[serde(flatten)]
    now: T,
    a_field_to_come: Option<Vec<u32>>,
}

/// Checks that the next version reads this version's bytes, and this version reads the next one's.
fn takes_a_field<T: Serialize + DeserializeOwned>(value: &T) {
    let bytes = |value: &Value| {
        let mut bytes = Vec::new();
        ciborium::into_writer(value, &mut bytes).unwrap();
        bytes
    };
    let now = Value::serialized(value).unwrap();
    let next: Next<T> = ciborium::from_reader(bytes(&now).as_slice()).unwrap();
    assert!(next.a_field_to_come.is_none());
    let Value::Map(mut fields) = now.clone() else { panic!("{now:?} has no room for a field") };
    fields.push(("a_field_to_come".into(), Value::Array(vec![7.into()])));
    let back: T = ciborium::from_reader(bytes(&Value::Map(fields)).as_slice()).unwrap();
    assert_eq!(Value::serialized(&back).unwrap(), now);
}

/// Returns a pruner whose persisted fields are all in use.
fn busy() -> Service {
    let mut s = Service::new();
    let txs: Vec<Tx> = (0..5).map(|i| Tx::orphan(10 + i, 1)).collect();
    txs.iter().for_each(|tx| s.make_due(tx));
    s.set(UtxoPrunerSettingsChange { max_ops_per_tick: Some(1), ..Default::default() });
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

fn stored() -> Stored {
    let cells = memory::region(memory::CELLS);
    CELL.load(&cells).unwrap().unwrap()
}

#[test]
fn every_persisted_type_accepts_a_new_field() {
    let s = busy();
    let stored = stored();
    takes_a_field(&stored);
    takes_a_field(stored.run.as_ref().unwrap());
    takes_a_field(&stored.run.as_ref().unwrap().heights);
    takes_a_field(stored.full_pass.as_ref().unwrap());
    takes_a_field(&stored.settings);
    takes_a_field(stored.running.as_ref().unwrap());
    takes_a_field(&stored.running.as_ref().unwrap().counts);
    takes_a_field(stored.last_completed.as_ref().unwrap());
    takes_a_field(&stored.ended);
    takes_a_field(&stored.skipped);
    takes_a_field(&stored.totals);
    takes_a_field(&crate::utxo::Cursor::default());
    takes_a_field(&UtxoBlockedBy {
        slot: 1,
        txid: Default::default(),
        parent: None,
        code: "OutOfSpace".into(),
        why: "stable memory is full".into(),
    });
    takes_a_field(&s.w.settings);
}

#[test]
fn other_versions_and_unreadable_bytes_are_refused() {
    let mut s = busy();
    let cells = Rc::new(memory::region(memory::CELLS));
    let open = || UtxoPruner::open(Rc::clone(&cells)).map(drop);
    let bytes: [u8; 16] = cells.read(places::UTXO_PRUNER);
    for (at, byte) in [(0, b'X'), (4, 0), (4, 2), (5, 1), (12, 0xFF)] {
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

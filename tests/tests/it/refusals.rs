//! Refusals that do not occur in a canister's ordinary life, each through the interface: damaged memory, too few cycles for UTXO records,
//! more work than a message may do.

use crate::utxo::{all_ok, configure, create, get, set_mined, spend};
use coppice_tests::blocks::{hash, plain};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::transactions::Tx;
use ic_coppice_host::{Host, Limits, StablePagePrices};
use ic_coppice_interface::*;

/// Writes to stable memory `at` bytes before the place where `bytes` follow `before`.
pub fn damage(
    coppice: &Coppice,
    host: &Host,
    bytes: &[u8],
    is_there: impl Fn(&[u8]) -> bool,
    head: usize,
    with: &[u8],
) {
    let mut memory = host.get_stable_memory(coppice.id);
    let finder = memory.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    let places = finder.map(|(at, _)| at).filter(|&at| at >= head && is_there(&memory[at - head..at]));
    let places: Vec<usize> = places.collect();
    assert_eq!(places.len(), 1, "{places:?}");
    memory[places[0] - head..places[0] - head + with.len()].copy_from_slice(with);
    host.set_stable_memory(coppice.id, &memory);
}

#[test]
fn block_with_a_damaged_header_is_corrupt() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..9, 1_000);
    // The header of block 5: the number at offset 8, the hash at 64.
    let is_header = |head: &[u8]| head[8..16] == 5u64.to_le_bytes();
    damage(&coppice, &host, &hash(5), is_header, 64, &[0, 0]);
    assert!(matches!(coppice.block(5), Err(ReadError::Corrupt { .. })), "{:?}", coppice.block(5));
    let page = coppice.export(None, 1_000_000).unwrap();
    let refused = coppice.export(Some(page.cursor.unwrap()), 1_000_000);
    assert!(matches!(refused, Err(ExportError::Corrupt { .. })), "{refused:?}");
    assert!(coppice.block(4).is_ok() && coppice.block(6).is_ok());
    coppice.append(&plain(9, 3, 1_000)).unwrap();
}

#[test]
fn a_record_that_cannot_be_decoded_is_corrupt() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let (tx, other) = (Tx::orphan(1, 2), Tx::orphan(2, 2));
    all_ok(create(&coppice, 10, vec![tx.record(), other.record()]));
    // The record's head: a kind and a version, 1 each, and the id at offset 8.
    damage(&coppice, &host, &tx.txid, |head| head[..2] == [1, 1], 8, &[9]);
    let corrupt = |error: UtxoRefusal| matches!(error, UtxoRefusal::Corrupt { .. });
    assert!(get(&coppice, &tx).is_err_and(|error| corrupt(error.into())));
    assert!(create(&coppice, 11, vec![tx.record()]).results.remove(0).is_err_and(|error| corrupt(error.into())));
    assert!(set_mined(&coppice, 11, 7, &[&tx], false).results.remove(0).is_err_and(|error| corrupt(error.into())));
    let item = TransactionSpends { spender: [7; 32].into(), spends: vec![tx.spend(0, 0)] };
    let refused = spend(&coppice, 11, vec![item]).results.remove(0).unwrap_err();
    assert!(corrupt(refused[0].error.clone().into()), "{refused:?}");
    assert!(get(&coppice, &other).is_ok());
}

#[test]
fn records_whose_memory_cannot_be_paid_are_refused_with_the_missing_cycles() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let mut salt = 0;
    let refused = loop {
        let batch: Vec<UtxoCreate> = (0..250).map(|i| Tx::orphan(salt + i, 50).record()).collect();
        salt += 250;
        let status = host.canister_status(coppice.id, Some(Who::Controller.principal())).unwrap();
        host.faults().low_cycles(coppice.id, status.freezing_limit + 135_000_000_000);
        let answer = create(&coppice, 10, batch);
        if let Some(error) = answer.results.into_iter().find_map(Result::err) {
            break error;
        }
        assert!(salt < 50_000, "memory must have to grow");
    };
    assert!(matches!(refused, UtxoCreateError::NoMemory(NoMemory::LowCycles { missing: 1.. })), "{refused:?}");
    host.add_cycles(coppice.id, 1_000_000_000_000);
    all_ok(create(&coppice, 10, vec![Tx::orphan(salt, 50).record()]));
}

/// Pages are so expensive that no message reaches a leaf of a family of double spends.
#[test]
fn a_family_whose_leaves_no_message_reaches_is_refused() {
    let (coppice, host) = Coppice::embedded(default_arg());
    configure(&coppice, UtxoSettingsChange { utxo_batch_size: Some(20_000), ..Default::default() }).unwrap();
    let mut txs = vec![Tx::orphan(1, 100)];
    for salt in 2..60 {
        let parent = txs.last().expect("the first").txid;
        txs.push(Tx::of(salt, &[(parent, 0)], 100));
    }
    for tx in &txs {
        all_ok(create(&coppice, 10, vec![tx.record()]));
    }
    for pair in txs.windows(2) {
        let item = TransactionSpends { spender: pair[1].id(), spends: vec![pair[0].spend(0, 0)] };
        assert_eq!(spend(&coppice, 11, vec![item]).results, [Ok(1)]);
    }
    let before: Vec<UtxoRecord> = txs.iter().map(|tx| get(&coppice, tx).unwrap()).collect();
    let mark = || -> Batch<Result<Conflict, UtxoError>> {
        coppice
            .producer()
            .utxo_set_conflicting(&UtxoSetConflictingBatch { height: 12, txids: vec![txs[0].id()] })
            .answer()
    };
    let dear = StablePagePrices { first_access: 300_000_000, first_write: 0 };
    host.set_limits(Limits { stable_page_prices: dear, ..Limits::default() });
    // No further output of the first transaction may be spent.
    let first = all_ok(mark()).remove(0);
    assert_eq!((first.marked, first.has_more), (vec![txs[0].id()], true));
    assert_eq!(mark().results, [Err(UtxoError::TooMuchWork)]);
    host.set_limits(Limits::default());
    let after: Vec<UtxoRecord> = txs.iter().map(|tx| get(&coppice, tx).unwrap()).collect();
    assert_eq!(after[1..], before[1..]);
    assert!(after[0].conflicting);
    let rest = all_ok(mark()).remove(0);
    assert_eq!((rest.marked.len(), rest.has_more), (txs.len() - 1, false));
}

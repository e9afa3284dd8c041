//! Comparison with the model after every message: each whole record, and the counters.

use coppice_model::documents::{Id, Record, Store, Verdict, hex, id};
use coppice_tests::client::Answered;
use coppice_tests::coppice::Coppice;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

/// The records of these transactions.
pub fn records(coppice: &Coppice, txs: &[Rc<Tx>]) -> Verdict<BTreeMap<Id, UtxoRecord>> {
    let mut all = BTreeMap::new();
    for tx in txs {
        match coppice
            .anyone()
            .utxo_get(&UtxoGet { txid: tx.id(), first: 0, limit: 5_000, extra_pages_cursor: None })
            .answer()
        {
            Ok(record) => drop(all.insert(tx.txid, record)),
            Err(UtxoError::TxNotFound) => {}
            Err(error) => return Err(format!("utxo_get of {}: {error:?}", hex(&tx.txid))),
        }
    }
    Ok(all)
}

/// The fields that differ, one a line.
fn differences(expected: &UtxoRecord, seen: &UtxoRecord) -> String {
    let [expected, seen] = [expected, seen].map(|record| format!("{record:#?}"));
    let mut report = String::new();
    let lines: Vec<&str> = seen.lines().collect();
    for line in expected.lines().filter(|line| !lines.contains(line)) {
        let _ = writeln!(report, "  model:    {}", line.trim());
    }
    let lines: Vec<&str> = expected.lines().collect();
    for line in seen.lines().filter(|line| !lines.contains(line)) {
        let _ = writeln!(report, "  canister: {}", line.trim());
    }
    report
}

fn same(expected: &Record, seen: &UtxoRecord) -> Verdict {
    let (from, to) = expected.created;
    if !(from..=to).contains(&seen.created_at_ns) {
        return Err(format!("  created at {}, not from {from} to {to}\n", seen.created_at_ns));
    }
    let in_blobs = match &seen.transaction {
        TransactionPlace::Record | TransactionPlace::Block { .. } => false,
        TransactionPlace::Blobs { .. } => true,
        TransactionPlace::External(_) => return Err("  its bytes are external\n".into()),
    };
    if in_blobs != expected.external() {
        return Err(format!("  its bytes are {:?}\n", seen.transaction));
    }
    let mut expected = expected.shown();
    // The documents leave open the order in which double spends are listed.
    expected.conflicting_children.sort();
    let mut seen = UtxoRecord { created_at_ns: 0, transaction: TransactionPlace::Record, ..seen.clone() };
    seen.deleted_children.sort();
    seen.conflicting_children.sort();
    if seen == expected { Ok(()) } else { Err(differences(&expected, &seen)) }
}

/// Compares `utxo_get_spend` of each output of these transactions with the model.
pub fn spendable(coppice: &Coppice, store: &Store, txs: &[Rc<Tx>], height: u32) -> Verdict {
    // One more output than exists.
    let outpoints: Vec<Outpoint> =
        txs.iter().flat_map(|tx| (0..=tx.outputs.len() as u32).map(|vout| tx.outpoint(vout))).take(5_000).collect();
    let asked = UtxoGetSpend { height, outpoints };
    let answer =
        coppice.anyone().utxo_get_spend(&asked).answer().map_err(|error| format!("utxo_get_spend: {error:?}"))?;
    for (outpoint, seen) in asked.outpoints.iter().zip(answer) {
        let record = store.records.get(&id(&outpoint.txid));
        let output = record.and_then(|record| record.output(outpoint.vout));
        let expected = UtxoSpendState {
            status: record.map_or(SpendStatus::NotFound, |record| record.status(outpoint.vout, height)),
            utxo_hash: output.map(|output| output.hash.into()),
            spender: output.and_then(|output| output.spender).map(|(by, vin)| Spender { txid: by.into(), vin }),
        };
        if seen != expected {
            let name = hex(&outpoint.txid);
            return Err(format!(
                "utxo_get_spend of {name}:{} at {height} is {seen:?}, to be {expected:?}",
                outpoint.vout
            ));
        }
    }
    Ok(())
}

/// Checks that `utxo_list_unmined` lists each unmined record once, by `created_at_ns`, in pages of any size.
pub fn unmined(coppice: &Coppice, seen: &BTreeMap<Id, UtxoRecord>, limit: u32) -> Verdict {
    let row = |record: &UtxoRecord| {
        Some(UnminedTransaction {
            txid: record.txid.clone(),
            created_at_ns: record.created_at_ns,
            unmined_since: record.unmined_since?,
            fee: record.fee,
            size_in_bytes: record.size_in_bytes,
            locked: record.locked,
            conflicting: record.conflicting,
        })
    };
    let mut expected: Vec<UnminedTransaction> = seen.values().filter_map(row).collect();
    expected.sort_by_key(|one| one.created_at_ns);
    if let Some(pair) = expected.windows(2).find(|pair| pair[0].created_at_ns == pair[1].created_at_ns) {
        return Err(format!("two records are created at the same time: {pair:?}"));
    }
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = coppice.anyone().utxo_list_unmined(&cursor, limit).answer();
        let page = page.map_err(|error| format!("utxo_list_unmined: {error:?}"))?;
        let idle = page.transactions.is_empty() && page.cursor.is_some();
        if idle || page.transactions.len() > limit as usize || listed.len() > expected.len() {
            return Err(format!("utxo_list_unmined by {limit} answers {page:?} after {} rows", listed.len()));
        }
        listed.extend(page.transactions);
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    if listed == expected { Ok(()) } else { Err(format!("utxo_list_unmined lists {listed:?}, to be {expected:?}")) }
}

/// Compares all records, the counters and `pruned_height` with the model.
pub fn compare(store: &Store, seen: &BTreeMap<Id, UtxoRecord>, storage: &UtxoStorage) -> Verdict {
    for (id, expected) in &store.records {
        let name = hex(id);
        let Some(seen) = seen.get(id) else { return Err(format!("the record {name} is gone")) };
        same(expected, seen).map_err(|why| format!("the record {name} differs:\n{why}"))?;
    }
    if let Some(id) = seen.keys().find(|id| !store.records.contains_key(*id)) {
        return Err(format!("there is an unexpected record {}", hex(id)));
    }
    let counted = [storage.records, storage.extra_pages, storage.deletable, storage.unmined, storage.preserved];
    let expected = store.counters();
    if counted != expected {
        let names = "records, extra_pages, deletable, unmined, preserved";
        return Err(format!("the counters ({names}) are {counted:?}, to be {expected:?}"));
    }
    if storage.pruned_height != store.pruned {
        return Err(format!("pruned_height is {:?}, to be {:?}", storage.pruned_height, store.pruned));
    }
    Ok(())
}

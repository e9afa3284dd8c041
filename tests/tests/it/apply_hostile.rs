//! Bodies whose lengths are the work: each message of applying, of `Kept` and of taking back stays small, and there is a way past each.

use coppice_tests::blocks::{block_id, hash, seal, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, default_arg};
use coppice_tests::transactions::{Tx, block, var_int};
use ic_coppice_host::{Host, Kind, Outcome};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use std::sync::Arc;

const MIB: usize = 1 << 20;
/// Changed pages of 4 KiB, heap and stable memory together, above which the platform slows a canister down.
const DIRTIED: u64 = (75 << 20) / 4_096;
/// Applying begins no step after 2 billion instructions.
const INSTRUCTIONS: u64 = 2_100_000_000;

/// A transaction's bytes with these witnesses.
fn with_witnesses(tx: &Tx, witnesses: &[&[u8]]) -> Vec<u8> {
    let (version, rest) = tx.raw.split_at(4);
    let (parts, lock_time) = rest.split_at(rest.len() - 4);
    [version, &[0, 1], parts, &witnesses.concat(), lock_time].concat()
}

/// A witness of `items` items, each of these bytes.
fn witness(items: usize, item: &[u8]) -> Vec<u8> {
    [var_int(items as u64), item.repeat(items)].concat()
}

fn append(coppice: &Coppice, number: u64, txs: &[Tx], raws: &[Vec<u8>]) {
    let mut block = block(number, txs);
    block.body = ByteBuf::from([&[7; 80][..], &var_int(raws.len() as u64), &raws.concat()].concat());
    seal(&mut block);
    let (begin, chunks) = upload(&block, MIB);
    coppice.producer().begin_block(&begin).answer().unwrap();
    for (chunk, bytes) in (0..).zip(chunks) {
        coppice.put(number, chunk, bytes).unwrap();
    }
    coppice.producer().commit_block(&block_id(&block)).answer().unwrap();
}

fn argument(number: u64) -> UtxoApplyBlock {
    UtxoApplyBlock {
        number,
        hash: hash(number).into(),
        height: 100 + number as u32,
        block_id: number as u32,
        missing_parents: Some(MissingParents::Skip),
        skip: None,
        skip_rest: false,
    }
}

/// Returns the most instructions of a message since the last call. No message changed many pages, and none trapped.
fn most(host: &Host, what: &str) -> u64 {
    let messages = host.take_executions();
    let messages = messages.iter().filter(|message| !matches!(message.kind, Kind::Query | Kind::InspectMessage));
    let mut most = 0;
    for message in messages {
        let dirtied = message.stable_pages_written + message.heap_pages_written;
        assert!(message.outcome == Outcome::Completed && dirtied <= DIRTIED, "{what}: {message:?}");
        most = most.max(message.instructions);
    }
    println!("{what}: at most {most} instructions");

    most
}

/// Applies a block until it is finished, refused or stopped.
fn apply(coppice: &Coppice, arg: &UtxoApplyBlock) -> Result<UtxoApplied, UtxoApplyError> {
    loop {
        let done = coppice.operator().utxo_apply_block(arg).answer()?;
        if !done.has_more {
            return Ok(done);
        }
    }
}

fn canister() -> (Coppice, Arc<Host>) {
    let (coppice, host) = Coppice::embedded(default_arg());
    host.add_cycles(coppice.id, 1 << 60);
    coppice.configure(ConfigChange { verify_segments: Some(false), ..ConfigChange::default() });
    (coppice, host)
}

#[test]
fn one_transaction_that_fills_the_body_is_skipped_in_small_messages() {
    let (coppice, host) = canister();
    let tx = Tx::orphan(1, 1);
    let outputs = [&tx.raw[..4 + 1 + 36 + 7], &var_int(20_000_000), &[0; 9].repeat(20_000_000), &[0; 4]].concat();
    let lying = [&var_int(u64::MAX)[..], &vec![0; 40 * MIB]].concat();
    for (number, (what, raw, is_reached)) in (0..).zip([
        ("witness items of one byte", with_witnesses(&tx, &[&witness(40 * MIB, &[1, 7])]), true),
        ("empty witness items", with_witnesses(&tx, &[&witness(230 * MIB, &[0])]), false),
        ("empty scripts", outputs, false),
        ("a number of items that lies", with_witnesses(&tx, &[&lying]), false),
    ]) {
        append(&coppice, number, std::slice::from_ref(&tx), &[raw]);
        host.take_executions();
        match apply(&coppice, &argument(number)) {
            Err(UtxoApplyError::Stopped(stop)) => {
                let reason = UtxoCreateError::TooLarge { what: "bytes of a transaction".into(), limit: 16 << 20 };
                let outputs = UtxoCreateError::TooLarge { what: "outputs".into(), limit: 1_000_000 };
                let known = [reason, outputs].map(UtxoApplyReason::Create);
                assert!(known.contains(&stop.reason), "{what}: {stop:?}");
            }
            other => panic!("{what}: {other:?}"),
        }
        let skip = UtxoApplyBlock { skip: Some(tx.id()), ..argument(number) };
        let skipped = apply(&coppice, &skip);
        match skipped {
            Ok(done) => assert!(is_reached && done.transactions == 1, "{what}: {done:?}"),
            Err(UtxoApplyError::BadBody { transaction: 0, .. }) if !is_reached => {
                let rest = UtxoApplyBlock { skip_rest: true, ..skip };
                assert_eq!(apply(&coppice, &rest).map(|done| (done.transactions, done.created)), Ok((1, 0)), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
        assert!(most(&host, what) <= INSTRUCTIONS, "{what}");
        // A record from the kept block is refused within a message as well.
        let kept = TransactionSource::Kept(KeptTransaction { number, position: 0 });
        let items = vec![UtxoCreate { source: kept, ..tx.record() }];
        let refused = coppice.producer().utxo_create(&UtxoCreateBatch { height: 100, items }).answer();
        assert!(matches!(refused.results[..], [Err(_)]), "{what}: {refused:?}");
        most(&host, "the same as Kept");
        coppice.operator().rollback_to(number.saturating_sub(1), None).answer().ok();
        if number > 0 {
            append(&coppice, number, &[Tx::coinbase(number, 1)], &[Tx::coinbase(number, 1).raw]);
            apply(&coppice, &argument(number)).unwrap();
        }
        most(&host, "rolled back");
    }
    let entries = coppice.operator().get_audit_log(None, 100).answer().entries;
    let named = entries.iter().filter(|entry| entry.after.contains("skipped of block")).count();
    assert!(named > 0, "{entries:?}");
}

#[test]
fn longest_transactions_are_applied_and_taken_back_in_small_messages() {
    let (coppice, host) = canister();
    let (wide, long) = (Tx::orphan(1, 1), Tx::new(&[([3; 32], 0)], &[(1, vec![0x51; 16 * MIB - 200])]));
    let raw = with_witnesses(&wide, &[&witness(16 * MIB - 200, &[0])]);
    append(&coppice, 0, &[Tx::coinbase(0, 1)], &[Tx::coinbase(0, 1).raw]);
    append(&coppice, 1, &[wide.clone(), long.clone()], &[raw.clone(), long.raw.clone()]);
    coppice.configure(ConfigChange {
        utxo: Some(UtxoSettingsChange { copy_applied_transactions: Some(false), ..UtxoSettingsChange::default() }),
        ..ConfigChange::default()
    });
    apply(&coppice, &argument(0)).unwrap();
    host.take_executions();
    apply(&coppice, &argument(1)).unwrap();
    assert!(most(&host, "applied") <= INSTRUCTIONS);
    while coppice.operator().rollback_to(0, None).answer().unwrap().has_more {}
    assert!(most(&host, "taken back") <= INSTRUCTIONS);
    for (tx, raw) in [(wide, raw), (long.clone(), long.raw)] {
        let length = 1_000;
        let part = UtxoGetPart { txid: tx.id(), part: UtxoPart::Transaction, offset: 16 * MIB as u64 - 2_000, length };
        let read = coppice.anyone().utxo_get_transaction(&part).answer().unwrap();
        assert_eq!(read.bytes[..], raw[16 * MIB - 2_000..][..1_000]);
    }
}

/// Two ids of many later blocks: each input that spends from one of them, in turn with the other, walks no list of those blocks.
#[test]
fn ids_that_many_later_blocks_repeat_cost_an_input_little() {
    let parents = [Tx::orphan(1, 300), Tx::orphan(2, 300)];
    let inputs: Vec<_> = (0..500).map(|nth| (parents[nth % 2].txid, nth as u32 / 2)).collect();
    let child = Tx::of(3, &inputs, 1);
    let take = |repeats: u64| {
        let (coppice, host) = canister();
        coppice.append(&block(0, std::slice::from_ref(&child))).unwrap();
        for number in 1..=repeats {
            coppice.append(&block(number, &parents)).unwrap();
        }
        host.take_executions();
        let done = apply(&coppice, &argument(0)).unwrap();
        assert_eq!(done.missing_parents, 500);
        most(&host, "an input with many later blocks")
    };
    let (few, many) = (take(1), take(300));
    assert!(many < few + few / 10, "{few}, then {many}");
}

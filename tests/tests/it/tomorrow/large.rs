//! The largest transactions that a message can make a record of, and their deletion; and double spends of very many inputs.

use super::batches::create;
use super::*;
use crate::pruner::world::{RETENTION, TICK as SECS, World};
use crate::utxo::configure;
use coppice_tests::client::Answered;
use coppice_tests::coppice::blob_bytes;
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// The most pages that a message may read.
const READ: u64 = 524_288;

/// A transaction without UTXOs: its record is finished as soon as a block contains it.
fn wide(salt: u64, outputs: usize) -> Tx {
    let mut outputs = vec![(0, vec![0x6A]); outputs];
    outputs[0].1.extend(salt.to_le_bytes());
    Tx::new(&[([7; 32], 0)], &outputs)
}

/// Uploads a transaction and makes its record, mined at 10.
fn upload(coppice: &Coppice, tx: &Tx) -> Result<UtxoCreated, UtxoCreateError> {
    let producer = coppice.producer();
    let begin = BeginTransaction { txid: tx.id(), length: tx.raw.len() as u64, chunk_size: 1 << 20 };
    producer.utxo_begin_transaction(&begin).answer().unwrap();
    for (chunk, bytes) in (0..).zip(tx.raw.chunks(1 << 20)) {
        let put = PutTransactionChunk { txid: tx.id(), chunk, bytes: ByteBuf::from(bytes) };
        producer.utxo_put_transaction_chunk(&put).answer().unwrap();
    }
    let mined = MinedIn { blocks: vec![BlockRef { block_id: 10, height: 10, subtree: 0 }], on_longest_chain: true };
    let item =
        UtxoCreate { source: TransactionSource::Uploaded(tx.id()), mined: Some(mined), is_new: true, ..tx.record() };
    let created = producer.utxo_create(&UtxoCreateBatch { height: 10, items: vec![item] }).answer().results.remove(0);
    if created.is_err() {
        producer.utxo_abort_transaction(&tx.id()).answer().unwrap();
    }
    created
}

fn assert_within(host: &Host, what: &str, most_instructions: u64) {
    let messages = host.take_executions();
    let largest = |of: fn(&Execution) -> u64| messages.iter().map(of).max().expect("there was a message");
    let dirtied = largest(|message| message.heap_pages_written + message.stable_pages_written);
    let (read, instructions) =
        (largest(|message| message.stable_pages_read), largest(|message| message.instructions_charged));
    println!(
        "{what}: {} messages, at most {instructions} instructions, {dirtied} pages changed, {read} read",
        messages.len()
    );
    assert!(messages.iter().all(|message| message.outcome == Outcome::Completed), "{what}");
    assert!(dirtied <= DIRTIED && read <= READ && instructions <= most_instructions, "{what}");
}

/// Prunes at a height, with an upgrade and a cancelled job on the way. Returns the number of deleted pages of outputs.
fn prune(world: &World, host: &Host, height: u32) -> u64 {
    host.take_executions();
    let before = world.status().totals.pages_deleted;
    World::scheduled(world.persisted(height));
    for tick in 0.. {
        assert!(tick < 1_000, "{:?}", world.status());
        world.coppice.pass(SECS);
        if let (1, Some(job)) = (tick, world.status().running) {
            assert_within(host, "ticks before an upgrade", 4_000_000_000);
            world.coppice.upgrade();
            world.coppice.operator().utxo_cancel_prune_job(job.id).answer().unwrap();
            host.take_executions();
            World::scheduled(world.persisted(height + 1));
        }
        let status = world.status();
        if status.running.is_none() && status.pending.is_none() {
            break;
        }
    }
    assert_within(host, "ticks", 4_000_000_000);
    world.status().totals.pages_deleted - before
}

#[test]
fn a_transaction_too_large_for_a_message_is_refused_and_a_smaller_one_is_deleted_in_slices() {
    // Outputs per page; the most outputs that are accepted, approximately; and the fewest that are refused.
    for (batch, made, refused) in [(20_000, 520_000, 640_000), (1, 330_000, 420_000)] {
        let (coppice, host) = tomorrow();
        configure(&coppice, UtxoSettingsChange { utxo_batch_size: Some(batch), ..Default::default() }).unwrap();
        let world = World::on(coppice);
        let before = world.coppice.storage().utxo.unwrap().used_bytes;
        for outputs in [refused, 1_000_000] {
            host.take_executions();
            let tx = wide(1, outputs);
            match upload(&world.coppice, &tx) {
                Err(UtxoCreateError::TooLarge { what, limit }) => {
                    assert!(what.contains("pages") && limit == 18_432, "{what}")
                }
                other => panic!("{outputs} outputs, {batch} a page: {other:?}"),
            }
            assert_within(&host, "a refusal", UPDATE / 4);
            assert_eq!((world.record(&tx), world.coppice.storage().utxo.unwrap().used_bytes), (None, before));
        }
        // The second record reuses the slots of the first.
        for salt in [1, 2] {
            let tx = wide(salt, made);
            host.take_executions();
            let created = upload(&world.coppice, &tx).unwrap();
            assert_within(&host, &format!("creating {made} outputs, {batch} a page"), UPDATE / 4);
            assert_eq!(created.extra_pages, (made as u32 - 1) / batch);
            let deleted = prune(&world, &host, 10 * salt as u32 + RETENTION);
            assert_eq!((world.record(&tx), deleted), (None, u64::from(created.extra_pages)));
            assert_eq!(world.coppice.storage().utxo.unwrap().extra_pages, 0);
        }
        assert_eq!(
            (world.coppice.storage().utxo.unwrap().used_bytes, blob_bytes(&world.coppice.storage())),
            (before, 0)
        );
    }
}

/// The platform's instruction limit of an update.
const UPDATE: u64 = 40_000_000_000;

/// `count` double spends on a thousand parents: each spends from the first `common` ones, and from `more` of the rest in turn.
fn double_spends_fit_in_a_message(count: u64, common: usize, more: usize) {
    const PARENTS: u64 = 1_000;
    for prices in [StablePagePrices::TOMORROW, Limits::default().stable_page_prices] {
        let (coppice, host) = tomorrow();
        host.set_limits(Limits { stable_page_prices: prices, ..Limits::default() });
        let world = World::on(coppice);
        world.set(UtxoPrunerSettingsChange {
            max_instructions_per_tick: Some(TICK),
            utxo_chunk_group_limit: Some(10_000),
            ..Default::default()
        });
        let parents: Vec<Tx> = (0..PARENTS).map(|salt| Tx::orphan(1 << 40 | salt, 1)).collect();
        world.create(10, &parents.iter().collect::<Vec<_>>());
        let mut rest = parents[common..].iter().cycle();
        let mut rival = |salt: u64| {
            let of = parents[..common].iter().chain(rest.by_ref().take(more));
            Tx::of(salt, &of.map(|parent| (parent.txid, 0)).collect::<Vec<_>>(), 1)
        };
        let rivals: Vec<Tx> = (0..count).map(&mut rival).collect();
        for some in rivals.chunks(20_000 / (common + more)) {
            let records = some.iter().map(|tx| UtxoCreate { conflicting: true, ..tx.record() });
            create(&world.coppice, &records.collect::<Vec<_>>());
        }
        assert_within(&host, "entering them", UPDATE);
        assert_eq!(world.record(&parents[0]).unwrap().conflicting_children.len() as u64, count);
        prune(&world, &host, 10 + RETENTION);
        assert!(rivals.iter().all(|tx| world.record(tx).is_none()));
        assert!(parents.iter().all(|tx| world.record(tx).unwrap().conflicting_children.is_empty()));
    }
}

#[test]
fn double_spends_of_a_thousand_inputs_each_on_the_same_parents_fit_in_a_message() {
    double_spends_fit_in_a_message(450, 1_000, 0);
}

/// Lists of 10,000 double spends, the most that a record shows, and a job with that many.
#[test]
fn ten_thousand_double_spends_on_a_thousand_parents_fit_in_a_message() {
    double_spends_fit_in_a_message(10_000, 20, 20);
}

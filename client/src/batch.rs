//! Batches of any size: splits them into messages, and sends again the items that a message left over.

use crate::item::{Item, Size};
use crate::{CallError, Client, Failure, Transport};
use ic_coppice_interface::*;

/// A batch stopped in the middle. The answered items are done. Sending the whole batch again is as safe as repeating the method is.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {} items", answers.len())]
pub struct Interrupted<R: std::fmt::Debug> {
    /// The answers to the first items, in order.
    pub answers: Vec<R>,
    /// The reason.
    #[source]
    pub error: CallError,
}

/// Returns how many of the first items one message holds, at least one.
fn fitting<I: Item>(items: &[I]) -> usize {
    let sums = items.iter().scan(Size::default(), |sum, item| {
        *sum = *sum + item.size();
        Some(*sum)
    });
    (1..).zip(sums).take_while(|(count, sum)| sum.fits(*count)).count().max(1)
}

/// Returns as many copies of an item as one message holds.
#[cfg(test)]
pub(crate) fn longest_batch<I: Item>(item: I) -> Vec<I> {
    let mut items = vec![item; crate::item::MAX_ITEMS];
    items.truncate(fitting(&items));
    items
}

async fn in_batches<I: Item, R: std::fmt::Debug>(
    method: &str,
    items: &[I],
    mut call: impl AsyncFnMut(Vec<I>) -> Result<Batch<R>, CallError>,
) -> Result<Vec<R>, Interrupted<R>> {
    let mut answers = Vec::with_capacity(items.len());
    while let rest @ [_, ..] = &items[answers.len()..] {
        let sent = fitting(rest);
        let error = match call(rest[..sent].to_vec()).await {
            // Summed as u64 because a usize has 32 bits on wasm.
            Ok(Batch { results, remaining })
                if !results.is_empty() && results.len() as u64 + u64::from(remaining) == sent as u64 =>
            {
                answers.extend(results);
                continue;
            }
            Ok(Batch { results, remaining }) => {
                let why = format!("{sent} items sent, {} answered, {remaining} reported as remaining", results.len());
                CallError { method: method.into(), failure: Failure::Transport(why.into()) }
            }
            Err(error) => error,
        };
        return Err(Interrupted { answers, error });
    }
    Ok(answers)
}

/// Methods that send a batch of any size.
macro_rules! batches {
    ($($(#[doc = $doc:literal])* $name:ident = $method:ident($batch:ty, $items:ident) -> $answer:ty;)*) => {
        impl<T: Transport> Client<T> {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// When a call in the middle has no answer. The items answered until then are done.
                pub async fn $name(&self, mut batch: $batch) -> Result<Vec<$answer>, Interrupted<$answer>> {
                    let items = std::mem::take(&mut batch.$items);
                    in_batches(stringify!($method), &items, async |some| {
                        batch.$items = some;
                        self.$method(&batch).await
                    })
                    .await
                }
            )*
        }
    };
}

batches! {
    /// [`utxo_create`](Self::utxo_create), for any number of records.
    utxo_create_all = utxo_create(UtxoCreateBatch, items) -> Result<UtxoCreated, UtxoCreateError>;
    /// [`utxo_spend`](Self::utxo_spend), for any number of transactions.
    utxo_spend_all = utxo_spend(UtxoSpendBatch, items) -> Result<u32, Vec<RefusedSpend>>;
    /// [`utxo_unspend`](Self::utxo_unspend), for any number of outputs.
    utxo_unspend_all = utxo_unspend(UtxoUnspendBatch, items) -> Result<bool, UtxoError>;
    /// [`utxo_set_mined`](Self::utxo_set_mined), for any number of transactions.
    utxo_set_mined_all = utxo_set_mined(UtxoSetMinedBatch, items) -> Result<Vec<u32>, UtxoError>;
    /// [`utxo_set_on_longest_chain`](Self::utxo_set_on_longest_chain), for any number of transactions.
    utxo_set_on_longest_chain_all =
        utxo_set_on_longest_chain(UtxoSetOnLongestChainBatch, txids) -> Result<(), UtxoError>;
    /// [`utxo_set_locked`](Self::utxo_set_locked), for any number of transactions.
    utxo_set_locked_all = utxo_set_locked(UtxoSetLockedBatch, txids) -> Result<(), UtxoError>;
    /// [`utxo_freeze`](Self::utxo_freeze), for any number of outputs or transactions.
    utxo_freeze_all = utxo_freeze(UtxoFreezeBatch, items) -> Result<u32, UtxoError>;
    /// [`utxo_unfreeze`](Self::utxo_unfreeze), for any number of outputs or transactions.
    utxo_unfreeze_all = utxo_unfreeze(UtxoFreezeBatch, items) -> Result<u32, UtxoError>;
    /// [`utxo_reassign`](Self::utxo_reassign), for any number of outputs.
    utxo_reassign_all = utxo_reassign(UtxoReassignBatch, items) -> Result<u32, UtxoError>;
    /// [`utxo_set_conflicting`](Self::utxo_set_conflicting), for any number of transactions. A transaction whose answer has `has_more` must
    /// be named again.
    utxo_set_conflicting_all = utxo_set_conflicting(UtxoSetConflictingBatch, txids) -> Result<Conflict, UtxoError>;
    /// [`utxo_preserve`](Self::utxo_preserve), for any number of transactions.
    utxo_preserve_all = utxo_preserve(UtxoPreserveBatch, txids) -> Result<bool, UtxoError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, block_on};
    use candid::CandidType;
    use serde::de::DeserializeOwned;
    use serde_bytes::ByteBuf;

    type Answer = Result<(), UtxoError>;

    fn locked(count: usize) -> UtxoSetLockedBatch {
        UtxoSetLockedBatch { height: 1, locked: true, txids: vec![Txid::from([7; 32]); count] }
    }

    fn done(count: usize, remaining: u32) -> Batch<Answer> {
        Batch { results: vec![Ok(()); count], remaining }
    }

    #[test]
    fn remaining_items_are_sent_again_until_all_are_answered() {
        let script = Script::default()
            .answers("utxo_set_locked", done(1, 4_999))
            .answers("utxo_set_locked", done(4_999, 1))
            .answers("utxo_set_locked", done(2, 0));
        let client = Client::new(script);
        assert_eq!(block_on(client.utxo_set_locked_all(locked(5_002))).unwrap().len(), 5_002);
        client.transport().ended();
        assert!(block_on(client.utxo_set_locked_all(locked(0))).unwrap().is_empty(), "nothing is sent");
    }

    #[test]
    fn inconsistent_or_lost_answer_stops_the_batch_and_keeps_earlier_answers() {
        // The last answer adds up only if the sum wraps at 32 bits.
        for answer in [done(0, 3), done(1, 3), done(4, 0), done(1, u32::MAX), done(3, 1), done(4, u32::MAX)] {
            let script = Script::default().answers("utxo_set_locked", answer);
            assert!(block_on(Client::new(script).utxo_set_locked_all(locked(3))).is_err());
        }
        let lost = Err(Failure::Lost("gone".into()));
        let script = Script::default().answers("utxo_set_locked", done(2, 1)).returns("utxo_set_locked", lost);
        let stopped = block_on(Client::new(script).utxo_set_locked_all(locked(3))).unwrap_err();
        assert_eq!((stopped.answers.len(), stopped.error.retry()), (2, crate::Retry::Again));
    }

    #[test]
    fn message_is_filled_to_its_limits_and_holds_at_least_one_item() {
        let create = |bytes: usize| UtxoCreate {
            source: TransactionSource::Raw(ByteBuf::from(vec![0; bytes])),
            mined: None,
            locked: None,
            conflicting: false,
            fee: None,
            is_new: false,
        };
        assert_eq!(fitting(&[create(1_000_000), create(400_000), create(100_000)]), 2);
        assert_eq!(fitting(&[create(3_000_000), create(1)]), 1);
        assert_eq!(fitting(&vec![Txid::from([0; 32]); 5_001]), 5_000);
    }

    /// Returns the cost of decoding a message, by `candid` itself.
    fn units<B: CandidType + DeserializeOwned>(message: &[u8]) -> usize {
        let mut config = candid::DecoderConfig::new();
        config.set_decoding_quota(1 << 40);
        let (_, cost) = candid::utils::decode_args_with_config_debug::<(B,)>(message, &config).unwrap();
        cost.decoding_quota.unwrap()
    }

    /// Checks that an item takes no more than its computed size.
    fn assert_size_is_enough<I: Item, B: CandidType + DeserializeOwned>(item: I, batch: impl Fn(Vec<I>) -> B) {
        let encoded = |items| candid::encode_one(batch(vec![item.clone(); items])).unwrap();
        let messages = [1, 2, 101].map(encoded);
        let [bytes, units] = [messages.each_ref().map(Vec::len), messages.each_ref().map(|bytes| units::<B>(bytes))];
        let size = item.size();
        for (took, computed) in [(bytes, size.bytes), (units, size.units)] {
            assert!(took[2] - took[0] <= 100 * computed && took[1] - took[0] <= computed, "{took:?}, {size:?}");
        }
    }

    #[test]
    fn computed_sizes_are_at_least_the_encoded_ones() {
        let (hash, output) = (|| Txid::from([0; 32]), || UtxoHash::from([0; 32]));
        let outpoint = Outpoint { txid: hash(), vout: u32::MAX };
        let spender = Spender { txid: hash(), vin: u32::MAX };
        let spend = Spend { txid: hash(), vout: u32::MAX, utxo_hash: output(), vin: u32::MAX };
        let (height, unset) = (u32::MAX, true);
        let spends = TransactionSpends { spender: hash(), spends: vec![spend; 100] };
        assert_size_is_enough(spends, |items| UtxoSpendBatch { height, items });
        let block = BlockRef { block_id: u32::MAX, height, subtree: u32::MAX };
        let mined = Some(MinedIn { blocks: vec![block; 9], on_longest_chain: true });
        let partial_output = PartialOutput { index: u32::MAX, satoshis: u64::MAX, script: ByteBuf::from([1; 200]) };
        let partial = PartialTransaction {
            txid: hash(),
            coinbase: true,
            total_outputs: u32::MAX,
            outputs: vec![partial_output; 50],
        };
        let store = ExternalStore {
            blob_key: ByteBuf::from([1; 1_024]),
            file_type: FileType::Outputs,
            store_type: StoreType::PeerRegistry,
        };
        let external = ExternalTransaction {
            txid: hash(),
            store,
            coinbase: true,
            version: u32::MAX,
            lock_time: u32::MAX,
            size: u64::MAX,
            inputs: vec![outpoint.clone(); 50],
            utxo_hashes: vec![Some(output()); 50],
        };
        for source in [
            TransactionSource::Raw(ByteBuf::from([1; 70])),
            TransactionSource::Raw(ByteBuf::from(vec![1; 70_000])),
            TransactionSource::Uploaded(hash()),
            TransactionSource::Outputs(partial),
            TransactionSource::External(external),
        ] {
            let record = UtxoCreate {
                source,
                mined: mined.clone(),
                locked: Some(true),
                conflicting: true,
                fee: Some(u64::MAX),
                is_new: false,
            };
            assert_size_is_enough(record, |items| UtxoCreateBatch { height, items });
        }
        let unspend = Unspend { outpoint: outpoint.clone(), utxo_hash: output(), spender };
        assert_size_is_enough(unspend, |items| UtxoUnspendBatch { height, items });
        let target = FreezeTarget { txid: hash(), vout: Some(u32::MAX), utxo_hash: Some(output()) };
        assert_size_is_enough(target, |items| UtxoFreezeBatch { height, items });
        let reassign = Reassign { outpoint, utxo_hash: output(), new_utxo_hash: output() };
        assert_size_is_enough(reassign, |items| UtxoReassignBatch { height, items });
        let mined = MinedTransaction { txid: hash(), subtree: u32::MAX };
        assert_size_is_enough(mined, |items| {
            let (block_id, block_height) = (u32::MAX, u32::MAX);
            UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain: true, unset, items }
        });
        assert_size_is_enough(hash(), |txids| UtxoPreserveBatch { until_height: height, txids });
    }

    /// Tests batches with the highest decoding cost per byte: many blocks, many outputs without scripts, inputs, empty hashes, spends.
    #[test]
    fn every_batch_stays_within_the_canisters_decoding_quota() {
        const QUOTA: usize = 2_800_000;
        fn fits<I: Item, B: CandidType + DeserializeOwned>(items: &[I], batch: impl Fn(Vec<I>) -> B) {
            let sent = fitting(items);
            let message = candid::encode_one(batch(items[..sent].to_vec())).unwrap();
            let units = units::<B>(&message);
            assert!(sent < items.len() && sent > 1, "{sent} of {} items", items.len());
            assert!(
                units <= QUOTA && message.len() < 2_000_000,
                "{sent} items: {units} units, {} bytes",
                message.len()
            );
        }
        let block = BlockRef { block_id: 1, height: 1, subtree: 1 };
        let output = PartialOutput { index: 1, satoshis: 1, script: ByteBuf::new() };
        let outpoint = Outpoint { txid: Txid::from([0; 32]), vout: 1 };
        let raw = || TransactionSource::Raw(ByteBuf::from([1; 70]));
        let outputs = |count| {
            let (txid, outputs) = (Txid::from([0; 32]), vec![output.clone(); count]);
            TransactionSource::Outputs(PartialTransaction { txid, coinbase: true, total_outputs: 1, outputs })
        };
        let external = |inputs, hashes| {
            let (file_type, store_type) = (FileType::Outputs, StoreType::PeerRegistry);
            TransactionSource::External(ExternalTransaction {
                txid: Txid::from([0; 32]),
                store: ExternalStore { blob_key: ByteBuf::from([1; 32]), file_type, store_type },
                coinbase: true,
                version: 1,
                lock_time: 1,
                size: 1,
                inputs: vec![outpoint.clone(); inputs],
                utxo_hashes: vec![None; hashes],
            })
        };
        for (source, blocks, count) in [
            (raw(), 20, 5_001),
            (raw(), 2_000, 100),
            (outputs(1), 9, 5_001),
            (outputs(2_000), 0, 100),
            (external(1_000, 0), 1, 100),
            (external(0, 1_000), 0, 100),
            (external(1, 1), 9, 5_001),
        ] {
            let mined = Some(MinedIn { blocks: vec![block; blocks], on_longest_chain: true });
            let record =
                UtxoCreate { source, mined, locked: Some(true), conflicting: true, fee: Some(1), is_new: false };
            fits(&vec![record; count], |items| UtxoCreateBatch { height: 1, items });
        }
        let spend = Spend { txid: Txid::from([0; 32]), vout: 1, utxo_hash: UtxoHash::from([0; 32]), vin: 1 };
        for (spends, count) in [(1, 5_001), (3, 5_001), (5_000, 10)] {
            let spends = TransactionSpends { spender: Txid::from([0; 32]), spends: vec![spend.clone(); spends] };
            fits(&vec![spends; count], |items| UtxoSpendBatch { height: 1, items });
        }
    }
}

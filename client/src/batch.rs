//! Batches of any size: as many items at a time as a message holds, and what a message left once more.

use crate::{CallError, Client, Failure, Transport};
use coppice_interface::*;

/// Bytes of a batch; a message may have 2 MiB in all.
const MAX_BYTES: usize = 1_500_000;
/// Items of a batch: more of them take more to decode than the canister allows.
const MAX_ITEMS: usize = 5_000;
/// Bytes of an item that is a few hashes and numbers.
const SMALL: usize = 128;
/// Bytes of a record beside its transaction's.
const RECORD: usize = 64;

/// Sending stopped in the middle of a batch. What was answered is done; sending all of it again is safe as far as the method is.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {} items", answers.len())]
pub struct Interrupted<R: std::fmt::Debug> {
    /// The answers to the items before, in their order.
    pub answers: Vec<R>,
    /// Why.
    #[source]
    pub error: CallError,
}

/// An item of a batch.
trait Item: Clone {
    /// Bytes of Candid that it takes at most.
    fn bytes(&self) -> usize;
}

impl Item for UtxoCreate {
    fn bytes(&self) -> usize {
        let blocks = self.mined.as_ref().map_or(0, |mined| 12 * mined.blocks.len());
        let source = match &self.source {
            TransactionSource::Raw(bytes) => bytes.len(),
            TransactionSource::Uploaded(txid) => txid.len(),
            TransactionSource::Outputs(outputs) => {
                SMALL + outputs.outputs.iter().map(|output| output.script.len() + 24).sum::<usize>()
            }
            TransactionSource::Outside(outside) => {
                SMALL + outside.store.blob_key.len() + 44 * outside.inputs.len() + 40 * outside.utxo_hashes.len()
            }
        };
        RECORD + blocks + source
    }
}

impl Item for TransactionSpends {
    fn bytes(&self) -> usize {
        48 + 80 * self.spends.len()
    }
}

/// Items of fixed size.
macro_rules! small {
    ($($item:ty = $bytes:expr),*) => {
        $(impl Item for $item {
            fn bytes(&self) -> usize {
                $bytes
            }
        })*
    };
}
small!(MinedTransaction = 48, Unspend = SMALL, FreezeTarget = SMALL, Reassign = SMALL, serde_bytes::ByteBuf = 48);

/// How many items at the front one message holds: one at least.
fn fitting<I: Item>(items: &[I]) -> usize {
    let sums = items.iter().scan(0usize, |sum, item| {
        *sum = sum.saturating_add(item.bytes());
        Some(*sum)
    });
    sums.take(MAX_ITEMS).take_while(|&sum| sum <= MAX_BYTES).count().max(1)
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
            Ok(Batch { results, remaining }) if !results.is_empty() && results.len() + remaining as usize == sent => {
                answers.extend(results);
                continue;
            }
            Ok(Batch { results, remaining }) => {
                let why = format!("of {sent} items {} are answered, and {remaining} are said to remain", results.len());
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
                /// When there is no answer in the middle: what was answered until then is done.
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
    /// [`utxo_set_conflicting`](Self::utxo_set_conflicting), for any number of transactions.
    utxo_set_conflicting_all = utxo_set_conflicting(UtxoSetConflictingBatch, txids) -> Result<Conflict, UtxoError>;
    /// [`utxo_preserve`](Self::utxo_preserve), for any number of transactions.
    utxo_preserve_all = utxo_preserve(UtxoPreserveBatch, txids) -> Result<bool, UtxoError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, block_on};
    use serde_bytes::ByteBuf;

    type Answer = Result<(), UtxoError>;

    fn locked(count: usize) -> UtxoSetLockedBatch {
        UtxoSetLockedBatch { height: 1, locked: true, txids: vec![ByteBuf::from([7; 32]); count] }
    }

    fn done(count: usize, remaining: u32) -> Batch<Answer> {
        Batch { results: vec![Ok(()); count], remaining }
    }

    #[test]
    fn what_remains_is_sent_again_until_all_is_answered() {
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
    fn answers_that_do_not_add_up_end_it_and_what_was_answered_is_not_lost() {
        for answer in [done(0, 3), done(1, 3), done(4, 0), done(1, u32::MAX), done(3, 1)] {
            let script = Script::default().answers("utxo_set_locked", answer);
            assert!(block_on(Client::new(script).utxo_set_locked_all(locked(3))).is_err());
        }
        let lost = Err(Failure::Lost("gone".into()));
        let script = Script::default().answers("utxo_set_locked", done(2, 1)).says("utxo_set_locked", lost);
        let stopped = block_on(Client::new(script).utxo_set_locked_all(locked(3))).unwrap_err();
        assert_eq!((stopped.answers.len(), stopped.error.retry()), (2, crate::Retry::Again));
    }

    #[test]
    fn a_message_holds_what_it_may_and_one_item_however_long() {
        let create = |bytes: usize| UtxoCreate {
            source: TransactionSource::Raw(ByteBuf::from(vec![0; bytes])),
            mined: None,
            locked: None,
            conflicting: false,
            fee: None,
        };
        assert_eq!(fitting(&[create(1_000_000), create(400_000), create(100_000)]), 2);
        assert_eq!(fitting(&[create(3_000_000), create(1)]), 1);
        assert_eq!(fitting(&vec![ByteBuf::from([0; 32]); 5_001]), 5_000);
    }

    /// What an item is reckoned with is what it takes, or more.
    fn generous<I: Item>(item: I, encoded: impl Fn(Vec<I>) -> Vec<u8>) {
        let sizes = [1, 2, 101].map(|items| encoded(vec![item.clone(); items]).len());
        assert!(sizes[2] - sizes[0] <= 100 * item.bytes(), "{sizes:?}, {}", item.bytes());
        assert!(sizes[1] - sizes[0] <= item.bytes(), "{sizes:?}, {}", item.bytes());
    }

    #[test]
    fn sizes_are_reckoned_generously() {
        let (hash, output) = (|| ByteBuf::from([0; 32]), || UtxoHash::from([0; 32]));
        let outpoint = Outpoint { txid: hash(), vout: u32::MAX };
        let spender = Spender { txid: hash(), vin: u32::MAX };
        let spend = Spend { txid: hash(), vout: u32::MAX, utxo_hash: output(), vin: u32::MAX };
        let (height, unset) = (u32::MAX, true);
        let spends = TransactionSpends { spender: hash(), spends: vec![spend; 100] };
        generous(spends, |items| candid::encode_one(UtxoSpendBatch { height, items }).unwrap());
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
        let outside = OutsideTransaction {
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
            TransactionSource::Outside(outside),
        ] {
            let record =
                UtxoCreate { source, mined: mined.clone(), locked: Some(true), conflicting: true, fee: Some(u64::MAX) };
            generous(record, |items| candid::encode_one(UtxoCreateBatch { height, items }).unwrap());
        }
        let unspend = Unspend { outpoint: outpoint.clone(), utxo_hash: output(), spender };
        generous(unspend, |items| candid::encode_one(UtxoUnspendBatch { height, items }).unwrap());
        let target = FreezeTarget { txid: hash(), vout: Some(u32::MAX), utxo_hash: Some(output()) };
        generous(target, |items| candid::encode_one(UtxoFreezeBatch { height, items }).unwrap());
        let reassign = Reassign { outpoint, utxo_hash: output(), new_utxo_hash: output() };
        generous(reassign, |items| candid::encode_one(UtxoReassignBatch { height, items }).unwrap());
        let mined = MinedTransaction { txid: hash(), subtree: u32::MAX };
        generous(mined, |items| {
            let (block_id, block_height) = (u32::MAX, u32::MAX);
            let batch = UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain: true, unset, items };
            candid::encode_one(batch).unwrap()
        });
        generous(hash(), |txids| candid::encode_one(UtxoPreserveBatch { until: height, txids }).unwrap());
    }
}

//! Batches of any size: as many items at a time as a message holds, and what a message left once more.

use crate::{CallError, Client, Failure, Transport};
use coppice_interface::*;

/// Bytes of a batch; a message may have 2 MiB in all.
const MAX_BYTES: usize = 1_500_000;
/// Items of a batch: more of them take more to decode than the canister allows.
const MAX_ITEMS: usize = 5_000;
/// Bytes of an item that is a fixed few hashes and numbers.
const SMALL: usize = 300;

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
            TransactionSource::Uploaded(_) => 0,
            TransactionSource::Outputs(outputs) => outputs.outputs.iter().map(|output| output.script.len() + 24).sum(),
            TransactionSource::Outside(outside) => {
                outside.store.blob_key.len() + 48 * outside.inputs.len() + 48 * outside.utxo_hashes.len()
            }
        };
        SMALL + blocks + source
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
        // What an item is reckoned with is what it takes, or more.
        let spend =
            Spend { txid: ByteBuf::from([0; 32]), vout: u32::MAX, utxo_hash: ByteBuf::from([0; 32]), vin: u32::MAX };
        let spends = TransactionSpends { spender: ByteBuf::from([0; 32]), spends: vec![spend; 1_000] };
        let encoded = candid::encode_one(UtxoSpendBatch { height: 1, items: vec![spends.clone(); 10] }).unwrap();
        assert!(encoded.len() <= 10 * spends.bytes(), "{} > {}", encoded.len(), 10 * spends.bytes());
        let records = UtxoCreateBatch { height: 1, items: vec![create(10); 1_000] };
        assert!(candid::encode_one(records).unwrap().len() <= 1_000 * create(10).bytes());
        assert!(candid::encode_one(locked(5_000)).unwrap().len() <= 5_000 * 48);
    }
}

//! Records and spends to the canister: batches that an ingress message holds, and what a message left undone once more.

use crate::canister::{Client, Transport};
use crate::feed::CHUNK;
use anyhow::{Context, Result, bail, ensure};
use bitcoin::Txid;
use bitcoin::hashes::Hash;
use coppice_interface::*;
use serde_bytes::ByteBuf;

/// Bytes of a batch; an ingress message may have 2 MiB in all.
pub const MAX_BATCH: usize = 1_500_000;
/// Bytes of Candid that a record takes at most beside its transaction's.
const RECORD: usize = 64;
/// Bytes of Candid that a spending transaction takes at most, and each of its spends.
const SPENDER: usize = 48;
const SPEND: usize = 80;
/// Spends of an item. A transaction that spends more does so in several.
const MAX_SPENDS: usize = 15_000;
const _: () = assert!(SPENDER + MAX_SPENDS * SPEND <= MAX_BATCH);

/// A block, as the UTXO store knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its id: two blocks of one height have different ones.
    pub id: u32,
    /// Its height.
    pub height: u32,
}

impl Block {
    /// The only block of its height, whose id that is too.
    pub fn only(height: u32) -> Self {
        Self { id: height, height }
    }

    fn place(self) -> BlockRef {
        BlockRef { block_id: self.id, height: self.height, subtree: 0 }
    }
}

/// A record to create.
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// The transaction.
    pub txid: Txid,
    /// Its bytes, in the form in which they are to be kept.
    pub bytes: Vec<u8>,
    /// Its fee, where the bytes do not say it.
    pub fee: Option<u64>,
    /// The block that has it; none while it is unmined, and then it can be spent from all the same.
    pub mined: Option<Block>,
    /// It is a double spend.
    pub conflicting: bool,
}

impl NewRecord {
    /// No batch holds it.
    pub fn is_long(&self) -> bool {
        self.bytes.len() + RECORD > MAX_BATCH
    }

    fn item(&self, source: TransactionSource) -> UtxoCreate {
        let mined = self.mined.map(|block| MinedIn { blocks: vec![block.place()], on_longest_chain: true });
        UtxoCreate { source, mined, locked: Some(false), conflicting: self.conflicting, fee: self.fee }
    }
}

/// What became of a record: it was created, with so many UTXOs, or it existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was created.
    Created {
        /// Its UTXOs.
        utxos: u32,
    },
    /// It existed, or its transaction does.
    Existed,
}

/// Sends items in order, as many at a time as a message holds, until there is an answer for each.
fn in_batches<I: Clone, T>(
    items: &[I],
    size: impl Fn(&I) -> usize,
    mut call: impl FnMut(Vec<I>) -> Result<Batch<T>>,
) -> Result<Vec<T>> {
    let mut answers = Vec::with_capacity(items.len());
    while answers.len() < items.len() {
        let rest = &items[answers.len()..];
        let sums = rest.iter().scan(0, |sum, item| {
            *sum += size(item);
            Some(*sum)
        });
        let sent = sums.take_while(|&sum| sum <= MAX_BATCH).count().max(1);
        let Batch { results, remaining } = call(rest[..sent].to_vec())?;
        ensure!(
            !results.is_empty() && results.len() + remaining as usize == sent,
            "of {sent} items the canister answers {}, and says that {remaining} remain",
            results.len()
        );
        answers.extend(results);
    }
    Ok(answers)
}

fn outcome(txid: &Txid, answer: Result<UtxoCreated, UtxoCreateError>) -> Result<Outcome> {
    match answer {
        Ok(created) => {
            ensure!(*created.txid == txid.to_byte_array(), "transaction {txid} has another id there: {created:?}");
            Ok(Outcome::Created { utxos: created.utxos })
        }
        Err(UtxoCreateError::TxExists) => Ok(Outcome::Existed),
        Err(error) => bail!("transaction {txid}: the canister makes no record: {error:?}"),
    }
}

/// Creates records at a height. Answers are in the order of the records.
///
/// # Errors
/// When the canister refuses one for another reason than that it exists.
pub fn create(client: &Client<impl Transport>, height: u32, records: &[NewRecord]) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::with_capacity(records.len());
    for run in records.chunk_by(|a, b| !a.is_long() && !b.is_long()) {
        if let [record] = run
            && record.is_long()
        {
            outcomes.push(create_long(client, height, record)?);
            continue;
        }
        let size = |record: &NewRecord| record.bytes.len() + RECORD;
        let answers = in_batches(run, size, |records| {
            let item = |mut record: NewRecord| {
                let bytes = std::mem::take(&mut record.bytes);
                record.item(TransactionSource::Raw(ByteBuf::from(bytes)))
            };
            let items = records.into_iter().map(item).collect();
            client.utxo_create(&UtxoCreateBatch { height, items })
        })?;
        for (record, answer) in run.iter().zip(answers) {
            outcomes.push(outcome(&record.txid, answer)?);
        }
    }
    Ok(outcomes)
}

/// Creates the record of a transaction that goes in chunks.
fn create_long(client: &Client<impl Transport>, height: u32, record: &NewRecord) -> Result<Outcome> {
    let txid = ByteBuf::from(record.txid.to_byte_array());
    match client.utxo_get(&UtxoGet { txid: txid.clone(), first: 0, limit: 0 })? {
        Ok(_) => return Ok(Outcome::Existed),
        Err(UtxoError::TxNotFound) => {}
        Err(error) => bail!("transaction {}: its record cannot be read: {error:?}", record.txid),
    }
    let failed = |what: &str, error| format!("transaction {}: {what}: {error:?}", record.txid);
    let begin = BeginTransaction { txid: txid.clone(), length: record.bytes.len() as u64, chunk_size: CHUNK };
    let mut begun = client.utxo_begin_transaction(&begin)?;
    if let Err(TransactionUploadError::OtherUpload { txid: other }) = &begun
        && *other == txid
    {
        // One that was interrupted, of another form of the same transaction.
        client.utxo_abort_transaction(&txid)?;
        begun = client.utxo_begin_transaction(&begin)?;
    }
    let mut progress = begun.map_err(|error| anyhow::anyhow!(failed("its upload", error)))?;
    for (chunk, bytes) in (0..).zip(record.bytes.chunks(CHUNK as usize)) {
        let chunk = PutTransactionChunk { txid: txid.clone(), chunk, bytes: ByteBuf::from(bytes) };
        let put = client.utxo_put_transaction_chunk(&chunk)?;
        progress = put.map_err(|error| anyhow::anyhow!(failed("a chunk", error)))?;
    }
    ensure!(
        progress.missing == 0,
        "transaction {}: all chunks are sent, and {} are missing",
        record.txid,
        progress.missing
    );
    let items = vec![record.item(TransactionSource::Uploaded(txid))];
    let batch = client.utxo_create(&UtxoCreateBatch { height, items })?;
    outcome(&record.txid, batch.results.into_iter().next().context("utxo_create answers nothing")?)
}

/// Says that a block of the longest chain has transactions or, with `unset`, that it is none of it any more. Where that
/// is known, nothing changes.
///
/// # Errors
/// When the canister refuses.
pub fn set_mined(
    client: &Client<impl Transport>,
    height: u32,
    block: Block,
    unset: bool,
    txids: &[Txid],
) -> Result<()> {
    let BlockRef { block_id, height: block_height, subtree } = block.place();
    let answers = in_batches(
        txids,
        |_| SPENDER,
        |txids| {
            let item = |txid: Txid| MinedTransaction { txid: ByteBuf::from(txid.to_byte_array()), subtree };
            let items = txids.into_iter().map(item).collect();
            let on_longest_chain = true;
            client.utxo_set_mined(&UtxoSetMinedBatch { height, block_id, block_height, on_longest_chain, unset, items })
        },
    )?;
    for (txid, answer) in txids.iter().zip(answers) {
        answer.map_err(|error| anyhow::anyhow!("transaction {txid}: its block cannot be set: {error:?}"))?;
    }
    Ok(())
}

/// What an error is where a coinbase is spent before the canister lets it be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Immature {
    /// The transaction that spends it, and the first input that does.
    pub input: (Txid, u32),
    /// The first height at which it can be spent.
    pub spendable_at: u32,
}

impl std::fmt::Display for Immature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (txid, vin) = self.input;
        write!(f, "transaction {txid}, input {vin}: the coinbase can be spent from height {} on", self.spendable_at)
    }
}

impl std::error::Error for Immature {}

/// Spends what transactions spend at a height, and answers how many outputs were not spent before.
///
/// # Errors
/// When the canister refuses a spend; [`Immature`] where that is why.
pub fn spend(client: &Client<impl Transport>, height: u32, spends: Vec<(Txid, Vec<Spend>)>) -> Result<u64> {
    let items: Vec<(Txid, TransactionSpends)> = spends
        .into_iter()
        .flat_map(|(txid, spends)| {
            let spender = ByteBuf::from(txid.to_byte_array());
            let item =
                |spends: &[Spend]| (txid, TransactionSpends { spender: spender.clone(), spends: spends.to_vec() });
            spends.chunks(MAX_SPENDS).map(item).collect::<Vec<_>>()
        })
        .collect();
    let size = |(_, item): &(Txid, TransactionSpends)| SPENDER + SPEND * item.spends.len();
    let answers = in_batches(&items, size, |items| {
        let items = items.into_iter().map(|(_, item)| item).collect();
        client.utxo_spend(&UtxoSpendBatch { height, items })
    })?;
    let mut new = 0;
    for ((txid, item), answer) in items.iter().zip(answers) {
        match answer {
            Ok(spent) => new += u64::from(spent),
            Err(errors) => {
                let first = errors.first().context("a refused spend without a reason")?;
                let input = item.spends.get(first.spend as usize).map_or(0, |spend| spend.vin);
                if let UtxoSpendError::CoinbaseImmature { spendable_at } = first.error {
                    bail!(Immature { input: (*txid, input), spendable_at });
                }
                bail!(
                    "transaction {txid}: {} of its inputs spend nothing there, first input {input}: {:?}",
                    errors.len(),
                    first.error
                )
            }
        }
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn what_remains_is_sent_again_with_as_much_as_fits() {
        let calls = RefCell::new(Vec::new());
        let items: Vec<usize> = vec![MAX_BATCH / 2, MAX_BATCH / 2, 1, 2 * MAX_BATCH, 1];
        let answers = in_batches(
            &items,
            |item| *item,
            |items| {
                calls.borrow_mut().push(items.len());
                let results = items[..items.len().min(1)].to_vec();
                Ok(Batch { remaining: (items.len() - results.len()) as u32, results })
            },
        );
        assert_eq!((answers.unwrap(), calls.into_inner()), (items.clone(), vec![2, 2, 1, 1, 1]));
        for (results, remaining) in [(vec![], 2), (vec![0], 0), (vec![0, 0, 0], 0)] {
            let answers = in_batches(&items[..2], |item| *item, |_| Ok(Batch { results: results.clone(), remaining }));
            assert!(answers.is_err());
        }
    }

    /// A message's argument is no longer than the reckoning says, whatever the numbers in it.
    #[test]
    fn sizes_are_reckoned_generously() {
        let record = NewRecord {
            txid: Txid::all_zeros(),
            bytes: Vec::new(),
            fee: Some(u64::MAX),
            mined: Some(Block::only(u32::MAX)),
            conflicting: true,
        };
        let encoded = |items: usize, bytes: usize| {
            let raw = TransactionSource::Raw(ByteBuf::from(vec![0; bytes]));
            let items = vec![record.item(raw); items];
            candid::encode_one(UtxoCreateBatch { height: 1, items }).unwrap().len()
        };
        assert!(encoded(2, 70_000) - encoded(1, 70_000) <= 70_000 + RECORD);
        let encoded = |items: usize, spends: usize| {
            let hash = ByteBuf::from([0; 32]);
            let spend = Spend { txid: hash.clone(), vout: u32::MAX, utxo_hash: hash.clone(), vin: u32::MAX };
            let items = vec![TransactionSpends { spender: hash, spends: vec![spend; spends] }; items];
            candid::encode_one(UtxoSpendBatch { height: 1, items }).unwrap().len()
        };
        assert!(encoded(1, MAX_SPENDS + 1) - encoded(1, MAX_SPENDS) <= SPEND);
        assert!(encoded(2, 0) - encoded(1, 0) <= SPENDER);
    }
}

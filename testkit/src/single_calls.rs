//! Single records and spends, sent as a node does for transactions that no block has yet.

use anyhow::{Context, Result, bail, ensure};
use bitcoin::Txid;
use bitcoin::hashes::Hash;
use ic_coppice_client::command::Wait;
use ic_coppice_client::{Client, Transport};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

/// Bytes of a transaction that surely fits into a message; an ingress message may have 2 MiB in all.
pub const MAX_RECORD: usize = 1_500_000;
/// Maximum number of spends in an item. A transaction with more spends takes several items.
const MAX_SPENDS: usize = 15_000;

/// A block in the UTXO store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block's id; two blocks of one height have different ids.
    pub id: u32,
    pub height: u32,
}

impl Block {
    /// Returns the only block of its height, with the height as its id.
    pub fn only(height: u32) -> Self {
        Self { id: height, height }
    }

    fn block_ref(self) -> BlockRef {
        BlockRef { block_id: self.id, height: self.height, subtree: 0 }
    }
}

/// A record to create.
#[derive(Clone, Debug)]
pub struct NewRecord {
    pub txid: Txid,
    /// The transaction's bytes, in the form in which they are to be kept.
    pub bytes: Vec<u8>,
    /// The fee, if the bytes do not imply it.
    pub fee: Option<u64>,
    /// The block with the transaction; `None` while it is unmined, when its outputs can nevertheless be spent.
    pub mined: Option<Block>,
    /// True for a double spend.
    pub conflicting: bool,
    /// The description of a transaction whose bytes are in an external blob.
    pub external: Option<Box<ExternalTransaction>>,
}

impl NewRecord {
    /// Returns whether the record is too long for a batch.
    pub fn is_long(&self) -> bool {
        self.external.is_none() && self.bytes.len() > MAX_RECORD
    }

    fn item(&self, source: TransactionSource) -> UtxoCreate {
        let mined = self.mined.map(|block| MinedIn { blocks: vec![block.block_ref()], on_longest_chain: true });
        UtxoCreate { source, mined, locked: Some(false), conflicting: self.conflicting, fee: self.fee, is_new: false }
    }
}

/// The result of creating a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created {
        utxos: u32,
    },
    /// The record or its transaction existed already.
    Existed,
}

fn outcome(txid: &Txid, answer: Result<UtxoCreated, UtxoCreateError>) -> Result<Outcome> {
    match answer {
        Ok(created) => {
            ensure!(
                *created.txid == txid.to_byte_array(),
                "transaction {txid} has another id in the canister: {created:?}"
            );
            Ok(Outcome::Created { utxos: created.utxos })
        }
        Err(UtxoCreateError::TxExists) => Ok(Outcome::Existed),
        Err(error) => bail!("transaction {txid}: the canister creates no record: {error}"),
    }
}

/// Creates records at a height. Returns the results in the order of the records.
///
/// # Errors
/// When the canister refuses a record that does not exist yet.
pub fn create(client: &Client<impl Transport>, height: u32, records: &[NewRecord]) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::with_capacity(records.len());
    for run in records.chunk_by(|a, b| !a.is_long() && !b.is_long()) {
        if let [record] = run
            && record.is_long()
        {
            outcomes.push(create_long(client, height, record)?);
            continue;
        }
        let item = |record: &NewRecord| {
            let source = match &record.external {
                Some(external) => TransactionSource::External((**external).clone()),
                None => TransactionSource::Raw(ByteBuf::from(record.bytes.as_slice())),
            };
            record.item(source)
        };
        let items = run.iter().map(item).collect();
        let answers = pollster::block_on(client.utxo_create_all(UtxoCreateBatch { height, items }))?;
        for (record, answer) in run.iter().zip(answers) {
            outcomes.push(outcome(&record.txid, answer)?);
        }
    }
    Ok(outcomes)
}

/// Creates the record of a transaction that is uploaded in chunks.
fn create_long(client: &Client<impl Transport>, height: u32, record: &NewRecord) -> Result<Outcome> {
    let txid = ic_coppice_interface::Txid::from(record.txid.to_byte_array());
    match client.utxo_get(&UtxoGet { txid: txid.clone(), first: 0, limit: 0, extra_pages_cursor: None }).wait()? {
        Ok(_) => return Ok(Outcome::Existed),
        Err(UtxoError::TxNotFound) => {}
        Err(error) => bail!("transaction {}: its record cannot be read: {error}", record.txid),
    }
    let uploaded = client.upload_transaction(&txid, &record.bytes).done();
    uploaded.with_context(|| format!("cannot upload transaction {}", record.txid))?;
    let items = vec![record.item(TransactionSource::Uploaded(txid))];
    let batch = client.utxo_create(&UtxoCreateBatch { height, items }).wait()?;
    outcome(&record.txid, batch.results.into_iter().next().context("utxo_create returned no result")?)
}

/// Spends outputs at a height, and returns how many were unspent before.
///
/// # Errors
/// When the canister refuses a spend.
pub fn spend(client: &Client<impl Transport>, height: u32, spends: Vec<(Txid, Vec<Spend>)>) -> Result<u64> {
    let mut txids = Vec::new();
    let mut items = Vec::new();
    for (txid, spends) in spends {
        for spends in spends.chunks(MAX_SPENDS) {
            txids.push(txid);
            items.push(TransactionSpends { spender: txid.to_byte_array().into(), spends: spends.to_vec() });
        }
    }
    let batch = UtxoSpendBatch { height, items: items.clone() };
    let answers = pollster::block_on(client.utxo_spend_all(batch))?;
    let mut new = 0;
    for ((txid, item), answer) in txids.iter().zip(&items).zip(answers) {
        match answer {
            Ok(spent) => new += u64::from(spent),
            Err(errors) => {
                let first = errors.first().context("the canister refused a spend without a reason")?;
                let vin = item.spends.get(first.spend as usize).map_or(0, |spend| spend.vin);
                bail!(
                    "transaction {txid}: the canister refuses {} of its spends, the first for input {vin}: {}",
                    errors.len(),
                    first.error
                )
            }
        }
    }
    Ok(new)
}

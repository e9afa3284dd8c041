//! The UTXO set that the blocks imply, with which the store is compared after the replay.

use crate::feed::sha256;
use anyhow::{Context, Result, bail};
use bitcoin::consensus::{Encodable, serialize};
use bitcoin::hashes::Hash;
use bitcoin::{OutPoint, Transaction, TxOut, Txid, VarInt};
use std::collections::{HashMap, HashSet};

/// A UTXO hash.
pub type UtxoHash = [u8; 32];

/// The position of a transaction in [`Set::records`].
pub type RecordId = u32;

/// An input: its transaction, and its number.
pub type Input = (RecordId, u32);

/// A transaction with a record.
#[derive(Clone, Debug)]
pub struct Record {
    pub txid: Txid,
    pub coinbase: bool,
    /// The height of the first block with the transaction.
    pub height: u32,
    /// SHA-256 of the transaction's bytes in its block.
    pub sha256: [u8; 32],
    /// True if the record existed before, perhaps with another form of the bytes.
    pub existed: bool,
    /// The outputs; `None` for an output that is not a UTXO.
    pub outputs: Vec<Option<Output>>,
}

/// An output that is a UTXO.
#[derive(Clone, Debug)]
pub struct Output {
    pub hash: UtxoHash,
    pub state: State,
}

/// The state of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Unspent, with its satoshis.
    Unspent(u64),
    Spent(Input),
}

/// A spent output of a transaction that is in none of the blocks, but has a record in the store.
#[derive(Clone, Debug)]
pub struct Foreign {
    pub outpoint: OutPoint,
    /// The UTXO hash, as the store reports it.
    pub hash: UtxoHash,
    /// The input that spends it.
    pub by: Input,
}

/// Transactions and their outputs.
#[derive(Clone, Debug, Default)]
pub struct Set {
    records: Vec<Record>,
    by_txid: HashMap<Txid, RecordId>,
    /// Spent outputs of other transactions.
    pub foreign: Vec<Foreign>,
    /// Transactions from which left-out ones spend: their outputs may be unspendable.
    pub refused: HashSet<Txid>,
}

/// SHA-256(txid ‖ VarInt(vout) ‖ script ‖ VarInt(satoshis)).
pub fn utxo_hash(outpoint: OutPoint, output: &TxOut) -> UtxoHash {
    let var_int = |number: u64| {
        let mut bytes = Vec::with_capacity(9);
        VarInt(number).consensus_encode(&mut bytes).expect("writing to a vector cannot fail");
        bytes
    };
    let (vout, satoshis) = (var_int(outpoint.vout.into()), var_int(output.value.to_sat()));
    sha256(&[outpoint.txid.as_byte_array(), &vout[..], output.script_pubkey.as_bytes(), &satoshis].concat())
}

/// Returns whether an output is a UTXO: it has satoshis, or a script that can be satisfied.
pub fn is_utxo(output: &TxOut) -> bool {
    let script = output.script_pubkey.as_bytes();
    output.value.to_sat() > 0 || !(script.starts_with(&[0x6A]) || script.starts_with(&[0x00, 0x6A]))
}

impl Set {
    /// Returns the transactions, in the order in which they were added.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the transaction at a position.
    pub fn record_mut(&mut self, id: RecordId) -> &mut Record {
        &mut self.records[id as usize]
    }

    /// Adds a transaction's outputs. Returns its position, and whether it is new: before BIP 30 two coinbases were repeated, and the later
    /// ones add nothing.
    pub fn add(&mut self, transaction: &Transaction, height: u32) -> (RecordId, bool) {
        let txid = transaction.compute_txid();
        let id = self.records.len() as RecordId;
        if let Some(&first) = self.by_txid.get(&txid) {
            return (first, false);
        }
        self.by_txid.insert(txid, id);
        let outputs = (0..).zip(&transaction.output).map(|(vout, output)| {
            is_utxo(output).then(|| Output {
                hash: utxo_hash(OutPoint { txid, vout }, output),
                state: State::Unspent(output.value.to_sat()),
            })
        });
        let outputs = outputs.collect();
        let (coinbase, sha256) = (transaction.is_coinbase(), sha256(&serialize(transaction)));
        self.records.push(Record { txid, coinbase, height, sha256, existed: false, outputs });
        (id, true)
    }

    /// Spends an output and returns its hash, or `None` if its transaction is in none of the blocks.
    ///
    /// # Errors
    /// When the blocks contradict each other: the output is spent already, or does not exist.
    pub fn spend(&mut self, outpoint: &OutPoint, by: Input) -> Result<Option<UtxoHash>> {
        let Some(&id) = self.by_txid.get(&outpoint.txid) else { return Ok(None) };
        let output = self.records[id as usize].outputs.get_mut(outpoint.vout as usize);
        let output = output.and_then(Option::as_mut);
        let output = output.with_context(|| format!("{outpoint} is spent, but there is no output that could be"))?;
        if let State::Spent((before, vin)) = output.state {
            if (before, vin) == by {
                // The transaction was repeated in a later block.
                return Ok(Some(output.hash));
            }
            let [before, after] = [before, by.0].map(|id| self.records[id as usize].txid);
            bail!("{outpoint} is spent by {before}, and again by {after}");
        }
        output.state = State::Spent(by);
        Ok(Some(output.hash))
    }

    /// Returns the number of unspent outputs and their satoshis.
    pub fn unspent(&self) -> (u64, u64) {
        let outputs = self.records.iter().flat_map(|record| record.outputs.iter().flatten());
        outputs.fold((0, 0), |(count, satoshis), output| match &output.state {
            State::Unspent(worth) => (count + 1, satoshis.saturating_add(*worth)),
            State::Spent(_) => (count, satoshis),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::{Amount, Block, ScriptBuf};

    #[test]
    fn output_is_spent_only_once() {
        let block: Block = bitcoin::consensus::deserialize(bitcoin_test_data::blocks::mainnet_702861()).unwrap();
        let mut set = Set::default();
        let [parent, child] = [&block.txdata[1], &block.txdata[2]];
        assert_eq!(
            [parent, child, parent].map(|transaction| set.add(transaction, 9)),
            [(0, true), (1, true), (0, false)]
        );
        let outpoint = |vout| OutPoint { txid: parent.compute_txid(), vout };
        let (count, satoshis) = set.unspent();
        let hash = utxo_hash(outpoint(0), &parent.output[0]);
        assert_eq!(set.spend(&outpoint(0), (1, 7)).unwrap(), Some(hash));
        assert_eq!(set.spend(&outpoint(0), (1, 7)).unwrap(), Some(hash));
        assert_eq!(set.unspent(), (count - 1, satoshis - parent.output[0].value.to_sat()));
        for (vout, by, why) in [(0, (1, 8), "again"), (0, (0, 7), "again"), (1_000, (1, 7), "no output")] {
            assert!(set.spend(&outpoint(vout), by).unwrap_err().to_string().contains(why));
        }
        assert_eq!(set.spend(&OutPoint::null(), (1, 7)).unwrap(), None);
    }

    #[test]
    fn unspendable_outputs_are_not_utxos() {
        let output = |satoshis, script: &[u8]| TxOut {
            value: Amount::from_sat(satoshis),
            script_pubkey: ScriptBuf::from(script.to_vec()),
        };
        for (script, alone) in
            [(&[0x6A, 1][..], false), (&[0x00, 0x6A], false), (&[0x00], true), (&[], true), (&[0x51], true)]
        {
            assert_eq!((is_utxo(&output(0, script)), is_utxo(&output(1, script))), (alone, true), "{script:?}");
        }
    }
}

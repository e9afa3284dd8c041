//! Bitcoin transactions, decoded from the body of a block.

use super::query::Order;
use bitcoin::consensus::{Decodable, encode::VarInt};
use bitcoin::hashes::Hash;
use bitcoin::{Address, Network, Transaction, Txid};
use ic_coppice_interface::segments::ID;
use serde::Serialize;
use std::ops::Range;

/// A decoded transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decoded {
    pub version: i32,
    /// The lock time, as the transaction has it: a height, or Unix seconds from 500,000,000 on.
    pub lock_time: u32,
    /// Bytes, with witnesses.
    pub bytes: usize,
    /// Weight units.
    pub weight: u64,
    /// Satoshis of all outputs.
    pub satoshis: u64,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
}

/// An input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// The spent output, as `ID:NUMBER`; `None` for the input of a coinbase.
    pub spends: Option<String>,
    /// The input's script, in hexadecimal digits.
    pub script: String,
    pub sequence: u32,
    /// The witness, each item in hexadecimal digits.
    pub witness: Vec<String>,
}

/// An output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Output {
    pub satoshis: u64,
    /// The output's script, in hexadecimal digits.
    pub script: String,
    /// The script as words.
    pub asm: String,
    /// The address on mainnet, if the script has one.
    pub address: Option<String>,
}

/// Returns the transactions at some positions of a Bitcoin block: header, number of transactions, transactions. Returns `None` unless the
/// body is such a block, with as many transactions as `ids` and these ids at these positions.
pub fn transactions(body: &[u8], ids: &[[u8; ID]], positions: Range<usize>) -> Option<Vec<Transaction>> {
    let mut rest = body;
    bitcoin::block::Header::consensus_decode(&mut rest).ok()?;
    let count = VarInt::consensus_decode(&mut rest).ok()?;
    if count.0 != ids.len() as u64 {
        return None;
    }
    let mut wanted = Vec::with_capacity(positions.len());
    for (position, id) in ids.iter().enumerate().take(positions.end) {
        let transaction = Transaction::consensus_decode(&mut rest).ok()?;
        if position < positions.start {
            continue;
        }
        if transaction.compute_txid() != Txid::from_byte_array(*id) {
            return None;
        }
        wanted.push(transaction);
    }
    Some(wanted)
}

/// Returns a transaction in the form that is printed.
pub fn decoded(transaction: &Transaction, order: Order) -> Decoded {
    let input = |input: &bitcoin::TxIn| Input {
        spends: (!input.previous_output.is_null()).then(|| {
            let spent = input.previous_output;
            format!("{}:{}", order.show(spent.txid.as_byte_array()), spent.vout)
        }),
        script: input.script_sig.to_hex_string(),
        sequence: input.sequence.0,
        witness: input.witness.iter().map(crate::verify::hex).collect(),
    };
    let output = |output: &bitcoin::TxOut| Output {
        satoshis: output.value.to_sat(),
        script: output.script_pubkey.to_hex_string(),
        asm: output.script_pubkey.to_asm_string(),
        address: Address::from_script(&output.script_pubkey, Network::Bitcoin).ok().map(|address| address.to_string()),
    };
    Decoded {
        version: transaction.version.0,
        lock_time: transaction.lock_time.to_consensus_u32(),
        bytes: transaction.total_size(),
        weight: transaction.weight().to_wu(),
        satoshis: transaction.output.iter().fold(0, |sum, output| sum.saturating_add(output.value.to_sat())),
        inputs: transaction.input.iter().map(input).collect(),
        outputs: transaction.output.iter().map(output).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{bitcoin_block, ids_of};

    fn mainnet() -> (Vec<u8>, Vec<[u8; ID]>) {
        let raw = bitcoin_test_data::blocks::mainnet_702861().to_vec();
        let block: bitcoin::Block = bitcoin::consensus::deserialize(&raw).unwrap();
        let made = bitcoin_block(702_861, raw, &block).unwrap();
        (made.body.into_vec(), ids_of(&made.index).to_vec())
    }

    #[test]
    fn transactions_of_a_mainnet_block_are_decoded_at_any_position() {
        let (body, ids) = mainnet();
        let all = transactions(&body, &ids, 0..ids.len()).unwrap();
        assert_eq!(all.len(), ids.len());
        for position in [0, 1, ids.len() - 1] {
            assert_eq!(transactions(&body, &ids, position..position + 1).unwrap(), [all[position].clone()]);
        }
        assert_eq!(transactions(&body, &ids, 3..3).unwrap(), []);
        let coinbase = decoded(&all[0], Order::Display);
        assert_eq!((coinbase.inputs.len(), &coinbase.inputs[0].spends), (1, &None));
        assert!(coinbase.outputs[0].address.is_some() && coinbase.satoshis > 625_000_000);
        let spend = decoded(&all[1], Order::Display);
        let spent = all[1].input[0].previous_output;
        assert_eq!(spend.inputs[0].spends, Some(spent.to_string()), "as Bitcoin writes it");
        let inside = decoded(&all[1], Order::Internal);
        let internal = crate::verify::hex(spent.txid.as_byte_array());
        assert_eq!(inside.inputs[0].spends, Some(format!("{internal}:{}", spent.vout)));
    }

    #[test]
    fn body_that_is_no_bitcoin_block_with_these_ids_is_not_decoded() {
        let (body, mut ids) = mainnet();
        for body in [&[][..], &body[..79], &body[..80], &body[..200], &vec![255; 500]] {
            assert_eq!(transactions(body, &ids, 1..2), None, "{} bytes", body.len());
        }
        assert_eq!(transactions(&body, &ids[1..], 0..1), None, "another number of transactions");
        ids[1][0] ^= 1;
        assert_eq!(transactions(&body, &ids, 0..2), None, "another id");
        assert!(transactions(&body, &ids, 2..3).is_some());
        // A count that a body of this size cannot hold.
        let bomb = [&body[..80], &[0xff; 9]].concat();
        assert_eq!(transactions(&bomb, &ids, 0..1), None);
    }
}

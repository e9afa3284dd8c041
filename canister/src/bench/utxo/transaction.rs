//! Transactions of any number of outputs, without their hashes being computed.

use super::SPENDER;
use crate::bench::key;
use ic_coppice_interface::*;
use ic_coppice_records::utxo::Parsed;
use serde_bytes::ByteBuf;

/// A transaction, parsed and not.
pub struct Transaction {
    pub raw: Vec<u8>,
    pub parsed: Box<Parsed>,
    pub spends: TransactionSpends,
    pub spend_one: TransactionSpends,
    pub unspends: Vec<Unspend>,
}

impl Transaction {
    /// One that spends from transactions that have no records.
    pub fn new(serial: u64, outputs: u32) -> Self {
        let input = |i: u64| (key(serial << 8 | i | 1 << 40), 1);
        Self::of(serial, outputs, [input(0), input(1)])
    }

    /// One that spends these outputs.
    pub fn of(serial: u64, outputs: u32, inputs: [([u8; 32], u32); 2]) -> Self {
        let mut raw = 2u32.to_le_bytes().to_vec();
        raw.push(2);
        for (txid, vout) in inputs {
            raw.extend(txid);
            raw.extend(u32::to_le_bytes(vout));
            raw.push(107);
            raw.extend([7; 107]);
            raw.extend([0xFF; 4]);
        }
        match outputs {
            0..=252 => raw.push(outputs as u8),
            _ => raw.extend([0xFD, outputs as u8, (outputs >> 8) as u8]),
        }
        for output in 0..outputs {
            raw.extend((1_000 + u64::from(output)).to_le_bytes());
            raw.extend([25, 0x76, 0xA9, 0x14]);
            raw.extend([8; 20]);
            raw.extend([0x88, 0xAC]);
        }
        raw.extend([0; 4]);
        let parsed = Box::new(Parsed {
            txid: key(serial),
            version: 2,
            lock_time: 0,
            coinbase: false,
            extended: false,
            inputs: inputs.to_vec(),
            outputs: (0..u64::from(outputs)).map(|i| Some(key(serial ^ i << 32 ^ 1 << 60))).collect(),
            fee: None,
        });
        let spend = |(vout, hash): (u32, &Option<[u8; 32]>)| Spend {
            txid: parsed.txid.into(),
            vout,
            utxo_hash: UtxoHash::from(hash.expect("each has one")),
            vin: vout,
        };
        let spends: Vec<Spend> = (0..).zip(&parsed.outputs).map(spend).collect();
        let spender = Txid::from(key(SPENDER));
        let unspend = |spend: &Spend| Unspend {
            outpoint: Outpoint { txid: spend.txid.clone(), vout: spend.vout },
            utxo_hash: spend.utxo_hash.clone(),
            spender: Spender { txid: spender.clone(), vin: spend.vin },
        };
        let unspends = spends.iter().map(unspend).collect();
        let spend_one = TransactionSpends { spender: spender.clone(), spends: spends[..1].to_vec() };
        Self { raw, parsed, unspends, spend_one, spends: TransactionSpends { spender, spends } }
    }

    /// Returns the item that creates the transaction's record.
    pub fn item(&self) -> UtxoCreate {
        UtxoCreate {
            source: TransactionSource::Raw(ByteBuf::from(self.raw.as_slice())),
            mined: None,
            locked: Some(false),
            conflicting: false,
            fee: None,
            is_new: false,
        }
    }
}

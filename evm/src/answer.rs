//! Blocks, transactions, receipts and logs in the JSON of the execution API.

use crate::{Block, Receipt, Transaction, Wrong};
use alloy_consensus::Eip658Value;
use alloy_consensus::transaction::Recovered;
use alloy_eips::eip2718::Typed2718 as _;
use alloy_primitives::{Address, TxKind};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A number as the execution API writes it.
pub fn quantity(number: impl Into<u128>) -> Value {
    Value::String(format!("0x{:x}", number.into()))
}

/// A part of an answer.
pub(crate) fn value(of: impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

fn object(of: impl Serialize) -> Map<String, Value> {
    match value(of) {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

impl Block {
    /// Returns the block as `eth_getBlockByNumber` does, with whole transactions or their hashes.
    ///
    /// # Errors
    /// When a sender cannot be computed.
    pub fn answer(&self, whole: bool) -> Result<Value, Wrong> {
        let header = alloy_rpc_types_eth::Header {
            hash: self.hash,
            inner: self.header.clone(),
            total_difficulty: None,
            size: None,
        };
        let mut answer = object(header);
        let transactions = &self.body.transactions;
        let transactions = match whole {
            true => (0..transactions.len()).map(|position| self.transaction(position)).collect::<Result<_, _>>()?,
            false => transactions.iter().map(|transaction| value(transaction.hash())).collect(),
        };
        answer.insert("transactions".into(), Value::Array(transactions));
        answer.insert("uncles".into(), value(self.body.ommers_hashes().collect::<Vec<_>>()));
        if let Some(withdrawals) = &self.body.withdrawals {
            answer.insert("withdrawals".into(), value(withdrawals));
        }
        Ok(answer.into())
    }

    fn sender(&self, position: usize) -> Result<Address, Wrong> {
        let what = || format!("the sender of transaction {position}");
        let sender = self.body.transactions[position].sender();
        sender.map_err(|why| Wrong::unreadable(self.number(), what(), why))
    }

    /// Returns a transaction as `eth_getTransactionByHash` does. The position must be that of a transaction.
    ///
    /// # Errors
    /// When the sender cannot be computed.
    pub fn transaction(&self, position: usize) -> Result<Value, Wrong> {
        let transaction = &self.body.transactions[position];
        let price = transaction.effective_gas_price(self.header.base_fee_per_gas);
        let from = self.sender(position)?;
        let answer = match transaction {
            Transaction::Ethereum(signed) => value(alloy_rpc_types_eth::Transaction {
                inner: Recovered::new_unchecked(signed.clone(), from),
                block_hash: Some(self.hash),
                block_number: Some(self.number()),
                transaction_index: Some(position as u64),
                effective_gas_price: Some(price),
                block_timestamp: Some(self.header.timestamp),
            }),
            Transaction::Deposit(deposit) => {
                let mut answer = object(deposit.inner());
                let deposit = self.receipts[position].deposit();
                answer.insert("type".into(), quantity(transaction.ty()));
                answer.insert("hash".into(), value(transaction.hash()));
                answer.insert("blockHash".into(), value(self.hash));
                answer.insert("blockNumber".into(), quantity(self.number()));
                answer.insert("blockTimestamp".into(), quantity(self.header.timestamp));
                answer.insert("transactionIndex".into(), quantity(position as u64));
                answer.insert("nonce".into(), quantity(deposit.map_or(0, |(nonce, _)| nonce)));
                answer.insert("gasPrice".into(), quantity(price));
                answer.entry("to").or_insert(Value::Null);
                for zero in ["v", "r", "s"] {
                    answer.insert(zero.into(), quantity(0u8));
                }
                if let Some((_, version)) = deposit {
                    answer.insert("depositReceiptVersion".into(), quantity(version));
                }
                answer.into()
            }
        };
        Ok(answer)
    }

    /// Returns the receipt of a transaction as `eth_getTransactionReceipt` does. The position must be that of a transaction.
    ///
    /// # Errors
    /// When the sender cannot be computed.
    pub fn receipt(&self, position: usize) -> Result<Value, Wrong> {
        let (transaction, receipt) = (&self.body.transactions[position], &self.receipts[position]);
        let from = self.sender(position)?;
        let to = match transaction.kind() {
            TxKind::Call(to) => Some(to),
            TxKind::Create => None,
        };
        let mut answer = json!({
            "type": quantity(receipt.ty()),
            "transactionHash": transaction.hash(),
            "transactionIndex": quantity(position as u64),
            "blockHash": self.hash,
            "blockNumber": quantity(self.number()),
            "from": from,
            "to": to,
            "cumulativeGasUsed": quantity(receipt.cumulative_gas_used()),
            "gasUsed": quantity(self.gas_used(position)),
            "contractAddress": self.created(position, from),
            "logs": self.logs(position).map(value).collect::<Vec<_>>(),
            "logsBloom": receipt.bloom(),
            "effectiveGasPrice": quantity(transaction.effective_gas_price(self.header.base_fee_per_gas)),
        });
        let mut insert = |name: &str, value: Value| answer[name] = value;
        match receipt.status() {
            Eip658Value::Eip658(succeeded) => insert("status", quantity(u8::from(succeeded))),
            Eip658Value::PostState(root) => insert("root", value(root)),
        }
        if let Some(gas) = transaction.blob_gas() {
            insert("blobGasUsed", quantity(gas));
        }
        if let Some((nonce, version)) = receipt.deposit() {
            insert("depositNonce", quantity(nonce));
            insert("depositReceiptVersion", quantity(version));
        }
        Ok(answer)
    }

    /// Returns the logs of a transaction as `eth_getLogs` does.
    pub fn logs(&self, position: usize) -> impl Iterator<Item = alloy_rpc_types_eth::Log> + '_ {
        let before: usize = self.receipts[..position].iter().map(|receipt| receipt.logs().len()).sum();
        let hash = self.body.transactions[position].hash();
        let logs = self.receipts.get(position).map_or(&[][..], Receipt::logs);
        logs.iter().zip(before as u64..).map(move |(log, index)| alloy_rpc_types_eth::Log {
            inner: log.clone(),
            block_hash: Some(self.hash),
            block_number: Some(self.number()),
            block_timestamp: Some(self.header.timestamp),
            transaction_hash: Some(hash),
            transaction_index: Some(position as u64),
            log_index: Some(index),
            removed: false,
        })
    }
}

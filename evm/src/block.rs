//! A whole block of the EVM with its receipts: from a node's JSON, to the segments of a Coppice block, and back.

use crate::{Receipt, Transaction, Wrong};
use alloy_consensus::{BlockBody, Header};
use alloy_eips::eip2718::{Decodable2718 as _, Encodable2718 as _};
use alloy_primitives::{B256, U64};
use alloy_rlp::{Decodable as _, Encodable as _};
use serde::Deserialize as _;
use serde_json::Value;

/// A block with its receipts, one for each transaction. [`verify`](Self::verify) checks that all parts belong to the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The Keccak-256 of the header, computed.
    pub hash: B256,
    /// The header.
    pub header: Header,
    /// Transactions, ommers and withdrawals.
    pub body: BlockBody<Transaction>,
    /// The receipts, in the order of the transactions.
    pub receipts: Vec<Receipt>,
}

impl Block {
    /// Reads a block with whole transactions, the headers of its ommers and its receipts in a node's JSON, and verifies it.
    ///
    /// # Errors
    /// [`Wrong`] if a part cannot be read, has an unknown type, or does not belong to the hash that the node reports.
    pub fn read(block: &Value, ommers: &[Value], receipts: &Value) -> Result<Self, Wrong> {
        let number = block.get("number").and_then(|number| U64::deserialize(number).ok());
        let number = number.ok_or_else(|| Wrong::unreadable(0, "a block of the node", "it has no number"))?.to();
        let header =
            |json: &Value, what: &str| Header::deserialize(json).map_err(|why| Wrong::unreadable(number, what, why));
        let array = |json: Option<&Value>, what: &str| {
            let items = json.and_then(Value::as_array).cloned();
            items.ok_or_else(|| Wrong::unreadable(number, what, "the node sends no list"))
        };
        let listed = array(block.get("transactions"), "the transactions")?;
        let transactions = listed.iter().enumerate().map(|(position, json)| Transaction::read(json, number, position));
        let transactions: Vec<Transaction> = transactions.collect::<Result<_, _>>()?;
        let withdrawals = block.get("withdrawals").filter(|json| !json.is_null());
        let withdrawals = withdrawals.map(alloy_eips::eip4895::Withdrawals::deserialize).transpose();
        let withdrawals = withdrawals.map_err(|why| Wrong::unreadable(number, "the withdrawals", why))?;
        let read = array(Some(receipts), "the receipts")?;
        let read = read.iter().enumerate().map(|(position, json)| Receipt::read(json, number, position));
        let read: Vec<(Receipt, B256)> = read.collect::<Result<_, _>>()?;
        for (position, (transaction, (_, hash))) in transactions.iter().zip(&read).enumerate() {
            if transaction.hash() != *hash {
                let why = format!("receipt {position} is of transaction {hash}, not of {}", transaction.hash());
                return Err(Wrong::contradiction(number, why));
            }
        }
        let ommers = ommers.iter().map(|json| header(json, "an ommer")).collect::<Result<_, _>>()?;
        let header = header(block, "the header")?;
        let read = Self {
            hash: header.hash_slow(),
            header,
            body: BlockBody { transactions, ommers, withdrawals },
            receipts: read.into_iter().map(|(receipt, _)| receipt).collect(),
        };
        let reported = block.get("hash").map(B256::deserialize).transpose();
        let reported = reported.ok().flatten().ok_or_else(|| Wrong::unreadable(number, "the hash", "it is missing"))?;
        read.verify(reported)?;
        Ok(read)
    }

    /// Checks that a block in JSON has the hash of its header.
    ///
    /// # Errors
    /// [`Wrong`] if the header cannot be read, or the reported hash is missing or another.
    pub fn check_hash(block: &Value) -> Result<(), Wrong> {
        let header = Header::deserialize(block).map_err(|why| Wrong::unreadable(0, "the header", why))?;
        let reported = block.get("hash").and_then(|hash| B256::deserialize(hash).ok()).unwrap_or_default();
        match header.hash_slow() {
            found if found == reported => Ok(()),
            found => Err(Wrong::Hash { number: header.number, expected: reported, found }),
        }
    }

    /// Reads a block from the body and the receipts of a Coppice block, and verifies it.
    ///
    /// # Errors
    /// [`Wrong`] if a part cannot be decoded, or does not belong to `hash`.
    pub fn decode<'a>(
        number: u64,
        hash: B256,
        body: &[u8],
        receipts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, Wrong> {
        let mut rest = body;
        let block = alloy_consensus::Block::<Transaction>::decode(&mut rest)
            .map_err(|why| Wrong::unreadable(number, "the body", why))?;
        if !rest.is_empty() {
            return Err(Wrong::unreadable(number, "the body", "bytes follow the block"));
        }
        let decode = |(position, bytes): (usize, &[u8])| {
            let unreadable = |why: String| Wrong::unreadable(number, format!("receipt {position}"), why);
            let receipt = Receipt::decode_2718_exact(bytes).map_err(|why| unreadable(why.to_string()))?;
            // Other bytes may decode to the same receipt.
            if receipt.encoded_2718() == bytes {
                Ok(receipt)
            } else {
                Err(unreadable("it has another encoding".into()))
            }
        };
        let receipts = receipts.take(block.body.transactions.len()).enumerate().map(decode);
        let receipts = receipts.collect::<Result<_, _>>()?;
        let block = Self { hash: block.header.hash_slow(), header: block.header, body: block.body, receipts };
        if block.header.number != number {
            let why = format!("its header has the number {}", block.header.number);
            return Err(Wrong::contradiction(number, why));
        }
        if block.encode_body() != body {
            return Err(Wrong::unreadable(number, "the body", "it has another encoding"));
        }
        block.verify(hash)?;
        Ok(block)
    }

    /// Returns the header, transactions, ommers and withdrawals in RLP: the body of the Coppice block.
    pub fn encode_body(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A block of references would need another type for each part, so the parts are cloned; their bytes are shared.
        alloy_consensus::Block { header: self.header.clone(), body: self.body.clone() }.encode(&mut bytes);
        bytes
    }

    /// Returns each receipt in EIP-2718 form.
    pub fn encode_receipts(&self) -> Vec<Vec<u8>> {
        self.receipts.iter().map(|receipt| receipt.encoded_2718()).collect()
    }

    /// The block's number.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Returns the position of the transaction with a hash.
    pub fn position(&self, hash: &B256) -> Option<usize> {
        self.body.transactions.iter().position(|transaction| transaction.hash() == *hash)
    }

    /// Returns the gas that the transaction at a position used.
    pub fn gas_used(&self, position: usize) -> u64 {
        let up_to = |at: usize| self.receipts.get(at).map_or(0, Receipt::cumulative_gas_used);
        up_to(position).saturating_sub(position.checked_sub(1).map_or(0, up_to))
    }

    /// Returns the account that the transaction at a position created, given its sender.
    pub fn created(&self, position: usize, sender: alloy_primitives::Address) -> Option<alloy_primitives::Address> {
        use alloy_consensus::Transaction as _;
        let transaction = self.body.transactions.get(position).filter(|transaction| transaction.kind().is_create())?;
        let nonce = match transaction {
            Transaction::Ethereum(signed) => signed.nonce(),
            Transaction::Deposit(_) => self.receipts.get(position)?.deposit()?.0,
        };
        Some(sender.create(nonce))
    }
}

//! Verification of a block by its hash: everything that the header commits to is computed from the rest of the block.

use crate::transaction::DEPOSIT;
use crate::{Block, Wrong};
use alloy_consensus::proofs::{
    calculate_ommers_root, calculate_receipt_root, calculate_transaction_root, calculate_withdrawals_root,
};
use alloy_eips::eip2718::Typed2718 as _;
use alloy_primitives::{B256, Bloom, keccak256};

impl Block {
    /// Checks that the header has the hash, and that transactions, receipts, ommers, withdrawals and logs are those of the header.
    ///
    /// # Errors
    /// [`Wrong`] that names the block and the field.
    pub fn verify(&self, hash: B256) -> Result<(), Wrong> {
        let number = self.number();
        if self.hash != hash {
            return Err(Wrong::Hash { number, expected: hash, found: self.hash });
        }
        let (transactions, receipts) = (&self.body.transactions, &self.receipts);
        if transactions.len() != receipts.len() {
            let why = format!("it has {} transactions and {} receipts", transactions.len(), receipts.len());
            return Err(Wrong::contradiction(number, why));
        }
        for (position, (transaction, receipt)) in transactions.iter().zip(receipts).enumerate() {
            if transaction.ty() != receipt.ty() {
                let (transaction, receipt) = (transaction.ty(), receipt.ty());
                let why = format!("transaction {position} has type {transaction}, and its receipt type {receipt}");
                return Err(Wrong::contradiction(number, why));
            }
            if transaction.ty() == DEPOSIT && transaction.kind().is_create() && receipt.deposit().is_none() {
                let why = format!("the receipt of deposit {position} does not have the nonce of the created account");
                return Err(Wrong::contradiction(number, why));
            }
        }
        let same = |field, expected: B256, found: B256| {
            if expected == found { Ok(()) } else { Err(Wrong::Mismatch { number, field, expected, found }) }
        };
        same("transactionsRoot", self.header.transactions_root, calculate_transaction_root(transactions))?;
        same("receiptsRoot", self.header.receipts_root, calculate_receipt_root(receipts))?;
        same("sha3Uncles", self.header.ommers_hash, calculate_ommers_root(&self.body.ommers))?;
        let mut bloom = Bloom::ZERO;
        for receipt in receipts {
            let own: Bloom = receipt.logs().iter().collect();
            same("logsBloom of a receipt", keccak256(receipt.bloom()), keccak256(own))?;
            bloom |= own;
        }
        same("logsBloom", keccak256(self.header.logs_bloom), keccak256(bloom))?;
        self.verify_withdrawals()
    }

    fn verify_withdrawals(&self) -> Result<(), Wrong> {
        let number = self.number();
        match (self.header.withdrawals_root, &self.body.withdrawals) {
            (None, None) => Ok(()),
            // The OP stack puts a root of its own state there, and has no withdrawals.
            (Some(_), Some(withdrawals)) if withdrawals.is_empty() && self.is_of_op_stack() => Ok(()),
            (Some(expected), Some(withdrawals)) => {
                let found = calculate_withdrawals_root(withdrawals);
                if expected == found {
                    return Ok(());
                }
                Err(Wrong::Mismatch { number, field: "withdrawalsRoot", expected, found })
            }
            (Some(_), None) => Err(Wrong::contradiction(number, "withdrawalsRoot is set, and withdrawals are missing")),
            (None, Some(_)) => Err(Wrong::contradiction(number, "it has withdrawals, and no withdrawalsRoot")),
        }
    }

    /// Returns whether the block begins with a deposit, as each block of the OP stack does.
    pub fn is_of_op_stack(&self) -> bool {
        self.body.transactions.first().is_some_and(|first| first.ty() == DEPOSIT)
    }
}

//! Blocks for tests: recorded from anvil with their receipts, and made here.

use crate::{Block, Receipt, Transaction};
use alloy_consensus::proofs::{
    calculate_ommers_root, calculate_receipt_root, calculate_transaction_root, calculate_withdrawals_root,
};
use alloy_consensus::{BlockBody, Eip658Value, Header, ReceiptEnvelope, SignableTransaction as _, TxEip4844, TxType};
use alloy_eips::eip4895::{Withdrawal, Withdrawals};
use alloy_primitives::{Address, B256, Bloom, Log, Signature, U256, b256};
use serde_json::Value;

/// A node's answers for a block.
pub struct Recorded {
    pub block: Value,
    pub receipts: Value,
}

impl Recorded {
    fn of(text: &str) -> Self {
        let mut json: Value = serde_json::from_str(text).unwrap();
        Self { block: json["block"].take(), receipts: json["receipts"].take() }
    }

    /// Types 0, 1, 2 and 4, with logs, a creation and a failure.
    pub fn types() -> Self {
        Self::of(include_str!("../tests/data/types.json"))
    }

    /// A deposit of the OP stack.
    pub fn deposit() -> Self {
        Self::of(include_str!("../tests/data/deposit.json"))
    }

    /// A type-3 transaction in a block whose transactions root is over the form with the sidecar, as anvil 1.7.1 computes it.
    pub fn sidecar() -> Self {
        Self::of(include_str!("../tests/data/sidecar.json"))
    }

    pub fn read(&self) -> Result<Block, crate::Wrong> {
        Block::read(&self.block, &[], &self.receipts)
    }
}

/// Returns a block with these transactions and receipts, two ommers and two withdrawals, whose header fits.
pub fn made(number: u64, parent: B256, transactions: Vec<Transaction>, receipts: Vec<Receipt>) -> Block {
    let ommers = vec![Header { number: 1, ..Header::default() }, Header { number: 2, ..Header::default() }];
    let withdrawals = [3, 4].map(|index| Withdrawal { index, amount: 5, ..Withdrawal::default() }).to_vec();
    let logs_bloom = receipts.iter().fold(Bloom::ZERO, |bloom, receipt| bloom | receipt.bloom());
    let header = Header {
        number,
        parent_hash: parent,
        timestamp: 1_700_000_000 + number,
        transactions_root: calculate_transaction_root(&transactions),
        receipts_root: calculate_receipt_root(&receipts),
        ommers_hash: calculate_ommers_root(&ommers),
        withdrawals_root: Some(calculate_withdrawals_root(&withdrawals)),
        base_fee_per_gas: Some(7),
        blob_gas_used: Some(0),
        excess_blob_gas: Some(0),
        parent_beacon_block_root: Some(B256::ZERO),
        logs_bloom,
        ..Header::default()
    };
    let body = BlockBody { transactions, ommers, withdrawals: Some(Withdrawals::new(withdrawals)) };
    Block { hash: header.hash_slow(), header, body, receipts }
}

/// A block with a type-3 transaction with two blobs and one log.
pub fn with_blobs(number: u64, parent: B256) -> Block {
    let transaction = TxEip4844 {
        chain_id: 1,
        nonce: number,
        max_fee_per_gas: 9,
        max_fee_per_blob_gas: 5,
        to: Address::repeat_byte(8),
        blob_versioned_hashes: vec![B256::repeat_byte(1), B256::repeat_byte(2)],
        ..TxEip4844::default()
    };
    // The signature of another message is one of some key, too.
    let signature = Signature::new(
        U256::from_be_bytes(b256!("840cfc572845f5786e702984c2a582528cad4b49b2a10b9db1be7fca90058565").0),
        U256::from_be_bytes(b256!("25e7109ceb98168d95b09b18bbf6b685130e0562f233877d492b94eee0c5b6d1").0),
        false,
    );
    let transaction = Transaction::Ethereum(transaction.into_signed(signature).into());
    let log = Log::new_unchecked(Address::repeat_byte(6), vec![B256::repeat_byte(number as u8)], vec![1, 2].into());
    let receipt =
        alloy_consensus::Receipt { status: Eip658Value::Eip658(true), cumulative_gas_used: 21_000, logs: vec![log] };
    let receipt = Receipt::Ethereum(ReceiptEnvelope::from_typed(TxType::Eip4844, receipt));
    made(number, parent, vec![transaction], vec![receipt])
}

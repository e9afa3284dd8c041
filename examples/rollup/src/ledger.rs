//! Ledger: balances of accounts, and payments that wait for their block, in memories of Coppice. No message reads all balances, except that
//! an upgrade makes their tree anew.

use crate::account::Account;
use candid::CandidType;
use ic_certification::{AsHashTree, HashTree, RbTree};
use ic_coppice::{Coppice, Memory};
use ic_stable_structures::{StableBTreeMap, StableCell};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Label of the certified balances.
pub const BALANCES: &str = "balances";

/// A payment.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Payment {
    pub from: Account,
    pub to: Account,
    pub amount: u64,
    pub memo: Option<ByteBuf>,
    /// The payer's balance after the payment to others.
    pub left: u64,
    /// Unix nanoseconds.
    pub at: u64,
}

/// The balances and the waiting payments.
pub struct Ledger {
    /// By the keys of accounts.
    balances: StableBTreeMap<Vec<u8>, u64, Memory>,
    waiting: StableBTreeMap<u64, Vec<u8>, Memory>,
    /// Sum of all balances.
    supply: StableCell<u64, Memory>,
    /// Number of the next payment: each number is used once, because a payment's id is made of it.
    next: StableCell<u64, Memory>,
    /// The balances as a tree of hashes: an account's key, and its balance, big-endian.
    tree: RbTree<Vec<u8>, Vec<u8>>,
}

impl Ledger {
    /// Opens the ledger, and certifies the balances.
    pub fn open() -> Result<Self, String> {
        let mut ledger = Self {
            balances: StableBTreeMap::init(Coppice::memory("balances")?),
            waiting: StableBTreeMap::init(Coppice::memory("waiting")?),
            supply: StableCell::init(Coppice::memory("supply")?, 0),
            next: StableCell::init(Coppice::memory("next")?, 0),
            tree: RbTree::new(),
        };
        for entry in ledger.balances.iter() {
            ledger.tree.insert(entry.key().clone(), entry.value().to_be_bytes().to_vec());
        }
        ledger.certify();
        Ok(ledger)
    }

    fn certify(&self) {
        Coppice::certify(BALANCES, Some(self.tree.root_hash())).expect("the label is short, and there is one");
    }

    /// Returns an account's balance.
    pub fn balance(&self, of: &Account) -> u64 {
        self.balances.get(&of.key()).unwrap_or_default()
    }

    fn set(&mut self, of: &Account, balance: u64) {
        self.balances.insert(of.key(), balance);
        self.tree.insert(of.key(), balance.to_be_bytes().to_vec());
    }

    /// Moves money, and queues the payment. Returns the payment's number. The amounts were checked.
    pub fn pay(&mut self, payment: &Payment) -> u64 {
        self.set(&payment.from, payment.left);
        let to = self.balance(&payment.to);
        self.set(&payment.to, to + payment.amount);
        self.certify();
        let number = *self.next.get();
        self.next.set(number + 1);
        self.waiting.insert(number, candid::encode_one(payment).expect("a payment can be encoded"));
        number
    }

    /// Makes money.
    pub fn mint(&mut self, to: &Account, amount: u64) -> Result<u64, String> {
        let sum = self.supply.get().checked_add(amount).ok_or("the sum of all balances is too large")?;
        self.supply.set(sum);
        self.set(to, self.balance(to) + amount);
        self.certify();
        Ok(sum)
    }

    /// Returns the first waiting payments, encoded.
    pub fn waiting(&self, most: usize) -> Vec<(u64, Vec<u8>)> {
        self.waiting.iter().take(most).map(|entry| entry.into_pair()).collect()
    }

    /// Number of waiting payments.
    pub fn len(&self) -> u64 {
        self.waiting.len()
    }

    /// Removes payments that are in a block.
    pub fn remove(&mut self, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| drop(self.waiting.remove(&number)));
    }

    /// Returns the tree that shows an account's balance.
    pub fn witness(&self, of: &Account) -> HashTree {
        self.tree.witness(&of.key())
    }
}

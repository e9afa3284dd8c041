//! The state of the sequencer, in stable memory: waiting transactions in their order, and the header of the sealed block.

use candid::{CandidType, Decode, Encode, Principal};
use ic_stable_structures::memory_manager::{MemoryId, MemoryManager, VirtualMemory};
use ic_stable_structures::storable::Bound;
use ic_stable_structures::{DefaultMemoryImpl, StableBTreeMap, StableCell, Storable};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::borrow::Cow;

/// Maximum number of waiting transactions.
pub const MAX_WAITING: u64 = 1_000;
/// Maximum length of a transaction, in bytes.
pub const MAX_TRANSACTION: usize = 10_000;
/// Maximum length of a block's body, in bytes: the block with its index and receipts fits into one message, and its transactions into one
/// reply.
pub const MAX_BODY: u64 = 1_780_000;

/// Bytes of a length in a body.
pub const LENGTH: usize = 4;

/// The receipt of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Accepted {
    /// When the sequencer accepted the transaction, in nanoseconds since 1970.
    pub at: u64,
    /// The caller who submitted it.
    pub sender: Principal,
}

impl Accepted {
    /// Returns the receipt's bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        [&self.at.to_le_bytes()[..], self.sender.as_slice()].concat()
    }

    /// Reads a receipt, or returns `None` if it is not one of this sequencer.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (at, sender) = bytes.split_first_chunk()?;
        Some(Self { at: u64::from_le_bytes(*at), sender: Principal::try_from_slice(sender).ok()? })
    }
}

/// A transaction that Coppice may not have yet.
#[derive(Clone, Debug, CandidType, Serialize, Deserialize)]
pub struct Waiting {
    /// The transaction.
    pub transaction: ByteBuf,
    /// Its receipt.
    pub accepted: Accepted,
}

/// The header of a block of waiting transactions, which is sent until Coppice has it or refuses it for good.
#[derive(Clone, Debug, CandidType, Serialize, Deserialize)]
pub struct Sealed {
    /// The block's number.
    pub number: u64,
    /// The parent's hash.
    pub parent: ByteBuf,
    /// The block's time, in Unix seconds.
    pub timestamp_secs: u64,
    /// The number of its transactions.
    pub transactions: u64,
}

/// All of the state besides the transactions.
#[derive(Clone, Debug, Default, CandidType, Serialize, Deserialize)]
struct State {
    coppice: Option<Principal>,
    /// Sealed blocks, oldest first: they have the first waiting transactions.
    sealed: Vec<Sealed>,
    /// The number of the first waiting transaction.
    first: u64,
    /// The number of the next transaction.
    next: u64,
    /// Bytes of a body of all waiting transactions.
    bytes: u64,
}

macro_rules! storable {
    ($($type:ident)*) => {
        $(impl Storable for $type {
            const BOUND: Bound = Bound::Unbounded;

            fn to_bytes(&self) -> Cow<'_, [u8]> {
                Encode!(self).expect("it can be encoded").into()
            }

            fn into_bytes(self) -> Vec<u8> {
                self.to_bytes().into_owned()
            }

            fn from_bytes(bytes: Cow<'_, [u8]>) -> Self {
                Decode!(&bytes, Self).expect("this canister wrote it")
            }
        })*
    };
}
storable!(Waiting State);

type Memory = VirtualMemory<DefaultMemoryImpl>;

/// The queue. Each method leaves the memory consistent, because a message that traps changes nothing.
pub struct Queue {
    state: StableCell<State, Memory>,
    transactions: StableBTreeMap<u64, Waiting, Memory>,
}

impl Queue {
    /// Opens the queue, or creates it in empty memory.
    pub fn open() -> Self {
        let manager = MemoryManager::init(DefaultMemoryImpl::default());
        Self {
            state: StableCell::init(manager.get(MemoryId::new(0)), State::default()),
            transactions: StableBTreeMap::init(manager.get(MemoryId::new(1))),
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.get().clone();
        change(&mut state);
        self.state.set(state);
    }

    /// Sets the principal of Coppice.
    pub fn set_coppice(&mut self, coppice: Principal) {
        self.change(|state| state.coppice = Some(coppice));
    }

    /// Returns the principal of Coppice.
    pub fn coppice(&self) -> Principal {
        self.state.get().coppice.expect("the canister is installed")
    }

    /// Returns the number of waiting transactions, and of those that no sealed block has.
    pub fn waiting(&self) -> (u64, u64) {
        let State { sealed, first, next, .. } = self.state.get();
        let waiting = next - first;
        (waiting, waiting - sealed.iter().map(|of| of.transactions).sum::<u64>())
    }

    /// Adds a transaction, and returns how many wait.
    pub fn add(&mut self, waiting: Waiting) -> Result<u64, String> {
        if waiting.transaction.len() > MAX_TRANSACTION {
            return Err(format!("a transaction may have at most {MAX_TRANSACTION} bytes"));
        }
        let State { next, bytes, .. } = *self.state.get();
        let bytes = bytes + (LENGTH + waiting.transaction.len()) as u64;
        if self.transactions.len() >= MAX_WAITING || bytes > MAX_BODY {
            return Err(format!(
                "at most {MAX_WAITING} transactions and {MAX_BODY} bytes may wait: try again after the next block"
            ));
        }
        self.transactions.insert(next, waiting);
        self.change(|state| (state.next, state.bytes) = (next + 1, bytes));
        Ok(self.transactions.len())
    }

    /// Seals the waiting transactions that no sealed block has into a block after a parent. There must be one.
    pub fn seal(&mut self, (number, parent): (u64, &[u8]), timestamp_secs: u64) {
        let (_, transactions) = self.waiting();
        let sealed = Sealed { number, parent: ByteBuf::from(parent), timestamp_secs, transactions };
        self.change(|state| state.sealed.push(sealed));
    }

    /// Returns the sealed blocks and their transactions, oldest first.
    pub fn sealed(&self) -> Vec<(Sealed, Vec<Waiting>)> {
        let State { sealed, first, .. } = self.state.get();
        let mut transactions = self.transactions.range(first..).map(|entry| entry.value());
        let of_block = |sealed: &Sealed| transactions.by_ref().take(sealed.transactions as usize).collect();
        sealed.iter().cloned().zip(sealed.iter().map(of_block)).collect()
    }

    /// Forgets the sealed blocks; their transactions wait for the next one.
    pub fn unseal(&mut self) {
        self.change(|state| state.sealed.clear());
    }

    /// Removes the sealed blocks before a number and their transactions, because Coppice has them.
    pub fn remove_before(&mut self, number: u64) {
        let State { sealed, first, mut bytes, .. } = self.state.get().clone();
        let (kept, rest): (Vec<_>, Vec<_>) = sealed.into_iter().partition(|of| of.number < number);
        let end = first + kept.iter().map(|of| of.transactions).sum::<u64>();
        for number in first..end {
            let removed = self.transactions.remove(&number);
            bytes -= removed.map_or(0, |removed| LENGTH + removed.transaction.len()) as u64;
        }
        self.change(|state| (state.sealed, state.first, state.bytes) = (rest, end, bytes));
    }
}

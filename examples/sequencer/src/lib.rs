//! A minimal sequencer of a rollup: makes blocks of submitted transactions, and stores them in Coppice, which prunes old blocks. The
//! canister needs the role `BlockProducer` there.
//!
//! - A sealed block is sent until Coppice has it: `append_block` is idempotent, so a lost reply does no harm.
//! - If pruning is held back, `produce` returns who holds it. Transactions wait, and the same block is sent when there is room again.
//! - If Coppice refuses a block for good, for example after a reorg, its transactions go into the next block.
//! - The sequencer stores nothing of the chain: it reads the head and old blocks from Coppice.
//!
//! Waiting transactions are on the heap, and an upgrade loses them; a real sequencer keeps them in stable memory.

mod block;

use block::{LENGTH, Sealed, seal, split};
use candid::{CandidType, Principal};
use coppice_client::{Client, Error, InterCanister, Refusal, Retry};
use coppice_interface::{AppendError, HeldBy, ReadError, UploadError};
use ic_cdk::{init, post_upgrade, query, update};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::cell::RefCell;

/// Maximum number of waiting transactions.
const MAX_WAITING: usize = 1_000;
/// Maximum length of a transaction, in bytes.
const MAX_TRANSACTION: usize = 10_000;
/// Maximum length of a block's body, in bytes: the block with its index fits into one message, and its transactions into one reply.
const MAX_BODY: usize = 1_850_000;

/// The result of `produce`.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum Produced {
    /// Coppice has the block, under this number.
    Appended(u64),
    /// The block waits, because pruning is held back; with the holder.
    Held(HeldBy),
    /// The block waits for another reason that passes; with a sentence.
    Later(String),
    /// Coppice refuses the block or cannot be called; with a sentence. An operator must act, unless the next block succeeds.
    Refused(String),
    /// There are no transactions, or another call of `produce` is running.
    Nothing,
}

#[derive(Default)]
struct Sequencer {
    coppice: Option<Principal>,
    /// Transactions that Coppice may not have yet, those of the sealed block first.
    waiting: Vec<ByteBuf>,
    sealed: Option<Sealed>,
    producing: bool,
}

thread_local! {
    static SEQUENCER: RefCell<Sequencer> = RefCell::default();
}

fn with<R>(run: impl FnOnce(&mut Sequencer) -> R) -> R {
    SEQUENCER.with_borrow_mut(run)
}

#[init]
fn init(coppice: Principal) {
    with(|sequencer| sequencer.coppice = Some(coppice));
}

#[post_upgrade]
fn post_upgrade(coppice: Principal) {
    init(coppice);
}

fn coppice() -> Client<InterCanister> {
    Client::new(InterCanister::new(with(|sequencer| sequencer.coppice).expect("the canister is installed")))
}

/// Queues a transaction for the next block, and returns how many wait.
#[update]
fn submit(transaction: ByteBuf) -> Result<u64, String> {
    with(|Sequencer { waiting, .. }| {
        if transaction.len() > MAX_TRANSACTION {
            return Err(format!("a transaction may have at most {MAX_TRANSACTION} bytes"));
        }
        let bytes: usize = waiting.iter().chain([&transaction]).map(|transaction| LENGTH + transaction.len()).sum();
        if waiting.len() >= MAX_WAITING || bytes > MAX_BODY {
            return Err(format!(
                "at most {MAX_WAITING} transactions and {MAX_BODY} bytes may wait: try again after the next block"
            ));
        }
        waiting.push(transaction);
        Ok(waiting.len() as u64)
    })
}

/// A lock on `produce`: one call runs at a time, and dropping the lock, even by a trap, lets the next call run.
struct Turn;

impl Turn {
    fn take() -> Option<Self> {
        with(|sequencer| !std::mem::replace(&mut sequencer.producing, true)).then_some(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        with(|sequencer| sequencer.producing = false);
    }
}

/// Seals the waiting transactions, unless a block is sealed already, and appends the block to Coppice. For controllers.
#[update(guard = "controller")]
async fn produce() -> Produced {
    let Some(_turn) = Turn::take() else { return Produced::Nothing };
    let client = coppice();
    if with(|sequencer| sequencer.sealed.is_none()) {
        let parent = match client.get_head().await {
            Ok(head) => (head.number, head.hash),
            Err(Error::Refused(ReadError::NotFound)) => (0, [0; 32].into()),
            Err(error) => return failed(&error),
        };
        with(|sequencer| sequencer.sealed = seal(parent, &sequencer.waiting));
    }
    let Some(Sealed { block, transactions }) = with(|sequencer| sequencer.sealed.clone()) else {
        return Produced::Nothing;
    };
    match client.send_block(&block).await {
        Ok(_) => {
            with(|sequencer| {
                sequencer.sealed = None;
                sequencer.waiting.drain(..transactions);
            });
            Produced::Appended(block.number)
        }
        Err(Error::Refused(UploadError::Append(AppendError::CapacityExhausted { held_by }))) => Produced::Held(held_by),
        Err(error) => {
            // Coppice refuses this block for good, so the next block is made after the current head. A lost reply leaves open whether an
            // earlier call was executed, so the same block is sent again.
            if matches!(&error, Error::Refused(why) if is_final(why)) {
                with(|sequencer| sequencer.sealed = None);
            }
            failed(&error)
        }
    }
}

/// Returns whether the same block is refused again: for good, or because another block took its place in the chain.
fn is_final(why: &impl Refusal) -> bool {
    matches!(why.retry(), Retry::Never | Retry::Reorg)
}

fn failed<E: Refusal + std::fmt::Display>(error: &Error<E>) -> Produced {
    let why = error.to_string();
    if matches!(error.retry(), Retry::Never | Retry::Reorg) { Produced::Refused(why) } else { Produced::Later(why) }
}

fn controller() -> Result<(), String> {
    let allowed = ic_cdk::api::is_controller(&ic_cdk::api::msg_caller());
    allowed.then_some(()).ok_or_else(|| "only a controller may do this".into())
}

/// Returns the transactions of a block from Coppice, or the reason why they cannot be read.
#[update]
async fn transactions(number: u64) -> Result<Vec<ByteBuf>, String> {
    let (_, [body, ..]) = coppice().whole_block(number).await.map_err(|error| error.to_string())?;
    split(&body).ok_or_else(|| format!("block {number} was not made by this sequencer"))
}

/// Returns how many transactions wait, including those of a sealed block, and the number of the sealed block.
#[query]
fn waiting() -> (u64, Option<u64>) {
    with(|sequencer| (sequencer.waiting.len() as u64, sequencer.sealed.as_ref().map(|sealed| sealed.block.number)))
}

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! A minimal sequencer of a rollup: makes blocks of submitted transactions, and stores them in Coppice, which prunes old blocks. The
//! canister needs the role `BlockProducer` there.
//!
//! - Each transaction can be found by its SHA-256 and by its sender, and has a receipt.
//! - A sealed block is sent until Coppice has it: appending is idempotent, so a lost reply does no harm.
//! - If pruning is held back, `produce` returns who holds it. Each call seals one more block, and all sealed blocks go in one message when
//!   there is room again.
//! - If Coppice refuses a block for good, for example after a reorg, its transactions and those of later blocks go into the next block.
//! - Waiting transactions and sealed blocks are in stable memory, so an upgrade loses none of them. The sequencer stores nothing of the
//!   chain: it reads the head and old blocks from Coppice.

mod block;
mod queue;

use block::{seal, split};
use candid::{CandidType, Principal};
use ic_cdk::{init, post_upgrade, query, update};
use ic_coppice_client::{Client, Error, InterCanister, KeyPager, Refusal, Retry, Unsent};
use ic_coppice_interface::{AppendBlock, HeldBy, ReadError};
pub use queue::Accepted;
use queue::{Queue, Waiting};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::cell::{Cell, RefCell};

/// Most transactions of a sender in one reply.
const MAX_FOUND: u32 = 100;

/// The result of `produce`.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum Produced {
    /// Coppice has all sealed blocks, the last under this number.
    Appended(u64),
    /// A block waits, because pruning is held back; with the holder.
    Held(HeldBy),
    /// A block waits for another reason that passes; with a sentence.
    Later(String),
    /// Coppice refuses a block or cannot be called; with a sentence. An operator must act, unless the next block succeeds.
    Refused(String),
    /// There are no transactions, or another call of `produce` is running.
    Nothing,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::new(Queue::open());
    static PRODUCING: Cell<bool> = const { Cell::new(false) };
}

fn with<R>(run: impl FnOnce(&mut Queue) -> R) -> R {
    QUEUE.with_borrow_mut(run)
}

#[init]
fn init(coppice: Principal) {
    with(|queue| queue.set_coppice(coppice));
}

#[post_upgrade]
fn post_upgrade(coppice: Principal) {
    init(coppice);
}

fn coppice() -> Client<InterCanister> {
    Client::new(InterCanister::new(with(|queue| queue.coppice())))
}

/// Queues a transaction for the next block, and returns how many wait.
#[update]
fn submit(transaction: ByteBuf) -> Result<u64, String> {
    let accepted = Accepted { at: ic_cdk::api::time(), sender: ic_cdk::api::msg_caller() };
    with(|queue| queue.add(Waiting { transaction, accepted }))
}

/// A lock on `produce`: one call runs at a time, and dropping the lock, even by a trap, lets the next call run.
struct Turn;

impl Turn {
    fn take() -> Option<Self> {
        (!PRODUCING.replace(true)).then_some(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        PRODUCING.set(false);
    }
}

/// Seals the waiting transactions into a block, and appends all sealed blocks to Coppice. For controllers.
#[update(guard = "controller")]
async fn produce() -> Produced {
    let Some(_turn) = Turn::take() else { return Produced::Nothing };
    let client = coppice();
    if with(|queue| queue.waiting().1) > 0 {
        let (number, parent) = match sealed().pop() {
            Some(last) => (last.number + 1, last.hash),
            None => match client.get_head().await {
                Ok(head) => (head.number + 1, head.hash),
                Err(Error::Refused(ReadError::NotFound)) => (1, [0; 32].into()),
                Err(error) => return failed(&error),
            },
        };
        with(|queue| queue.seal((number, &parent), ic_cdk::api::time() / 1_000_000_000));
    }
    let blocks = sealed();
    let Some(last) = blocks.last() else { return Produced::Nothing };
    match client.send_blocks(&blocks).await {
        Ok(_) => {
            with(|queue| queue.remove_before(last.number + 1));
            Produced::Appended(last.number)
        }
        Err(Unsent { number, error }) => {
            with(|queue| queue.remove_before(number));
            // Coppice refuses this block for good, so the next block is made after the current head. A lost reply leaves open whether an
            // earlier call was executed, so the same block is sent again.
            if error.is_reorg() || matches!(error, Error::Refused(_)) && error.retry() == Retry::Never {
                with(|queue| queue.unseal());
            }
            failed(&error)
        }
    }
}

/// Returns the sealed blocks, oldest first.
fn sealed() -> Vec<AppendBlock> {
    with(|queue| queue.sealed()).iter().map(|(sealed, transactions)| seal(sealed, transactions)).collect()
}

fn failed<E: Refusal + std::fmt::Display>(error: &Error<E>) -> Produced {
    match (error.held_by(), error.retry()) {
        (Some(holder), _) => Produced::Held(holder.clone()),
        (None, Retry::Never | Retry::Reorg) => Produced::Refused(error.to_string()),
        (None, _) => Produced::Later(error.to_string()),
    }
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

/// Returns the newest kept transactions of a sender: block numbers, and positions in their blocks.
#[update]
async fn sent_by(sender: Principal) -> Result<Vec<(u64, u32)>, String> {
    let (client, mut pager, mut found) = (coppice(), KeyPager::new(sender.as_slice(), MAX_FOUND), Vec::new());
    // A page may be empty although more follow.
    while found.len() < MAX_FOUND as usize
        && let Some(page) = pager.next(&client).await.map_err(|error| error.to_string())?
    {
        found.extend(page.iter().map(|transaction| (transaction.block_number, transaction.position)));
    }
    found.truncate(MAX_FOUND as usize);
    Ok(found)
}

/// Returns the receipt of a kept transaction, by the transaction's SHA-256.
#[update]
async fn receipt(id: ByteBuf) -> Result<Accepted, String> {
    let receipt = coppice().get_receipt(id).await.map_err(|error| error.to_string())?;
    Accepted::from_bytes(&receipt.bytes).ok_or_else(|| "the receipt is not one of this sequencer".into())
}

/// Returns how many transactions wait, including those of sealed blocks, and how many of them no sealed block has.
#[query]
fn waiting() -> (u64, u64) {
    with(|queue| queue.waiting())
}

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! A sequencer of a rollup, as small as one can be: it makes blocks of the transactions that it is sent, and keeps them in Coppice, which
//! prunes the old ones. It needs the role `BlockProducer` there.
//!
//! - A block that was sealed is sent until Coppice has it: `append_block` is idempotent, so a lost answer does no harm.
//! - When pruning is held back, `produce` answers who holds it; transactions wait, and the same block goes when there is room again.
//! - Where Coppice refuses a block for good, as after a reorg, its transactions go into the next one.
//! - It keeps nothing of the chain itself: the head, and old blocks, are read from Coppice.
//!
//! What waits is on the heap, and an upgrade forgets it: a real sequencer keeps it in stable memory.

mod block;

use block::{LENGTH, Sealed, seal, split};
use candid::{CandidType, Principal};
use coppice_client::{Client, Error, InterCanister, Refusal, Retry};
use coppice_interface::{AppendError, HeldBy, ReadError, UploadError};
use ic_cdk::{init, post_upgrade, query, update};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::cell::RefCell;

/// Transactions that wait at most.
const MAX_WAITING: usize = 1_000;
/// Bytes of a transaction at most.
const MAX_TRANSACTION: usize = 10_000;
/// Bytes of a block's body at most: with its index it fits in one message, and its transactions in one reply.
const MAX_BODY: usize = 1_850_000;

/// What became of a block.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum Produced {
    /// Coppice has it, under this number.
    Appended(u64),
    /// It waits, as pruning is held back; by whom.
    Held(HeldBy),
    /// It waits, for another reason that passes: a sentence.
    Later(String),
    /// Coppice does not take it, or cannot be asked: a sentence. Somebody's work is needed, unless the next block goes.
    Refused(String),
    /// There are no transactions, or another call produces at this moment.
    Nothing,
}

#[derive(Default)]
struct Sequencer {
    coppice: Option<Principal>,
    /// Transactions that Coppice is not known to have, those of the sealed block at the front.
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
    Client::new(InterCanister::new(with(|sequencer| sequencer.coppice).expect("is installed")))
}

/// Takes a transaction into the next block, and answers how many wait.
#[update]
fn submit(transaction: ByteBuf) -> Result<u64, String> {
    with(|Sequencer { waiting, .. }| {
        if transaction.len() > MAX_TRANSACTION {
            return Err(format!("a transaction has {MAX_TRANSACTION} bytes at most"));
        }
        let bytes: usize = waiting.iter().chain([&transaction]).map(|transaction| LENGTH + transaction.len()).sum();
        if waiting.len() >= MAX_WAITING || bytes > MAX_BODY {
            return Err(format!(
                "at most {MAX_WAITING} transactions and {MAX_BODY} bytes wait: try again after the next block"
            ));
        }
        waiting.push(transaction);
        Ok(waiting.len() as u64)
    })
}

/// Only one call produces at a time, and however it ends, the next one may.
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

/// Seals what waits, where nothing is sealed yet, and has Coppice append it. For controllers.
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
            // Coppice does not have this block and never will: the next one is made behind the head as it is then. A call without an answer
            // says nothing of whether an earlier one was heard: the same block goes again.
            if matches!(&error, Error::Refused(why) if why.retry() == Retry::Never) {
                with(|sequencer| sequencer.sealed = None);
            }
            failed(&error)
        }
    }
}

fn failed<E: Refusal>(error: &Error<E>) -> Produced {
    let why = format!("{error:?}");
    if error.retry() == Retry::Never { Produced::Refused(why) } else { Produced::Later(why) }
}

fn controller() -> Result<(), String> {
    let allowed = ic_cdk::api::is_controller(&ic_cdk::api::msg_caller());
    allowed.then_some(()).ok_or_else(|| "only a controller may do this".into())
}

/// The transactions of a block, read back from Coppice; of a pruned one its reason.
#[update]
async fn transactions(number: u64) -> Result<Vec<ByteBuf>, String> {
    let (_, [body, ..]) = coppice().whole_block(number).await.map_err(|error| format!("{error:?}"))?;
    split(&body).ok_or_else(|| format!("block {number} was made by somebody else"))
}

/// How many transactions wait, those of a sealed block among them, and the number of that block.
#[query]
fn waiting() -> (u64, Option<u64>) {
    with(|sequencer| (sequencer.waiting.len() as u64, sequencer.sealed.as_ref().map(|sealed| sealed.block.number)))
}

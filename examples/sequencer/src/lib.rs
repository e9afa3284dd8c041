//! A sequencer of a rollup, as small as one can be: it makes blocks of the transactions that it is sent, and keeps them in Coppice, which
//! prunes the old ones. It needs the role `Producer` there.
//!
//! - A block that was sealed is sent until Coppice has it: `append_block` is idempotent, so a lost answer does no harm.
//! - When pruning is held back, `produce` answers who holds it; transactions wait, and the same block goes when there is room again.
//! - It keeps nothing of the chain itself: the head, and old blocks, are read from Coppice.
//!
//! What waits is on the heap, and an upgrade forgets it: a real sequencer keeps it in stable memory.

use candid::{CandidType, Principal};
use coppice_client::{Client, Error, InterCanister, Retry};
use coppice_interface::segments::encode_index;
use coppice_interface::{AppendBlock, AppendError, BlockHash, HeldBy, ReadError, UploadError};
use ic_cdk::{init, post_upgrade, query, update};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};
use std::cell::RefCell;

/// Transactions that wait at most.
const MAX_WAITING: usize = 1_000;
/// Bytes of a transaction at most.
const MAX_BYTES: usize = 10_000;

/// What became of a block.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum Produced {
    /// Coppice has it, under this number.
    Appended(u64),
    /// It waits, as pruning is held back; by whom.
    Held(HeldBy),
    /// It waits, for another reason that passes: a sentence.
    Later(String),
    /// Coppice does not take it: a sentence.
    Refused(String),
    /// There are no transactions, or another call produces at this moment.
    Nothing,
}

#[derive(Default)]
struct Sequencer {
    coppice: Option<Principal>,
    waiting: Vec<ByteBuf>,
    /// A block that Coppice may have or not.
    sealed: Option<AppendBlock>,
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
        if waiting.len() >= MAX_WAITING || transaction.len() > MAX_BYTES {
            return Err(format!("at most {MAX_WAITING} transactions of {MAX_BYTES} bytes wait"));
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
            Err(error) => return Produced::Later(format!("{error:?}")),
        };
        with(|sequencer| sequencer.sealed = seal(parent, std::mem::take(&mut sequencer.waiting)));
    }
    let Some(block) = with(|sequencer| sequencer.sealed.clone()) else { return Produced::Nothing };
    match client.send_block(&block).await {
        Ok(_) => {
            with(|sequencer| sequencer.sealed = None);
            Produced::Appended(block.number)
        }
        Err(Error::Refused(UploadError::Append(AppendError::CapacityExhausted { held_by }))) => Produced::Held(held_by),
        Err(error) if error.retry() == Retry::Never => Produced::Refused(format!("{error:?}")),
        Err(error) => Produced::Later(format!("{error:?}")),
    }
}

fn controller() -> Result<(), String> {
    let allowed = ic_cdk::api::is_controller(&ic_cdk::api::msg_caller());
    allowed.then_some(()).ok_or_else(|| "only a controller may do this".into())
}

/// A block of transactions behind a parent, each behind its length in the body, and found by its SHA-256; none of no transactions.
fn seal((number, parent_hash): (u64, BlockHash), transactions: Vec<ByteBuf>) -> Option<AppendBlock> {
    let mut body = Vec::new();
    for transaction in &transactions {
        body.extend((transaction.len() as u32).to_le_bytes());
        body.extend_from_slice(transaction);
    }
    let ids = transactions.iter().map(|transaction| Sha256::digest(transaction.as_slice()).into());
    let index = encode_index(ids, [].into_iter()).expect("there are few");
    let block = AppendBlock {
        number: number + 1,
        parent_hash,
        timestamp: ic_cdk::api::time() / 1_000_000_000,
        body: ByteBuf::from(body),
        index: ByteBuf::from(index),
        ..AppendBlock::default()
    };
    let mut block = block.sealed();
    let hash = Sha256::new_with_prefix(&block.parent_hash).chain_update(&block.sha256.body).finalize();
    block.hash = <[u8; 32]>::from(hash).into();
    (!transactions.is_empty()).then_some(block)
}

/// The transactions of a block, read back from Coppice; of a pruned one its reason.
#[update]
async fn transactions(number: u64) -> Result<Vec<ByteBuf>, String> {
    let (_, [body, ..]) = coppice().whole_block(number).await.map_err(|error| format!("{error:?}"))?;
    let (mut rest, mut transactions) = (body.as_slice(), Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (transaction, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        transactions.push(ByteBuf::from(transaction));
        rest = tail;
    }
    Ok(transactions)
}

/// How many transactions wait, those of a sealed block not among them, and the number of that block.
#[query]
fn waiting() -> (u64, Option<u64>) {
    with(|sequencer| (sequencer.waiting.len() as u64, sequencer.sealed.as_ref().map(|block| block.number)))
}

//! A sequencer of payments: each payment becomes a block of its own chain, and Coppice follows the chain.

use candid::{Decode, Encode, Principal};
use coppice_client::{Block, Cause, Chain, Client, InterCanister, KeyPager};
use coppice_interface::{AppendBlock, BlockHash, KeyTransaction};
use ic_cdk::{init, post_upgrade, query, update};
use ic_stable_structures::memory_manager::{MemoryId, MemoryManager, VirtualMemory};
use ic_stable_structures::{DefaultMemoryImpl, StableBTreeMap, StableCell};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Blocks that the sequencer keeps for a reorg after Coppice has them.
const KEPT: u64 = 100;
/// Most blocks that wait for Coppice.
const MAX_WAITING: u64 = 1_000;

type Memory = VirtualMemory<DefaultMemoryImpl>;

thread_local! {
    static MANAGER: MemoryManager<DefaultMemoryImpl> = MemoryManager::init(DefaultMemoryImpl::default());
    /// The principal of Coppice.
    static COPPICE: RefCell<StableCell<Vec<u8>, Memory>> = MANAGER.with(|memory| {
        RefCell::new(StableCell::init(memory.get(MemoryId::new(0)), Vec::new()))
    });
    /// The newest blocks of the chain, by number.
    static BLOCKS: RefCell<StableBTreeMap<u64, Vec<u8>, Memory>> = MANAGER.with(|memory| {
        RefCell::new(StableBTreeMap::init(memory.get(MemoryId::new(1))))
    });
    /// Why Coppice does not have the whole chain.
    static WAITS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The chain as `follow` reads it: from stable memory, so that an upgrade loses nothing.
struct Own;

impl Chain for Own {
    async fn range(&self) -> Result<Option<RangeInclusive<u64>>, Cause> {
        Ok(BLOCKS.with_borrow(|blocks| Some(blocks.first_key_value()?.0..=blocks.last_key_value()?.0)))
    }

    async fn block(&self, number: u64) -> Result<Option<AppendBlock>, Cause> {
        let bytes = BLOCKS.with_borrow(|blocks| blocks.get(&number));
        Ok(bytes.map(|bytes| Decode!(&bytes, AppendBlock)).transpose()?)
    }
}

#[init]
fn init(coppice: Principal) {
    COPPICE.with_borrow_mut(|cell| cell.set(coppice.as_slice().to_vec()));
    start();
}

#[post_upgrade]
fn start() {
    // One call at a time: the next one begins 5 seconds after the end of the one before.
    ic_cdk_timers::set_timer_interval_serial(Duration::from_secs(5), async || follow().await);
}

fn coppice() -> Client<InterCanister> {
    Client::new(InterCanister::new(COPPICE.with_borrow(|cell| Principal::from_slice(cell.get()))))
}

/// Sends the blocks that Coppice lacks. `Own` does not wait, so a refusal ends the call, and the timer repeats it.
async fn follow() {
    let followed = coppice().follow(&Own).await;
    let waits = match &followed {
        Ok(_) => None,
        Err(error) => {
            Some(error.held_by().map_or(format!("{error:?}"), |held_by| format!("pruning is held: {held_by}")))
        }
    };
    WAITS.set(waits);
    // Coppice has the whole chain, unless payments came meanwhile: `follow` needs the newest blocks for a reorg.
    if followed.is_ok() {
        BLOCKS.with_borrow_mut(|blocks| {
            while blocks.len() > KEPT {
                blocks.pop_first();
            }
        });
    }
}

/// Makes a block with one payment, and returns the id of the payment. Guard this method by the rules of your chain.
#[update]
fn pay(from: String, to: String, amount: u64, memo: String) -> Result<ByteBuf, String> {
    BLOCKS.with_borrow_mut(|blocks| {
        if blocks.len() >= KEPT + MAX_WAITING {
            return Err("too many payments wait for Coppice".into());
        }
        let parent = blocks.last_key_value().map(|(_, bytes)| Decode!(&bytes, AppendBlock).expect("a block"));
        let (number, parent) = parent.map_or((1, BlockHash::from([0; 32])), |parent| (parent.number + 1, parent.hash));
        let now = ic_cdk::api::time();
        let body = Encode!(&from, &to, &amount, &memo, &now).expect("texts and numbers");
        let id: [u8; 32] = Sha256::new_with_prefix(number.to_le_bytes()).chain_update(&body).finalize().into();
        let hash: [u8; 32] = Sha256::new_with_prefix(&parent[..]).chain_update(id).finalize().into();
        let block = Block::new(number, hash, parent, now / 1_000_000_000)
            .body(body)
            .transaction(id, Some(&amount.to_le_bytes()), &[from.as_bytes(), to.as_bytes()])
            .seal()
            .map_err(|error| error.to_string())?;
        blocks.insert(number, Encode!(&block).expect("a block"));
        Ok(ByteBuf::from(id))
    })
}

/// Forgets the blocks above a block, as a sequencer does whose base layer has dropped them. The next payments make another branch.
#[update(guard = "controller")]
fn reorg(to: u64) {
    BLOCKS.with_borrow_mut(|blocks| {
        while blocks.len() > 1 && blocks.last_key_value().is_some_and(|(number, _)| number > to) {
            blocks.pop_last();
        }
    });
}

fn controller() -> Result<(), String> {
    let allowed = ic_cdk::api::is_controller(&ic_cdk::api::msg_caller());
    allowed.then_some(()).ok_or_else(|| "only a controller may do this".into())
}

/// Returns where the kept payments of an account are, newest first.
#[update]
async fn payments_of(account: String) -> Result<Vec<KeyTransaction>, String> {
    KeyPager::new(account.as_bytes(), 0).all(&coppice()).await.map_err(|error| error.to_string())
}

/// Returns the receipt of a kept payment.
#[update]
async fn receipt(id: ByteBuf) -> Result<ByteBuf, String> {
    Ok(coppice().get_receipt(id).await.map_err(|error| error.to_string())?.bytes)
}

/// Returns the last reason why Coppice did not have the whole chain, or null.
#[query]
fn waits() -> Option<String> {
    WAITS.with_borrow(|waits| waits.clone())
}

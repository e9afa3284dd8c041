//! A shelf for documents: a canister that keeps the newest ones in memory that stops growing.

mod shelf;

pub use shelf::{KEPT, Memory, Shelf};

use candid::Principal;
use ic_cdk::call::Call;
use ic_cdk::{init, post_upgrade, query, update};
use ic_coppice_storage::Ic;
use serde_bytes::ByteBuf;
use std::cell::RefCell;

thread_local! {
    static SHELF: RefCell<Option<Shelf<Ic>>> = const { RefCell::new(None) };
}

fn with<R>(run: impl FnOnce(&mut Shelf<Ic>) -> R) -> R {
    SHELF.with_borrow_mut(|shelf| run(shelf.as_mut().expect("the canister is installed")))
}

#[init]
fn init() {
    match Shelf::open() {
        Ok(shelf) => SHELF.set(Some(shelf)),
        Err(why) => ic_cdk::trap(&why),
    }
}

#[post_upgrade]
fn post_upgrade() {
    init();
}

/// Puts a document and returns its number, or the reason why it is refused. The first call draws the hash key.
#[update]
async fn put(name: String, content: ByteBuf) -> Result<u64, String> {
    if !with(|shelf| shelf.is_keyed()) {
        let random = random().await?;
        with(|shelf| shelf.set_key(random));
    }
    with(|shelf| shelf.put(&name, &content))
}

/// Returns 16 secret bytes of the subnet.
async fn random() -> Result<[u8; 16], String> {
    let call = Call::bounded_wait(Principal::management_canister(), "raw_rand");
    let reply = call.await.map_err(|error| error.to_string())?;
    let bytes: ByteBuf = reply.candid().map_err(|error| error.to_string())?;
    bytes.first_chunk().copied().ok_or_else(|| format!("raw_rand gave {} bytes", bytes.len()))
}

/// Returns the newest document of a name.
#[query]
fn get(name: String) -> Option<ByteBuf> {
    with(|shelf| shelf.get(&name)).map(ByteBuf::from)
}

/// Returns the entries of the index, and the bytes of documents, of the index, and of all stable memory.
#[query]
fn memory() -> (u64, u64, u64, u64) {
    let Memory { entries, documents, index, billed } = with(|shelf| shelf.memory());
    (entries, documents, index, billed)
}

/// The code in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

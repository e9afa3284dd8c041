//! A payment rollup: a canister that moves money between accounts, makes a block of its payments, and keeps its blocks with Coppice as a
//! library.
//!
//! - A payment moves the money and waits for its block in one message; a trap undoes both.
//! - A block is made of 100 payments, or of what there is every five seconds. The body has the payments, the receipts what the payers have left;
//!   a payment is found by its SHA-256 and by its two accounts.
//! - A payment that could not be sealed in a block is refused when it comes: [`MAX_MEMO`], and the length of a subaccount.
//! - While Coppice takes no block, for example because an exporter has not acknowledged those that are due, payments wait; above 1,000 waiting
//!   ones `pay` is refused with the reason.
//! - Balances are certified under the same root as the chain.

mod account;
mod ledger;

use account::Account;
use candid::{CandidType, Principal};
use ic_cdk::{init, inspect_message, post_upgrade, pre_upgrade, query, update};
use ic_coppice::interface::{
    AppendError, ConfigChange, HttpRequest, HttpResponse, InitArg, PrunePolicyArg, ReadError, TipCertificate,
};
use ic_coppice::{Coppice, Inspected, canister_arg};
use ic_coppice_client::Block;
use ledger::{BALANCES, Ledger, Payment};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::time::Duration;

// Queries of blocks, export, health and the dashboard; settings, roles, exporters and pruning.
ic_coppice::export!(readers, operators);
#[cfg(target_family = "wasm")]
ic_coppice::service!(include_bytes!("../rollup.did"));

/// Most payments of a block.
const PER_BLOCK: usize = 100;
/// Time after which waiting payments get a block.
const INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of the longest argument of the canister's own methods.
const LONGEST: usize = 512;
/// Bytes of the longest memo.
pub const MAX_MEMO: usize = 32;
/// Most waiting payments.
const MAX_WAITING: u64 = 1_000;

/// The reason why a payment was refused.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub enum PayError {
    /// The payer has less.
    Balance(u64),
    /// The amount is 0. Such a payment would cost its payer nothing, and the canister an account.
    Nothing,
    /// A subaccount does not have 32 bytes, or the memo has more.
    Bytes,
    /// Too many payments wait; with the reason why they get no block.
    Busy(String),
}

/// A payment that is asked for.
#[derive(Clone, Debug, CandidType, Deserialize)]
pub struct Transfer {
    /// Subaccount of the caller.
    pub from_subaccount: Option<ByteBuf>,
    /// The payee.
    pub to: Account,
    /// Units of money.
    pub amount: u64,
    /// At most 32 bytes, which stand in the block.
    pub memo: Option<ByteBuf>,
}

/// An account's balance with its proof.
#[derive(Clone, Debug, CandidType, Deserialize)]
pub struct Balance {
    /// Units of money.
    pub amount: u64,
    /// The certificate and the tree with the path `host`, `balances`, account; `None` in an update.
    pub proof: Option<TipCertificate>,
}

thread_local! {
    static LEDGER: RefCell<Option<Ledger>> = const { RefCell::new(None) };
}

fn with<R>(run: impl FnOnce(&mut Ledger) -> R) -> R {
    LEDGER.with_borrow_mut(|ledger| run(ledger.as_mut().expect("the hooks open the ledger")))
}

#[init(decode_with = "canister_arg::of_init")]
fn init(arg: InitArg) {
    Coppice::init(&arg).unwrap_or_else(|why| ic_cdk::trap(why));
    // Blocks are kept for a day, and until all exporters have them.
    let day = PrunePolicyArg { pruning_enabled: Some(true), retain_days: Some(1), ..PrunePolicyArg::default() };
    Coppice::set_policy(&day).unwrap_or_else(|why| ic_cdk::trap(why.to_string()));
    start();
}

#[pre_upgrade]
fn pre_upgrade() {
    Coppice::pre_upgrade();
}

#[post_upgrade(decode_with = "canister_arg::of_upgrade")]
fn post_upgrade(change: Option<ConfigChange>) {
    Coppice::post_upgrade(change.as_ref()).unwrap_or_else(|why| ic_cdk::trap(why));
    start();
}

fn start() {
    LEDGER.set(Some(Ledger::open().unwrap_or_else(|why| ic_cdk::trap(why))));
    Coppice::route(route);
    ic_cdk_timers::set_timer_interval(INTERVAL, || async { with(make_block) });
}

#[inspect_message]
fn inspect_message() {
    match Coppice::inspect(coppice_methods()) {
        Inspected::Accepted => ic_cdk::api::accept_message(),
        Inspected::Refused(why) => ic_cdk::trap(why),
        // Anyone may pay. The canister pays for each byte of a message that it accepts.
        Inspected::NotMine if ic_cdk::api::msg_arg_data().len() <= LONGEST => ic_cdk::api::accept_message(),
        Inspected::NotMine => ic_cdk::trap(format!("the argument has more than {LONGEST} bytes")),
    }
}

/// Makes a block of waiting payments. If Coppice takes none, the payments wait.
fn make_block(ledger: &mut Ledger) {
    let waiting = ledger.waiting(PER_BLOCK);
    if waiting.is_empty() || Coppice::admission().is_err() {
        return;
    }
    let (number, parent) = match Coppice::head() {
        Ok(head) => (head.number + 1, head.hash),
        Err(ReadError::NotFound) => (1, [0; 32].into()),
        Err(why) => ic_cdk::trap(why.to_string()),
    };
    let of = |(number, bytes): &(u64, Vec<u8>)| {
        let id: [u8; 32] = Sha256::new_with_prefix(number.to_be_bytes()).chain_update(bytes).finalize().into();
        (id, candid::decode_one::<Payment>(bytes).expect("the ledger has encoded it"))
    };
    let payments: Vec<([u8; 32], Payment)> = waiting.iter().map(of).collect();
    let hash = payments.iter().fold(Sha256::new_with_prefix(&parent[..]), |hash, (id, _)| hash.chain_update(id));
    let hash: [u8; 32] = hash.finalize().into();
    let body = waiting.iter().flat_map(|(_, bytes)| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat());
    let block = Block::new(number, hash, parent, ic_cdk::api::time() / 1_000_000_000).body(body.collect::<Vec<u8>>());
    let block = payments.iter().fold(block, |block, (id, Payment { from, to, left, .. })| {
        block.transaction(*id, Some(&left.to_be_bytes()), &[&from.key(), &to.key()])
    });
    let block = block.seal().expect("100 payments are smaller than a block may be");
    if Coppice::append(&block).is_ok() {
        ledger.remove(waiting.iter().map(|(number, _)| *number));
    }
}

/// Pays from an account of the caller. Returns the payment's number.
#[update]
fn pay(transfer: Transfer) -> Result<u64, PayError> {
    let Transfer { from_subaccount: subaccount, to, amount, memo } = transfer;
    let from = Account { owner: ic_cdk::api::msg_caller(), subaccount };
    if !from.is_valid() || !to.is_valid() || memo.as_ref().is_some_and(|memo| memo.len() > MAX_MEMO) {
        return Err(PayError::Bytes);
    }
    with(|ledger| {
        let balance = ledger.balance(&from);
        if amount == 0 {
            return Err(PayError::Nothing);
        }
        if balance < amount {
            return Err(PayError::Balance(balance));
        }
        if ledger.len() >= MAX_WAITING {
            let held = Coppice::admission().err();
            return Err(PayError::Busy(
                held.map_or_else(|| "a block is due".into(), |why: AppendError| why.to_string()),
            ));
        }
        let number = ledger.pay(&Payment { from, to, amount, memo, left: balance - amount, at: ic_cdk::api::time() });
        if ledger.len() >= PER_BLOCK as u64 {
            make_block(ledger);
        }
        Ok(number)
    })
}

/// Makes money for an account. For controllers. Returns the sum of all balances.
#[update]
fn mint(to: Account, amount: u64) -> Result<u64, String> {
    if !ic_cdk::api::is_controller(&ic_cdk::api::msg_caller()) {
        return Err("only a controller may make money".into());
    }
    if !to.is_valid() {
        return Err("a subaccount has 32 bytes".into());
    }
    with(|ledger| ledger.mint(&to, amount))
}

/// Returns an account's balance.
#[query]
fn balance(of: Account) -> Balance {
    with(|ledger| Balance { amount: ledger.balance(&of), proof: Coppice::witness(BALANCES, &ledger.witness(&of)) })
}

/// Number of payments that wait for a block.
#[query]
fn waiting() -> u64 {
    with(|ledger| ledger.len())
}

/// Answers `/balance/PRINCIPAL`; Coppice answers all other paths.
fn route(request: &HttpRequest) -> Option<HttpResponse> {
    let account = request.url.strip_prefix("/balance/")?;
    let (status_code, body) = match Principal::from_text(account) {
        Ok(owner) => {
            let account = Account { owner, subaccount: None };
            (200, format!("{}\n", with(|ledger| ledger.balance(&account))))
        }
        // The path is a stranger's text, so the answer does not repeat it.
        Err(_) => (400, "the path is /balance/PRINCIPAL\n".into()),
    };
    let headers = vec![("Content-Type".into(), "text/plain".into())];
    Some(HttpResponse { status_code, headers, body: ByteBuf::from(body), upgrade: None })
}

/// Returns the interface of the canister's own methods, without those of Coppice.
#[cfg(not(target_family = "wasm"))]
pub fn own_interface() -> String {
    candid::export_service!();
    __export_service()
}

/// Returns the names of all methods of Coppice that the canister exports, by set.
#[cfg(not(target_family = "wasm"))]
pub fn exported() -> &'static [&'static [&'static str]] {
    coppice_methods()
}

/// The code in README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

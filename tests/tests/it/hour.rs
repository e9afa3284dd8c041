//! The test of `docs/client.md`, whose code is the code below `wasm`.

use coppice_tests::wasm as built;

fn wasm(name: &str) -> Vec<u8> {
    if name == "coppice" { built::canister() } else { built::example("coppice_hour") }
}

use candid::{CandidType, Decode, Encode, Principal, decode_one, encode_args};
use coppice_client::{Client, Embedded, Error};
use coppice_host::Host;
use coppice_interface::*;
use pollster::block_on;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::time::Duration;

/// The sequencer, and Coppice with an operator who is also its exporter.
struct World {
    host: Arc<Host>,
    sequencer: Principal,
    operator: Client<Embedded>,
}

impl World {
    fn new() -> Self {
        let host = Arc::new(Host::new());
        let (coppice, sequencer) = (host.create_canister(), host.create_canister());
        let me = Principal::self_authenticating([1; 32]);
        // Small blobs of the log, so that few blocks fill one: pruning frees whole blobs.
        let log_class = Some(64 << 10);
        let init = InitArg { log_class, operators: vec![me], producers: vec![sequencer], ..InitArg::default() };
        let arg = Encode!(&Some(CanisterArg::Init(init))).unwrap();
        host.install_canister(coppice, wasm("coppice"), arg, None);
        // Its first timer draws the hash key, so that it is ready.
        host.tick();
        host.install_canister(sequencer, wasm("sequencer"), Encode!(&coppice).unwrap(), None);
        let operator = Client::new(Embedded::new(Arc::clone(&host), coppice, me));
        Self { host, sequencer, operator }
    }

    fn call<R: CandidType + DeserializeOwned>(&self, method: &str, arg: Vec<u8>) -> R {
        let reply = self.host.update_call(self.sequencer, Principal::anonymous(), method, arg).unwrap();
        decode_one(&reply).unwrap()
    }

    fn pay(&self, from: &str, to: &str, amount: u64, memo: &str) -> ByteBuf {
        let paid: Result<ByteBuf, String> = self.call("pay", encode_args((from, to, amount, memo)).unwrap());
        paid.unwrap()
    }

    /// Lets the sequencer's timer run, and returns why the chain waits.
    fn pass(&self) -> Option<String> {
        self.host.advance_time(Duration::from_secs(6));
        for _ in 0..3 {
            self.host.tick();
        }
        let arg = encode_args(()).unwrap();
        let reply = self.host.query_call(self.sequencer, Principal::anonymous(), "waits", arg).unwrap();
        Decode!(&reply, Option<String>).unwrap()
    }

    fn head(&self) -> u64 {
        block_on(self.operator.get_head()).unwrap().number
    }

    fn blocks_of(&self, account: &str) -> Vec<u64> {
        let found: Result<Vec<KeyTransaction>, String> = self.call("payments_of", Encode!(&account).unwrap());
        found.unwrap().iter().map(|payment| payment.block_number).collect()
    }
}

#[test]
fn payments_are_found_by_account_and_have_receipts() {
    let world = World::new();
    world.pay("alice", "bob", 5, "");
    let id = world.pay("bob", "carol", 3, "");
    assert_eq!(world.pass(), None);
    assert_eq!((world.head(), world.blocks_of("bob"), world.blocks_of("alice")), (2, vec![2, 1], vec![1]));
    let receipt: Result<ByteBuf, String> = world.call("receipt", Encode!(&id).unwrap());
    assert_eq!(receipt.unwrap().as_slice(), 3u64.to_le_bytes());
}

#[test]
fn reorg_replaces_the_blocks_of_the_old_branch() {
    let world = World::new();
    for amount in 1..=5 {
        world.pay("alice", "bob", amount, "");
    }
    assert_eq!((world.pass(), world.head()), (None, 5));
    world.call::<()>("reorg", Encode!(&3u64).unwrap());
    world.pay("alice", "carol", 6, "");
    assert_eq!((world.pass(), world.head()), (None, 4));
    assert_eq!((world.blocks_of("bob"), world.blocks_of("carol")), (vec![3, 2, 1], vec![4]));
}

#[test]
fn blocks_wait_for_the_exporter_and_survive_an_upgrade() {
    let world = World::new();
    let (operator, memo) = (&world.operator, "x".repeat(1 << 20));
    let exporter = Exporter { name: "archive".into(), principal: Principal::self_authenticating([1; 32]) };
    block_on(operator.register_exporter(&exporter)).unwrap();
    let target_bytes = Some(8 << 20);
    let policy = PrunePolicyArg { target_bytes, min_kept_blocks: Some(1), ..PrunePolicyArg::default() };
    block_on(operator.set_prune_policy(&policy)).unwrap();
    for amount in 1..=30 {
        world.pay("alice", "bob", amount, &memo);
    }
    assert_eq!(world.pass().unwrap(), "pruning is held: exporter archive has not acknowledged the next block");
    let kept = world.head();
    assert!(kept < 30, "{kept}");
    // The waiting blocks are in stable memory.
    world.host.upgrade_canister(world.sequencer, wasm("sequencer"), Vec::new(), None).unwrap();
    while world.head() < 30 {
        // The exporter copies all blocks, and acknowledges the newest.
        let head = block_on(operator.get_head()).unwrap();
        block_on(operator.ack_exported(head.number, &head.hash)).unwrap();
        world.pass();
    }
    assert_eq!(world.pass(), None);
    let pruned = block_on(operator.get_block(1u64)).unwrap_err();
    assert!(matches!(pruned, Error::Refused(ReadError::Pruned { .. })), "{pruned:?}");
    assert_eq!(world.blocks_of("alice").first(), Some(&30));
}

//! The example canister that feeds Coppice: `examples/sequencer`.

use candid::utils::ArgumentEncoder;
use candid::{CandidType, Principal, decode_one, encode_args};
use coppice_ic::Reject;
use coppice_sequencer::{Accepted, Produced};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who};
use coppice_tests::wasm;
use ic_coppice_client::Block;
use ic_coppice_interface::{Grant, HeldBy, PrunePolicyArg, Role};
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};

/// A sequencer with the role of a producer.
struct World {
    coppice: Coppice,
    sequencer: Principal,
}

impl World {
    fn new() -> Self {
        Self::of(|coppice, _| coppice.id)
    }

    /// A world whose sequencer takes another canister, or itself, for Coppice.
    fn of(taken: impl FnOnce(&Coppice, Principal) -> Principal) -> Self {
        let coppice = Coppice::new();
        let controller = Who::Controller.principal();
        let sequencer = coppice.ic.create_canister(controller);
        let arg = encode_args((taken(&coppice, sequencer),)).unwrap();
        coppice.ic.install(sequencer, wasm::example("coppice_sequencer"), arg, controller);
        coppice.operator().grant_role(&Grant { principal: sequencer, role: Role::BlockProducer }).answer().unwrap();
        Self { coppice, sequencer }
    }

    fn call<R: CandidType + DeserializeOwned>(
        &self,
        who: Who,
        method: &str,
        args: impl ArgumentEncoder,
    ) -> Result<R, Reject> {
        let arg = encode_args(args).unwrap();
        Ok(decode_one(&self.coppice.ic.update(self.sequencer, who.principal(), method, arg)?).unwrap())
    }

    fn submit(&self, transaction: &[u8]) -> Result<u64, String> {
        self.call(Who::Stranger, "submit", (ByteBuf::from(transaction),)).unwrap()
    }

    fn produce(&self) -> Produced {
        self.call(Who::Controller, "produce", ()).unwrap()
    }

    fn upgrade(&self) {
        let arg = encode_args((self.coppice.id,)).unwrap();
        let wasm = wasm::example("coppice_sequencer");
        self.coppice.ic.upgrade(self.sequencer, wasm, arg, Who::Controller.principal()).unwrap();
    }

    fn sent_by(&self, sender: Who) -> Result<Vec<(u64, u32)>, String> {
        self.call(Who::Stranger, "sent_by", (sender.principal(),)).unwrap()
    }

    fn receipt(&self, transaction: &[u8]) -> Result<Accepted, String> {
        let id = ByteBuf::from(Sha256::digest(transaction).to_vec());
        self.call(Who::Stranger, "receipt", (id,)).unwrap()
    }

    fn transactions(&self, number: u64) -> Result<Vec<ByteBuf>, String> {
        self.call(Who::Stranger, "transactions", (number,)).unwrap()
    }

    /// Returns how many transactions wait, and how many of them no sealed block has.
    fn waiting(&self) -> (u64, u64) {
        let reply = self.coppice.ic.query(self.sequencer, Principal::anonymous(), "waiting", encode_args(()).unwrap());
        candid::decode_args(&reply.unwrap()).unwrap()
    }
}

#[test]
fn blocks_go_to_coppice_and_are_read_back() {
    let world = World::new();
    assert_eq!(world.produce(), Produced::Nothing, "there are no transactions");
    for number in 1..=5u64 {
        let transactions: Vec<ByteBuf> =
            (0..number).map(|at| ByteBuf::from(format!("{number}.{at}").into_bytes())).collect();
        for (at, transaction) in (1..).zip(&transactions) {
            assert_eq!(world.submit(transaction), Ok(at));
        }
        assert_eq!(world.produce(), Produced::Appended(number));
        assert_eq!(world.transactions(number), Ok(transactions.clone()));
        let id: [u8; 32] = Sha256::digest(transactions.last().unwrap()).into();
        assert_eq!(world.coppice.location(id), Ok((number, number as u32 - 1)));
    }
    assert_eq!((world.coppice.head(), world.waiting()), (Some(5), (0, 0)));
    assert!(world.transactions(6).unwrap_err().contains("there is no such block"));
    // After a rollback the sequencer continues at Coppice's head.
    world.coppice.producer().roll_back_to(3).answer().unwrap();
    world.submit(b"after a reorg").unwrap();
    assert_eq!(world.produce(), Produced::Appended(4));
    assert_eq!(world.transactions(4), Ok(vec![ByteBuf::from(b"after a reorg".as_slice())]));
}

#[test]
fn transactions_are_found_by_their_sender_and_have_receipts() {
    let world = World::new();
    let submit = |who: Who, transaction: &[u8]| {
        let submitted: Result<u64, String> = world.call(who, "submit", (ByteBuf::from(transaction),)).unwrap();
        submitted.unwrap();
    };
    submit(Who::Stranger, b"one");
    submit(Who::Rival, b"two");
    assert_eq!(world.produce(), Produced::Appended(1));
    world.coppice.settle(60);
    submit(Who::Rival, b"three");
    assert_eq!(world.produce(), Produced::Appended(2));
    assert_eq!(world.sent_by(Who::Rival), Ok(vec![(2, 0), (1, 1)]), "newest first");
    assert_eq!((world.sent_by(Who::Stranger), world.sent_by(Who::Archive)), (Ok(vec![(1, 0)]), Ok(vec![])));
    let [first, third] = [b"one".as_slice(), b"three"].map(|transaction| world.receipt(transaction).unwrap());
    assert_eq!((first.sender, third.sender), (Who::Stranger.principal(), Who::Rival.principal()));
    assert!(first.at < third.at, "{first:?} {third:?}");
    assert!(world.receipt(b"four").is_err());
}

#[test]
fn waiting_transactions_and_the_sealed_block_survive_an_upgrade() {
    let world = World::new();
    let controller = Who::Controller.principal();
    world.submit(b"one").unwrap();
    world.upgrade();
    assert_eq!(world.waiting(), (1, 1));
    // A block is sealed and cannot be sent.
    let grant = Grant { principal: world.sequencer, role: Role::BlockProducer };
    assert!(world.coppice.operator().revoke_role(&grant).answer());
    assert!(matches!(world.produce(), Produced::Refused(_)));
    world.submit(b"two").unwrap();
    world.upgrade();
    assert_eq!(world.waiting(), (2, 1));
    world.coppice.operator().grant_role(&grant).answer().unwrap();
    // Coppice is stopped in between.
    world.coppice.ic.stop(world.coppice.id, controller).unwrap();
    assert!(matches!(world.produce(), Produced::Later(_)));
    world.upgrade();
    assert_eq!(world.waiting(), (2, 0), "two blocks are sealed");
    world.coppice.ic.start(world.coppice.id, controller).unwrap();
    assert_eq!(world.produce(), Produced::Appended(2));
    assert_eq!(world.transactions(1), Ok(vec![ByteBuf::from(b"one".as_slice())]));
    assert_eq!(world.transactions(2), Ok(vec![ByteBuf::from(b"two".as_slice())]));
    assert_eq!((world.waiting(), world.receipt(b"two").unwrap().sender), ((0, 0), Who::Stranger.principal()));
}

#[test]
fn held_blocks_are_sent_together_after_pruning() {
    let world = World::new();
    let World { coppice, .. } = &world;
    coppice.register(Who::Archive);
    let target_bytes = Some(40 * u64::from(LOG_CLASS));
    let policy = PrunePolicyArg { target_bytes, min_kept_blocks: Some(1), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    let held = (1..100).find_map(|number| {
        for _ in 0..20 {
            world.submit(&[7; 9_000]).unwrap();
        }
        match world.produce() {
            Produced::Appended(appended) => assert_eq!(appended, number),
            Produced::Held(by) => return Some((number, by)),
            other => panic!("{other:?}"),
        }
        None
    });
    let (number, by) = held.expect("the emergency watermark is reached");
    assert_eq!(by, HeldBy::Exporter(Who::Archive.name()));
    // Repeated attempts lose nothing.
    assert_eq!(world.produce(), Produced::Held(by.clone()));
    world.submit(b"the next block's").unwrap();
    assert_eq!(world.waiting(), (21, 1));
    assert_eq!((world.produce(), world.waiting()), (Produced::Held(by.clone()), (21, 0)));
    assert_eq!(coppice.head(), Some(number - 1));
    // A little room: the first block goes, the next is held.
    let status = coppice.anyone().get_prune_status().answer();
    let marks = status.water_marks.unwrap();
    let target = u128::from(marks.target) * u128::from(status.capacity_bytes + 90_000) / u128::from(marks.emergency);
    coppice.set_policy(PrunePolicyArg { target_bytes: Some(target as u64), ..PrunePolicyArg::default() }).unwrap();
    assert_eq!((world.produce(), world.waiting()), (Produced::Held(by), (1, 0)));
    assert_eq!(coppice.head(), Some(number));

    let head = coppice.anyone().get_head().answer().unwrap();
    coppice.ack(Who::Archive, head.number, &head.hash).unwrap();
    coppice.settle(60);
    assert_eq!(world.produce(), Produced::Appended(number + 1));
    assert_eq!(world.transactions(number).unwrap().len(), 20);
    assert_eq!(world.transactions(number + 1), Ok(vec![ByteBuf::from(b"the next block's".as_slice())]));
    let pruned = world.transactions(1).unwrap_err();
    assert!(pruned.contains("the block was pruned"), "{pruned}");
}

#[test]
fn a_stopped_coppice_is_retried_and_a_missing_role_is_reported() {
    let world = World::new();
    let controller = Who::Controller.principal();
    assert!(world.call::<Produced>(Who::Stranger, "produce", ()).is_err());
    assert!(world.submit(&[0; 10_001]).is_err());
    world.submit(b"one").unwrap();
    // Coppice is stopped, and then the sequencer's role is revoked.
    world.coppice.ic.stop(world.coppice.id, controller).unwrap();
    assert!(matches!(world.produce(), Produced::Later(_)));
    world.coppice.ic.start(world.coppice.id, controller).unwrap();
    let grant = Grant { principal: world.sequencer, role: Role::BlockProducer };
    assert!(world.coppice.operator().revoke_role(&grant).answer());
    assert!(matches!(world.produce(), Produced::Refused(_)));
    assert_eq!(world.waiting(), (1, 0), "the block is sealed and kept");
    world.coppice.operator().grant_role(&grant).answer().unwrap();
    assert_eq!(world.produce(), Produced::Appended(1));
    // Both canisters are upgraded in between.
    world.coppice.upgrade();
    world.upgrade();
    world.submit(b"two").unwrap();
    assert_eq!(world.produce(), Produced::Appended(2));
    assert_eq!(world.transactions(1), Ok(vec![ByteBuf::from(b"one".as_slice())]));
}

#[test]
fn a_block_whose_number_is_taken_is_rebuilt_after_the_head() {
    let world = World::new();
    let World { coppice, .. } = &world;
    world.submit(b"one").unwrap();
    // The block is sealed and refused: it is unknown whether an earlier attempt was executed, so the same block is sent again.
    let grant = Grant { principal: world.sequencer, role: Role::BlockProducer };
    assert!(coppice.operator().revoke_role(&grant).answer());
    for _ in 0..2 {
        assert!(matches!(world.produce(), Produced::Refused(_)));
        assert_eq!(world.waiting(), (1, 0));
    }
    coppice.operator().grant_role(&grant).answer().unwrap();
    // Another producer's block takes the number meanwhile.
    let others = Block::new(1, [9; 32], [0; 32], 0).body([5, 0, 0, 0, 1]).seal().unwrap();
    coppice.append(&others).unwrap();
    world.submit(b"two").unwrap();
    let Produced::Refused(why) = world.produce() else { panic!("the number is taken") };
    assert!(why.contains("another hash has this number"), "{why}");
    assert_eq!(world.waiting(), (2, 2), "nothing is lost, and no block is in the way");
    assert_eq!(world.produce(), Produced::Appended(2));
    let transactions = [b"one", b"two"].map(|transaction| ByteBuf::from(transaction.as_slice()));
    assert_eq!((world.transactions(2), world.waiting()), (Ok(transactions.into()), (0, 0)));
    assert!(world.transactions(1).unwrap_err().contains("was not made by this sequencer"));
}

#[test]
fn waiting_transactions_are_bounded_by_one_reply() {
    let world = World::new();
    let transaction = |at: u64| [&at.to_le_bytes()[..], &[7; 9_992]].concat();
    // Each transaction takes 10,004 of 1,780,000 bytes.
    for at in 0..177 {
        assert_eq!(world.submit(&transaction(at)), Ok(at + 1));
    }
    assert!(world.submit(&transaction(177)).unwrap_err().contains("wait"));
    assert_eq!(world.submit(&[1; 9_288]), Ok(178), "the last byte of them");
    assert!(world.submit(&[]).unwrap_err().contains("wait"));
    assert_eq!(world.produce(), Produced::Appended(1));
    let read = world.transactions(1).unwrap();
    assert_eq!((read.len(), read[176].as_slice(), read[177].len()), (178, &transaction(176)[..], 9_288));
    assert_eq!(world.submit(&[]), Ok(1));
}

#[test]
fn another_canister_than_coppice_is_refused_without_a_retry() {
    for taken in [|_: &Coppice, sequencer| sequencer, |_: &Coppice, _| Principal::from_slice(&[1; 10])] {
        let world = World::of(taken);
        world.submit(b"one").unwrap();
        let produced = world.produce();
        assert!(matches!(produced, Produced::Refused(_)), "{produced:?}");
        assert_eq!(world.waiting(), (1, 1));
    }
}

//! The indexer over a network of which one replica lies, and signs what it says: random histories of the chain, of runs and of lies.

use crate::bombs::bombs;
use crate::net::Net;
use anyhow::Result;
use coppice::client::{Client, Wait};
use coppice::feed::{self, Header};
use coppice::index::assemble::behind;
use coppice::index::engine::Engine;
use coppice::index::steps::{Event, Onward, Options};
use coppice::index::store::{Origin, Payload, Store};
use coppice::ledger::{Entry, Ledger};
use coppice::network::Network;
use coppice_client::Embedded;
use coppice_interface::{
    AppendBlock, BlockHash, ExportChunk, ExportCursor, ExportError, ExportPage, Exporter, PrunePolicyArg,
};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Where the chain begins.
const FIRST: u64 = 500;
/// Blocks behind the head that the canister retains, so that it prunes what is acknowledged before.
const RETAINED: u64 = 4;

/// What a replica answers instead of the truth. Blocks are counted back from the head, but where something is said.
#[derive(Clone, Debug)]
enum Lie {
    Truth,
    Pruned {
        first: u64,
        ancestor: Option<u64>,
    },
    Reorged {
        ancestor: u64,
        own_hash: bool,
    },
    Reset,
    Unknown,
    /// Damaged is the next block, and so many behind it.
    Corrupt {
        more: u64,
        head: bool,
    },
    Late,
    NothingNew,
    /// The first block of the page.
    LeftOut,
    Bytes,
    Digests,
    Parents,
    Numbers(u64),
    Totals(u64),
    Cursor(u64),
    Rollbacks(u64),
    Head(Option<u64>),
    /// The payload with digests to match.
    Payloads,
    Times,
    Hashes,
    /// An answer of before, by its number.
    Old(usize),
    Noise(Vec<u8>),
    /// The truth, with more that cannot be read, by its number.
    Bomb(usize),
}

impl Lie {
    /// Whether nobody can tell it from the truth who has only this answer.
    fn is_content(&self) -> bool {
        matches!(self, Self::Payloads | Self::Times | Self::Hashes)
    }
}

fn lies() -> impl Strategy<Value = Lie> {
    let back = || 0..12u64;
    prop_oneof![
        4 => Just(Lie::Truth),
        2 => (back(), prop::option::of(back())).prop_map(|(first, ancestor)| Lie::Pruned { first, ancestor }),
        2 => (back(), any::<bool>()).prop_map(|(ancestor, own_hash)| Lie::Reorged { ancestor, own_hash }),
        1 => Just(Lie::Reset),
        1 => Just(Lie::Unknown),
        2 => (0..3u64, any::<bool>()).prop_map(|(more, head)| Lie::Corrupt { more, head }),
        1 => Just(Lie::Late),
        1 => Just(Lie::NothingNew),
        2 => Just(Lie::LeftOut),
        1 => Just(Lie::Bytes),
        1 => Just(Lie::Digests),
        1 => Just(Lie::Parents),
        1 => prop_oneof![Just(1), Just(u64::MAX)].prop_map(Lie::Numbers),
        1 => prop_oneof![Just(0), Just(u64::MAX)].prop_map(Lie::Totals),
        1 => prop_oneof![Just(1), Just(u64::MAX)].prop_map(Lie::Cursor),
        1 => prop_oneof![Just(0), Just(1), Just(u64::MAX)].prop_map(Lie::Rollbacks),
        1 => prop::option::of(prop_oneof![Just(0), Just(FIRST + 3), Just(u64::MAX)]).prop_map(Lie::Head),
        2 => Just(Lie::Payloads),
        1 => Just(Lie::Times),
        1 => Just(Lie::Hashes),
        2 => (0..40usize).prop_map(Lie::Old),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Lie::Noise),
        1 => (0..7usize).prop_map(Lie::Bomb),
    ]
}

/// What happens.
#[derive(Clone, Debug)]
enum Action {
    /// Blocks with bodies of so many bytes.
    Append(Vec<u16>),
    RollBack(u64),
    /// The indexer works for so many steps at most, while queries are answered with these, one after the other.
    Index {
        steps: usize,
        lies: Vec<Lie>,
    },
    /// It begins anew with the same database.
    Reopen,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        3 => prop::collection::vec(0..6_000u16, 1..5).prop_map(Action::Append),
        1 => (1..4u64).prop_map(Action::RollBack),
        4 => (1..30usize, prop::collection::vec(lies(), 1..6)).prop_map(|(steps, lies)| Action::Index { steps, lies }),
        1 => Just(Action::Reopen),
    ];
    prop::collection::vec(action, 8..20)
}

/// How the indexer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As by default.
    Replicated,
    /// `--no-ack`.
    Reader,
}

impl Way {
    /// All that lets something go is allowed.
    fn options(self) -> Options {
        Options {
            page_bytes: 3_000,
            ack_every: (self != Self::Reader).then_some(2),
            skip_damaged: true,
            accept_reset: true,
            keep_orphaned: 1_000,
        }
    }

    /// What it cannot tell from the truth, as its documentation says, is not told to it.
    fn hears(self, lie: &Lie) -> bool {
        match self {
            Self::Replicated => true,
            Self::Reader => !lie.is_content() && !matches!(lie, Lie::LeftOut | Lie::Old(_) | Lie::Parents),
        }
    }
}

/// What the replica knows to lie with.
#[derive(Default)]
struct Knows {
    hashes: BTreeMap<u64, BlockHash>,
    answers: Vec<Vec<u8>>,
}

impl Knows {
    fn tell(&mut self, lie: &Lie, truth: Vec<u8>) -> Vec<u8> {
        self.answers.push(truth.clone());
        let head = self.hashes.keys().next_back().copied().unwrap_or(FIRST);
        let answer: Result<ExportPage, ExportError> = candid::decode_one(&truth).unwrap();
        let behind = |number: u64| behind(number, self.hashes.get(&number).map_or(&[7; 32], |hash| &hash[..]), 9);
        let next = answer.as_ref().ok().and_then(|page| Some(page.chunks.first()?.number)).unwrap_or(head + 1);
        let lied = match lie.clone() {
            Lie::Truth => return truth,
            Lie::Noise(bytes) => return bytes,
            Lie::Bomb(at) => return bombs(&truth)[at].clone(),
            Lie::Old(at) => return self.answers[at % self.answers.len()].clone(),
            Lie::Pruned { first, ancestor } => {
                let common_ancestor = ancestor.map(|ancestor| head.saturating_sub(ancestor));
                Err(ExportError::Pruned { first_available: head.saturating_sub(first), common_ancestor })
            }
            Lie::Reorged { ancestor, own_hash } => {
                let common_ancestor = head.saturating_sub(ancestor);
                let mut cursor = behind(common_ancestor);
                if !own_hash {
                    cursor.hash = [8; 32].into();
                }
                Err(ExportError::Reorged { common_ancestor, cursor })
            }
            Lie::Reset => Err(ExportError::Reset { first_available: Some(3) }),
            Lie::Unknown => Err(ExportError::BadCursor { why: "no".into() }),
            Lie::Corrupt { more, head } => {
                let cursor = (!head).then(|| behind(next + more));
                Err(ExportError::Corrupt { number: next, why: "no".into(), next: cursor })
            }
            Lie::Late => Err(ExportError::Behind { head: Some(head.saturating_sub(1)) }),
            Lie::NothingNew => answer.map(|page| ExportPage { chunks: Vec::new(), ..page }),
            Lie::LeftOut => answer.map(|mut page| {
                page.chunks.retain(|chunk| chunk.number != next);
                page
            }),
            Lie::Bytes => chunks(answer, |chunk| chunk.bytes.iter_mut().for_each(|byte| *byte ^= 1)),
            Lie::Digests => chunks(answer, |chunk| chunk.sha256[0] ^= 1),
            Lie::Parents => chunks(answer, |chunk| chunk.parent_hash[0] ^= 1),
            Lie::Numbers(by) => chunks(answer, |chunk| chunk.number = chunk.number.saturating_add(by)),
            Lie::Totals(total) => chunks(answer, |chunk| chunk.total = total),
            Lie::Cursor(by) => cursor(answer, |cursor| cursor.number = cursor.number.saturating_add(by)),
            Lie::Rollbacks(count) => cursor(answer, |cursor| cursor.rollbacks = count),
            Lie::Head(head) => answer.map(|page| ExportPage { head, ..page }),
            Lie::Payloads => chunks(answer, |chunk| {
                if chunk.segment == 0 && chunk.bytes.len() as u64 == chunk.total {
                    chunk.bytes.iter_mut().for_each(|byte| *byte ^= 1);
                    chunk.sha256 = ByteBuf::from(feed::sha256(&chunk.bytes));
                }
            }),
            Lie::Times => chunks(answer, |chunk| chunk.timestamp += 1),
            Lie::Hashes => cursor(chunks(answer, |chunk| chunk.hash[0] ^= 1), |cursor| cursor.hash[0] ^= 1),
        };
        candid::encode_one(lied).unwrap()
    }
}

type Answer = Result<ExportPage, ExportError>;

fn chunks(answer: Answer, change: impl FnMut(&mut ExportChunk)) -> Answer {
    answer.map(|mut page| {
        page.chunks.iter_mut().for_each(change);
        page
    })
}

fn cursor(answer: Answer, mut change: impl FnMut(&mut ExportCursor)) -> Answer {
    answer.map(|mut page| {
        page.cursor.iter_mut().for_each(&mut change);
        page
    })
}

/// What is a block's own.
type Identity = (u64, Vec<u8>);

fn identity(entry: &Entry) -> Identity {
    (entry.number, entry.hash.to_vec())
}

struct World<'a> {
    net: &'a Net,
    feeder: &'a Client<Embedded>,
    reader: &'a Client<Network>,
    way: Way,
    knows: Arc<Mutex<Knows>>,
    /// The chain with what was pruned of it.
    truth: BTreeMap<u64, Entry>,
    /// All blocks that ever were.
    ever: BTreeMap<Identity, Entry>,
    held: BTreeSet<Identity>,
    salt: u64,
}

impl<'a> World<'a> {
    fn append(&mut self, body: u16) {
        self.salt += 1;
        let (number, parent) = match self.truth.last_key_value() {
            Some((number, entry)) => (number + 1, entry.hash.as_slice().try_into().unwrap()),
            None => (FIRST, [9; 32]),
        };
        let hash = feed::sha256(&[&parent[..], &self.salt.to_le_bytes()].concat());
        let ids = (0..self.salt % 4).map(|at| feed::sha256(&[&hash[..], &at.to_le_bytes()].concat()));
        let index = feed::index_segment(ids.collect::<Vec<_>>().into_iter());
        let body = (0..body).map(|at| (u64::from(at) * 31 + self.salt) as u8).collect();
        let header = Header { number, hash, parent, timestamp: 1_700_000_000 + self.salt };
        let block: AppendBlock = feed::block(&header, [body, Vec::new(), index]);
        feed::send(self.feeder, &block).unwrap();
        let mut ledger = Ledger::default();
        ledger.record(&block);
        let entry = ledger.entries()[0].clone();
        self.ever.insert(identity(&entry), entry.clone());
        self.truth.insert(number, entry);
    }

    fn roll_back(&mut self, blocks: u64) {
        let Some(head) = self.truth.keys().next_back() else { return };
        let oldest = self.feeder.get_prune_status().wait().unwrap().oldest_kept_block.unwrap();
        let to = head.saturating_sub(blocks).max(oldest);
        self.feeder.roll_back_to(to).done().unwrap();
        self.truth.retain(|number, _| *number <= to);
    }

    fn origin(&self) -> Origin {
        Origin { canister: self.net.canister.to_string(), network: String::new(), payload: Payload::All }
    }

    fn open(&self) -> Engine<'a, Network> {
        let store = Store::open(&self.net.database(), &self.origin()).unwrap();
        Engine::open(self.reader, store, self.way.options(), Onward).unwrap()
    }

    fn index(&mut self, engine: &mut Engine<'a, Network>, steps: usize, lies: Vec<Lie>) {
        let lies: Vec<Lie> = lies.into_iter().filter(|lie| self.way.hears(lie)).chain([Lie::Truth]).collect();
        let (knows, mut at) = (self.knows.clone(), 0);
        knows.lock().unwrap().hashes = self.truth.values().map(|entry| (entry.number, entry.hash.clone())).collect();
        self.net.gateway.lie(Some(Box::new(move |method, truth| {
            if method != "export_blocks" {
                return truth;
            }
            at += 1;
            knows.lock().unwrap().tell(&lies[(at - 1) % lies.len()], truth)
        })));
        for _ in 0..steps {
            // Not even a run ends of it.
            match engine.step() {
                Ok(Event::CaughtUp | Event::Behind(_)) => break,
                Ok(_) => {}
                Err(error) => panic!("{:?}: a lie ends the run: {error:#}", self.way),
            }
        }
        self.net.gateway.lie(None);
        self.check();
    }

    /// No row is gone that is of the chain, and nothing is acknowledged that is not stored.
    fn check(&mut self) {
        let mut store = Store::open(&self.net.database(), &self.origin()).unwrap();
        let stored: BTreeSet<Identity> = (FIRST..FIRST + 200)
            .filter_map(|number| store.hash_of(number).unwrap().map(|hash| (number, hash)))
            .collect();
        for id in &stored {
            let entry = self.ever.get(id).unwrap_or_else(|| panic!("{:?}: there never was {id:?}", self.way));
            assert_eq!(store.count_same(std::slice::from_ref(entry)).unwrap(), 1, "{:?}: {id:?} is not it", self.way);
        }
        // Where blocks come by query a reorg is followed from further back than need be, and what the canister keeps comes again.
        let oldest = self.feeder.get_prune_status().wait().unwrap().oldest_kept_block.unwrap();
        let again = if self.way == Way::Replicated { u64::MAX } else { oldest };
        for entry in self.truth.range(..again).map(|(_, entry)| entry) {
            let id = identity(entry);
            assert!(stored.contains(&id) || !self.held.contains(&id), "{:?}: {id:?} is gone", self.way);
        }
        assert_eq!(store.held().unwrap().gap_blocks, 0, "{:?}", self.way);
        let bound = self.feeder.get_export_status().wait().unwrap().exporters[0].exported_before_block;
        for entry in self.truth.range(..bound).map(|(_, entry)| entry) {
            assert!(
                stored.contains(&identity(entry)),
                "{:?}: {} is acknowledged, and not stored",
                self.way,
                entry.number
            );
        }
        if self.way == Way::Reader {
            assert!(bound <= FIRST, "a reader acknowledges");
        }
        self.held = stored;
    }
}

fn play(way: Way, actions: Vec<Action>) {
    let net = Net::start();
    let (host, canister, principal) = (net.host.clone(), net.canister, net.principal);
    let feeder = Client::new(Embedded::new(host, canister, principal));
    let reader = net.client();
    feeder.register_exporter(&Exporter { name: "indexer".into(), principal }).done().unwrap();
    let policy = PrunePolicyArg { retain_blocks: Some(RETAINED), ..PrunePolicyArg::default() };
    feeder.set_prune_policy(&policy).done().unwrap();
    let mut world = World {
        net: &net,
        feeder: &feeder,
        reader: &reader,
        way,
        knows: Arc::default(),
        truth: BTreeMap::new(),
        ever: BTreeMap::new(),
        held: BTreeSet::new(),
        salt: 0,
    };
    world.append(100);
    let mut engine = world.open();
    for action in actions {
        match action {
            Action::Append(bodies) => bodies.into_iter().for_each(|body| world.append(body)),
            Action::RollBack(blocks) => world.roll_back(blocks),
            Action::Index { steps, lies } => world.index(&mut engine, steps, lies),
            Action::Reopen => engine = world.open(),
        }
        // So that the canister prunes what it may.
        feeder.prune_now(100).done().unwrap();
    }
    drop(engine);
    let mut last = world.open();
    last.catch_up().unwrap();
    world.check();
    assert_eq!(world.held.len(), world.truth.len(), "{way:?}: the whole chain is there at the end");
}

/// Histories: `PROPTEST_CASES`, else so many as take seconds.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_row_goes_and_nothing_is_acknowledged_on_a_lie(
        way in prop_oneof![2 => Just(Way::Replicated), 1 => Just(Way::Reader)],
        actions in actions(),
    ) {
        play(way, actions);
    }
}

/// Each lie once, the worst first: so that none is left to chance.
#[test]
fn each_lie_alone_changes_nothing() {
    let lies = [
        Lie::Pruned { first: 0, ancestor: Some(11) },
        Lie::Pruned { first: 0, ancestor: None },
        Lie::Reorged { ancestor: 3, own_hash: true },
        Lie::Reset,
        Lie::Corrupt { more: 0, head: false },
        Lie::Unknown,
        Lie::LeftOut,
        Lie::Payloads,
        Lie::Hashes,
        Lie::Old(0),
        Lie::Noise(b"DIDL".to_vec()),
        Lie::Bomb(0),
        Lie::Bomb(3),
    ];
    let index = |lies| Action::Index { steps: 30, lies };
    let mut actions = vec![Action::Append(vec![10; 6]), index(vec![])];
    for lie in lies {
        actions.extend([index(vec![lie.clone()]), Action::Append(vec![30, 4_000]), index(vec![lie])]);
    }
    play(Way::Replicated, actions.clone());
    play(Way::Reader, actions);
}

//! The indexer against a lying replica that signs its answers: random histories of the chain, of runs and of lies.

use crate::bombs::bombs;
use crate::net::Net;
use anyhow::Result;
use ic_coppice_cli::client::{Block, Client, Wait};
use ic_coppice_cli::feed;
use ic_coppice_cli::index::assemble::cursor_after;
use ic_coppice_cli::index::database::{Access, Database};
use ic_coppice_cli::index::engine::Engine;
use ic_coppice_cli::index::origin::{Origin, Payload};
use ic_coppice_cli::index::steps::{Event, Onward, Options};
use ic_coppice_cli::index::store::Store;
use ic_coppice_cli::index::tables::Tables;
use ic_coppice_cli::ledger::{Entry, Ledger};
use ic_coppice_cli::network::Network;
use ic_coppice_client::Embedded;
use ic_coppice_interface::{
    BlockHash, BlockHeader, ExportChunk, ExportCursor, ExportError, ExportPage, Exporter, HeaderPage, PrunePolicyArg,
    ReadError, TipCertificate,
};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The number of the chain's first block.
const FIRST: u64 = 500;
/// Blocks that the canister retains behind the head; it prunes older blocks once they are acknowledged.
const RETAINED: u64 = 4;

/// A lie of a replica. Numbers count blocks back from the head, except where noted.
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
    /// The next block is damaged, and this many after it.
    Corrupt {
        more: u64,
        head: bool,
    },
    Late,
    NothingNew,
    /// The first block of the page is left out.
    LeftOut,
    Bytes,
    Digests,
    Parents,
    Numbers(u64),
    Totals(u64),
    Cursor(u64),
    Rollbacks(u64),
    Head(Option<u64>),
    /// The payload is changed, with matching digests.
    Payloads,
    Times,
    Hashes,
    /// An earlier answer, by its number.
    Old(usize),
    Noise(Vec<u8>),
    /// A Candid bomb, by its number.
    Bomb(usize),
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

/// A step of a history.
#[derive(Clone, Debug)]
enum Action {
    /// Appends blocks with bodies of these lengths.
    Append(Vec<u16>),
    RollBack(u64),
    /// The indexer runs at most this many steps, while queries are answered with these lies in turn.
    Index {
        steps: usize,
        lies: Vec<Lie>,
    },
    /// The indexer starts anew with the same database.
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

/// The mode of the indexer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The default.
    Exporter,
    /// `--no-ack`.
    Reader,
}

impl Way {
    /// Returns options that permit every removal.
    fn options(self) -> Options {
        Options {
            page_bytes: 3_000,
            ack_every: (self == Self::Exporter).then_some(2),
            skip_damaged: true,
            accept_reset: true,
            accept_restore: true,
            keep_orphaned: 1_000,
            tables: Tables::default(),
        }
    }
}

/// The replica's knowledge, from which it forms lies.
#[derive(Default)]
struct Knows {
    hashes: BTreeMap<u64, BlockHash>,
    /// Earlier answers of each method.
    answers: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Knows {
    fn tell(&mut self, method: &str, lie: &Lie, truth: Vec<u8>) -> Vec<u8> {
        let answers = self.answers.entry(method.into()).or_default();
        answers.push(truth.clone());
        match lie {
            Lie::Truth => return truth,
            Lie::Noise(bytes) => return bytes.clone(),
            Lie::Bomb(at) if method == "export_blocks" => return bombs(&truth)[*at].clone(),
            Lie::Old(at) => return answers[at % answers.len()].clone(),
            _ => {}
        }
        match method {
            "get_block_headers" => headers(lie, &truth),
            "get_tip_certificate" => certificate(lie, &truth),
            _ => self.page(lie, &truth),
        }
    }

    fn page(&self, lie: &Lie, truth: &[u8]) -> Vec<u8> {
        let head = self.hashes.keys().next_back().copied().unwrap_or(FIRST);
        let answer: Result<ExportPage, ExportError> = candid::decode_one(truth).unwrap();
        let after = |number: u64| cursor_after(number, self.hashes.get(&number).map_or(&[7; 32], |hash| &hash[..]), 9);
        let next = answer.as_ref().ok().and_then(|page| Some(page.chunks.first()?.number)).unwrap_or(head + 1);
        let lied = match lie.clone() {
            Lie::Truth | Lie::Noise(_) | Lie::Bomb(_) | Lie::Old(_) => answer,
            Lie::Pruned { first, ancestor } => {
                let common_ancestor = ancestor.map(|ancestor| head.saturating_sub(ancestor));
                Err(ExportError::Pruned { first_available: head.saturating_sub(first), common_ancestor })
            }
            Lie::Reorged { ancestor, own_hash } => {
                let common_ancestor = head.saturating_sub(ancestor);
                let mut cursor = after(common_ancestor);
                if !own_hash {
                    cursor.hash = [8; 32].into();
                }
                Err(ExportError::Reorged { common_ancestor, cursor })
            }
            Lie::Reset => Err(ExportError::Reset { first_available: Some(3) }),
            Lie::Unknown => Err(ExportError::BadCursor { why: "no".into() }),
            Lie::Corrupt { more, head } => {
                let cursor = (!head).then(|| after(next + more));
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
            Lie::Parents => chunks(answer, |chunk| chunk.parent_hash = Some([9; 32].into())),
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
            Lie::Times => chunks(answer, |chunk| chunk.timestamp_secs += 1),
            Lie::Hashes => cursor(chunks(answer, |chunk| chunk.hash[0] ^= 1), |cursor| cursor.hash[0] ^= 1),
        };
        candid::encode_one(lied).unwrap()
    }
}

/// Returns headers as a replica forges them.
fn headers(lie: &Lie, truth: &[u8]) -> Vec<u8> {
    let answer: Result<HeaderPage, ReadError> = candid::decode_one(truth).unwrap();
    let each = |change: &dyn Fn(&mut BlockHeader)| {
        answer.clone().map(|mut page| {
            page.headers.iter_mut().for_each(change);
            page
        })
    };
    let lied = match *lie {
        Lie::Pruned { .. } | Lie::Reset => Err(ReadError::Pruned { first_available: FIRST + 100 }),
        Lie::Corrupt { .. } => Err(ReadError::Corrupt { why: "no".into() }),
        Lie::Late | Lie::Unknown => Err(ReadError::NotFound),
        Lie::NothingNew => Ok(HeaderPage { headers: Vec::new(), next: None }),
        Lie::LeftOut | Lie::Reorged { .. } => answer.clone().map(|mut page| {
            page.headers.drain(..page.headers.len().min(1));
            page
        }),
        Lie::Bytes | Lie::Cursor(_) => each(&|header| header.seal[0] ^= 1),
        Lie::Digests | Lie::Payloads => each(&|header| header.sha256.body[0] ^= 1),
        Lie::Parents => each(&|header| header.parent_hash = Some([9; 32].into())),
        Lie::Numbers(by) => each(&|header| header.number = header.number.saturating_add(by)),
        Lie::Totals(total) => each(&|header| header.lengths.body = total),
        Lie::Rollbacks(_) | Lie::Head(_) => each(&|header| header.parent_hash = None),
        Lie::Times => each(&|header| header.timestamp_secs += 1),
        Lie::Hashes => each(&|header| header.hash[0] ^= 1),
        Lie::Truth | Lie::Old(_) | Lie::Noise(_) | Lie::Bomb(_) => answer.clone(),
    };
    candid::encode_one(lied).unwrap()
}

/// Returns a certificate with a byte changed, or none: a replica cannot sign another one.
fn certificate(lie: &Lie, truth: &[u8]) -> Vec<u8> {
    let mut answer: Option<TipCertificate> = candid::decode_one(truth).unwrap();
    if let Some(TipCertificate { certificate, hash_tree }) = &mut answer {
        let of = |bytes: &mut ByteBuf, at: usize| {
            let at = at % bytes.len();
            bytes[at] ^= 1;
        };
        match lie {
            Lie::Bytes | Lie::Payloads => of(certificate, 1_000),
            Lie::Digests | Lie::Hashes => of(hash_tree, 60),
            Lie::Numbers(by) => of(hash_tree, *by as usize),
            Lie::Totals(by) | Lie::Cursor(by) | Lie::Rollbacks(by) => of(certificate, *by as usize),
            _ => answer = None,
        }
    }
    candid::encode_one(answer).unwrap()
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

/// A block's number and hash.
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
    /// The chain, with its pruned blocks.
    truth: BTreeMap<u64, Entry>,
    /// All blocks that ever existed.
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
        let body: Vec<u8> = (0..body).map(|at| (u64::from(at) * 31 + self.salt) as u8).collect();
        let block = Block::new(number, hash, parent, 1_700_000_000 + self.salt).body(body);
        let block = ids.fold(block, |block, id| block.transaction(id, None, &[])).seal().unwrap();
        self.feeder.send_block(&block).done().unwrap();
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
        let store = Store::open(Access::volatile(&self.net.database()), &self.origin()).unwrap();
        Engine::open(self.reader, store, self.way.options(), Onward).unwrap()
    }

    fn index(&mut self, engine: &mut Engine<'a, Network>, steps: usize, lies: Vec<Lie>) {
        let lies: Vec<Lie> = lies.into_iter().chain([Lie::Truth]).collect();
        let (knows, mut told) = (self.knows.clone(), BTreeMap::<String, usize>::new());
        knows.lock().unwrap().hashes = self.truth.values().map(|entry| (entry.number, entry.hash.clone())).collect();
        self.net.gateway.lie(Some(Box::new(move |method, truth| {
            if !["export_blocks", "get_block_headers", "get_tip_certificate"].contains(&method) {
                return truth;
            }
            let at = told.entry(method.into()).or_default();
            *at += 1;
            knows.lock().unwrap().tell(method, &lies[(*at - 1) % lies.len()], truth)
        })));
        for _ in 0..steps {
            match engine.step() {
                Ok(Event::CaughtUp) => break,
                Ok(_) => {}
                Err(error) if error.to_string().contains("missed its proved digest 10 times") => break,
                // An answer that is not Candid, or of another type, is not certified either.
                Err(error) => panic!("{:?}: a lie ended the run: {error:#}", self.way),
            }
        }
        self.net.gateway.lie(None);
        self.check();
    }

    /// Checks that no row of the chain is gone, and that every acknowledged block is stored.
    fn check(&mut self) {
        let mut store = Store::open(Access::volatile(&self.net.database()), &self.origin()).unwrap();
        let stored: BTreeSet<Identity> = (FIRST..FIRST + 200)
            .filter_map(|number| store.hash_of(number).unwrap().map(|hash| (number, hash)))
            .collect();
        for id in &stored {
            let entry = self.ever.get(id).unwrap_or_else(|| panic!("{:?}: {id:?} never existed", self.way));
            assert_eq!(store.count_same(std::slice::from_ref(entry)).unwrap(), 1, "{:?}: {id:?} differs", self.way);
        }
        for entry in self.truth.values() {
            let id = identity(entry);
            assert!(stored.contains(&id) || !self.held.contains(&id), "{:?}: {id:?} is gone", self.way);
        }
        assert_eq!(store.held().unwrap().gap_blocks, 0, "{:?}", self.way);
        let bound = self.feeder.get_export_status().wait().unwrap().exporters[0].exported_before_block;
        for entry in self.truth.range(..bound).map(|(_, entry)| entry) {
            assert!(
                stored.contains(&identity(entry)),
                "{:?}: {} is acknowledged, but not stored",
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
        // Lets the canister prune.
        feeder.prune_now(100).done().unwrap();
    }
    drop(engine);
    let mut last = world.open();
    while last.step().unwrap() != Event::CaughtUp {}
    world.check();
    assert_eq!(world.held.len(), world.truth.len(), "{way:?}: the whole chain is stored at the end");
}

/// The number of histories: `PROPTEST_CASES`, or a few that take seconds.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lies_remove_no_row_and_are_not_acknowledged_in_random_histories(
        way in prop_oneof![Just(Way::Exporter), Just(Way::Reader)],
        actions in actions(),
    ) {
        play(way, actions);
    }
}

/// Each lie once, the worst first, so that all of them are tested.
#[test]
fn each_single_lie_changes_nothing() {
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
    play(Way::Exporter, actions.clone());
    play(Way::Reader, actions);
}

/// Runs the command to its end, and returns its report.
fn command(net: &Net, args: &[&str]) -> serde_json::Value {
    let output = net.run(&[&["index", "--until-caught-up", "--database", &net.database()][..], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Another canister of the subnet has the same first blocks. Its genuine answers, in the place of the canister's, bring no row.
#[test]
fn answers_of_another_canister_are_not_stored() {
    let net = Net::start();
    let feeder = fed(&net, 6);
    let other = net.install_another();
    feed_on(&Client::new(Embedded::new(net.host.clone(), other, net.principal)), 0..6);
    let client = net.client();
    let origin = Origin { canister: net.canister.to_string(), network: String::new(), payload: Payload::All };
    let store = Store::open(Access::volatile(&net.database()), &origin).unwrap();
    let mut engine = Engine::open(&client, store, Way::Exporter.options(), Onward).unwrap();
    engine.catch_up().unwrap();
    for at in 6..9 {
        append_with_body(&feeder, at, 1);
        append_with_body(&Client::new(Embedded::new(net.host.clone(), other, net.principal)), at, 2);
    }
    let methods = ["get_tip_certificate", "get_block_headers", "export_blocks"];
    let (certificate, headers, page) =
        ("certificate", "headers do not lead to the certified head", "an answer of a replica does not hold");
    let mixed = [
        (&methods[..1], certificate),
        (&methods[1..2], headers),
        (&methods[..2], certificate),
        (&methods[..], certificate),
        (&methods[2..], page),
        // The headers are proved by now.
        (&methods[1..], page),
    ];
    for (methods, named) in mixed {
        net.gateway.answer_from(other, methods);
        let notes: Vec<String> = (0..3).flat_map(|_| engine.catch_up().unwrap()).collect();
        assert!(notes.iter().any(|note| note.contains(named)), "{methods:?}: {notes:?}");
        assert_eq!(engine.tip(), Some(FIRST + 5), "{methods:?}");
        let bound = feeder.get_export_status().wait().unwrap().exporters[0].exported_before_block;
        assert_eq!(bound, FIRST + 6, "{methods:?}");
    }
    net.gateway.answer_from(other, &[]);
    while engine.tip() < Some(FIRST + 8) {
        engine.step().unwrap();
    }
    drop(engine);
    assert_eq!(command(&net, &[])["held"]["blocks"], 9);
}

/// Feeds a canister with `blocks` blocks, and returns a client that is a registered exporter.
fn fed(net: &Net, blocks: u16) -> Client<Embedded> {
    let feeder = Client::new(Embedded::new(net.host.clone(), net.canister, net.principal));
    feeder.register_exporter(&Exporter { name: "indexer".into(), principal: net.principal }).done().unwrap();
    feed_on(&feeder, 0..blocks);
    feeder
}

fn feed_on(feeder: &Client<Embedded>, blocks: std::ops::Range<u16>) {
    for at in blocks {
        append_with_body(feeder, at, at as u8);
    }
}

/// Appends a block whose hash does not depend on its body.
fn append_with_body(feeder: &Client<Embedded>, at: u16, byte: u8) {
    let hash = |at: u16| feed::sha256(&at.to_le_bytes());
    let (number, parent) = (FIRST + u64::from(at), hash(at.wrapping_sub(1)));
    let block = Block::new(number, hash(at), parent, 1_700_000_000 + u64::from(at)).body([byte; 3_000]);
    feeder.send_block(&block.seal().unwrap()).done().unwrap();
}

/// Makes the replica apply the same lie to every page.
fn lie_always(net: &Net, lie: impl Fn(Answer) -> Answer + Send + 'static) {
    net.gateway.lie(Some(Box::new(move |method, truth| match method {
        "export_blocks" => candid::encode_one(lie(candid::decode_one(&truth).unwrap())).unwrap(),
        _ => truth,
    })));
}

/// Payloads and digests that fit together do not fit the certified headers, so the run ends without them.
#[test]
fn forged_payloads_are_not_stored() {
    let net = Net::start();
    let feeder = fed(&net, 4);
    command(&net, &["--no-ack"]);
    feed_on(&feeder, 4..40);
    lie_always(&net, |answer| {
        chunks(answer, |chunk| {
            if chunk.segment == 0 {
                chunk.bytes.iter_mut().for_each(|byte| *byte ^= 1);
                chunk.sha256 = ByteBuf::from(feed::sha256(&chunk.bytes));
            }
        })
    });
    let index = ["index", "--until-caught-up", "--database", &net.database(), "--max-wait-secs", "1"];
    let refused = net.run(&index);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("an answer of a replica does not hold: block 504"), "{text}");
    net.gateway.lie(None);
    let written = command(&net, &[]);
    assert_eq!((&written["blocks"], &written["held"]["blocks"]), (&36.into(), &40.into()), "{written}");
    assert_eq!(written["acknowledged_before"], FIRST + 40);
    let mut database = Database::open(Access::volatile(&net.database())).unwrap();
    let sql = "SELECT count(*) FROM blocks WHERE body = $1 AND number = $2";
    for at in 0..40u8 {
        let body = vec![at; 3_000];
        let values = [body.as_slice().into(), (FIRST as i64 + i64::from(at)).into()];
        let row = database.transaction(|tx| tx.one(sql, &values)).unwrap().unwrap();
        assert_eq!(row.get::<i64>(0).unwrap(), 1, "block {at}");
    }
}

/// A replica that shows nothing new does not hide blocks, because the subnet certifies the head.
#[test]
fn replica_without_news_is_seen_at_once() {
    let net = Net::start();
    fed(&net, 50);
    lie_always(&net, |answer| answer.map(|page| ExportPage { chunks: Vec::new(), ..page }));
    let origin = Origin { canister: net.canister.to_string(), network: String::new(), payload: Payload::All };
    let client = net.client();
    let store = Store::open(Access::volatile(&net.database()), &origin).unwrap();
    let mut engine = Engine::open(&client, store, Way::Reader.options(), Onward).unwrap();
    let notes = engine.catch_up().unwrap();
    assert_eq!(notes, [format!("a replica has not reached block {FIRST}")]);
    assert_eq!((engine.tip(), engine.figures().lag), (None, Some(50)));
    net.gateway.lie(None);
    engine.catch_up().unwrap();
    assert_eq!((engine.tip(), engine.figures().lag), (Some(FIRST + 49), Some(0)));
}

//! Arguments that are crafted to be expensive: for each method of the Candid file, and for each list in its argument. Each is refused or
//! handled like any other argument; none takes a billion instructions, and a refused one changes nothing.

use candid::TypeEnv;
use candid::types::{Type, TypeInner};
use candid_parser::utils::CandidSource;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::proxy::Proxy;
use ic_coppice_host::{Checkpoint, Host, Kind, Outcome};
use ic_coppice_interface::methods::{Method, TABLE};
use ic_coppice_interface::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Instructions that no argument may take.
const MOST: u64 = 1_000_000_000;
/// Bytes of the values: a message has 2 MiB with its envelope.
const BUDGET: usize = 2_000_000;
const NULL: i64 = -1;
const RESERVED: i64 = -16;

/// The attack on an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// As many elements as fit, each as small as possible.
    Many,
    /// This many elements without a byte, each a `null`.
    Nulls(u64),
    /// This many elements without a byte, each a `reserved`.
    Reserved(u64),
    /// This many elements without a byte, each an empty record.
    Empty(u64),
    /// As many elements as fit, each with this many unknown fields.
    Unknown(u64),
    /// A list of lists of lists, this deep.
    Deep(u64),
}

/// The list of an argument that is attacked, counted from the front, and the alternative chosen for variants.
#[derive(Clone, Copy, Debug)]
struct Target {
    list: usize,
    variant: usize,
    attack: Attack,
}

fn unsigned(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn signed(mut n: i64, out: &mut Vec<u8>) {
    loop {
        let byte = n as u8 & 0x7F;
        n >>= 7;
        if (n == 0 && byte & 0x40 == 0) || (n == -1 && byte & 0x40 != 0) {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

/// A message on the wire: its table of types.
#[derive(Default)]
struct Wire {
    table: Vec<Vec<u8>>,
    /// Lists encountered so far.
    lists: usize,
}

impl Wire {
    fn define(&mut self, opcode: u8, parts: &[u8]) -> i64 {
        self.table.push([&[opcode], parts].concat());
        self.table.len() as i64 - 1
    }

    fn of(&mut self, opcode: u8, inner: i64) -> i64 {
        let mut bytes = Vec::new();
        signed(inner, &mut bytes);
        self.define(opcode, &bytes)
    }

    fn fields(&mut self, opcode: u8, fields: &BTreeMap<u32, i64>) -> i64 {
        let mut bytes = Vec::new();
        unsigned(fields.len() as u64, &mut bytes);
        for (&id, &of) in fields {
            unsigned(u64::from(id), &mut bytes);
            signed(of, &mut bytes);
        }
        self.define(opcode, &bytes)
    }

    fn message(self, arguments: &[(i64, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = b"DIDL".to_vec();
        unsigned(self.table.len() as u64, &mut bytes);
        self.table.iter().for_each(|entry| bytes.extend(entry));
        unsigned(arguments.len() as u64, &mut bytes);
        arguments.iter().for_each(|(of, _)| signed(*of, &mut bytes));
        arguments.iter().for_each(|(_, value)| bytes.extend(value));
        bytes
    }

    /// The type and the smallest value that a method expects, except for the attacked list.
    fn value(&mut self, env: &TypeEnv, of: &Type, target: &Target, unknown: u64) -> (i64, Vec<u8>) {
        let of = env.trace_type(of).expect("a type of the file");
        let zeros = |opcode: i64, bytes: usize| (opcode, vec![0; bytes]);
        match of.as_ref() {
            TypeInner::Null => zeros(NULL, 0),
            TypeInner::Bool => zeros(-2, 1),
            TypeInner::Nat => zeros(-3, 1),
            TypeInner::Nat8 => zeros(-5, 1),
            TypeInner::Nat16 => zeros(-6, 2),
            TypeInner::Nat32 => zeros(-7, 4),
            TypeInner::Nat64 => zeros(-8, 8),
            TypeInner::Text => zeros(-15, 1),
            TypeInner::Principal => (-24, vec![1, 0]),
            TypeInner::Opt(inner) => {
                let (inner, value) = self.value(env, inner, target, 0);
                (self.of(0x6E, inner), [&[1], value.as_slice()].concat())
            }
            TypeInner::Vec(inner) => {
                let here = self.lists == target.list;
                self.lists += 1;
                if here { self.attacked(env, inner, target) } else { self.empty(env, inner, target) }
            }
            TypeInner::Record(parts) => {
                let mut fields = BTreeMap::new();
                let mut values = BTreeMap::new();
                for part in parts {
                    let (of, value) = self.value(env, &part.ty, target, 0);
                    fields.insert(part.id.get_id(), of);
                    values.insert(part.id.get_id(), value);
                }
                for id in 1..=unknown as u32 {
                    fields.entry(id).or_insert(NULL);
                }
                (self.fields(0x6C, &fields), values.into_values().collect::<Vec<_>>().concat())
            }
            TypeInner::Variant(parts) => {
                let part = &parts[target.variant % parts.len()];
                let (of, value) = self.value(env, &part.ty, target, 0);
                let fields = BTreeMap::from([(part.id.get_id(), of)]);
                (self.fields(0x6B, &fields), [&[0], value.as_slice()].concat())
            }
            other => panic!("{other:?} is not a type of the file"),
        }
    }

    fn empty(&mut self, env: &TypeEnv, inner: &Type, target: &Target) -> (i64, Vec<u8>) {
        let (inner, _) = self.value(env, inner, target, 0);
        (self.of(0x6D, inner), vec![0])
    }

    fn attacked(&mut self, env: &TypeEnv, inner: &Type, target: &Target) -> (i64, Vec<u8>) {
        let (mut bytes, mut elements) = (Vec::new(), Vec::new());
        let (inner, count) = match target.attack {
            Attack::Nulls(count) => (NULL, count),
            Attack::Reserved(count) => (RESERVED, count),
            Attack::Empty(count) => (self.fields(0x6C, &BTreeMap::new()), count),
            Attack::Deep(depth) => {
                let leaf = self.of(0x6D, NULL);
                let inner = (0..depth).fold(leaf, |inner, _| self.of(0x6D, inner));
                elements = vec![1; depth as usize];
                elements.push(0);
                (inner, 1)
            }
            Attack::Many | Attack::Unknown(_) => {
                let unknown = if let Attack::Unknown(unknown) = target.attack { unknown } else { 0 };
                let (inner, value) = self.value(env, inner, target, unknown);
                let count = BUDGET / value.len().max(1);
                elements = value.repeat(count);
                (inner, count as u64)
            }
        };
        unsigned(count, &mut bytes);
        bytes.extend(elements);
        (self.of(0x6D, inner), bytes)
    }
}

/// Arguments that attack a method beside the argument that it expects.
fn general(env: &TypeEnv, types: &[Type]) -> Vec<(String, Vec<u8>)> {
    let none = Target { list: usize::MAX, variant: 0, attack: Attack::Many };
    let honest = |wire: &mut Wire, unknown: u64| -> Vec<(i64, Vec<u8>)> {
        types.iter().map(|of| wire.value(env, of, &none, unknown)).collect()
    };
    let mut all = Vec::new();
    let mut add = |what: &str, wire: Wire, arguments: &[(i64, Vec<u8>)]| {
        all.push((what.to_string(), wire.message(arguments)));
    };
    for count in [1 << 20, 1 << 40, u64::MAX >> 1] {
        for of in [NULL, RESERVED] {
            let mut wire = Wire::default();
            let mut arguments = honest(&mut wire, 0);
            let mut bytes = Vec::new();
            unsigned(count, &mut bytes);
            arguments.push((wire.of(0x6D, of), bytes));
            add(&format!("an argument more, {count} of nothing"), wire, &arguments);
        }
    }
    let mut wire = Wire::default();
    let arguments = honest(&mut wire, 15_000);
    add("15,000 unknown fields", wire, &arguments);
    let mut wire = Wire::default();
    let mut arguments = honest(&mut wire, 0);
    arguments.extend((0..60_000).map(|_| (NULL, Vec::new())));
    add("60,000 arguments more", wire, &arguments);
    // A type that is its own option, nested so deep that it fills the message; and a record that contains itself without end.
    for first in [true, false] {
        let mut wire = Wire::default();
        let mut arguments = if first { Vec::new() } else { honest(&mut wire, 0) };
        let itself = wire.table.len() as i64;
        let own = wire.of(0x6E, itself);
        let mut deep = vec![1; BUDGET];
        deep.push(0);
        arguments.push((own, deep));
        add("an option of itself", wire, &arguments);
        let mut wire = Wire::default();
        let mut arguments = if first { Vec::new() } else { honest(&mut wire, 0) };
        let itself = wire.table.len() as i64;
        let own = wire.fields(0x6C, &BTreeMap::from([(0, itself)]));
        arguments.push((own, Vec::new()));
        add("a record of itself", wire, &arguments);
    }
    all
}

/// Arguments that attack any method, and have nothing of the argument that it expects.
fn anywhere() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    // As many types as the header may have, each of which refers to the next one, or to all others.
    for (count, fields) in [(9_999, 1), (20_000, 1), (200, 100), (1_000_000, 1)] {
        let mut wire = Wire::default();
        for entry in 0..count {
            let next = |field: i64| (entry + 1 + field) % count;
            let fields = (0..fields).map(|field| (field as u32, next(field))).collect();
            wire.fields(0x6C, &fields);
        }
        all.push((format!("{count} types of {fields} fields"), wire.message(&[(0, Vec::new())])));
    }
    all.push(("no Candid".into(), b"DIDX\0\0".to_vec()));
    all.push(("two million types".into(), b"DIDL\xff\xff\x7f".to_vec()));
    all.push(("types without end".into(), [&b"DIDL"[..], &[0xFF; 1_000_000]].concat()));
    all.push(("zeros".into(), vec![0; BUDGET]));
    all
}

/// Arguments that attack the lists in a method's argument.
fn by_list(env: &TypeEnv, types: &[Type]) -> Vec<(String, Vec<u8>)> {
    let attacks = [
        Attack::Many,
        Attack::Nulls(1 << 20),
        Attack::Nulls(u64::MAX >> 1),
        Attack::Reserved(u64::MAX >> 1),
        Attack::Empty(1 << 20),
        Attack::Empty(u64::MAX >> 1),
        Attack::Unknown(500),
        Attack::Deep(9_000),
    ];
    let mut all = Vec::new();
    for variant in 0..4 {
        let build = |list: usize, attack: Attack| {
            let mut wire = Wire::default();
            let target = Target { list, variant, attack };
            let arguments: Vec<_> = types.iter().map(|of| wire.value(env, of, &target, 0)).collect();
            (wire.lists, wire.message(&arguments))
        };
        let lists = build(usize::MAX, Attack::Many).0;
        for list in 0..lists {
            for attack in attacks {
                let what = format!("list {list}, alternative {variant}: {attack:?}");
                all.push((what, build(list, attack).1));
            }
        }
    }
    all.sort_by(|a, b| a.1.cmp(&b.1));
    all.dedup_by(|a, b| a.1 == b.1);
    all
}

/// A canister with some data of each kind.
fn busy() -> (Coppice, Arc<Host>, Proxy) {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.append_plain(0..5, 1_000);
    coppice.register(Who::Exporter);
    // Long arguments come from a canister, whose calls do not pass the ingress filter.
    let proxy = Proxy::new(coppice.ic.as_ref(), Who::Controller.principal());
    let exporter = Exporter { name: "proxy".into(), principal: proxy.principal() };
    coppice.operator().register_exporter(&exporter).answer().unwrap();
    for role in [Role::Producer, Role::Alert, Role::BlobWorker, Role::Operator, Role::Admin] {
        let grant = Grant { principal: proxy.principal(), role };
        coppice.operator().grant_role(&grant).answer().unwrap();
    }
    (coppice, host, proxy)
}

fn memory(coppice: &Coppice, host: &Host) -> [u8; 32] {
    Sha256::digest(host.get_stable_memory(coppice.id)).into()
}

struct World {
    coppice: Coppice,
    host: Arc<Host>,
    proxy: Proxy,
    clean: Checkpoint,
    worst: (u64, String),
}

impl World {
    /// Sends an argument, and returns whether it was accepted.
    fn send(&mut self, method: &str, query: bool, what: &str, argument: &[u8]) -> bool {
        self.host.take_executions();
        let ic = &self.coppice.ic;
        let answer = match query {
            true => ic.query(self.coppice.id, Who::Controller.principal(), method, argument.to_vec()),
            false => self.proxy.update(ic.as_ref(), self.coppice.id, method, argument),
        };
        let executions = self.host.take_executions();
        for execution in
            executions.iter().filter(|execution| execution.method == method && execution.kind != Kind::InspectMessage)
        {
            let cost = execution.instructions;
            if cost > self.worst.0 {
                self.worst = (cost, format!("{method}: {what}"));
            }
            assert!(cost <= MOST, "{method}, {what}: {cost} instructions, {answer:?}");
            if let Outcome::Trapped { message, .. } = &execution.outcome {
                assert!(message.contains("cannot be decoded"), "{method}, {what}: {message}");
            }
        }
        answer.is_ok()
    }
}

#[test]
fn no_argument_costs_a_billion_instructions_and_refused_ones_change_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../candid/coppice.did");
    let (env, actor) = CandidSource::File(&path).load().expect("the Candid file parses");
    let actor = actor.expect("it has a service");
    let (coppice, host, proxy) = busy();
    let clean = host.checkpoint();
    let before = memory(&coppice, &host);
    let mut world = World { coppice, host, proxy, clean, worst: (0, String::new()) };
    let (mut sent, mut taken) = (0, 0);
    let anywhere = anywhere();
    for &Method { name: method, is_query, .. } in TABLE {
        let types = env.get_method(&actor, method).expect("it is in the file").args.clone();
        if types.is_empty() {
            // The method takes no argument, so nothing is decoded.
            continue;
        }
        world.worst = (0, String::new());
        let of_method = [general(&env, &types), by_list(&env, &types)].concat();
        for (what, argument) in anywhere.iter().chain(&of_method) {
            sent += 1;
            let ways: &[bool] = if is_query { &[true, false] } else { &[false] };
            for &query in ways {
                if world.send(method, query, what, argument) && !query {
                    // The argument was accepted like any other; this test does not check its effect.
                    taken += 1;
                    world.host.restore(&world.clean);
                }
            }
        }
        println!("{method}: {} instructions: {}", world.worst.0, world.worst.1);
    }
    println!("{sent} arguments, {taken} of them taken");
    assert!(sent > 1_500 && taken > 50, "{sent}, {taken}");
    assert_eq!(memory(&world.coppice, &world.host), before);
}

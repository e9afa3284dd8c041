//! Rules of the interface's file. `tests/source` has the rules of words.

use candid_parser::syntax::{Dec, IDLProg, IDLType, PrimType, TypeField};
use coppice_did::print::camel;
use std::collections::{BTreeMap, BTreeSet};

/// Words that begin a comment about something that stands elsewhere.
const LEANING: &[&str] = &[
    "They",
    "It",
    "Its",
    "Their",
    "Them",
    "See",
    "…",
    "This",
    "These",
    "How many.",
    "By so",
    "So many",
    "The same",
    "One of them",
    "Another",
    "There.",
];
/// Phrases of a comment on a field whose 0 stands for an absent value. In settings 0 switches a rule off.
const ZERO: &[&str] = &["0: none", "0: not", "0: never", "0 where none", "0 before", "0 for others", "0 means none"];
/// Types of metrics that the pruner of UTXO records shares with others.
const SHARED: &[&str] = &["Metric", "MetricLabel"];

/// Ends of the names of times and durations, in whole words. Rates, such as `max_ops_per_tick`, and `retain_days`
/// of a source document end with other words; heights have 32 bits.
const TIMES: &[&str] = &[
    "after",
    "age",
    "at",
    "date",
    "deadline",
    "delay",
    "duration",
    "ended",
    "expires",
    "expiry",
    "hours",
    "interval",
    "lag",
    "micros",
    "millis",
    "minutes",
    "ms",
    "nanos",
    "nanoseconds",
    "next_tick",
    "period",
    "sec",
    "seconds",
    "since",
    "started",
    "time",
    "timeout",
    "timestamp",
    "ttl",
    "until",
    "wait",
    "when",
];
/// Beginnings of comments on times and durations.
const TIME_BEGINNINGS: &[&str] =
    &["Seconds ", "The seconds ", "The moment ", "The time ", "Nanoseconds ", "Milliseconds "];
/// Phrases of comments on times.
const TIME_PHRASES: &[&str] = &["Unix seconds", "Unix nanoseconds", "Unix milliseconds", "Unix time"];
/// Ends of the names of times and durations with their unit.
const UNITS: &[&str] = &["_secs", "_ns"];

/// Name of the service's type.
const SERVICE: &str = "Coppice";

/// Fields whose names are words of Candid.
const QUOTED: &[&str] = &["principal"];

/// Comments without the lines that begin a part.
fn said(docs: &[String]) -> String {
    docs.iter()
        .filter(|line| !line.contains("===="))
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .into()
}

/// Returns the methods, each with its comment.
pub fn methods(text: &str) -> BTreeMap<String, String> {
    let (_, service) = parse(text);
    service.into_iter().map(|(name, docs, _)| (name, docs)).collect()
}

type Methods = Vec<(String, String, IDLType)>;

fn parse(text: &str) -> (BTreeMap<String, (String, IDLType)>, Methods) {
    let program: IDLProg = text.parse().unwrap();
    let types = program.decs.into_iter().map(|dec| match dec {
        Dec::TypD(of) => (of.id, (said(&of.docs), of.typ)),
        other => panic!("no import: {other:?}"),
    });
    let mut types: BTreeMap<_, _> = types.collect();
    let (_, service) = types.remove(SERVICE).expect("the service has a type");
    let IDLType::ServT(methods) = service else { panic!("{SERVICE} is a service") };
    (types, methods.into_iter().map(|of| (of.id, said(&of.docs), of.typ)).collect())
}

/// Returns violations of the rules, one sentence each.
pub fn findings(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (types, methods) = parse(text);
    for (name, (docs, of)) in &types {
        comment(name, docs, &mut found);
        if name.rsplit_once('_').is_some_and(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit())) {
            found.push(format!("{name} is numbered"));
        }
        shape(name, of, &mut found);
    }
    for (name, docs, of) in &methods {
        comment(name, docs, &mut found);
        let IDLType::FuncT(of) = of else { panic!("{name} is a method") };
        if of.args.iter().any(|arg| arg.name.is_none()) {
            found.push(format!("an argument of {name} has no name"));
        }
        for arg in &of.args {
            unit(name, arg.name.as_deref().unwrap_or_default(), &arg.typ, "", &mut found);
        }
    }
    // The parser drops the comment before a name in quotes.
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for two in lines.windows(2).filter(|two| two[1].starts_with('"') && !two[0].starts_with("//")) {
        found.push(format!("{} has no comment", two[1]));
    }
    let methods: BTreeSet<String> = methods.iter().map(|(name, ..)| camel(name)).collect();
    names(&parts(text), &methods, &mut found);
    found
}

fn comment(of: &str, docs: &str, found: &mut Vec<String>) {
    if docs.is_empty() {
        found.push(format!("{of} has no comment"));
    }
    let leans = |with: &&&str| docs.strip_prefix(**with).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    if let Some(with) = LEANING.iter().find(leans) {
        found.push(format!("the comment on {of} does not stand alone: it begins with {with}"));
    }
    if docs.contains("in the same order") {
        found.push(format!("{of} is a parallel list: a record an item says the same"));
    }
    let settings = ["Settings", "Policy", "Config"].iter().any(|word| of.contains(word));
    if ZERO.iter().any(|zero| docs.contains(zero)) && !settings {
        found.push(format!("{of} says none by 0, and not by opt"));
    }
}

fn shape(of: &str, typ: &IDLType, found: &mut Vec<String>) {
    // HTTP headers are pairs without names.
    if matches!(typ, IDLType::RecordT(pair) if of == "headers" && pair.len() == 2) {
        return;
    }
    let mut fields = |fields: &[TypeField]| {
        for TypeField { label, typ, docs } in fields {
            let candid::types::Label::Named(name) = label else {
                found.push(format!("{of} has a field without a name"));
                continue;
            };
            // The comment on a field in quotes is checked line by line.
            let docs = if QUOTED.contains(&name.as_str()) { "Quoted." } else { &said(docs) };
            // The method's comment describes `Ok` and `Err`.
            if !(of.ends_with("Result") && ["Ok", "Err"].contains(&name.as_str())) {
                comment(&format!("{of}.{name}"), docs, found);
            }
            unit(of, name, typ, docs, found);
            shape(name, typ, found);
        }
    };
    match typ {
        IDLType::RecordT(inner) | IDLType::VariantT(inner) => fields(inner),
        IDLType::OptT(inner) | IDLType::VecT(inner) => shape(of, inner, found),
        _ => {}
    }
}

/// Checks that a number which is a time or a duration, by its name or its comment, ends with its unit. The byte `at` which something lies is
/// no time.
fn unit(of: &str, name: &str, typ: &IDLType, docs: &str, found: &mut Vec<String>) {
    let (is_number, is_long) = number(typ);
    let is_named =
        TIMES.iter().any(|time| name.strip_suffix(time).is_some_and(|rest| rest.is_empty() || rest.ends_with('_')));
    let is_described = TIME_BEGINNINGS.iter().any(|words| docs.starts_with(words))
        || TIME_PHRASES.iter().any(|words| docs.contains(words));
    let is_byte = name == "at" && docs.starts_with("The byte ");
    let has_unit = is_byte || UNITS.iter().any(|unit| name.ends_with(unit));
    if !has_unit && (is_long && is_named || is_number && is_described) {
        found.push(format!("{of}.{name} is a time without its unit: _secs or _ns"));
    }
}

/// Returns whether a type is a number, or an option or a list of numbers, and whether the number has 64 bits or more.
fn number(typ: &IDLType) -> (bool, bool) {
    match typ {
        IDLType::OptT(inner) | IDLType::VecT(inner) => number(inner),
        IDLType::PrimT(PrimType::Nat64 | PrimType::Int64 | PrimType::Nat | PrimType::Int | PrimType::Float64) => {
            (true, true)
        }
        IDLType::PrimT(PrimType::Nat32 | PrimType::Int32 | PrimType::Nat16 | PrimType::Int16 | PrimType::Float32) => {
            (true, false)
        }
        _ => (false, false),
    }
}

/// Returns each type with the part of the file that contains it, which the parser of Candid drops.
fn parts(text: &str) -> Vec<(String, String)> {
    let (mut part, mut types) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("// ==== ") {
            part = title.to_string();
        } else if let Some(rest) = line.strip_prefix("type ") {
            let (name, _) = rest.split_once(' ').expect("a type has a definition");
            types.push((name.to_string(), part.clone()));
        }
    }
    types
}

/// Checks that types of two parts do not differ by a letter, and that names of the UTXO pruner begin with `Utxo`.
fn names(types: &[(String, String)], methods: &BTreeSet<String>, found: &mut Vec<String>) {
    for (at, (one, part)) in types.iter().enumerate() {
        for (other, elsewhere) in &types[at + 1..] {
            if part != elsewhere && differ_by_a_letter(one, other) {
                found.push(format!("{one} of {part} differs by a letter from {other} of {elsewhere}"));
            }
        }
        let is_answer = one.strip_suffix("Result").is_some_and(|method| methods.contains(method));
        let own = one.starts_with("Utxo") || is_answer || SHARED.contains(&one.as_str());
        if part.starts_with("Pruning of UTXO records") && !own {
            found.push(format!("{one} does not begin with Utxo"));
        }
    }
}

/// Returns whether one name has a letter more or less, or one different letter.
fn differ_by_a_letter(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let same = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    match long.len() - short.len() {
        0 => short.as_bytes()[same..].get(1..) == long.as_bytes()[same..].get(1..) && short != long,
        1 => short.as_bytes()[same..] == long.as_bytes()[same + 1..],
        _ => false,
    }
}

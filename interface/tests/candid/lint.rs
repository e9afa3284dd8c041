//! The rules of the interface's file.

use candid_parser::syntax::{Dec, IDLProg, IDLType, TypeField};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A comment that begins so is about something that stands elsewhere.
const LEANING: &[&str] = &[
    "They",
    "It",
    "Its",
    "Their",
    "Them",
    "See",
    "Of",
    "What.",
    "Which.",
    "Who.",
    "Which",
    "Who",
    "…",
    "That",
    "Those",
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
/// A comment that says so has 0 for what is not there. Settings say what 0 switches off.
const ZERO: &[&str] = &["0: none", "0: not", "0: never", "0 where none", "0 before", "0 for others", "0 means none"];
/// Types of figures that the pruner of UTXO records shares with others.
const SHARED: &[&str] = &["Metric", "MetricLabel"];

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

/// `append_block` is `AppendBlock`.
fn camel(method: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    method.split('_').map(word).collect()
}

/// The methods, and what is said of each.
pub fn methods(text: &str) -> BTreeMap<String, String> {
    let (_, service) = parse(text);
    service.into_iter().map(|(name, docs, _)| (name, docs)).collect()
}

type Methods = Vec<(String, String, IDLType)>;

fn parse(text: &str) -> (BTreeMap<String, (String, IDLType)>, Methods) {
    let program: IDLProg = text.parse().unwrap();
    let types = program.decs.into_iter().map(|dec| match dec {
        Dec::TypD(of) => (of.id, (said(&of.docs), of.typ)),
        other => panic!("the interface stands in one file: {other:?}"),
    });
    let types = types.collect();
    let IDLType::ClassT(_, service) = program.actor.expect("there is a service").typ else {
        panic!("it has an argument")
    };
    let IDLType::ServT(methods) = *service else { panic!("it is a service") };
    (types, methods.into_iter().map(|of| (of.id, said(&of.docs), of.typ)).collect())
}

/// What is said of each type, and of each of its fields (`Type.field`, `Type.Variant.field`).
pub fn types(text: &str) -> BTreeMap<String, String> {
    fn of(name: String, docs: &[String], typ: &IDLType, found: &mut BTreeMap<String, String>) {
        if let IDLType::RecordT(fields) | IDLType::VariantT(fields) = typ {
            for field in fields {
                // The parser forgets the comment before a name in quotes.
                if let candid::types::Label::Named(label) = &field.label
                    && !QUOTED.contains(&label.as_str())
                {
                    of(format!("{name}.{label}"), &field.docs, &field.typ, found);
                }
            }
        }
        found.insert(name, said(docs));
    }
    let (mut found, (types, _)) = (BTreeMap::new(), parse(text));
    for (name, (docs, typ)) in types {
        of(name, &[docs], &typ, &mut found);
    }
    found
}

/// What is not as it should be, a sentence each.
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
        method(name, of, &types, &mut found);
    }
    // The parser forgets the comment before a name in quotes.
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for two in lines.windows(2).filter(|two| two[1].starts_with('"') && !two[0].starts_with("//")) {
        found.push(format!("{} has no comment", two[1]));
    }
    let parts = Parts::of(text);
    parts.order(&mut found);
    parts.names(&methods.iter().map(|(name, ..)| camel(name)).collect(), &mut found);
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

/// Records whose shape is not the project's, but the protocol's between gateways and canisters.
const OF_OTHERS: [&str; 1] = ["HttpHeader"];

fn shape(of: &str, typ: &IDLType, found: &mut Vec<String>) {
    if OF_OTHERS.contains(&of) {
        return;
    }
    let mut fields = |fields: &[TypeField]| {
        for TypeField { label, typ, docs } in fields {
            let candid::types::Label::Named(name) = label else {
                found.push(format!("{of} has a field without a name"));
                continue;
            };
            // One in quotes: its comment is looked for line by line.
            let docs = if QUOTED.contains(&name.as_str()) { "Quoted." } else { &said(docs) };
            let name = format!("{of}.{name}");
            comment(&name, docs, found);
            shape(&name, typ, found);
        }
    };
    match typ {
        IDLType::RecordT(of) | IDLType::VariantT(of) => fields(of),
        IDLType::OptT(of) | IDLType::VecT(of) => shape("", of, found),
        _ => {}
    }
}

fn method(name: &str, typ: &IDLType, types: &BTreeMap<String, (String, IDLType)>, found: &mut Vec<String>) {
    let IDLType::FuncT(typ) = typ else { panic!("{name} is a method") };
    if typ.args.iter().any(|arg| arg.name.is_none()) {
        found.push(format!("an argument of {name} has no name"));
    }
    let has = |fields: &[TypeField], names: &[&str]| {
        names.iter().all(|name| fields.iter().any(|field| field.label.to_string() == **name))
    };
    let mut named = |typ: &IDLType, suffix: &str| match typ {
        IDLType::VarT(of) if *of == camel(name) + suffix => {}
        other => found.push(format!("{other:?} is not named after its method, {name}")),
    };
    for answer in &typ.rets {
        let typ = match &answer.typ {
            IDLType::VarT(of) => &types[of].1,
            other => other,
        };
        match typ {
            IDLType::VariantT(cases) if has(cases, &["Ok", "Err"]) => named(&answer.typ, "Result"),
            IDLType::RecordT(fields) if has(fields, &["results", "remaining"]) => {
                named(&answer.typ, "BatchResult");
                for field in fields.iter().filter(|field| field.label.to_string() == "results") {
                    let IDLType::VecT(item) = &field.typ else { panic!("results are a list") };
                    named(item, "Result");
                }
            }
            _ => {}
        }
    }
}

/// The file's parts, in its own order, which its parser forgets.
struct Parts {
    /// Each type with its part, and the types in it.
    types: Vec<(String, String, Vec<String>)>,
    /// The types in the methods, part by part, and then in the service's argument.
    roots: Vec<String>,
}

impl Parts {
    fn of(text: &str) -> Self {
        let (before, service) = text.split_once("\nservice : ").expect("there is a service");
        let (argument, service) = service.split_once("-> {").expect("it has an argument");
        let names: HashSet<&str> =
            before.lines().filter_map(|line| line.strip_prefix("type ")?.split(' ').next()).collect();
        let code = |line: &str| if line.trim_start().starts_with("//") { String::new() } else { line.to_string() };
        let used = |line: &str| {
            let line = code(line);
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            // What stands before a colon is a field.
            let fields: Vec<&str> = line.split(" : ").next().into_iter().filter(|_| line.contains(" : ")).collect();
            let words = words.filter(|word| names.contains(word) && !fields.iter().any(|field| field.trim() == *word));
            words.map(str::to_string).collect::<Vec<_>>()
        };
        let (mut part, mut types) = (String::new(), Vec::new());
        for line in before.lines() {
            if let Some(title) = line.strip_prefix("// ==== ") {
                part = title.to_string();
            } else if let Some(rest) = line.strip_prefix("type ") {
                let (name, rest) = rest.split_once(' ').expect("a type is something");
                types.push((name.to_string(), part.clone(), used(rest)));
            } else if let Some((_, _, uses)) = types.last_mut() {
                // The case of a variant may be called as a type is.
                let line = line.trim();
                uses.extend(if line.contains(" : ") { used(line) } else { Vec::new() });
            }
        }
        let mut roots: Vec<String> = service.lines().flat_map(used).collect();
        roots.extend(used(argument));
        Self { types, roots }
    }

    /// Types stand in the order of use: a method's, then those in them, depth first.
    fn order(&self, found: &mut Vec<String>) {
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        let mut left: Vec<&String> = self.roots.iter().rev().collect();
        while let Some(name) = left.pop() {
            if seen.insert(name) {
                order.push(name);
                let (_, _, uses) = self.types.iter().find(|(of, ..)| of == name).expect("it is one of the types");
                left.extend(uses.iter().rev());
            }
        }
        let stands = self.types.iter().map(|(name, ..)| name);
        let mut order = order.into_iter();
        for name in stands {
            let expected = order.next();
            if expected != Some(name) {
                found.push(format!("{name} is not where it is used first: there should be {expected:?}"));
                break;
            }
        }
    }

    /// Types of two parts do not differ by a letter, and those of the UTXO pruner say that they are its.
    fn names(&self, methods: &BTreeSet<String>, found: &mut Vec<String>) {
        for (at, (one, part, _)) in self.types.iter().enumerate() {
            for (other, elsewhere, _) in &self.types[at + 1..] {
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
}

/// One letter more, less, or another.
fn differ_by_a_letter(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let same = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    match long.len() - short.len() {
        0 => short.as_bytes()[same..].get(1..) == long.as_bytes()[same..].get(1..) && short != long,
        1 => short.as_bytes()[same..] == long.as_bytes()[same + 1..],
        _ => false,
    }
}

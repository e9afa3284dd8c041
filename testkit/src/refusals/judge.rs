//! Judgement of the runs: the sentence that each refused run had to show, and the forms that no run may show.

use super::cases::{self, Case, Method};
use super::commands::{Commands, Treated};
use super::liar::MANY;
use super::play::Ran;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Fails if a run has shown its refusal in another way than it should, or a refusal was left out.
pub fn judge(commands: &Commands, ran: &[Ran]) {
    let methods: BTreeMap<&str, Method> = cases::all().into_iter().map(|method| (method.name, method)).collect();
    let (mut wrong, mut used, mut refused) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for run in ran {
        let (what, result) = match &run.refused {
            None if run.code == 0 => continue,
            None => ("an honest canister".into(), Err("it fails".into())),
            Some((method, number)) => {
                let case = &methods[method.as_str()].cases[*number];
                refused.insert((run.command, method.as_str(), *number));
                (format!("{method}, {}", case.name), check(commands, run, method, case, &mut used))
            }
        };
        if let Err(why) = result {
            wrong.push(format!("{}: {what}: {why}; exit code {}\n{}", run.command, run.code, run.output));
        }
    }
    let honest = ran.iter().filter(|run| run.refused.is_none());
    let called = honest.flat_map(|run| run.called.iter().map(|method| (run.command, method.as_str())));
    let due = called.flat_map(|(command, method)| {
        let of = methods.get(method).unwrap_or_else(|| panic!("{command} calls {method}, which the table lacks"));
        (commands.due)(command, of).into_iter().map(move |case| (command, method, case))
    });
    assert_eq!(refused, due.collect(), "each case of each method that a command calls");
    assert!(wrong.is_empty(), "{} of {} runs:\n{}", wrong.len(), refused.len(), wrong.join("\n"));
    let unused: Vec<_> = (0..).zip(commands.treated).filter(|(at, _)| !used.contains(at)).map(|(_, row)| row).collect();
    assert!(unused.is_empty(), "no run is treated so: {unused:?}");
}

/// Fails if code of the commands calls a method that refuses and that no command called, and returns the methods that no command calls.
/// `elsewhere`: methods that the commands of the other program call.
pub fn uncalled(ran: &[Ran], elsewhere: &[&str], sources: &[PathBuf]) -> Vec<&'static str> {
    let called = ran.iter().flat_map(|run| run.called.iter().map(String::as_str));
    let called: BTreeSet<&str> = called.chain(elsewhere.iter().copied()).collect();
    let code: String = sources.iter().map(|path| production(path)).collect();
    let refusing = cases::all().into_iter().filter(|method| !method.cases.is_empty()).map(|method| method.name);
    let left: Vec<&str> = refusing.filter(|name| !called.contains(name)).collect();
    let is_in_code =
        |name: &&&str| [format!(".{name}("), format!(".{name}_all(")].iter().any(|call| code.contains(call));
    let missed: Vec<_> = left.iter().filter(is_in_code).collect();
    assert!(missed.is_empty(), "code of the commands calls {missed:?}, but no run does");
    left
}

/// Returns the code of a directory, without its tests.
fn production(path: &Path) -> String {
    if path.is_dir() {
        let files = std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path());
        return files
            .filter(|path| !path.ends_with("tests") && !path.ends_with("fake.rs"))
            .map(|path| production(&path))
            .collect();
    }
    let code = std::fs::read_to_string(path).unwrap();
    code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_string()
}

/// Checks a run of a refused method.
fn check(commands: &Commands, run: &Ran, method: &str, case: &Case, used: &mut BTreeSet<usize>) -> Result<(), String> {
    if run.told == 0 {
        return Err("the method was not called".into());
    }
    if run.told >= MANY {
        return Err("it asks again without end".into());
    }
    if let Some(shown) = debugged(&run.output, &case.debug) {
        return Err(format!("it shows {shown}"));
    }
    let treated = commands.row(run.command, method, &case.name);
    used.extend(treated);
    let own = (commands.shown)(&case.sentence);
    let (sentence, ends_well) = match treated.map(|at| commands.treated[at].3) {
        None => (&*own, None),
        Some(Treated::Says(text)) => (text, Some(false)),
        Some(Treated::Noted) => (&*own, Some(true)),
        Some(Treated::Expected) => ("", Some(true)),
    };
    // A worker that tries again may delete all blobs in the end.
    let ends_well = ends_well.or((!(commands.is_endless)(run.command)).then_some(false));
    if !run.output.contains(sentence) {
        return Err(format!("it does not show \"{sentence}\""));
    }
    match ends_well {
        Some(true) if run.code != 0 => Err("it should end well".into()),
        Some(false) if run.code == 0 => Err("it should fail".into()),
        _ => Ok(()),
    }
}

/// Returns the part of an output that is Rust and not a sentence: an error's debug form, or the name of a case with its fields.
fn debugged(output: &str, debug: &str) -> Option<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let begins = |at: usize| !output[..at].chars().next_back().is_some_and(is_word);
    let ends = |at: usize| !output[at..].chars().next().is_some_and(is_word);
    if output.match_indices(debug).any(|(at, _)| begins(at) && ends(at + debug.len())) {
        return Some(debug.into());
    }
    let words = output.match_indices(|c: char| c.is_ascii_uppercase()).filter(|(at, _)| begins(*at));
    words.map(|(at, _)| &output[at..]).find_map(|rest| {
        let (word, after) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
        let has_fields = after.starts_with('(') || after.starts_with(" {");
        (has_fields || word == "None").then(|| rest.chars().take(word.len() + 20).collect())
    })
}

#[test]
fn debug_forms_are_found_and_sentences_are_not() {
    for (output, found) in [
        ("error: block 7: Gap { expected: 7 }", Some("Gap { expected: 7 }")),
        ("error: Conflict", Some("Conflict")),
        ("{\"place\":\"Failed(\\\"a\\\")\"}", Some("Failed(\\\"a\\\")\"}")),
        ("note: held by None", Some("None")),
        ("error: the number is too high: the next block is 7", None),
        ("register_exporter(record { name = \"indexer\" }) by SQLite, Conflicting", None),
    ] {
        assert_eq!(debugged(output, "Conflict").as_deref(), found, "{output}");
    }
}

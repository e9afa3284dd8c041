//! Errors are shown by their sentences: no production code formats one with `{:?}`, whose names and braces are not for people.

use coppice_source::production;
use std::path::{Path, PathBuf};

/// Crates whose errors people see.
const CRATES: [&str; 9] =
    ["canister", "storage", "interface", "client", "host", "cli", "lab", "testkit", "examples/sequencer"];
/// Names under which code has an error at hand.
const NAMES: [&str; 4] = ["error", "why", "refused", "reason"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the lines of production code that format an error with `{:?}`; a panic or an assertion is not a message.
fn debugged(text: &str) -> Vec<&str> {
    let production = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let ends = |line: &str| ["panic!", "assert", "unreachable!", "trap("].iter().any(|name| line.contains(name));
    let shows = |line: &str| NAMES.iter().any(|name| line.contains(&format!("{{{name}:?}}")));
    production.lines().filter(|line| shows(line) && !is_comment(line) && !ends(line)).collect()
}

#[test]
fn no_production_code_shows_an_error_with_its_debug_form() {
    let mut files = 0;
    for name in CRATES {
        let source = root().join(name);
        for file in production(&source).unwrap() {
            let text = std::fs::read_to_string(source.join("src").join(&file)).unwrap();
            assert_eq!(debugged(&text), [""; 0], "{name}/src/{}", file.display());
            files += 1;
        }
    }
    assert!(files > 250, "{files} files");
}

#[test]
fn a_planted_debug_form_is_found() {
    let planted = "fn f() -> String {\n    format!(\"{error:?}\")\n}\n";
    assert_eq!(debugged(planted), ["    format!(\"{error:?}\")"]);
    for fine in ["    // format!(\"{error:?}\")\n", "    panic!(\"{error:?}\")\n", "    format!(\"{error}\")\n"] {
        assert_eq!(debugged(fine), [""; 0]);
    }
    assert_eq!(debugged(&format!("#[cfg(test)]\nmod tests {{\n{planted}}}")), [""; 0]);
}

//! Words of all comments and pages of the repository. There are no exceptions.

use coppice_source::words::{Kind, OPENERS, Words, read};
use std::path::Path;

#[test]
fn no_sentence_breaks_a_rule_of_words() {
    let words = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    for directory in ["canister/src", "interface/src", "cli/src", "scripts", "candid", "docs", "README.md"] {
        let of_directory = words.iter().filter(|(file, _)| file.starts_with(directory));
        let sentences: usize = of_directory.map(|(_, words)| words.sentences).sum();
        assert!(sentences > 10, "{directory} has {sentences} sentences");
    }
    let found = words.iter().flat_map(|(file, words)| {
        words.findings.iter().map(move |of| format!("{file}:{}: {}: {}", of.line, of.word, of.sentence))
    });
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

/// The rules that a text breaks.
fn broken(kind: Kind, text: &str) -> Vec<String> {
    Words::of(kind, text).findings.into_iter().map(|finding| finding.word).collect()
}

#[test]
fn a_planted_sentence_breaks_each_rule() {
    let number = "a number before `at most`";
    for (sentence, word) in [
        ("What is kept.", "What"),
        ("Blocks. Who reads them.", "Who"),
        ("(Which one.)", "Which"),
        ("Blocks: Of each the hash.", "Of"),
        ("**Those** that wait.", "Those"),
        ("That of the head.", "That"),
        ("No rows. Nor blocks.", "Nor"),
        ("Whoever asks reads the rows.", "whoever"),
        ("The rows that somebody leased.", "somebody"),
        ("Nobody reads the rows.", "nobody"),
        ("All rows but for the last.", "but for"),
        ("A late tick takes it that others trapped.", "takes it that"),
        ("Ticks take it that others trapped.", "take it that"),
        ("Reads are dear.", "dear"),
        ("There are 5 at most.", number),
        ("There are 5 blocks at most, and a head.", number),
        ("At 1,000 rows at most.", number),
    ] {
        for text in [
            format!("/// {sentence}\nstruct Row;"),
            format!("//! {sentence}\n"),
            format!("fn f() {{}} // {sentence}"),
            format!("const QUOTE: char = '\"'; // {sentence}"),
            format!("/// A list:\n/// - A row.\n/// - {sentence}"),
        ] {
            assert_eq!(broken(Kind::Source, &text), [word], "{text}");
        }
        let wrapped = sentence.replacen(' ', "\n/// ", 2);
        assert_eq!(broken(Kind::Source, &format!("/// {wrapped}")), [word], "{wrapped}");
        for text in [format!("# {sentence}"), format!("- A row.\n- {sentence}"), format!("| a | {sentence} |")] {
            assert_eq!(broken(Kind::Page, &text), [word], "{text}");
        }
        for text in [format!("#!/bin/sh\n# {sentence}"), format!("ls # {sentence}")] {
            assert_eq!(broken(Kind::Script, &text), [word], "{text}");
        }
        for text in [format!("`{sentence}`"), format!("```\n{sentence}\n```"), format!("A row: ``{sentence}``.")] {
            assert!(broken(Kind::Page, &text).is_empty(), "{text}");
        }
        let strings = format!("fn f() {{ g(\"\\\"// {sentence}\", r#\"\"// {sentence}\"#, r\"// {sentence}\") }}");
        assert!(broken(Kind::Source, &strings).is_empty(), "{strings}");
    }
}

#[test]
fn plain_sentences_break_no_rule() {
    for sentence in [
        "Returns what was kept, of which rows, and who leased those.",
        "A lease has at most 5 rows.",
        "Since version 5, at most 3 rows wait.",
        "Of5 and Whatever are names.",
        "In a batch of 100 rows at most 5 fail.",
        "`What` and `Of` open no sentence.",
        "Reads cost at most 5 instructions a byte.",
    ] {
        assert_eq!(broken(Kind::Page, sentence), [] as [&str; 0], "{sentence}");
    }
}

#[test]
fn sentences_are_counted_by_opener() {
    let mut words = Words::of(Kind::Source, "//! Rows. What is a row?\n\n/// Of rows.\nstruct Row;");
    words.add(Words::of(Kind::Page, "Rows, of which there are few.\n\n- Of rows.\n"));
    assert_eq!((words.sentences, words.findings.len()), (5, 3));
    let counts = OPENERS.map(|opener| words.openers.get(opener).copied().unwrap_or(0));
    assert_eq!(counts, [1, 0, 0, 2, 0, 0, 0]);
}

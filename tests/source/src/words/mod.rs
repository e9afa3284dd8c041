//! Words of comments and pages: sentences that open with a relative clause, and words that the project avoids.

mod prose;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

pub use text::Kind;

/// Words that open no sentence.
pub const OPENERS: [&str; 7] = ["What", "Who", "Which", "Of", "Those", "That", "Nor"];

/// Words and phrases that no sentence contains. A number before `at most` is a rule of its own.
const AVOIDED: [&str; 10] = [
    "whoever",
    "somebody",
    "nobody",
    "but for",
    "take it that",
    "takes it that",
    "took it that",
    "dear",
    "dearer",
    "dearest",
];

/// A sentence that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// Line on which the sentence's paragraph begins, from 1.
    pub line: usize,
    /// The rule, as the word that breaks it.
    pub word: String,
    /// The sentence, without its code.
    pub sentence: String,
}

/// Sentences of a text, and the sentences that break a rule.
#[derive(Debug, Default)]
pub struct Words {
    /// Number of sentences.
    pub sentences: usize,
    /// Number of sentences that open with each word of [`OPENERS`].
    pub openers: BTreeMap<&'static str, usize>,
    /// Sentences that break a rule.
    pub findings: Vec<Finding>,
}

impl Words {
    /// Reads the comments of a source file, or the text of a page.
    pub fn of(kind: Kind, text: &str) -> Self {
        let mut words = Self::default();
        for (line, sentence) in prose::sentences(&text::prose(kind, text)) {
            words.sentences += 1;
            let opener = opener(&sentence);
            if let Some(opener) = opener {
                *words.openers.entry(opener).or_default() += 1;
            }
            let avoided = opener.map(str::to_owned).or_else(|| avoided(&sentence));
            words.findings.extend(avoided.map(|word| Finding { line, word, sentence }));
        }
        words
    }

    /// Adds the words of another text.
    pub fn add(&mut self, other: Self) {
        self.sentences += other.sentences;
        for (opener, count) in other.openers {
            *self.openers.entry(opener).or_default() += count;
        }
        self.findings.extend(other.findings);
    }
}

/// Returns the words of each file with sentences below `root`, by path below it. Built files and hidden directories are left out.
///
/// # Errors
///
/// The file that cannot be read, and why.
pub fn read(root: &Path) -> Result<BTreeMap<String, Words>, String> {
    let mut words = BTreeMap::new();
    for file in crate::files(root)? {
        if let Some(kind) = Kind::of(&file) {
            let path = root.join(&file);
            let text = std::fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
            words.insert(file.display().to_string(), Words::of(kind, &text));
        }
    }
    Ok(words)
}

/// Returns the word of [`OPENERS`] with which a sentence opens.
fn opener(sentence: &str) -> Option<&'static str> {
    let start = sentence.trim_start_matches(|first: char| !first.is_alphanumeric() && first != prose::CODE);
    let first = start.split(|letter: char| !letter.is_alphanumeric()).next()?;
    OPENERS.into_iter().find(|opener| first == *opener)
}

/// Returns the first phrase of a sentence that the project avoids.
fn avoided(sentence: &str) -> Option<String> {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    let bare: Vec<String> = words
        .iter()
        .map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != prose::CODE).to_lowercase())
        .collect();
    let is_phrase = |phrase: &str| {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        bare.windows(phrase.len()).any(|window| window == phrase)
    };
    if let Some(phrase) = AVOIDED.iter().find(|phrase| is_phrase(phrase)) {
        return Some((*phrase).to_owned());
    }
    // `5 at most`, `5 blocks at most`; but not `of 5 at most 3`, and not a number behind a comma.
    let at_most = (1..bare.len().saturating_sub(1)).filter(|at| bare[*at] == "at" && bare[at + 1] == "most");
    let is_number = |at: usize| bare[at].starts_with(|first: char| first.is_ascii_digit());
    let goes_on = |at: usize| words[at].ends_with(|last: char| last.is_alphanumeric());
    for at in at_most {
        let follows = bare.get(at + 2).is_some_and(|_| is_number(at + 2));
        let begins = (1..=2.min(at)).any(|back| is_number(at - back) && (at - back..at).all(goes_on));
        if begins && !follows {
            return Some("a number before `at most`".to_owned());
        }
    }
    None
}

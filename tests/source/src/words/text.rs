//! Lines of prose in a file: the comments of a source file, or all lines of a page.

use std::path::Path;

/// A kind of file with sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rust and Candid: `//`, `///`, `//!`.
    Source,
    /// Shell: `#`.
    Script,
    /// Markdown.
    Page,
}

impl Kind {
    /// Returns the kind of a file; `None` if the file is not read.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs" | "did") => Some(Self::Source),
            Some("md") => Some(Self::Page),
            Some("sh") => Some(Self::Script),
            None if path.components().any(|part| part.as_os_str() == "scripts") => Some(Self::Script),
            _ => None,
        }
    }
}

/// Returns the lines of prose, each with its number from 1. An empty line stands between two comments.
pub fn prose(kind: Kind, text: &str) -> Vec<(usize, &str)> {
    let lines = (1..).zip(text.lines());
    match kind {
        Kind::Page => lines.collect(),
        Kind::Script => lines.map(|(line, text)| (line, script_comment(text))).collect(),
        Kind::Source => source_comments(text),
    }
}

fn script_comment(line: &str) -> &str {
    let comment = line.trim_start().strip_prefix('#').filter(|text| !text.starts_with('!'));
    comment.or_else(|| Some(line.split_once(" # ")?.1)).unwrap_or_default()
}

fn source_comments(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut left, mut line) = (Vec::new(), text, 1);
    // The line and the mark of the comment before.
    let mut before = (0, "");
    while let Some(first) = left.chars().next() {
        let end = if left.starts_with("//") {
            let end = left.find('\n').unwrap_or(left.len());
            let mark = ["///", "//!", "//"].into_iter().find(|mark| left.starts_with(mark)).unwrap_or_default();
            if before != (line - 1, mark) {
                found.push((line, ""));
            }
            found.push((line, &left[mark.len()..end]));
            before = (line, mark);
            end
        } else {
            literal(left).unwrap_or(first.len_utf8())
        };
        line += left[..end].matches('\n').count();
        left = &left[end..];
    }
    found
}

/// Returns the length of the string or character with which the text begins.
fn literal(text: &str) -> Option<usize> {
    if let Some(inner) = text.strip_prefix('\'') {
        // A quotation mark in quotes; a lifetime has no second quote.
        return ["\"'", "\\\"'", "\\''"].into_iter().find(|inside| inner.starts_with(inside)).map(|it| 1 + it.len());
    }
    if let Some(inner) = text.strip_prefix("r#").or_else(|| text.strip_prefix("r\"").map(|_| &text[1..])) {
        let hashes = inner.len() - inner.trim_start_matches('#').len();
        let mark = format!("\"{}", "#".repeat(hashes + usize::from(text.starts_with("r#"))));
        let start = text.len() - inner.len() + hashes + 1;
        // `r#name` is not a string.
        return inner[hashes..].starts_with('"').then(|| Some(start + text[start..].find(&mark)? + mark.len()))?;
    }
    let inner = text.strip_prefix('"')?;
    let mut escaped = false;
    let end = inner.find(|letter| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    })?;
    Some(end + 2)
}

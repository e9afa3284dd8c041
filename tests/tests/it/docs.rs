//! The documentation: README is short, and every link of it and of `docs/` leads somewhere.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// README and the pages of `docs/`.
fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).expect("there is docs/");
    let docs = docs.map(|file| file.expect("it can be listed").path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    std::iter::once(root().join("README.md")).chain(pages).collect()
}

/// A page's lines outside of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// What the links of a page lead to, `[text](target)`.
fn links(text: &str) -> Vec<String> {
    let of = |line: &str| {
        let targets = line.split("](").skip(1);
        targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_string())).collect::<Vec<_>>()
    };
    prose(text).flat_map(of).collect()
}

/// The anchors of a page's headings: small letters, digits and underscores, with a hyphen for a space.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char.to_ascii_lowercase() }).collect()
    };
    headings.map(anchor).collect()
}

/// What is wrong with a page's links.
fn broken(page: &Path, text: &str) -> Vec<String> {
    let inside = |target: &String| !target.starts_with("https://") && !target.starts_with("http://");
    let wrong = |target: &String| {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let to = if path.is_empty() { page.to_path_buf() } else { page.with_file_name("").join(path) };
        let there = to.exists() && (anchor.is_empty() || anchors(&read(&to)).iter().any(|found| found == anchor));
        !there
    };
    links(text).into_iter().filter(inside).filter(wrong).collect()
}

#[test]
fn the_readme_has_at_most_150_lines() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 150, "README.md has {lines} lines; what is too much goes to docs/");
}

#[test]
fn every_link_leads_somewhere() {
    let mut inside = 0;
    for page in pages() {
        let text = read(&page);
        let broken = broken(&page, &text);
        assert!(broken.is_empty(), "{} leads nowhere: {broken:?}", page.display());
        inside += links(&text).iter().filter(|target| !target.starts_with("http")).count();
    }
    assert!(inside > 10, "{inside} links were found");
}

#[test]
fn the_table_of_contents_names_every_page() {
    let contents = root().join("docs").join("README.md");
    let named = links(&read(&contents));
    for page in pages().into_iter().skip(1).filter(|page| !page.ends_with("docs/README.md")) {
        let name = page.file_name().expect("a page").to_string_lossy().into_owned();
        assert!(named.contains(&name), "docs/README.md does not name {name}");
    }
}

#[test]
fn a_broken_link_is_found() {
    let page = root().join("docs").join("README.md");
    let text = "# Here and there\n[a](design.md) [b](none.md)\n[c](design.md#1-parts), [d](design.md#none)\n\
                ```\n[e](none.md)\n```\n[f](https://example.org/none)";
    assert_eq!(broken(&page, text), ["none.md", "design.md#none"]);
    assert_eq!(anchors(text), ["here-and-there"]);
    assert_eq!(anchors("## 2. How large `target_bytes` must be"), ["2-how-large-target_bytes-must-be"]);
}

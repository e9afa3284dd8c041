//! The pages: README is short, every link of every page leads somewhere, and the tests that `SECURITY.md` cites exist.
//! The code of `docs/guide/inside.md` is that of `examples/rollup`.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Markdown file of the repository, except built ones.
fn pages() -> Vec<PathBuf> {
    let (mut folders, mut pages) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("the folder can be listed").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            let built = ["target", "node_modules"].contains(&name.as_str());
            if path.is_dir() && !built && (!name.starts_with('.') || name == ".github") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The pages below `docs/`.
fn docs() -> Vec<PathBuf> {
    let docs = root().join("docs");
    pages().into_iter().filter(|page| page.starts_with(&docs)).collect()
}

/// A page's lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The targets of a page's links, `[text](target)`.
fn links(text: &str) -> Vec<String> {
    let of = |line: &str| {
        let targets = line.split("](").skip(1);
        targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_string())).collect::<Vec<_>>()
    };
    prose(text).flat_map(of).collect()
}

/// The anchors of a page's headings: lower-case letters, digits and underscores, with a hyphen for a space.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char.to_ascii_lowercase() }).collect()
    };
    headings.map(anchor).collect()
}

/// The broken links of a page.
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

/// Words as `wc -w` counts them.
fn words(page: &Path) -> usize {
    read(page).split_whitespace().count()
}

#[test]
fn readme_has_at_most_110_lines_and_pages_at_most_3500_words() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 110, "README.md has {lines} lines; move the excess to docs/");
    for page in docs() {
        let words = words(&page);
        assert!(words <= 3_500, "{} has {words} words", page.display());
    }
}

#[test]
fn readme_and_docs_have_at_most_42000_words() {
    let words: usize = docs().iter().map(|page| words(page)).sum::<usize>() + words(&root().join("README.md"));
    assert!(words <= 42_000, "{words} words");
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
    assert!(inside > 100, "{inside} links were found");
}

#[test]
fn the_table_of_contents_names_every_page() {
    let contents = root().join("docs/README.md");
    let named = links(&read(&contents));
    for page in docs().into_iter().filter(|page| *page != contents) {
        let name = page.strip_prefix(root().join("docs")).expect("a page of docs/").display().to_string();
        assert!(named.contains(&name), "docs/README.md does not name {name}");
    }
}

#[test]
fn a_broken_link_is_found() {
    let page = root().join("docs/design/parts.md");
    let text = "# Here and there\n[a](export.md) [b](none.md)\n[c](export.md#seals), [d](export.md#none)\n\
                ```\n[e](none.md)\n```\n[f](https://example.org/none)";
    assert_eq!(broken(&page, text), ["none.md", "export.md#none"]);
    assert_eq!(anchors(text), ["here-and-there"]);
    assert_eq!(anchors("## 2. How large `target_bytes` must be"), ["2-how-large-target_bytes-must-be"]);
}

/// The tests that a line names, as `[`name`](file)`, with their files.
fn tests_named(line: &str) -> Vec<(String, String)> {
    let named = line.split("[`").skip(1);
    let parts =
        named.filter_map(|rest| rest.split_once("`](").and_then(|(name, rest)| Some((name, rest.split_once(')')?.0))));
    parts.filter(|(_, file)| file.ends_with(".rs")).map(|(name, file)| (name.into(), file.into())).collect()
}

/// Returns whether a file's text contains a test with this name.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_it = |line: &&str| line.strip_prefix("fn ").is_some_and(|rest| rest.starts_with(&format!("{name}(")));
    let at = lines.iter().position(is_it);
    at.is_some_and(|at| {
        lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).any(|line| *line == "#[test]")
    })
}

/// Each point of the checklist cites tests that exist, or does not apply.
#[test]
fn every_test_that_security_md_cites_exists() {
    let text = read(&root().join("SECURITY.md"));
    let (_, checklist) = text.split_once("## The platform's checklist").expect("there is the checklist");
    let rows = checklist.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| point"));
    let (mut points, mut tests) = (0, 0);
    for row in rows {
        points += 1;
        let named = tests_named(row);
        assert!(!named.is_empty() || row.ends_with("| does not apply |"), "nothing shows: {row}");
        for (name, file) in named {
            assert!(has_test(&read(&root().join(&file)), &name), "{file} has no test {name}");
            tests += 1;
        }
    }
    assert!(points > 30 && tests > 60, "{points} points and {tests} tests were found");
}

#[test]
fn a_missing_test_is_found() {
    let text = "#[test]\nfn a() {}\n\n    #[test]\n    #[ignore]\n    fn b() {}\nfn c() {}\n#[test]\n\nfn d() {}\n";
    let found = ["a", "b", "c", "d", "aa", ""].map(|name| has_test(text, name));
    assert_eq!(found, [true, true, false, false, false, false]);
    let line = "| x | [y](z.md) | [`a`](t.rs), [`b`](u/v.rs) |";
    assert_eq!(tests_named(line), [("a".into(), "t.rs".into()), ("b".into(), "u/v.rs".into())]);
}

/// A caller that sees the balance before and after a call learns what the call cost, and which argument costs most.
#[test]
fn no_public_answer_has_the_balance() {
    let candid = read(&root().join("candid").join("coppice.did"));
    let fields = candid.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let telling: Vec<&str> = fields.filter(|line| line.contains("balance")).collect();
    assert!(telling.is_empty(), "{telling:?}");
}

#[test]
fn the_floats_of_the_interface_are_metrics() {
    let candid = read(&root().join("candid").join("coppice.did"));
    let of = |text: &str| text.lines().filter(|line| line.contains("float")).count();
    let (_, metric) = candid.split_once("type Metric = record {").expect("there is the type");
    let (metric, _) = metric.split_once("};").expect("it ends");
    assert_eq!((of(metric), of(&candid)), (1, 1));
}

#[test]
fn code_of_the_page_for_canisters_is_the_example() {
    let page = read(&root().join("docs/guide/inside.md"));
    let source = root().join("examples/rollup/src");
    let example = ["lib.rs", "account.rs"].map(|file| read(&source.join(file))).concat();
    let blocks: Vec<&str> =
        page.split("```rust,ignore\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        assert!(example.contains(block), "not in examples/rollup as it is:\n{block}");
    }
}

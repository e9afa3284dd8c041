//! `imports CRATE…` prints the import graph of each crate: files, imports, and each cycle with its imports. `words` prints, for each
//! directory of the repository, the number of sentences and the share that opens with each word that opens no sentence.

use coppice_source::words::{self, OPENERS, Words};
use std::collections::BTreeMap;
use std::path::Path;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((command, crates)) if command == "imports" => crates.iter().try_for_each(|name| imports(name)),
        Some((command, [])) if command == "words" => words_of_directories(),
        _ => Err("usage: coppice_source imports CRATE… | words".to_owned()),
    }
}

fn imports(directory: &str) -> Result<(), String> {
    let graph = coppice_source::read(directory.as_ref())?;
    let cycles = graph.cycles();
    let sizes: Vec<String> = cycles.iter().map(|cycle| cycle.len().to_string()).collect();
    let sizes = if sizes.is_empty() { "none".to_owned() } else { sizes.join(", ") };
    println!("{directory}: {} files, {} imports, cycles of {sizes} files", graph.files.len(), graph.imports.len());
    for cycle in cycles {
        println!("  {}", cycle.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" "));
        for ((from, to), name) in
            graph.imports.iter().filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to))
        {
            println!("    {} imports {name} of {}", from.display(), to.display());
        }
    }
    Ok(())
}

fn words_of_directories() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut directories: BTreeMap<String, Words> = BTreeMap::new();
    for (file, of_file) in words::read(&root)? {
        for finding in &of_file.findings {
            println!("{file}:{}: {}: {}", finding.line, finding.word, finding.sentence);
        }
        let directory = file.split_once('/').map_or("pages", |(directory, _)| directory);
        directories.entry(directory.to_owned()).or_default().add(of_file);
    }
    println!("{:10} {:>9} {:>6}", "", "sentences", OPENERS.map(|opener| format!("{opener:>6}")).join(" "));
    for (directory, words) in directories {
        let share = |opener: &str| {
            let count = words.openers.get(opener).copied().unwrap_or(0);
            format!("{:>4.1} %", 100.0 * count as f64 / words.sentences.max(1) as f64)
        };
        println!("{directory:10} {:>9} {}", words.sentences, OPENERS.map(share).join(" "));
    }
    Ok(())
}

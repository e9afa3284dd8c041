//! Prints, for each directory of the repository, the number of sentences and the share that opens with each word that opens no sentence.

use coppice_source::words::{self, OPENERS, Words};
use std::collections::BTreeMap;
use std::path::Path;

fn main() -> Result<(), String> {
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

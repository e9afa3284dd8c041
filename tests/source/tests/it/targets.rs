//! Integration tests have the names by which `scripts/test` runs them.

use std::path::{Path, PathBuf};

fn directories(of: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(of).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir() && !path.ends_with("target")).collect()
}

#[test]
fn integration_tests_are_called_it_or_network() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let outer = directories(&root);
    let inner: Vec<PathBuf> = outer.iter().flat_map(|directory| directories(directory)).collect();
    let packages = outer.into_iter().chain(inner).filter(|directory| directory.join("Cargo.toml").is_file());
    let mut found = 0;
    for entry in packages.flat_map(|package| std::fs::read_dir(package.join("tests")).into_iter().flatten()) {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file() {
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(["it", "network"].contains(&name), "scripts/test does not run {}", path.display());
            found += 1;
        }
    }
    assert!(found >= 10, "{found}");
}

//! Checks of the workspace's source: the words of comments and pages, and the files that other checks read.

pub mod words;

use std::path::{Path, PathBuf};

/// Returns the files below `root`, by path below it. Built files and hidden directories are left out.
///
/// # Errors
///
/// The directory that cannot be read, and why.
pub fn files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let (mut folders, mut files) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !path.is_dir() {
                files.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
            } else if !name.starts_with('.') && name != "target" && name != "node_modules" {
                folders.push(path);
            }
        }
    }
    Ok(files)
}

/// Returns the Rust files of a crate below its `src`, by path below it, without those of unit tests: `tests.rs`, and all below `tests/`.
///
/// # Errors
///
/// As [`files`].
pub fn production(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let is_production = |file: &PathBuf| {
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        is_rust && file.with_extension("").components().all(|part| part.as_os_str() != "tests")
    };
    Ok(files(&directory.join("src"))?.into_iter().filter(is_production).collect())
}

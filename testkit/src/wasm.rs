//! Wasm of the canister: a file, or else a build.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace that this crate was built from.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Returns the canister's wasm, raw or gzipped: the named file, or else the output of the workspace's `scripts/build-wasm`, which `tell`
/// announces.
///
/// # Errors
/// When the file cannot be read or is not wasm, or the build fails.
pub fn find(named: Option<&Path>, tell: fn(&str)) -> Result<Vec<u8>> {
    match named {
        Some(path) => read(path),
        None => build(&workspace(), tell),
    }
}

/// Returns the wasm for tests: the file that `COPPICE_WASM` names, or else a build.
///
/// # Panics
/// As [`find`] fails.
pub fn of_tests() -> Vec<u8> {
    let named = std::env::var_os("COPPICE_WASM").map(PathBuf::from);
    find(named.as_deref(), |line| eprintln!("{line}")).expect("the canister's wasm")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the canister's wasm {}", path.display()))?;
    if !bytes.starts_with(b"\0asm") && !bytes.starts_with(&[0x1F, 0x8B]) {
        bail!("{} is neither wasm nor gzip", path.display());
    }
    Ok(bytes)
}

fn build(workspace: &Path, tell: fn(&str)) -> Result<Vec<u8>> {
    let script = workspace.join("scripts").join("build-wasm");
    if !script.is_file() {
        bail!(
            "{} does not exist, so the canister cannot be built; name its wasm with --wasm or COPPICE_WASM",
            script.display()
        );
    }
    tell("building the canister (scripts/build-wasm)");
    // The build's stdout is captured, because this process's stdout is for results.
    let output = Command::new(&script)
        .env("COPPICE_BUILD", "coppice")
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !output.status.success() {
        bail!("{} failed: {}", script.display(), output.status);
    }
    read(&workspace.join("target").join("coppice.wasm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(_: &str) {}

    #[test]
    fn missing_or_invalid_wasm_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("canister.wasm");
        let error = format!("{:#}", find(Some(&path), silent).unwrap_err());
        assert!(error.contains("canister.wasm"), "{error}");
        std::fs::write(&path, b"hello").unwrap();
        assert!(find(Some(&path), silent).is_err());
        std::fs::write(&path, b"\0asm\x01\0\0\0").unwrap();
        assert_eq!(find(Some(&path), silent).unwrap().len(), 8);
        assert!(format!("{:#}", build(dir.path(), silent).unwrap_err()).contains("--wasm"));
    }
}

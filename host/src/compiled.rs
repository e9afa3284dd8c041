//! Compiled modules in a directory, so that the next process need not compile them again.
//!
//! An entry is one file, named by its key: SHA-256 of the engine's version and settings, and of the Wasm that was
//! compiled. It is written beside its place and renamed, so it is there whole or not at all, whoever writes at the same
//! time. An entry that is damaged, cut off, or another key's is compiled anew and replaced. Compiling is done by one at a
//! time, under a lock of the directory. Nothing that the file system refuses is an error: there is no cache then, and that is all.
//!
//! ```text
//! magic, 16 bytes ‖ key, 32 ‖ SHA-256 of magic, key and content, 32 ‖ content, as Wasmtime serialized it
//! ```

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use wasmtime::{Engine, Module};

const MAGIC: &[u8; 16] = b"coppice module 1";
const HEADER: usize = MAGIC.len() + 32 + 32;
/// What the names of entries end with, and of files that are to become entries.
const SUFFIX: &str = "module";
const UNFINISHED: &str = "unfinished";
/// Entries that are kept: those used last.
const ENTRIES: usize = 8;
/// A file that has not become an entry after this time never will.
const ABANDONED: Duration = Duration::from_secs(3600);

type Key = [u8; 32];

static DIRECTORY: RwLock<Option<PathBuf>> = RwLock::new(None);

/// Keeps compiled modules of this process in a directory, and takes them from there; `None`, as at the start: nowhere.
///
/// The directory is created where it is missing, for nobody but its owner. One that others may write to is not used:
/// who can put a module there decides what this process executes. The newest eight entries are kept.
pub fn set_module_cache(directory: Option<PathBuf>) {
    *DIRECTORY.write().unwrap_or_else(PoisonError::into_inner) = directory;
}

/// The directory for [`set_module_cache`] where nobody asks for another: the one that `COPPICE_MODULE_CACHE` names, none
/// where that is empty; else `target/compiled` of the workspace that this was built from; where that is no more,
/// `coppice/compiled` in the user's cache directory (`XDG_CACHE_HOME`, or `.cache` at home).
pub fn default_module_cache() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    choose(
        &|name| std::env::var_os(name).map(PathBuf::from),
        workspace.filter(|path| path.join("Cargo.lock").is_file()),
    )
}

fn choose(variable: &dyn Fn(&str) -> Option<PathBuf>, workspace: Option<&Path>) -> Option<PathBuf> {
    if let Some(named) = variable("COPPICE_MODULE_CACHE") {
        return Some(named).filter(|path| !path.as_os_str().is_empty());
    }
    if let Some(workspace) = workspace {
        return Some(workspace.join("target").join("compiled"));
    }
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("coppice").join("compiled"))
}

/// Compiles a module, or takes it from the process's directory.
///
/// # Errors
/// When it cannot be compiled.
pub(crate) fn module(engine: &Engine, wasm: &[u8]) -> wasmtime::Result<Module> {
    let directory = DIRECTORY.read().unwrap_or_else(PoisonError::into_inner).clone();
    match directory {
        Some(directory) => Cache { directory }.module(engine, wasm),
        None => Module::new(engine, wasm),
    }
}

/// The settings and the version of an engine, as it hashes them, go into a key.
struct Settings(Sha256);

impl Hasher for Settings {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(self.0.clone().finalize());
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

fn key(engine: &Engine, wasm: &[u8]) -> Key {
    let mut settings = Settings(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut settings);
    let settings: [u8; 32] = settings.0.finalize().into();
    let wasm: [u8; 32] = Sha256::digest(wasm).into();
    Sha256::digest([settings, wasm].concat()).into()
}

/// What stands before an entry's content.
fn header(key: &Key, content: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (magic, rest) = header.split_at_mut(MAGIC.len());
    let (its_key, digest) = rest.split_at_mut(key.len());
    magic.copy_from_slice(MAGIC);
    its_key.copy_from_slice(key);
    digest.copy_from_slice(&Sha256::new().chain_update(MAGIC).chain_update(key).chain_update(content).finalize());
    header
}

struct Cache {
    directory: PathBuf,
}

impl Cache {
    fn module(&self, engine: &Engine, wasm: &[u8]) -> wasmtime::Result<Module> {
        let key = key(engine, wasm);
        if let Some(module) = self.load(engine, &key) {
            return Ok(module);
        }
        // Who comes meanwhile for the same takes it from its entry.
        let _turn = self.turn();
        if let Some(module) = self.load(engine, &key) {
            return Ok(module);
        }
        let module = Module::new(engine, wasm)?;
        if let Ok(content) = module.serialize() {
            // Without its entry the module is as good.
            let _ = self.store(&key, &content);
        }
        Ok(module)
    }

    /// Waits until nobody else compiles for this directory: compiling takes all cores, and the same module is often wanted
    /// by many threads and processes at once. The system gives a turn back that a killed process had.
    fn turn(&self) -> io::Result<File> {
        create(&self.directory)?;
        let directory = File::open(&self.directory)?;
        directory.lock()?;
        Ok(directory)
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(name).with_extension(SUFFIX)
    }

    /// The module of this key, where there is an entry of it that is as it was written.
    fn load(&self, engine: &Engine, key: &Key) -> Option<Module> {
        if !is_of_its_owner_alone(&self.directory) {
            return None;
        }
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        let (found, content) = bytes.split_at_checked(HEADER)?;
        if found != header(key, content) {
            return None;
        }
        // SAFETY: The content must be what `Module::serialize` made, unmodified. Its SHA-256 stands in the header, so
        // it is as it was written, and was read into memory once, so it stays so. Only `store` writes entries, and only
        // what `Module::serialize` answered; the digest covers the key, so it was answered for this Wasm, by an engine
        // of this version with these settings. A digest does not help against somebody who makes an entry on purpose:
        // nobody but the directory's owner can write there, and they could exchange this program as well.
        let module = unsafe { Module::deserialize(engine, content) }.ok()?;
        // Those used last are kept. Where the time cannot be set, the entry goes a little earlier.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(module)
    }

    fn store(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        create(&self.directory)?;
        if !is_of_its_owner_alone(&self.directory) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // Removed when it is dropped before it is in its place.
        let mut file = tempfile::Builder::new().suffix(&format!(".{UNFINISHED}")).tempfile_in(&self.directory)?;
        file.write_all(&header(key, content))?;
        file.write_all(content)?;
        file.persist(self.path(key))?;
        self.clear(key)
    }

    /// Removes the entries that have not been used for longest, but never the one of this key, and what processes that
    /// were killed have left.
    fn clear(&self, key: &Key) -> io::Result<()> {
        let own = self.path(key);
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.directory)? {
            let file = file?;
            let (path, used) = (file.path(), file.metadata()?.modified()?);
            let extension = path.extension().and_then(OsStr::to_str);
            if extension == Some(SUFFIX) && path != own {
                entries.push((used, path));
            } else if extension == Some(UNFINISHED) && used.elapsed().is_ok_and(|age| age > ABANDONED) {
                fs::remove_file(path)?;
            }
        }
        entries.sort();
        let old = (entries.len() + 1).saturating_sub(ENTRIES);
        entries.iter().take(old).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn create(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    // Another process may have been faster.
    builder.recursive(true).create(directory)
}

#[cfg(unix)]
fn is_of_its_owner_alone(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o022;
    fs::metadata(directory).is_ok_and(|found| found.is_dir() && found.mode() & OTHERS_WRITE == 0)
}

/// There a new directory is its owner's.
#[cfg(not(unix))]
fn is_of_its_owner_alone(directory: &Path) -> bool {
    directory.is_dir()
}

#[cfg(test)]
mod tests;

//! Directory of compiled modules, so that later processes need not compile them again.
//!
//! An entry is one file, named by its key: SHA-256 of the engine's version and settings, and of the compiled Wasm. An entry is written to a
//! temporary file and renamed, so concurrent writers never leave a partial entry. An entry that is damaged, truncated or of another key is
//! compiled anew and replaced. A lock of the directory lets one thread or process compile at a time. A refusal by the file system is not an
//! error: the module is then compiled without the cache.
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
/// File extensions of entries, and of temporary files that become entries.
const SUFFIX: &str = "module";
const UNFINISHED: &str = "unfinished";
/// Most entries that are kept, the last used ones.
const ENTRIES: usize = 8;
/// Age after which a temporary file is considered abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

type Key = [u8; 32];

static DIRECTORY: RwLock<Option<PathBuf>> = RwLock::new(None);

/// Sets the directory in which this process stores and finds compiled modules; `None`, the initial value: no cache.
///
/// A missing directory is created with access for its owner only. A directory that others may write to is not used, because they could make
/// this process execute their code. The newest eight entries are kept.
pub fn set_module_cache(directory: Option<PathBuf>) {
    *DIRECTORY.write().unwrap_or_else(PoisonError::into_inner) = directory;
}

/// Returns the default directory for [`set_module_cache`]. In this order:
///
/// 1. The value of `COPPICE_MODULE_CACHE`; if it is empty, `None`.
/// 2. `target/compiled` of the workspace that this program was built from, if it still exists.
/// 3. `coppice/compiled` in the user's cache directory (`XDG_CACHE_HOME`, or `.cache` at home).
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

/// Returns the compiled module, from the process's directory if possible.
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

/// Hashes the settings and the version of an engine for a key.
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

/// Returns the bytes before an entry's content.
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
        // A second thread or process waits here, then finds the first one's entry.
        let _lock = self.lock();
        if let Some(module) = self.load(engine, &key) {
            return Ok(module);
        }
        let module = Module::new(engine, wasm)?;
        if let Ok(content) = module.serialize() {
            // Without its entry the module works as well.
            let _ = self.store(&key, &content);
        }
        Ok(module)
    }

    /// Waits until no other thread or process compiles for this directory, because compiling takes all cores, and often many of them want
    /// the same module at once. The system releases the lock of a killed process.
    fn lock(&self) -> io::Result<File> {
        create(&self.directory)?;
        let directory = File::open(&self.directory)?;
        directory.lock()?;
        Ok(directory)
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(name).with_extension(SUFFIX)
    }

    /// Returns the module of this key, if its entry is intact.
    fn load(&self, engine: &Engine, key: &Key) -> Option<Module> {
        if !only_owner_can_write(&self.directory) {
            return None;
        }
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        let (found, content) = bytes.split_at_checked(HEADER)?;
        if found != header(key, content) {
            return None;
        }
        // SAFETY: The content must be unmodified output of `Module::serialize`. Its SHA-256 is in the header, so it is as written; it was
        // read into memory once, so it stays so. Only `store` writes entries, and only output of `Module::serialize`. The digest covers the
        // key, so the output belongs to this Wasm and to an engine of this version with these settings. The digest does not protect against
        // deliberate forgery; but only the directory's owner can write there, who could replace this program as well.
        let module = unsafe { Module::deserialize(engine, content) }.ok()?;
        // The entries used last are kept. If the time cannot be set, the entry is removed a little earlier.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(module)
    }

    fn store(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        create(&self.directory)?;
        if !only_owner_can_write(&self.directory) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // Removed on drop, unless persisted.
        let mut file = tempfile::Builder::new().suffix(&format!(".{UNFINISHED}")).tempfile_in(&self.directory)?;
        file.write_all(&header(key, content))?;
        file.write_all(content)?;
        file.persist(self.path(key))?;
        self.clear(key)
    }

    /// Removes the least recently used entries, except the one of this key, and temporary files left by killed processes.
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
    // Another process may have created it first.
    builder.recursive(true).create(directory)
}

#[cfg(unix)]
fn only_owner_can_write(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o022;
    fs::metadata(directory).is_ok_and(|found| found.is_dir() && found.mode() & OTHERS_WRITE == 0)
}

/// On other systems a new directory belongs to its owner.
#[cfg(not(unix))]
fn only_owner_can_write(directory: &Path) -> bool {
    directory.is_dir()
}

#[cfg(test)]
mod tests;

//! A file of blocks: its place, its obfuscation, and its form.

use crate::rules::{NetworkRules, header_of};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Extensions of the files that are read in a directory.
const EXTENSIONS: [&str; 3] = ["dat", "blk", "raw"];
/// The file with the obfuscation key.
const KEY_FILE: &str = "xor.dat";
/// Bytes at the beginning of a file that usually show its form.
const BEGINNING: u64 = 1 << 16;
/// An obfuscation key; all zeros for a plain file.
type Key = [u8; 8];

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Blocks, each behind this network's magic and its length.
    Framed(NetworkRules),
    /// One block.
    Raw,
    Zeros,
}

/// A file whose form is known.
#[derive(Clone, Debug)]
pub struct Source {
    pub path: Rc<Path>,
    pub form: Form,
    key: Key,
}

/// The bytes of a file.
pub struct Content {
    /// The bytes, without the obfuscation.
    pub bytes: Vec<u8>,
    /// The position of the zeros at the end: space that a node has reserved, which it does not obfuscate.
    pub zeros_from: usize,
}

/// Returns the files, and the `*.dat`, `*.blk` and `*.raw` files in the directories.
///
/// # Errors
/// When a path cannot be read, or a directory has no such file.
pub fn list(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let context = || format!("cannot read {}", path.display());
        if !fs::metadata(path).with_context(context)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in fs::read_dir(path).with_context(context)? {
            let file = entry.with_context(context)?.path();
            let named = file.extension().and_then(|e| e.to_str()).is_some_and(|e| EXTENSIONS.contains(&e));
            // Bitcoin Core keeps undo data and the key in the same directory.
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if named && name != KEY_FILE && !name.starts_with("rev") && file.is_file() {
                inside.push(file);
            }
        }
        ensure!(!inside.is_empty(), "{} has no *.dat, *.blk or *.raw files", path.display());
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}

/// Returns the key beside a file, or beside the target if the file is a link.
fn key_of(path: &Path) -> Result<Option<Key>> {
    let target = fs::canonicalize(path).with_context(|| format!("cannot read {}", path.display()))?;
    for key_file in [path, &target].map(|path| path.with_file_name(KEY_FILE)) {
        let is_absent = fs::symlink_metadata(&key_file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if !is_absent {
            let bytes = fs::read(&key_file).with_context(|| format!("cannot read {}", key_file.display()))?;
            let Ok(key) = bytes.as_slice().try_into() else {
                bail!("{} has {} bytes, and a key has 8", key_file.display(), bytes.len())
            };
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Removes the obfuscation from bytes that start at `offset` of their file.
fn apply(key: Key, offset: u64, bytes: &mut [u8]) {
    if key == Key::default() {
        return;
    }
    let phase = (offset % 8) as usize;
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= key[(at + phase) % 8]);
}

/// Returns the position of the first byte that is not zero.
fn start(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte != 0)
}

/// Returns the network of the first magic with a header behind it.
fn first_frame(bytes: &[u8]) -> Option<NetworkRules> {
    (0..bytes.len()).find_map(|at| {
        NetworkRules::of_magic(&bytes[at..]).filter(|_| bytes.get(at + 8..).and_then(header_of).is_some())
    })
}

impl Source {
    /// Finds out a file's form. Each file may be plain or obfuscated, whatever its neighbours are.
    ///
    /// # Errors
    /// When the file cannot be read, or has no form that is known.
    pub fn identify(path: &Path) -> Result<Self> {
        let key = key_of(path)?;
        let context = || format!("cannot read {}", path.display());
        let mut beginning = Vec::new();
        File::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning)).with_context(context)?;
        let of = |bytes: &[u8], form: fn(&[u8]) -> Option<Form>| {
            key.into_iter().chain([Key::default()]).find_map(|key| {
                let mut plain = bytes.to_vec();
                apply(key, 0, &mut plain);
                form(&plain).map(|form| Self { path: path.into(), form, key })
            })
        };
        let magic = |bytes: &[u8]| NetworkRules::of_magic(&bytes[start(bytes)?..]).map(Form::Framed);
        let raw = |bytes: &[u8]| header_of(bytes).map(|_| Form::Raw);
        let zeros = |bytes: &[u8]| start(bytes).is_none().then_some(Form::Zeros);
        if let Some(source) = of(&beginning, magic).or_else(|| of(&beginning, raw)) {
            return Ok(source);
        }
        let whole = fs::read(path).with_context(context)?;
        let found = of(&whole, zeros)
            .or_else(|| of(&whole, magic))
            .or_else(|| of(&whole, |bytes| first_frame(bytes).map(Form::Framed)));
        let Some(source) = found else {
            let path = path.display();
            bail!(match key {
                None => format!(
                    "{path} has no block and no magic of a network that is known: the file is probably obfuscated; put the node's \
                     {KEY_FILE} beside the file"
                ),
                Some(_) => format!(
                    "{path} has no block and no magic of a network that is known, with the key in {KEY_FILE} and without: name the \
                     {KEY_FILE} of the node that wrote the file, or leave the file out"
                ),
            });
        };
        Ok(source)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self) -> Result<Content> {
        let mut bytes = fs::read(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        let zeros_from = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        apply(self.key, 0, &mut bytes);
        Ok(Content { bytes, zeros_from })
    }

    /// Reads some bytes of the file.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = vec![0; len];
        file.read_exact(&mut bytes)?;
        apply(self.key, offset, &mut bytes);
        Ok(bytes)
    }
}

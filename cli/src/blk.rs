//! Bitcoin blocks in files: `blk*.dat`, as Bitcoin Core writes them, or one raw block per file.
//!
//! ```text
//! blk*.dat = (magic f9beb4d9 ‖ u32 LE length ‖ block)*, zeros between blocks and after the last one
//! ```
//! A scan keeps the header and the position of each block, not its bytes, so that any number of files can be scanned. If Bitcoin Core
//! obfuscated the files, `xor.dat` in the same directory holds the key.

use anyhow::{Context, Result, bail, ensure};
use bitcoin::consensus::Decodable;
use bitcoin::{Block, BlockHash, block::Header};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Magic before each mainnet block in a file.
pub const MAGIC: [u8; 4] = [0xF9, 0xBE, 0xB4, 0xD9];
/// Bytes of magic and length.
const FRAME: usize = 8;
/// Bytes of the shortest block: a header and the transaction count.
const MIN_BLOCK: usize = 81;
/// The longest block that the scan accepts, in bytes; mainnet's limit is 4,000,000.
const MAX_BLOCK: usize = 256 << 20;
/// Extensions of the files that are scanned in a directory.
const EXTENSIONS: [&str; 3] = ["dat", "blk", "raw"];
/// The file with the obfuscation key.
const KEY_FILE: &str = "xor.dat";
type Key = [u8; 8];

/// A block in a file.
#[derive(Clone, Debug)]
pub struct Found {
    /// The file.
    pub file: Rc<Path>,
    /// Bytes from the start of the file to the first byte of the block.
    pub offset: u64,
    /// Bytes of the block.
    pub len: usize,
    /// The header.
    pub header: Header,
    /// The hash.
    pub hash: BlockHash,
    key: Key,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// The blocks, in the order of files and positions.
    pub blocks: Vec<Found>,
    /// Skipped parts, one sentence each.
    pub notes: Vec<String>,
}

/// Finds the blocks in files, and in the `*.dat`, `*.blk` and `*.raw` files of directories.
///
/// # Errors
/// When a file cannot be read or is of another network, or when there is no block.
pub fn scan(paths: &[PathBuf]) -> Result<Scan> {
    let mut scan = Scan::default();
    for path in files(paths)? {
        let key = key_of(&path)?;
        let mut bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        apply(key, 0, &mut bytes);
        let before = (scan.blocks.len(), scan.notes.len());
        scan.file(&path, key, &bytes)?;
        if before == (scan.blocks.len(), scan.notes.len()) {
            scan.notes.push(format!("{}: the file holds only zeros", path.display()));
        }
    }
    ensure!(
        !scan.blocks.is_empty(),
        "no block was found{}",
        scan.notes.iter().map(|n| format!("; {n}")).collect::<String>()
    );
    Ok(scan)
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
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

fn key_of(path: &Path) -> Result<Key> {
    let is_blk = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("blk"));
    let key_file = path.with_file_name(KEY_FILE);
    if !is_blk || !key_file.is_file() {
        return Ok(Key::default());
    }
    let bytes = fs::read(&key_file).with_context(|| format!("cannot read {}", key_file.display()))?;
    let key = bytes.as_slice().try_into();
    key.ok().with_context(|| format!("{} has {} bytes; a key must have 8", key_file.display(), bytes.len()))
}

/// Removes the obfuscation from bytes that start at `offset` of their file.
fn apply(key: Key, offset: u64, bytes: &mut [u8]) {
    if key == Key::default() {
        return;
    }
    let phase = (offset % 8) as usize;
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= key[(at + phase) % 8]);
}

/// Returns the network of a magic that is not mainnet's.
fn other_network(magic: &[u8]) -> Option<&'static str> {
    match magic {
        [0x0B, 0x11, 0x09, 0x07] => Some("testnet3"),
        [0x1C, 0x16, 0x3F, 0x28] => Some("testnet4"),
        [0x0A, 0x03, 0xCF, 0x40] => Some("signet"),
        [0xFA, 0xBF, 0xB5, 0xDA] => Some("regtest"),
        _ => None,
    }
}

fn header_of(bytes: &[u8]) -> Option<Header> {
    // Because of the proof of work, random bytes practically never pass as a header.
    let header = Header::consensus_decode(&mut bytes.get(..80)?).ok()?;
    header.validate_pow(header.target()).is_ok().then_some(header)
}

impl Scan {
    fn file(&mut self, path: &Path, key: Key, bytes: &[u8]) -> Result<()> {
        let file: Rc<Path> = path.into();
        let name = path.display();
        let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len());
        if let Some(network) = bytes.get(start..start + 4).and_then(other_network) {
            bail!("{name} holds blocks of {network}; only mainnet blocks can be read");
        }
        if !bytes[start..].starts_with(&MAGIC) && header_of(bytes).is_some() {
            // One raw block: check that it is complete before anything is appended.
            parse(bytes).with_context(|| format!("{name} begins like a raw block"))?;
            self.add(&file, key, 0, bytes);
            return Ok(());
        }
        let mut at = start;
        while let Some(frame) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some(len) = length(frame) {
                let offset = at + FRAME;
                let Some(block) = bytes.get(offset..offset + len) else {
                    let rest = bytes.len() - offset;
                    self.notes
                        .push(format!("{name}: the block at byte {at} is cut off: {rest} of {len} bytes are there"));
                    return Ok(());
                };
                if header_of(block).is_some() {
                    self.add(&file, key, offset as u64, block);
                    at = offset + len;
                    at += bytes[at..].iter().take_while(|&&byte| byte == 0).count();
                    continue;
                }
            }
            let skip = frame[1..].windows(4).position(|bytes| bytes == MAGIC).map_or(frame.len(), |skip| skip + 1);
            let end = if at + skip == bytes.len() { "the rest of the file" } else { "skipped" };
            self.notes.push(format!("{name}: {skip} bytes from byte {at} on are not a block: {end}"));
            at += skip;
        }
        Ok(())
    }

    fn add(&mut self, file: &Rc<Path>, key: Key, offset: u64, block: &[u8]) {
        if let Some(header) = header_of(block) {
            let file = Rc::clone(file);
            self.blocks.push(Found { file, offset, len: block.len(), header, hash: header.block_hash(), key });
        }
    }
}

/// Returns the length in a frame's head, if the bytes are a frame.
fn length(frame: &[u8]) -> Option<usize> {
    let rest = frame.strip_prefix(&MAGIC)?;
    let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
    (MIN_BLOCK..=MAX_BLOCK).contains(&length).then_some(length)
}

fn parse(raw: &[u8]) -> Result<Block> {
    let block: Block = bitcoin::consensus::deserialize(raw).context("the block cannot be decoded")?;
    ensure!(
        block.check_merkle_root(),
        "the block is damaged: its transactions do not match the Merkle root in its header"
    );
    Ok(block)
}

impl Found {
    /// Reads the block's bytes and decodes them.
    ///
    /// # Errors
    /// When the file cannot be read, or the block is damaged.
    pub fn load(&self) -> Result<(Vec<u8>, Block)> {
        let context = || format!("block {} at byte {} of {}", self.hash, self.offset, self.file.display());
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.file)?;
            file.seek(SeekFrom::Start(self.offset))?;
            let mut raw = vec![0; self.len];
            file.read_exact(&mut raw)?;
            Ok(raw)
        };
        let mut raw = read().with_context(context)?;
        apply(self.key, self.offset, &mut raw);
        let block = parse(&raw).with_context(context)?;
        Ok((raw, block))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bitcoin::constants::genesis_block;
    use bitcoin::hashes::Hash;
    use bitcoin::{CompactTarget, Network, TxMerkleNode};

    /// A block on a parent, with the least possible work; another `salt` makes another block.
    pub(crate) fn child(parent: BlockHash, salt: u32) -> Block {
        let mut block = genesis_block(Network::Regtest);
        block.header.prev_blockhash = parent;
        block.header.bits = CompactTarget::from_consensus(0x207F_FFFF);
        block.txdata[0].lock_time = bitcoin::absolute::LockTime::from_consensus(salt);
        block.header.merkle_root = block.compute_merkle_root().unwrap_or(TxMerkleNode::all_zeros());
        block.header.nonce = 0;
        while block.header.validate_pow(block.header.target()).is_err() {
            block.header.nonce += 1;
        }
        block
    }

    pub(crate) fn framed(blocks: &[Block]) -> Vec<u8> {
        let frame = |block: &Block| {
            let raw = bitcoin::consensus::serialize(block);
            [&MAGIC[..], &(raw.len() as u32).to_le_bytes(), &raw].concat()
        };
        blocks.iter().flat_map(frame).collect()
    }

    fn scanned(bytes: &[u8]) -> Result<Scan> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("blk00000.dat");
        fs::write(&path, bytes)?;
        scan(&[path])
    }

    fn two() -> [Block; 2] {
        let first = child(BlockHash::all_zeros(), 1);
        let second = child(first.block_hash(), 2);
        [first, second]
    }

    #[test]
    fn zeros_between_and_after_blocks_are_skipped() {
        let [first, second] = two();
        let bytes =
            [framed(std::slice::from_ref(&first)), vec![0; 13], framed(std::slice::from_ref(&second)), vec![0; 9]];
        let scan = scanned(&bytes.concat()).unwrap();
        assert_eq!(
            scan.blocks.iter().map(|found| found.hash).collect::<Vec<_>>(),
            [first, second].map(|b| b.block_hash())
        );
        assert!(scan.notes.is_empty(), "{:?}", scan.notes);
    }

    #[test]
    fn cut_off_tail_and_rubbish_are_noted() {
        let bytes = framed(&two());
        let scan = scanned(&bytes[..bytes.len() - 10]).unwrap();
        assert_eq!((scan.blocks.len(), scan.notes.len()), (1, 1));
        assert!(scan.notes[0].contains("cut off"), "{:?}", scan.notes);
        let scan = scanned(&[framed(&two()[..1]), b"rubbish".to_vec(), framed(&two()[1..])].concat()).unwrap();
        assert_eq!((scan.blocks.len(), scan.notes.len()), (2, 1));
        assert!(scan.notes[0].contains("7 bytes"), "{:?}", scan.notes);
        let error = format!("{:#}", scanned(b"not a block").unwrap_err());
        assert!(error.contains("no block was found") && error.contains("11 bytes"), "{error}");
        assert!(scanned(&[0; 100]).is_err());
    }

    #[test]
    fn file_of_another_network_is_refused_by_name() {
        let bytes = [&[0x0A, 0x03, 0xCF, 0x40][..], &[0; 200]].concat();
        assert!(format!("{:#}", scanned(&bytes).unwrap_err()).contains("signet"));
    }

    #[test]
    fn raw_blocks_and_directories_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = two();
        fs::write(dir.path().join("a.raw"), bitcoin::consensus::serialize(&second)).unwrap();
        fs::write(dir.path().join("b.blk"), framed(std::slice::from_ref(&first))).unwrap();
        fs::write(dir.path().join("rev00000.dat"), b"undo data").unwrap();
        fs::write(dir.path().join("notes.txt"), b"notes").unwrap();
        let scan = scan(&[dir.path().to_path_buf()]).unwrap();
        assert_eq!(
            scan.blocks.iter().map(|found| found.hash).collect::<Vec<_>>(),
            [second.block_hash(), first.block_hash()]
        );
        let (raw, block) = scan.blocks[0].load().unwrap();
        assert_eq!((raw, &block), (bitcoin::consensus::serialize(&second), &second));
        let cut = bitcoin::consensus::serialize(&second);
        assert!(format!("{:#}", scanned(&cut[..cut.len() - 1]).unwrap_err()).contains("raw block"));
    }

    #[test]
    fn obfuscated_files_are_read_with_their_key() {
        let dir = tempfile::tempdir().unwrap();
        let (key, path) = ([1, 2, 3, 4, 5, 6, 7, 8], dir.path().join("blk00000.dat"));
        let mut bytes = framed(&two());
        apply(key, 0, &mut bytes);
        fs::write(&path, &bytes).unwrap();
        fs::write(dir.path().join(KEY_FILE), key).unwrap();
        let scan = scan(&[dir.path().to_path_buf()]).unwrap();
        assert_eq!(scan.blocks[1].load().unwrap().1, two()[1]);
        fs::write(dir.path().join(KEY_FILE), b"short").unwrap();
        assert!(super::scan(&[path]).is_err());
    }

    #[test]
    fn damaged_block_is_refused_on_load() {
        let mut bytes = framed(&two());
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blk00000.dat");
        fs::write(&path, bytes).unwrap();
        let scan = scan(&[path]).unwrap();
        scan.blocks[0].load().unwrap();
        assert!(format!("{:#}", scan.blocks[1].load().unwrap_err()).contains("damaged"));
    }
}

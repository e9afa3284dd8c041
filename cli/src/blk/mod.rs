//! Bitcoin blocks in files: `blk*.dat`, as Bitcoin Core writes them, or one raw block per file.
//!
//! ```text
//! blk*.dat = (magic ‖ u32 LE length ‖ block)*, zeros between blocks and after the last one
//! ```
//! A scan keeps the header and the position of each block, not its bytes, so that any number of files can be scanned. If Bitcoin Core
//! obfuscated the files, `xor.dat` in the same directory holds the key. The magic names the network, by whose [rules](crate::rules) each
//! block is checked.
//!
//! - `file`: a file's place, key and form
//! - `scan`: the blocks of all files
//! - `frames`: the blocks of a file

mod file;
mod frames;
mod scan;

pub use scan::{Foreign, Found, Scan};

use crate::rules::NetworkRules;
use anyhow::{Result, bail, ensure};
use file::{Form, Source};
use frames::Frames;
use std::path::PathBuf;
use std::rc::Rc;

/// Finds the blocks in files, and in the `*.dat`, `*.blk` and `*.raw` files of directories, and checks each by the rules of the network
/// that the files' magic names, or by other `rules`.
///
/// # Errors
/// If a file cannot be read, or its network is unknown or differs from the first file's; if there is no block.
pub fn scan(paths: &[PathBuf], rules: Option<NetworkRules>) -> Result<Scan> {
    let files = file::list(paths)?;
    let sources = files.iter().map(|path| Source::identify(path).map(Rc::new)).collect::<Result<Vec<_>>>()?;
    let rules = match rules {
        Some(rules) => rules,
        None => network_of(&sources)?,
    };
    let mut scan = Scan::new(rules);
    for source in sources {
        let content = source.read()?;
        let path = Rc::clone(&source.path);
        let has_header = Frames::new(&mut scan, source, rules).read(&content)?;
        let notes = || scan.notes.last().map(|note| format!(": {note}")).unwrap_or_default();
        ensure!(has_header, "{} has no block{}; leave the file out, or get it anew", path.display(), notes());
    }
    let is_good = |found: &Found| found.fault.is_none();
    let notes = || scan.notes.iter().map(|note| format!("; {note}")).collect::<String>();
    ensure!(scan.blocks.iter().any(is_good), "no block was found{}", notes());
    Ok(scan)
}

/// Returns the network of all files, which is mainnet if no file has a magic.
fn network_of(sources: &[Rc<Source>]) -> Result<NetworkRules> {
    let mut first: Option<(&Source, NetworkRules)> = None;
    for source in sources {
        let Form::Framed(network) = source.form else { continue };
        let &mut (other, expected) = first.get_or_insert((source, network));
        if network != expected {
            let [path, other] = [source, other].map(|source| source.path.display());
            bail!("{path} has the magic of {network}, but {other} that of {expected}; name the files of one network");
        }
    }
    Ok(first.map_or(NetworkRules::Mainnet, |(_, network)| network))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::exit::why;
    use crate::rules::Fault;
    use bitcoin::consensus::serialize;
    use bitcoin::constants::genesis_block;
    use bitcoin::hashes::Hash;
    use bitcoin::{Block, BlockHash, CompactTarget, Network, TxMerkleNode};
    use std::fs;

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

    /// Returns blocks in the format of regtest's `blk*.dat`.
    pub(crate) fn framed(blocks: &[Block]) -> Vec<u8> {
        let frame = |block: &Block| {
            let raw = serialize(block);
            [&NetworkRules::Regtest.magic()[..], &(raw.len() as u32).to_le_bytes(), &raw].concat()
        };
        blocks.iter().flat_map(frame).collect()
    }

    fn scanned(bytes: &[u8]) -> Result<Scan> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("blk00000.dat");
        fs::write(&path, bytes)?;
        scan(&[path], None)
    }

    fn two() -> [Block; 2] {
        let first = child(BlockHash::all_zeros(), 1);
        let second = child(first.block_hash(), 2);
        [first, second]
    }

    fn hashes(scan: &Scan) -> Vec<BlockHash> {
        scan.blocks.iter().map(|found| found.hash).collect()
    }

    #[test]
    fn zeros_between_and_after_blocks_are_skipped() {
        let [first, second] = two();
        let bytes =
            [framed(std::slice::from_ref(&first)), vec![0; 13], framed(std::slice::from_ref(&second)), vec![0; 9]];
        let scan = scanned(&bytes.concat()).unwrap();
        assert_eq!(hashes(&scan), [first, second].map(|block| block.block_hash()));
        assert!(scan.notes.is_empty(), "{:?}", scan.notes);
    }

    #[test]
    fn cut_off_tail_and_rubbish_are_noted_once() {
        let bytes = framed(&two());
        let scan = scanned(&bytes[..bytes.len() - 10]).unwrap();
        assert_eq!((scan.blocks[0].fault, scan.blocks[1].fault), (None, Some(Fault::Undecodable)));
        assert!(scan.notes.len() == 1 && scan.notes[0].contains("cut off"), "{:?}", scan.notes);
        let scan = scanned(&[framed(&two()[..1]), b"rubbish".to_vec(), framed(&two()[1..])].concat()).unwrap();
        assert_eq!((scan.blocks.len(), scan.notes.len()), (2, 1));
        assert!(scan.notes[0].contains("7 bytes"), "{:?}", scan.notes);
        // Also before the first magic.
        let scan = scanned(&[b"rubbish".to_vec(), framed(&two())].concat()).unwrap();
        assert_eq!((scan.blocks.len(), scan.notes.len()), (2, 1));
        let headless = [&NetworkRules::Regtest.magic()[..], &[9; 200]].concat();
        for (bytes, part) in [
            (&b"not a block"[..], "xor.dat"),
            (&headless, "has no block"),
            (&[0; 100], "the file holds only zeros"),
            (&[], "the file is empty"),
        ] {
            let error = format!("{:#}", scanned(bytes).unwrap_err());
            assert!(error.contains(part) && error.contains("blk00000.dat"), "{error}");
        }
    }

    #[test]
    fn blocks_own_length_counts_and_frames_are_compared_with_it() {
        let (bytes, len) = (framed(&two()), framed(&two()[..1]).len());
        let states = |length: u32, more: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
            bytes.splice(len..len, more.iter().copied());
            scanned(&bytes).unwrap()
        };
        let right = (len - 8) as u32;
        assert!(states(right, &[]).notes.is_empty());
        for (length, more) in
            [(right + 4, &[1, 2, 3, 4][..]), (right + 4, &[]), (0, &[]), (1, &[]), (right - 1, &[]), (u32::MAX, &[])]
        {
            let scan = states(length, more);
            let good = scan.blocks.iter().all(|found| found.fault.is_none());
            assert!(good && scan.blocks.len() == 2 && scan.notes.len() == 1, "{length}: {:?}", scan.notes);
        }
    }

    #[test]
    fn magic_names_the_network_and_rules_override_it() {
        let dir = tempfile::tempdir().unwrap();
        let [regtest, signet] = ["a.blk", "b.blk"].map(|name| dir.path().join(name));
        fs::write(&regtest, framed(&two())).unwrap();
        let mut bytes = framed(&two());
        bytes[..4].copy_from_slice(&NetworkRules::Signet.magic());
        fs::write(&signet, bytes).unwrap();
        assert_eq!(scan(std::slice::from_ref(&regtest), None).unwrap().rules, NetworkRules::Regtest);
        let error = scan(&[regtest.clone(), signet.clone()], None).unwrap_err().to_string();
        assert!(error.contains("magic of signet") && error.contains("that of regtest"), "{error}");
        let error = scan(std::slice::from_ref(&signet), None).unwrap_err().to_string();
        assert!(error.contains("easier than signet allows") && error.contains("--network-rules"), "{error}");
        let scan = scan(&[signet], Some(NetworkRules::Regtest)).unwrap();
        assert_eq!((scan.blocks.len(), scan.rules), (1, NetworkRules::Regtest));
    }

    #[test]
    fn raw_blocks_and_directories_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = two();
        fs::write(dir.path().join("a.raw"), serialize(&second)).unwrap();
        fs::write(dir.path().join("b.blk"), framed(std::slice::from_ref(&first))).unwrap();
        fs::write(dir.path().join("rev00000.dat"), b"undo data").unwrap();
        fs::write(dir.path().join("notes.txt"), b"notes").unwrap();
        let scan = scan(&[dir.path().to_path_buf()], None).unwrap();
        assert_eq!(hashes(&scan), [second.block_hash(), first.block_hash()]);
        let (raw, block) = scan.blocks[0].load().unwrap();
        assert_eq!((raw, &block), (serialize(&second), &second));
        let real = bitcoin_test_data::blocks::mainnet_702861();
        assert!(scanned(real).unwrap().notes.is_empty());
        let error = scanned(&real[..real.len() - 1]).unwrap_err().to_string();
        assert!(error.contains("no block was found") && error.contains("cut off"), "{error}");
        let longer = scanned(&[real, &[7; 3]].concat()).unwrap();
        assert!(longer.notes.len() == 1 && longer.notes[0].contains("3 bytes"), "{:?}", longer.notes);
    }

    #[test]
    fn each_file_is_read_with_its_key_or_without() {
        let (key, dir) = ([1, 2, 3, 4, 5, 6, 7, 8], tempfile::tempdir().unwrap());
        let [first, second] = two();
        let path = |name: &str| dir.path().join(name);
        let mut bytes = framed(std::slice::from_ref(&first));
        bytes.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        // Space that the node has reserved is not obfuscated.
        bytes.extend([0; 50]);
        fs::write(path("any.dat"), &bytes).unwrap();
        let files = [dir.path().to_path_buf()];
        let error = scan(&files, None).unwrap_err().to_string();
        assert!(
            error.contains("probably obfuscated") && error.contains("any.dat") && error.contains("xor.dat"),
            "{error}"
        );
        fs::write(path("xor.dat"), [9; 8]).unwrap();
        let error = scan(&files, None).unwrap_err().to_string();
        assert!(error.contains("any.dat") && error.contains("xor.dat"), "{error}");
        fs::write(path("xor.dat"), key).unwrap();
        fs::write(path("plain.dat"), framed(std::slice::from_ref(&second))).unwrap();
        let read = scan(&files, None).unwrap();
        assert_eq!((hashes(&read), read.notes.len()), (vec![first.block_hash(), second.block_hash()], 0));
        assert_eq!([0, 1].map(|at: usize| read.blocks[at].load().unwrap().1), [first, second]);
        let key_file = path("xor.dat");
        for length in [0, 7, 9] {
            fs::write(&key_file, &[9; 9][..length]).unwrap();
            let expected = format!("{} has {length} bytes, and a key has 8", key_file.display());
            assert_eq!(why(&scan(&files, None).unwrap_err()), expected);
        }
        fs::remove_file(&key_file).unwrap();
        fs::create_dir(&key_file).unwrap();
        let expected = format!("cannot read {}: Is a directory (os error 21)", key_file.display());
        assert_eq!(why(&scan(&files, None).unwrap_err()), expected);
    }

    #[cfg(unix)]
    #[test]
    fn links_key_is_found_beside_its_target() {
        let (key, dir) = ([1, 2, 3, 4, 5, 6, 7, 8], tempfile::tempdir().unwrap());
        let (node, links) = (dir.path().join("node"), dir.path().join("links"));
        [&node, &links].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
        let mut bytes = framed(&two());
        bytes.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        fs::write(node.join("blk00000.dat"), bytes).unwrap();
        fs::write(node.join("xor.dat"), key).unwrap();
        std::os::unix::fs::symlink("../node/blk00000.dat", links.join("first.dat")).unwrap();
        let read = scan(&[links], None).unwrap();
        assert_eq!(read.blocks.len(), 2);
        read.blocks[1].load().unwrap();
    }

    #[test]
    fn file_with_bytes_in_another_form_is_named() {
        let key = [1, 2, 3, 4, 5, 6, 7, 8];
        let obfuscated = |offset: usize, bytes: &[u8]| -> Vec<u8> {
            bytes.iter().zip(offset..).map(|(byte, at)| byte ^ key[at % 8]).collect()
        };
        let [first, second] = two().map(|block| framed(&[block]));
        let mut signet = second.clone();
        signet[..4].copy_from_slice(&NetworkRules::Signet.magic());
        let at = first.len();
        let junk = |stated: u32, bytes: usize| -> Vec<u8> {
            [&NetworkRules::Regtest.magic()[..], &stated.to_le_bytes(), &vec![7; bytes]].concat()
        };
        let foreign = |at, bytes| Some((at, bytes));
        for (what, bytes, expected) in [
            ("the end is obfuscated", [&first[..], &obfuscated(at, &second)].concat(), foreign(at, second.len())),
            ("the beginning is obfuscated", [&obfuscated(0, &first)[..], &second].concat(), foreign(0, at)),
            (
                "the end is of another network",
                [&first[..], &signet, &[7], &[0; 50]].concat(),
                foreign(at, signet.len() + 1),
            ),
            ("a block without a frame", [&first[..], &second[8..], &[7]].concat(), foreign(at, second.len() - 7)),
            ("88 bytes", [&first[..], &[7; 88], &second].concat(), None),
            ("89 bytes", [&first[..], &[7; 89], &second].concat(), foreign(at, 89)),
            ("a frame without a block", [&first[..], &second, &junk(200, 200)].concat(), None),
            ("a frame that is cut off", [&first[..], &second, &junk(200, 100)].concat(), None),
            ("more than the frame states", [&first[..], &second, &junk(200, 300)].concat(), foreign(2 * at + 208, 100)),
        ] {
            let scan = scanned(&bytes).unwrap();
            let found = scan.foreign.as_ref().map(|foreign| (foreign.at, foreign.bytes));
            assert_eq!((found, scan.notes.len()), (expected, 1), "{what}: {:?}", scan.notes);
        }
        // The key of the file does not help its plain end.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blk00000.dat");
        fs::write(dir.path().join("xor.dat"), key).unwrap();
        fs::write(&path, [&obfuscated(0, &first)[..], &second, &[7]].concat()).unwrap();
        let half = scan(std::slice::from_ref(&path), None).unwrap();
        let expected = format!(
            "{}: {} bytes from byte {at} on are not blocks of regtest and are left out; they may be blocks of another network, or obfuscated \
             differently. Get the file anew, or remove these bytes if they are not blocks",
            path.display(),
            second.len() + 1
        );
        assert_eq!((half.blocks.len(), half.foreign.map(|foreign| foreign.to_string())), (1, Some(expected)));
        // A raw block, and another one behind it.
        let real = bitcoin_test_data::blocks::mainnet_702861();
        let twice = scanned(&[real, real, &[7]].concat()).unwrap();
        assert_eq!(twice.foreign.map(|foreign| (foreign.at, foreign.bytes)), Some((real.len(), real.len() + 1)));
    }

    /// Blocks whose first script claims all bytes up to the end of the file, and so on within it.
    #[test]
    fn blocks_that_claim_the_rest_of_the_file_are_examined_a_bounded_number_of_times() {
        let hungry = |salt: u32| {
            let mut bytes = serialize(&child(BlockHash::all_zeros(), salt));
            // The header, one transaction, its version, one input without a parent, and a script of 2³¹ bytes.
            bytes.truncate(80 + 1 + 4 + 1 + 36);
            bytes.extend([0xFE, 0, 0, 0, 0x80]);
            [&NetworkRules::Regtest.magic()[..], &(bytes.len() as u32).to_le_bytes(), &bytes].concat()
        };
        let many: Vec<u8> = (1_000..5_000).flat_map(hungry).collect();
        let error = scanned(&many).unwrap_err().to_string();
        let examined = error.split_once("too many blocks are damaged: ").unwrap().1.split_once(" bytes").unwrap().0;
        let examined: usize = examined.replace(',', "").parse().unwrap();
        let most = 16 * (many.len() + (1 << 20));
        assert!((most..most + many.len()).contains(&examined) && error.contains("blk00000.dat"), "{error}");
        // A few of them cost no good block.
        let few = many[..40 * many.len() / 4_000].to_vec();
        let scan = scanned(&[few, framed(&two())].concat()).unwrap();
        assert_eq!(scan.blocks.iter().filter(|found| found.fault.is_none()).count(), 2);
        assert_eq!(scan.blocks.len(), 42);
    }

    #[test]
    fn good_copy_replaces_a_bad_one_in_any_order() {
        let (good, mut bad) = (framed(&two()[1..]), framed(&two()[1..]));
        let last = bad.len() - 1;
        bad[last] ^= 1;
        let first = framed(&two()[..1]);
        for (copies, duplicates) in [([&bad, &good], 0), ([&good, &bad], 0), ([&good, &good], 1)] {
            let scan = scanned(&[&first, copies[0], copies[1]].map(|bytes| &bytes[..]).concat()).unwrap();
            assert!(scan.blocks.len() == 2 && scan.blocks[1].fault.is_none(), "{:?}", scan.notes);
            assert_eq!((scan.duplicates, scan.notes.len()), (duplicates, 1 - duplicates));
        }
        let scan = scanned(&[&first[..], &bad, &bad].concat()).unwrap();
        assert_eq!((scan.blocks[1].fault, scan.notes.len()), (Some(Fault::Damaged), 2));
    }

    #[test]
    fn file_that_changed_after_the_scan_is_refused_on_load() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blk00000.dat");
        fs::write(&path, framed(&two())).unwrap();
        let found = scan(std::slice::from_ref(&path), None).unwrap().blocks.remove(1);
        found.load().unwrap();
        let mut bytes = framed(&two());
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(format!("{:#}", found.load().unwrap_err()).contains("damaged"));
        fs::write(&path, b"short").unwrap();
        assert!(format!("{:#}", found.load().unwrap_err()).contains("blk00000.dat"));
    }
}

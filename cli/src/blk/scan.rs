//! The blocks of a scan: each once, in the best of its copies.

use super::file::Source;
use crate::rules::{Fault, NetworkRules};
use anyhow::{Context, Result, ensure};
use bitcoin::{Block, BlockHash, block::Header};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::rc::Rc;

/// A block in a file.
#[derive(Clone, Debug)]
pub struct Found {
    pub(super) source: Rc<Source>,
    /// Bytes from the start of the file to the first byte of the block.
    pub offset: u64,
    /// Bytes of the block; 0 for a block without a good copy.
    pub len: usize,
    pub header: Header,
    pub hash: BlockHash,
    pub(super) rules: NetworkRules,
    /// The reason why no copy of the block is good, if none is.
    pub fault: Option<Fault>,
}

/// Bytes of a file, where a block should begin, that are none in the file's form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}: {bytes} bytes from byte {at} on are not blocks of {rules} and are left out; they may be blocks of another network, or \
     obfuscated differently. Get the file anew, or remove these bytes if they are not blocks"
)]
pub struct Foreign {
    pub file: String,
    /// Their position.
    pub at: usize,
    /// Their number.
    pub bytes: usize,
    /// The network of the file.
    pub rules: NetworkRules,
}

/// The result of a scan.
#[derive(Debug)]
pub struct Scan {
    /// The network whose rules the blocks pass.
    pub rules: NetworkRules,
    /// The blocks, each once, in the order of files and positions.
    pub blocks: Vec<Found>,
    /// Good copies of blocks that have another one.
    pub duplicates: usize,
    /// Skipped parts, one sentence each.
    pub notes: Vec<String>,
    /// The first place, as file and byte, that may have held a block of which not even the header is left.
    pub lost: Option<(Rc<Path>, usize)>,
    /// The first bytes that may be blocks in another form.
    pub foreign: Option<Foreign>,
    by_hash: HashMap<BlockHash, usize>,
}

impl Scan {
    pub fn new(rules: NetworkRules) -> Self {
        Self {
            rules,
            blocks: Vec::new(),
            duplicates: 0,
            notes: Vec::new(),
            lost: None,
            foreign: None,
            by_hash: HashMap::new(),
        }
    }

    /// Adds a block. A good copy replaces one that is not good.
    pub(super) fn add(&mut self, found: Found) {
        match self.by_hash.entry(found.hash) {
            Entry::Vacant(entry) => {
                entry.insert(self.blocks.len());
                self.blocks.push(found);
            }
            Entry::Occupied(entry) if found.fault.is_none() => {
                let there = &mut self.blocks[*entry.get()];
                self.duplicates += usize::from(there.fault.is_none());
                if there.fault.is_some() {
                    *there = found;
                }
            }
            Entry::Occupied(_) => {}
        }
    }
}

impl Found {
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Returns the block's place in words.
    pub fn place(&self) -> String {
        format!("at byte {} of {}", self.offset, self.path().display())
    }

    /// Reads the block's bytes and decodes them.
    ///
    /// # Errors
    /// When the file cannot be read, or the block is not good any more.
    pub fn load(&self) -> Result<(Vec<u8>, Block)> {
        let context = || format!("block {} {}", self.hash, self.place());
        let raw = self.source.read_at(self.offset, self.len).with_context(context)?;
        let block: Block =
            bitcoin::consensus::deserialize(&raw).map_err(|_| Fault::Undecodable).with_context(context)?;
        ensure!(block.block_hash() == self.hash, "{}: the file has changed since it was scanned", context());
        self.rules.check(&block).with_context(context)?;
        Ok((raw, block))
    }
}

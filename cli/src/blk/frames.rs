//! Scan of a file: finds each block, and checks the block at once.
//!
//! A torn frame must not hide the blocks after it. So a block's own length counts, not that of its frame, and after anything that is not
//! a good block the scan goes on at the next magic. A block that fails may claim all bytes up to the end of the file, and so may the next one
//! within it. So the bytes that are examined in vain are bounded.

use super::file::{Content, Form, Source};
use super::scan::{Foreign, Found, Scan};
use crate::report::{blocks, bytes as size};
use crate::rules::{Fault, NetworkRules, header_of};
use anyhow::{Result, ensure};
use bitcoin::block::Header;
use bitcoin::consensus::Decodable;
use bitcoin::io::Cursor;
use bitcoin::{Block, BlockHash};
use std::rc::Rc;

/// Bytes of magic and length.
const FRAME: usize = 8;
/// Bytes of the shortest frame: with a header and the number of transactions.
const SHORTEST: usize = FRAME + BLOCK;
/// Bytes of a header and the number of transactions.
const BLOCK: usize = 81;
/// Bytes that are examined in vain, at most: this many times the length of the file, and of a mebibyte more.
const IN_VAIN: u64 = 16;

/// The contents of a frame.
enum Contents {
    /// No header with its work.
    Nothing,
    /// A block whose target is above the network's limit.
    Easy(Header),
    /// A block with its length; or the reason why it is not a good one, and the bytes that were examined.
    Block(Header, Result<usize, (Fault, u64)>),
}

/// Decodes and checks the block at the beginning of some bytes.
fn contents(rules: NetworkRules, bytes: &[u8]) -> Contents {
    let Some(header) = header_of(bytes) else { return Contents::Nothing };
    if !rules.allows(&header) {
        return Contents::Easy(header);
    }
    let mut reader = Cursor::new(bytes);
    let checked = match Block::consensus_decode_from_finite_reader(&mut reader) {
        Ok(block) => rules.check(&block),
        Err(_) => Err(Fault::Undecodable),
    };
    let examined = reader.position();
    Contents::Block(header, checked.map(|()| examined as usize).map_err(|fault| (fault, examined)))
}

/// A file that is being scanned.
pub struct Frames<'a> {
    scan: &'a mut Scan,
    source: Rc<Source>,
    rules: NetworkRules,
    headers: u64,
    /// Blocks above the network's limit, and the first of them with its position.
    easy: (u64, Option<(BlockHash, usize)>),
    /// Bytes that were examined in vain.
    in_vain: u64,
}

impl<'a> Frames<'a> {
    /// Begins the scan of a file.
    pub fn new(scan: &'a mut Scan, source: Rc<Source>, rules: NetworkRules) -> Self {
        Self { scan, source, rules, headers: 0, easy: (0, None), in_vain: 0 }
    }

    /// Adds the file's blocks to the scan, and notes each invalid block. Returns whether the file has a header, or only zeros.
    ///
    /// # Errors
    /// When too many bytes were examined in vain.
    pub fn read(mut self, content: &Content) -> Result<bool> {
        match self.source.form {
            Form::Zeros if content.bytes.is_empty() => self.note("the file is empty"),
            Form::Zeros => self.note("the file holds only zeros"),
            Form::Raw => self.raw(content),
            Form::Framed(network) => self.framed(content, network.magic())?,
        }
        if let (count, Some((first, at))) = self.easy {
            let (rules, were) = (self.rules, blocks(count));
            self.note(&format!(
                "{were} refused, the first at byte {at}, {first}: the target is easier than {rules} allows; --network-rules names the \
                 rules of another network"
            ));
        }
        Ok(self.headers > 0 || self.source.form == Form::Zeros)
    }

    fn note(&mut self, note: &str) {
        self.scan.notes.push(format!("{}: {note}", self.source.path.display()));
    }

    fn raw(&mut self, content: &Content) {
        match contents(self.rules, &content.bytes) {
            Contents::Nothing => {}
            Contents::Easy(header) => self.easy(header, 0),
            Contents::Block(header, checked) => {
                self.add(header, 0, checked);
                if let Some(more) =
                    checked.ok().and_then(|len| content.zeros_from.checked_sub(len)).filter(|more| *more > 0)
                {
                    self.note(&format!("{more} bytes after the block are skipped"));
                    self.foreign(content.zeros_from - more, more, BLOCK);
                }
            }
        }
    }

    /// Records bytes that may be blocks in another form, if they are as long as the shortest of these.
    fn foreign(&mut self, at: usize, bytes: usize, shortest: usize) {
        if bytes >= shortest {
            let (file, rules) = (self.source.path.display().to_string(), self.rules);
            self.scan.foreign.get_or_insert(Foreign { file, at, bytes, rules });
        }
    }

    fn framed(&mut self, content: &Content, magic: [u8; 4]) -> Result<()> {
        let Content { bytes, zeros_from } = content;
        // True after a fault that was noted, until the next block.
        let mut is_noted = false;
        let mut at = 0;
        loop {
            at += bytes[at..].iter().take_while(|&&byte| byte == 0).count();
            if at >= *zeros_from {
                return Ok(());
            }
            let frame = &bytes[at..];
            let offset = at + FRAME;
            let is_framed = frame.starts_with(&magic);
            let block = bytes.get(offset..).filter(|_| is_framed).unwrap_or_default();
            let skip = || next(frame, magic);
            match contents(self.rules, block) {
                Contents::Nothing => {
                    // A frame of this network without a block hides nothing that is not its own.
                    let skip = if is_framed { skip().min(FRAME + stated(frame)) } else { skip() };
                    if !is_noted {
                        let end = if at + skip == bytes.len() { "the rest of the file" } else { "skipped" };
                        self.note(&format!("{skip} bytes from byte {at} on are not a block: {end}"));
                    }
                    if skip >= SHORTEST {
                        self.scan.lost.get_or_insert((Rc::clone(&self.source.path), at));
                    }
                    if !is_framed {
                        self.foreign(at, skip.min(zeros_from - at), SHORTEST);
                    }
                    (at, is_noted) = (at + skip, true);
                }
                Contents::Easy(header) => {
                    self.easy(header, at);
                    (at, is_noted) = (at + skip(), true);
                }
                Contents::Block(header, checked) => {
                    self.add(header, offset, checked);
                    (at, is_noted) = match checked {
                        Err((_, examined)) => {
                            self.in_vain += examined;
                            (at + skip(), true)
                        }
                        Ok(len) => (offset + len, self.compare(at, frame, len)),
                    };
                    let most = IN_VAIN * (bytes.len() as u64 + (1 << 20));
                    ensure!(
                        self.in_vain <= most,
                        "{}: too many blocks are damaged: {} were examined in vain up to byte {at}. Leave the file out, or get it anew",
                        self.source.path.display(),
                        size(self.in_vain)
                    );
                }
            }
        }
    }

    fn easy(&mut self, header: Header, at: usize) {
        self.headers += 1;
        let (count, first) = &mut self.easy;
        *count += 1;
        first.get_or_insert((header.block_hash(), at));
    }

    /// Notes a frame that has another length than its block, and returns whether it has.
    fn compare(&mut self, at: usize, frame: &[u8], len: usize) -> bool {
        let stated = stated(frame);
        if stated != len {
            self.note(&format!(
                "the frame at byte {at} states {stated} bytes, but its block has {len}: the block's length counts"
            ));
        }
        stated != len
    }

    fn add(&mut self, header: Header, offset: usize, checked: Result<usize, (Fault, u64)>) {
        self.headers += 1;
        let checked = checked.map_err(|(fault, _)| fault);
        let (hash, source, rules) = (header.block_hash(), Rc::clone(&self.source), self.rules);
        if let Err(fault) = checked {
            self.note(&format!("{hash} at byte {offset}: {fault}"));
        }
        let (len, fault) = (checked.unwrap_or(0), checked.err());
        self.scan.add(Found { source, offset: offset as u64, len, header, hash, rules, fault });
    }
}

/// Returns the length that a frame states.
fn stated(frame: &[u8]) -> usize {
    frame[4..].first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize)
}

/// Returns the bytes up to the next magic, or to the end.
fn next(frame: &[u8], magic: [u8; 4]) -> usize {
    let after = frame.get(1..).unwrap_or_default();
    after.windows(4).position(|bytes| bytes == magic).map_or(frame.len(), |skip| skip + 1)
}

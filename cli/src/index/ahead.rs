//! Leaves of the blocks that come next, 32 bytes each: the headers are pulled first, and prove the payload that is pulled after them. A block
//! that differs is a lie of its replica ([`Proved::check`]).
//!
//! ```text
//!   stored rows │ proved leaves        │ leaves that no certificate has reached yet
//!               from                   proved                                    next
//! ```
//! A run of leaves is proved when the seal after it is certified, because no other run leads to that seal. So it does not matter which
//! replicas sent the headers. If the seals differ, the newest pages of headers are pulled again, twice as many each time.

use super::header::{Header, Refuted};
use anyhow::{Result, bail, ensure};
use ic_coppice_interface::BlockHeader;
use ic_coppice_interface::seals::{FIRST, Seal, seal};
use std::collections::VecDeque;

/// The chain before a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    number: u64,
    /// The seal before the block.
    before: Seal,
    /// The hash of the block before, if it is known.
    parent: Option<Vec<u8>>,
}

/// The next blocks.
#[derive(Clone, Debug)]
pub struct Ahead {
    from: Place,
    /// The parent's hash in the first header, where the hash is not known otherwise. Proved with that header.
    first_parent: Option<Vec<u8>>,
    leaves: VecDeque<Seal>,
    /// The place of the first block of each page of headers, the newest page last.
    pages: VecDeque<Place>,
    next: Place,
    /// The first block that is not proved.
    proved: u64,
    /// The first block and its seal, if the block is after a damaged one: the subnet vouches for the header itself.
    alone: Option<(Header, Seal)>,
    failures: u32,
}

/// A reader of the proved leaves, which leaves them unchanged.
pub struct Proved<'a> {
    ahead: &'a Ahead,
    at: Place,
    passed: usize,
}

impl Proved<'_> {
    /// Returns whether another block is proved.
    pub fn has_next(&self) -> bool {
        self.at.number < self.ahead.proved
    }

    /// The hash of the block before, if it is known.
    pub fn parent(&self) -> Option<&[u8]> {
        self.at.parent.as_deref()
    }

    /// The seal before the next block; `None` if the subnet vouches for the block's header alone.
    pub fn before(&self) -> Option<Seal> {
        let is_alone = self.ahead.alone.is_some() && self.passed == 0;
        (!is_alone).then_some(self.at.before)
    }

    /// Returns the seal of the next block if a header is that block's.
    ///
    /// # Errors
    /// [`Refuted`] if it is not.
    pub fn check(&self, header: &Header) -> Result<Seal> {
        let refuted = |why: &str| Refuted(format!("block {}: {why}", header.number));
        ensure!(header.number == self.at.number, refuted(&format!("block {} comes next", self.at.number)));
        if let (Some((own, seal)), 0) = (&self.ahead.alone, self.passed) {
            ensure!(own == header, refuted("the subnet has another header"));
            return Ok(*seal);
        }
        match self.ahead.leaves.get(self.passed) {
            Some(leaf) if *leaf == header.leaf()? => Ok(seal(&self.at.before, leaf)),
            _ => bail!(refuted("its header is not the proved one")),
        }
    }

    /// Goes on after a block with this hash and seal.
    pub fn pass(&mut self, hash: &[u8], seal: Seal) {
        self.passed += 1;
        self.at = Place { number: self.at.number + 1, before: seal, parent: Some(hash.to_vec()) };
    }
}

impl Default for Ahead {
    fn default() -> Self {
        Self::at(Place { number: 0, before: FIRST, parent: None })
    }
}

impl Ahead {
    fn at(from: Place) -> Self {
        let proved = from.number;
        Self {
            next: from.clone(),
            from,
            first_parent: None,
            leaves: VecDeque::new(),
            pages: VecDeque::new(),
            proved,
            alone: None,
            failures: 0,
        }
    }

    /// Begins at a block, after a seal, or keeps the leaves from that block on if the seal before it is the same.
    pub fn begin(&mut self, number: u64, before: Seal, parent: Option<&[u8]>) {
        while self.from.number < number && !self.is_empty() {
            self.advance(&[]);
        }
        if (self.from.number, self.from.before) != (number, before) || self.alone.is_some() {
            *self = Self::at(Place { number, before, parent: parent.map(<[u8]>::to_vec) });
        }
    }

    /// Begins after a damaged block, with a header for which the subnet vouches.
    pub fn begin_alone(&mut self, header: Header, seal: Seal) {
        let from = Place { number: header.number, before: FIRST, parent: None };
        let next = Place { number: header.number + 1, before: seal, parent: Some(header.hash.clone()) };
        let proved = next.number;
        *self = Self { next, proved, leaves: VecDeque::from([FIRST]), alone: Some((header, seal)), ..Self::at(from) };
    }

    /// The number of the first block.
    pub fn from(&self) -> u64 {
        self.from.number
    }

    /// The hash of the block before the first one, if it is known.
    pub fn parent(&self) -> Option<&[u8]> {
        self.from.parent.as_ref().or(self.first_parent.as_ref()).map(Vec::as_slice)
    }

    /// The seal before the first block; `None` if the subnet vouches for that block's header alone.
    pub fn before(&self) -> Option<Seal> {
        self.alone.is_none().then_some(self.from.before)
    }

    /// The number of the first block whose header is unknown.
    pub fn next(&self) -> u64 {
        self.next.number
    }

    /// The seal before that block.
    pub fn end(&self) -> Seal {
        self.next.before
    }

    /// Returns whether no header is known.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    pub fn is_proved(&self) -> bool {
        self.proved > self.from.number
    }

    /// Returns the seal of the first block.
    pub fn first(&self) -> Option<Seal> {
        if let Some((_, seal)) = &self.alone {
            return Some(*seal);
        }
        self.leaves.front().map(|leaf| seal(&self.from.before, leaf))
    }

    /// Returns a reader of the proved leaves.
    pub fn proved(&self) -> Proved<'_> {
        let at = Place { parent: self.parent().map(<[u8]>::to_vec), ..self.from.clone() };
        Proved { ahead: self, at, passed: 0 }
    }

    /// Goes on after the first block, which has this hash.
    pub fn advance(&mut self, hash: &[u8]) {
        let Some(first) = self.first() else { return };
        self.leaves.pop_front();
        (self.alone, self.first_parent) = (None, None);
        let number = self.from.number + 1;
        while self.pages.front().is_some_and(|page| page.number < number) {
            self.pages.pop_front();
        }
        let page = self.pages.front().filter(|page| page.number == number);
        self.from = match page {
            _ if self.leaves.is_empty() => self.next.clone(),
            Some(page) => page.clone(),
            None => Place { number, before: first, parent: Some(hash.to_vec()).filter(|hash| !hash.is_empty()) },
        };
    }

    /// Takes the next headers, all or none of them.
    ///
    /// # Errors
    /// [`Refuted`] if they do not follow each other, or a seal is wrong.
    pub fn take(&mut self, headers: &[BlockHeader]) -> Result<()> {
        let (before, count) = (self.next.clone(), self.leaves.len());
        let taken = headers.iter().try_for_each(|header| self.push(header));
        if taken.is_err() {
            self.leaves.truncate(count);
            self.next = before;
        } else if !headers.is_empty() {
            if count == 0 {
                let parent = headers.first().and_then(|first| first.parent_hash.as_ref());
                self.first_parent = parent.map(|hash| hash.to_vec());
            }
            self.pages.push_back(before);
        }
        taken
    }

    fn push(&mut self, handed_out: &BlockHeader) -> Result<()> {
        let expected = self.next.number;
        let found = handed_out.number;
        ensure!(found == expected, Refuted(format!("the header of block {found} came instead of block {expected}'s")));
        let after_it = found.checked_add(1).ok_or_else(|| Refuted("no block follows the largest number".into()))?;
        let header = Header::of(handed_out, self.next.parent.as_deref())?;
        let leaf = header.leaf()?;
        let after = seal(&self.next.before, &leaf);
        ensure!(
            *handed_out.seal == after,
            Refuted(format!("the seal of block {found} does not follow from the seal before it"))
        );
        self.leaves.push_back(leaf);
        self.next = Place { number: after_it, before: after, parent: Some(header.hash) };
        Ok(())
    }

    /// Forgets the headers from a block on, the proved ones too.
    pub fn cut(&mut self, number: u64) {
        let number = number.max(self.from.number);
        if number >= self.next.number {
            return;
        }
        let (mut seal_before, mut at) = (self.from.before, self.from.number);
        if let (Some((_, alone)), true) = (&self.alone, number > at) {
            (seal_before, at) = (*alone, at + 1);
        }
        let skipped = (at - self.from.number) as usize;
        let kept = (number - self.from.number) as usize;
        for leaf in self.leaves.iter().take(kept).skip(skipped) {
            seal_before = seal(&seal_before, leaf);
        }
        self.leaves.truncate(kept);
        self.pages.retain(|page| page.number < number);
        self.proved = self.proved.min(number);
        let parent = if kept == 0 { self.from.parent.clone() } else { None };
        self.next = Place { number, before: seal_before, parent };
    }

    /// Forgets the newest pages of headers that are not proved, twice as many each time. Returns whether there were any.
    pub fn rewind(&mut self) -> bool {
        let unproved = self.pages.iter().filter(|page| page.number >= self.proved).count();
        let pages = unproved.min(1 << self.failures.min(20));
        self.failures += 1;
        let Some(first) = pages.checked_sub(1).and_then(|back| self.pages.iter().rev().nth(back)).cloned() else {
            return false;
        };
        self.leaves.truncate((first.number - self.from.number) as usize);
        self.pages.truncate(self.pages.len() - pages);
        self.next = first;
        true
    }

    /// Notes that the seal after the last header is certified.
    pub fn prove(&mut self) {
        (self.proved, self.failures) = (self.next.number, 0);
    }
}

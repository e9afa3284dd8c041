//! Transactions of a batch, parsed and hashed in groups before their records are created, because hashes of several transactions are
//! computed together at half the cost.

use super::call::Answer;
use super::parse::{Parsed, Unhashed, hash, parse};
use ic_coppice_interface::{TransactionSource, UtxoCreate};
use std::collections::VecDeque;
use std::ptr;

/// Maximum transactions of a group. A batch that ends early has hashed at most as many in vain.
const GROUP: usize = 64;
/// Maximum bytes of a group of several transactions. A longer transaction is a group by itself, so that it is not parsed in vain.
const GROUP_BYTES: usize = 32 << 10;

/// The items of a batch, parsed in groups.
#[derive(Default)]
pub struct Ahead<'a> {
    /// The items after those that are parsed.
    rest: &'a [UtxoCreate],
    /// Transactions that are parsed, in the order of the items: the bytes, and the transaction.
    parsed: VecDeque<(&'a [u8], Answer<Unhashed<'a>>)>,
}

impl<'a> Ahead<'a> {
    /// Returns the items of a batch. Nothing is parsed yet.
    pub fn new(items: &'a [UtxoCreate]) -> Self {
        Self { rest: items, parsed: VecDeque::new() }
    }

    /// Returns the transaction of an item, and parses those of the next items if it must. Items are asked for in order, and at most once; an
    /// item outside a batch is parsed by itself.
    ///
    /// # Errors
    /// `BadTransaction`, `TooLarge`.
    pub fn parse(&mut self, raw: &[u8]) -> Answer<Box<Parsed>> {
        loop {
            while let Some((bytes, parsed)) = self.parsed.pop_front() {
                if ptr::eq(bytes, raw) {
                    return parsed.map(|parsed| parsed.parsed);
                }
            }
            // A group of one would take more instructions.
            if self.rest.len() == 1 || !self.parse_group() {
                return parse(raw);
            }
        }
    }

    /// Parses the next transactions. Returns whether there was an item.
    fn parse_group(&mut self) -> bool {
        let items = self.rest.len();
        let mut bytes = 0;
        while let [item, rest @ ..] = self.rest
            && self.parsed.len() < GROUP
        {
            if let TransactionSource::Raw(raw) = &item.source {
                bytes += raw.len();
                if bytes > GROUP_BYTES && !self.parsed.is_empty() {
                    break;
                }
                self.parsed.push_back((raw, Unhashed::whole(raw)));
            }
            self.rest = rest;
        }
        let mut unhashed: Vec<_> = self.parsed.iter_mut().filter_map(|(_, parsed)| parsed.as_mut().ok()).collect();
        hash(&mut unhashed);
        self.rest.len() < items
    }
}

#[cfg(test)]
mod tests;

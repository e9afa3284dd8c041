//! A block's three payload segments.

use candid::CandidType;
use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};

/// Something of each of a block's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct BySegment<T> {
    /// Of the body.
    pub body: T,
    /// Of the receipts.
    pub receipts: T,
    /// Of the index.
    pub index: T,
}

impl<T> BySegment<T> {
    /// In the order in which exporters count them: 0 body, 1 receipts, 2 index.
    pub fn each(&self) -> [&T; 3] {
        [&self.body, &self.receipts, &self.index]
    }
}

impl BySegment<u64> {
    /// Of all three; at most `u64::MAX`.
    pub fn sum(&self) -> u64 {
        self.each().into_iter().fold(0, |sum, of| sum.saturating_add(*of))
    }
}

impl<T> From<[T; 3]> for BySegment<T> {
    fn from([body, receipts, index]: [T; 3]) -> Self {
        Self { body, receipts, index }
    }
}

impl<T> From<BySegment<T>> for [T; 3] {
    fn from(of: BySegment<T>) -> Self {
        [of.body, of.receipts, of.index]
    }
}

/// By the segment's number.
///
/// # Panics
/// Where it is above 2.
impl<T> Index<usize> for BySegment<T> {
    type Output = T;

    fn index(&self, segment: usize) -> &T {
        self.each()[segment]
    }
}

impl<T> IndexMut<usize> for BySegment<T> {
    fn index_mut(&mut self, segment: usize) -> &mut T {
        let Self { body, receipts, index } = self;
        [body, receipts, index].into_iter().nth(segment).expect("a block has three segments")
    }
}

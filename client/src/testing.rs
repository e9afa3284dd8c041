//! Transport for tests that gives scripted answers.

use crate::{Failure, Transport};
use candid::CandidType;
use std::cell::RefCell;
use std::collections::VecDeque;

pub(crate) use pollster::block_on;

/// Bytes that no algorithm compresses.
pub(crate) fn noise(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(at ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B) >> 23) as u8).collect()
}

/// Answers in order, each for one method.
#[derive(Default)]
pub(crate) struct Script(RefCell<VecDeque<Scripted>>);

/// A method and its answer.
type Scripted = (&'static str, Result<Vec<u8>, Failure>);

impl Script {
    pub(crate) fn answers(self, method: &'static str, answer: impl CandidType) -> Self {
        self.returns(method, Ok(candid::encode_one(answer).unwrap()))
    }

    pub(crate) fn returns(self, method: &'static str, answer: Result<Vec<u8>, Failure>) -> Self {
        self.0.borrow_mut().push_back((method, answer));
        self
    }

    /// Checks that every answer was asked for.
    pub(crate) fn ended(&self) {
        assert!(self.0.borrow().is_empty(), "{:?}", self.0.borrow());
    }

    fn next(&self, method: &str) -> Result<Vec<u8>, Failure> {
        let (expected, answer) = self.0.borrow_mut().pop_front().expect("the script has an answer");
        assert_eq!(method, expected);
        answer
    }
}

impl Transport for Script {
    async fn update(&self, method: &str, _: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.next(method)
    }

    async fn query(&self, method: &str, _: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.next(method)
    }
}

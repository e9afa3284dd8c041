//! Lanes for messages of different numbers of blocks: a lane whose message ends takes the next message.

use super::compress::{INITIAL, compress, compress_digests, digests_of};
use super::padded::{Block, Digest, FRESH, LANES, Padded, State};
use sha2::block_api::compress256;
use std::mem;

/// A lane, and the remaining blocks of its message: `blocks`, then `last`.
#[derive(Default)]
struct Lane<'a> {
    blocks: &'a [Block],
    last: &'a [Block],
    /// The message's number, or `None` if the lane is idle.
    number: Option<usize>,
}

/// Up to four messages whose blocks are hashed, and whose digests are still to be taken from their states.
struct Ended<'s> {
    state: State,
    numbers: [usize; LANES],
    count: usize,
    /// The digests of all messages, by the messages' numbers.
    digests: &'s mut [Digest],
    /// The digests are hashed again.
    twice: bool,
}

impl Ended<'_> {
    /// Adds the message of a lane.
    fn add(&mut self, number: usize, state: &State, lane: usize) {
        set_lane(&mut self.state, self.count, state.map(|word| word[lane]));
        self.numbers[self.count] = number;
        self.count += 1;
        if self.count == LANES {
            self.finish();
        }
    }

    /// Puts the digests of the messages into their places.
    fn finish(&mut self) {
        if self.twice && self.count > 0 {
            compress_digests(&mut self.state);
        }
        let mut of_lanes = [Digest::default(); LANES];
        digests_of(&self.state, &mut of_lanes);
        for (number, digest) in self.numbers.iter().zip(of_lanes).take(self.count) {
            self.digests[*number] = digest;
        }
        self.count = 0;
    }
}

fn set_lane(state: &mut State, lane: usize, of: [u32; 8]) {
    state.iter_mut().zip(of).for_each(|(word, of)| word[lane] = of);
}

/// Hashes the messages of these numbers, and puts their digests, which are hashed again if `twice`, into `digests`.
pub fn hash(messages: &[Padded], tails: &[Block], numbers: &[usize], digests: &mut [Digest], twice: bool) {
    let mut ended = Ended { state: FRESH, numbers: [0; LANES], count: 0, digests, twice };
    let mut numbers = numbers.iter();
    let mut next = || {
        let number = *numbers.next()?;
        let Padded { blocks, tail: [start, end], .. } = messages[number];
        let last = &tails[start..end];
        let (blocks, last) = if blocks.is_empty() { (last, blocks) } else { (blocks, last) };
        Some(Lane { blocks, last, number: Some(number) })
    };
    let mut lanes: [Lane; LANES] = Default::default();
    let mut state = FRESH;
    loop {
        let (mut used, mut some, mut run) = (0, 0, usize::MAX);
        for (at, lane) in lanes.iter_mut().enumerate() {
            if lane.blocks.is_empty() {
                lane.blocks = mem::take(&mut lane.last);
            }
            if lane.blocks.is_empty() {
                if let Some(number) = lane.number {
                    ended.add(number, &state, at);
                }
                *lane = next().unwrap_or_default();
                set_lane(&mut state, at, INITIAL);
            }
            if !lane.blocks.is_empty() {
                (used, some, run) = (used + 1, at, run.min(lane.blocks.len()));
            }
        }
        if used == 0 {
            break;
        }
        if used == 1 {
            let lane = &mut lanes[some];
            let mut alone = state.map(|word| word[some]);
            compress256(&mut alone, mem::take(&mut lane.blocks));
            set_lane(&mut state, some, alone);
            continue;
        }
        // An idle lane hashes the blocks of another lane.
        let other = lanes[some].blocks;
        let blocks = lanes.each_ref().map(|lane| if lane.blocks.is_empty() { other } else { lane.blocks });
        compress(&mut state, run, blocks);
        lanes.iter_mut().for_each(|lane| lane.blocks = lane.blocks.get(run..).unwrap_or_default());
    }
    ended.finish();
}

//! SHA-256 of several messages at once: four messages are hashed in the four lanes of 128-bit vectors.
//!
//! **Cost.** A block of 64 bytes in each of four messages takes 8,070 instructions: 32 a byte, and 77 with the `sha2` crate, which hashes
//! one message at a time. The 576 rotations of a block take 20 of the 32 instructions. WebAssembly has no rotation of a vector, so a rotation
//! is two shifts, which the platform prices at 2 each; with its operands it takes 9 instructions. A lane whose message ends takes the next
//! message. A message that is left alone is hashed by `sha2`, because one lane in use takes 126 instructions a byte.
//!
//! **Why here.** `sha2` has no function for several messages. The one crate that has one for WebAssembly, `tape-sha256` 0.2, needs the whole
//! module to be built for vectors, takes messages of at most three slices, and lets a lane whose message is shorter wait.

mod compress;
mod word;

use compress::{compress, digest};
use sha2::block_api::compress256;
use sha2::{Digest as _, Sha256};
use std::mem;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// The bytes of a message.
pub enum Message<'a> {
    /// The message is this slice.
    Slice(&'a [u8]),
    /// The message was appended to the buffer.
    Written,
    /// The digest is known already; of a message that is hashed twice, the second digest.
    Known(Digest),
}

type Block = [u8; BLOCK];
/// Words of a state, and of each word the lanes.
type State = [[u32; LANES]; 8];

const BLOCK: usize = 64;
const LANES: usize = 4;
/// Bytes after a message: a set bit, and the message's length in bits.
const PADDING: usize = 9;
/// Bytes that a message takes in the buffer besides its own, so that the buffer grows once.
pub const ROOM: usize = BLOCK + PADDING;
/// Messages that are hashed together; a multiple of four, so that no lane is idle if all are equally long.
const GROUP: usize = 64;
/// Bytes in the buffer after which a group ends.
const GROUP_BYTES: usize = 32 << 10;
/// The padding, except the length: a set bit, and zeros.
const PAD: [u8; BLOCK] = {
    let mut pad = [0; BLOCK];
    pad[0] = 0x80;
    pad
};
/// State before the first block.
const INITIAL: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// Messages, and the use of their digests.
pub trait Messages<'a> {
    /// Names a message.
    type Key;

    /// Returns the next message, which may be appended to the buffer, or `None` after the last message.
    fn next(&mut self, buffer: &mut Vec<u8>) -> Option<(Self::Key, Message<'a>)>;

    /// Receives a message's digest. Messages may have their digests in another order.
    fn done(&mut self, key: Self::Key, digest: Digest);
}

/// Computes the digests of about `count` messages.
pub fn digests<'a>(messages: &mut impl Messages<'a>, count: usize) {
    run(messages, count, false);
}

/// Computes the digests of the digests of about `count` messages.
pub fn double_digests<'a>(messages: &mut impl Messages<'a>, count: usize) {
    run(messages, count, true);
}

fn run<'a>(messages: &mut impl Messages<'a>, count: usize, twice: bool) {
    if count < LANES {
        return one_by_one(messages, twice);
    }
    let (mut group, mut keys) = (Group::default(), Vec::with_capacity(count.min(GROUP)));
    group.messages.reserve(count.min(GROUP));
    let mut more = true;
    while more {
        while keys.len() < GROUP && group.buffer.len() < GROUP_BYTES {
            let start = group.buffer.len();
            let Some((key, message)) = messages.next(&mut group.buffer) else {
                more = false;
                break;
            };
            match message {
                Message::Slice(slice) => group.push(slice, start),
                Message::Written => group.push(&[], start),
                Message::Known(digest) => {
                    group.buffer.truncate(start);
                    messages.done(key, digest);
                    continue;
                }
            }
            keys.push(key);
        }
        group.hash();
        if twice {
            group.hash_digests();
        }
        keys.drain(..).zip(&group.digests).for_each(|(key, digest)| messages.done(key, *digest));
    }
}

/// Hashes few messages, for which a group would take more instructions.
fn one_by_one<'a>(messages: &mut impl Messages<'a>, twice: bool) {
    let mut buffer = Vec::new();
    while let Some((key, message)) = messages.next(&mut buffer) {
        let digest = |bytes: &[u8]| {
            let once = Sha256::digest(bytes);
            if twice { Sha256::digest(once) } else { once }.into()
        };
        let digest = match message {
            Message::Slice(slice) => digest(slice),
            Message::Written => digest(&buffer),
            Message::Known(digest) => digest,
        };
        buffer.clear();
        messages.done(key, digest);
    }
}

/// Messages that are hashed together.
#[derive(Default)]
struct Group<'a> {
    /// The last bytes of each message, and the padding.
    buffer: Vec<u8>,
    /// The first blocks of each message, and the end of its last bytes in the buffer.
    messages: Vec<(&'a [Block], usize)>,
    /// The digests of the messages that were hashed last.
    digests: Vec<Digest>,
}

/// A lane, and the remaining blocks of its message: `blocks`, then `last`.
#[derive(Default)]
struct Lane<'a> {
    blocks: &'a [Block],
    last: &'a [Block],
    /// The message's number, or `None` if the lane is idle.
    number: Option<usize>,
}

impl<'a> Group<'a> {
    /// Adds the message that is the slice, followed by the bytes in the buffer from `start` on; one of them is empty.
    fn push(&mut self, slice: &'a [u8], start: usize) {
        let (blocks, rest) = slice.as_chunks();
        // Even an empty copy takes 100 instructions.
        if !rest.is_empty() {
            self.buffer.reserve(rest.len() + ROOM);
            self.buffer.extend_from_slice(rest);
        }
        let tail = self.buffer.len() - start;
        // At most 64 bytes are missing, and a copy of a constant length takes fewer instructions than one of their number.
        self.buffer.extend_from_slice(&PAD);
        self.buffer.truncate(start + (tail + PADDING).next_multiple_of(BLOCK) - 8);
        let bits = 8 * (blocks.len() * BLOCK + tail) as u64;
        self.buffer.extend_from_slice(&bits.to_be_bytes());
        self.messages.push((blocks, self.buffer.len()));
    }

    /// Computes the digests of the digests.
    fn hash_digests(&mut self) {
        self.buffer.reserve(self.digests.len() * BLOCK + ROOM);
        let digests = mem::take(&mut self.digests);
        for digest in &digests {
            let start = self.buffer.len();
            self.buffer.extend_from_slice(digest);
            self.push(&[], start);
        }
        self.hash();
    }

    /// Computes the digests of the messages, and removes the messages.
    fn hash(&mut self) {
        self.digests = vec![Digest::default(); self.messages.len()];
        let mut rest = self.buffer.as_chunks().0;
        let mut before = 0;
        let mut messages = self.messages.drain(..).enumerate();
        let mut next = || {
            let (number, (blocks, end)) = messages.next()?;
            let (last, others) = rest.split_at((end - before) / BLOCK);
            (rest, before) = (others, end);
            let (blocks, last) = if blocks.is_empty() { (last, blocks) } else { (blocks, last) };
            Some(Lane { blocks, last, number: Some(number) })
        };
        let mut lanes: [Lane; LANES] = Default::default();
        let mut state = State::default();
        loop {
            let (mut used, mut some, mut run) = (0, 0, usize::MAX);
            for (at, lane) in lanes.iter_mut().enumerate() {
                if lane.blocks.is_empty() {
                    lane.blocks = mem::take(&mut lane.last);
                }
                if lane.blocks.is_empty() {
                    if let Some(number) = lane.number {
                        self.digests[number] = digest(&state, at);
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
        self.buffer.clear();
    }
}

fn set_lane(state: &mut State, lane: usize, of: [u32; 8]) {
    state.iter_mut().zip(of).for_each(|(word, of)| word[lane] = of);
}

#[cfg(test)]
mod tests;

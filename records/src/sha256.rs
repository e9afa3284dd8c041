//! SHA-256 of several messages at once: four messages are hashed in the four lanes of 128-bit vectors.
//!
//! **Cost.** A block of 64 bytes in each of four messages takes 7,850 instructions: 31 a byte, and 77 with the `sha2` crate, which hashes
//! one message at a time. The 512 rotations of a block by a number of bits take 18 of the 31 instructions. WebAssembly has no rotation of a
//! vector, so a rotation is two shifts, which the platform prices at 2 each; with its operands it takes 9 instructions. A block without bytes
//! of its message, which is equal in the four lanes, takes 5,090 instructions, because the inputs of its rounds are computed once.
//!
//! **Lanes.** Four messages in a row of equally many blocks are hashed together. The others are hashed together at the end of their group,
//! where a lane whose message ends takes the next message. A message that is left alone is hashed by `sha2`, because one lane in use takes
//! 123 instructions a byte.
//!
//! **Why here.** `sha2` has no function for several messages. The one crate that has one for WebAssembly, `tape-sha256` 0.2, needs the whole
//! module to be built for vectors, takes messages of at most three slices, and lets a lane whose message is shorter wait.

mod compress;
mod lanes;
mod padded;
mod word;

use compress::{compress, compress_digests, compress_known, digests_of, inputs};
pub use padded::Digest;
use padded::{BLOCK, Block, FRESH, LANES, Padded, State};
use sha2::{Digest as _, Sha256};

/// The bytes of a message.
pub enum Message<'a> {
    /// The message is this slice.
    Slice(&'a [u8]),
    /// The message was appended to the buffer.
    Written,
    /// The digest is known already; of a message that is hashed twice, the second digest.
    Known(Digest),
}

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
        group.hash(twice);
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
    messages: Vec<Padded<'a>>,
    /// The digests of the messages that were hashed last.
    digests: Vec<Digest>,
    /// The padding of the last message whose last block has none of its bytes: the next message is often as long.
    padding: Padding,
}

/// The number of bytes of a message whose last block has none of them, and the inputs of that block's rounds.
type Padding = Option<(u64, [u32; 64])>;

/// Returns the inputs of the rounds of the last block of a message of `len` bytes, if the block has no bytes of the message.
fn padding_inputs(len: u64) -> [u32; 64] {
    let bits = 8 * len;
    let mut block = [0; 16];
    (block[14], block[15]) = ((bits >> 32) as u32, bits as u32);
    inputs(block)
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
        let len = (blocks.len() * BLOCK + tail) as u64;
        self.buffer.extend_from_slice(&(8 * len).to_be_bytes());
        self.messages.push(Padded { blocks, tail: [start / BLOCK, self.buffer.len() / BLOCK], len });
    }

    /// Computes the digests of the messages or, if `twice`, the digests of these digests, and removes the messages.
    fn hash(&mut self, twice: bool) {
        let Self { buffer, messages, digests: all, padding } = self;
        all.clear();
        all.resize(messages.len(), Digest::default());
        let tails = buffer.as_chunks().0;
        let mut mixed = Vec::new();
        let (fours, _) = messages.as_chunks();
        for (at, (four, out)) in fours.iter().zip(all.as_chunks_mut().0).enumerate() {
            if four.iter().all(|message| message.counts() == four[0].counts()) {
                let mut state = hash_alike(four, tails, padding);
                if twice {
                    compress_digests(&mut state);
                }
                digests_of(&state, out);
            } else {
                mixed.extend(LANES * at..LANES * (at + 1));
            }
        }
        mixed.extend(LANES * fours.len()..messages.len());
        if !mixed.is_empty() {
            lanes::hash(messages, tails, &mixed, all, twice);
        }
        messages.clear();
        buffer.clear();
    }
}

/// Returns the state after four messages of equally many blocks.
fn hash_alike(four: &[Padded; LANES], tails: &[Block], padding: &mut Padding) -> State {
    let mut state = FRESH;
    let [blocks, mut run] = four[0].counts();
    if blocks > 0 {
        compress(&mut state, blocks, four.each_ref().map(|message| message.blocks));
    }
    let last = four.each_ref().map(|message| &tails[message.tail[0]..]);
    let len = four[0].len;
    // The last block has no bytes of the message, and no byte but zeros before the length.
    let ends_in_padding = len % BLOCK as u64 >= (BLOCK - 8) as u64;
    let is_known = ends_in_padding && four.iter().all(|message| message.len == len);
    run -= usize::from(is_known);
    if run > 0 {
        compress(&mut state, run, last);
    }
    if is_known {
        let _ = padding.take_if(|(of, _)| *of != len);
        compress_known(&mut state, &padding.get_or_insert_with(|| (len, padding_inputs(len))).1);
    }
    state
}

#[cfg(test)]
mod tests;

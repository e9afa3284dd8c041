//! SHA-256 of several messages at once.

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// The bytes of a message.
pub enum Message<'a> {
    /// The message is this slice.
    Slice(&'a [u8]),
    /// The message is in the buffer.
    Written,
    /// The message's digest is known already.
    Known(Digest),
}

/// Computes the digests of messages. `next` returns a key and a message, which it may write to the empty buffer; it returns `None` after
/// the last message. `done` receives each key with the message's digest, in any order.
pub fn digests<'a, K>(mut next: impl FnMut(&mut Vec<u8>) -> Option<(K, Message<'a>)>, mut done: impl FnMut(K, Digest)) {
    let mut buffer = Vec::new();
    while let Some((key, message)) = next(&mut buffer) {
        let digest = match message {
            Message::Slice(bytes) => Sha256::digest(bytes).into(),
            Message::Written => Sha256::digest(&buffer).into(),
            Message::Known(digest) => digest,
        };
        buffer.clear();
        done(key, digest);
    }
}

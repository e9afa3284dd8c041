//! Digests in lanes equal the digests of `sha2`.

use super::*;
use ic_coppice_storage::testing::histories;
use proptest::collection::vec;
use proptest::prelude::*;
use sha2::Sha256;

/// A form of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Slice,
    Written,
    Known,
}

/// Messages in given forms, and their digests. Each message's key is its place.
struct Given<'a> {
    messages: &'a [(Form, Vec<u8>)],
    twice: bool,
    asked: usize,
    digests: Vec<Option<Digest>>,
}

impl<'a> Messages<'a> for Given<'a> {
    type Key = usize;

    fn next(&mut self, buffer: &mut Vec<u8>) -> Option<(usize, Message<'a>)> {
        assert!(self.asked <= self.messages.len(), "asked once more after the last message");
        self.asked += 1;
        let (form, bytes) = self.messages.get(self.asked - 1)?;
        let message = match form {
            Form::Slice => Message::Slice(bytes),
            Form::Written => {
                buffer.extend_from_slice(bytes);
                Message::Written
            }
            Form::Known => {
                buffer.push(1);
                Message::Known(expected(bytes, self.twice))
            }
        };
        Some((self.asked - 1, message))
    }

    fn done(&mut self, key: usize, digest: Digest) {
        assert_eq!(self.digests[key].replace(digest), None, "message {key} is done once");
    }
}

fn expected(bytes: &[u8], twice: bool) -> Digest {
    let once = Sha256::digest(bytes);
    if twice { Sha256::digest(once) } else { once }.into()
}

/// Returns the digests in the order of the messages, computed as if there were about `count` messages.
fn counted(messages: &[(Form, Vec<u8>)], count: usize, twice: bool) -> Vec<Digest> {
    let mut given = Given { messages, twice, asked: 0, digests: vec![None; messages.len()] };
    if twice {
        double_digests(&mut given, count);
    } else {
        digests(&mut given, count);
    }
    assert_eq!(given.asked, messages.len() + 1);
    given.digests.into_iter().map(Option::unwrap).collect()
}

/// Returns the digests in the order of the messages, computed in lanes.
fn in_lanes(messages: &[(Form, Vec<u8>)]) -> Vec<Digest> {
    counted(messages, messages.len().max(LANES), false)
}

fn by_themselves(messages: &[(Form, Vec<u8>)]) -> Vec<Digest> {
    messages.iter().map(|(_, bytes)| expected(bytes, false)).collect()
}

fn bytes_of(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + len) as u8).collect()
}

#[test]
fn digests_are_those_of_the_standard() {
    let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    let messages = [&b""[..], b"abc", long, &[b'a'; 1_000_000]].map(|bytes| (Form::Slice, bytes.to_vec()));
    let hex = |digest: &Digest| digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let digests: Vec<String> = in_lanes(&messages).iter().map(hex).collect();
    assert_eq!(
        digests,
        [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ]
    );
}

#[test]
fn no_message_has_no_digest() {
    assert!(in_lanes(&[]).is_empty());
}

#[test]
fn messages_of_every_length_around_block_ends_are_padded() {
    for form in [Form::Slice, Form::Written] {
        let messages: Vec<_> = (0..=260).map(|len| (form, bytes_of(len))).collect();
        assert_eq!(in_lanes(&messages), by_themselves(&messages), "{form:?}");
    }
}

#[test]
fn any_number_of_messages_fills_the_lanes() {
    for number in 1..=9 {
        for len in [0, 55, 56, 64, 200] {
            let messages = vec![(Form::Slice, bytes_of(len)); number];
            assert_eq!(in_lanes(&messages), by_themselves(&messages), "{number} messages of {len} bytes");
        }
    }
}

#[test]
fn messages_of_several_groups_and_different_lengths_are_all_hashed() {
    let mut messages: Vec<_> = (0..2 * GROUP + 3).map(|at| (Form::Written, bytes_of(at * 37 % 1_000))).collect();
    for (at, len) in [(1, 100_000), (GROUP - 1, GROUP_BYTES + 1), (GROUP + 7, 3_000)] {
        messages[at] = (Form::Slice, bytes_of(len));
        messages[at + 1] = (Form::Written, bytes_of(len + 1));
    }
    assert_eq!(in_lanes(&messages), by_themselves(&messages));
}

#[test]
fn fours_of_equal_and_of_different_lengths_are_padded() {
    // The last block of a message of 56 to 63 bytes, or of 64 more, has no bytes of the message.
    let lengths = [55, 56, 61, 63, 64, 119, 120, 125, 127, 128];
    for form in [Form::Slice, Form::Written] {
        for (a, b) in lengths.into_iter().flat_map(|a| lengths.map(|b| (a, b))) {
            let of = |lengths: &[usize]| lengths.iter().map(|len| (form, bytes_of(*len))).collect::<Vec<_>>();
            let in_turn = of(&[a, b].repeat(6));
            let by_fours = of(&[[a; 4], [b; 4], [a; 4]].concat());
            for messages in [in_turn, by_fours] {
                assert_eq!(in_lanes(&messages), by_themselves(&messages), "{form:?}, {a} and {b} bytes");
                let twice: Vec<_> = messages.iter().map(|(_, bytes)| expected(bytes, true)).collect();
                assert_eq!(counted(&messages, messages.len(), true), twice, "{form:?}, {a} and {b} bytes");
            }
        }
    }
}

#[test]
fn double_digests_are_digests_of_digests() {
    for number in [0, 1, 3, 4, 5, GROUP, GROUP + 1] {
        let form = |at: usize| [Form::Slice, Form::Written, Form::Known][at % 3];
        let messages: Vec<_> = (0..number).map(|at| (form(at), bytes_of(at))).collect();
        let twice: Vec<_> = messages.iter().map(|(_, bytes)| expected(bytes, true)).collect();
        for count in [0, number, number + LANES] {
            assert_eq!(counted(&messages, count, true), twice, "{number} messages, of about {count}");
        }
    }
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![4 => Just(Form::Slice), 4 => Just(Form::Written), 1 => Just(Form::Known)]
}

proptest! {
    #![proptest_config(histories(256))]

    #[test]
    fn digests_in_lanes_equal_those_computed_one_by_one(
        messages in vec((form(), prop_oneof![vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..3_000)]), 0..20),
    ) {
        prop_assert_eq!(in_lanes(&messages), by_themselves(&messages));
        prop_assert_eq!(counted(&messages, 0, false), by_themselves(&messages));
        let twice: Vec<_> = messages.iter().map(|(_, bytes)| expected(bytes, true)).collect();
        prop_assert_eq!(counted(&messages, messages.len(), true), twice);
    }
}

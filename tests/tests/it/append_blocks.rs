//! `append_blocks`: lists of blocks in one message, and the bounds of the message.

use coppice_tests::blocks::{hash, plain, seal, upload, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, default_arg};
use ic_coppice_host::TrapPoint;
use ic_coppice_interface::*;
use miniz_oxide::deflate::compress_to_vec;
use serde_bytes::ByteBuf;

fn append(coppice: &Coppice, blocks: Vec<AppendBlock>) -> AppendedBlocks {
    coppice.producer().append_blocks(blocks).answer()
}

fn kept(next: u64) -> AppendedBlocks {
    AppendedBlocks { next, stopped: None }
}

fn refused(next: u64, error: AppendError) -> AppendedBlocks {
    AppendedBlocks { next, stopped: Some(AppendStop::Refused(error)) }
}

fn list(range: std::ops::Range<u64>) -> Vec<AppendBlock> {
    range.map(|number| plain(number, 3, 1_000)).collect()
}

#[test]
fn list_of_blocks_equals_the_blocks_one_by_one() {
    let (one_by_one, together) = (Coppice::new(), Coppice::new());
    one_by_one.append_plain(5..40, 1_000);
    assert_eq!(append(&together, list(5..30)), kept(30));
    assert_eq!(append(&together, list(20..40)), kept(40), "blocks that are kept count as kept");
    assert_eq!(append(&together, list(5..40)), kept(40), "again changes nothing");
    assert_eq!(together.chain(), one_by_one.chain());
    assert_eq!(together.storage(), one_by_one.storage());
}

#[test]
fn refused_list_or_block_changes_nothing_of_its_own() {
    let coppice = Coppice::new();
    assert_eq!(append(&coppice, list(5..9)), kept(9));
    let before = (coppice.chain(), coppice.storage());
    // The second list begins with a kept block, and the chain's next number lies in it.
    let gap = vec![plain(8, 3, 1_000), plain(9, 3, 1_000), plain(11, 3, 1_000)];
    for (blocks, next) in [(vec![], 0), (gap, 8)] {
        let answer = append(&coppice, blocks);
        let is_bad = |stop: &AppendStop| matches!(stop, AppendStop::Refused(AppendError::BadEncoding { .. }));
        assert!(answer.next == next && answer.stopped.as_ref().is_some_and(is_bad), "{answer:?}");
    }
    assert_eq!(append(&coppice, list(11..13)), refused(11, AppendError::Gap { expected: 9 }));
    let orphan = AppendBlock { parent_hash: hash(99).into(), ..plain(9, 3, 1_000) };
    let expected = hash(8).into();
    assert_eq!(append(&coppice, vec![orphan]), refused(9, AppendError::WrongParent { expected }));
    assert_eq!((coppice.chain(), coppice.storage()), before);
    let mut blocks = list(9..14);
    blocks[2].body[0] ^= 1;
    let AppendedBlocks { next, stopped } = append(&coppice, blocks);
    assert!(next == 11 && matches!(stopped, Some(AppendStop::Refused(AppendError::BadEncoding { segment: 0, .. }))));
    assert_eq!(coppice.head(), Some(10));
}

#[test]
fn open_upload_stops_a_list() {
    let coppice = Coppice::new();
    append(&coppice, list(0..3));
    let (begin, _) = upload(&plain(3, 1, 1_000), 100);
    coppice.producer().begin_block(&begin).answer().unwrap();
    let AppendedBlocks { next, stopped } = append(&coppice, list(1..6));
    assert!(next == 3 && matches!(stopped, Some(AppendStop::Refused(AppendError::UploadOpen(_)))), "{stopped:?}");
    coppice.producer().abort_block(3u64).answer().unwrap();
    assert_eq!(append(&coppice, list(1..6)), kept(6));
}

/// The blocks before the mark are kept, the rest waits for pruning, and goes on where the list has stopped.
#[test]
fn list_that_reaches_the_emergency_mark_stops_and_goes_on_after_pruning() {
    let coppice = Coppice::new();
    let policy = PrunePolicyArg {
        target_bytes: Some(20 * u64::from(LOG_CLASS)),
        timer_interval_secs: Some(3_600),
        min_kept_blocks: Some(0),
        ..PrunePolicyArg::default()
    };
    coppice.set_policy(policy).unwrap();
    let list: Vec<AppendBlock> = (0..26).map(|number| plain(number, 3, 60_000)).collect();
    let held = || AppendStop::Refused(AppendError::CapacityExhausted { held_by: HeldBy::PruneLag });
    let AppendedBlocks { mut next, stopped } = append(&coppice, list.clone());
    assert!((15..26).contains(&next) && stopped == Some(held()), "{next}, {stopped:?}");
    assert_eq!(coppice.head(), Some(next - 1));
    for _ in 0..9 {
        coppice.pass(1);
        // The list begins with a kept block.
        let AppendedBlocks { next: now_next, stopped } = append(&coppice, list[next as usize - 1..].to_vec());
        assert!(now_next > next && stopped == (now_next < 26).then(held), "{now_next}, {stopped:?}");
        assert_eq!(coppice.head(), Some(now_next - 1));
        next = now_next;
        if next == 26 {
            return;
        }
    }
    panic!("nine ticks make room for {next} blocks only");
}

#[test]
fn list_that_traps_changes_nothing_and_halves_are_appended() {
    let (coppice, host) = Coppice::embedded(default_arg());
    append(&coppice, list(0..2));
    let before = (coppice.chain(), coppice.storage());
    host.faults().trap_message(1, TrapPoint::End);
    assert!(coppice.producer().append_blocks(list(2..12)).try_answer().is_err());
    assert_eq!((coppice.chain(), coppice.storage()), before);
    assert_eq!([append(&coppice, list(2..7)), append(&coppice, list(7..12))], [kept(7), kept(12)]);
}

#[test]
fn only_producers_of_blocks_send_lists() {
    let coppice = Coppice::new();
    coppice.grant(Who::Operator, Role::Operator);
    for who in [Who::Operator, Who::Stranger, Who::Anonymous] {
        let reject = coppice.by(who).append_blocks(list(0..2)).try_answer().unwrap_err();
        assert!(reject.message.contains("access denied"), "{reject:?}");
    }
    coppice.grant(Who::Rival, Role::BlockProducer);
    assert_eq!(coppice.by(Who::Rival).append_blocks(list(0..2)).answer(), kept(2));
    // Longer than a message of the client, and shorter than one of the platform.
    let mut long = plain(2, 1, 950_000);
    long.receipts = ByteBuf::new();
    seal(&mut long);
    assert_eq!(append(&coppice, vec![long, plain(3, 1, 950_000)]), kept(4));
}

fn compress(argument: &[u8]) -> Vec<u8> {
    [&(argument.len() as u32).to_le_bytes()[..], &compress_to_vec(argument, 6)].concat()
}

fn append_compressed(coppice: &Coppice, argument: Vec<u8>) -> AppendedBlocks {
    coppice.producer().append_compressed(ByteBuf::from(argument)).answer()
}

#[test]
fn compressed_list_equals_the_plain_one() {
    let (plain, compressed) = (Coppice::new(), Coppice::new());
    append(&plain, list(5..40));
    let argument = |range| compress(&candid::encode_one(list(range)).unwrap());
    assert_eq!(append_compressed(&compressed, argument(5..25)), kept(25));
    assert_eq!(append_compressed(&compressed, argument(20..40)), kept(40));
    assert_eq!(append_compressed(&compressed, argument(41..42)), refused(41, AppendError::Gap { expected: 40 }));
    assert_eq!(compressed.chain(), plain.chain());
    assert_eq!(compressed.storage(), plain.storage());
}

/// Entering the keys of one list takes more instructions than a message has.
#[test]
fn message_without_room_keeps_the_first_blocks_and_the_next_one_continues() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let keyed = |number: u64| {
        let keys: Vec<[u8; 4]> = (0..8_000).map(|key| (number as u32 * 8_000 + key).to_be_bytes()).collect();
        let keys: Vec<(u32, &[u8])> = keys.iter().map(|key| (0, key.as_slice())).collect();
        with_keys(plain(number, 1, 100), &keys)
    };
    let blocks: Vec<AppendBlock> = (0..40).map(keyed).collect();
    host.take_executions();
    let (mut next, mut messages) = (0u64, 0);
    while next < 40 {
        let argument = compress(&candid::encode_one(&blocks[next as usize..]).unwrap());
        let AppendedBlocks { next: now_next, stopped } = append_compressed(&coppice, argument);
        assert!(now_next > next, "a message appends at least its first block");
        assert_eq!(stopped, (now_next < 40).then_some(AppendStop::HasMore));
        (next, messages) = (now_next, messages + 1);
    }
    let most = host.take_executions().iter().map(|execution| execution.instructions).max().unwrap();
    println!("{messages} messages, at most {most} instructions");
    assert!(messages > 1 && most <= 1_200_000_000, "{messages} messages, {most} instructions");
    assert_eq!(coppice.chain().len(), 40);
}

/// Streams that are bombs, cut off, too long, of another length, or noise: each is refused within 400 M instructions.
#[test]
fn hostile_streams_are_refused_and_nothing_changes() {
    let (coppice, host) = Coppice::embedded(default_arg());
    append(&coppice, list(0..3));
    let before = (coppice.chain(), coppice.storage());
    let with_length = |length: usize, stream: &[u8]| [&(length as u32).to_le_bytes()[..], stream].concat();
    let good = compress_to_vec(&candid::encode_one(list(3..9)).unwrap(), 6);
    let length = candid::encode_one(list(3..9)).unwrap().len();
    // Empty blocks of ten bits each: not the last one, fixed codes, end.
    let empty_blocks = [0b0000_0010, 0b0000_1000, 0b0010_0000, 0b1000_0000, 0b0000_0000].repeat(390_000);
    let letters: Vec<u8> = (0..8u32 << 20).map(|at| b'a' + (at.wrapping_mul(0x9E37_79B9) >> 31) as u8).collect();
    let few = candid::encode_one(vec![AppendBlock::default(); 300_000]).unwrap();
    // As many as the quota of reading holds, after a stream that takes nearly as long as one may.
    let slow_and_few =
        |blocks: usize| with_length(few.len(), &[&empty_blocks[..5 * blocks], &compress_to_vec(&few, 6)].concat());
    let hostile = [
        ("nothing", vec![]),
        ("a declared length alone", with_length(8 << 20, &[])),
        ("a bomb", with_length(8 << 20, &compress_to_vec(&vec![0; 64 << 20], 9))),
        ("a bomb of the longest length", compress(&vec![0; 8 << 20])),
        ("a length above the limit", with_length((8 << 20) + 1, &good)),
        ("empty blocks", with_length(8 << 20, &empty_blocks)),
        ("one bit a letter", compress(&letters)),
        ("empty items", compress(&few)),
        ("1,600 empty blocks, then empty items", slow_and_few(400)),
        ("2,400 empty blocks, then empty items", slow_and_few(600)),
        ("3,200 empty blocks, then empty items", slow_and_few(800)),
        ("4,000 empty blocks, then empty items", slow_and_few(1_000)),
        ("cut off", with_length(length, &good[..good.len() - 1])),
        ("trailing bytes", with_length(length, &[&good[..], &[0]].concat())),
        ("too short", with_length(length + 1, &good)),
        ("too long", with_length(length - 1, &good)),
        ("noise", letters[..1_900_000].iter().zip(7u32..).map(|(a, at)| a.wrapping_mul(at as u8)).collect()),
        ("another type", compress(&candid::encode_args((list(3..9), 7u8)).unwrap())),
    ];
    for (what, argument) in hostile {
        assert!(argument.len() < 2 << 20, "{what}: {} bytes", argument.len());
        host.take_executions();
        let answer = append_compressed(&coppice, argument);
        let most = host.take_executions().iter().map(|execution| execution.instructions).max().unwrap();
        println!("{what}: {most} instructions, {answer:?}");
        let is_bad = |stop: &AppendStop| matches!(stop, AppendStop::Refused(AppendError::BadEncoding { .. }));
        assert!(answer.next == 0 && answer.stopped.as_ref().is_some_and(is_bad), "{what}: {answer:?}");
        assert!(most <= 400_000_000, "{what}: {most} instructions");
        assert_eq!((coppice.chain(), coppice.storage()), before, "{what}");
    }
    assert_eq!(append_compressed(&coppice, with_length(length, &good)), kept(9));
}

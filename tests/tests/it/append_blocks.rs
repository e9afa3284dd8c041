//! `append_blocks`: lists of blocks in one message, and the bounds of the message.

use coppice_host::TrapPoint;
use coppice_interface::*;
use coppice_tests::blocks::{hash, plain, seal, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
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
    let [empty, gap] = [vec![], vec![plain(9, 3, 1_000), plain(11, 3, 1_000)]].map(|blocks| append(&coppice, blocks));
    for answer in [empty, gap] {
        let is_bad = |stop: &AppendStop| matches!(stop, AppendStop::Refused(AppendError::BadEncoding { .. }));
        assert!(answer.next == 9 && answer.stopped.as_ref().is_some_and(is_bad), "{answer:?}");
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
fn open_upload_and_emergency_mark_stop_a_list() {
    let coppice = Coppice::new();
    append(&coppice, list(0..3));
    let (begin, _) = upload(&plain(3, 1, 1_000), 100);
    coppice.producer().begin_block(&begin).answer().unwrap();
    let AppendedBlocks { next, stopped } = append(&coppice, list(1..6));
    assert!(next == 3 && matches!(stopped, Some(AppendStop::Refused(AppendError::UploadOpen(_)))), "{stopped:?}");
    coppice.producer().abort_block(3u64).answer().unwrap();
    assert_eq!(append(&coppice, list(1..6)), kept(6));
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

use super::exporters::MAX_EXPORTERS;
use super::*;
use crate::testing::{block, fresh, hash, id, reopen};
use crate::{Admission, ChainStore};
use candid::Principal;
use ic_coppice_interface::*;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{Ic, Platform as _, twin};
use serde_bytes::ByteBuf;

const CLASS: u32 = 64 << 10;

/// A pulled block: number, and body, receipts and index.
type Pulled = (u64, [Vec<u8>; 3]);

struct World {
    chain: ChainStore,
    blobs: BlobStore,
}

fn world() -> World {
    let (chain, blobs) = fresh(CLASS);
    World { chain, blobs }
}

impl World {
    fn append(&mut self, block: &AppendBlock) {
        let now = Ic::now_secs();
        self.chain.append(&mut self.blobs, block, &Admission::default(), now).unwrap();
    }

    /// Appends blocks of fork `fork` with bodies of `body` bytes.
    fn append_fork(&mut self, numbers: std::ops::Range<u64>, fork: u8, body: usize) {
        for number in numbers {
            let mut block = block(number, &[id(number)], body);
            block.hash = hash(number, fork).into();
            let parent = self.chain.state().head().and_then(|head| self.chain.hash(head));
            block.parent_hash = parent.map_or(block.parent_hash, |hash| hash.to_bytes());
            self.append(&block);
        }
    }

    fn prune(&mut self, blocks: u64) {
        (0..blocks).for_each(|_| assert!(self.chain.remove_oldest(&mut self.blobs).is_some()));
    }

    fn roll_back(&mut self, head: u64) {
        while self.chain.state().head() > Some(head) {
            self.chain.remove_head(&mut self.blobs).unwrap();
        }
    }

    fn page(&self, cursor: Option<ExportCursor>, max_bytes: u64) -> Result<ExportPage, ExportError> {
        page(&self.chain, &self.blobs, cursor, max_bytes)
    }

    /// Reads to the head in pages of `max_bytes` and assembles the blocks: number and the three segments.
    fn pull(&self, mut cursor: Option<ExportCursor>, max_bytes: u64) -> (Vec<Pulled>, ExportCursor) {
        let mut blocks: Vec<Pulled> = Vec::new();
        loop {
            let page = self.page(cursor.clone(), max_bytes).unwrap();
            if page.chunks.is_empty() {
                assert_eq!(page.cursor, cursor, "at the head the cursor stays");
                return (blocks, cursor.unwrap());
            }
            let bytes: usize = page.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
            assert!(max_bytes == 0 || bytes as u64 <= max_bytes);
            assert!(candid::encode_one(&page).unwrap().len() < 2 << 20, "a reply holds a page");
            for chunk in page.chunks {
                if blocks.last().is_none_or(|last| last.0 != chunk.number) {
                    blocks.push((chunk.number, Default::default()));
                }
                let segment = &mut blocks.last_mut().unwrap().1[usize::from(chunk.segment)];
                assert_eq!(chunk.offset, segment.len() as u64, "no gap and nothing twice");
                segment.extend_from_slice(&chunk.bytes);
            }
            cursor = page.cursor;
        }
    }
}

fn segments(block: &AppendBlock) -> [Vec<u8>; 3] {
    [&block.body, &block.receipts, &block.index].map(|bytes| bytes.to_vec())
}

fn whole(number: u64, fork: u8) -> ExportCursor {
    ExportCursor { number, hash: hash(number, fork).into(), segment: 3, offset: 0, rollbacks: 0 }
}

#[test]
fn every_page_size_gives_the_same_blocks() {
    let mut world = world();
    assert_eq!(world.page(None, 0).unwrap(), ExportPage { chunks: Vec::new(), cursor: None, head: None });
    let mut expected = Vec::new();
    for (number, body) in [(7, 0), (8, 100), (9, 200_000), (10, 1), (11, 0)] {
        let mut next = block(number, &[id(number)], body);
        if number == 11 {
            (next.receipts, next.index) = (ByteBuf::new(), ByteBuf::new());
        }
        world.append(&next);
        expected.push((number, segments(&next)));
    }
    for max_bytes in [0, 1_000_000, 70_000, 1_000] {
        let (blocks, cursor) = world.pull(None, max_bytes);
        assert_eq!(blocks, expected, "pages of {max_bytes}");
        assert_eq!(cursor, whole(11, 0));
    }
    let (blocks, _) = world.pull(Some(whole(8, 0)), 1_000);
    assert_eq!(blocks, expected[2..], "from the middle");
    let mut small = block(12, &[], 3);
    small.receipts = ByteBuf::new();
    world.append(&small);
    let (blocks, _) = world.pull(Some(whole(11, 0)), 1);
    assert_eq!(blocks, [(12, segments(&small))], "a byte at a time");
}

#[test]
fn a_reply_holds_all_small_chunks() {
    let mut world = world();
    world.append_fork(0..5_000, 0, 0);
    let first = world.page(None, 0).unwrap();
    assert!(first.chunks.len() > 5_000 && first.chunks.len() < 15_000, "{} chunks", first.chunks.len());
    let (blocks, _) = world.pull(None, 0);
    assert_eq!(blocks.len(), 5_000);
}

#[test]
fn next_block_of_a_cursor_may_be_pruned() {
    let mut world = world();
    world.append_fork(0..10, 0, 1_000);
    let inside = world.page(Some(whole(3, 0)), 100).unwrap().cursor.unwrap();
    assert_eq!((inside.number, inside.segment, inside.offset), (4, 0, 100));
    world.prune(4);
    assert_eq!(world.page(Some(inside.clone()), 0).unwrap().chunks[0].offset, 100, "its block is kept");
    world.prune(1);
    let gone = Err(ExportError::Pruned { first_available: 5, common_ancestor: None });
    assert_eq!(world.page(Some(inside), 0), gone, "its block was pruned within the read");
    assert_eq!(world.page(Some(whole(3, 0)), 0), gone);
    assert_eq!(world.page(Some(whole(4, 0)), 0).unwrap().chunks[0].number, 5, "nothing is missing after it");
    assert_eq!(world.pull(None, 0).0.len(), 5);
}

#[test]
fn reorg_error_names_the_common_ancestor_and_the_next_cursor() {
    let mut world = world();
    world.append_fork(0..10, 0, 100);
    let (_, at_head) = world.pull(None, 0);
    let inside = world.page(Some(whole(7, 0)), 10).unwrap().cursor.unwrap();
    world.roll_back(6);
    // The cursor's block is above the new head, or another block has its number: both are reported as a reorg.
    for _ in 0..2 {
        let error = world.page(Some(at_head.clone()), 0).unwrap_err();
        let ExportError::Reorged { common_ancestor, cursor } = error else { panic!("{error:?}") };
        assert_eq!((common_ancestor, cursor.number, cursor.segment), (6, 6, 3));
        assert_eq!(cursor.hash, BlockHash::from(hash(6, 0)));
        let (blocks, _) = world.pull(Some(cursor), 0);
        assert!(blocks.iter().all(|(number, _)| *number > 6));
        assert!(matches!(world.page(Some(inside.clone()), 0), Err(ExportError::Reorged { common_ancestor: 6, .. })));
        if world.chain.state().next == 7 {
            world.append_fork(7..12, 1, 100);
        }
    }
    // A deeper rollback, then a shallow one: a reader of the first fork needs the deep one, a reader of the third fork the shallow one.
    world.roll_back(4);
    world.append_fork(5..12, 2, 100);
    let third = world.pull(None, 0).1;
    world.roll_back(9);
    world.append_fork(10..13, 3, 100);
    let ancestor = |cursor: &ExportCursor| match world.page(Some(cursor.clone()), 0) {
        Err(ExportError::Reorged { common_ancestor, .. }) => common_ancestor,
        other => panic!("{other:?}"),
    };
    assert_eq!((ancestor(&at_head), ancestor(&third)), (4, 9));
    assert_eq!(ancestor(&ExportCursor { rollbacks: 0, ..third.clone() }), 4, "0 is always safe, if less exact");
    // The same after an upgrade.
    (world.chain, world.blobs) = reopen(CLASS);
    let again = world.page(Some(third.clone()), 0);
    assert!(matches!(again, Err(ExportError::Reorged { common_ancestor: 9, .. })), "{again:?}");
    // If the ancestor was pruned but its successor is kept, nothing is missing.
    world.prune(10);
    assert!(matches!(world.page(Some(third.clone()), 0), Err(ExportError::Reorged { common_ancestor: 9, .. })));
    let gone = |first_available, common_ancestor| {
        Err(ExportError::Pruned { first_available, common_ancestor: Some(common_ancestor) })
    };
    assert_eq!(world.page(Some(at_head), 0), gone(10, 4), "what the reader has above block 4 is another fork's");
    world.prune(1);
    assert_eq!(world.page(Some(third), 0), gone(11, 9));
    let on_the_chain = ExportCursor { rollbacks: world.chain.rollbacks().count(), ..whole(5, 2) };
    let gone = Err(ExportError::Pruned { first_available: 11, common_ancestor: None });
    assert_eq!(world.page(Some(on_the_chain), 0), gone);
}

#[test]
fn invalid_cursor_is_refused() {
    let mut world = world();
    let why = |world: &World, cursor: ExportCursor| match world.page(Some(cursor), 0) {
        Err(ExportError::BadCursor { why }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(world.page(Some(whole(3, 0)), 0), Err(ExportError::Behind { head: None }));
    world.append_fork(0..5, 0, 100);
    assert!(why(&world, ExportCursor { segment: 4, ..whole(3, 0) }).contains("segment 4"));
    assert!(why(&world, ExportCursor { offset: 1, ..whole(3, 0) }).contains("at 1"));
    assert!(why(&world, ExportCursor { segment: 0, offset: 101, ..whole(3, 0) }).contains("of 100 bytes"));
    assert!(why(&world, whole(3, 9)).contains("block 3"), "of another chain");
    // A replica that lags by a block, or by a reorg.
    assert_eq!(world.page(Some(whole(5, 0)), 0), Err(ExportError::Behind { head: Some(4) }));
    let later = ExportCursor { rollbacks: 1, ..whole(3, 9) };
    assert_eq!(world.page(Some(later), 0), Err(ExportError::Behind { head: Some(4) }));
    world.append_fork(5..7, 0, 100);
    world.roll_back(5);
    assert!(why(&world, whole(4, 9)).contains("block 4"), "no rollback went so deep");
}

/// All replicas agree on the answer of a replicated call, so that none of them lags.
#[test]
fn replicated_call_answers_restored_to_a_cursor_that_nothing_explains() {
    let mut world = world();
    let of = |world: &World, cursor: ExportCursor| {
        let queried = world.page(Some(cursor.clone()), 0);
        twin::with(|world| world.replicated = true);
        let called = world.page(Some(cursor), 0);
        twin::with(|world| world.replicated = false);
        (queried, called)
    };
    let restored = |head| Err(ExportError::Restored { head });
    let behind = |head| Err(ExportError::Behind { head });
    assert_eq!(of(&world, whole(3, 0)), (behind(None), restored(None)), "an empty chain");
    world.append_fork(0..10, 0, 100);
    world.roll_back(6);
    world.append_fork(7..10, 1, 100);
    let count = world.chain.rollbacks().count();
    let with = |number, fork, rollbacks| ExportCursor { rollbacks, ..whole(number, fork) };
    for (number, fork) in [(10, 0), (10, 1), (u64::MAX, 1)] {
        assert_eq!(
            of(&world, with(number, fork, count)),
            (behind(Some(9)), restored(Some(9))),
            "{number}: ahead of the head"
        );
    }
    assert_eq!(of(&world, with(2, 9, count + 1)), (behind(Some(9)), restored(Some(9))), "ahead of the rollbacks");
    assert_eq!(
        of(&world, with(2, 0, count + 1)).1,
        restored(Some(9)),
        "ahead of the rollbacks, with a block of the chain"
    );
    for (number, segment) in [(8, 3), (8, 1), (2, 3), (9, 0)] {
        let (queried, called) = of(&world, ExportCursor { segment, ..with(number, 9, count) });
        assert!(matches!(queried, Err(ExportError::BadCursor { .. })), "{queried:?}");
        assert_eq!(called, restored(Some(9)), "{number}: never a block of this chain");
    }
    // Cursors that a rollback or a prune explains, and malformed cursors, get the same answer from both.
    let same = |world: &World, cursor: ExportCursor| {
        let (queried, called) = of(world, cursor);
        assert_eq!(queried, called);
        called.unwrap_err()
    };
    assert!(matches!(same(&world, with(9, 0, 0)), ExportError::Reorged { common_ancestor: 6, .. }));
    assert!(matches!(same(&world, ExportCursor { segment: 4, ..with(50, 0, 0) }), ExportError::BadCursor { .. }));
    assert!(matches!(same(&world, ExportCursor { offset: 1, ..with(9, 1, count) }), ExportError::BadCursor { .. }));
    let long = ExportCursor { segment: 0, offset: 101, ..with(9, 1, count) };
    assert!(matches!(same(&world, long), ExportError::BadCursor { .. }));
    world.prune(8);
    assert!(matches!(same(&world, with(2, 9, count)), ExportError::Pruned { common_ancestor: None, .. }));
    assert_eq!(of(&world, with(2, 0, count + 1)).1, restored(Some(9)), "a prune explains nothing that is ahead");
    assert!(of(&world, with(8, 1, count)).1.is_ok());
}

#[test]
fn damaged_block_is_named_with_the_next_cursor() {
    let mut world = world();
    world.append_fork(0..6, 0, 100);
    world.chain.poison_header(2);
    world.chain.poison_header(3);
    let page = world.page(None, 0).unwrap();
    assert_eq!(page.cursor, Some(whole(1, 0)), "blocks before the damaged one are returned");
    let error = world.page(page.cursor, 0).unwrap_err();
    let ExportError::Corrupt { number: 2, next: Some(next), .. } = error else { panic!("{error:?}") };
    assert_eq!(next, ExportCursor { hash: BlockHash::default(), ..whole(3, 0) }, "its hash is unknown");
    let (blocks, _) = world.pull(Some(next), 0);
    assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [4, 5]);
    let chunks = world.page(Some(whole(3, 0)), 0).unwrap().chunks;
    assert_eq!((&chunks[0].parent_hash, &chunks[3].parent_hash), (&None, &Some(hash(4, 0).into())));
    world.chain.poison_header(5);
    let error = world.page(Some(whole(4, 0)), 0).unwrap_err();
    assert!(matches!(error, ExportError::Corrupt { number: 5, next: None, .. }), "{error:?}");
}

/// The hash of a damaged block is unknown. A cursor on it is accepted until a rollback has reached the block.
#[test]
fn cursor_on_a_damaged_block_is_accepted_until_a_rollback_reaches_it() {
    for replicated in [false, true] {
        let mut world = world();
        world.append_fork(0..10, 0, 100);
        let at =
            |number: u64, rollbacks: u64| ExportCursor { hash: BlockHash::default(), rollbacks, ..whole(number, 0) };
        world.chain.poison_header(4);
        twin::with(|world| world.replicated = replicated);
        assert_eq!(world.page(Some(at(4, 0)), 0).unwrap().chunks[0].number, 5);
        assert_eq!(world.page(Some(whole(4, 9)), 0).unwrap().chunks[0].number, 5, "the reader has read it before");
        let ahead = world.page(Some(at(4, 1)), 0).unwrap_err();
        assert!(matches!(ahead, ExportError::Behind { .. } | ExportError::Restored { .. }), "{ahead:?}");
        world.roll_back(7);
        let count = world.chain.rollbacks().count();
        for rollbacks in [0, count] {
            assert_eq!(world.page(Some(at(4, rollbacks)), 0).unwrap().chunks[0].number, 5, "the rollback ended above");
        }
        // The head cannot be a damaged block.
        world.roll_back(4);
        assert_eq!(world.chain.state().head(), Some(3));
        assert!(matches!(world.page(Some(at(4, 0)), 0), Err(ExportError::Reorged { common_ancestor: 3, .. })));
        // Pruned: the block after it has an unknown parent, and the cursor after it is still accepted.
        world.append_fork(4..8, 1, 100);
        world.chain.poison_header(5);
        world.prune(6);
        let page = world.page(None, 0).unwrap();
        assert_eq!((page.chunks[0].number, &page.chunks[0].parent_hash), (6, &None));
        let count = world.chain.rollbacks().count();
        assert_eq!(world.page(Some(at(5, count)), 0).unwrap().chunks[0].number, 6);
        twin::with(|world| world.replicated = false);
    }
}

fn who(of: u8) -> Principal {
    Principal::from_slice(&[of; 29])
}

fn exporter(name: &str, of: u8) -> Exporter {
    Exporter { name: name.into(), principal: who(of) }
}

fn open() -> Exporters {
    Exporters::open(ic_coppice_storage::testing::cells()).unwrap()
}

#[test]
fn the_slowest_exporter_is_the_guard() {
    let mut world = world();
    world.append_fork(0..10, 0, 100);
    world.prune(2);
    let mut exporters = open();
    assert_eq!(exporters.guard(false), None);
    assert_eq!(exporters.guard(true), Some(Guard { before: 0, held_by: HeldBy::NoExporter }));
    exporters.register(&exporter("a", 1), 2, false).unwrap();
    exporters.register(&exporter("b", 2), 2, false).unwrap();
    exporters.register(&exporter("b", 2), 9, false).unwrap();
    let by = |name: &str, before| Some(Guard { before, held_by: HeldBy::Exporter(name.into()) });
    assert_eq!(exporters.guard(false), by("a", 2), "nothing more is pruned until they acknowledge");
    let acknowledge = |exporters: &mut Exporters, of: u8, number: u64| {
        exporters.acknowledge(&world.chain, who(of), number, &hash(number, 0))
    };
    assert_eq!(acknowledge(&mut exporters, 1, 6), Ok(7), "inclusive");
    assert_eq!(exporters.guard(false), by("b", 2));
    assert_eq!(acknowledge(&mut exporters, 2, 8), Ok(9));
    assert_eq!(exporters.guard(false), by("a", 7));
    assert_eq!(acknowledge(&mut exporters, 1, 4), Ok(7), "monotonic");
    assert_eq!(acknowledge(&mut exporters, 1, 6), Ok(7), "idempotent");
    assert_eq!(acknowledge(&mut exporters, 1, 1), Ok(7), "pruned, so it was acknowledged");
    assert_eq!(acknowledge(&mut exporters, 1, 10), Err(AckError::AboveHead { head: Some(9) }));
    assert!(matches!(acknowledge(&mut exporters, 3, 4), Err(AckError::NotRegistered { .. })));
    let wrong = exporters.acknowledge(&world.chain, who(1), 8, &hash(8, 1));
    assert_eq!(wrong, Err(AckError::WrongHash { expected: hash(8, 0).into() }));
    twin::with(|world| world.time_ns += 50_000_000_000);
    let status = open().status(&world.chain, false);
    assert_eq!(status.exported_before_block, Some(7));
    let lags: Vec<_> =
        status.exporters.iter().map(|e| (e.name.as_str(), e.exported_before_block, e.lag_blocks)).collect();
    assert_eq!(lags, [("a", 7, 3), ("b", 9, 1)], "all is persisted");
    let lags: Vec<u64> = status.exporters.iter().map(|e| e.lag_secs).collect();
    assert_eq!(lags, [50, 50], "since they acknowledged, whatever the blocks' times are");

    exporters.rolled_back(8);
    assert_eq!(exporters.guard(false), by("a", 7), "b goes back to 8");
    exporters.rolled_back(5);
    assert_eq!(open().guard(false), by("a", 5));
    assert_eq!(open().by_name["b"].bound, 5);
}

#[test]
fn exporters_are_registered_and_removed_by_name() {
    let _world = world();
    let mut exporters = open();
    for name in ["", "with space", "ü", &"x".repeat(33)] {
        let error = exporters.register(&exporter(name, 1), 0, true).unwrap_err();
        assert!(matches!(error, ExporterError::BadName { .. }), "{name:?}: {error:?}");
    }
    let anonymous = Exporter { name: "x".into(), principal: Principal::anonymous() };
    assert_eq!(exporters.register(&anonymous, 0, true), Err(ExporterError::Anonymous));
    for of in 0..MAX_EXPORTERS as u8 {
        exporters.register(&exporter(&format!("{}{of:02}", "n".repeat(30)), of), u64::MAX - 1, false).unwrap();
    }
    // There is no cell after the last one, neither to mend nor to read.
    exporters.rewrite();
    assert_eq!(open().by_name, exporters.by_name);
    let many = exporters.register(&exporter("one-more", 200), 0, true);
    assert_eq!(many, Err(ExporterError::TooMany { limit: MAX_EXPORTERS as u64 }));
    let nth = |of: u8| format!("{}{of:02}", "n".repeat(30));
    let last = nth(31);
    assert_eq!(
        exporters.register(&exporter(&last, 200), 0, true),
        Err(ExporterError::NameTaken { principal: who(31) })
    );
    assert_eq!(
        exporters.register(&exporter("y", 31), 0, true),
        Err(ExporterError::PrincipalTaken { name: last.clone() })
    );
    // An exporter without a key counts among the hundred, and gets a new key at its old bound.
    exporters.revoke(who(200));
    assert_eq!(exporters.keyless().count(), 0);
    exporters.revoke(who(31));
    let again = exporter(&last, 200);
    assert_eq!(open().keyless().collect::<Vec<_>>(), [(last.as_str(), u64::MAX - 1)]);
    let many = exporters.register(&exporter("one-more", 31), 0, true);
    assert_eq!(many, Err(ExporterError::TooMany { limit: MAX_EXPORTERS as u64 }));
    assert_eq!(exporters.register(&again, 0, false), Err(ExporterError::Keyless));
    assert_eq!(
        exporters.register(&exporter(&last, 30), 0, true).unwrap_err(),
        ExporterError::PrincipalTaken { name: nth(30) }
    );
    assert_eq!(exporters.register(&again, 0, true), Ok(()));
    assert_eq!(open().bound_of(&last), Some((Some(who(200)), u64::MAX - 1)));
    let remove = |exporters: &mut Exporters, name: &str, drop_guard| {
        exporters.remove(&RemoveExporter { name: name.into(), drop_guard })
    };
    let names: Vec<String> = exporters.by_name.keys().cloned().collect();
    for name in &names[1..] {
        remove(&mut exporters, name, false).unwrap();
    }
    assert_eq!(remove(&mut exporters, "nobody", true), Err(ExporterError::Unknown));
    assert_eq!(remove(&mut exporters, &names[0], false), Err(ExporterError::LastExporter));
    assert_eq!(open().by_name.len(), 1);
    assert_eq!(remove(&mut exporters, &names[0], true), Ok(Some(who(0))));
    assert_eq!(open().guard(false), None);
}

/// After a reset the oldest block may have a smaller number, so a replica that has not executed the reset does not know the cursor's block.
#[test]
fn replica_that_lags_behind_a_reset_does_not_report_a_pruned_block() {
    let mut world = world();
    world.append_fork(0..10, 0, 100);
    world.prune(5);
    let count = world.chain.rollbacks().count();
    let cursor = |rollbacks| ExportCursor { number: 2, hash: hash(2, 0).into(), segment: 3, offset: 0, rollbacks };
    assert_eq!(world.page(Some(cursor(count + 1)), 0), Err(ExportError::Behind { head: Some(9) }));
    let pruned = ExportError::Pruned { first_available: 5, common_ancestor: None };
    assert_eq!(world.page(Some(cursor(count)), 0), Err(pruned));
}

#[test]
fn damaged_cells_are_written_anew_and_the_cell_of_a_removed_exporter_is_reused() {
    let _world = world();
    let mut exporters = open();
    for of in 0..3 {
        exporters.register(&exporter(&format!("n{of}"), of), 7, false).unwrap();
    }
    exporters.remove(&RemoveExporter { name: "n1".into(), drop_guard: false }).unwrap();
    let cells = ic_coppice_storage::testing::cells();
    let at = |cell: u64| crate::places::EXPORTERS + 320 * cell;
    let names = |exporters: &Exporters| exporters.by_name.keys().cloned().collect::<Vec<_>>();
    for cell in 0..4 {
        cells.write(at(cell), &[0xEE]);
    }
    assert!(Exporters::open(ic_coppice_storage::testing::cells()).is_err());
    exporters.rewrite();
    assert_eq!(names(&open()), ["n0", "n2"]);
    // A head of zeros looks like that of a cell that was never written, behind which no cell is read.
    for cell in 0..3 {
        cells.write(at(cell), &[0; 12]);
        exporters.rewrite();
        assert_eq!(names(&open()), ["n0", "n2"], "cell {cell}");
    }
    let mut exporters = open();
    exporters.register(&exporter("n3", 3), 8, false).unwrap();
    assert_eq!(open().by_name, exporters.by_name);
    assert_eq!(open().bound_of("n3"), Some((Some(who(3)), 8)));
    assert_eq!(cells.read(at(1) + 12), *b"\x82", "in the second cell, an array of name and entry");
}

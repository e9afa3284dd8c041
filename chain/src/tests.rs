//! Unit tests of the chain under damage and refused growth, which only a test inside the crate can cause.

use super::postings::Indexed;
use super::postings::ids::EnterError;
use super::upload::cell::Upload;
use super::*;
use crate::testing::{block, fresh, id, reopen};
use crate::{owners, places};
use candid::Principal;
use coppice_model::blocks::upload;
use ic_coppice_interface::segments::Index;
use ic_coppice_interface::*;
use ic_coppice_storage::blob::BlobStore;
use ic_coppice_storage::{GrowError, Meter, testing, twin};

const KIB: usize = 1 << 10;

fn append(chain: &mut ChainStore, blobs: &mut BlobStore, block: &AppendBlock) -> Result<(), AppendError> {
    chain.append(blobs, block, &Admission::default(), 1_700_000_000)
}

/// Class bytes over payload bytes, beyond the open blob.
fn overhead(log_class: u32, blocks: u64, size: impl Fn(u64) -> usize) -> f64 {
    let (mut chain, mut blobs) = fresh(log_class);
    for number in 0..blocks {
        append(&mut chain, &mut blobs, &block(number, &[id(number)], size(number))).unwrap();
    }
    let kept = blobs.arena().kept_bytes(owners::CHAIN) - u64::from(log_class);
    kept as f64 / chain.state().appended_bytes as f64
}

#[test]
fn small_and_large_blocks_cost_their_bytes() {
    let sizes = |number: u64| 200 + ((number as usize * 2_654_435_761) >> 7) % (8 * KIB - 200);
    let small = overhead(1 << 20, 10_000, sizes);
    assert!((0.9..=1.1).contains(&small), "10,000 blocks of 200 B to 8 KiB: {small}");
    let large = overhead(1 << 20, 100, |_| 1_400_000);
    assert!((0.9..=1.1).contains(&large), "100 blocks of 1.4 MB: {large}");
}

#[test]
fn repeated_id_resolves_to_its_newest_block_until_that_is_removed() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    let twice = id(1000);
    append(&mut chain, &mut blobs, &block(5, &[twice, id(1)], 10)).unwrap();
    append(&mut chain, &mut blobs, &block(6, &[id(2), twice, id(3), twice], 10)).unwrap();
    append(&mut chain, &mut blobs, &block(7, &[id(4)], 10)).unwrap();
    let at = |chain: &ChainStore, blobs: &BlobStore| {
        chain.location(blobs, &twice).map(|found| (found.block_number, found.position))
    };
    assert_eq!(at(&chain, &blobs), Ok((6, 3)));
    assert_eq!(chain.receipt(&blobs, &twice).unwrap().bytes, [3; 5]);
    assert_eq!(chain.index_stats().entries, 5, "one entry for each different id");
    assert_eq!(
        chain.meta(6).unwrap().id_links,
        1,
        "only the last occurrence in a block has a link, to the last one before"
    );
    chain.remove_oldest(&mut blobs).unwrap();
    assert_eq!(at(&chain, &blobs), Ok((6, 3)));
    chain.remove_oldest(&mut blobs).unwrap();
    assert_eq!(at(&chain, &blobs), Err(ReadError::NotFound), "swept or not");
    assert_eq!(chain.remove_oldest(&mut blobs), None, "the head is never removed");
    assert_eq!((chain.index_stats().entries, chain.debt(IndexTable::Ids).debt), (5, 6));
    assert_eq!(chain.sweep(IndexTable::Ids, Meter::unlimited()).dropped, 4);
    assert_eq!((chain.index_stats().entries, chain.debt(IndexTable::Ids).debt), (1, 0));
    assert_eq!(at(&chain, &blobs), Err(ReadError::NotFound));
    // The same again, with a rollback before the prune.
    append(&mut chain, &mut blobs, &block(8, &[twice, twice], 10)).unwrap();
    append(&mut chain, &mut blobs, &block(9, &[twice, id(5), twice, twice], 10)).unwrap();
    assert_eq!(at(&chain, &blobs), Ok((9, 3)));
    assert_eq!(chain.remove_head(&mut blobs).unwrap().entries, 1, "the repeated id's older posting is restored");
    assert_eq!(at(&chain, &blobs), Ok((8, 1)));
    assert_eq!(chain.remove_head(&mut blobs).unwrap().entries, 1);
    assert_eq!((at(&chain, &blobs), chain.index_stats().entries), (Err(ReadError::NotFound), 1));
}

#[test]
fn append_with_refused_growth_changes_nothing() {
    let (mut chain, mut blobs) = fresh(1 << 20);
    append(&mut chain, &mut blobs, &block(0, &[id(0)], 10)).unwrap();
    let before = *chain.state();
    // The log needs memory.
    twin::with(|world| world.liquid_cycles = 0);
    let large = block(1, &[id(1)], 18 << 20);
    assert_eq!(
        append(&mut chain, &mut blobs, &large),
        Err(AppendError::NoMemory(NoMemory::LowCycles { missing: 84_200_000_000 }))
    );
    twin::with(|world| world.liquid_cycles = u128::MAX);
    testing::set_max_pages(testing::billed_pages());
    assert_eq!(append(&mut chain, &mut blobs, &large), Err(AppendError::NoMemory(NoMemory::OutOfSpace)));
    assert_eq!(*chain.state(), before);
    // The index needs memory.
    testing::set_max_pages(testing::billed_pages() + 1_024);
    let mut number = 1;
    let error = loop {
        let ids: Vec<_> = (0..99_000).map(|i| id(number << 32 | i)).collect();
        match append(&mut chain, &mut blobs, &block(number, &ids, 10)) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, AppendError::NoMemory(NoMemory::OutOfSpace));
    assert_eq!(chain.state().next, number);
    assert_eq!(chain.index_stats().entries, 1 + (number - 1) * 99_000);
    assert!(number > 1 && before.next == 1);
    testing::set_max_pages(u64::MAX);
    append(&mut chain, &mut blobs, &block(number, &[id(1)], 18 << 20)).unwrap();
}

/// If the index runs out of memory in the middle of a block, the entered ids are removed again.
#[test]
fn ids_are_entered_whole_or_not_at_all() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    append(&mut chain, &mut blobs, &block(0, &[id(0)], 10)).unwrap();
    let repeated =
        |number: u64| (0..200).map(|i| if i % 2 == 0 { id(1) } else { id(number << 20 | i) }).collect::<Vec<_>>();
    append(&mut chain, &mut blobs, &block(1, &repeated(1), 10)).unwrap();
    let (state, entries) = (*chain.state(), chain.index_stats().entries);
    let bytes = block(2, &repeated(2), 10).index;
    let index = Index::parse(&bytes).unwrap();
    chain.index.fail_after(50);
    let meta = BlockMeta { number: 2, transactions: 200, id_links: 0, ..chain.meta(1).unwrap() };
    let indexed = Indexed { blobs: &blobs, meta: &meta, index: &index };
    let refused = chain.insert_ids(&indexed, 0, &mut Meter::unlimited()).err();
    assert_eq!(refused, Some(EnterError::Grow(GrowError::OutOfSpace)));
    assert_eq!((*chain.state(), chain.index_stats().entries), (state, entries));
    assert_eq!(chain.location(&blobs, &id(1)).unwrap().block_number, 1);
    append(&mut chain, &mut blobs, &block(2, &repeated(2), 10)).unwrap();
    assert_eq!(chain.index_stats().entries, entries + 100, "the repeated one has an entry already");
}

#[test]
fn damage_is_skipped_with_its_space_accounted_for() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    for number in 0..10 {
        append(&mut chain, &mut blobs, &block(number, &[id(number)], 100 * KIB)).unwrap();
    }
    // A header that cannot be decoded.
    chain.poison_header(2);
    assert!(matches!(chain.find(2), Err(ReadError::Corrupt { .. })));
    // A blob of the log that its directory no longer names.
    let poisoned = chain.log.blob_of(chain.meta(4).unwrap().log_offset) + 1;
    chain.log.clear(poisoned);
    let mut faults = Vec::new();
    while let Some(removed) = chain.remove_oldest(&mut blobs) {
        faults.extend(removed.faults);
    }
    assert_eq!(chain.state().oldest, 9, "nothing stops the rest: {faults:#?}");
    // The lost blob became free with block 5. Pruning a block reads only its header.
    assert_eq!(faults.len(), 2, "{faults:#?}");
    let named = ["block 2: its header", "blob 7 of the log"];
    assert!(faults.iter().zip(named).all(|(fault, named)| fault.starts_with(named)), "{faults:#?}");
    let head = chain.meta(9).unwrap();
    let kept = chain.log.blobs_end(head.log_end()) - chain.log.blob_of(head.log_offset);
    assert_eq!(blobs.arena().kept_bytes(owners::CHAIN), kept * (64 << 10));
    assert_eq!(blobs.arena().class_counters(chain.log_class()).lost, 1);
    // The id of the damaged block is not found, and its stale entry does no harm.
    assert_eq!(chain.location(&blobs, &id(2)), Err(ReadError::NotFound));
    append(&mut chain, &mut blobs, &block(10, &[id(2)], 10)).unwrap();
    assert_eq!(chain.location(&blobs, &id(2)).unwrap().block_number, 10);
    // The sums in the headers give the damaged block's references.
    assert_eq!((chain.state().references, chain.state().pruned_references), (11, 9));
    chain.sweep(IndexTable::Ids, Meter::unlimited());
    assert_eq!((chain.index_stats().entries, chain.debt(IndexTable::Ids).debt), (2, 0));
}

/// If an id's newest posting lies in a damaged block, only that block has the link to an older one: `Corrupt`, and `NotFound` after the
/// damaged block was rolled back.
#[test]
fn id_whose_newest_block_is_damaged_is_corrupt_and_not_found_after_rollback() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    append(&mut chain, &mut blobs, &block(0, &[id(1), id(2)], 10)).unwrap();
    append(&mut chain, &mut blobs, &block(1, &[id(1), id(3)], 10)).unwrap();
    chain.poison_header(1);
    assert!(matches!(chain.location(&blobs, &id(1)), Err(ReadError::Corrupt { .. })));
    assert_eq!(chain.location(&blobs, &id(2)).unwrap().block_number, 0);
    let removed = chain.remove_head(&mut blobs).unwrap();
    assert_eq!(removed.faults.len(), 1, "counted: {removed:?}");
    assert_eq!(chain.location(&blobs, &id(1)), Err(ReadError::NotFound));
    // A posting that outlived the damaged block names no position of another block with that number, and leads nowhere.
    append(&mut chain, &mut blobs, &block(1, &[id(4), id(5), id(1), id(3)], 10)).unwrap();
    assert_eq!(chain.location(&blobs, &id(1)).unwrap().position, 2);
    assert_eq!(chain.meta(1).unwrap().id_links, 0);
    append(&mut chain, &mut blobs, &block(2, &[id(1)], 10)).unwrap();
    assert_eq!(chain.location(&blobs, &id(1)).unwrap().block_number, 2);
    chain.remove_head(&mut blobs).unwrap();
    assert_eq!(chain.location(&blobs, &id(1)).unwrap().block_number, 1);
    assert_eq!((chain.state().references, chain.state().next), (6, 2));
}

/// A link that leads forward, as damage may cause, is an error and not an endless walk.
#[test]
fn forward_link_of_an_id_is_corrupt() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    chain.mask_hashes(3);
    let of_one_hash: Vec<_> = (0..40).map(id).filter(|id| chain.id_hash(id) == 0).take(3).collect();
    append(&mut chain, &mut blobs, &block(0, &of_one_hash[..2], 10)).unwrap();
    append(&mut chain, &mut blobs, &block(1, &of_one_hash[1..], 10)).unwrap();
    let meta = chain.meta(1).unwrap();
    assert_eq!(meta.id_links, 2);
    assert_eq!(chain.location(&blobs, &of_one_hash[0]).unwrap().block_number, 0);
    chain.log.write(&mut blobs, meta.id_links_start() + 4, &(1u64 << 24 | 1).to_le_bytes()).unwrap();
    assert!(matches!(chain.location(&blobs, &of_one_hash[0]), Err(ReadError::Corrupt { .. })));
    assert_eq!(chain.location(&blobs, &of_one_hash[1]).unwrap().block_number, 1);
}

/// If the last blob has no room for the links of ids, whose number is known last, the append is refused and nothing is entered.
#[test]
fn append_without_room_for_links_undoes_its_ids() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    let ids: Vec<_> = (0..50).map(id).collect();
    append(&mut chain, &mut blobs, &block(0, &ids, 10)).unwrap();
    // Body, receipts and index end a few bytes before the end of a blob.
    let empty = block(1, &ids, 0);
    let used = chain.state().log_tail as usize + empty.index.len() + empty.receipts.len();
    let filled = block(1, &ids, (64 << 10) * 2 - used - 100);
    // Allocate every blob that fits into memory.
    testing::set_max_pages(testing::billed_pages());
    while blobs.allocate(64 << 10, testing::COUNTED).is_ok() {}
    let two = [(); 2].map(|()| blobs.arena().kept_bytes(testing::COUNTED));
    assert!(two[0] > 0);
    let before = (*chain.state(), chain.index_stats().entries);
    assert_eq!(append(&mut chain, &mut blobs, &filled), Err(AppendError::NoMemory(NoMemory::OutOfSpace)));
    assert_eq!((*chain.state(), chain.index_stats().entries), before);
    for id in &ids {
        assert_eq!(chain.location(&blobs, id).unwrap().block_number, 0);
    }
    testing::set_max_pages(u64::MAX);
    append(&mut chain, &mut blobs, &filled).unwrap();
    assert_eq!(chain.meta(1).unwrap().id_links, 50);
    assert_eq!(chain.location(&blobs, &ids[7]).unwrap().block_number, 1);
}

/// However often an id occurs, each occurrence is entered, found, pruned and rolled back on its own.
#[test]
fn id_in_every_block_and_thousands_of_times_in_one_is_pruned_and_rolled_back() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    let everywhere = id(0);
    append(&mut chain, &mut blobs, &block(0, &[everywhere; 20_000], 10)).unwrap();
    assert_eq!((chain.index_stats().entries, chain.meta(0).unwrap().id_links), (1, 0));
    for number in 1..600 {
        append(&mut chain, &mut blobs, &block(number, &[id(number), everywhere, everywhere], 10)).unwrap();
        assert_eq!(chain.meta(number).unwrap().id_links, 1);
    }
    assert_eq!(chain.location(&blobs, &everywhere).map(|at| (at.block_number, at.position)), Ok((599, 2)));
    chain.remove_oldest(&mut blobs).unwrap();
    for number in (300..599).rev() {
        chain.remove_head(&mut blobs).unwrap();
        assert_eq!(chain.location(&blobs, &everywhere).unwrap().block_number, number);
    }
    while chain.remove_oldest(&mut blobs).is_some() {}
    assert_eq!(chain.location(&blobs, &everywhere).unwrap().block_number, 300);
    chain.sweep(IndexTable::Ids, Meter::unlimited());
    assert_eq!(chain.index_stats().entries, 2);
}

#[test]
fn time_never_runs_backwards() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    let times = [(0, 500), (1, 300), (2, 99_000_000_000), (3, 700)];
    let monotonic = times.map(|(number, timestamp_secs)| {
        let block = AppendBlock { timestamp_secs, ..block(number, &[], 1) };
        append(&mut chain, &mut blobs, &block).unwrap();
        chain.meta(number).unwrap().monotonic
    });
    assert_eq!(monotonic, [500, 500, 1_700_000_000, 1_700_000_000]);
}

/// The order of `pruning-spec-v1.md` 4, as written to stable memory.
#[test]
fn removal_writes_in_the_specified_order() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    for number in 0..3 {
        append(&mut chain, &mut blobs, &block(number, &[id(number)], 64 << 10)).unwrap();
    }
    twin::with(|world| world.writes = Some(Vec::new()));
    chain.remove_oldest(&mut blobs).unwrap();
    let order = twin::with(|world| world.writes.take().expect("writes are recorded"));
    let granule = |space: u8, at: u64| testing::space(space).raw_address(at).unwrap() >> 16;
    let (directory, state) = (granule(places::LOG_DIRECTORY, 64), granule(testing::CELLS, places::CHAIN));
    let place = |address: u64| match address >> 16 {
        0..3 => "arena",
        at if at == directory => "directory",
        at if at == state => "state",
        _ => "header",
    };
    let mut order: Vec<&str> = order.into_iter().map(place).collect();
    order.dedup();
    // Used → Quarantine; the references (the indexes are not touched); the block's header; pruned_before_block; Quarantine → Free, kept bytes.
    assert_eq!(order, ["arena", "directory", "header", "state", "arena"]);
}

/// The owner of an upload is persisted, and another caller cannot touch the upload.
#[test]
fn upload_by_another_producer_is_refused_with_its_owner() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    let [short, long] = [Principal::from_slice(&[7]), Principal::from_slice(&[9; 29])];
    for by in [short, long] {
        let admission = Admission { upload_expiry_secs: 120, ..Admission::default() };
        let arg = upload(&block(0, &[id(1)], 1_000), 400).0;
        chain.begin(&mut blobs, &arg, by, &admission, 50).unwrap();
        (chain, blobs) = reopen(64 << 10);
        let open = UploadOpen { by, expires_at_secs: 170 };
        assert_eq!(chain.upload_opened(120), Some(open));
        let other = Principal::anonymous();
        assert_eq!((chain.upload_of_another(by, 120), chain.upload_of_another(other, 120)), (None, Some(open)));
        assert_eq!(
            chain.begin(&mut blobs, &arg, other, &admission, 60),
            Err(open.into()),
            "and the expiry is unchanged"
        );
        assert_eq!(chain.upload_opened(120), Some(open));
        assert_eq!(chain.abort_upload(&mut blobs, 0), Ok(true));
    }
    let admission = Admission::default();
    chain.begin(&mut blobs, &upload(&block(0, &[], 10), 10).0, Principal::anonymous(), &admission, 0).unwrap();
    let cell: [u8; 264] = chain.cells.read(places::UPLOAD);
    for bit in 0..8 * cell.len() {
        let mut damaged = cell;
        damaged[bit / 8] ^= 1 << (bit % 8);
        chain.cells.write(places::UPLOAD, &damaged);
        assert!(Upload::load(&chain.cells).is_err(), "bit {bit}");
    }
    // A length that no principal has must come from another version.
    let mut other = cell;
    other[224] = 31;
    ic_coppice_storage::checksum::put(&mut other);
    chain.cells.write(places::UPLOAD, &other);
    assert!(Upload::load(&chain.cells).unwrap_err().to_string().contains("principal"));
}

#[test]
fn newest_noted_block_is_found_among_so_many_and_a_block_that_is_not_read_counts() {
    let (mut chain, mut blobs) = fresh(64 << 10);
    for number in 0..8 {
        append(&mut chain, &mut blobs, &block(number, &[id(number)], 10)).unwrap();
    }
    let note = |first| [first; 17];
    for (number, height) in [(2, 12), (4, 14), (5, 15)] {
        chain.headers.set_note(number, Some(&note(height)));
    }
    let newest = |chain: &ChainStore, above, most| chain.newest_noted(above, most, |note| note[0] <= 14);
    assert_eq!([0, 1, 3].map(|above| newest(&chain, above, 100)), [Some(4); 3]);
    assert_eq!([4, 6, 7, u64::MAX].map(|above| newest(&chain, above, 100)), [None; 4]);
    assert_eq!([4, 3, 2, 0].map(|most| newest(&chain, 1, most)), [Some(4), Some(4), Some(5), Some(7)]);
    assert_eq!((newest(&chain, 4, 3), newest(&chain, 4, 2), newest(&chain, 7, 0)), (None, Some(5), None));
    chain.headers.set_note(4, None);
    assert_eq!((newest(&chain, 0, 100), newest(&chain, 2, 100)), (Some(2), None));
}

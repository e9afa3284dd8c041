//! Single flipped bits in stable memory, under a running canister and before an upgrade: none opens the export guard, changes a kept block,
//! refuses an upgrade, or stops pruning. `COPPICE_FLIPS` sets their number (`scripts/soak`).

use coppice_tests::blocks::{block, hash, id, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use ic_coppice_interface::*;

/// Blocks before the flip.
const BLOCKS: u64 = 24;
/// Blocks below this number are acknowledged before the flip.
const BOUND: u64 = 6;
const RETAIN: u64 = 4;
const GRANULE: usize = 64 << 10;

/// A generator of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((word ^ word >> 31) % end as u64) as usize
    }
}

/// Where a bit is flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Superblock, counters and bitmaps.
    Front,
    /// The arena's entries and lines.
    Entries,
    /// Memory of an owner.
    Of(u8),
}

/// A block with a key, an id of its own and an id that every third block has.
fn made(number: u64) -> AppendBlock {
    let ids = [id(number), id(1_000 + number % 3)];
    with_keys(block(number, &ids, 20_000), &[(0, b"key"), (1, &number.to_le_bytes())])
}

/// The words that are not zero, by place, except those of payloads.
fn words(memory: &[u8]) -> Vec<(Place, Vec<usize>)> {
    let payloads = [Owner::Chain, Owner::Upload, Owner::External].map(|owner| owner as u8);
    let place = |at: usize| match at / GRANULE {
        0 => Some(Place::Front),
        1 | 2 => Some(Place::Entries),
        granule => {
            let entry = &memory[GRANULE + granule / 64 * 2_048 + granule % 64 * 16..][..16];
            // Free slots keep what was in them.
            (entry[8] == TAKEN && !payloads.contains(&entry[10])).then_some(Place::Of(entry[10]))
        }
    };
    let mut all = std::collections::BTreeMap::<Place, Vec<usize>>::new();
    for (nth, word) in memory.as_chunks::<8>().0.iter().enumerate() {
        if *word != [0; 8]
            && let Some(place) = place(8 * nth)
        {
            all.entry(place).or_default().push(8 * nth);
        }
    }
    all.into_iter().collect()
}

/// The state of an entry whose granules a store has.
const TAKEN: u8 = 5;

#[test]
fn flipped_bit_opens_no_guard_changes_no_block_and_stops_nothing() {
    let flips = std::env::var("COPPICE_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(300);
    let mut met = std::collections::BTreeMap::<Place, u64>::new();
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.register(Who::Exporter);
    coppice
        .set_policy(PrunePolicyArg {
            retain_blocks: Some(RETAIN),
            min_kept_blocks: Some(0),
            timer_interval_secs: Some(30),
            pause_after_secs: Some(0),
            ..PrunePolicyArg::default()
        })
        .unwrap();
    (0..BLOCKS).for_each(|number| coppice.append(&made(number)).unwrap());
    coppice.ack(Who::Exporter, BOUND - 1, &hash(BOUND - 1)).unwrap();
    coppice.pass(30);
    assert_eq!(coppice.prune_status().pruned_before_block, BOUND);
    let (before, intact) = (host.checkpoint(), host.get_stable_memory(coppice.id));
    let places = words(&intact);
    for seed in 0..flips {
        let mut random = Random(seed);
        host.restore(&before);
        let mut memory = intact.clone();
        let (place, words) = &places[random.below(places.len())];
        let (at, bit) = (words[random.below(words.len())] + random.below(8), random.below(8));
        memory[at] ^= 1 << bit;
        host.set_stable_memory(coppice.id, &memory);
        *met.entry(*place).or_default() += 1;
        let what = format!("seed {seed}: bit {bit} of byte {at}, {place:?}");

        // The canister works with it, goes through an upgrade, and works again.
        let mut next = BLOCKS;
        for round in 0..2 {
            for _ in 0..3 {
                coppice
                    .append(&made(next))
                    .unwrap_or_else(|error| panic!("{what}, round {round}: block {next}: {error:?}"));
                next += 1;
            }
            coppice.pass(60);
            let status = coppice.prune_status();
            assert_eq!(status.pruned_before_block, BOUND, "{what}, round {round}: the guard");
            let bounds: Vec<u64> =
                coppice.export_status().exporters.iter().map(|exporter| exporter.exported_before_block).collect();
            assert_eq!(bounds, [BOUND], "{what}, round {round}");
            if round == 0 {
                coppice.upgrade_with(None).unwrap_or_else(|reject| panic!("{what}: {reject:?}"));
            }
        }
        let mut unreadable = 0;
        for number in BOUND..next {
            match coppice.block(number) {
                Ok(found) => {
                    let AppendBlock { hash, body, receipts, index, .. } = made(number);
                    assert_eq!((found.header.hash, found.body), (hash, body), "{what}: block {number}");
                    assert_eq!((found.receipts, found.index), (receipts, index), "{what}: block {number}");
                }
                Err(ReadError::Corrupt { .. }) => unreadable += 1,
                Err(error) => panic!("{what}: block {number}: {error:?}"),
            }
        }
        let most = match place {
            Place::Of(owner) if *owner == Owner::Headers as u8 => 1,
            // A blob has at most four blocks.
            Place::Entries => 4,
            _ => 0,
        };
        assert!(unreadable <= most, "{what}: {unreadable} blocks cannot be read");
        // Pruning goes on, whatever was skipped.
        let head = next - 1;
        coppice.ack(Who::Exporter, head, &hash(head)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        coppice.pass(300);
        assert_eq!(coppice.prune_status().pruned_before_block, head - RETAIN, "{what}: pruning goes on");
        coppice.append(&made(next)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(coppice.producer().rollback_to(head, None).answer().is_ok(), "{what}");
        coppice.pass(60);
        assert_eq!(coppice.head(), Some(head), "{what}");
        coppice.upgrade_with(None).unwrap_or_else(|reject| panic!("{what}: {reject:?}"));
        coppice.append(&made(next)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    }
    println!("flips by place: {met:?}");
    assert!(flips < 300 || met.len() >= 7, "{met:?}");
}

/// The heap has what a running canister works with, so an upgrade mends the copy in stable memory.
#[test]
fn cells_and_headers_with_a_flipped_bit_are_mended_before_an_upgrade() {
    let (coppice, host) = Coppice::embedded(default_arg());
    coppice.register(Who::Exporter);
    coppice.set_policy(PrunePolicyArg { retain_blocks: Some(50), ..PrunePolicyArg::default() }).unwrap();
    (0..3).for_each(|number| coppice.append(&made(number)).unwrap());
    coppice.producer().rollback_to(1u64, None).answer().unwrap();
    for magic in [
        *b"CPSB", *b"CPAR", *b"CPCE", *b"CPCF", *b"CPCH", *b"CPRB", *b"CPEX", *b"CPPR", *b"CPKY", *b"CPLD", *b"CPBR",
        *b"CPHT",
    ] {
        for bit in [0, 40, 8 * 13 + 2] {
            let mut memory = host.get_stable_memory(coppice.id);
            let at = memory.windows(4).position(|bytes| *bytes == magic);
            let at = at.unwrap_or_else(|| panic!("{} is nowhere", magic.escape_ascii()));
            memory[at + bit / 8] ^= 1 << (bit % 8);
            host.set_stable_memory(coppice.id, &memory);
            coppice.upgrade();
        }
    }
    assert_eq!((coppice.head(), coppice.export_status().exporters.len()), (Some(1), 1));
    assert_eq!(coppice.prune_status().policy.unwrap().retain_blocks, 50);
    coppice.append(&made(2)).unwrap();
}

//! Tests that blocks and UTXO records use the same memory: each store's freed memory serves the other.

mod caps;

use ic_coppice_chain::Admission;
use ic_coppice_chain::testing::block;
use ic_coppice_chain::testing::pruning::{World, policy, world};
use ic_coppice_interface::{
    AppendError, MAX_HEIGHT, MissingParents, NoMemory, PrunePolicyArg, UtxoRefusal, UtxoSettings,
};
use ic_coppice_records::owners;
use ic_coppice_records::testing::{NOW, Tx, raw};
use ic_coppice_records::utxo::{Ahead, Call, UtxoStore};
use ic_coppice_storage::testing::{self, arena, audit, cells, hash_key};
use ic_coppice_storage::{Ic, Platform as _};

/// Outputs of a record, which takes more than 100 KiB.
const OUTPUTS: u32 = 1_000;

/// A chain, and UTXO records beside it.
struct Both {
    blocks: World,
    records: UtxoStore,
    settings: UtxoSettings,
    salt: u64,
}

impl Both {
    fn new(blocks: World) -> Self {
        let records = UtxoStore::open(&arena(), cells(), hash_key()).unwrap();
        Self { blocks, records, settings: UtxoSettings::default(), salt: 0 }
    }

    fn create(&mut self, outputs: u32) -> Result<[u8; 32], UtxoRefusal> {
        arena().end_reservations();
        self.salt += 1;
        let tx = Tx::orphan(self.salt, outputs);
        let call = Call {
            height: 1_000,
            now_ns: NOW,
            settings: &self.settings,
            most: MAX_HEIGHT,
            missing: MissingParents::Refuse,
        };
        self.records.create(&mut self.blocks.blobs, &raw(&tx), &mut Ahead::default(), &call).map(|_| tx.txid)
    }

    /// Creates records until memory is used up.
    fn fill_with_records(&mut self) -> Vec<[u8; 32]> {
        let mut made = Vec::new();
        loop {
            match self.create(OUTPUTS) {
                Ok(txid) => made.push(txid),
                Err(error) => {
                    assert_eq!(error, UtxoRefusal::NoMemory(NoMemory::OutOfSpace));
                    return made;
                }
            }
        }
    }

    fn delete(&mut self, txid: &[u8; 32]) {
        let call = Call {
            height: 1_000,
            now_ns: NOW,
            settings: &self.settings,
            most: MAX_HEIGHT,
            missing: MissingParents::Refuse,
        };
        self.records.delete_by_id(&mut self.blocks.blobs, txid, &call).unwrap();
    }

    /// Appends blocks of a MiB until memory is used up, and returns their number.
    fn fill_with_blocks(&mut self) -> u64 {
        let mut appended = 0;
        loop {
            arena().end_reservations();
            let World { chain, blobs, .. } = &mut self.blocks;
            let block = block(chain.state().next, &[], 1 << 20);
            match chain.append(blobs, &block, &Admission::default(), Ic::now_secs()) {
                Ok(()) => appended += 1,
                Err(error) => {
                    assert!(matches!(error, AppendError::NoMemory(NoMemory::OutOfSpace)), "{error:?}");
                    return appended;
                }
            }
        }
    }

    fn kept(&self, owner: ic_coppice_storage::blob::Owner) -> u64 {
        self.blocks.blobs.arena().kept_bytes(owner)
    }
}

#[test]
fn memory_of_records_serves_blocks_and_memory_of_blocks_serves_records() {
    let mut both = Both::new(world(PrunePolicyArg { retain_blocks: Some(1), ..policy() }));
    both.blocks.append(2, 1_000, 1);
    // The first record of each kind grows what is not in the arena.
    let first = both.create(OUTPUTS).unwrap();
    const RESERVE: u64 = 64 << 20;
    arena().set_reserve(RESERVE);
    testing::set_max_pages(testing::billed_pages() + (RESERVE + (32 << 20)) / ic_coppice_storage::WASM_PAGE);

    let made = both.fill_with_records();
    let by_records = both.kept(owners::RECORDS);
    assert!(made.len() > 100 && by_records > 100 * made.len() as u64 * 1_000, "{} {by_records}", made.len());
    // The reserve is for the chain.
    let of_reserve = both.fill_with_blocks();
    assert!(of_reserve << 20 > RESERVE / 2, "{of_reserve}");
    let billed = testing::billed_pages();
    assert_eq!((both.create(OUTPUTS).is_err(), both.fill_with_blocks()), (true, 0), "memory is used up");

    made.iter().for_each(|txid| both.delete(txid));
    audit();
    let given = by_records - both.kept(owners::RECORDS);
    assert!(given > by_records / 10 * 9, "{given} of {by_records}");
    let appended = both.fill_with_blocks();
    assert!(appended << 20 > given / 10 * 8, "{appended} blocks in {given} bytes");
    let few = both.fill_with_records();
    assert!(few.len() < 5, "{}: only in the chunk of the first one", few.len());

    // The reverse: blocks are pruned, and as many records are created as before.
    while both.blocks.due().is_some() {
        both.blocks.prune(u64::MAX);
    }
    (0..10).for_each(|_| both.blocks.tick());
    audit();
    let again = both.fill_with_records();
    assert!(again.len() >= made.len() / 10 * 9, "{} where {} were", again.len(), made.len());
    assert!(both.fill_with_blocks() >= of_reserve / 10 * 9);
    assert_eq!(testing::billed_pages(), billed, "no memory was grown");
    again.iter().chain(&few).chain([&first]).for_each(|txid| both.delete(txid));
    assert_eq!(both.kept(owners::RECORDS), 64 << 10, "the store's first slot");
    audit();
}

//! Tests that fix the layouts of stable memory: the first bytes of each cell and space of a busy canister.

use super::persisted::busy;
use crate::memory::{arena, space};
use crate::places::{self, CELLS};
use crate::platform::{time_ns, time_secs};
use crate::state::mutate;
use coppice_model::blocks::upload;
use ic_coppice_chain::places as of_chain;
use ic_coppice_chain::testing::{block, with_keys};
use ic_coppice_interface::*;
use ic_coppice_records::places as of_records;
use ic_coppice_storage::blob::{GRANULE, Owner};

/// Adds what [`busy`] leaves out: a chain with ids and keys, a rollback, an open upload, blobs to delete, a lease, a line in the log.
fn busier() {
    busy();
    mutate(|state| {
        let now = time_ns();
        for number in 20..23 {
            let admission = state.admission();
            let ids: Vec<[u8; 32]> = (0..3).map(|nth| [number as u8 + nth; 32]).collect();
            let block = with_keys(block(number, &ids, 700), &[(0, b"key"), (2, b"another")]);
            state.chain.append(&mut state.blobs, &block, &admission, time_secs()).unwrap();
        }
        state.rollback_to(21, false).unwrap();
        let (begin, _) = upload(&block(22, &[[9; 32]], 3_000), 1_000);
        let admission = state.admission();
        state.chain.begin(&mut state.blobs, &begin, crate::platform::caller(), &admission, time_secs()).unwrap();
        for (nth, key) in ["a", "b", "c"].into_iter().enumerate() {
            let name = BlobName {
                blob_key: key.as_bytes().to_vec().into(),
                file_type: "tx".into(),
                store_type: StoreType::ALL[0],
            };
            state
                .records
                .deletions
                .schedule(&ic_coppice_records::deletion::Name::from(&name), 5 + nth as u32, now)
                .unwrap();
        }
    });
}

/// Returns bytes in hex, 32 a line.
fn hex(bytes: &[u8]) -> Vec<String> {
    let line = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.chunks(32).map(line).collect()
}

/// Returns bytes of a space.
fn of_space(id: u8, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    space(id).unwrap().read_onto(&mut bytes, at, len);
    bytes
}

/// Returns bytes of stable memory.
fn of_memory(at: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    arena().unwrap().payload().read_onto(&mut bytes, at, len);
    bytes
}

/// The offset in the arena of an owner's first page.
fn page_of(owner: Owner) -> u64 {
    let arena = arena().unwrap();
    let is_page = |granule: &u64| arena.entry(*granule).is_some_and(|entry| entry.unwrap().owner == owner);
    (0..arena.end() / GRANULE).find(is_page).unwrap() * GRANULE
}

/// The offset in the arena of the first slot that the header of slots names.
fn root_of(id: u8) -> u64 {
    u64::from(space(id).unwrap().read_u32(8) - 1) * 128
}

/// A test for each layout: its name, its place, and its bytes in hex, 32 a line.
macro_rules! layouts {
    ($($name:ident: $of:ident($($at:expr),*), [$($line:literal),* $(,)?];)*) => {
        $(
            #[test]
            fn $name() {
                busier();
                let lines: &[&str] = &[$($line),*];
                let len = lines.iter().map(|line| line.len() / 2).sum();
                assert_eq!(hex(&$of($($at,)* len)), lines);
            }
        )*
    };
}

layouts! {
    header_of_the_cells: of_space(CELLS, 0), [
        "4350434503000000000000000000000000000000000000000000000000000000",
    ];
    hash_key: of_space(CELLS, places::KEY), [
        "43504b59010000001100000050070707070707070707070707070707077ee88d",
    ];
    settings_and_roles: of_space(CELLS, places::CONFIG), [
        "43504346010000000f030000a466636f6e666967b1696c6f675f636c6173731a",
        "00010000706d61785f737461626c655f70616765731a007d00006f7665726966",
    ];
    pruner_of_blocks: of_space(CELLS, of_chain::PRUNE), [
        "435050520400000015020000ab66706f6c696379ac6f7072756e696e675f656e",
        "61626c6564f56c7461726765745f6279746573006b72657461696e5f64617973",
    ];
    exporters: of_space(CELLS, of_chain::EXPORTERS), [
        "43504558020000004d0000008267696e6465786572a4697072696e636970616c",
        "410365626f756e64106f61636b6e6f776c65646765645f61741b17979cfe362a",
    ];
    rollbacks: of_space(CELLS, of_chain::ROLLBACKS), [
        "435052420200000012000000a265636f756e7401657374657073818201152cc2",
    ];
    upload_of_a_block: of_space(CELLS, of_chain::UPLOAD), [
        "4350555002000120160000000000000016105e5f00000000b80b00000d000000",
        "28000000e803000000000000200000005ff35365000000000000000000000000",
        "001b75c002b9dca87ad0024ae2a021b0a40bf4fbb6f8ba9ad2c2622d30ddfd2d",
        "0063d477323b157da8f33cce9b71aff1db9afee1e554302c2400903470e155f3",
        "890bfa23dfad9cddb388032c2b5474e300e420f7f4558094cbc700287e88829e",
        "873b56d4371cf7446e83f090814729c81666038be4ef145b81f60999413fceb7",
        "a92a927fcfda2b79495f9e1cb80d888bb1ba050445687302e2b0fbc4412efa9c",
        "0104000000000000000000000000000000000000000000000000000000000000",
    ];
    upload_of_a_transaction: of_space(CELLS, of_records::TRANSACTION_UPLOAD), [
        "435054550100000090000000a762627941016474786964582005050505050505",
        "05050505050505050505050505050505050505050505050505666c656e677468",
    ];
    uploads_of_transactions: of_space(CELLS, of_records::TRANSACTION_PLACES), [
        "43505450010000000000000000000000",
    ];
    pruner_of_records: of_space(CELLS, of_records::UTXO_PRUNER), [
        "43505552040000002f080000b81d6873657474696e6773b26e7072756e65725f",
        "656e61626c6564f57364697361626c655f6461685f636c65616e6572f4706a6f",
    ];
    superblock: of_memory(0), [
        "43505342020000000d0000000a0000000f000000010000001000000001000000",
        "1200000001000000140000000100000016000000010000001500000001000000",
        "230000000100000017000000010000001c000000010000001d00000001000000",
    ];
    job: of_space(of_records::JOBS, of_records::JOB_LEN as u64), [
        "43504a4201000000da000000af626964016668656967687419044c6774726967",
        "67657265426c6f636b65737461746569436f6d706c6574656463656e64f66e63",
    ];
    ring_of_jobs: of_space(of_records::JOBS, 0), [
        "435052470100000000000000000000001f000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ];
    counters_of_the_arena: of_memory(8_192), [
        "4350415204000000c00000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000100000001000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ];
    entries_of_the_arena: of_memory(65_536 + 16 * 24), [
        "0100000000000100050003c0000000000100000000000100050005c000000000",
        "0100000000000100050003c0000000000100000000000100050003c000000000",
        "0100000000000100050009c0000000000100000000000100050009c000000000",
        "0100000000000100050009c0000000000100000000000100010000c000000000",
    ];
    lines_of_chunks: of_memory(65_536 + 1_024 + 16 * 32), [
        "000000000000000043504252ffffffff010000000000000043504c44ffffffff",
        "020000000000000043504c44ffffffff00000000000000000000000000000000",
        "08000c0000000c00000000000000000010000100000001000000000000000000",
        "0000030000000300000000000000000008000c0000000c000000000000000000",
    ];
    log_directory: of_space(of_chain::LOG_DIRECTORY, 0), [
        "43504c4403000000000001000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "1f000000010000002ae740d1f2d739d82100000001000000b870bee4e4bfb1c5",
    ];
    headers: of_space(of_chain::HEADERS, 0), [
        "4350425208000000000000000000000000000000000000000000000000000000",
    ];
    a_header: of_memory(page_of(ic_coppice_chain::owners::HEADERS) + 8 * 256), [
        "0cb10000000000000800000000000000a0190100000000002823000004000000",
        "080000000000000008105e5f0000000008105e5f000000000000000020000000",
        "005a8f7d1e709d20fea2d465adab219e017d1c192e989c8fb08d35bd0a2d9dcd",
        "4712a5e6649602f29c876cc25b188b106d7b912cf517162e6b8daa611806cedc",
        "205bd6a53a214bb6154ce539889d6f5a1e3cb6f46524553c616c68eb040e4c5e",
        "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119",
        "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc",
        "000000000000000000000000000000000000000000000000000000000ec1d6ac",
        "0cb10000000000000900000000000000d43c0100000000002823000004000000",
        "080000000000000009105e5f0000000009105e5f000000000000000020000000",
    ];
    transaction_index: of_space(of_chain::TRANSACTION_INDEX, 0), [
        "4350485405000000800000000000000004000000000000000000000000000000",
        "0000000000000000",
    ];
    utxo_index: of_space(of_records::UTXO_INDEX, 0), [
        "4350485405000000800000000000000008000000000000000000000000000000",
        "0000000000000000",
    ];
    utxo_slots: of_space(of_records::UTXO_SLOTS, 0), [
        "4350534c04000000013000000130000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "190000001900000001000000010000001c0000001c0000000700000001000000",
    ];
    order_of_utxo_records: of_memory(root_of(of_records::UTXO_SLOTS)), [
        "00a5000000000000080000000000000000000000000000000e00000000000000",
        "014800000000000007000000000000002948000017fcffff0100000000000000",
        "0000000000000000000000000000000051480000ffffffff0100000000000000",
        "0000000000000000030000000805000078040000900000008403000000000000",
    ];
    deletion_queue: of_memory(root_of(of_records::DELETIONS)), [
        "10a500000000000043504451030000000400000000000000014e0000294e0000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000010001000100000000000000",
        "0000000000000000bf972c72c3a77ae600000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ];
}

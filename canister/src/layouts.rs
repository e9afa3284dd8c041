//! Tests that fix the layouts of stable memory: the first bytes of each cell and region of a busy canister.

use crate::persisted::busy;
use crate::platform::{time_ns, time_secs};
use crate::state::mutate;
use crate::storage::memory::*;
use crate::storage::places;
use crate::testing::{block, with_keys};
use coppice_interface::*;
use coppice_model::blocks::upload;

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
        state.rollback_to(21).unwrap();
        let (begin, _) = upload(&block(22, &[[9; 32]], 3_000), 1_000);
        let admission = state.admission();
        state.chain.begin(&mut state.blobs, &begin, &admission, time_secs()).unwrap();
        for (nth, key) in ["a", "b", "c"].into_iter().enumerate() {
            let name = BlobName {
                blob_key: key.as_bytes().to_vec().into(),
                file_type: "tx".into(),
                store_type: StoreType::ALL[0],
            };
            state.deletions.schedule(&crate::deletion::Name::from(&name), 5 + nth as u32, now).unwrap();
        }
    });
}

/// Returns the bytes of a region, in hex, 32 bytes a line.
fn hex(id: u8, at: u64, len: usize) -> Vec<String> {
    let mut bytes = Vec::new();
    region(id).read_onto(&mut bytes, at, len);
    let line = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.chunks(32).map(line).collect()
}

/// A test for each layout: its name, the region, the offset, and its bytes in hex, 32 a line.
macro_rules! layouts {
    ($($name:ident: $region:expr, $at:expr, [$($line:literal),* $(,)?];)*) => {
        $(
            #[test]
            fn $name() {
                busier();
                let lines: &[&str] = &[$($line),*];
                let len = lines.iter().map(|line| line.len() / 2).sum();
                assert_eq!(hex($region, $at, len), lines);
            }
        )*
    };
}

layouts! {
    header_of_the_cells: CELLS, 0, [
        "4350434501000000000000000000000000000000000000000000000000000000",
    ];
    settings_and_roles: CELLS, places::CONFIG, [
        "4350434601000000f5020000a466636f6e666967b1696c6f675f636c6173731a",
        "00010000706d61785f737461626c655f70616765731a007d00006f7665726966",
    ];
    pruner_of_blocks: CELLS, places::PRUNE, [
        "435050520200000020020000ac66706f6c696379ad6f7072756e696e675f656e",
        "61626c6564f56c7461726765745f6279746573006b72657461696e5f64617973",
    ];
    exporters: CELLS, places::EXPORTERS, [
        "43504558010000004d000000a167696e6465786572a4697072696e636970616c",
        "410365626f756e64106f61636b6e6f776c65646765645f61741b17979cfe362a",
    ];
    rollbacks: CELLS, places::ROLLBACKS, [
        "4350524201000100010000000000000001000000000000001500000000000000",
    ];
    upload_of_a_block: CELLS, places::UPLOAD, [
        "4350555001000120160000000000000016105e5f00000000b80b00000d000000",
        "28000000e803000004000000200000005ff35365000000000000000000000000",
        "001b75c002b9dca87ad0024ae2a021b0a40bf4fbb6f8ba9ad2c2622d30ddfd2d",
        "0063d477323b157da8f33cce9b71aff1db9afee1e554302c2400903470e155f3",
        "890bfa23dfad9cddb388032c2b5474e300e420f7f4558094cbc700287e88829e",
        "873b56d4371cf7446e83f090814729c81666038be4ef145b81f60999413fceb7",
        "a92a927fcfda2b79495f9e1cb80d888bb1ba050445687302e2b0fbc4412efa9c",
        "0104000000000000000000000000000000000000000000000000000000000000",
    ];
    upload_of_a_transaction: CELLS, places::TRANSACTION_UPLOAD, [
        "435054550100000090000000a762627941016474786964582005050505050505",
        "05050505050505050505050505050505050505050505050505666c656e677468",
    ];
    uploads_of_transactions: CELLS, places::TRANSACTION_PLACES, [
        "43505450010000000000000000000000",
    ];
    pruner_of_records: CELLS, places::UTXO_PRUNER, [
        "4350555201000000ad0d0000b81d6873657474696e6773b26e7072756e65725f",
        "656e61626c6564f57364697361626c655f6461685f636c65616e6572f4706a6f",
    ];
    jobs: CELLS, places::JOBS.at, [
        "43504a42010000000c020000af626964016668656967687419044c6774726967",
        "67657265426c6f636b65737461746569436f6d706c6574656463656e64f66e63",
    ];
    blob_counters: ARENA_SETS, 0, [
        "4350425301000000000043000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000300000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ];
    log_directory: LOG_DIRECTORY, 0, [
        "43504c4401000000000001000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000001000000010000000100000002000000010000000000000000000000",
    ];
    block_records: BLOCK_RECORDS, 0, [
        "4350425202000000010000000000000000000000000000000000000000000000",
    ];
    a_block_record: BLOCK_RECORDS, (64 << 10) + (4 << 20), [
        "0000000000000000000000000000000000000000000000002823000004000000",
        "080000000000000000105e5f0000000000105e5f000000000000000020200000",
        "00caaa80eed3c33aaf2f47d0e6fd6bba6f79adc3ae299dda8cc1436b473edf07",
        "005f15b5c3c105a02ee9c152a1279d83ed707b013967ac7b76ed42cdbddab216",
        "33a95cb706fa95fddf65df8bd98501e763fe75dc2125f4b0facce1476ca80cd7",
        "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119",
        "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ];
    transaction_index: TRANSACTION_INDEX, 0, [
        "4350485401000000800000000000000004000000000000000100000000000000",
        "0000000000000000bb729cb758c6632a",
    ];
    utxo_index: UTXO_INDEX, 0, [
        "4350485401000000800000000000000008000000000000000100000000000000",
        "0000000000000000bb729cb758c6632a",
    ];
    utxo_slots: UTXO_SLOTS, 0, [
        "4350534c01000000c09001000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000100000000000000",
    ];
    order_of_utxo_records: UTXO_SLOTS, 4_096, [
        "01a5000000000000080000000000000000000000000000004c00000000000000",
        "07000000000000008302000017fcffff01000000000000000000000000000000",
        "000000000000000063040000ffffffff01000000000000000000000000000000",
        "0300000008050000780400008403000000000000000000000000000000000000",
    ];
    deletion_queue: DELETIONS, 4_096, [
        "14a5000000000000435044510200000004000000000000009200000072020000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000100000000000000",
        "0000000000000000bb729cb758c6632a00000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ];
}

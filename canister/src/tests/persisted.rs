//! Tests that cells in CBOR tolerate unknown fields without a new version, and that another version is refused (an upgrade to code that
//! cannot read a cell is undone).
//!
//! Every structure of each cell, however deep, gets a field that this code does not know.

use crate::platform::{native, time_secs};
use crate::state::records::settings_of;
use crate::state::{self, State, mutate, read};
use crate::{memory, places};
use candid::Principal;
use ciborium::Value;
use ic_coppice_chain::pruning::policy;
use ic_coppice_chain::testing::block;
use ic_coppice_interface::*;
use ic_coppice_records::testing::{Tx, block as in_block, raw};
use ic_coppice_records::utxo::Ahead;

/// The cells in CBOR, and the names of fields and structures that a busy canister must have there.
const CELLS: [(u64, &str); 5] = [
    (places::CONFIG, "config roles principal utxo_batch_size"),
    (ic_coppice_chain::places::PRUNE, "policy retain_blocks last_run reason"),
    (ic_coppice_chain::places::EXPORTERS, "bound acknowledged_at"),
    (ic_coppice_records::places::TRANSACTION_UPLOAD, "parts offset gen"),
    (ic_coppice_records::places::UTXO_PRUNER, "safe noted promise last_completed level slot parent superseded cutoff"),
];

const NEW: &str = "a_field_to_come";

fn principal(of: u8) -> Principal {
    Principal::from_slice(&[of])
}

/// Builds a canister in the middle of many operations.
pub fn busy() {
    native::reset();
    memory::forget();
    let (producers, operators) = (vec![principal(1)], vec![principal(2)]);
    let log_class = Some(64 << 10);
    state::init(&InitArg { log_class, producers, operators, ..InitArg::default() }).unwrap();
    mutate(|state| {
        let exporter = Exporter { name: "indexer".into(), principal: principal(3) };
        state.register_exporter(&exporter).unwrap();
        for number in 0..20 {
            let admission = state.admission();
            state.chain.append(&mut state.blobs, &block(number, &[], 9_000), &admission, time_secs()).unwrap();
        }
        state.exporters.acknowledge(&state.chain, principal(3), 15, &ic_coppice_chain::testing::hash(15, 0)).unwrap();
        let arg = PrunePolicyArg { retain_blocks: Some(5), ..PrunePolicyArg::default() };
        state.pruner.set_policy(policy::changed(&PrunePolicy::default(), &arg, &state.config).unwrap());
        assert_eq!(state.prune_now(8).unwrap().reason, Some(PruneReason::Retention));
        let begin = BeginTransaction { txid: [5; 32].into(), length: 3 << 20, chunk_size: 1 << 20 };
        state
            .records
            .utxo
            .begin_upload(&mut state.blobs, &begin, settings_of(&state.config), principal(1), time_secs())
            .unwrap();
    });
    records();
}

/// Finished jobs, a running and a waiting one; a record that traps, an unreadable one that is skipped, and what blocks progress.
fn records() {
    let due: Vec<Tx> = (0..9).map(|i| Tx::orphan(10 + i, 1)).collect();
    let old = Tx::of(70, &[([9; 32], 0)], 1);
    mutate(|state| {
        let settings = settings_of(&state.config).clone();
        let call = ic_coppice_records::utxo::Call {
            height: 1_000,
            now_ns: 5,
            settings: &settings,
            most: MAX_HEIGHT,
            missing: MissingParents::Refuse,
        };
        let mined = MinedIn { blocks: (0..5).map(|i| in_block(i, 900)).collect(), on_longest_chain: true };
        for tx in &due {
            let item = UtxoCreate { mined: Some(mined.clone()), ..raw(tx) };
            state.records.utxo.create(&mut state.blobs, &item, &mut Ahead::default(), &call).unwrap();
            let spends = TransactionSpends { spender: [7; 32].into(), spends: vec![tx.spend(0, 0)] };
            state.records.utxo.spend(&spends, &call).unwrap();
        }
        state.records.utxo.create(&mut state.blobs, &raw(&old), &mut Ahead::default(), &call).unwrap();
        state.records.pruner.set_assembly(UtxoBlockAssemblyState::Running, None, settings_of(&state.config));
        let change = UtxoPrunerSettingsChange { max_instructions_per_tick: Some(1), ..Default::default() };
        state.records.pruner.set_settings(&change, &settings).unwrap();
    });
    let tick = |secs: u64| {
        native::with(|world| world.time_ns += secs * 1_000_000_000);
        mutate(|state| {
            let (pruner, mut records) = state.utxo_pruner();
            let late = pruner.next_tick_ns > 0 && time_secs() * 1_000_000_000 >= pruner.next_tick_ns + 60_000_000_000;
            pruner.tick(&mut records, false, late);
        });
    };
    let notify = |height: u32| mutate(|state| drop(state.records.pruner.notify_block(height, true, false).unwrap()));
    let slot = read(|state| state.records.utxo.slot_of(&old.txid));
    let damage = |kind: u8| ic_coppice_storage::testing::overwrite(slot, 0, &[kind]);
    notify(1_100);
    (0..2).for_each(|_| tick(1));
    // Phase 1 reaches an unreadable record, which is then skipped.
    notify(1_287);
    damage(9);
    tick(1);
    mutate(|state| state.records.pruner.skip(slot).unwrap());
    notify(1_288);
    (0..3).for_each(|_| tick(1));
    // Ticks are as late as if earlier ticks had trapped, until a single record is marked and skipped.
    (0..3).for_each(|_| tick(100));
    tick(1);
    // Late twice, then late for the first time.
    (0..3).for_each(|_| tick(100));
    notify(1_291);
}

/// Collects the names of all fields, and adds a field to each structure. Names that begin with a capital are enum variants.
fn with_a_field(value: &mut Value, names: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| with_a_field(item, names)),
        Value::Map(fields) => {
            let text = |key: &Value| key.as_text().map(str::to_string);
            let keys: Vec<String> = fields.iter().filter_map(|(key, _)| text(key)).collect();
            let variant = |key: &String| key.starts_with(|first: char| first.is_uppercase());
            let is_structure = keys.len() == fields.len() && !keys.iter().any(variant);
            names.extend(keys);
            fields.iter_mut().for_each(|(_, field)| with_a_field(field, names));
            if is_structure {
                fields.push((NEW.into(), Value::Array(vec![7.into()])));
            }
        }
        _ => {}
    }
}

fn cell_value(at: u64) -> Value {
    let cells = ic_coppice_storage::testing::cells();
    let len: [u8; 4] = cells.read(at + 8);
    let mut bytes = Vec::new();
    cells.read_onto(&mut bytes, at + 12, u32::from_le_bytes(len) as usize);
    ciborium::from_reader(bytes.as_slice()).unwrap()
}

fn write(at: u64, value: &Value) {
    let cells = ic_coppice_storage::testing::cells();
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    let header: [u8; 8] = cells.read(at);
    let len = (bytes.len() as u32).to_le_bytes();
    let mut cell = [&header[..], &len, &bytes, &[0; 4]].concat();
    ic_coppice_storage::checksum::put(&mut cell);
    cells.write(at, &cell);
}

fn upgrade() -> Result<(), String> {
    memory::forget();
    state::upgrade(None)
}

/// Everything that is read from the cells.
fn shown() -> String {
    read(|state| {
        let (settings, deletions) = (settings_of(&state.config), &state.records.deletions);
        let mut status = state.records.pruner.status(settings, deletions);
        (status.ticks, status.next_tick_ns) = (0, 0);
        let jobs = state.records.pruner.jobs(None, 0);
        let exporters = state.exporters.status(&state.chain, false);
        let pruner = (state.pruner.policy(), state.pruner.status(&state.chain, &state.blobs, &state.constraints()));
        let mut pruned = format!("{:?}", pruner.1);
        pruned.truncate(pruned.find("next_tick_ns").unwrap_or(pruned.len()));
        let upload = state.records.utxo.uploads.touched();
        format!(
            "{:?} {:?} {:?} {pruned} {exporters:?} {upload:?} {status:?} {jobs:?}",
            state.config, state.roles, pruner.0
        )
    })
}

#[test]
fn unknown_field_in_any_structure_of_a_cell_is_ignored() {
    busy();
    let before = shown();
    for (at, expected) in CELLS {
        let (now, mut names) = (cell_value(at), Vec::new());
        let mut next = now.clone();
        with_a_field(&mut next, &mut names);
        let missing: Vec<&str> = expected.split(' ').filter(|name| !names.iter().any(|there| there == name)).collect();
        assert_eq!(missing, [] as [&str; 0], "cell {at} has only {names:?}");
        write(at, &next);
        assert_eq!(upgrade(), Ok(()), "cell {at}");
        assert_eq!(shown(), before, "cell {at}");
        write(at, &now);
    }
}

#[test]
fn cell_whose_head_is_wiped_is_written_anew_before_an_upgrade() {
    busy();
    let before = shown();
    let cells = ic_coppice_storage::testing::cells();
    for at in CELLS.map(|(at, _)| at).into_iter().chain([places::KEY]) {
        let whole: [u8; 64] = cells.read(at);
        cells.write(at, &[0; 12]);
        mutate(State::rewrite);
        assert_eq!(cells.read(at), whole, "cell {at}");
        assert_eq!(upgrade(), Ok(()), "cell {at}");
        assert_eq!(shown(), before, "cell {at}");
    }
}

#[test]
fn another_version_of_a_cell_is_refused() {
    busy();
    let before = shown();
    let cells = ic_coppice_storage::testing::cells();
    for (at, _) in CELLS {
        let (header, value): ([u8; 8], _) = (cells.read(at), cell_value(at));
        for (byte, wrong) in [(0, b'X'), (4, 0), (4, header[4] + 1), (5, 1)] {
            let mut bytes = header;
            bytes[byte] = wrong;
            cells.write(at, &bytes);
            assert!(upgrade().unwrap_err().contains("damaged"), "byte {byte} of cell {at}: its checksum is wrong");
            write(at, &value);
            assert!(upgrade().unwrap_err().contains("version"), "byte {byte} of cell {at}");
        }
        cells.write(at, &header);
        write(at, &value);
        assert_eq!(upgrade(), Ok(()));
        assert_eq!(shown(), before);
    }
}

#[test]
fn another_header_of_the_region_of_cells_is_refused() {
    busy();
    let cells = ic_coppice_storage::testing::cells();
    for header in [[0; 8], *b"CPCE\x01\0\0\0"] {
        cells.write(0, &header);
        assert!(upgrade().unwrap_err().contains("cells"), "{header:?}");
    }
    cells.write_header(0, &places::HEADER);
    assert_eq!(upgrade(), Ok(()));
}

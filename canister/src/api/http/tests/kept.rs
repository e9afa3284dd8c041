//! Pages of blocks and transactions, refusals, and the parts of the dashboard.

use super::*;
use crate::api::endpoints::blocks;
use ic_coppice_chain::testing::{block, id};
use ic_coppice_records::utxo::{Ahead, Call};

fn append(number: u64, ids: &[[u8; 32]], body: usize) -> Result<(), AppendError> {
    let block = block(number, ids, body);
    blocks::append_block(block)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_block_and_a_transaction_have_pages() {
    fresh();
    let ids: Vec<[u8; 32]> = (0..3).map(id).collect();
    append(0, &[], 10).unwrap();
    append(1, &ids, 2_048).unwrap();
    let made = block(1, &ids, 2_048);
    let (status, page) = get("/block/1");
    assert_eq!(status, 200);
    for part in [
        hex(&made.hash),
        hex(&made.parent_hash),
        hex(&made.sha256.body),
        "2.0 KiB".into(),
        "2020-09-13 12:26:41 UTC".into(),
    ] {
        assert!(page.contains(&part), "{part}: {page}");
    }
    for (nth, id) in ids.iter().enumerate() {
        assert!(page.contains(&format!("<a href=\"/tx/{}\">", hex(id))), "{nth}");
        let (status, page) = get(&format!("/tx/{}", hex(id)));
        assert_eq!(status, 200, "{page}");
        assert!(page.contains("<a href=\"/block/1\">") && page.contains(&hex(&[nth as u8; 5])), "{nth}: {page}");
        assert!(page.contains(&format!("data-figure=\"position\" value=\"{nth}\"")), "{nth}: {page}");
        assert_eq!(get(&format!("/tx/{}", hex(id).to_uppercase())).0, 200);
    }
    // The first block has no transactions; no block is before it.
    let (status, page) = get("/block/0");
    assert!(
        status == 200 && page.contains("The block has none.") && !page.contains("/block/18446744073709551615"),
        "{page}"
    );
    assert!(get("/").1.contains("<a href=\"/block/1\"><data data-figure=\"head\" value=\"1\">"));
    // A block with many transactions shows the first thousand ids.
    let many: Vec<[u8; 32]> = (10..1_511).map(id).collect();
    append(2, &many, 10).unwrap();
    let (_, page) = get("/block/2");
    assert_eq!((page.matches("href=\"/tx/").count(), page.contains("and 501 more")), (1_000, true));
    assert!(page.len() < 300_000, "{}", page.len());
    // The page of a pruned block says that the block is gone.
    let policy = PrunePolicyArg { retain_blocks: Some(1), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    mutate(|state| state.set_prune_policy(&policy)).unwrap();
    mutate(|state| state.prune_now(10)).unwrap();
    let (status, page) = get("/block/0");
    assert!(status == 410 && page.contains("the oldest block that is kept is 1."), "{page}");
    assert_eq!((get("/block/3").0, get(&format!("/tx/{}", "0".repeat(64))).0), (404, 404));
    mutate(|state| state.chain.poison_header(2));
    assert_eq!(get("/block/2").0, 500);
}

#[test]
fn a_transaction_with_a_utxo_record_shows_it() {
    fresh();
    let txid = id(7);
    let outputs = vec![PartialOutput { index: 0, satoshis: 5, script: ByteBuf::from([0x51]) }];
    let partial = PartialTransaction { txid: txid.into(), coinbase: false, total_outputs: 1, outputs };
    let item = UtxoCreate {
        source: TransactionSource::Outputs(partial),
        mined: None,
        locked: Some(false),
        conflicting: false,
        fee: None,
        is_new: false,
    };
    mutate(|state| {
        let State { records, blobs, config, .. } = state;
        let utxo = &mut records.utxo;
        let call = Call {
            height: 900,
            now_ns: 1,
            settings: settings_of(config),
            most: u32::MAX,
            missing: MissingParents::Refuse,
        };
        utxo.create(blobs, &item, &mut Ahead::default(), &call).unwrap();
    });
    let (status, page) = get(&format!("/tx/{}", hex(&txid)));
    assert!(status == 200 && page.contains("no kept block has it") && page.contains("UTXO record"), "{page}");
    assert!(page.contains("1 output, 1 of them to be spent") && page.contains("<td>900</td>"), "{page}");
}

#[test]
fn refusals_and_rollbacks_are_counted() {
    fresh();
    state::tally::forget();
    native::with(|world| world.caller = candid::Principal::from_slice(&[1]));
    (0..3).for_each(|number| append(number, &[], 10).unwrap());
    assert!(append(7, &[], 10).is_err() && append(9, &[], 10).is_err());
    let mut other = block(1, &[], 11);
    other.hash = [9; 32].into();
    assert_eq!(
        blocks::append_block(other),
        Err(AppendError::Conflict { differs: vec![BlockField::Hash, BlockField::Body] })
    );
    native::with(|world| world.liquid_cycles = 450_000_000_000);
    mutate(crate::operation::daemon::watch_cycles);
    assert!(matches!(append(3, &[], 10), Err(AppendError::NoMemory(NoMemory::LowCycles { .. }))));
    native::with(|world| world.liquid_cycles = u128::MAX);
    mutate(crate::operation::daemon::watch_cycles);
    let to = |number: u64| mutate(|state| state.rollback_to(number, false)).map(|rollback| rollback.removed);
    assert_eq!((to(2), to(1), to(0)), (Ok(0), Ok(1), Ok(1)));
    let metrics = get("/metrics").1;
    for line in [
        "coppice_refused_appends_total{reason=\"Gap\"} 2 ",
        "coppice_refused_appends_total{reason=\"Conflict\"} 1 ",
        "coppice_refused_appends_total{reason=\"LowCycles\"} 1 ",
        "coppice_refused_appends_total{reason=\"OutOfSpace\"} 0 ",
        "coppice_rollbacks_total 2 ",
        "coppice_rolled_back_blocks_total 2 ",
    ] {
        assert!(metrics.contains(&format!("\n{line}")), "{line}: {metrics}");
    }
}

/// Unused features have no cards, and plots of a month are left out while the samples cover less than a day.
#[test]
fn the_page_has_the_parts_that_are_used() {
    fresh();
    append(0, &[], 10).unwrap();
    let has = |part: &str| get("/").1.contains(part);
    assert!(!has("<h3>UTXO records</h3>") && !has("<h3>External blobs</h3>") && has("<h3>Exporters</h3>"));
    assert!(has("data-span=\"day\"") && !has("data-span=\"month\"") && has("<h2>A day</h2>"));
    assert!(has(" blocks/h</span>") && has(" instructions/h</span>") && has("MiB</span>"), "axes say what is counted");
    let hash: String = hex(&block(0, &[], 10).hash[..6]);
    assert!(has(&format!("<code>{hash}…</code> 0 s ago")));
    mutate(crate::operation::sampling::note);
    native::with(|world| world.time_ns += 86_399 * 1_000_000_000);
    assert!(!has("data-span=\"month\"") && has("23 h 59 min ago"));
    native::with(|world| world.time_ns += 1_000_000_000);
    assert!(has("data-span=\"month\"") && has("<h2>A day and a month</h2>"));
    mutate(|state| state.utxo_pruner().0.notify_block(10, false, false)).unwrap();
    assert!(has("<h3>UTXO records</h3>") && !has("<h3>External blobs</h3>"));
    let name = BlobName { blob_key: vec![7].into(), file_type: "tx".into(), store_type: StoreType::Block };
    mutate(|state| state.records.deletions.schedule(&(&name).into(), 1, platform::time_ns())).unwrap();
    assert!(has("<h3>External blobs</h3>"));
}

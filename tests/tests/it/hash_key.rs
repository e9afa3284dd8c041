//! The hash key: drawn after an installation, then kept. Before, nothing is entered.

use coppice_tests::blocks::{plain, plain_id, upload, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg, init_arg};
use coppice_tests::wasm;
use ic_coppice_host::{Host, Principal, TrapPoint};
use ic_coppice_interface::*;
use ic_coppice_storage::HashKey;
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// A reply of `raw_rand`.
fn reply(bytes: &[u8]) -> Result<Vec<u8>, String> {
    Ok(candid::encode_one(ByteBuf::from(bytes)).unwrap())
}

/// A canister whose first draws have these replies.
fn drawing(replies: impl IntoIterator<Item = Result<Vec<u8>, String>>) -> (Coppice, Arc<Host>) {
    let (ic, host) = coppice_ic::embedded();
    replies.into_iter().for_each(|reply| host.faults().answer_random(reply));
    (Coppice::just_installed(ic, default_arg()), host)
}

fn is_ready(coppice: &Coppice) -> bool {
    !coppice.health().problems.iter().any(|problem| problem.code == ProblemCode::NotReady)
}

fn create(source: TransactionSource) -> UtxoCreateBatch {
    let item = UtxoCreate { source, mined: None, locked: None, conflicting: false, fee: None, is_new: true };
    UtxoCreateBatch { height: 1, items: vec![item] }
}

fn outputs() -> TransactionSource {
    let output = PartialOutput { index: 0, satoshis: 1, script: ByteBuf::from([0x51]) };
    let txid = Txid::from([5; 32]);
    TransactionSource::Outputs(PartialTransaction { txid, coinbase: false, total_outputs: 1, outputs: vec![output] })
}

fn external() -> TransactionSource {
    let store = ExternalStore { store_type: StoreType::Tx, blob_key: ByteBuf::from(*b"blob"), file_type: FileType::Tx };
    TransactionSource::External(ExternalTransaction {
        txid: Txid::from([6; 32]),
        store,
        coinbase: false,
        version: 1,
        lock_time: 0,
        size: 100,
        inputs: vec![Outpoint { txid: Txid::from([8; 32]), vout: 0 }],
        utxo_hashes: vec![Some(UtxoHash::from([1; 32]))],
    })
}

/// Calls everything that enters something, and returns the first refusal of each.
fn entering(coppice: &Coppice) -> Vec<Result<(), String>> {
    let feeder = coppice.producer();
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let block = plain(0, 2, 1_000);
    let create = |source| {
        let answer = feeder.utxo_create(&create(source)).answer().results.remove(0);
        answer.map(drop).map_err(|error| said(&error))
    };
    let begin = BeginTransaction { txid: [7; 32].into(), length: 3 << 20, chunk_size: 1 << 20 };
    let name = BlobName { blob_key: ByteBuf::from(*b"another"), file_type: "tx".into(), store_type: StoreType::Tx };
    vec![
        coppice.append(&block).map_err(|error| said(&error)),
        feeder.begin_block(&upload(&plain(1, 2, 1_000), 100).0).answer().map(drop).map_err(|error| said(&error)),
        create(outputs()),
        create(external()),
        feeder.utxo_begin_transaction(&begin).answer().map(drop).map_err(|error| said(&error)),
        feeder
            .schedule_blob_deletion(&ScheduleBlobDeletion { name, delete_at_height: 5 })
            .answer()
            .map(drop)
            .map_err(|error| said(&error)),
    ]
}

#[test]
fn calls_that_enter_something_are_refused_as_not_ready_until_the_key_is_drawn() {
    let (coppice, _) = drawing([Err("the subnet is busy".into())]);
    for _ in 0..3 {
        coppice.ic.tick();
    }
    let not_ready = vec![Err(NotReady.to_string()); 6];
    assert_eq!(entering(&coppice), not_ready);
    assert_eq!(coppice.append(&plain(0, 2, 1_000)), Err(AppendError::NotReady(NotReady)));
    let health = coppice.health();
    assert!(!health.healthy && health.problems[0].code == ProblemCode::NotReady, "{health:?}");
    assert_eq!((coppice.head(), coppice.location(plain_id(0, 0))), (None, Err(ReadError::NotFound)));
    assert_eq!(coppice.find_all(b"a", 5), []);
    let storage = coppice.storage();
    assert_eq!((storage.key_entries, storage.utxo.unwrap().records), (0, 0));
    let uploads = coppice.anyone().list_uploads().answer();
    assert_eq!((uploads.block, uploads.transactions), (None, Some(vec![])));
    // An upgrade keeps the canister without a key, and draws.
    coppice.upgrade();
    coppice.await_ready();
    assert_eq!(entering(&coppice), vec![Ok(()); 6]);
}

#[test]
fn rejected_and_malformed_draws_are_repeated_after_ten_seconds() {
    let bad = [
        Err("the subnet is busy".into()),
        Ok(Vec::new()),
        Ok(b"noise".to_vec()),
        Ok(candid::encode_one("text").unwrap()),
        reply(&[1; 31]),
        reply(&[1; 33]),
        reply(&[]),
    ];
    let draws = bad.len();
    let (coppice, _) = drawing(bad);
    coppice.pass(0);
    for draw in 0..draws {
        assert!(!is_ready(&coppice), "draw {draw}");
        coppice.pass(9);
        assert!(!is_ready(&coppice), "draw {draw}, after nine seconds");
        coppice.pass(1);
    }
    assert!(is_ready(&coppice));
    let lines = coppice.operator().get_logs(Some(LogPriority::Error), None, 0).answer().entries;
    let lines: Vec<_> = lines.iter().filter(|line| line.message.contains("hash key")).collect();
    assert!(lines.len() == 1 && lines[0].message.contains("the subnet is busy"), "{lines:?}");
}

#[test]
fn draw_whose_reply_is_lost_is_repeated_by_the_safety_timer() {
    let mut lost = 0;
    for message in 1..=5 {
        for point in [TrapPoint::Start, TrapPoint::End] {
            let (coppice, host) = drawing([]);
            host.faults().trap_message(message, point);
            coppice.pass(0);
            host.faults().clear();
            lost += u32::from(!is_ready(&coppice));
            // If the platform's own timer is lost, a producer's call wakes it.
            for _ in 0..3 {
                coppice.pass(SAFETY_SECS);
                let _ = coppice.append(&plain(0, 2, 1_000));
            }
            coppice.pass(1);
            assert!(is_ready(&coppice), "message {message}");
            coppice.append(&plain(0, 2, 1_000)).unwrap();
        }
    }
    // The timer, the call that the timer makes to the canister itself, and the reply; the other two end the firing.
    assert_eq!(lost, 6);
}

#[test]
fn upgrade_at_any_moment_of_a_draw_leads_to_one_key() {
    let arg = || candid::encode_one(None::<CanisterArg>).unwrap();
    for before in 1..=5 {
        let (coppice, host) = drawing([]);
        host.faults().upgrade_before(before, coppice.id, wasm::canister(), arg());
        coppice.pass(0);
        host.faults().clear();
        coppice.pass(1);
        coppice.await_ready();
        coppice.append(&with_keys(plain(0, 2, 1_000), &[(0, b"a")])).unwrap();
        coppice.upgrade();
        coppice.pass(2 * SAFETY_SECS);
        assert_eq!(coppice.find_all(b"a", 5), [(0, 0)], "upgrade before message {before}");
    }
}

fn count(memory: &[u8], bytes: &[u8]) -> usize {
    memchr::memmem::find_iter(memory, bytes).count()
}

#[test]
fn key_is_kept_by_upgrades_and_snapshots_and_drawn_anew_by_a_reinstall() {
    let random: [[u8; 32]; 2] = [1, 2].map(|of: u8| std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ of));
    let (coppice, host) = drawing(random.map(|bytes| reply(&bytes)));
    coppice.await_ready();
    let controller = Who::Controller.principal();
    let stored = || random.map(|bytes| count(&host.get_stable_memory(coppice.id), &bytes[..16]));
    assert_eq!(stored(), [1, 0]);
    coppice.append(&with_keys(plain(0, 2, 1_000), &[(0, b"a")])).unwrap();
    coppice.upgrade();
    coppice.pass(2 * SAFETY_SECS);
    assert_eq!((stored(), coppice.find_all(b"a", 5)), ([1, 0], vec![(0, 0)]));

    coppice.ic.stop(coppice.id, controller).unwrap();
    let snapshot = host.take_canister_snapshot(coppice.id, Some(controller), None).unwrap();
    host.reinstall_canister(coppice.id, wasm::canister(), init_arg(default_arg()), Some(controller)).unwrap();
    coppice.ic.start(coppice.id, controller).unwrap();
    coppice.await_ready();
    assert_eq!((stored(), coppice.find_all(b"a", 5)), ([0, 1], vec![]));

    coppice.ic.stop(coppice.id, controller).unwrap();
    host.load_canister_snapshot(coppice.id, Some(controller), snapshot.id).unwrap();
    coppice.ic.start(coppice.id, controller).unwrap();
    coppice.pass(2 * SAFETY_SECS);
    assert_eq!((stored(), coppice.find_all(b"a", 5)), ([1, 0], vec![(0, 0)]));
}

#[test]
fn key_is_in_no_answer() {
    let random: [u8; 32] = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ 0x5A);
    let (coppice, _) = drawing([Err("the subnet is busy".into()), reply(&random)]);
    coppice.pass(0);
    coppice.pass(10);
    coppice.append(&with_keys(plain(0, 2, 1_000), &[(0, b"a")])).unwrap();
    let key = &random[..16];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let shown =
        [key.to_vec(), random[..8].to_vec(), random[8..16].to_vec(), hex(&key[..8]).into(), hex(&key[8..]).into()];
    let mut asked = 0;
    let mut check = |what: &str, answer: Vec<u8>| {
        asked += 1;
        for secret in &shown {
            assert_eq!(count(&answer, secret), 0, "{what}");
        }
    };
    let nothing = candid::encode_args(()).unwrap();
    for method in methods::TABLE.iter().filter(|method| method.is_query) {
        // Absent arguments that are optional are null.
        if let Ok(answer) = coppice.ic.query(coppice.id, Who::Controller.principal(), method.name, nothing.clone()) {
            check(method.name, answer);
        }
    }
    let logs = coppice.operator().get_logs(None, None, 0).answer();
    check("get_logs", format!("{logs:?}").into_bytes());
    let audit = coppice.operator().get_audit_log(None, 0).answer();
    check("get_audit_log", format!("{audit:?}").into_bytes());
    for url in ["/", "/metrics", "/health", "/logs"] {
        let request = HttpRequest {
            method: "GET".into(),
            url: url.into(),
            headers: Vec::new(),
            body: ByteBuf::new(),
            certificate_version: None,
        };
        check(url, coppice.anyone().http_request(&request).answer().body.into_vec());
    }
    assert!(asked > 15, "{asked}");
}

/// Keys that share a bucket under a hash key.
fn sharing(key: &HashKey, count: usize) -> Vec<[u8; 8]> {
    (0u64..).map(u64::to_le_bytes).filter(|bytes| key.hash(bytes).is_multiple_of(256)).take(count).collect()
}

/// Instructions of an append with these secondary keys.
fn append(key: [u8; 16], keys: &[[u8; 8]]) -> u64 {
    let (coppice, host) = drawing([reply(&[key, [0; 16]].concat())]);
    coppice.await_ready();
    let keys: Vec<(u32, &[u8])> = keys.iter().map(|key| (0, &key[..])).collect();
    coppice.append(&with_keys(plain(0, 1, 100), &keys)).unwrap();
    host.last_execution().unwrap().instructions
}

#[test]
fn keys_chosen_without_the_hash_key_cost_what_random_ones_cost() {
    const KEYS: usize = 3_000;
    let key = [0x3C; 16];
    let random: Vec<[u8; 8]> =
        (0..KEYS as u64).map(|of| (of.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes()).collect();
    let random = append(key, &random);
    // Hash keys that a stranger can compute: nothing, and the canister's id.
    let mut id = [0; 16];
    id[..10].copy_from_slice(Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 1]).as_slice());
    for guessed in [[0; 16], id] {
        let chosen = append(key, &sharing(&HashKey::of(guessed), KEYS));
        assert!(chosen.abs_diff(random) < random / 20, "{chosen} instructions, {random} for random keys");
    }
    let known = append(key, &sharing(&HashKey::of(key), KEYS));
    assert!(known > random + random / 2, "the test knows the hash key: {known} instructions, {random} for random keys");
}

//! A stolen or faulty producer's key: almost everything it can do is undone.

use coppice_tests::blocks::{block, block_id, hash, plain, upload};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who, default_arg};
use coppice_tests::transactions::Tx;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

fn with_rival() -> Coppice {
    let producers = vec![Who::Producer.principal(), Who::Rival.principal()];
    let coppice = Coppice::with(InitArg { producers, ..default_arg() });
    coppice.grant(Who::Operator, Role::Operator);
    coppice.grant(Who::Admin, Role::Admin);
    coppice
}

fn call<R: candid::CandidType + serde::de::DeserializeOwned>(
    coppice: &Coppice,
    who: Who,
    method: &str,
    arg: impl candid::CandidType,
) -> R {
    coppice.call(who, method, (arg,)).unwrap_or_else(|reject| panic!("{method} by {who:?}: {reject:?}"))
}

fn rollback(coppice: &Coppice, who: Who, number: u64) -> Result<Rollback, RollbackError> {
    let mut done: Result<Rollback, RollbackError> = call(coppice, who, "rollback_to", number);
    while done.as_ref().is_ok_and(|done| done.has_more) {
        done = call(coppice, who, "rollback_to", number);
    }
    done
}

fn limit(coppice: &Coppice, max_rollback_blocks: u64) {
    let change = ConfigChange { max_rollback_blocks: Some(max_rollback_blocks), ..ConfigChange::default() };
    assert_eq!(coppice.configure(change).max_rollback_blocks, max_rollback_blocks);
}

fn in_place_of(number: u64, fork: u64) -> AppendBlock {
    let (hash, parent_hash) = (hash(number ^ fork << 40).into(), hash(number - 1).into());
    AppendBlock { hash, parent_hash, ..block(number, &[], 10) }
}

#[test]
fn repeated_rollbacks_of_a_producer_stay_within_its_bound() {
    let coppice = with_rival();
    assert_eq!(coppice.anyone().get_config().answer().max_rollback_blocks, 1_000);
    limit(&coppice, 10);
    coppice.append_plain(0..41, 10);
    let too_deep = |lowest| Err(RollbackError::TooDeep { lowest });
    assert_eq!(rollback(&coppice, Who::Producer, 29), too_deep(30));
    assert_eq!(rollback(&coppice, Who::Producer, 30).unwrap().head, 30);
    // From then on, and after an upgrade, the bound counts from the highest head, not from the current one.
    for _ in 0..3 {
        assert_eq!(rollback(&coppice, Who::Producer, 29), too_deep(30));
        assert_eq!(rollback(&coppice, Who::Rival, 0), too_deep(30));
        coppice.upgrade();
    }
    assert_eq!(coppice.head(), Some(30));
    // A block that replaces a rolled-back one does not move the bound; a higher block does.
    coppice.append(&in_place_of(31, 1)).unwrap();
    assert_eq!(rollback(&coppice, Who::Producer, 30).unwrap().head, 30);
    assert_eq!(rollback(&coppice, Who::Producer, 29), too_deep(30));
    coppice.append_plain(31..43, 10);
    assert_eq!(rollback(&coppice, Who::Producer, 31), too_deep(32));
    assert_eq!(rollback(&coppice, Who::Producer, 32).unwrap().head, 32);

    // 0 allows no rollback, and the largest value allows any depth.
    limit(&coppice, 0);
    assert_eq!(rollback(&coppice, Who::Producer, 31), too_deep(42));
    let again = Rollback { head: 32, removed: 0, has_more: false, not_restored: Some(0), waits: None };
    assert_eq!(rollback(&coppice, Who::Producer, 32), Ok(again), "a completed rollback may be repeated");
    coppice.append_plain(33..44, 10);
    assert_eq!(rollback(&coppice, Who::Producer, 42), too_deep(43));
    assert_eq!(
        rollback(&coppice, Who::Producer, 43),
        Ok(Rollback { head: 43, removed: 0, has_more: false, not_restored: Some(0), waits: None })
    );
    limit(&coppice, u64::MAX);
    assert_eq!(rollback(&coppice, Who::Producer, 20).unwrap().head, 20);
}

#[test]
fn an_admin_rolls_back_deep_but_not_below_what_was_pruned() {
    let coppice = with_rival();
    limit(&coppice, 3);
    coppice.append_plain(0..30, 10);
    let policy = PrunePolicyArg { retain_blocks: Some(20), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    coppice.set_policy(policy).unwrap();
    coppice.prune_now(1_000);
    let pruned = coppice.prune_status().pruned_before_block;
    assert_eq!(rollback(&coppice, Who::Admin, pruned - 1), Err(RollbackError::Pruned { first_available: pruned }));
    assert_eq!(rollback(&coppice, Who::Producer, pruned - 1), Err(RollbackError::Pruned { first_available: pruned }));
    assert_eq!(rollback(&coppice, Who::Producer, pruned), Err(RollbackError::TooDeep { lowest: 26 }));
    let reject = coppice.by(Who::Operator).rollback_to(pruned, None).try_answer().unwrap_err();
    assert!(reject.message.contains("access denied"), "{reject:?}");
    assert_eq!(rollback(&coppice, Who::Admin, pruned).unwrap().head, pruned);
    coppice.append_plain(pruned + 1..pruned + 4, 10);
    assert_eq!(rollback(&coppice, Who::Producer, pruned + 2), Err(RollbackError::TooDeep { lowest: 26 }));
    assert_eq!(rollback(&coppice, Who::Admin, pruned + 2).unwrap().head, pruned + 2);
}

/// The producer completes a rollback that an admin began, with the call that `RollbackUnderway` asks for.
#[test]
fn a_producer_completes_an_admins_rollback_and_goes_no_deeper() {
    let coppice = with_rival();
    limit(&coppice, 3);
    let few = PrunePolicyArg { retain_blocks: Some(1_000), max_ops_per_tick: Some(8), ..PrunePolicyArg::default() };
    coppice.set_policy(few).unwrap();
    coppice.append_plain(0..30, 10);
    let first: Result<Rollback, RollbackError> = call(&coppice, Who::Admin, "rollback_to", 5u64);
    assert!(first.unwrap().has_more);
    let deeper: Result<Rollback, RollbackError> = call(&coppice, Who::Producer, "rollback_to", 4u64);
    assert_eq!(deeper, Err(RollbackError::TooDeep { lowest: 26 }));
    assert_eq!(rollback(&coppice, Who::Producer, 5).unwrap().head, 5);
}

#[test]
fn a_reset_restarts_the_rollback_bound() {
    let coppice = with_rival();
    limit(&coppice, 5);
    coppice.append_plain(1_000..1_020, 10);
    let reset = ResetChain { head_hash: hash(1_019).into(), drop_unexported: false };
    coppice.operator().reset_chain(&reset).answer().unwrap();
    coppice.settle(60);
    coppice.pass(60);
    coppice.append_plain(0..10, 10);
    assert_eq!(rollback(&coppice, Who::Producer, 3), Err(RollbackError::TooDeep { lowest: 4 }));
    assert_eq!(rollback(&coppice, Who::Producer, 4).unwrap().head, 4);
}

fn seconds(coppice: &Coppice) -> u64 {
    coppice.ic.now() / 1_000_000_000
}

#[test]
fn an_upload_is_open_to_its_producer_and_operators_only() {
    let coppice = with_rival();
    coppice.append(&plain(0, 2, 1_000)).unwrap();
    let large = plain(1, 2, 300_000);
    let (begin, chunks) = upload(&large, 100_000);
    let first = PutBlockChunk { number: 1, chunk: 0, bytes: ByteBuf::from(chunks[0].clone()) };
    coppice.producer().begin_block(&begin).answer().unwrap();
    let (by, expires_at_secs) = (Who::Producer.principal(), seconds(&coppice) + 120);
    let open = || UploadError::UploadOpen(UploadOpen { by, expires_at_secs });
    for _ in 0..3 {
        // The same upload, another one, an append, a rollback: all are refused while the upload is open.
        let begun: Result<UploadProgress, AppendError> = call(&coppice, Who::Rival, "begin_block", begin.clone());
        assert_eq!(begun, Err(AppendError::UploadOpen(UploadOpen { by, expires_at_secs })));
        let other = upload(&plain(1, 7, 10), 10).0;
        let begun: Result<UploadProgress, AppendError> = call(&coppice, Who::Rival, "begin_block", other);
        assert_eq!(begun, Err(AppendError::UploadOpen(UploadOpen { by, expires_at_secs })));
        let appended: Result<(), AppendError> = call(&coppice, Who::Rival, "append_block", plain(1, 1, 10));
        assert_eq!(appended, Err(AppendError::UploadOpen(UploadOpen { by, expires_at_secs })));
        assert_eq!(
            rollback(&coppice, Who::Rival, 0),
            Err(RollbackError::UploadOpen(UploadOpen { by, expires_at_secs }))
        );
        let put: Result<UploadProgress, UploadError> = call(&coppice, Who::Rival, "put_block_chunk", first.clone());
        assert_eq!(put, Err(open()));
        let committed: Result<Commit, UploadError> = call(&coppice, Who::Rival, "commit_block", block_id(&large));
        assert_eq!(committed, Err(open()));
        for number in [0u64, 1, 2] {
            assert_eq!(call::<Result<bool, UploadError>>(&coppice, Who::Rival, "abort_block", number), Err(open()));
        }
    }
    // The answer for a kept block is the same for every caller.
    let done: Result<Commit, UploadError> = call(&coppice, Who::Rival, "commit_block", block_id(&plain(0, 2, 1_000)));
    assert_eq!(done, Ok(Commit::Done));
    let known: Result<UploadProgress, AppendError> =
        call(&coppice, Who::Rival, "begin_block", upload(&plain(0, 2, 1_000), 100).0);
    assert_eq!(known.unwrap().missing, 0);
    // The upload is unchanged: its producer puts a chunk, an operator puts the others and commits.
    coppice.upgrade();
    coppice.put(1, 0, chunks[0].clone()).unwrap();
    for (chunk, bytes) in (0..).zip(&chunks).skip(1) {
        let put = PutBlockChunk { number: 1, chunk, bytes: ByteBuf::from(bytes.clone()) };
        let put: Result<UploadProgress, UploadError> = call(&coppice, Who::Operator, "put_block_chunk", put);
        put.unwrap();
    }
    let committed: Result<Commit, UploadError> = call(&coppice, Who::Operator, "commit_block", block_id(&large));
    assert_eq!(committed, Ok(Commit::Done));
    // An operator may also abort it; an admin who is not an operator may not.
    coppice.producer().begin_block(&upload(&plain(2, 1, 9), 9).0).answer().unwrap();
    let reject = coppice.by(Who::Admin).abort_block(2u64).try_answer().unwrap_err();
    assert!(reject.message.contains("access denied"), "{reject:?}");
    assert_eq!(call::<Result<bool, UploadError>>(&coppice, Who::Operator, "abort_block", 2u64), Ok(true));
    assert_eq!(call::<Result<bool, UploadError>>(&coppice, Who::Rival, "abort_block", 2u64), Ok(false));
    call::<Result<(), AppendError>>(&coppice, Who::Rival, "append_block", plain(2, 1, 9)).unwrap();
}

#[test]
fn after_two_idle_minutes_another_producer_may_begin_an_upload() {
    let coppice = with_rival();
    let begin = upload(&plain(0, 1, 1_000), 500).0;
    coppice.producer().begin_block(&begin).answer().unwrap();
    coppice.pass(115);
    let begun: Result<UploadProgress, AppendError> = call(&coppice, Who::Rival, "begin_block", begin.clone());
    let Err(AppendError::UploadOpen(UploadOpen { by, expires_at_secs })) = begun else { panic!("{begun:?}") };
    assert_eq!(by, Who::Producer.principal());
    assert!((1..=5).contains(&(expires_at_secs - seconds(&coppice))), "a refused call does not put it off");
    coppice.pass(10);
    assert_eq!(
        call::<Result<UploadProgress, AppendError>>(&coppice, Who::Rival, "begin_block", begin).unwrap().missing,
        3
    );
}

#[test]
fn producers_upload_transactions_independently() {
    let coppice = with_rival();
    let [ours, theirs] = [1, 2].map(|salt: u8| Tx::new(&[([salt; 32], 0)], &[(5, vec![0x51; 100_000])]));
    let begin = |tx: &Tx| BeginTransaction { txid: tx.id(), length: tx.raw.len() as u64, chunk_size: 1 << 16 };
    let begun = |who: Who, tx: &Tx| -> Result<UploadProgress, TransactionUploadError> {
        call(&coppice, who, "utxo_begin_transaction", begin(tx))
    };
    let put = |who: Who, tx: &Tx, chunk: usize| -> Result<UploadProgress, TransactionUploadError> {
        let bytes = ByteBuf::from(tx.raw.chunks(1 << 16).nth(chunk).unwrap());
        let put = PutTransactionChunk { txid: tx.id(), chunk: chunk as u32, bytes };
        call(&coppice, who, "utxo_put_transaction_chunk", put)
    };
    begun(Who::Producer, &ours).unwrap();
    begun(Who::Rival, &theirs).unwrap();
    let other = |tx: &Tx| TransactionUploadError::OtherUpload { txid: tx.id() };
    assert_eq!(begun(Who::Rival, &ours), Err(other(&theirs)), "one a producer");
    assert_eq!(put(Who::Rival, &ours, 0), Err(other(&theirs)));
    let abort = |who: Who, tx: &Tx| -> Result<bool, TransactionUploadError> {
        call(&coppice, who, "utxo_abort_transaction", tx.id())
    };
    assert_eq!(abort(Who::Rival, &ours), Err(other(&theirs)), "no producer ends another one's upload");
    put(Who::Producer, &ours, 0).unwrap();
    coppice.upgrade();
    let listed: Vec<OpenTransaction> = coppice.anyone().list_uploads().answer().transactions.unwrap();
    let shown: Vec<_> = listed.iter().map(|open| (open.by, open.txid.clone(), open.progress.missing)).collect();
    let (by, rival) = (Who::Producer.principal(), Who::Rival.principal());
    assert_eq!(shown, [(by, ours.id(), 1), (rival, theirs.id(), 2)]);
    // Wrong bytes under another producer's txid do not affect that producer's upload.
    assert_eq!(abort(Who::Rival, &theirs), Ok(true));
    begun(Who::Rival, &ours).unwrap();
    for chunk in 0..2 {
        let len = ours.raw.chunks(1 << 16).nth(chunk).unwrap().len();
        let put = PutTransactionChunk { txid: ours.id(), chunk: chunk as u32, bytes: ByteBuf::from(vec![7; len]) };
        let put: Result<UploadProgress, TransactionUploadError> =
            call(&coppice, Who::Rival, "utxo_put_transaction_chunk", put);
        put.unwrap();
    }
    let item = UtxoCreate { source: TransactionSource::Uploaded(ours.id()), ..ours.record() };
    let create = |who: Who| -> Result<UtxoCreated, UtxoCreateError> {
        let batch = UtxoCreateBatch { height: 10, items: vec![item.clone()] };
        let mut done: Batch<Result<UtxoCreated, UtxoCreateError>> = call(&coppice, who, "utxo_create", batch);
        done.results.remove(0)
    };
    assert_eq!(create(Who::Producer), Err(UtxoCreateError::NoUpload), "a chunk is missing");
    put(Who::Producer, &ours, 1).unwrap();
    assert!(matches!(create(Who::Rival), Err(UtxoCreateError::BadTransaction { .. })));
    create(Who::Producer).unwrap();
    // Abandoned uploads expire, and no byte of them stays.
    coppice.pass(130);
    assert_eq!(coppice.anyone().list_uploads().answer().transactions, Some(vec![]));
    let owners = coppice.storage().owners;
    assert_eq!(owners[1].kept_bytes, 0, "{owners:?}");
}

/// A block with a wrong digest would stop every indexer, and with them pruning: it is refused at once.
#[test]
fn a_new_canister_refuses_blocks_with_wrong_digests() {
    let coppice = Coppice::new();
    assert!(coppice.anyone().get_config().answer().verify_segments);
    for segment in 0..3u8 {
        let mut wrong = plain(0, 3, 1_000);
        wrong.sha256[usize::from(segment)] = ByteBuf::from(vec![7; 32]);
        let refused = coppice.append(&wrong).unwrap_err();
        assert!(matches!(refused, AppendError::BadEncoding { segment: of, .. } if of == segment), "{refused:?}");
        let refused = coppice.upload(&wrong, 400).unwrap_err();
        let of_segment =
            |error: &AppendError| matches!(error, AppendError::BadEncoding { segment: of, .. } if *of == segment);
        assert!(matches!(&refused, UploadError::Append(error) if of_segment(error)), "{refused:?}");
        assert_eq!(coppice.producer().abort_block(0u64).answer(), Ok(true));
    }
    assert_eq!(coppice.append(&plain(0, 3, 1_000)), Ok(()));
}

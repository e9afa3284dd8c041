//! Uploads that stay open: abandoned ones that do not expire, and ones that calls keep open.

use super::*;

const HOUR: u64 = 3_600;

fn expiry(coppice: &Coppice, secs: u64) {
    configure(coppice, ConfigChange { upload_expiry_secs: Some(secs), ..Default::default() });
}

fn begin(coppice: &Coppice, number: u64) {
    let (begin, _) = upload(&plain(number, 3, 5_000), 1_000);
    coppice.producer().begin_block(&begin).answer().unwrap();
}

/// Abandons one upload of a block after another, and drops each in one of the ways that `health` names.
#[test]
fn an_abandoned_block_upload_is_reported() {
    let coppice = Coppice::new();
    begin(&coppice, 0);
    (0..7).for_each(|_| coppice.pass(600));
    assert_eq!(health(&coppice).problems, [], "it has expired by itself");
    expiry(&coppice, u64::MAX);
    begin(&coppice, 0);
    let begun = health(&coppice).time_ns;
    coppice.pass(HOUR - 100);
    assert!(health(&coppice).healthy);
    coppice.upgrade();
    coppice.pass(110);
    let says =
        "the upload of block 0 has been idle for 1 h, and upload_expiry_secs = 18446744073709551615 keeps it open";
    let raised = |says: &str| raised(&coppice, ProblemCode::UploadStuck, Severity::Critical, says);
    let problem = raised(says);
    assert!(problem.since_ns.unwrap().abs_diff(begun) <= 5 * NS, "{problem:?}, begun at {begun}");
    assert!(page(&coppice).contains("UploadStuck"));
    // The producer completes the upload.
    let (_, chunks) = upload(&plain(0, 3, 5_000), 1_000);
    coppice.put(0, 0, chunks[0].clone()).unwrap();
    cleared(&coppice, ProblemCode::UploadStuck);
    coppice.pass(HOUR + 10);
    raised("the upload of block 0");
    // An operator drops it.
    assert!(coppice.operator().abort_block(0).answer().unwrap());
    assert_eq!(health(&coppice).problems, []);
    // With a lower expiry the daemon drops the upload.
    begin(&coppice, 0);
    coppice.pass(2 * HOUR);
    raised("the upload of block 0 has been idle for 2 h");
    expiry(&coppice, 120);
    cleared(&coppice, ProblemCode::UploadStuck);
    coppice.pass(600);
    assert_eq!((health(&coppice).problems, coppice.anyone().list_uploads().answer().block), (vec![], None));
    coppice.append_plain(0..1, 10);
}

#[test]
fn an_abandoned_transaction_upload_is_reported() {
    let coppice = Coppice::new();
    coppice.grant(Who::Rival, Role::Producer);
    expiry(&coppice, 30 * 86_400);
    let arg = BeginTransaction { txid: Txid::from([1; 32]), length: 1 << 20, chunk_size: 1 << 20 };
    for who in [Who::Producer, Who::Rival] {
        coppice.by(who).utxo_begin_transaction(&arg).answer().unwrap();
    }
    coppice.pass(HOUR - 20);
    assert_eq!(health(&coppice).problems, []);
    coppice.pass(30);
    let raised = || {
        let says = "the upload of a transaction has been idle for 1 h, and upload_expiry_secs = 2592000 keeps it open";
        let problem = raised(&coppice, ProblemCode::TransactionUploadStuck, Severity::Warning, says);
        assert!(problem.action.contains("utxo_abort_transaction"), "{problem:?}");
    };
    raised();
    coppice.upgrade();
    raised();
    // Both uploads must be dropped.
    for who in [Who::Producer, Who::Rival] {
        raised();
        assert!(coppice.by(who).utxo_abort_transaction(&arg.txid).answer().unwrap());
    }
    cleared(&coppice, ProblemCode::TransactionUploadStuck);
    coppice.producer().utxo_begin_transaction(&arg).answer().unwrap();
    coppice.pass(HOUR + 10);
    raised();
    expiry(&coppice, HOUR);
    coppice.pass(600);
    assert_eq!(
        (health(&coppice).problems, coppice.anyone().list_uploads().answer().transactions),
        (vec![], Some(vec![]))
    );
}

/// Repeated calls keep one upload open. Uploads of blocks that are completed do not count, even if one is open at each sample.
#[test]
fn a_block_upload_that_calls_keep_open_is_reported() {
    let coppice = Coppice::new();
    let touch = |times: u32| {
        for _ in 0..times {
            begin(&coppice, 9);
            coppice.pass(100);
        }
    };
    // For two hours an upload is open at each sample, and one block is completed every half hour.
    for number in 0..4 {
        let block = plain(number, 3, 5_000);
        for _ in 0..18 {
            begin(&coppice, number);
            coppice.pass(100);
            cleared(&coppice, ProblemCode::UploadStuck);
        }
        coppice.upload(&block, 1_000).unwrap();
        begin(&coppice, number + 1);
        coppice.pass(1);
        coppice.operator().abort_block(number + 1).answer().unwrap();
    }
    coppice.append_plain(4..9, 10);
    touch(35);
    cleared(&coppice, ProblemCode::UploadStuck);
    coppice.upgrade();
    touch(3);
    let says = "calls have kept the upload of block 9 open for 1 h 3 min without an append: 6 chunks are missing";
    let problem = raised(&coppice, ProblemCode::UploadStuck, Severity::Critical, says);
    assert!(problem.action.contains("abort_block") && !problem.action.contains("upload_expiry_secs"), "{problem:?}");
    assert!(coppice.operator().abort_block(9).answer().unwrap());
    assert_eq!(health(&coppice).problems, []);
    // A new upload is not reported as stuck at once.
    coppice.pass(60);
    touch(3);
    cleared(&coppice, ProblemCode::UploadStuck);
    coppice.upload(&plain(9, 3, 5_000), 1_000).unwrap();
    coppice.pass(60);
    assert_eq!(health(&coppice).problems, []);
}

//! File types that differ only in case: a file system that ignores case has one file for both.

use super::*;
use StoreType::{Subtree, Temp, Tx};

/// A file type of the longest length, which shares its beginning with all others.
fn long(of: usize) -> String {
    format!("a-file-type-of-the-length-of{of:04}")
}

#[test]
fn file_type_in_another_case_is_refused_at_a_bounded_cost_whatever_has_rows() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let name = |store_type, file_type: &str| BlobName {
        blob_key: ByteBuf::from([7]),
        file_type: file_type.into(),
        store_type,
    };
    let schedule = |store_type, file_type: &str| -> (Result<u64, BlobDeletionError>, u64) {
        host.take_executions();
        let arg = ScheduleBlobDeletion { name: name(store_type, file_type), delete_at_height: 1 };
        let scheduled = coppice.producer().schedule_blob_deletion(&arg).answer();
        let ran = host.take_executions();
        let updates = ran.iter().filter(|execution| execution.kind == Kind::Update);
        (scheduled.map(|scheduled| scheduled.id), updates.map(|execution| execution.instructions).sum())
    };
    let refused = |used: &str| Err(BlobDeletionError::OtherCase { file_type: used.into() });
    assert_eq!(schedule(Temp, "TX").0, refused("tx"), "a record may need it at any time");
    assert_eq!(schedule(Tx, "OUTPUTS").0, refused("outputs"));
    assert_eq!(schedule(Subtree, "subtreeData").0, Ok(1));
    let (first, few) = schedule(Subtree, &long(0));
    assert_eq!(first, Ok(2));
    for of in 1..62 {
        assert_eq!(schedule(Subtree, &long(of)).0, Ok(of as u64 + 2));
    }
    let (last, many) = schedule(Subtree, &long(62));
    assert_eq!(last, Ok(64));
    let (other, refusal) = schedule(Temp, &long(62).to_uppercase());
    assert_eq!(other, refused(&long(62)), "in another store, with all lanes taken");
    println!("a row of a new file type: {few} instructions, {many} beside 64 others; refused: {refusal}");
    assert!(many < few + 300_000 && refusal < many, "{few}, {many}, {refusal}");
    assert_eq!(schedule(Temp, "another").0, Err(BlobDeletionError::TooMany { limit: 64 }));
    coppice.upgrade();
    for used in [long(62), long(0), "subtreeData".into()] {
        assert_eq!(schedule(Subtree, &used.to_uppercase()).0, refused(&used), "after an upgrade");
    }
    // The last row gives its file type back.
    let cancelled: Result<_, BlobDeletionError> =
        coppice.producer().cancel_blob_deletion(&name(Subtree, "subtreeData")).answer();
    assert_eq!(cancelled.unwrap().map(|row| row.id), Some(1));
    assert_eq!(schedule(Temp, "SubtreeData").0, Ok(65));
    assert_eq!(schedule(Subtree, "subtreeData").0, refused("SubtreeData"));
    assert_eq!(status(&coppice).rows, 64);
}

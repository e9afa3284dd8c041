//! The deletion queue.

use candid::Principal;
use ic_coppice_client::{Client, Error, Transport};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

pub async fn a_repeated_acquire_returns_the_same_lease<T: Transport>(client: &Client<T>, _: Principal) {
    let name = BlobName {
        blob_key: ByteBuf::from(b"a blob".as_slice()),
        file_type: "subtree".into(),
        store_type: StoreType::Subtree,
    };
    let schedule = ScheduleBlobDeletion { name, delete_at_height: 5 };
    let row = client.schedule_blob_deletion(&schedule).await.unwrap();
    assert_eq!(client.schedule_blob_deletion(&schedule).await.unwrap().id, row.id);
    let lease = AcquireBlobDeletions {
        height: 5,
        limit: 10,
        lock_timeout_secs: 60,
        store_types: vec![StoreType::Subtree],
        request: Some(ByteBuf::from(b"once".as_slice())),
        ..Default::default()
    };
    let first = client.acquire_blob_deletion_batch(&lease).await.unwrap().unwrap();
    assert_eq!(first.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [row.id]);
    assert_eq!(client.acquire_blob_deletion_batch(&lease).await.unwrap().as_ref(), Some(&first));
    let done = CompleteBlobDeletionBatch {
        token: first.token.clone(),
        completed_ids: vec![row.id],
        failed_ids: Vec::new(),
        max_retries: 3,
        ..Default::default()
    };
    for _ in 0..2 {
        assert_eq!(client.complete_blob_deletion_batch(&done).await.unwrap().removed, 1);
    }
    let error = client.extend_blob_deletion_batch(&first.token, 60).await.unwrap_err();
    assert!(matches!(error, Error::Refused(BlobDeletionError::Completed)), "{error:?}");
    assert_eq!(client.get_pending_blob_deletions(u32::MAX, 0, None).await.unwrap(), []);
}

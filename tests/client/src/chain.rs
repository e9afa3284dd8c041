//! Blocks, uploads, rollbacks, exports, keys.

use crate::blocks::{append, block, branch, id, next, sha256};
use candid::Principal;
use ic_coppice_client::{
    Block, CHUNK, Client, Error, ExportPager, Failure, HeaderPager, KeyPager, MAX_APPEND, Retry, Sent, Transport,
};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

pub async fn blocks_are_appended_once_and_read_back<T: Transport>(client: &Client<T>, _: Principal) {
    let appended = block(next(client).await, 1_000, b"once");
    for _ in 0..2 {
        assert_eq!(client.send_block(&appended).await.unwrap(), Sent::Whole);
    }
    let number = appended.number;
    assert_eq!(client.get_head().await.unwrap().number, number);
    let (header, segments) = client.whole_block(number).await.unwrap();
    assert_eq!(header, client.header(number).await.unwrap());
    assert_eq!((&header.hash, &header.sha256), (&appended.hash, &appended.sha256));
    assert_eq!(segments.concat(), [&appended.body[..], &appended.receipts, &appended.index].concat());
    let mut pager = HeaderPager::new(number, u64::MAX);
    assert_eq!(pager.next(client).await.unwrap(), Some(vec![header.clone()]));
    assert_eq!(pager.next(client).await.unwrap(), None);
    let location = client.get_transaction_location(ByteBuf::from(id(number, 1))).await.unwrap();
    assert_eq!((location.block_number, location.position), (number, 1));
    assert_eq!(**client.get_receipt(ByteBuf::from(id(number, 1))).await.unwrap().bytes, *b"two!");
    assert_eq!(client.get_storage_status(Some(number)).await.unwrap().block.unwrap().lengths, header.lengths);
}

pub async fn a_block_larger_than_a_message_is_sent_in_chunks<T: Transport>(client: &Client<T>, _: Principal) {
    // One byte more than fits in one message.
    let short = block(next(client).await, 0, b"chunks");
    let rest = MAX_APPEND - short.receipts.len() - short.index.len();
    for (body, sent) in [(rest, Sent::Whole), (rest + 1, Sent::InChunks)] {
        let long = block(next(client).await, body, b"chunks");
        for _ in 0..2 {
            assert_eq!(client.send_block(&long).await.unwrap(), sent, "{body}");
        }
        let (header, [read, _, index]) = client.whole_block(long.number).await.unwrap();
        assert!(header.hash == long.hash && read == long.body[..] && index == long.index[..], "{body}");
    }
    // Many references in few bytes.
    let (number, parent) = next(client).await;
    let wide = Block::new(number, sha256(&parent), parent, 0);
    let wide = (0..12_501).fold(wide, |wide, position| wide.transaction(id(number, position), None, &[]));
    let wide = wide.seal().unwrap();
    assert_eq!(client.send_block(&wide).await.unwrap(), Sent::InChunks);
    assert_eq!(client.get_head().await.unwrap().transactions, 12_501);
    assert_eq!(client.list_uploads().await.unwrap().block, None);
}

pub async fn an_interrupted_upload_resumes<T: Transport>(client: &Client<T>, caller: Principal) {
    let long = block(next(client).await, MAX_APPEND + 5, b"interrupted");
    let lengths = [&long.body, &long.receipts, &long.index].map(|bytes| bytes.len() as u64);
    let begin = BeginBlock {
        number: long.number,
        hash: long.hash.clone(),
        parent_hash: long.parent_hash.clone(),
        timestamp_secs: long.timestamp_secs,
        lengths: lengths.into(),
        sha256: long.sha256.clone(),
        chunk_size: CHUNK,
    };
    let begun = client.begin_block(&begin).await.unwrap();
    assert_eq!((begun.chunks, begun.missing), (2, 2));
    let bytes = ByteBuf::from(&long.body[..CHUNK as usize]);
    let put = client.put_block_chunk(&PutBlockChunk { number: long.number, chunk: 0, bytes }).await.unwrap();
    assert_eq!(put.missing, 1);
    assert_eq!(client.list_uploads().await.unwrap().block.map(|open| open.number), Some(long.number));
    // Nothing else is appended while the upload is open.
    let other = block(next(client).await, 10, b"other");
    let error = client.send_block(&other).await.unwrap_err();
    assert_eq!(error.retry(), Retry::Again);
    let Error::Refused(UploadError::Append(AppendError::UploadOpen(UploadOpen { by, .. }))) = error else {
        panic!("{error:?}")
    };
    assert_eq!(by, caller);
    assert_eq!(client.send_block(&long).await.unwrap(), Sent::InChunks);
    assert_eq!(client.get_head().await.unwrap().hash, long.hash);
    // An abandoned upload.
    let begin = BeginBlock { number: begin.number + 1, parent_hash: long.hash, ..begin };
    client.begin_block(&begin).await.unwrap();
    assert!(client.abort_block(begin.number).await.unwrap());
    // The abort has nothing to undo because nothing of the block was entered.
    assert!(!client.abort_block(begin.number).await.unwrap());
}

pub async fn a_rollback_removes_appended_blocks<T: Transport>(client: &Client<T>, _: Principal) {
    let blocks = append(client, 12, b"reorg").await;
    let to = blocks[1].number;
    let done = client.roll_back_to(to).await.unwrap();
    assert_eq!((done.head, done.removed, done.has_more), (to, 10, false));
    // A repeated rollback removes nothing.
    assert_eq!(client.roll_back_to(to).await.unwrap().removed, 0);
    let error = client.get_block(to + 1).await.unwrap_err();
    assert!(matches!(error, Error::Refused(ReadError::NotFound)), "{error:?}");
    let error = client.roll_back_to(to + 1).await.unwrap_err();
    assert!(matches!(error, Error::Refused(RollbackError::AboveHead { head }) if head == to), "{error:?}");
    let other = block((to + 1, blocks[1].hash.clone()), 10, b"reorg");
    client.append_block(&other).await.unwrap();
    assert_eq!(client.get_head().await.unwrap().hash, other.hash);
}

pub async fn exports_are_read_page_by_page_and_acknowledged<T: Transport>(client: &Client<T>, caller: Principal) {
    let name = "archive".to_string();
    let exporter = Exporter { name: name.clone(), principal: caller };
    for _ in 0..2 {
        client.register_exporter(&exporter).await.unwrap();
    }
    let before = append(client, 1, b"export").await.pop().unwrap();
    let blocks = append(client, 5, b"export").await;
    let at = ExportCursor { number: before.number, hash: before.hash.clone(), segment: 3, offset: 0, rollbacks: 0 };
    let (mut pager, mut bodies, mut pages) = (ExportPager::new(Some(at), 700), Vec::new(), 0);
    while let Some(page) = pager.next(client).await.unwrap() {
        let body = page.chunks.iter().filter(|chunk| chunk.segment == 0).flat_map(|chunk| chunk.bytes.iter());
        bodies.extend(body.copied());
        pages += 1;
    }
    assert!(pages > 5, "{pages}");
    assert_eq!(bodies, blocks.iter().flat_map(|block| block.body.to_vec()).collect::<Vec<_>>());
    let last = blocks.last().unwrap();
    assert_eq!(pager.cursor().map(|at| (at.number, at.segment)), Some((last.number, 3)));
    assert_eq!(pager.next(client).await.unwrap(), None, "at the head");

    for _ in 0..2 {
        assert_eq!(client.ack_exported(last.number, &last.hash).await.unwrap(), last.number + 1);
    }
    let error = client.ack_exported(last.number, &[9; 32].into()).await.unwrap_err();
    assert!(matches!(error, Error::Refused(AckError::WrongHash { .. })), "{error:?}");
    let error = client.ack_exported(last.number + 1, &last.hash).await.unwrap_err();
    assert!(matches!(error, Error::Refused(AckError::AboveHead { .. })), "{error:?}");
    assert_eq!(client.get_export_status().await.unwrap().exported_before_block, Some(last.number + 1));

    // A rollback removes blocks that the pager has read: the pager learns where to resume, and reads the blocks that replaced them.
    client.roll_back_to(blocks[2].number).await.unwrap();
    let other = block((blocks[3].number, blocks[2].hash.clone()), 20, b"other");
    client.append_block(&other).await.unwrap();
    let error = pager.next(client).await.unwrap_err();
    assert_eq!(error.retry(), Retry::Reorg);
    let Error::Refused(ExportError::Reorged { common_ancestor, cursor }) = error else { panic!("{error:?}") };
    assert_eq!(common_ancestor, blocks[2].number);
    pager.resume(cursor);
    let page = pager.next(client).await.unwrap().unwrap();
    assert_eq!(page.chunks[0].hash, other.hash);
    client.remove_exporter(&RemoveExporter { name, drop_guard: true }).await.unwrap();
}

pub async fn transactions_with_a_key_come_page_by_page<T: Transport>(client: &Client<T>, _: Principal) {
    let key = format!("key {}", next(client).await.0);
    let blocks = append(client, 7, key.as_bytes()).await;
    let all = KeyPager::new(key.as_bytes(), 3).all(client).await.unwrap();
    let numbers: Vec<u64> = all.iter().map(|found| found.block_number).collect();
    assert_eq!(numbers, blocks.iter().rev().map(|block| block.number).collect::<Vec<_>>());
    assert!(all.iter().all(|found| found.position == 1 && *found.id == id(found.block_number, 1)));
    let mut pager = KeyPager::new(key.as_bytes(), 3);
    let first = pager.next(client).await.unwrap().unwrap();
    assert_eq!(first.len(), 3);
    // A rollback removes some of the returned transactions.
    client.roll_back_to(blocks[5].number).await.unwrap();
    append(client, 1, b"another").await;
    let error = pager.next(client).await.unwrap_err();
    let Error::Refused(KeyError::Reorged { cursor, .. }) = error else { panic!("{error:?}") };
    pager.resume(cursor);
    let mut rest = 0;
    while let Some(some) = pager.next(client).await.unwrap() {
        rest += some.len();
    }
    assert_eq!(rest, 4, "one was handed out and is gone, two stay");
    assert!(KeyPager::new(b"no such key", 0).all(client).await.unwrap().is_empty());
    let error = KeyPager::new(&[0; 65], 0).all(client).await.unwrap_err();
    assert!(matches!(error, Error::Refused(KeyError::KeyTooLong { limit: 64 })), "{error:?}");
}

pub async fn the_subnet_answers_a_query_as_a_replica_does<T: Transport>(client: &Client<T>, _: Principal) {
    append(client, 1, b"query").await;
    let subnet = client.replicated();
    assert_eq!(subnet.get_head().await.unwrap(), client.get_head().await.unwrap());
    assert_eq!(subnet.get_config().await.unwrap(), client.get_config().await.unwrap());
    let by_name: Config = client.query("get_config", ()).await.unwrap();
    assert_eq!(by_name, client.update::<_, Config>("get_config", ()).await.unwrap());
}

pub async fn refusals_report_whether_a_retry_may_succeed<T: Transport>(client: &Client<T>, _: Principal) {
    let kept = append(client, 2, b"refused").await.pop().unwrap();
    let gap = AppendBlock { number: kept.number + 2, ..kept.clone() };
    let other = branch(1, (kept.number, kept.parent_hash.clone()), 1, b"");
    let parent = AppendBlock { number: kept.number + 1, parent_hash: [9; 32].into(), ..kept.clone() };
    let damaged = AppendBlock { body: ByteBuf::from([1]), ..block(next(client).await, 1, b"") };
    let unnamed = AppendBlock { hash: BlockHash::default(), ..block(next(client).await, 1, b"") };
    let (reorg, never) = (Retry::Reorg, Retry::Never);
    for (refused, class) in [(gap, reorg), (other, reorg), (parent, reorg), (damaged, never), (unnamed, never)] {
        let error = client.send_block(&refused).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert_eq!(error.retry(), class, "{error:?}");
    }
    assert_eq!(client.get_head().await.unwrap().hash, kept.hash, "nothing has changed");
    // A missing method, an argument of the wrong type, and an answer decoded as the wrong type.
    let error = client.update::<_, ()>("no_such_method", ()).await.unwrap_err();
    assert!(error.reject().is_some_and(|reject| [4, 5].contains(&reject.code)), "{error:?}");
    assert_eq!((error.method.as_str(), error.retry()), ("no_such_method", Retry::Never));
    let error = client.update::<_, u64>("acknowledge_faults", ("text",)).await.unwrap_err();
    assert!(error.reject().is_some() && error.retry() == Retry::Never, "{error:?}");
    let error = client.replicated().query::<_, u64>("health", ()).await.unwrap_err();
    assert!(matches!(error.failure, Failure::Answer(_)) && error.retry() == Retry::Never, "{error:?}");
}

//! Appends that are refused because an exporter holds pruning back.

use crate::blocks::{block, next};
use candid::Principal;
use ic_coppice_client::{Client, Error, Retry, Transport};
use ic_coppice_interface::*;

/// Registers the caller as an exporter that acknowledges nothing, with room for 4 MiB more, and returns the exporter's name.
pub async fn hold_back<T: Transport>(client: &Client<T>, caller: Principal) -> String {
    let name = "slow".to_string();
    client.register_exporter(&Exporter { name: name.clone(), principal: caller }).await.unwrap();
    let kept = client.get_prune_status().await.unwrap().capacity_bytes;
    let target_bytes = Some(kept + (4 << 20));
    let policy = PrunePolicyArg { target_bytes, min_kept_blocks: Some(1), ..PrunePolicyArg::default() };
    client.set_prune_policy(&policy).await.unwrap();
    name
}

pub async fn a_refusal_names_the_holder_and_the_block_is_accepted_after_pruning<T: Transport>(
    client: &Client<T>,
    caller: Principal,
) {
    let name = hold_back(client, caller).await;
    let mut held = None;
    for _ in 0..100 {
        let block = block(next(client).await, 300_000, b"held");
        match client.send_block(&block).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.retry(), Retry::AfterPruning, "{error:?}");
                let Error::Refused(UploadError::Append(AppendError::CapacityExhausted { held_by })) = error else {
                    panic!("{error:?}");
                };
                held = Some((block, held_by));
                break;
            }
        }
    }
    let (block, held_by) = held.expect("the emergency watermark is reached");
    assert_eq!(held_by, HeldBy::Exporter(name.clone()));
    let status = client.get_prune_status().await.unwrap();
    assert_eq!(status.held_by, Some(held_by));
    let before = status.pruned_before_block;
    let head = client.get_head().await.unwrap();
    client.ack_exported(head.number, &head.hash).await.unwrap();
    // The acknowledgement triggers a tick at once, which may prune before this call does.
    let pruned = client.prune_now(1_000).await.unwrap();
    assert!(client.get_prune_status().await.unwrap().pruned_before_block > before, "{pruned:?}");
    client.send_block(&block).await.unwrap();
    assert_eq!(client.get_head().await.unwrap().hash, block.hash);
    let off = PrunePolicyArg { target_bytes: Some(0), ..PrunePolicyArg::default() };
    client.set_prune_policy(&off).await.unwrap();
    client.remove_exporter(&RemoveExporter { name, drop_guard: true }).await.unwrap();
}

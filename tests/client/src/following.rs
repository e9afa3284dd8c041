//! Chains that the canister follows: through back-pressure, and through reorgs of blocks that are applied.

use crate::applying;
use crate::blocks::{append, branch, next};
use crate::held::hold_back;
use candid::Principal;
use ic_coppice_client::{Cause, Chain, Client, FollowError, Followed, Pause, Retry, Transport};
use ic_coppice_interface::*;
use std::cell::Cell;
use std::ops::RangeInclusive;

/// Returns `count` blocks of a branch, the first after a parent.
fn chain(of: u8, mut at: (u64, BlockHash), count: usize, body: usize) -> Vec<AppendBlock> {
    let mut blocks = Vec::new();
    for _ in 0..count {
        let block = branch(of, at, body, b"followed");
        at = (block.number + 1, block.hash.clone());
        blocks.push(block);
    }
    blocks
}

pub async fn a_chain_is_followed_through_a_reorg<T: Transport>(client: &Client<T>, _: Principal) {
    append(client, 1, b"below").await;
    let parent = next(client).await;
    let old = chain(1, parent.clone(), 20, 10);
    let followed = client.follow(&old).await.unwrap();
    assert_eq!(followed, Followed { appended: 20, ..Followed::default() });
    assert_eq!(client.follow(&old).await.unwrap(), Followed::default(), "the canister has all of them");
    assert_eq!(client.follow(&old[..5]).await.unwrap(), Followed::default(), "the canister is ahead");
    // The new branch is longer, and only its blocks are known to the caller.
    let new = chain(2, (old[1].number + 1, old[1].hash.clone()), 30, 10);
    let followed = client.follow(&new).await.unwrap();
    assert_eq!(followed, Followed { appended: 30, rolled_back: 18 });
    assert_eq!(client.get_head().await.unwrap().hash, new[29].hash);
    // A branch that the canister has no block of.
    let strange = chain(3, (parent.0 + 5, [9; 32].into()), 30, 10);
    let error = client.follow(&strange).await.unwrap_err();
    assert!(matches!(error, FollowError::NoCommonBlock { .. }), "{error:?}");
    assert_eq!(client.get_head().await.unwrap().hash, new[29].hash);
}

pub async fn an_applied_block_is_taken_back_by_its_rollback<T: Transport>(client: &Client<T>, _: Principal) {
    append(client, 1, b"below").await;
    let parent = next(client).await;
    let applied = vec![applying::block(parent.clone()).0];
    client.follow(&applied).await.unwrap();
    let number = applied[0].number;
    let missing_parents = Some(MissingParents::Skip);
    let hash = applied[0].hash.clone();
    let block = UtxoApplyBlock {
        number,
        hash,
        height: number as u32,
        block_id: 2_000_000,
        missing_parents,
        skip: None,
        skip_rest: false,
    };
    client.apply(&block).await.unwrap();
    let followed = client.follow(&chain(2, parent, 2, 10)).await.unwrap();
    assert_eq!(followed, Followed { appended: 2, rolled_back: 1 });
    assert_eq!(client.utxo_stop_applying().await.unwrap().map(|at| at.next), Some(number));
}

/// A chain whose caller is also the exporter that holds pruning: it acknowledges the head after the
/// second refusal in a row.
struct Exported<'a, T> {
    blocks: Vec<AppendBlock>,
    client: &'a Client<T>,
    /// Waits for the exporter.
    held: Cell<u32>,
}

impl<T: Transport> Chain for Exported<'_, T> {
    async fn range(&self) -> Result<Option<RangeInclusive<u64>>, Cause> {
        self.blocks.range().await
    }

    async fn block(&self, number: u64) -> Result<Option<AppendBlock>, Cause> {
        self.blocks.block(number).await
    }

    async fn wait(&self, pause: &Pause<'_>) -> bool {
        match pause.error.held_by() {
            Some(HeldBy::Exporter(name)) if name == "slow" => {
                self.held.set(self.held.get() + 1);
                if pause.failures == 1 {
                    return true;
                }
                let head = self.client.get_head().await.unwrap();
                self.client.ack_exported(head.number, &head.hash).await.unwrap();
            }
            Some(HeldBy::PruneLag) => {}
            other => panic!("{other:?}: {pause:?}"),
        }
        // The acknowledgement triggers a tick at once, which may prune before this call does.
        self.client.prune_now(1_000).await.unwrap();
        true
    }
}

pub async fn a_chain_waits_while_pruning_is_held_back<T: Transport>(client: &Client<T>, caller: Principal) {
    let name = hold_back(client, caller).await;
    let blocks = chain(0, next(client).await, 30, 300_000);
    let error = client.follow(&blocks).await.unwrap_err();
    assert_eq!((error.retry(), error.held_by()), (Retry::AfterPruning, Some(&HeldBy::Exporter(name.clone()))));
    let head = client.get_head().await.unwrap().number;
    let waiting = Exported { blocks, client, held: Cell::new(0) };
    let rest = waiting.blocks[29].number - head;
    let followed = client.follow(&waiting).await.unwrap();
    assert_eq!(followed, Followed { appended: rest, ..Followed::default() });
    assert_eq!(client.get_head().await.unwrap().hash, waiting.blocks[29].hash);
    assert!(waiting.held.get() >= 2, "{}", waiting.held.get());
    let off = PrunePolicyArg { target_bytes: Some(0), ..PrunePolicyArg::default() };
    client.set_prune_policy(&off).await.unwrap();
    client.remove_exporter(&RemoveExporter { name, drop_guard: true }).await.unwrap();
}

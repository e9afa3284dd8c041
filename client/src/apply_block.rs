//! Applying kept blocks to the UTXO records, slice after slice.

use crate::{Client, Error, Transport};
use ic_coppice_interface::*;

impl<T: Transport> Client<T> {
    /// Repeats [`utxo_apply_block`](Self::utxo_apply_block) until the block is applied. For UTXO feeders and operators; an operator applies
    /// the first block. Returns the sums of all answers; `transactions` is the number of the block's transactions, and `known` tells that the
    /// block was applied before.
    ///
    /// A repeated call continues, and its counts leave out transactions that are applied already.
    ///
    /// # Errors
    /// When the canister refuses, or there is no answer. Transactions applied until then stay applied. After
    /// [`UtxoApplyError::Stopped`], resolve the reason or set `skip` to the transaction, and call again.
    pub async fn apply(&self, block: &UtxoApplyBlock) -> Result<UtxoApplied, Error<UtxoApplyError>> {
        let mut sum = UtxoApplied::default();
        loop {
            let step = self.utxo_apply_block(block).await?;
            (sum.known, sum.transactions) = (step.known, step.transactions);
            sum.created = sum.created.saturating_add(step.created);
            sum.existed = sum.existed.saturating_add(step.existed);
            sum.spent = sum.spent.saturating_add(step.spent);
            sum.missing_parents = sum.missing_parents.saturating_add(step.missing_parents);
            sum.pruned = sum.pruned.saturating_add(step.pruned);
            if !step.has_more {
                return Ok(sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;
    use crate::testing::{Script, block_on};

    fn slice(script: Script, transactions: u32, has_more: bool) -> Script {
        let slice = UtxoApplied {
            has_more,
            known: false,
            transactions,
            created: 2,
            existed: 1,
            spent: 5,
            missing_parents: 3,
            pruned: 4,
        };
        script.answers("utxo_apply_block", Ok::<_, UtxoApplyError>(slice))
    }

    fn block() -> UtxoApplyBlock {
        UtxoApplyBlock {
            number: 7,
            hash: [7; 32].into(),
            height: 7,
            block_id: 7,
            missing_parents: Some(MissingParents::Refuse),
            skip: None,
            skip_rest: false,
        }
    }

    #[test]
    fn slices_are_called_until_the_block_is_applied_and_their_counts_are_summed() {
        let slices = [(3, true), (3, true), (9, false)].into_iter();
        let script = slices.fold(Script::default(), |script, (transactions, more)| slice(script, transactions, more));
        let client = Client::new(script);
        let applied = block_on(client.apply(&block())).unwrap();
        let sum = UtxoApplied {
            has_more: false,
            known: false,
            transactions: 9,
            created: 6,
            existed: 3,
            spent: 15,
            missing_parents: 9,
            pruned: 12,
        };
        assert_eq!(applied, sum);
        client.transport().ended();
    }

    #[test]
    fn counts_at_their_limit_do_not_overflow() {
        let most = UtxoApplied { created: u32::MAX, has_more: true, ..UtxoApplied::default() };
        let script = Script::default().answers("utxo_apply_block", Ok::<_, UtxoApplyError>(most));
        let client = Client::new(slice(script, 1, false));
        assert_eq!(block_on(client.apply(&block())).unwrap().created, u32::MAX);
    }

    #[test]
    fn refusal_and_lost_answer_end_the_call_in_the_middle() {
        let stop = UtxoApplyStop {
            number: 7,
            transaction: 3,
            txid: [9; 32].into(),
            input: Some(1),
            output: None,
            reason: UtxoApplyReason::NeedsHash,
        };
        let refused = UtxoApplyError::Stopped(Box::new(stop));
        let script = slice(Script::default(), 3, true);
        let script = script.answers("utxo_apply_block", Err::<UtxoApplied, _>(refused.clone()));
        let script = slice(script, 3, true);
        let client = Client::new(script.returns("utxo_apply_block", Err(Failure::Lost("gone".into()))));
        let error = block_on(client.apply(&block())).unwrap_err();
        assert!(matches!(&error, Error::Refused(why) if *why == refused), "{error:?}");
        assert!(matches!(block_on(client.apply(&block())), Err(Error::Call(_))));
        client.transport().ended();
    }
}

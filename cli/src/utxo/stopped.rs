//! Advice for a block that the canister does not apply: the commands that resolve the reason.

use anyhow::{Error, anyhow};
use bitcoin::hashes::Hash;
use bitcoin::{Block, OutPoint, Txid};
use candid::Principal;
use ic_coppice_interface::{Outpoint, UtxoApplyError, UtxoApplyReason, UtxoApplyStop, UtxoSpendError};

/// A block that is being applied, and the circumstances of the call.
pub struct BlockToApply<'a> {
    pub number: u64,
    /// The block's height, which is also its id.
    pub height: u32,
    pub block: &'a Block,
    /// Blocks until a coinbase can be spent.
    pub coinbase_maturity: u32,
    pub caller: Principal,
}

impl BlockToApply<'_> {
    /// Returns an error with the canister's sentence and the advice, if there is any.
    pub fn explained(&self, why: &UtxoApplyError, sentence: &str) -> Error {
        let advice = match why {
            UtxoApplyError::OperatorOnly => Some(format!(
                "it decides the heights of all later blocks. Run this command once with an operator's identity, or let an operator grant \
                 yours the role: grant_role '(record {{ \"principal\" = principal \"{}\"; role = variant {{ Operator }} }})'",
                self.caller
            )),
            UtxoApplyError::NotExtended => Some(
                "an operator may change the setting: set_config '(record { utxo = opt record { require_extended = opt false } })'".into(),
            ),
            UtxoApplyError::Stopped(stop) => Some(self.stopped(stop)),
            UtxoApplyError::BadBody { .. } => Some(format!(
                "an operator skips the rest of the block: {}. Then start this command again",
                self.applying("null", true)
            )),
            _ => None,
        };
        match advice {
            Some(advice) => anyhow!("{sentence}; {advice}"),
            None => anyhow!("{sentence}"),
        }
    }

    fn stopped(&self, stop: &UtxoApplyStop) -> String {
        let Self { number, height, .. } = self;
        let txid = Txid::from_slice(&stop.txid).map_or_else(|_| text(&stop.txid), |txid| txid.to_string());
        let id = text(&stop.txid);
        let win =
            format!("utxo_process_conflicting '(record {{ height = {height}; winners = vec {{ blob \"{id}\" }} }})'");
        let of_output = |advice: &dyn Fn(&str, u32) -> String| {
            stop.output.as_ref().map_or_else(String::new, |Outpoint { txid, vout }| advice(&text(txid), *vout))
        };
        let resolve = match &stop.reason {
            UtxoApplyReason::Spend(UtxoSpendError::Frozen) => of_output(&|parent, vout| {
                format!(
                    "with the role Alert, unfreeze the output: utxo_unfreeze '(record {{ height = {height}; items = vec {{ record {{ \
                     txid = blob \"{parent}\"; vout = opt {vout}; utxo_hash = null }} }} }})'"
                )
            }),
            UtxoApplyReason::Spend(UtxoSpendError::Locked) => of_output(&|parent, _| {
                format!(
                    "unlock the parent: utxo_set_locked '(record {{ height = {height}; locked = false; txids = vec {{ \
                     blob \"{parent}\" }} }})'"
                )
            }),
            UtxoApplyReason::Spend(UtxoSpendError::Conflicting) => of_output(&|parent, _| {
                format!(
                    "the parent is a double spend; to let it win: utxo_process_conflicting '(record {{ height = {height}; winners = vec {{ \
                     blob \"{parent}\" }} }})', until has_more is false"
                )
            }),
            UtxoApplyReason::MissingParent => format!(
                "if the records begin in the middle of the chain, an operator lets such inputs pass: {}",
                self.applying("opt variant { Skip }", false)
            ),
            UtxoApplyReason::Spend(UtxoSpendError::CoinbaseImmature { spendable_at }) => self.immature(*spendable_at),
            UtxoApplyReason::Spend(UtxoSpendError::Spent { by }) => format!(
                "another transaction holds the output. If that one has a record, let this one win: create its record from the block, \
                 unless it has one: utxo_create '(record {{ height = {height}; items = vec {{ record {{ source = variant {{ Kept = record {{ \
                 number = {number}; position = {} }} }}; mined = null; locked = opt false; conflicting = true; fee = null; \
                 is_new = false }} }} }})'; mark the record: utxo_set_conflicting '(record {{ height = {height}; txids = vec {{ \
                 blob \"{id}\" }} }})'; and then {win}, until has_more is false. If it has none (utxo_get), free the output: {}",
                stop.transaction,
                of_output(&|parent, vout| {
                    format!(
                        "utxo_unspend '(record {{ height = {height}; items = vec {{ record {{ outpoint = record {{ txid = blob \"{parent}\"; \
                         vout = {vout} }}; utxo_hash = blob \"HASH\"; spender = record {{ txid = blob \"{}\"; vin = {} }} }} }} }})' with the \
                         output's hash (utxo_get_spend)",
                        text(&by.txid),
                        by.vin
                    )
                })
            ),
            UtxoApplyReason::Conflicting => format!("to let it win: {win}, until has_more is false"),
            UtxoApplyReason::NeedsHash => self.with_hash(stop, &id),
            _ => "resolve the reason".into(),
        };
        format!(
            "transaction {txid}: {resolve}. Then start this command again. To leave the transaction out of the records, start it with \
             --leave-out {txid}"
        )
    }

    /// Returns the call that applies the block with a choice of `missing_parents`, or skips its rest.
    fn applying(&self, missing_parents: &str, skip_rest: bool) -> String {
        let (Self { number, height, .. }, hash) = (self, text(self.block.block_hash().as_byte_array()));
        format!(
            "utxo_apply_block '(record {{ number = {number}; hash = blob \"{hash}\"; height = {height}; block_id = {height}; \
             missing_parents = {missing_parents}; skip = null; skip_rest = {skip_rest} }})'"
        )
    }

    fn immature(&self, spendable_at: u32) -> String {
        let maturity = self.coinbase_maturity;
        // A record that was created before the setting changed has a height by the old setting.
        let coinbase = spendable_at.checked_sub(maturity);
        let depth = coinbase.and_then(|coinbase| self.height.checked_sub(coinbase));
        let depth = depth.map_or(String::new(), |depth| format!("{depth} blocks after it was made, "));
        format!(
            "a coinbase is spent {depth}but the canister's coinbase_maturity is {maturity}, and the record of the coinbase keeps that; for a \
             test chain, begin in an empty canister, with the chain's own value in --coinbase-maturity"
        )
    }

    fn with_hash(&self, stop: &UtxoApplyStop, id: &str) -> String {
        let vin = stop.input.unwrap_or_default();
        let transaction = self.block.txdata.get(stop.transaction as usize);
        let input = transaction.and_then(|transaction| transaction.input.get(vin as usize));
        let OutPoint { txid, vout } = input.map_or_else(OutPoint::null, |input| input.previous_output);
        format!(
            "utxo_spend '(record {{ height = {}; items = vec {{ record {{ spender = blob \"{id}\"; spends = vec {{ record {{ \
             txid = blob \"{}\"; vout = {vout}; utxo_hash = blob \"HASH\"; vin = {vin} }} }} }} }} }})' with the output's new hash",
            self.height,
            text(txid.as_byte_array())
        )
    }
}

/// Returns bytes as the text of a blob in Candid.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candid::{IDLArgs, Principal};
    use ic_coppice_interface::{
        KeptTransaction, Outpoint as SpentOutput, Spender, TransactionSource, UtxoCreateBatch, UtxoProcessConflicting,
        UtxoSpendBatch,
    };

    fn block() -> Block {
        bitcoin::consensus::deserialize(bitcoin_test_data::blocks::mainnet_702861()).unwrap()
    }

    fn argument<T: candid::CandidType + serde::de::DeserializeOwned>(advice: &str, method: &str) -> T {
        let after = advice.split_once(&format!("{method} '")).unwrap_or_else(|| panic!("no {method}: {advice}")).1;
        let text = after.split_once('\'').unwrap().0;
        let args: IDLArgs = candid_parser::parse_idl_args(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let mut types = candid::types::internal::TypeContainer::new();
        let of = types.add::<T>();
        candid::decode_one(&args.to_bytes_with_types(&types.env, &[of]).unwrap()).unwrap()
    }

    fn advice(reason: UtxoApplyReason) -> (Txid, String) {
        let block = block();
        let txid = block.txdata[3].compute_txid();
        let stop = UtxoApplyStop {
            number: 702_861,
            transaction: 3,
            txid: txid.to_byte_array().into(),
            input: Some(0),
            output: Some(SpentOutput { txid: [9; 32].into(), vout: 4 }),
            reason,
        };
        let applied = BlockToApply {
            number: 702_861,
            height: 702_861,
            block: &block,
            coinbase_maturity: 100,
            caller: Principal::anonymous(),
        };
        let error = UtxoApplyError::Stopped(Box::new(stop));
        (txid, applied.explained(&error, &error.to_string()).to_string())
    }

    #[test]
    fn double_spend_is_resolved_by_commands_that_the_canister_understands() {
        let by = Spender { txid: [7; 32].into(), vin: 1 };
        let (txid, advice) = advice(UtxoApplyReason::Spend(UtxoSpendError::Spent { by }));
        assert!(advice.contains(&txid.to_string()) && advice.contains("input 0"), "{advice}");
        let create: UtxoCreateBatch = argument(&advice, "utxo_create");
        assert_eq!(create.height, 702_861);
        assert!(create.items[0].conflicting && create.items[0].mined.is_none());
        assert_eq!(create.items[0].source, TransactionSource::Kept(KeptTransaction { number: 702_861, position: 3 }));
        let win: UtxoProcessConflicting = argument(&advice, "utxo_process_conflicting");
        assert_eq!((win.height, &win.winners[0]), (702_861, &txid.to_byte_array().into()));
        assert!(advice.ends_with(&format!("--leave-out {txid}")), "{advice}");
    }

    #[test]
    fn each_other_reason_has_its_command() {
        let (txid, conflicting) = advice(UtxoApplyReason::Conflicting);
        assert_eq!(
            argument::<UtxoProcessConflicting>(&conflicting, "utxo_process_conflicting").winners,
            [txid.to_byte_array().into()]
        );
        let (_, reassigned) = advice(UtxoApplyReason::NeedsHash);
        assert!(reassigned.contains("HASH"), "{reassigned}");
        let spend: UtxoSpendBatch = argument(&reassigned.replace("HASH", &text(&[9; 32])), "utxo_spend");
        let parent = block().txdata[3].input[0].previous_output;
        assert_eq!(
            (&spend.items[0].spends[0].txid, spend.items[0].spends[0].vout),
            (&parent.txid.to_byte_array().into(), parent.vout)
        );
        let immature = UtxoApplyReason::Spend(UtxoSpendError::CoinbaseImmature { spendable_at: 702_900 });
        assert!(advice(immature).1.contains("a coinbase is spent 61 blocks after it was made, but"));
        let block = block();
        let of = BlockToApply {
            number: 1,
            height: 1,
            block: &block,
            coinbase_maturity: 100,
            caller: Principal::anonymous(),
        };
        let first = of.explained(&UtxoApplyError::OperatorOnly, "first").to_string();
        assert!(first.contains("grant_role") && first.contains(&Principal::anonymous().to_string()), "{first}");
        assert!(of.explained(&UtxoApplyError::NotExtended, "no").to_string().contains("require_extended = opt false"));
        assert_eq!(of.explained(&UtxoApplyError::NotFound, "no").to_string(), "no");
    }
}

//! Applying blocks to the UTXO records, with the height that a finished block notifies.

use super::{State, Stores as RecordStores, settings_of};
use crate::logs;
use crate::logs::audit::{Fields, field};
use crate::platform::cycles;
use ic_coppice_interface::text::hex;
use ic_coppice_interface::{NoMemory, Role, UtxoApplied, UtxoApplyBlock, UtxoApplyError, UtxoApplyPosition};
use ic_coppice_records::apply::{self, Applier, Outcome, Stores};
use std::cell::Cell;
use std::convert::Infallible;

/// Ids of skipped transactions that the audit log names for a block, because an entry has 4 KiB.
const MOST_IDS: u32 = 20;

impl State {
    pub(crate) fn shown_applying(&self) -> Fields {
        let words = |at: UtxoApplyPosition| {
            format!("from block {} to block {}, transaction {}", at.base, at.next, at.transactions)
        };
        let shown = self.records.applier.status().map_or("none".into(), words);
        vec![field("applied", shown), field("missing parents", self.records.applier.missing())]
    }

    /// The part that applies blocks, and the stores that it works on.
    pub(crate) fn applying(&mut self) -> (&mut Applier, Stores<'_>) {
        let Self { records, chain, blobs, config, .. } = self;
        let RecordStores { utxo, applier, .. } = records;
        (applier, Stores { blocks: chain, utxo, blobs, settings: settings_of(config) })
    }

    /// Applies a part of the next block. The message that finishes the block notifies its height. An operator's first block, another
    /// choice of `missing_parents` and a skipped transaction are written to the audit log.
    ///
    /// # Errors
    /// [`UtxoApplyError`]; nothing has changed.
    pub fn apply_block(&mut self, arg: &UtxoApplyBlock) -> Result<UtxoApplied, UtxoApplyError> {
        if let Some(missing) = cycles::missing_to_feed() {
            return Err(NoMemory::LowCycles { missing }.into());
        }
        let is_first = self.records.applier.position().is_none();
        let by_operator = self.caller_is(Role::Operator);
        let (was_skipped, rest) = (Cell::new(false), Cell::new(0..0));
        let step = |state: &mut Self| {
            let (applier, mut stores) = state.applying();
            let Outcome { applied, finished, skipped, rest: passed } = applier.apply(&mut stores, arg, by_operator)?;
            was_skipped.set(skipped);
            rest.set(passed);
            // The block's height follows from the first one's, so it is not a feeder's claim.
            if let Some(height) = finished
                && let Err(error) = state.records.pruner.notify_block(height, true, true)
            {
                logs::error(&format!("block {}: height {height} was not notified: {error}", arg.number));
            }
            Ok(applied)
        };
        let chooses = arg.missing_parents.is_some_and(|missing| missing != self.records.applier.missing());
        if !((is_first || chooses) && by_operator) && arg.skip.is_none() && !arg.skip_rest {
            return step(self);
        }
        // A longer name is refused, and not shown.
        let named = arg.skip.as_ref().map(|txid| hex(&txid[..txid.len().min(32)]));
        let skip = named.as_ref().map_or(String::new(), |txid| format!(", skip {txid}"));
        let skip_rest = if arg.skip_rest { ", skip_rest" } else { "" };
        let argument = format!("block {}, height {}{skip}{skip_rest}", arg.number, arg.height);
        // Calls of an hour share an entry, so each skipped transaction is a field of its own.
        let shown = |state: &Self| {
            let mut shown = state.shown_applying();
            shown.extend(named.as_ref().map(|txid| field(&format!("skipped {txid}"), was_skipped.get())));
            let rest = rest.take();
            if !rest.is_empty() {
                let named = rest.start..rest.end.min(rest.start + MOST_IDS);
                let ids = apply::ids(&state.chain, &state.blobs, arg.number, named);
                let positions = format!("transactions {} to {}", rest.start, rest.end - 1);
                shown.push(field(&format!("skipped of block {}", arg.number), positions));
                shown.extend(ids.iter().map(|txid| field(&format!("skipped {}", hex(txid)), true)));
            }
            shown
        };
        self.noting("utxo_apply_block", argument, shown, step)
    }

    /// Ends applying, and returns where it stood.
    pub fn stop_applying(&mut self) -> Option<UtxoApplyPosition> {
        let ended = self.records.applier.status();
        let Ok(()) = self.noting::<_, Infallible>("utxo_stop_applying", "", Self::shown_applying, |state| {
            state.records.applier.end(&mut state.chain);
            Ok(())
        });
        ended
    }
}

//! Steps of the alert system: freezing, unfreezing and new owners.

use super::super::history::Random;
use super::super::player::Player;
use super::items;
use coppice_model::documents::{Verdict, hex};
use coppice_tests::blocks::id;
use coppice_tests::client::Answered;
use coppice_tests::coppice::Who;
use ic_coppice_interface::*;

impl Player {
    pub(super) fn freeze(&mut self, random: &mut Random, freeze: bool) -> Verdict {
        let height = self.height(random);
        let mut targets = Vec::new();
        for tx in self.some(random, 2) {
            let frozen = self
                .store
                .records
                .get(&tx.txid)
                .and_then(|record| record.utxos().find(|(_, output)| output.frozen).map(|(vout, _)| vout));
            let vout = match random.below(4) {
                0 => None,
                1 => Some(random.below(tx.outputs.len() as u64 + 1) as u32),
                _ if freeze => Some(random.below(tx.outputs.len() as u64) as u32),
                _ => frozen.or(Some(0)),
            };
            let hash = vout.map(|vout| self.hash(&tx.txid, vout)).filter(|_| random.below(2) == 0);
            let hash = if random.below(12) == 0 { hash.map(|_| UtxoHash::from([9; 32])) } else { hash };
            targets.push(FreezeTarget { txid: tx.id(), vout, utxo_hash: hash });
        }
        self.set_frozen(height, targets, freeze)
    }

    /// `utxo_freeze` or `utxo_unfreeze`.
    pub(super) fn set_frozen(&mut self, height: u32, targets: Vec<FreezeTarget>, freeze: bool) -> Verdict {
        let named = targets.iter().map(|target| format!("{}:{:?}", hex(&target.txid), target.vout));
        self.note(format!("  freeze {freeze} at {height}: {}", named.collect::<Vec<_>>().join(" ")));
        let call = UtxoFreezeBatch { height, items: targets };
        let answer = self.call(|coppice| {
            let alert = coppice.by(Who::Alert);
            if freeze { alert.utxo_freeze(&call).try_answer() } else { alert.utxo_unfreeze(&call).try_answer() }
        })?;
        let Some(answer) = answer else { return Ok(()) };
        items(self, call.items.len(), &answer, |player, number, result| {
            Ok((player.store.freeze(height, &call.items[number], freeze), result.clone()))
        })
    }

    pub(super) fn reassign(&mut self, random: &mut Random) -> Verdict {
        let height = self.height(random);
        let frozen: Vec<(Txid, u32)> = self
            .store
            .records
            .iter()
            .flat_map(|(txid, record)| {
                let frozen = record.utxos().filter(|(_, output)| output.frozen);
                frozen.map(|(vout, _)| (Txid::from(txid), vout)).collect::<Vec<_>>()
            })
            .collect();
        let chosen = match (frozen.len() as u64, self.any(random)) {
            (count, Some(tx)) if count == 0 || random.below(5) == 0 => (tx.id(), random.below(3) as u32),
            (0, None) => return Ok(()),
            (count, _) => frozen[random.below(count) as usize].clone(),
        };
        let old = self.hash(&coppice_model::documents::id(&chosen.0), chosen.1);
        let new = if random.below(3) == 0 { old.clone() } else { UtxoHash::from(id(random.next())) };
        let outpoint = Outpoint { txid: chosen.0, vout: chosen.1 };
        let item = Reassign { outpoint, utxo_hash: old, new_utxo_hash: new };
        self.note(format!("  utxo_reassign at {height}: {}:{}", hex(&item.outpoint.txid), item.outpoint.vout));
        let call = UtxoReassignBatch { height, items: vec![item] };
        let answer = self.call(|coppice| coppice.by(Who::Alert).utxo_reassign(&call).try_answer())?;
        let Some(answer) = answer else { return Ok(()) };
        items(self, 1, &answer, |player, _, result| {
            let expected = player.store.reassign(height, &call.items[0]);
            player.saw("a new owner", u64::from(expected.is_ok()));
            Ok((expected, result.clone()))
        })
    }
}

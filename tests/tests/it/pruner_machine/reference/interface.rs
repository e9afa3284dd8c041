//! The reference's interface, as far as the machine uses it.

use super::{Fault, State};
use candid::utils::ArgumentDecoder;
use candid::{CandidType, decode_args, encode_one};
use coppice_model::records::{At, Change, MOST, Record, Records, Resolved, Setting, Transaction, Txid};
use ic_coppice_interface::*;
use sha2::{Digest, Sha256};

fn args<'a, T: ArgumentDecoder<'a>>(arg: &'a [u8]) -> T {
    decode_args(arg).expect("the machine's own arguments")
}

fn reply(answer: impl CandidType) -> Vec<u8> {
    encode_one(answer).expect("it encodes")
}

/// A page from the cursor on.
fn page<T>(all: Vec<T>, cursor: Option<u64>, limit: u32) -> (Vec<T>, Option<u64>) {
    let (from, end) = (cursor.unwrap_or(0), all.len() as u64);
    let next = from + u64::from(limit);
    let some = all.into_iter().skip(from as usize).take(limit as usize).collect();
    (some, (next < end).then_some(next))
}

fn batch<T: CandidType>(results: impl IntoIterator<Item = T>) -> Vec<u8> {
    reply(Batch { results: results.into_iter().collect(), remaining: 0 })
}

impl State {
    fn at(&self, height: u32) -> At {
        let (current, jump) = (self.heights.current, self.settings.pruner.max_height_jump);
        let most = if current == 0 { MOST } else { MOST.min(current + (jump - self.drawn.0)) };
        At { height, retention: self.settings.utxo.block_height_retention, most }
    }

    pub fn update(&mut self, method: &str, arg: &[u8]) -> Vec<u8> {
        match method {
            "grant_role" => reply(Ok::<(), RoleError>(())),
            "set_config" => {
                let (change,): (ConfigChange,) = args(arg);
                change.min_liquid_cycles.map(Change::Floor).into_iter().for_each(|floor| self.set(floor));
                self.set(Change::Utxo(change.utxo.unwrap_or_default()));
                let utxo = self.settings.utxo.clone();
                reply(Ok::<_, ConfigError>(Config { utxo: Some(utxo), ..Config::default() }))
            }
            "utxo_set_pruner_settings" => {
                let (change,): (UtxoPrunerSettingsChange,) = args(arg);
                self.set(Change::Pruner(change));
                reply(Ok::<_, UtxoPrunerError>(self.settings.pruner.clone()))
            }
            "utxo_set_block_assembly_state" => {
                let (state, _): (UtxoBlockAssemblyState, Option<u32>) = args(arg);
                self.running = state == UtxoBlockAssemblyState::Running;
                // A stopped run begins anew.
                if !self.running && self.running_job().is_some() {
                    self.run = None;
                }
                reply(())
            }
            "utxo_notify_block_persisted" => {
                let (height,) = args(arg);
                reply(self.raised(height, true).map(|()| self.persisted(height)))
            }
            "utxo_notify_block" => {
                let (height, mined) = args(arg);
                reply(self.raised(height, false).map(|()| self.block(height, mined)))
            }
            "utxo_prune" => {
                let (height,) = args(arg);
                reply(self.checked(height).and_then(|()| self.prune(height)))
            }
            "utxo_set_heights" => {
                let (heights,): (UtxoSetHeights,) = args(arg);
                reply(self.utxo_set_heights(heights))
            }
            "utxo_cancel_prune_job" => {
                let (id,): (u64,) = args(arg);
                reply(self.cancel(id))
            }
            "complete_blob_deletions" => {
                let (arg,) = args(arg);
                reply(Ok::<_, BlobDeletionError>(self.complete(&arg)))
            }
            "retry_blob_deletions" => {
                let (which,): (RetryBlobDeletions,) = args(arg);
                let RetryBlobDeletions::Ids(ids) = which else { panic!("the machine names rows") };
                let mut done = RetriedBlobDeletions::default();
                for id in ids {
                    match self.rows.get_mut(&id).filter(|(_, dead)| *dead) {
                        Some((row, dead)) => {
                            (row.retry_count, *dead) = (0, false);
                            done.retried += 1;
                        }
                        None => done.skipped.push(id),
                    }
                }
                reply(Ok::<_, BlobDeletionError>(done))
            }
            _ => self.operation(method, arg),
        }
    }

    fn operation(&mut self, method: &str, arg: &[u8]) -> Vec<u8> {
        match method {
            "utxo_create" => {
                let (of,): (UtxoCreateBatch,) = args(arg);
                let (item, size) = (&of.items[0], self.settings.utxo.utxo_batch_size);
                let one = self.named(&item.source);
                let named = |row: &BlobDeletion| one.blob.as_ref().is_some_and(|blob| row.blob_key == blob.blob_key);
                let is_queued = self.rows.values().any(|(row, _)| named(row));
                let created = self.records.create(&one, item, size, self.at(of.height), is_queued);
                let (txid, external) = (one.tx.id(), one.blob.is_some());
                batch([created.map(|()| UtxoCreated { txid, utxos: 0, extra_pages: 0, external })])
            }
            "utxo_spend" => {
                let (of,): (UtxoSpendBatch,) = args(arg);
                let at = self.at(of.height);
                batch(of.items.iter().map(|item| self.records.spend(item, at)))
            }
            "utxo_unspend" => {
                let (of,): (UtxoUnspendBatch,) = args(arg);
                let at = self.at(of.height);
                batch(of.items.iter().map(|item| self.records.unspend(item, at)))
            }
            "utxo_set_mined" => {
                let (of,): (UtxoSetMinedBatch,) = args(arg);
                let at = self.at(of.height);
                batch(of.items.iter().map(|item| self.records.set_mined(&of, item, at)))
            }
            "utxo_set_on_longest_chain" => {
                let (of,): (UtxoSetOnLongestChainBatch,) = args(arg);
                let at = self.at(of.height);
                batch(of.txids.iter().map(|txid| self.records.set_on_longest_chain(txid, of.on_longest_chain, at)))
            }
            "utxo_set_locked" => {
                let (of,): (UtxoSetLockedBatch,) = args(arg);
                let at = self.at(of.height);
                batch(of.txids.iter().map(|txid| self.records.set_locked(txid, of.locked, at)))
            }
            "utxo_freeze" | "utxo_unfreeze" => {
                let (of,): (UtxoFreezeBatch,) = args(arg);
                let (at, frozen) = (self.at(of.height), method == "utxo_freeze");
                batch(of.items.iter().map(|target| self.records.set_frozen(target, frozen, at)))
            }
            "utxo_preserve" => {
                let (of,): (UtxoPreserveBatch,) = args(arg);
                batch(of.txids.iter().map(|txid| self.records.preserve_at(txid, of.until_height)))
            }
            "utxo_set_conflicting" => {
                let (of,): (UtxoSetConflictingBatch,) = args(arg);
                let at = self.at(of.height);
                batch(of.txids.iter().map(|txid| {
                    let marked = self.records.set_conflicting(txid, at)?;
                    let marked = marked.into_iter().map(Into::into).collect();
                    Ok::<_, UtxoError>(Conflict { marked, parent_spends: Vec::new(), has_more: false })
                }))
            }
            "utxo_process_conflicting" => {
                let (of,): (UtxoProcessConflicting,) = args(arg);
                let at = self.at(of.height);
                let winner = of.winners[0][..].try_into().expect("a txid");
                reply(self.win(&winner, at))
            }
            other => panic!("the machine calls {other}"),
        }
    }

    pub fn query(&self, method: &str, arg: &[u8]) -> Vec<u8> {
        match method {
            "utxo_get" => self.get(arg),
            "utxo_get_pruner_status" => reply(self.status()),
            "utxo_list_prune_jobs" => {
                let (cursor, limit): (Option<u64>, u32) = args(arg);
                let (jobs, cursor) = page(self.listed(), cursor, limit);
                reply(UtxoPruneJobPage { jobs, cursor })
            }
            "get_pending_blob_deletions" => {
                let (height, limit, _): (u32, u32, Option<Vec<BlobSelector>>) = args(arg);
                let waits = self.rows.values().filter(|(_, dead)| !dead).map(|(row, _)| row);
                let mut rows: Vec<_> = waits.filter(|row| row.delete_at_height <= height).collect();
                rows.sort_by_key(|row| row.delete_at_height);
                rows.truncate(if limit == 0 { 100 } else { limit as usize });
                reply(rows)
            }
            "list_blob_deletions" => {
                let (arg,): (ListBlobDeletions,) = args(arg);
                assert_eq!(arg.state, Some(BlobDeletionState::Dead), "the machine lists dead-letter rows");
                let rows = self.rows.values().filter(|(_, dead)| *dead).map(|(row, _)| row.clone()).collect();
                let (rows, cursor) = page(rows, arg.cursor, arg.limit);
                let listed = |row| ListedBlobDeletion {
                    row,
                    state: BlobDeletionState::Dead,
                    until_ns: None,
                    reported_deleted: false,
                };
                reply(BlobDeletionList { rows: rows.into_iter().map(listed).collect(), cursor })
            }
            "get_storage_status" => reply(self.storage()),
            other => panic!("the machine asks {other}"),
        }
    }

    /// Encoding is the most expensive step: an unchanged record gets its last reply.
    fn get(&self, arg: &[u8]) -> Vec<u8> {
        let mut shown_before = self.shown.borrow_mut();
        let (txid, record, bytes) = shown_before.entry(arg.to_vec()).or_insert_with(|| {
            let (of,): (UtxoGet,) = args(arg);
            (of.txid[..].try_into().expect("a txid"), None, Vec::new())
        });
        let now = self.records.0.get(txid);
        if bytes.is_empty() || record.as_ref() != now {
            *record = now.cloned();
            *bytes = reply(now.map(|record| record.shown(txid)).ok_or(UtxoError::TxNotFound));
        }
        bytes.clone()
    }

    fn win(&mut self, winner: &Txid, at: At) -> Result<ConflictResolution, ConflictError> {
        let before = self.records.clone();
        let Resolved { losers, freed, spent } = self.records.process_conflicting(winner, at)?;
        if self.has(Fault::KeepsLosersSpends) {
            for (parent, vout) in &freed {
                let hold =
                    |records: &Records| Some(records.0.get(parent)?.outputs[*vout as usize].as_ref()?.hold.clone());
                if let (Some(Some(hold)), Some(None)) = (hold(&before), hold(&self.records)) {
                    let record = self.records.0.get_mut(parent).expect("it is there");
                    record.outputs[*vout as usize].as_mut().expect("it was held").hold = Some(hold);
                }
            }
        }
        let unspend = |(txid, vout): &(Txid, u32)| Unspend {
            outpoint: Outpoint { txid: (*txid).into(), vout: *vout },
            utxo_hash: UtxoHash::default(),
            spender: Spender { txid: Default::default(), vin: 0 },
        };
        Ok(ConflictResolution {
            losers: losers.into_iter().map(Into::into).collect(),
            unspent: freed.iter().map(unspend).collect(),
            spent,
            has_more: false,
        })
    }

    /// The transaction that a source names.
    fn named(&self, source: &TransactionSource) -> Transaction {
        let txid: ic_coppice_interface::Txid = match source {
            TransactionSource::Raw(raw) => Sha256::digest(Sha256::digest(raw)).to_vec().into(),
            TransactionSource::External(external) => external.txid.clone(),
            other => panic!("the machine creates {other:?}"),
        };
        self.family.get(&txid).expect("one of the family").clone()
    }

    fn set(&mut self, change: Change) {
        Setting::of(change).into_iter().for_each(|setting| self.settings.apply(setting));
    }

    fn complete(&mut self, arg: &CompleteBlobDeletions) -> CompletedBlobDeletions {
        let mut done = CompletedBlobDeletions::default();
        let txid = |row: &BlobDeletion| row.txid.as_ref().and_then(|txid| txid[..].try_into().ok()).expect("a record");
        for id in &arg.completed_ids {
            if let Some((row, _)) = self.rows.remove(id) {
                let txid = txid(&row);
                if self.records.0[&txid].is_large() {
                    self.finishing.insert(txid);
                } else {
                    self.take(&txid, self.heights.current.max(1));
                }
                done.removed += 1;
            } else {
                done.skipped.push(*id);
            }
        }
        for id in &arg.failed_ids {
            let Some((row, dead)) = self.rows.get_mut(id) else { continue };
            row.retry_count += 1;
            if row.retry_count < arg.max_retries.max(1) {
                done.retries_incremented += 1;
                continue;
            }
            *dead = true;
            (done.removed, done.dead) = (done.removed + 1, done.dead + 1);
            if self.has(Fault::DeletesRecordsOfGivenUpBlobs) {
                let (row, _) = self.rows.remove(id).expect("it is there");
                self.take(&txid(&row), self.heights.current.max(1));
            }
        }
        done
    }

    fn listed(&self) -> Vec<UtxoPruneJob> {
        let open = self.jobs.iter().filter(|job| self.ended.iter().all(|id| *id != job.id));
        let ended = self.ended.iter().rev().map(|id| &self.jobs[*id as usize - 1]);
        open.chain(ended).cloned().collect()
    }

    fn status(&self) -> UtxoPrunerStatus {
        let rows = |dead: bool| self.rows.values().filter(|(_, is)| *is == dead).count() as u64;
        UtxoPrunerStatus {
            settings: self.settings.pruner.clone(),
            block_assembly_height: None,
            block_assembly: match self.running {
                true => UtxoBlockAssemblyState::Running,
                false => UtxoBlockAssemblyState::NotRunning,
            },
            current_height: self.heights.current,
            most_height: self.heights.current,
            last_persisted_height: Some(self.heights.persisted).filter(|height| *height > 0),
            last_processed_height: self.processed,
            safe_height: self.settings.safe_height(self.heights.current, self.heights.persisted),
            unmined_cutoff_height: self.settings.cutoff(self.heights.current),
            pending: self.pending_job().cloned(),
            running: self.running_job().cloned(),
            last_job: self.ended.last().map(|id| self.jobs[*id as usize - 1].clone()),
            blocked_by: None,
            skipped: Vec::new(),
            deletions_stopped_since_ns: None,
            blobs_pending: rows(false),
            blobs_dead: rows(true),
            totals: self.totals,
            ticks: self.ticks,
            next_tick_ns: self.next_tick_ns,
            metrics: Vec::new(),
        }
    }

    fn storage(&self) -> StorageStatus {
        let count = |f: &dyn Fn(&Record) -> bool| self.records.0.values().filter(|record| f(record)).count() as u64;
        let utxo = UtxoStorage {
            records: self.records.0.len() as u64,
            extra_pages: self.records.0.values().map(Record::pages).sum(),
            deletable: count(&|record| record.delete_at_height.is_some()),
            unmined: count(&|record| record.unmined_since.is_some()),
            preserved: count(&|record| record.preserve_until.is_some()),
            pruned_height: Some(self.records.1).filter(|height| *height > 0),
            ..UtxoStorage::default()
        };
        StorageStatus {
            billed_bytes: 0,
            max_bytes: 0,
            arena_bytes: 0,
            used_bytes: 0,
            quarantined_bytes: 0,
            reusable_bytes: 0,
            payload_bytes: 0,
            owners: Vec::new(),
            classes: Vec::new(),
            index_entries: 0,
            key_entries: 0,
            blocks: 0,
            utxo: Some(utxo),
            block: None,
        }
    }
}

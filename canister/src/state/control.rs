//! Calls whose outcome depends on the caller: settings, roles, exporters, policy, depth of rollbacks, ownership of uploads. Changes by
//! operators and admins are written to the audit log.

use super::undo::RolledBack;
use super::{State, records};
use crate::logs::audit::{Fields, field, fields, named};
use crate::state::tally;
use crate::{logs, platform};
use ic_coppice_chain::pruning::{Piece, fit, policy};
use ic_coppice_interface::{
    BlockId, ChainReset, Commit, Config, ConfigChange, ConfigError, DeletionsError, Exporter, ExporterError, Grant,
    OpenBlock, PruneError, PrunePolicyArg, PrunePolicyChange, PruneRun, PutBlockChunk, RemoveExporter, ResetChain,
    ResetError, Role, RoleError, Rollback, RollbackError, UploadError, UploadProgress,
};
use ic_coppice_records::pruning::check_retentions;
use std::convert::Infallible;
use std::mem::replace;

impl State {
    /// Returns whether the caller has a role.
    pub fn caller_is(&self, role: Role) -> bool {
        self.roles.has(platform::caller(), role)
    }

    /// Changes settings, and writes an audit entry for `method`.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing has changed.
    pub fn set_config(&mut self, method: &str, change: &ConfigChange) -> Result<Config, ConfigError> {
        let shown = |state: &Self| fields(&state.config);
        self.noting(method, format!("{change:?}"), shown, |state| {
            let config = state.config.changed(change)?;
            if let Some(utxo) = config.utxo.as_ref().filter(|_| records::KEPT) {
                check_retentions(&state.records.pruner.stored().settings, utxo, "block_height_retention")?;
            }
            fit::check_caps(&state.config, &config, state.pruner.policy().map_or(0, |policy| policy.target_bytes))?;
            let before = replace(&mut state.config, config);
            state.save_config();
            if let (true, Some(before), Some(new)) = (records::KEPT, before.utxo, &state.config.utxo)
                && before.block_height_retention != new.block_height_retention
            {
                state.records.pruner.note_retention(before.block_height_retention);
            }
            Ok(state.config.clone())
        })
    }

    fn shown_grant(&self, grant: &Grant) -> Fields {
        let Grant { principal, role } = grant;
        let is = if self.roles.is_granted(grant) { "granted" } else { "absent" };
        vec![field(&format!("{role:?} {principal}"), is)]
    }

    /// Grants a role. Granting an existing role again has no effect.
    ///
    /// # Errors
    /// [`RoleError`]; nothing has changed. `RegisterExporter` for the exporter role.
    pub fn grant_role(&mut self, grant: Grant) -> Result<(), RoleError> {
        let argument = format!("{:?} {}", grant.role, grant.principal);
        let shown = |state: &Self| state.shown_grant(&grant);
        self.noting("grant_role", argument, shown, |state| {
            if grant.role == Role::Exporter {
                let why = "an exporter also needs a name and a bound: call register_exporter as an operator";
                return Err(RoleError::RegisterExporter { why: why.into() });
            }
            state.roles.grant(grant)?;
            state.save_config();
            Ok(())
        })
    }

    /// Revokes a role, and returns whether it was granted. The name and the bound of a registered exporter stay, without a key, and keep
    /// holding pruning back.
    pub fn revoke_role(&mut self, grant: &Grant) -> bool {
        let argument = format!("{:?} {}", grant.role, grant.principal);
        let name = self.exporters.name_of(grant.principal).filter(|_| grant.role == Role::Exporter).map(String::from);
        let shown = |state: &Self| {
            let mut shown = state.shown_grant(grant);
            shown.extend(name.iter().flat_map(|name| state.shown_exporter(name)));
            shown
        };
        let Ok(revoked) = self.noting::<_, Infallible>("revoke_role", argument, shown, |state| {
            let revoked = state.roles.revoke(grant);
            if grant.role == Role::Exporter {
                state.exporters.revoke(grant.principal);
            }
            if records::KEPT && grant.role == Role::BlobWorker {
                state.records.deletions.end_leases(Some(grant.principal), platform::time_ns());
            }
            state.save_config();
            Ok(revoked)
        });
        revoked
    }

    fn shown_exporter(&self, name: &str) -> Fields {
        let is = self.exporters.bound_of(name).map_or("absent".into(), |(principal, bound)| {
            let key = principal.map_or("without a key".into(), |principal| principal.to_text());
            format!("{key}, has acknowledged all blocks below {bound}")
        });
        vec![field(&format!("exporter {name}"), is)]
    }

    /// Registers an exporter and grants its role. Only an admin may reuse a name whose key was revoked: otherwise an operator whose key is
    /// stolen could acknowledge blocks in that name.
    ///
    /// # Errors
    /// [`ExporterError`]; nothing has changed.
    pub fn register_exporter(&mut self, exporter: &Exporter) -> Result<(), ExporterError> {
        let argument = format!("{} {}", exporter.name, exporter.principal);
        let shown = |state: &Self| state.shown_exporter(&exporter.name);
        self.noting("register_exporter", argument, shown, |state| {
            let mut roles = state.roles.clone();
            let granted = roles.grant(Grant { principal: exporter.principal, role: Role::Exporter });
            granted.map_err(|error| match error {
                RoleError::TooMany { limit } => ExporterError::TooMany { limit },
                _ => ExporterError::Anonymous,
            })?;
            let may_bind = state.caller_is(Role::Admin);
            state.exporters.register(exporter, state.chain.state().oldest, may_bind)?;
            state.roles = roles;
            state.save_config();
            Ok(())
        })
    }

    /// Removes an exporter and revokes its role. Only for admins, whatever the bounds, because an operator can register an exporter of its
    /// own, which could replace an honest one.
    ///
    /// # Errors
    /// [`ExporterError`]; nothing has changed.
    pub fn remove_exporter(&mut self, which: &RemoveExporter) -> Result<(), ExporterError> {
        let argument = format!("{}, drop_guard = {}", which.name, which.drop_guard);
        let shown = |state: &Self| state.shown_exporter(&which.name);
        self.noting("remove_exporter", argument, shown, |state| {
            if let Some(principal) = state.exporters.remove(which)? {
                state.roles.revoke(&Grant { principal, role: Role::Exporter });
                state.save_config();
            }
            Ok(())
        })
    }

    /// Changes the policy; absent fields stay.
    ///
    /// # Errors
    /// `BadArgument`; nothing has changed.
    pub fn set_prune_policy(&mut self, change: &PrunePolicyArg) -> Result<PrunePolicyChange, PruneError> {
        let shown = |state: &Self| fields(&state.pruner.policy());
        self.noting("set_prune_policy", format!("{change:?}"), shown, |state| {
            let old = state.pruner.policy().cloned();
            let new = policy::changed(&state.pruner.policy_or_default(), change, &state.config)?;
            state.pruner.set_policy(new.clone());
            // The cap on records depends on the policy's target.
            state.save_config();
            Ok(PrunePolicyChange { old, new })
        })
    }

    /// Stops deletions, or restarts them. On a stop the record pruner's running job ends, and its height waits; all leases of blob workers end,
    /// and their rows stay leased while requests for the blobs may run. Only an admin restarts deletions, because the key that deletes too
    /// much may be an operator's.
    ///
    /// # Errors
    /// `AdminOnly`; nothing has changed.
    pub fn set_deletions_stopped(&mut self, stopped: bool) -> Result<(), DeletionsError> {
        let shown = |state: &Self| vec![field("deletions stopped", state.deletions_stopped.is_some())];
        self.noting("set_deletions_stopped", stopped.to_string(), shown, |state| {
            if !stopped && !state.caller_is(Role::Admin) {
                return Err(DeletionsError::AdminOnly);
            }
            if stopped != state.deletions_stopped.is_some() {
                state.deletions_stopped = stopped.then(platform::time_ns);
                state.save_config();
                if records::KEPT && stopped {
                    state.records.pruner.stop();
                    state.records.deletions.end_leases(None, platform::time_ns());
                }
            }
            Ok(())
        })
    }

    /// Makes one bounded prune run manually.
    ///
    /// # Errors
    /// `Stopped` while deletions are stopped; otherwise as [`Pruner::prune_now`](ic_coppice_chain::pruning::Pruner::prune_now).
    pub fn prune_now(&mut self, max_ops: u64) -> Result<PruneRun, PruneError> {
        let shown = |state: &Self| vec![field("pruned_before_block", state.chain.state().oldest)];
        self.noting("prune_now", max_ops.to_string(), shown, |state| {
            if state.deletions_stopped.is_some() {
                return Err(PruneError::Stopped);
            }
            let guard = state.constraints().guard();
            state.pruner.prune_now(&mut state.chain, &mut state.blobs, guard.as_ref(), max_ops)
        })
    }

    /// Records that an operator has seen the first `up_to` faults and the counts of applying, and retries skipped work.
    pub fn acknowledge_faults(&mut self, up_to: u64) -> u64 {
        let shown = |state: &Self| named(state.pruner.shown_faults());
        let Ok(acknowledged) = self.noting::<_, Infallible>("acknowledge_faults", up_to.to_string(), shown, |state| {
            if records::KEPT {
                state.records.applier.acknowledge();
            }
            Ok(state.pruner.acknowledge_faults(up_to, state.lost()))
        });
        acknowledged
    }

    fn shown_chain(&self) -> Fields {
        let chain = self.chain.state();
        let or_none = |number: Option<u64>| number.map_or("none".into(), |number| number.to_string());
        let blocks = if chain.started { chain.blocks() } else { 0 };
        vec![
            field("head", or_none(chain.head())),
            field("blocks", blocks),
            field("rollback under way to", or_none(chain.rollback_to)),
        ]
    }

    /// Makes block `number` the head, as far as one message goes; ticks continue the rollback. The depth is limited for producers, but not
    /// for admins. Only an admin takes back blocks of which records may be pruned, with `incomplete`.
    ///
    /// # Errors
    /// [`RollbackError`]; nothing has changed.
    pub fn rollback_to(&mut self, number: u64, incomplete: bool) -> Result<Rollback, RollbackError> {
        if !self.caller_is(Role::Admin) {
            return self.roll_back_at_most(number, self.config.max_rollback_blocks, false);
        }
        let step = |state: &mut Self| state.roll_back_at_most(number, u64::MAX, incomplete);
        let argument = if incomplete { format!("{number}, incomplete") } else { number.to_string() };
        let shown = |state: &Self| [state.shown_chain(), state.shown_applying()].concat();
        self.noting("rollback_to", argument, shown, step)
    }

    /// As [`rollback_to`](Self::rollback_to), of at most `most` blocks.
    ///
    /// # Errors
    /// [`RollbackError`]; nothing has changed.
    pub fn roll_back_at_most(&mut self, number: u64, most: u64, incomplete: bool) -> Result<Rollback, RollbackError> {
        self.chain.check_rollback(number, self.config.upload_expiry_secs)?;
        self.chain.check_depth(number, most)?;
        self.check_complete(number, incomplete)?;
        if self.chain.state().rollback_to.is_none() && self.chain.state().head() != Some(number) {
            tally::rolled_back();
        }
        self.chain.begin_rollback(number);
        let RolledBack { blocks: removed, not_restored } = self.continue_rollback();
        let state = self.chain.state();
        let waits = self.rollback_waits();
        let not_restored = records::KEPT.then_some(not_restored);
        Ok(Rollback { head: state.next - 1, removed, not_restored, has_more: state.rollback_to.is_some(), waits })
    }

    /// Empties the chain, so that it can begin again at any number.
    ///
    /// # Errors
    /// [`ResetError`]; nothing has changed.
    pub fn reset_chain(&mut self, reset: &ResetChain) -> Result<ChainReset, ResetError> {
        let argument = format!("drop_unexported = {}", reset.drop_unexported);
        self.noting("reset_chain", argument, Self::shown_chain, |state| state.reset(reset))
    }

    fn reset(&mut self, reset: &ResetChain) -> Result<ChainReset, ResetError> {
        // An undo that keeps trapping, or lacks memory, is dropped with the chain.
        let gives_up = self.pruner.is_skipped(Piece::Undo) || self.rollback_waits().is_some();
        self.chain.check_reset(&reset.head_hash, gives_up, self.config.upload_expiry_secs)?;
        let behind = self.exporters.lagging(self.chain.state().next).filter(|_| !reset.drop_unexported);
        if let Some((exporter, bound)) = behind {
            let exported_before_block = bound.max(self.chain.state().oldest);
            return Err(ResetError::NotExported { exporter: exporter.into(), exported_before_block });
        }
        let blocks = self.chain.reset();
        self.exporters.reset();
        let utxo_records = self.reset_records();
        self.pruner.reset();
        self.pruner.freed_outside_runs(&self.chain, &self.blobs, 0);
        logs::info(&format!("the chain was reset: {blocks} blocks were removed"));
        Ok(ChainReset { blocks, left: self.chain.to_clear(), utxo_records })
    }

    /// Stores a chunk of the open upload, for the upload's owner or an operator.
    ///
    /// # Errors
    /// [`UploadError`]; nothing has changed.
    pub fn put_chunk(&mut self, chunk: &PutBlockChunk) -> Result<UploadProgress, UploadError> {
        let argument = || format!("block {}, chunk {}", chunk.number, chunk.chunk);
        self.with_upload("put_block_chunk", argument, |state| {
            state.chain.put_chunk(&mut state.blobs, chunk, platform::time_secs())
        })
    }

    /// Continues the commit of the open upload, for the upload's owner or an operator. For a kept block every caller gets `Done`.
    ///
    /// # Errors
    /// [`UploadError`]; nothing has changed.
    pub fn commit_upload(&mut self, block: &BlockId) -> Result<Commit, UploadError> {
        if self.chain.hash_is(block.number, &block.hash) {
            return Ok(Commit::Done);
        }
        let argument = || format!("block {}", block.number);
        self.with_upload("commit_block", argument, |state| {
            let admission = state.admission();
            state.chain.commit_upload(&mut state.blobs, block, &admission, platform::time_secs())
        })
    }

    /// Aborts the open upload of a block, and returns whether there was one; for the upload's owner or an operator.
    ///
    /// # Errors
    /// `UploadOpen` for another producer, `OtherUpload` if the open upload is of another block.
    pub fn abort_upload(&mut self, number: u64) -> Result<bool, UploadError> {
        let argument = || format!("block {number}");
        self.with_upload("abort_block", argument, |state| {
            let aborted = state.chain.abort_upload(&mut state.blobs, number);
            state.count_faults();
            aborted
        })
    }

    /// Runs a change of the open upload, and writes an audit entry if an operator changes another producer's upload.
    fn with_upload<T>(
        &mut self,
        method: &str,
        argument: impl FnOnce() -> String,
        step: impl FnOnce(&mut Self) -> Result<T, UploadError>,
    ) -> Result<T, UploadError> {
        let of_another = self.chain.upload_of_another(platform::caller(), self.config.upload_expiry_secs);
        let Some(opened) = of_another else { return step(self) };
        if !self.caller_is(Role::Operator) {
            return Err(opened.into());
        }
        let shown = |state: &Self| {
            let upload = state.chain.upload_progress().map_or("none".into(), |OpenBlock { number, progress }| {
                format!("block {number}, {} of {} chunks missing", progress.missing, progress.chunks)
            });
            let mut shown = state.shown_chain();
            shown.push(field("upload", upload));
            shown
        };
        self.noting(method, argument(), shown, step)
    }
}

//! Acknowledgements of committed blocks, after which the canister may prune them.

use super::engine::{Engine, Next};
use super::steps::{Checkpoint, Event, Step, Word};
use crate::client::{Client, Hearsay, Reach, Wait, is_rejected};
use anyhow::{Result, anyhow};
use candid::Principal;
use coppice_interface::{AckError, Role};

impl<T: Reach, C: Checkpoint> Engine<'_, T, C> {
    /// Acknowledges stored blocks that were not acknowledged yet, if this run acknowledges.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn acknowledge_all(&mut self) -> Result<()> {
        let may = self.unconfirmed.is_none() && self.is_behind_with_acks();
        if may { self.acknowledge().map(drop) } else { Ok(()) }
    }

    /// Returns whether there is a block to acknowledge.
    pub(super) fn is_behind_with_acks(&self) -> bool {
        self.options.ack_every.is_some()
            && self.at.tip.is_some()
            && self.at.tip != self.acknowledged
            && self.at.tip != self.refused
    }

    /// Acknowledges the newest block, which a new transaction has read back.
    pub(super) fn acknowledge(&mut self) -> Result<Event> {
        let Some(tip) = self.at.tip.clone() else { return Ok(Event::Went) };
        self.store.ensure_kept(&tip)?;
        self.checkpoint.reached(Step::Acknowledge)?;
        let answer = match self.client.ack_exported(tip.number, &tip.hash[..].into()).wait() {
            Err(error) => {
                // Repeat the acknowledgement after the error.
                self.next = Next::Acknowledge;
                // The ingress filter refuses callers without the role; the status shows whether that is the reason.
                if is_rejected(&error) {
                    ensure_registered(self.client, Word::Update)?;
                }
                return Err(error);
            }
            Ok(answer) => answer,
        };
        self.pending = 0;
        match answer {
            Ok(bound) => {
                self.figures.acks += 1;
                self.figures.acknowledged_before = Some(bound);
                self.acknowledged = Some(tip);
                self.refused = None;
                self.next = if self.is_at_head() { Next::Rest } else { Next::Pull };
            }
            Err(AckError::NotRegistered { .. }) => return Err(not_registered(self.client)),
            // The next page reports a reorg, or a later block can be acknowledged.
            Err(error) => {
                let note = format!("block {} is not acknowledged yet: {error}", tip.number);
                self.refused = Some(tip);
                self.checkpoint.reached(Step::Acknowledged)?;
                return Ok(Event::Note(note));
            }
        }
        self.checkpoint.reached(Step::Acknowledged)?;
        Ok(Event::Went)
    }
}

/// Checks that the caller may acknowledge, by a query or an update call.
///
/// # Errors
/// When the caller is not a registered exporter, as [`Hearsay`] if only one replica reports it; when the canister cannot be reached.
pub(super) fn ensure_registered<T: Reach>(client: &Client<T>, word: Word) -> Result<()> {
    let principal = client.transport().principal(Role::Exporter);
    if principal == Principal::anonymous() {
        return Err(not_registered(client));
    }
    let status = match word {
        Word::Query => client.get_export_status().wait(),
        Word::Update => client.replicated().get_export_status().wait(),
    };
    match status {
        Ok(status) if status.exporters.iter().any(|exporter| exporter.principal == Some(principal)) => Ok(()),
        Ok(_) if word == Word::Update => Err(not_registered(client)),
        Ok(_) => Err(Hearsay(format!("a replica reports that {}", not_registered(client))).into()),
        // The ingress filter refuses callers without a role.
        Err(error) if is_rejected(&error) => Err(error.context(not_registered(client))),
        Err(error) => Err(error),
    }
}

fn not_registered<T: Reach>(client: &Client<T>) -> anyhow::Error {
    let principal = client.transport().principal(Role::Exporter);
    if principal == Principal::anonymous() {
        return anyhow!(
            "the anonymous caller cannot acknowledge: name a key with --identity, or use --no-ack to read without acknowledging"
        );
    }
    anyhow!(
        "{principal} is not a registered exporter, so it may not acknowledge; an operator registers it with \
         register_exporter(record {{ name = \"indexer\"; \"principal\" = principal \"{principal}\" }}), or an admin under a name whose key was \
         revoked (see get_export_status); use --no-ack to read without acknowledging"
    )
}

//! Acknowledgements of committed blocks, after which the canister may prune them.

use super::{Engine, Task};
use crate::client::{CanisterClient, Client, Uncertified, Wait, is_rejected};
use crate::index::assemble::Tip;
use crate::index::steps::{Checkpoint, Event, Step};
use anyhow::{Result, anyhow};
use candid::Principal;
use ic_coppice_interface::{AckError, Role};
use std::time::Duration;

/// The time between two acknowledgements below the head, in durations of such a call.
const SHARE: u32 = 8;

/// The acknowledgements of a run.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// The newest acknowledged block.
    done: Option<Tip>,
    /// The block whose acknowledgement the canister refused; the cause may be a reorg, which the next certificate shows.
    refused: Option<Tip>,
    /// Blocks since the last acknowledgement.
    pending: u64,
    /// The time before which blocks below the head are not acknowledged.
    not_before: Duration,
}

impl Acks {
    /// Forgets what was acknowledged, after a rollback.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Counts stored blocks.
    pub fn stored(&mut self, blocks: u64) {
        self.pending += blocks;
    }

    /// Returns whether `every` blocks are not acknowledged, and the last call is long enough ago.
    pub fn is_due(&self, every: u64, now: Duration) -> bool {
        self.pending >= every && now >= self.not_before
    }

    /// Notes the time of a call. Calls take seconds, and blocks do not wait for them longer than [`SHARE`] allows.
    fn called(&mut self, began: Duration, now: Duration) {
        self.not_before = now.saturating_add(now.saturating_sub(began) * SHARE);
    }
}

impl<T: CanisterClient, C: Checkpoint> Engine<'_, T, C> {
    /// Acknowledges stored blocks that were not acknowledged yet, if this run acknowledges.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn acknowledge_all(&mut self) -> Result<()> {
        if self.is_behind_with_acks() { self.acknowledge().map(drop) } else { Ok(()) }
    }

    /// Returns whether there is a block to acknowledge.
    pub(super) fn is_behind_with_acks(&self) -> bool {
        self.options.ack_every.is_some()
            && self.at.tip.is_some()
            && self.at.tip != self.acks.done
            && self.at.tip != self.acks.refused
    }

    /// Acknowledges the newest block, which a new transaction has read back.
    pub(super) fn acknowledge(&mut self) -> Result<Event> {
        let Some(tip) = self.at.tip.clone() else { return Ok(Event::Went) };
        self.store.ensure_kept(&tip)?;
        self.checkpoint.reached(Step::Acknowledge)?;
        let began = self.client.transport().now();
        let answer = self.client.ack_exported(tip.number, &tip.hash[..].into()).wait();
        self.acks.called(began, self.client.transport().now());
        let answer = match answer {
            Err(error) => {
                // Repeat the acknowledgement after the error.
                self.task = Task::Acknowledge;
                // The ingress filter refuses callers without the role; the status shows whether that is the reason.
                if is_rejected(&error) {
                    ensure_registered(self.client, true)?;
                }
                return Err(error);
            }
            Ok(answer) => answer,
        };
        self.acks.pending = 0;
        match answer {
            Ok(bound) => {
                self.figures.acks += 1;
                self.figures.acknowledged_before = Some(bound);
                (self.acks.done, self.acks.refused) = (Some(tip), None);
                self.task = Task::Pull;
            }
            Err(AckError::NotRegistered { .. }) => return Err(not_registered(self.client)),
            // The next certificate shows a reorg, or a later block can be acknowledged.
            Err(error) => {
                let note = format!("block {} is not acknowledged yet: {error}", tip.number);
                self.acks.refused = Some(tip);
                self.checkpoint.reached(Step::Acknowledged)?;
                return Ok(Event::Note(note));
            }
        }
        self.checkpoint.reached(Step::Acknowledged)?;
        Ok(Event::Went)
    }
}

/// Checks that the caller may acknowledge, by a query or by an update call.
///
/// # Errors
/// When the caller is not a registered exporter, as [`Uncertified`] if only one replica reports it; when the canister cannot be reached.
pub fn ensure_registered<T: CanisterClient>(client: &Client<T>, replicated: bool) -> Result<()> {
    let principal = client.transport().principal(Role::Exporter);
    if principal == Principal::anonymous() {
        return Err(not_registered(client));
    }
    let status = match replicated {
        false => client.get_export_status().wait(),
        true => client.replicated().get_export_status().wait(),
    };
    match status {
        Ok(status) if status.exporters.iter().any(|exporter| exporter.principal == Some(principal)) => Ok(()),
        Ok(_) if replicated => Err(not_registered(client)),
        Ok(_) => Err(Uncertified(format!("a replica reports that {}", not_registered(client))).into()),
        // The ingress filter refuses callers without a role.
        Err(error) if is_rejected(&error) => Err(error.context(not_registered(client))),
        Err(error) => Err(error),
    }
}

fn not_registered<T: CanisterClient>(client: &Client<T>) -> anyhow::Error {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_of_two_seconds_are_sixteen_seconds_apart() {
        let at = Duration::from_secs;
        let mut acks = Acks::default();
        acks.stored(100);
        assert!(acks.is_due(100, at(50)) && !acks.is_due(101, at(50)));
        acks.called(at(50), at(52));
        assert!(!acks.is_due(100, at(67)) && acks.is_due(100, at(68)));
        // A clock that goes backwards delays nothing.
        acks.called(at(60), at(40));
        assert!(acks.is_due(100, at(40)));
        acks.forget();
        assert!(!acks.is_due(1, at(900)));
    }
}

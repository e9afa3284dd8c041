//! Certificates of the chain's tip: fetches and verifies one, and decides by it what comes next.

use super::trust::Counts;
use super::{Engine, Task};
use crate::client::{CanisterClient, Wait, is_rejected, may_pass};
use crate::index::assemble::Tip;
use crate::index::steps::{Checkpoint, Event, Step};
use crate::report::blocks;
use anyhow::Result;
use ic_coppice_client::certificate::{self, Certified};

impl<T: CanisterClient, C: Checkpoint> Engine<'_, T, C> {
    pub(super) fn certify(&mut self) -> Result<Event> {
        self.checkpoint.reached(Step::Prove)?;
        let answer = match self.client.get_tip_certificate().wait() {
            Err(error) if may_pass(&error) || is_rejected(&error) => return Err(error),
            answer => answer,
        };
        self.checkpoint.reached(Step::Proved)?;
        let transport = self.client.transport();
        let certified = match answer {
            Ok(Some(answer)) => certificate::read(answer, |bytes| transport.vouched(bytes)),
            Ok(None) => return Ok(self.refuted("it has no certificate")),
            Err(why) => Err(why),
        };
        let certified = match certified {
            Ok(certified) => certified,
            Err(why) => return Ok(self.refuted(&format!("the certificate is not genuine: {why:#}"))),
        };
        if let Err(why) = self.trust.accept(certified, self.client.transport().now()) {
            return Ok(self.refuted(&why));
        }
        self.decide()
    }

    /// Decides what comes next by the newest certificate.
    pub(super) fn decide(&mut self) -> Result<Event> {
        let Some(Certified { head, kept, .. }) = self.trust.certified().cloned() else { return Ok(Event::Went) };
        self.figures.head = head.map(|(number, _)| number);
        self.measure_lag();
        match self.trust.counts() {
            Counts::Reset if self.at.expected.is_some() => return self.reset(),
            Counts::Lower if self.at.tip.is_some() => {
                self.ensure_may_restore("the canister counts fewer rollbacks or resets than before")?;
            }
            _ => {}
        }
        let Some((number, seal)) = head else { return self.without_head() };
        let next = match (self.at.expected, kept) {
            (None, None) => {
                let why = "the subnet does not certify the beginning of the chain until the next block is pruned";
                return Ok(Event::Behind(why.into()));
            }
            (None, Some(kept)) => {
                self.ahead.begin(kept.first, kept.before, None);
                kept.first
            }
            (Some(next), Some(kept)) if kept.first > next => {
                if self.at.tip.is_some() && self.trust.counts() != Counts::Same {
                    self.task = Task::Ask;
                    return Ok(Event::Went);
                }
                self.note_pruned(next, kept.first);
                self.ahead.begin(kept.first, kept.before, None);
                kept.first
            }
            (Some(next), _) => next,
        };
        let own = self.own_seal(next);
        if number.checked_add(1) == Some(next) {
            match own {
                Some(own) if own == seal => return self.at_head(),
                // A block that was left out is the head; its seal is unknown.
                None if self.trust.counts() == Counts::Same => return Ok(self.caught_up()),
                _ => {}
            }
        }
        if self.ahead.from() < next && !self.ahead.is_empty() && number >= self.ahead.from() {
            // The branch that a search has found.
            return self.compare(number);
        }
        let Some(tip) = self.at.tip.clone().filter(|_| number < next) else {
            return match own {
                Some(own) => {
                    let parent = self.tip_before(next).map(|tip| tip.hash.clone());
                    self.ahead.begin(next, own, parent.as_deref());
                    self.compare(number)
                }
                None => {
                    let moved = self.at.tip.is_some() && self.trust.counts() != Counts::Same;
                    self.task = if moved { Task::Ask } else { Task::Follow };
                    Ok(Event::Went)
                }
            };
        };
        self.task = Task::Search(tip.number.min(number));
        Ok(Event::Went)
    }

    /// Returns the newest stored block if it is the one before `next`.
    fn tip_before(&self, next: u64) -> Option<&Tip> {
        self.at.tip.as_ref().filter(|tip| tip.number.checked_add(1) == Some(next))
    }

    /// Returns the seal before the next block.
    fn own_seal(&self, next: u64) -> Option<[u8; 32]> {
        let known = Some(&self.ahead).filter(|ahead| ahead.from() == next).and_then(|ahead| ahead.before());
        self.tip_before(next).map(|tip| tip.seal).or(known)
    }

    /// Notes a gap once.
    fn note_pruned(&mut self, next: u64, first: u64) {
        if self.ahead.from() < first {
            let gap = blocks(first - next);
            self.trust.note(format!(
                "block {next} was pruned before it was indexed: a gap of {gap} is recorded, and the index continues at block {first}"
            ));
        }
    }

    /// Handles a chain without a certified head: it is empty, or a rollback passes a damaged block.
    fn without_head(&mut self) -> Result<Event> {
        if self.at.tip.is_none() {
            return Ok(Event::CaughtUp);
        }
        if self.trust.restored || self.trust.counts() == Counts::Same {
            self.ensure_may_restore("the canister has no block")?;
            return Err(self.nothing_in_common("the canister has no block"));
        }
        Ok(Event::Behind("the subnet certifies no head while a rollback passes a damaged block".into()))
    }

    /// The newest block is the certified head.
    fn at_head(&mut self) -> Result<Event> {
        let tip = self.tip();
        if self.trust.restored {
            return self.roll_back(tip);
        }
        self.trust.prove();
        if let Some(number) = tip
            && self.trust.certified_head() == tip
            && self.store.newest_certificate()? != tip
        {
            return self.store_certificate(number);
        }
        Ok(self.caught_up())
    }

    /// There is nothing to pull.
    fn caught_up(&mut self) -> Event {
        if self.is_behind_with_acks() {
            self.task = Task::Acknowledge;
            return Event::Went;
        }
        Event::CaughtUp
    }

    /// Stores the certificate of the newest block, which another certificate had proved.
    fn store_certificate(&mut self, number: u64) -> Result<Event> {
        let Some(answer) = self.trust.certified().map(|certified| certified.answer.clone()) else {
            return Ok(Event::Went);
        };
        self.checkpoint.reached(Step::Write)?;
        let checkpoint = &mut self.checkpoint;
        if let Some(proof) = self.trust.proof() {
            self.store.note_proof(proof);
        }
        self.store.change(|change| {
            change.put_certificate(number, &answer)?;
            checkpoint.reached(Step::Written)
        })?;
        self.checkpoint.reached(Step::Committed)?;
        Ok(Event::Went)
    }
}

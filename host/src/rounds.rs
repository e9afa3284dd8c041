//! Rounds: a loaded subnet's limit of work per second, and the messages it leaves to the next round.
//!
//! A round moves the clock, puts every due timer into the queue once, and executes messages first in, first out, until it has used up its
//! instructions or dirtied pages. A message that needs more continues in as many further rounds as it takes; nothing else runs meanwhile.
//! Its call is answered, and its own calls join the queue, in the round in which it ends. The host executes the message in its first round,
//! so a query in between sees its effects already; the platform shows them only after the last round.
//!
//! There is one queue and one budget, as if all canisters shared a core: the model is meant for one canister and its clients. It leaves out
//! the platform's other costs of a round (scheduling, checkpoints, other canisters).

use std::collections::BTreeMap;

use crate::call_context::MessageId;
use crate::limits::OS_PAGE;
use crate::reject::RejectResponse;
use crate::subnet::{Message, Subnet};

/// The report of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The number of the round, from 1.
    pub number: u64,
    /// Calls from outside that were answered, in the order of their answers.
    pub completed: Vec<Completed>,
    /// Instructions used, including those for heap pages; at most [`Limits::round_instructions`](crate::Limits::round_instructions).
    pub instructions: u64,
    /// 4 KiB pages of stable memory and heap dirtied; at most [`Limits::round_dirty_bytes`](crate::Limits::round_dirty_bytes).
    pub pages: u64,
    /// True if a message continues in the next round.
    pub in_progress: bool,
    /// Messages waiting for a later round, without the one in progress.
    pub waiting: usize,
}

/// A call from outside that was answered; [`Host::await_call`](crate::Host::await_call) takes the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The call.
    pub id: MessageId,
    /// Rounds from the call's submission to its answer: 1 when the next round answered it.
    pub delay: u64,
}

/// State of the rounds; part of a checkpoint.
#[derive(Clone, Default)]
pub(crate) struct Rounds {
    /// Rounds begun so far.
    begun: u64,
    /// Open calls from outside, with the number of rounds begun when each was submitted.
    submitted: BTreeMap<MessageId, u64>,
    /// Calls that the executing message answered; `None` outside a round.
    answered: Option<Vec<MessageId>>,
    in_progress: Option<Executed>,
}

/// An executed message, with the work that rounds have yet to account for.
#[derive(Clone)]
struct Executed {
    rest: Work,
    /// Messages that it sent.
    sent: Vec<Message>,
    /// Calls that it answered.
    answers: Vec<(MessageId, Result<Vec<u8>, RejectResponse>)>,
}

/// Work that a message needs, or that is left in a round.
#[derive(Clone, Copy)]
struct Work {
    instructions: u64,
    /// 4 KiB pages dirtied.
    pages: u64,
}

impl Work {
    /// Takes as much of `needed` as is left, and returns the rest.
    fn take(&mut self, needed: Work) -> Work {
        let taken =
            Work { instructions: needed.instructions.min(self.instructions), pages: needed.pages.min(self.pages) };
        self.instructions -= taken.instructions;
        self.pages -= taken.pages;
        Work { instructions: needed.instructions - taken.instructions, pages: needed.pages - taken.pages }
    }

    /// Returns true if a round with this much left begins no message.
    fn is_used_up(self) -> bool {
        self.instructions == 0 || self.pages == 0
    }

    fn is_done(self) -> bool {
        self.instructions == 0 && self.pages == 0
    }
}

impl Rounds {
    /// Records that a call from outside was submitted.
    pub(crate) fn submit(&mut self, id: MessageId) {
        self.submitted.insert(id, self.begun);
    }

    /// Records that the call was answered.
    pub(crate) fn answer(&mut self, id: MessageId) {
        match &mut self.answered {
            Some(answered) => answered.push(id),
            None => {
                self.submitted.remove(&id);
            }
        }
    }
}

impl Subnet {
    /// Runs a round.
    pub(crate) fn run_round(&mut self) -> Round {
        let duration = u64::try_from(self.limits.round_duration.as_nanos()).unwrap_or(u64::MAX);
        self.set_time(self.shared.time.saturating_add(duration));
        self.begin_round();
        self.shared.rounds.begun += 1;
        let whole = Work {
            instructions: self.limits.round_instructions,
            pages: self.limits.round_dirty_bytes / OS_PAGE as u64,
        };
        let mut left = whole;
        let mut completed = Vec::new();
        if let Some(message) = self.shared.rounds.in_progress.take() {
            self.account(message, &mut left, &mut completed);
        }
        // The timer of a canister that is still busy is not checked.
        if self.shared.rounds.in_progress.is_none() {
            self.queue_due_timers();
        }
        while self.shared.rounds.in_progress.is_none() && !left.is_used_up() {
            self.apply_faults();
            let Some(message) = self.shared.queue.pop_front() else { break };
            let message = self.execute_apart(message);
            self.account(message, &mut left, &mut completed);
        }
        Round {
            number: self.shared.rounds.begun,
            completed,
            instructions: whole.instructions - left.instructions,
            pages: whole.pages - left.pages,
            in_progress: self.shared.rounds.in_progress.is_some(),
            waiting: self.shared.queue.len(),
        }
    }

    /// Executes a message and withholds its calls and answers.
    fn execute_apart(&mut self, message: Message) -> Executed {
        let work = |subnet: &Subnet| Work {
            instructions: subnet.history.totals.instructions_charged as u64,
            pages: subnet.history.pages_dirtied,
        };
        let before = work(self);
        let waiting = std::mem::take(&mut self.shared.queue);
        self.shared.rounds.answered = Some(Vec::new());
        self.execute(message);
        let answered = self.shared.rounds.answered.take().unwrap_or_default();
        let sent = std::mem::replace(&mut self.shared.queue, waiting).into();
        let after = work(self);
        let answers = answered.into_iter().filter_map(|id| Some((id, self.shared.answers.remove(&id)?))).collect();
        let rest = Work {
            instructions: after.instructions.wrapping_sub(before.instructions),
            pages: after.pages.wrapping_sub(before.pages),
        };
        Executed { rest, sent, answers }
    }

    /// Takes the work of a message from what is left of the round. The message then ends, or continues in the next round.
    fn account(&mut self, mut message: Executed, left: &mut Work, completed: &mut Vec<Completed>) {
        message.rest = left.take(message.rest);
        if !message.rest.is_done() {
            // Nothing else runs meanwhile.
            self.shared.rounds.in_progress = Some(message);
            return;
        }
        let rounds = &mut self.shared.rounds;
        completed.extend(message.answers.iter().map(|(id, _)| {
            let since = rounds.submitted.get(id).copied().unwrap_or(rounds.begun);
            Completed { id: *id, delay: rounds.begun - since }
        }));
        self.end(message);
    }

    /// Ends a message in progress, because a message must be executed outside of rounds.
    pub(crate) fn leave_rounds(&mut self) {
        if let Some(message) = self.shared.rounds.in_progress.take() {
            self.end(message);
        }
    }

    fn end(&mut self, message: Executed) {
        self.shared.queue.extend(message.sent);
        for (id, answer) in message.answers {
            self.shared.rounds.submitted.remove(&id);
            self.shared.answers.insert(id, answer);
        }
    }
}

//! Scheduler: takes one message at a time from the queue, executes it, and passes its effects on.
//!
//! Messages wait in a single queue, first in, first out. A due timer joins the end of the queue, so timers fire between any two messages,
//! also while another call waits. A timer is unset before it fires, and stays unset if it traps.

use candid::Principal;

use crate::call_context::{CallContext, Callback, Origin};
use crate::canister::{Done, Effects, Job, State};
use crate::context::{Answer, Closure, Input, OutgoingCall};
use crate::cycles;
use crate::execution::Kind;
use crate::install::Mode;
use crate::instance::Entry;
use crate::reject::{ErrorCode, RejectResponse, did_not_reply, no_code, not_found, out_of_cycles};
use crate::settings::Status;
use crate::subnet::{Message, Subnet};
use crate::trap::Trap;

/// The export that a timer runs.
const TIMER: &str = "canister_global_timer";
/// The index that stands for no callback: the canister ignores the answer.
const NO_CALLBACK: u32 = u32::MAX;

impl Subnet {
    /// Executes one message or one due timer, and returns whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        self.begin_round();
        self.leave_rounds();
        self.apply_faults();
        self.queue_due_timers();
        self.step_queue()
    }

    /// Executes one message of the queue.
    pub(crate) fn step_queue(&mut self) -> bool {
        while let Some(message) = self.shared.queue.pop_front() {
            if self.execute(message) {
                return true;
            }
        }
        false
    }

    /// Executes a message. Returns false if there was nothing to execute, because a timer may no longer fire.
    pub(crate) fn execute(&mut self, message: Message) -> bool {
        match message {
            Message::Ingress { id, canister, sender, method, payload } => {
                let caller = sender.as_slice().to_vec();
                let input = Input { caller, method, arg: payload, ..Input::default() };
                self.arrive(canister, Origin::Ingress(id), input);
            }
            Message::Request { caller, callback, call, deadline } => self.request(caller, callback, *call, deadline),
            Message::Response { canister, callback, bounded, result, refund } => {
                self.response(canister, callback, bounded, result, refund);
            }
            Message::Timer { canister } => return self.fire(canister),
        }
        true
    }

    pub(crate) fn apply_faults(&mut self) {
        for (id, balance) in self.faults.take_balances() {
            if let Some(canister) = self.canisters.get_mut(&id) {
                canister.state.balance = balance;
            }
        }
        // An upgrade's own hooks are messages. Upgrades that come due during them wait for the next step.
        if (!self.shared.queue.is_empty() || self.timer_due())
            && let Some(upgrade) = self.faults.take_upgrade()
        {
            let controllers =
                self.canisters.get(&upgrade.canister).map(|canister| &canister.state.settings.controllers);
            let sender = controllers.and_then(|them| them.first().copied()).unwrap_or(Principal::anonymous());
            let result = self.install_code(upgrade.canister, Mode::Upgrade, &upgrade.wasm, upgrade.arg, sender);
            self.faults.upgraded(result);
        }
    }

    fn may_fire(&self, state: &State) -> bool {
        state.timer != 0
            && state.timer <= self.shared.time
            && state.status == Status::Running
            && state.exports(TIMER)
            && state.liquid() >= cycles::execution(self.limits.update_instructions)
    }

    fn timer_due(&self) -> bool {
        self.canisters.values().any(|canister| self.may_fire(&canister.state))
    }

    /// Puts every due timer into the queue, once.
    pub(crate) fn queue_due_timers(&mut self) {
        let due = self.canisters.values().filter(|canister| self.may_fire(&canister.state)).map(|canister| canister.id);
        for canister in due.collect::<Vec<_>>() {
            let queued =
                |message: &Message| matches!(message, Message::Timer { canister: other } if *other == canister);
            if !self.shared.queue.iter().any(queued) {
                self.shared.queue.push_back(Message::Timer { canister });
            }
        }
    }

    /// Runs a timer, unless it was set anew since it was queued, or may no longer fire.
    fn fire(&mut self, id: Principal) -> bool {
        let fires = self.canisters.get(&id).is_some_and(|canister| self.may_fire(&canister.state));
        if fires && let Some(canister) = self.canisters.get_mut(&id) {
            canister.state.timer = 0;
            let input = Input { caller: id.as_slice().to_vec(), answered: true, ..Input::default() };
            self.begin(id, Origin::System, Kind::Timer, TIMER.into(), input);
        }
        fires
    }

    /// Returns the reason why a canister refuses a call now, or the export to call.
    pub(crate) fn refusal(&self, id: Principal, method: &str) -> Result<(Kind, String), RejectResponse> {
        let canister = self.canisters.get(&id).ok_or_else(|| not_found(id))?;
        let state = &canister.state;
        match state.status {
            Status::Running => {}
            Status::Stopping => {
                return Err(RejectResponse::new(ErrorCode::CanisterStopping, format!("Canister {id} is stopping")));
            }
            Status::Stopped => {
                return Err(RejectResponse::new(ErrorCode::CanisterStopped, format!("Canister {id} is stopped")));
            }
        }
        if state.code.is_none() {
            return Err(no_code(id));
        }
        let needed = cycles::execution(self.limits.update_instructions);
        if state.liquid() < needed {
            return Err(out_of_cycles(id, needed + state.freezing_limit() - state.balance));
        }
        for (kind, prefix) in [(Kind::Update, "canister_update "), (Kind::ReplicatedQuery, "canister_query ")] {
            let export = format!("{prefix}{method}");
            if state.exports(&export) {
                return Ok((kind, export));
            }
        }
        Err(Trap::MethodNotFound { kind: "update", name: method.into() }.reject(id))
    }

    /// Executes an arriving call, or refuses it.
    fn arrive(&mut self, id: Principal, origin: Origin, input: Input) {
        match self.refusal(id, &input.method) {
            Ok((kind, export)) => self.begin(id, origin, kind, export, input),
            Err(reject) => self.answer(origin, Err(reject), input.cycles_available),
        }
    }

    /// Executes the first message of a call.
    fn begin(&mut self, id: Principal, origin: Origin, kind: Kind, export: String, input: Input) {
        let limit = self.limits.update_instructions;
        let Ok((canister, mut around)) = self.split(id) else { return };
        let call = CallContext {
            origin,
            caller: input.caller.clone(),
            method: input.method.clone(),
            deadline: input.deadline,
            cycles: input.cycles_available,
            answered: input.answered,
            outstanding: 0,
            instructions: 0,
        };
        let context = canister.state.fresh_id();
        canister.state.contexts.insert(context, call);
        let job = Job { kind, entry: Entry::Export(export), input, limit, prepaid: None };
        let done = canister.execute(job, &mut around);
        self.settle(id, context, done);
    }

    fn request(&mut self, caller: Principal, callback: u64, call: OutgoingCall, deadline: u64) {
        let origin = Origin::Canister { caller, callback, bounded: deadline != 0 };
        if call.callee == Principal::management_canister() {
            let result = self.management_call(&call.method);
            return self.answer(origin, result, call.cycles);
        }
        let (caller, cycles_available) = (caller.as_slice().to_vec(), call.cycles);
        let input =
            Input { caller, method: call.method, arg: call.payload, deadline, cycles_available, ..Input::default() };
        self.arrive(call.callee, origin, input);
    }

    /// Runs the callback of an answered call.
    fn response(
        &mut self,
        id: Principal,
        callback: u64,
        bounded: bool,
        result: Result<Vec<u8>, RejectResponse>,
        refund: u128,
    ) {
        let limit = self.limits.update_instructions;
        let Ok((canister, mut around)) = self.split(id) else { return };
        let state = &mut canister.state;
        let callback = state.callbacks.remove(&callback);
        // As on the platform, a refund that arrives after the deadline of a bounded-wait call is lost with the answer.
        if callback.is_some() || !bounded {
            state.balance += refund;
        }
        // Without a callback, the deadline has passed, or the canister was uninstalled meanwhile: the answer is lost.
        let Some(callback) = callback else { return };
        let Some(context) = state.contexts.get_mut(&callback.context) else { return };
        context.outstanding -= 1;
        let bytes = result.as_ref().map_or_else(|reject| reject.reject_message.len(), Vec::len) as u128;
        // The part prepaid for a longer reply is refunded.
        state.balance += cycles::CALL_BYTE * cycles::MAX_REPLY.saturating_sub(bytes);
        let prepaid = callback.prepaid.saturating_sub(cycles::CALL_BYTE * cycles::MAX_REPLY);
        let (kind, closure, arg, reject) = match result {
            Ok(arg) => (Kind::ReplyCallback, callback.on_reply, arg, None),
            Err(reject) => {
                let reject = Some((reject.reject_code as u32, reject.reject_message));
                (Kind::RejectCallback, callback.on_reject, Vec::new(), reject)
            }
        };
        let input = Input {
            caller: context.caller.clone(),
            method: context.method.clone(),
            arg,
            reject,
            deadline: context.deadline,
            cycles_available: context.cycles,
            cycles_refunded: refund,
            answered: context.answered,
            instructions_before: context.instructions,
        };
        if closure.function == NO_CALLBACK {
            state.balance += prepaid;
            let done = Done { result: Ok(Effects::default()), instructions: 0 };
            return self.settle(id, callback.context, done);
        }
        let cleanup_input = Input { arg: Vec::new(), answered: true, ..input.clone() };
        let job = Job { kind, entry: entry(closure), input, limit, prepaid: Some(prepaid) };
        let done = canister.execute(job, &mut around);
        if let (Err(_), Some(cleanup)) = (&done.result, callback.on_cleanup) {
            let job = Job { kind: Kind::Cleanup, entry: entry(cleanup), input: cleanup_input, limit, prepaid: None };
            // A trap in a cleanup is undone, without further effect.
            canister.execute(job, &mut around);
        }
        self.settle(id, callback.context, done);
    }

    /// Passes on the effects of a call's message: its calls, its answer, or its end without an answer.
    fn settle(&mut self, id: Principal, context_id: u64, done: Done) {
        let time = self.shared.time;
        let Some(canister) = self.canisters.get_mut(&id) else { return };
        let state = &mut canister.state;
        let Some(mut context) = state.contexts.remove(&context_id) else { return };
        context.instructions += done.instructions;
        let mut answer = None;
        let mut trap = None;
        match done.result {
            Ok(effects) => {
                context.cycles = context.cycles.saturating_sub(effects.cycles_accepted);
                for call in effects.calls {
                    let callback = state.fresh_id();
                    let deadline = call.timeout.map_or(0, |seconds| time + u64::from(seconds) * 1_000_000_000);
                    let OutgoingCall { on_reply, on_reject, on_cleanup, prepaid, .. } = call;
                    let awaited = Callback { context: context_id, deadline, on_reply, on_reject, on_cleanup, prepaid };
                    state.callbacks.insert(callback, awaited);
                    context.outstanding += 1;
                    let call = Box::new(call);
                    self.shared.queue.push_back(Message::Request { caller: id, callback, call, deadline });
                }
                answer = effects.answer.map(|answer| match answer {
                    Answer::Reply(bytes) => Ok(bytes),
                    Answer::Reject(text) => Err(RejectResponse::new(ErrorCode::CanisterRejectedMessage, text)),
                });
            }
            Err(error) => trap = Some(error),
        }
        if answer.is_none() && !context.answered && context.outstanding == 0 {
            answer = Some(Err(match trap {
                Some(trap) => trap.reject(id),
                None => did_not_reply(id),
            }));
        }
        let origin = context.origin.clone();
        let refund = if answer.is_some() { std::mem::take(&mut context.cycles) } else { 0 };
        context.answered |= answer.is_some();
        if context.outstanding > 0 {
            state.contexts.insert(context_id, context);
        } else if state.status == Status::Stopping && state.contexts.is_empty() {
            state.status = Status::Stopped;
        }
        if let Some(answer) = answer {
            self.answer(origin, answer, refund);
        }
    }

    /// Delivers an answer to the origin of the call.
    pub(crate) fn answer(&mut self, origin: Origin, result: Result<Vec<u8>, RejectResponse>, refund: u128) {
        match origin {
            Origin::Ingress(id) => {
                self.shared.answers.insert(id, result);
                self.shared.rounds.answer(id);
            }
            Origin::Canister { caller, callback, bounded } => {
                self.shared.queue.push_back(Message::Response { canister: caller, callback, bounded, result, refund });
            }
            Origin::System => {}
        }
    }
}

fn entry(closure: Closure) -> Entry {
    Entry::Callback { function: closure.function, env: closure.env }
}

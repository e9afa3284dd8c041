//! Deadlines of calls that wait for a bounded time.

use crate::reject::{ErrorCode, RejectResponse};
use crate::subnet::{Message, Subnet};

impl Subnet {
    /// Rejects the calls whose deadline has passed without an answer. A request still in the queue is not executed, and its cycles are
    /// refunded. If the callee has begun, its later answer is lost, together with the cycles that it did not accept.
    pub(crate) fn expire_calls(&mut self) {
        let time = self.shared.time;
        let mut expired = Vec::new();
        for (id, canister) in &mut self.canisters {
            for (number, callback) in &mut canister.state.callbacks {
                if callback.deadline != 0 && callback.deadline < time {
                    callback.deadline = 0;
                    expired.push((*id, *number));
                }
            }
        }
        for (canister, callback) in expired {
            let is_answer = |message: &Message| matches!(message, Message::Response { canister: to, callback: of, .. } if (*to, *of) == (canister, callback));
            if self.shared.queue.iter().any(is_answer) {
                continue;
            }
            let is_request = |message: &Message| matches!(message, Message::Request { caller, callback: of, .. } if (*caller, *of) == (canister, callback));
            let waiting = self.shared.queue.iter().position(is_request);
            let refund = match waiting.and_then(|at| self.shared.queue.remove(at)) {
                Some(Message::Request { call, .. }) => call.cycles,
                _ => 0,
            };
            let result = Err(RejectResponse::new(ErrorCode::DeadlineExpired, "Call deadline has expired."));
            self.shared.queue.push_back(Message::Response { canister, callback, bounded: true, result, refund });
        }
    }
}

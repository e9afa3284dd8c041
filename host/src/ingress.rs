//! Calls from outside: updates that are queued, and queries that are answered at once.

use candid::Principal;

use crate::call_context::MessageId;
use crate::canister::Job;
use crate::context::{Answer, Input};
use crate::cycles;
use crate::execution::Kind;
use crate::instance::Entry;
use crate::limits::MAX_INGRESS;
use crate::reject::{ErrorCode, RejectResponse, did_not_reply, no_code, out_of_cycles};
use crate::settings::Status;
use crate::subnet::{Message, Subnet};
use crate::trap::Trap;

/// Returns the size of an ingress message's envelope, for each byte of which the platform charges.
///
/// The envelope is CBOR with the field names of the interface specification, as a PocketIC server builds it: a tag, and a map with only
/// `content`, because that server's callers don't sign. Besides method and argument it has about 150 bytes. A signed envelope has another
/// 137 for an Ed25519 key and its signature (`sender_pubkey`, `sender_sig`), and agents use 16 bytes for the nonce.
pub(crate) fn envelope_bytes(canister: Principal, sender: Principal, method: usize, argument: usize) -> u64 {
    const TAG: usize = 3;
    const MAP_OF_ONE: usize = 1;
    // A map of unstated length, with an end mark.
    const OPEN_MAP: usize = 2;
    const NUMBER: usize = 9;
    const NONCE: usize = 8;
    let names =
        ["content", "request_type", "call", "canister_id", "method_name", "arg", "sender", "ingress_expiry", "nonce"];
    let values = [canister.as_slice().len(), method, argument, sender.as_slice().len(), NONCE];
    let strings: usize = names.map(str::len).into_iter().chain(values).map(string).sum();
    (TAG + MAP_OF_ONE + OPEN_MAP + NUMBER + strings) as u64
}

/// Bytes that the platform adds to an envelope before it compares the sum with its limit: the message's id. The id costs nothing.
const MESSAGE_ID: usize = 32;

/// Returns the length of the longest argument that an unsigned ingress message of this sender to this method can hold, in bytes. A signed
/// message holds 137 bytes less, and an agent's nonce takes 8 more.
pub fn largest_argument(canister: Principal, sender: Principal, method: &str) -> usize {
    const LONG: usize = 65_536;
    MAX_INGRESS + LONG - MESSAGE_ID - envelope_bytes(canister, sender, method.len(), LONG) as usize
}

/// Returns the length of a text or byte string in CBOR, with its length prefix.
fn string(length: usize) -> usize {
    length
        + match length {
            0..24 => 1,
            24..256 => 2,
            256..65_536 => 3,
            _ => 5,
        }
}

impl Subnet {
    /// Puts an update from outside into the queue, after `canister_inspect_message` has accepted it.
    pub(crate) fn submit(
        &mut self,
        canister: Principal,
        sender: Principal,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<MessageId, RejectResponse> {
        let bytes = envelope_bytes(canister, sender, method.len(), payload.len());
        let counted = bytes + MESSAGE_ID as u64;
        if counted > MAX_INGRESS as u64 {
            let message =
                format!("BadIngressMessage: {counted} bytes with the envelope and the id, and at most {MAX_INGRESS}");
            return Err(RejectResponse::new(ErrorCode::SubnetOversubscribed, message));
        }
        self.apply_faults();
        self.refusal(canister, method)?;
        self.inspect(canister, sender, method, &payload)?;
        let price = cycles::ingress(bytes);
        let state = &mut self.canister(canister)?.state;
        if state.liquid() < price {
            return Err(out_of_cycles(canister, price - state.liquid()));
        }
        state.balance -= price;
        self.shared.next_message += 1;
        let id = MessageId(self.shared.next_message);
        self.shared.rounds.submit(id);
        self.shared.queue.push_back(Message::Ingress { id, canister, sender, method: method.into(), payload });
        Ok(id)
    }

    fn inspect(
        &mut self,
        id: Principal,
        sender: Principal,
        method: &str,
        payload: &[u8],
    ) -> Result<(), RejectResponse> {
        const INSPECT: &str = "canister_inspect_message";
        let (canister, mut around) = self.split_as_seen(id)?;
        if !canister.state.exports(INSPECT) {
            return Ok(());
        }
        let input = Input {
            caller: sender.as_slice().to_vec(),
            method: method.into(),
            arg: payload.to_vec(),
            answered: true,
            ..Input::default()
        };
        let kind = Kind::InspectMessage;
        let limit = around.limits.instructions(kind);
        let job = Job { kind, entry: Entry::Export(INSPECT.into()), input, limit, prepaid: None };
        match canister.execute(job, &mut around).result {
            Ok(effects) if effects.accepted => Ok(()),
            Ok(_) => Err(RejectResponse::new(ErrorCode::CanisterRejectedMessage, "Canister rejected the message")),
            Err(trap) => Err(trap.reject(id)),
        }
    }

    /// Executes messages until a call is answered, and takes the answer.
    pub(crate) fn wait_for(&mut self, id: MessageId) -> Result<Vec<u8>, RejectResponse> {
        if !self.shared.answers.contains_key(&id) {
            self.leave_rounds();
        }
        loop {
            if let Some(answer) = self.shared.answers.remove(&id) {
                return answer;
            }
            if !self.step() {
                let message = "The host has nothing left to execute, yet the call is not answered: it waits for \
                    something that will not happen, for a timer that is not due, or its answer was taken before";
                return Err(RejectResponse::new(ErrorCode::DeadlineExpired, message));
            }
        }
    }

    /// Answers a query and discards its changes.
    pub(crate) fn query(
        &mut self,
        id: Principal,
        sender: Principal,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, RejectResponse> {
        let (canister, mut around) = self.split_as_seen(id)?;
        let state = &canister.state;
        if state.status != Status::Running {
            return Err(RejectResponse::new(ErrorCode::CanisterStopped, format!("Canister {id} is stopped")));
        }
        if state.code.is_none() {
            return Err(no_code(id));
        }
        if state.balance < state.freezing_limit() {
            let message = format!(
                "Canister {id} is unable to process query calls because it's frozen. Please top up \
                the canister with cycles and try again."
            );
            return Err(RejectResponse::new(ErrorCode::CanisterOutOfCycles, message));
        }
        let exports = ["canister_query ", "canister_composite_query "].map(|prefix| format!("{prefix}{method}"));
        let Some(export) = exports.into_iter().find(|export| state.exports(export)) else {
            return Err(Trap::MethodNotFound { kind: "query", name: method.into() }.reject(id));
        };
        let input =
            Input { caller: sender.as_slice().to_vec(), method: method.into(), arg: payload, ..Input::default() };
        let kind = Kind::Query;
        let limit = around.limits.instructions(kind);
        let done =
            canister.execute(Job { kind, entry: Entry::Export(export), input, limit, prepaid: None }, &mut around);
        match done.result.map_err(|trap| trap.reject(id))?.answer {
            Some(Answer::Reply(bytes)) => Ok(bytes),
            Some(Answer::Reject(text)) => Err(RejectResponse::new(ErrorCode::CanisterRejectedMessage, text)),
            None => Err(did_not_reply(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelope_adds_about_150_bytes() {
        let canister = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        let sender = Principal::self_authenticating(b"key");
        let beside = |argument| envelope_bytes(canister, sender, 7, argument) - 7 - argument as u64;
        assert_eq!([0, 23, 24, 255, 256, 65_535, 65_536].map(beside), [150, 150, 151, 151, 152, 152, 154]);
        assert_eq!(beside(2_000_000), 154);
        assert_eq!(envelope_bytes(canister, Principal::anonymous(), 7, 0), 128);
        assert_eq!(largest_argument(canister, sender, "1234567"), MAX_INGRESS - 154 - 7 - 32);
    }
}

//! The message: its argument, its caller, and the answer.

use wasmtime::Linker;

use super::import::{ALL, ANSWERS, CALLBACKS, Modes, NOT_START, bytes_import, heap_range, import, parts, text};
use crate::context::{Answer, Context, Run};
use crate::cost::{DEBUG_PRINT, SYSTEM_CALL, sending};
use crate::execution::Kind;
use crate::limits::{MAX_PAYLOAD, MAX_QUERY_REPLY};
use crate::trap::Trap;

const ARGUMENTS: Modes = Modes::of(&[
    Kind::Init,
    Kind::PostUpgrade,
    Kind::Update,
    Kind::Query,
    Kind::ReplicatedQuery,
    Kind::ReplyCallback,
    Kind::InspectMessage,
]);
const REJECTED: Modes = Modes::of(&[Kind::RejectCallback]);
const INSPECT: Modes = Modes::of(&[Kind::InspectMessage]);

/// Bytes that a reply may have.
fn reply_limit(kind: Kind) -> usize {
    if kind == Kind::Query { MAX_QUERY_REPLY } else { MAX_PAYLOAD }
}

fn check_unanswered(run: &Run, name: &str) -> Result<(), Trap> {
    if run.input.answered || run.answer.is_some() {
        return Err(Trap::Contract(format!("\"{name}\" cannot be called after the call was answered")));
    }
    Ok(())
}

fn reject_message(run: &Run) -> &[u8] {
    run.input.reject.as_ref().map_or(&[], |(_, message)| message.as_bytes())
}

pub(super) fn define(linker: &mut Linker<Context>) -> wasmtime::Result<()> {
    bytes_import!(linker, "msg_arg_data", ARGUMENTS, |run| &run.input.arg);
    bytes_import!(linker, "msg_caller", NOT_START, |run| &run.input.caller);
    // Attributes of the caller beyond its principal: nobody attaches any here.
    bytes_import!(linker, "msg_caller_info_data", NOT_START, |_run| &[]);
    bytes_import!(linker, "msg_caller_info_signer", NOT_START, |_run| &[]);
    bytes_import!(linker, "msg_reject_msg", REJECTED, |run| reject_message(run));
    bytes_import!(linker, "msg_method_name", INSPECT, |run| run.input.method.as_bytes());

    import!(linker, "msg_reject_code", CALLBACKS, SYSTEM_CALL, |caller| -> u32 {
        Ok(caller.data_mut().run().input.reject.as_ref().map_or(0, |(code, _)| *code))
    });
    import!(linker, "msg_deadline", NOT_START, SYSTEM_CALL, |caller| -> u64 {
        Ok(caller.data_mut().run().input.deadline)
    });
    import!(linker, "msg_reply_data_append", ANSWERS, sending(size), |caller, source: u32, size: u32| -> () {
        let (heap, run) = parts(&mut caller)?;
        check_unanswered(run, "ic0.msg_reply_data_append")?;
        let limit = reply_limit(run.kind);
        if run.reply_data.len() + size as usize > limit {
            let message = format!(
                "ic0.msg_reply_data_append: application payload size ({}) cannot be larger than \
                    {limit}",
                run.reply_data.len() + size as usize
            );
            return Err(Trap::Contract(message).into());
        }
        let bytes = heap_range("ic0.msg_reply_data_append", heap, source, size)?;
        run.reply_data.extend_from_slice(bytes);
        Ok(())
    });
    import!(linker, "msg_reply", ANSWERS, SYSTEM_CALL, |caller| -> () {
        let run = caller.data_mut().run();
        check_unanswered(run, "ic0.msg_reply")?;
        run.answer = Some(Answer::Reply(std::mem::take(&mut run.reply_data)));
        Ok(())
    });
    import!(linker, "msg_reject", ANSWERS, sending(size), |caller, source: u32, size: u32| -> () {
        let (heap, run) = parts(&mut caller)?;
        check_unanswered(run, "ic0.msg_reject")?;
        let bytes = heap_range("ic0.msg_reject", heap, source, size)?;
        run.answer = Some(Answer::Reject(text("ic0.msg_reject", bytes)?.to_string()));
        Ok(())
    });
    import!(linker, "accept_message", INSPECT, SYSTEM_CALL, |caller| -> () {
        let run = caller.data_mut().run();
        if std::mem::replace(&mut run.accepted, true) {
            return Err(Trap::Contract("ic0.accept_message: the message was accepted before".into()).into());
        }
        Ok(())
    });
    import!(linker, "debug_print", ALL, DEBUG_PRINT + u64::from(size), |caller, source: u32, size: u32| -> () {
        let (heap, run) = parts(&mut caller)?;
        // The platform prints nothing when the range is off the heap; it doesn't trap.
        if let Ok(bytes) = heap_range("ic0.debug_print", heap, source, size) {
            run.log.push(bytes.to_vec());
        }
        Ok(())
    });
    import!(linker, "trap", ALL, SYSTEM_CALL + u64::from(size), |caller, source: u32, size: u32| -> () {
        let (heap, _) = parts(&mut caller)?;
        let message = match heap_range("ic0.trap", heap, source, size) {
            Ok(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Err(_) => "(trap message out of memory bounds)".into(),
        };
        Err(Trap::Called(message).into())
    });
    Ok(())
}

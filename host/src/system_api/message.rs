//! The message: its argument, its caller, and its answer.

use wasmtime::Linker;

use super::import::{ALL, ANSWERS, CALLBACKS, Modes, NOT_START, bytes_import, heap_range, imports};
use crate::context::{Answer, Context, Run};
use crate::cost::{DEBUG_PRINT, SYSTEM_CALL, sending};
use crate::execution::Kind;
use crate::limits::{MAX_PAYLOAD, MAX_QUERY_REPLY};
use crate::trap::Trap;

const ARGUMENTS: Modes = |kind| {
    matches!(kind, Kind::Init | Kind::PostUpgrade | Kind::Query | Kind::InspectMessage | Kind::ReplyCallback)
        || matches!(kind, Kind::Update | Kind::ReplicatedQuery)
};
const REJECTED: Modes = |kind| kind == Kind::RejectCallback;
const INSPECT: Modes = |kind| kind == Kind::InspectMessage;

/// Returns the most bytes of a reply.
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
    bytes_import(linker, "msg_arg_data", ARGUMENTS, |run| &run.input.arg)?;
    bytes_import(linker, "msg_caller", NOT_START, |run| &run.input.caller)?;
    // Attributes of the caller beyond its principal; always empty here.
    bytes_import(linker, "msg_caller_info_data", NOT_START, |_| &[])?;
    bytes_import(linker, "msg_caller_info_signer", NOT_START, |_| &[])?;
    bytes_import(linker, "msg_reject_msg", REJECTED, reject_message)?;
    bytes_import(linker, "msg_method_name", INSPECT, |run| run.input.method.as_bytes())?;
    imports! { linker, call;
        [CALLBACKS, SYSTEM_CALL] msg_reject_code() -> u32 {
            Ok(call.run().input.reject.as_ref().map_or(0, |(code, _)| *code))
        }
        [NOT_START, SYSTEM_CALL] msg_deadline() -> u64 { Ok(call.run().input.deadline) }
        [ANSWERS, sending(size)] msg_reply_data_append(source: u32, size: u32) -> () {
            let run = call.run();
            check_unanswered(run, "ic0.msg_reply_data_append")?;
            let (bytes, limit) = (run.reply_data.len() + size as usize, reply_limit(run.kind));
            if bytes > limit {
                let message = format!(
                    "ic0.msg_reply_data_append: application payload size ({bytes}) cannot be larger than {limit}"
                );
                return Err(Trap::Contract(message).into());
            }
            let (bytes, run) = call.read(source, size)?;
            run.reply_data.extend_from_slice(bytes);
            Ok(())
        }
        [ANSWERS, SYSTEM_CALL] msg_reply() -> () {
            let run = call.run();
            check_unanswered(run, "ic0.msg_reply")?;
            run.answer = Some(Answer::Reply(std::mem::take(&mut run.reply_data)));
            Ok(())
        }
        [ANSWERS, sending(size)] msg_reject(source: u32, size: u32) -> () {
            let run = call.run();
            check_unanswered(run, "ic0.msg_reject")?;
            let (text, run) = call.read_text(source, size)?;
            run.answer = Some(Answer::Reject(text.to_string()));
            Ok(())
        }
        [INSPECT, SYSTEM_CALL] accept_message() -> () {
            if std::mem::replace(&mut call.run().accepted, true) {
                return Err(Trap::Contract("ic0.accept_message: the message was accepted before".into()).into());
            }
            Ok(())
        }
        [ALL, DEBUG_PRINT + u64::from(size)] debug_print(source: u32, size: u32) -> () {
            let (heap, run) = call.parts()?;
            // If the range is outside the heap, the platform prints nothing and does not trap.
            run.log.extend(heap_range(heap, source, size).map(<[u8]>::to_vec));
            Ok(())
        }
        [ALL, SYSTEM_CALL + u64::from(size)] trap(source: u32, size: u32) -> () {
            let (heap, _) = call.parts()?;
            let message = match heap_range(heap, source, size) {
                Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                None => "(trap message out of memory bounds)".into(),
            };
            Err(Trap::Called(message).into())
        }
    }
    Ok(())
}

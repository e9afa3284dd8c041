//! Interruption at every message: a trap, and an upgrade, between any two messages of a whole life, and traps inside messages. Only the
//! embedded host can do this.
//!
//! The life: blocks of all sizes with an id that is in each of them, an upload, a rollback, a policy, an exporter that acknowledges, time
//! that passes with a daemon that prunes a few blocks a tick, and a sweep of the indexes.
//!
//! A client repeats rejected calls, as clients do. After any interruption every state on the way is whole, the timer still fires, nothing
//! is stuck, and the life ends as the undisturbed one does.

use candid::utils::ArgumentEncoder;
use coppice_tests::blocks::{block, block_id, hash, id, plain, plain_id, upload, with_keys};
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, LOG_CLASS, Who, default_arg};
use coppice_tests::wasm;
use ic_coppice_host::{Checkpoint, Host, Kind, TrapPoint};
use ic_coppice_interface::*;
use std::sync::Arc;

const RETAIN: u64 = 6;

/// The state that two lives are compared by. The slots of the blobs may differ; the kept data must not.
#[derive(Debug, PartialEq)]
struct End {
    /// The headers; `check` compares the payload.
    chain: Vec<BlockHeader>,
    pruned_before_block: u64,
    pruned_blocks: u64,
    kept_bytes: u64,
    used_bytes: u64,
    quarantined_bytes: u64,
    index_entries: u64,
    key_entries: u64,
    enabled: bool,
    faults: u64,
    upload: Option<OpenBlock>,
    exported_before_block: Option<u64>,
}

fn end(coppice: &Coppice) -> End {
    // Repeated ids leave debt in the index: the number of entries is exact only after a sweep.
    for _ in 0..3 {
        retry_call::<Result<PruneRun, PruneError>>(coppice, Who::Controller, "prune_now", (1_000u64,)).unwrap();
    }
    let (status, storage) = (coppice.prune_status(), coppice.storage());
    End {
        chain: coppice.chain().into_iter().map(|block| block.header).collect(),
        pruned_before_block: status.pruned_before_block,
        pruned_blocks: status.pruned_blocks,
        kept_bytes: status.estimated_kept_bytes,
        used_bytes: storage.used_bytes,
        quarantined_bytes: storage.quarantined_bytes,
        index_entries: storage.index_entries,
        key_entries: storage.key_entries,
        enabled: status.enabled,
        faults: status.faults,
        upload: coppice.anyone().list_uploads().answer().block,
        exported_before_block: status.exported_before_block,
    }
}

/// Checks any state on the way: kept blocks are whole, removed blocks are removed completely, and no space is lost.
fn check(coppice: &Coppice) {
    let (status, storage) = (coppice.prune_status(), coppice.storage());
    let Some(head) = status.head else { return };
    let oldest = status.pruned_before_block;
    for number in oldest.saturating_sub(1)..=head {
        let found = coppice.location(plain_id(number, 0));
        if number < oldest {
            assert_eq!(coppice.block(number), Err(ReadError::Pruned { first_available: oldest }));
            assert_eq!(found, Err(ReadError::NotFound));
        } else {
            let block = coppice.block(number).unwrap_or_else(|error| panic!("block {number}: {error:?}"));
            assert_eq!(block.body, life_block(number).body, "block {number}");
            assert_eq!(found, Ok((number, 0)));
        }
    }
    let place = |number: u64| coppice.anyone().get_storage_status(Some(number)).answer().block.unwrap();
    let (first, last) = (place(oldest), place(head));
    let class = u64::from(LOG_CLASS);
    // A block's payload is followed by the links of its three keys, and of the id that the previous block has, too.
    let end = last.log_offset + last.lengths.sum() + 3 * 12 + 12 * u64::from(head > 0);
    let blobs = end.div_ceil(class) - first.log_offset / class;
    assert_eq!(storage.owners[0].kept_bytes, blobs * class, "the chain keeps exactly the blobs that its blocks touch");
    assert_eq!(storage.quarantined_bytes, 0);
    let (ids, table) = (2 * (head + 1 - oldest) + 1, &status.transaction_index);
    assert!((ids..=ids + table.debt).contains(&table.entries), "{ids} different ids, {table:?}");
    assert_eq!(coppice.location(id(EVERYWHERE)), Ok((head, 2)));
    let all: Vec<_> = (oldest..=head).rev().flat_map(|number| [(number, 2), (number, 0)]).collect();
    assert_eq!(coppice.find_all(b"all", 4), all);
    for third in 0..3u8 {
        let own = (oldest..=head).rev().filter(|number| *number % 3 == u64::from(third));
        assert_eq!(coppice.find_all(&[third], 100), own.map(|number| (number, 1)).collect::<Vec<_>>());
    }
    // Repeated keys leave debt in the index until a sweep.
    let (kinds, table) = (1 + 3.min(head + 1 - oldest), coppice.prune_status().key_index);
    assert!((kinds..=kinds + table.debt).contains(&table.entries), "{kinds} different keys, {table:?}");
}

/// The id that every block contains.
const EVERYWHERE: u64 = 77 << 40;

/// Block `number` of the life: three transactions, one of which has the id that every block contains, and three secondary keys, one of them
/// twice.
fn life_block(number: u64) -> AppendBlock {
    let ids = [plain_id(number, 0), plain_id(number, 1), id(EVERYWHERE)];
    with_keys(block(number, &ids, size(number)), &[(0, b"all"), (1, &[(number % 3) as u8]), (2, b"all")])
}

fn size(number: u64) -> usize {
    [300, 70_000, 9_000, 150_000][number as usize % 4]
}

/// Repeats a call until it is not rejected: at most a few times, because each fault strikes once.
fn retry_call<R: candid::CandidType + serde::de::DeserializeOwned>(
    coppice: &Coppice,
    who: Who,
    method: &str,
    args: impl ArgumentEncoder + Clone,
) -> R {
    let mut reject = None;
    for _ in 0..4 {
        match coppice.call(who, method, args.clone()) {
            Ok(reply) => return reply,
            Err(error) => reject = Some(error),
        }
    }
    panic!("{method}: {reject:?}");
}

/// A step of the life. A state is checked after each.
type Step = Box<dyn Fn(&Coppice)>;

fn life() -> Vec<Step> {
    let mut steps: Vec<Step> = vec![Box::new(begin)];
    for number in 0..10 {
        if number % 4 == 3 {
            steps.push(Box::new(move |coppice| {
                let (begin, _) = upload(&life_block(number), 80_000);
                retry_call::<Result<UploadProgress, AppendError>>(coppice, Who::Producer, "begin_block", (begin,))
                    .unwrap();
            }));
        }
        steps.push(Box::new(move |coppice| {
            if number % 4 == 3 {
                finish_upload(coppice, number)
            } else {
                append(coppice, number)
            }
            if number % 3 == 2 {
                acknowledge(coppice, number);
                coppice.pass(10);
            }
        }));
        if number == 5 {
            steps.push(Box::new(move |coppice| {
                retry_call::<Result<Rollback, RollbackError>>(coppice, Who::Producer, "rollback_to", (number - 1,))
                    .unwrap();
            }));
            steps.push(Box::new(move |coppice| append(coppice, number)));
        }
        if number == 8 {
            steps.push(Box::new(|coppice| {
                retry_call::<Result<PruneRun, PruneError>>(coppice, Who::Controller, "prune_now", (1_000u64,)).unwrap();
            }));
        }
    }
    steps.push(Box::new(|coppice| time_passes(coppice, 9)));
    steps
}

fn begin(coppice: &Coppice) {
    let policy = PrunePolicyArg {
        retain_blocks: Some(RETAIN),
        max_ops_per_tick: Some(18),
        timer_interval_secs: Some(10),
        ..PrunePolicyArg::default()
    };
    retry_call::<Result<PrunePolicyChange, PruneError>>(coppice, Who::Controller, "set_prune_policy", (policy,))
        .unwrap();
    let exporter = Exporter { name: Who::Exporter.name(), principal: Who::Exporter.principal() };
    retry_call::<Result<(), ExporterError>>(coppice, Who::Controller, "register_exporter", (exporter,)).unwrap();
}

fn append(coppice: &Coppice, number: u64) {
    retry_call::<Result<(), AppendError>>(coppice, Who::Producer, "append_block", (life_block(number),)).unwrap();
}

fn finish_upload(coppice: &Coppice, number: u64) {
    let block = life_block(number);
    for (chunk, bytes) in (0..).zip(upload(&block, 80_000).1) {
        let put = PutBlockChunk { number, chunk, bytes: bytes.into() };
        retry_call::<Result<UploadProgress, UploadError>>(coppice, Who::Producer, "put_block_chunk", (put,)).unwrap();
    }
    retry_call::<Result<Commit, UploadError>>(coppice, Who::Producer, "commit_block", (block_id(&block),)).unwrap();
}

/// An exporter acknowledges everything up to block `number`.
fn acknowledge(coppice: &Coppice, number: u64) {
    let block = (number, BlockHash::from(hash(number)));
    let bound: Result<u64, AckError> = retry_call(coppice, Who::Exporter, "ack_exported", block);
    assert_eq!(bound, Ok(number + 1));
}

/// Lets time pass while a producer repeats its last block, because a producer is never silent for long. If the platform's timer was lost,
/// such a message wakes the daemon.
fn time_passes(coppice: &Coppice, head: u64) {
    for _ in 0..8 {
        let last = life_block(head);
        retry_call::<Result<(), AppendError>>(coppice, Who::Producer, "append_block", (last,)).unwrap();
        coppice.pass(10);
    }
}

/// Asserts that the daemon still prunes: it prunes blocks that are appended now.
fn assert_still_fires(coppice: &Coppice) {
    let head = coppice.head().unwrap();
    for number in head + 1..head + 4 {
        retry_call::<Result<(), AppendError>>(coppice, Who::Producer, "append_block", (life_block(number),)).unwrap();
    }
    acknowledge(coppice, head + 3);
    time_passes(coppice, head + 3);
    assert_eq!(coppice.prune_status().pruned_before_block, head + 3 - RETAIN, "the timer no longer fires");
    check(coppice);
}

/// A message of the life.
struct Message {
    kind: Kind,
    instructions: u64,
    system_calls: u64,
    /// The step that it belongs to.
    step: usize,
    /// Its number in that step, from 1.
    number: u64,
}

struct Undisturbed {
    coppice: Coppice,
    host: Arc<Host>,
    steps: Vec<Step>,
    /// The state before each step.
    before: Vec<Checkpoint>,
    end: End,
    messages: Vec<Message>,
}

fn undisturbed() -> Undisturbed {
    let (coppice, host) = Coppice::embedded(default_arg());
    let (steps, mut before, mut messages) = (life(), Vec::new(), Vec::new());
    for (step, play) in steps.iter().enumerate() {
        before.push(host.checkpoint());
        host.take_executions();
        play(&coppice);
        let own = host.take_executions();
        let own = own.iter().filter(|run| !matches!(run.kind, Kind::Query | Kind::InspectMessage));
        messages.extend((1..).zip(own).map(|(number, run)| Message {
            kind: run.kind,
            instructions: run.instructions,
            system_calls: run.system_calls,
            step,
            number,
        }));
    }
    let end = end(&coppice);
    assert_eq!(end.pruned_before_block, 9 - RETAIN);
    assert!(messages.iter().filter(|message| message.kind == Kind::Timer).count() >= 5, "the timer fires in it");
    check(&coppice);
    assert_still_fires(&coppice);
    Undisturbed { coppice, host, steps, before, end, messages }
}

impl Undisturbed {
    /// Runs the life again, from the message's step on, with a fault at the message, and compares.
    fn again(&self, message: &Message, what: &str, fault: impl FnOnce(&Host, u64)) {
        self.host.restore(&self.before[message.step]);
        self.host.faults().clear();
        let before = self.host.faults().injected();
        fault(&self.host, message.number);
        let what = format!("{what} of step {}, message {}, {:?}", message.step, message.number, message.kind);
        eprintln!("{what}");
        for step in &self.steps[message.step..] {
            step(&self.coppice);
            check(&self.coppice);
        }
        let struck = self.host.faults().injected() - before;
        assert_eq!(struck, 1, "{what}: the fault must strike");
        for result in self.host.faults().upgrade_results() {
            result.unwrap_or_else(|reject| panic!("{what}: {reject:?}"));
        }
        self.host.faults().clear();
        let end = end(&self.coppice);
        assert_eq!(end, self.end, "{what}");
        assert_still_fires(&self.coppice);
    }
}

#[test]
fn a_trap_in_any_message_changes_nothing() {
    let life = undisturbed();
    for message in &life.messages {
        life.again(message, "trap at the end", |host, number| host.faults().trap_message(number, TrapPoint::End));
    }
}

#[test]
fn an_upgrade_between_any_two_messages_loses_nothing() {
    let life = undisturbed();
    let arg = candid::encode_one(None::<CanisterArg>).unwrap();
    for message in &life.messages {
        life.again(message, "upgrade before", |host, number| {
            host.faults().upgrade_before(number, life.coppice.id, wasm::canister(), arg.clone());
        });
    }
}

/// Traps at a sample of places inside messages: after a number of instructions, and at system calls. A message traps at one place, or at
/// three if `COPPICE_TRAPS` is set.
#[test]
fn a_trap_inside_a_message_changes_nothing() {
    let life = undisturbed();
    let (mut tried, all) = (0, std::env::var_os("COPPICE_TRAPS").is_some());
    for (k, message) in (1..).zip(&life.messages) {
        let &Message { instructions, system_calls, .. } = message;
        // The points differ from message to message.
        let points = [
            TrapPoint::Instructions(instructions / 2 + k * 997 % (instructions / 2).max(1)),
            TrapPoint::SystemCall(1 + k * 31 % system_calls.max(1)),
            TrapPoint::SystemCall(system_calls.max(1)),
        ];
        let some = if all { 0..3 } else { k as usize % 3..k as usize % 3 + 1 };
        for &point in &points[some] {
            // A trap point within the last 1,000 instructions may lie after the last place where the host checks for it.
            if matches!(point, TrapPoint::Instructions(n) if n + 1_000 > instructions) {
                continue;
            }
            let what = format!("trap at {point:?}");
            life.again(message, &what, |host, number| host.faults().trap_message(number, point));
            tried += 1;
        }
    }
    let least = if all { 2 * life.messages.len() } else { life.messages.len() * 2 / 3 };
    assert!(tried > least, "{tried} points in {} messages", life.messages.len());
}

/// The platform refuses each growth of the life in turn.
#[test]
fn refused_growth_is_an_error_and_not_a_trap() {
    let (coppice, host) = Coppice::embedded(default_arg());
    let mut refused = 0;
    for number in 0..20 {
        host.faults().refuse_growth(1);
        let block = plain(number, 3, 1_900_000);
        match coppice.append(&block) {
            Ok(()) => host.faults().clear(),
            Err(error) => {
                assert_eq!(error, AppendError::NoMemory(NoMemory::OutOfSpace));
                refused += 1;
                assert_eq!(coppice.append(&block), Ok(()), "a later growth may be granted");
            }
        }
    }
    assert!(refused >= 2, "memory grew {refused} times");
    assert_eq!(coppice.chain().len(), 20);
}

//! Random histories of all operations: every answer and every record is as the [`Model`] says.
//!
//! A history has few transactions that spend the same outputs, so that its steps collide. A step says what is meant ("a frozen
//! output", "a transaction that is not there yet"); which one that is, is found out when it is its turn (`run`).

mod large;
mod run;
mod steps;
mod store;
mod transactions;

use super::model::{Call, Hash, Indexes, Model};
use coppice_interface::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use run::{Run, Seen};
use std::fmt::Debug;
use steps::{History, history};
use store::Real;

/// A call that changes something.
#[derive(Clone, Debug)]
pub enum Op {
    Create(UtxoCreate),
    Spend(TransactionSpends),
    Unspend(Unspend),
    SetMined(UtxoSetMinedBatch),
    OnLongestChain(Txid, bool),
    SetLocked(Txid, bool),
    Freeze(FreezeTarget),
    Unfreeze(FreezeTarget),
    Reassign(Reassign),
    SetConflicting(Txid),
    ProcessConflicting(Vec<Txid>),
    Preserve(Txid, u32),
    Delete(Hash),
    Begin(BeginTransaction),
    Put(PutTransactionChunk),
    Abort(Txid),
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Created(Result<UtxoCreated, UtxoRefusal>),
    Spent(Result<u32, Vec<RefusedSpend>>),
    Blocks(Result<Vec<u32>, UtxoRefusal>),
    Done(Result<(), UtxoRefusal>),
    Flag(Result<bool, UtxoRefusal>),
    Count(Result<u32, UtxoRefusal>),
    Conflict(Result<Conflict, UtxoRefusal>),
    Resolved(Result<ConflictResolution, ConflictError>),
    Uploading(Result<UploadProgress, TransactionUploadError>),
    Aborted(Result<bool, TransactionUploadError>),
}

/// What is compared.
pub trait Store {
    fn apply(&mut self, op: &Op, call: &Call) -> Answer;
    fn record(&self, txid: &[u8], first: u32, limit: u32) -> Result<UtxoRecord, UtxoRefusal>;
    fn transaction(&self, part: &UtxoGetPart) -> Result<TransactionPart, UtxoRefusal>;
    fn inpoints(&self, part: &UtxoGetPart) -> Result<InpointsPart, UtxoRefusal>;
    fn spend_state(&self, outpoint: &Outpoint, height: u32) -> Result<UtxoSpendState, UtxoRefusal>;
    fn list_unmined(&self, after: Option<&UnminedCursor>, limit: u32) -> UnminedPage;
    fn indexes(&self) -> Indexes;
    /// The counters. Of the bytes a model knows nothing.
    fn storage(&self) -> UtxoStorage;
    /// Class bytes in the BlobStore, of records and of the upload.
    fn blob_bytes(&self) -> (u64, u64);
    /// As after an upgrade.
    fn reopen(&mut self);
}

impl Store for Model {
    fn apply(&mut self, op: &Op, call: &Call) -> Answer {
        match op {
            Op::Create(item) => Answer::Created(self.create(item, call)),
            Op::Spend(item) => Answer::Spent(self.spend(item, call)),
            Op::Unspend(item) => Answer::Flag(self.unspend(item, call)),
            Op::SetMined(of) => Answer::Blocks(self.set_mined(&of.items[0], of, call)),
            Op::OnLongestChain(txid, is) => Answer::Done(self.set_on_longest_chain(txid, *is, call)),
            Op::SetLocked(txid, locked) => Answer::Done(self.set_locked(txid, *locked, call)),
            Op::Freeze(target) => Answer::Count(self.freeze(target, call)),
            Op::Unfreeze(target) => Answer::Count(self.unfreeze(target, call)),
            Op::Reassign(item) => Answer::Count(self.reassign(item, call)),
            Op::SetConflicting(txid) => Answer::Conflict(self.set_conflicting(txid, call)),
            Op::ProcessConflicting(winners) => Answer::Resolved(self.process_conflicting(winners, call)),
            Op::Preserve(txid, until) => Answer::Flag(self.preserve(txid, *until)),
            Op::Delete(txid) => Answer::Count(self.delete(txid, call)),
            Op::Begin(arg) => Answer::Uploading(self.begin(arg, call)),
            Op::Put(arg) => Answer::Uploading(self.put(arg)),
            Op::Abort(txid) => Answer::Aborted(self.abort(txid)),
        }
    }

    fn record(&self, txid: &[u8], first: u32, limit: u32) -> Result<UtxoRecord, UtxoRefusal> {
        let mut record = Self::record(self, txid, first, limit)?;
        // In which order double spends are listed behind one that left is nobody's business.
        record.conflicting_children.sort();
        Ok(record)
    }

    fn transaction(&self, part: &UtxoGetPart) -> Result<TransactionPart, UtxoRefusal> {
        Self::transaction(self, part)
    }

    fn inpoints(&self, part: &UtxoGetPart) -> Result<InpointsPart, UtxoRefusal> {
        Self::inpoints(self, part)
    }

    fn spend_state(&self, outpoint: &Outpoint, height: u32) -> Result<UtxoSpendState, UtxoRefusal> {
        Self::spend_state(self, outpoint, height)
    }

    fn list_unmined(&self, after: Option<&UnminedCursor>, limit: u32) -> UnminedPage {
        Self::list_unmined(self, after, limit as usize)
    }

    fn indexes(&self) -> Indexes {
        Self::indexes(self)
    }

    fn storage(&self) -> UtxoStorage {
        Self::storage(self)
    }

    fn blob_bytes(&self) -> (u64, u64) {
        (self.external_bytes(), self.upload_bytes())
    }

    fn reopen(&mut self) {
        *self = self.clone();
    }
}

/// An error without its sentence, and without the names of arguments.
fn plain<E: From<UtxoRefusal>>(error: impl Into<UtxoRefusal>) -> E {
    E::from(match error.into() {
        UtxoRefusal::BadArgument { .. } => UtxoRefusal::BadArgument { field: String::new(), why: String::new() },
        UtxoRefusal::BadTransaction { .. } => UtxoRefusal::BadTransaction { at: 0, why: String::new() },
        other => other,
    })
}

/// The same, of a method that has an error of its own: it names every reason that comes up.
fn own<E: From<UtxoRefusal> + Into<UtxoRefusal>>(error: UtxoRefusal) -> UtxoRefusal {
    let plain: UtxoRefusal = plain(error);
    assert_eq!(E::from(plain.clone()).into(), plain, "the method's own error does not name it");
    plain
}

fn plain_upload(error: TransactionUploadError) -> TransactionUploadError {
    match error {
        TransactionUploadError::Refused(error) => TransactionUploadError::Refused(plain(error)),
        other => other,
    }
}

impl Answer {
    fn plain(self) -> Self {
        match self {
            Self::Created(answer) => Self::Created(answer.map_err(own::<UtxoCreateError>)),
            Self::Blocks(answer) => Self::Blocks(answer.map_err(own::<UtxoError>)),
            Self::Done(answer) => Self::Done(answer.map_err(own::<UtxoError>)),
            Self::Flag(answer) => Self::Flag(answer.map_err(own::<UtxoError>)),
            Self::Count(answer) => Self::Count(answer.map_err(own::<UtxoError>)),
            Self::Conflict(answer) => Self::Conflict(answer.map_err(own::<UtxoError>)),
            Self::Uploading(answer) => Self::Uploading(answer.map_err(plain_upload)),
            Self::Aborted(answer) => Self::Aborted(answer.map_err(plain_upload)),
            Self::Spent(answer) => {
                let each = |RefusedSpend { spend, error }| RefusedSpend { spend, error: plain(error) };
                Self::Spent(answer.map_err(|errors| errors.into_iter().map(each).collect()))
            }
            Self::Resolved(answer) => {
                let error = |ConflictError { txid, error }| ConflictError { txid, error: plain(error) };
                Self::Resolved(answer.map_err(error))
            }
        }
    }

    /// For what it counts: how it went well, or the names of its errors.
    fn kinds(&self) -> Vec<String> {
        let few = |what: &str, count: usize| format!("{what}{}", count.min(3));
        match self {
            Self::Created(Ok(_)) | Self::Done(Ok(())) | Self::Uploading(Ok(_)) => vec!["Ok".into()],
            Self::Flag(Ok(flag)) | Self::Aborted(Ok(flag)) => vec![flag.to_string()],
            Self::Count(Ok(count)) => vec!["Ok".into(), few("", *count as usize)],
            Self::Spent(Ok(count)) => vec!["Ok".into(), few("", *count as usize)],
            Self::Blocks(Ok(blocks)) => vec![few("", blocks.len())],
            Self::Conflict(Ok(Conflict { marked, parent_spends, .. })) => {
                vec![few("marked", marked.len()), few("held", parent_spends.len())]
            }
            Self::Resolved(Ok(ConflictResolution { losers, unspent, spent, .. })) => {
                vec![few("lost", losers.len()), few("unspent", unspent.len()), few("spent", *spent as usize)]
            }
            Self::Spent(Err(errors)) => errors.iter().map(|refused| name(&refused.error)).collect(),
            Self::Uploading(Err(error)) | Self::Aborted(Err(error)) if self.error().is_none() => vec![name(error)],
            _ => self.error().iter().map(name).collect(),
        }
    }

    /// Why it was refused, if it was and the reason is one of a record.
    fn error(&self) -> Option<UtxoRefusal> {
        match self {
            Self::Spent(Err(errors)) => errors.first().map(|refused| refused.error.clone().into()),
            Self::Resolved(Err(refused)) => Some(refused.error.clone().into()),
            Self::Uploading(Err(TransactionUploadError::Refused(error))) => Some(error.clone().into()),
            Self::Created(Err(error))
            | Self::Blocks(Err(error))
            | Self::Done(Err(error))
            | Self::Flag(Err(error))
            | Self::Count(Err(error))
            | Self::Conflict(Err(error)) => Some(error.clone()),
            _ => None,
        }
    }
}

impl Op {
    fn name(&self) -> String {
        name(self)
    }
}

/// What something is, without its fields.
fn name(of: &impl Debug) -> String {
    format!("{of:?}").chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// Lets a history happen.
fn run<S: Store>(history: History, store: S, compared: bool, seen: &mut Seen) -> Result<(), TestCaseError> {
    let transactions = transactions::build(&history.templates);
    let used = store.storage().used_bytes;
    let mut run = Run {
        model: Model::default(),
        store,
        transactions,
        settings: history.settings,
        height: 1,
        most: MAX_HEIGHT,
        now_ns: 1_000,
        done: Vec::new(),
        compared,
        seen,
    };
    for one in history.moves {
        run.step(one).map_err(|error| {
            let done: Vec<String> = run.done.iter().map(|(op, height)| format!("at {height}: {op:?}")).collect();
            TestCaseError::fail(format!("{error}\nafter\n{}", done.join("\n")))
        })?;
    }
    run.store.reopen();
    run.check()?;
    run.empty(used)
}

proptest! {
    #![proptest_config(crate::testing::histories(150))]

    /// Every answer, and behind every step every record, every index, every count, as a plain model says.
    #[test]
    fn agrees_with_a_model(history in history()) {
        run(history, Real::new(), true, &mut Seen::new())?;
    }
}

proptest! {
    #![proptest_config(crate::testing::histories(24))]

    /// With next to no memory left: what does not fit any more is refused, and nothing has changed.
    #[test]
    fn agrees_with_a_model_when_memory_is_short(slack in 0u64..200_000, history in history()) {
        run(history, Real::full(slack), true, &mut Seen::new())?;
    }
}

/// What histories must have seen: of each call, how it may end.
const OUTCOMES: [(&str, &str); 17] = [
    (
        "Create",
        "Ok BadArgument BadTransaction ExternalFull NoOutputs NoUpload NotExtended Pruned TxExists BadHeight ZeroHeight",
    ),
    (
        "Spend",
        "Ok BadArgument CoinbaseImmature Conflicting Frozen FrozenUntil InvalidSpend Locked Spent TxNotFound \
         UtxoHashMismatch UtxoNotFound BadHeight ZeroHeight",
    ),
    ("Unspend", "true false BadArgument TxNotFound UtxoHashMismatch UtxoNotFound BadHeight ZeroHeight"),
    ("SetMined", "0 1 2 3 BadArgument TxNotFound BadHeight ZeroHeight"),
    ("OnLongestChain", "Ok BadArgument NotMined TxNotFound BadHeight ZeroHeight"),
    ("SetLocked", "Ok BadArgument TxNotFound BadHeight ZeroHeight"),
    ("Freeze", "1 2 AlreadyFrozen BadArgument TxNotFound UtxoHashMismatch UtxoNotFound BadHeight ZeroHeight"),
    ("Unfreeze", "1 2 BadArgument TxNotFound UtxoHashMismatch UtxoNotFound UtxoNotFrozen BadHeight ZeroHeight"),
    ("Reassign", "Ok BadArgument Spent TxNotFound UtxoHashMismatch UtxoNotFound UtxoNotFrozen BadHeight ZeroHeight"),
    (
        "SetConflicting",
        "marked0 marked1 marked2 marked3 held0 held1 held2 held3 BadArgument TxNotFound BadHeight ZeroHeight",
    ),
    (
        "ProcessConflicting",
        "lost0 lost1 lost2 lost3 unspent0 unspent1 unspent2 unspent3 spent0 spent1 spent2 BadArgument CoinbaseImmature Frozen \
         FrozenUntil InvalidSpend NotConflicting Spent TxNotFound UtxoNotFound WinnerLoses BadHeight ZeroHeight",
    ),
    ("Preserve", "true false BadArgument ZeroHeight"),
    ("Delete", "0 1 2 TxNotFound"),
    ("Begin", "Ok BadArgument ExternalFull OtherUpload"),
    ("Put", "Ok ChunkMismatch ChunkOutOfRange NoUpload OtherUpload WrongLength"),
    ("Abort", "true false OtherUpload"),
    (
        "Record",
        "paged empty_page spent_page deletable deletable_pages frozen_spent two_children three_blocks unmined_with_blocks \
         two_reassignments deleted_child preserved in_blobs",
    ),
];

/// The histories are worth something: whatever can happen, happens.
#[test]
fn whatever_can_happen_happens() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = Seen::new();
    for _ in 0..3_000 {
        let history = history().new_tree(&mut runner).unwrap().current();
        run(history, Model::default(), false, &mut seen).unwrap();
    }
    let all = OUTCOMES.iter().flat_map(|(op, kinds)| kinds.split(' ').map(move |kind| format!("{op} {kind}")));
    let seldom: Vec<_> = all.filter(|kind| seen.get(kind).is_none_or(|&times| times < 4)).collect();
    assert!(seldom.is_empty(), "seldom or never: {seldom:?} of {seen:#?}");
}

use super::*;
use candid::types::TypeInner;
use candid::types::internal::TypeContainer;
use candid::{CandidType, Principal};
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;

/// Checks the class of each error of a type, and that it prints as a sentence. Together the classes must list every error of the
/// interface except `Other`, which has no class.
fn assert_classes<E: Refusal + CandidType + std::fmt::Display>(classes: &[(Retry, &[E])]) {
    let mut types = TypeContainer::new();
    let of = types.add::<E>();
    let of = types.env.trace_type(&of).unwrap();
    let TypeInner::Variant(cases) = of.as_ref() else { panic!("{of:?}") };
    let names = cases.iter().map(|case| case.id.to_string());
    let all: BTreeSet<String> = names.filter(|name| name != "Other").collect();
    assert_eq!(all.len() + 1, cases.len(), "no case Other");
    let mut listed = BTreeSet::new();
    for (class, errors) in classes {
        for error in *errors {
            assert_eq!(error.retry(), *class, "{error:?}");
            let shown = format!("{error:?}");
            let sentence = error.to_string();
            assert!(sentence.contains(' ') && !sentence.contains(['{', '"']), "{shown}: {sentence}");
            listed.extend(shown.split(|c: char| !c.is_alphanumeric()).next().map(str::to_string));
        }
    }
    assert_eq!(listed, all, "{}", std::any::type_name::<E>());
}

fn text() -> String {
    "because".into()
}

fn caller() -> Principal {
    Principal::anonymous()
}

#[test]
fn classes_of_append_and_rollback_errors() {
    let (by, expires_at_secs) = (caller(), 0);
    let full = || AppendError::CapacityExhausted { held_by: HeldBy::Exporter("archive".into()) };
    assert_classes(&[
        (
            Again,
            &[
                AppendError::NotReady(NotReady),
                AppendError::UploadOpen(UploadOpen { by, expires_at_secs }),
                AppendError::RollbackUnderway { to: 0 },
                AppendError::ResetUnderway { left: 0 },
            ],
        ),
        (
            AfterPruning,
            &[
                full(),
                AppendError::NoMemory(NoMemory::OutOfSpace),
                AppendError::NoMemory(NoMemory::LowCycles { missing: 0 }),
                AppendError::NoMemory(NoMemory::ReservedCyclesLimit { missing: 0 }),
            ],
        ),
        (
            Reorg,
            &[
                AppendError::Conflict { differs: vec![BlockField::Hash, BlockField::Body] },
                AppendError::Conflict { differs: vec![BlockField::Unreadable] },
                AppendError::Gap { expected: 0 },
                AppendError::WrongParent { expected: BlockHash::default() },
            ],
        ),
        (
            Never,
            &[
                AppendError::Conflict { differs: vec![BlockField::ParentHash, BlockField::Receipts] },
                AppendError::Pruned { first_available: 0 },
                AppendError::TooLarge { what: text(), limit: 0 },
                AppendError::BadEncoding { segment: 0, offset: 0, why: text() },
            ],
        ),
    ]);
    assert_classes(&[
        (
            Again,
            &[
                UploadError::NoUpload,
                UploadError::UploadOpen(UploadOpen { by, expires_at_secs }),
                UploadError::OtherUpload { number: 7, hash: BlockHash::default() },
                UploadError::Incomplete { missing: 1, first: 0 },
                UploadError::Aborting,
            ],
        ),
        (AfterPruning, &[UploadError::Append(full())]),
        (Reorg, &[UploadError::Append(AppendError::Conflict { differs: vec![BlockField::Hash] })]),
        (
            Never,
            &[
                UploadError::ChunkOutOfRange { chunks: 0 },
                UploadError::WrongLength { expected: 0 },
                UploadError::ChunkMismatch,
                UploadError::Corrupt { why: String::new() },
            ],
        ),
    ]);
    assert_classes(&[
        (
            Again,
            &[RollbackError::UploadOpen(UploadOpen { by, expires_at_secs }), RollbackError::RollbackUnderway { to: 0 }],
        ),
        (
            Never,
            &[
                RollbackError::Empty,
                RollbackError::AboveHead { head: 0 },
                RollbackError::Pruned { first_available: 0 },
                RollbackError::Damaged,
                RollbackError::TooDeep { lowest: 0 },
                RollbackError::Incomplete { lowest: 0, pruned_height: 0 },
            ],
        ),
    ]);
    assert_classes(&[
        (Again, &[ResetError::UploadOpen(UploadOpen { by, expires_at_secs }), ResetError::RollbackUnderway { to: 0 }]),
        (
            Never,
            &[
                ResetError::Empty,
                ResetError::WrongHash { expected: BlockHash::default() },
                ResetError::NotExported { exporter: text(), exported_before_block: 0 },
            ],
        ),
    ]);
}

#[test]
fn classes_of_read_and_export_errors() {
    let corrupt = || ReadError::Corrupt { why: text() };
    assert_classes(&[(
        Never,
        &[
            ReadError::NotFound,
            ReadError::Pruned { first_available: 0 },
            ReadError::TooLarge { size: 0, limit: 0 },
            ReadError::NoSuchSegment,
            ReadError::OutOfRange { length: 0 },
            corrupt(),
        ],
    )]);
    let cursor = ExportCursor { number: 0, hash: BlockHash::default(), segment: 3, offset: 0, rollbacks: 0 };
    assert_classes(&[
        (Again, &[ExportError::Behind { head: None }]),
        (Reorg, &[ExportError::Reorged { common_ancestor: 0, cursor }]),
        (
            Never,
            &[
                ExportError::Pruned { first_available: 0, common_ancestor: None },
                ExportError::Reset { first_available: None },
                ExportError::Restored { head: None },
                ExportError::BadCursor { why: text() },
                ExportError::Corrupt { number: 0, why: text(), next: None },
            ],
        ),
    ]);
    assert_classes(&[
        (Again, &[KeyError::Behind { head: None }]),
        (AfterPruning, &[KeyError::Corrupt { number: 0, why: text() }]),
        (Reorg, &[KeyError::Reorged { common_ancestor: 0, cursor: None }]),
        (
            Never,
            &[
                KeyError::KeyTooLong { limit: 0 },
                KeyError::Reset { first_available: None },
                KeyError::BadCursor { why: text() },
            ],
        ),
    ]);
    assert_classes(&[(
        Never,
        &[
            ExporterError::BadName { why: text() },
            ExporterError::Anonymous,
            ExporterError::NameTaken { principal: caller() },
            ExporterError::PrincipalTaken { name: text() },
            ExporterError::TooMany { limit: 0 },
            ExporterError::Unknown,
            ExporterError::LastExporter,
            ExporterError::Keyless,
        ],
    )]);
    assert_classes(&[
        (Reorg, &[AckError::AboveHead { head: None }, AckError::WrongHash { expected: BlockHash::default() }]),
        (Never, &[AckError::NotRegistered { why: text() }, AckError::Corrupt { why: String::new() }]),
    ]);
}

#[test]
fn classes_of_operation_errors() {
    let (field, why) = (text(), text());
    assert_classes(&[(Never, &[ConfigError::BadArgument(BadArgument { field, why })])]);
    let register = RoleError::RegisterExporter { why: text() };
    assert_classes(&[(Never, &[RoleError::Anonymous, RoleError::TooMany { limit: 0 }, register])]);
    assert_classes(&[(
        Never,
        &[
            PruneError::BadArgument(BadArgument { field: text(), why: text() }),
            PruneError::NoPolicy,
            PruneError::Stopped,
        ],
    )]);
    assert_classes(&[(Never, &[DeletionsError::AdminOnly])]);
    assert_classes(&[(
        Never,
        &[
            UtxoPrunerError::BadHeight(BadHeight::Zero),
            UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: 0 }),
            UtxoPrunerError::HeightJump { highest: 0, most: 0, accepted_at_ns: None },
            UtxoPrunerError::NotOpen,
            UtxoPrunerError::BlockAssemblyNotRunning,
            UtxoPrunerError::Stopped,
            UtxoPrunerError::BadArgument(BadArgument { field: text(), why: text() }),
            UtxoPrunerError::NotBlocking,
            UtxoPrunerError::TooMany { limit: 0 },
        ],
    )]);
    assert_classes(&[
        (
            Again,
            &[
                BlobDeletionError::NotReady(NotReady),
                BlobDeletionError::Leased,
                BlobDeletionError::TooManyLeases { limit: 0 },
            ],
        ),
        (
            AfterPruning,
            &[
                BlobDeletionError::TooManyRows { limit: 0 },
                BlobDeletionError::NoMemory(NoMemory::RecordsFull { limit: 0 }),
                BlobDeletionError::NoMemory(NoMemory::OutOfSpace),
                BlobDeletionError::NoMemory(NoMemory::LowCycles { missing: 0 }),
                BlobDeletionError::NoMemory(NoMemory::ReservedCyclesLimit { missing: 0 }),
            ],
        ),
        (
            Never,
            &[
                BlobDeletionError::NotFound,
                BlobDeletionError::HoldsRecord,
                BlobDeletionError::Empty { what: text() },
                BlobDeletionError::TooLarge { what: text(), limit: 0 },
                BlobDeletionError::TooMany { limit: 0 },
                BlobDeletionError::OtherCase { file_type: text() },
                BlobDeletionError::OtherRequest,
                BlobDeletionError::UnknownToken,
                BlobDeletionError::NotHolder,
                BlobDeletionError::Expired,
                BlobDeletionError::Completed,
                BlobDeletionError::Stopped,
            ],
        ),
    ]);
}

#[test]
fn classes_of_record_errors() {
    let by = || Spender { txid: Txid::default(), vin: 0 };
    let stored = UtxoHash::default;
    let bad = || (text(), text());
    let (field, why) = bad();
    assert_classes(&[
        (Again, &[UtxoCreateError::NotReady(NotReady)]),
        (
            AfterPruning,
            &[
                UtxoCreateError::BeingDeleted,
                UtxoCreateError::ExternalFull { limit: 0 },
                UtxoCreateError::TooManyRows { limit: 0 },
                UtxoCreateError::NoMemory(NoMemory::RecordsFull { limit: 0 }),
                UtxoCreateError::NoMemory(NoMemory::OutOfSpace),
                UtxoCreateError::NoMemory(NoMemory::LowCycles { missing: 0 }),
                UtxoCreateError::NoMemory(NoMemory::ReservedCyclesLimit { missing: 0 }),
            ],
        ),
        (
            Never,
            &[
                UtxoCreateError::TxExists,
                UtxoCreateError::BlobTaken,
                UtxoCreateError::Pruned,
                UtxoCreateError::BadHeight(BadHeight::Zero),
                UtxoCreateError::BadHeight(BadHeight::TooHigh { most: 0 }),
                UtxoCreateError::BadArgument(BadArgument { field, why }),
                UtxoCreateError::BadTransaction { offset: 0, why: text() },
                UtxoCreateError::NoOutputs,
                UtxoCreateError::NotExtended { input: 0 },
                UtxoCreateError::TooLarge { what: text(), limit: 0 },
                UtxoCreateError::NoUpload,
                UtxoCreateError::NotKept,
                UtxoCreateError::TooMuchWork,
                UtxoCreateError::Corrupt { why: text() },
            ],
        ),
    ]);
    let (field, why) = bad();
    assert_classes(&[
        (
            AfterPruning,
            &[
                UtxoSpendError::NoMemory(NoMemory::RecordsFull { limit: 0 }),
                UtxoSpendError::NoMemory(NoMemory::OutOfSpace),
                UtxoSpendError::NoMemory(NoMemory::LowCycles { missing: 0 }),
                UtxoSpendError::NoMemory(NoMemory::ReservedCyclesLimit { missing: 0 }),
            ],
        ),
        (
            // Locked and frozen outputs need an operator's action; the two heights depend on the height that the call names.
            Never,
            &[
                UtxoSpendError::TxNotFound,
                UtxoSpendError::Conflicting,
                UtxoSpendError::Locked,
                UtxoSpendError::CoinbaseImmature { spendable_at: 101 },
                UtxoSpendError::UtxoNotFound,
                UtxoSpendError::UtxoHashMismatch { stored: stored() },
                UtxoSpendError::Frozen,
                UtxoSpendError::FrozenUntil { height: 2_000 },
                UtxoSpendError::InvalidSpend,
                UtxoSpendError::Spent { by: by() },
                UtxoSpendError::BadHeight(BadHeight::Zero),
                UtxoSpendError::BadHeight(BadHeight::TooHigh { most: 0 }),
                UtxoSpendError::BadArgument(BadArgument { field, why }),
                UtxoSpendError::TooMuchWork,
                UtxoSpendError::Corrupt { why: text() },
            ],
        ),
    ]);
    let (field, why) = bad();
    let store = ExternalStore { blob_key: ByteBuf::new(), file_type: FileType::Tx, store_type: StoreType::Tx };
    assert_classes(&[
        (
            AfterPruning,
            &[
                UtxoError::ExternalFull { limit: 0 },
                UtxoError::NoMemory(NoMemory::RecordsFull { limit: 0 }),
                UtxoError::NoMemory(NoMemory::OutOfSpace),
                UtxoError::NoMemory(NoMemory::LowCycles { missing: 0 }),
                UtxoError::NoMemory(NoMemory::ReservedCyclesLimit { missing: 0 }),
                UtxoError::NotSpendable(Box::new(UtxoSpendError::NoMemory(NoMemory::OutOfSpace))),
            ],
        ),
        (
            Never,
            &[
                UtxoError::TxNotFound,
                UtxoError::UtxoNotFound,
                UtxoError::UtxoHashMismatch { stored: stored() },
                UtxoError::Spent { by: by() },
                UtxoError::AlreadyFrozen,
                UtxoError::UtxoNotFrozen,
                UtxoError::NotMined,
                UtxoError::OtherBlock { block: BlockRef { block_id: 0, height: 0, subtree: 0 } },
                UtxoError::NotConflicting,
                UtxoError::WinnerLoses,
                UtxoError::BadHeight(BadHeight::Zero),
                UtxoError::BadHeight(BadHeight::TooHigh { most: 0 }),
                UtxoError::BadArgument(BadArgument { field, why }),
                UtxoError::TooLarge { what: text(), limit: 0 },
                UtxoError::External(store),
                UtxoError::NotKept,
                UtxoError::TooMuchWork,
                UtxoError::Corrupt { why: text() },
                UtxoError::NotSpendable(Box::new(UtxoSpendError::Locked)),
            ],
        ),
    ]);
    let conflict = |error| ConflictError { txid: Txid::default(), error };
    assert_eq!(conflict(UtxoError::NoMemory(NoMemory::OutOfSpace)).retry(), AfterPruning);
    assert_eq!(conflict(UtxoError::NotConflicting).retry(), Never);
}

#[test]
fn classes_of_applying_errors() {
    let by = || Spender { txid: Txid::default(), vin: 0 };
    let memory = || NoMemory::OutOfSpace;
    assert_classes(&[
        (
            AfterPruning,
            &[
                UtxoApplyReason::Create(UtxoCreateError::NoMemory(memory())),
                UtxoApplyReason::Create(UtxoCreateError::ExternalFull { limit: 0 }),
                UtxoApplyReason::Spend(UtxoSpendError::NoMemory(memory())),
            ],
        ),
        (
            Never,
            &[
                UtxoApplyReason::Create(UtxoCreateError::NoOutputs),
                UtxoApplyReason::Spend(UtxoSpendError::Spent { by: by() }),
                UtxoApplyReason::Conflicting,
                UtxoApplyReason::BadOrder,
                UtxoApplyReason::NeedsHash,
                UtxoApplyReason::MissingParent,
            ],
        ),
    ]);
    let stop = |input, reason| {
        UtxoApplyError::Stopped(Box::new(UtxoApplyStop {
            number: 7,
            transaction: 3,
            txid: Txid::default(),
            input,
            output: None,
            reason,
        }))
    };
    let full = || UtxoApplyReason::Create(UtxoCreateError::NoMemory(memory()));
    assert_classes(&[
        (Again, &[UtxoApplyError::NotFound, UtxoApplyError::RollbackUnderway { to: 0 }]),
        (
            Reorg,
            &[
                UtxoApplyError::WrongHash { expected: [0; 32].into() },
                UtxoApplyError::OtherId { block_id: 0 },
                UtxoApplyError::WrongHeight { expected: 0 },
                UtxoApplyError::NotNext { next: 0 },
                UtxoApplyError::Pruned { first_available: 0 },
            ],
        ),
        (AfterPruning, &[UtxoApplyError::NoMemory(memory()), stop(None, full())]),
        (
            Never,
            &[
                UtxoApplyError::OperatorOnly,
                UtxoApplyError::OtherChoice { in_force: MissingParents::Refuse },
                UtxoApplyError::NotExtended,
                UtxoApplyError::BadHeight(BadHeight::Zero),
                UtxoApplyError::BadBody { transaction: 0, at: 0, why: text() },
                stop(Some(1), UtxoApplyReason::BadOrder),
                UtxoApplyError::WrongSkip { at: Txid::default() },
                UtxoApplyError::Corrupt { why: text() },
            ],
        ),
    ]);
    let low = || NoMemory::LowCycles { missing: 9 };
    assert_eq!(UtxoApplyError::NoMemory(low()).missing_cycles(), Some(9));
    assert_eq!(stop(None, UtxoApplyReason::Spend(UtxoSpendError::NoMemory(low()))).missing_cycles(), Some(9));
    assert_eq!(stop(Some(2), UtxoApplyReason::NeedsHash).missing_cycles(), None);
}

#[test]
fn classes_of_transaction_upload_errors() {
    assert_classes(&[
        (
            Again,
            &[
                TransactionUploadError::NoUpload,
                TransactionUploadError::OtherUpload { txid: Txid::default() },
                TransactionUploadError::TooMany { limit: 0 },
            ],
        ),
        (AfterPruning, &[TransactionUploadError::Refused(UtxoCreateError::NoMemory(NoMemory::OutOfSpace))]),
        (
            Never,
            &[
                TransactionUploadError::ChunkOutOfRange { chunks: 0 },
                TransactionUploadError::WrongLength { expected: 0 },
                TransactionUploadError::ChunkMismatch,
                TransactionUploadError::Refused(UtxoCreateError::TxExists),
            ],
        ),
    ]);
}

#[test]
fn class_of_several_spends_is_the_worst() {
    let spend = |error| RefusedSpend { spend: 0, error };
    assert_eq!(Vec::<RefusedSpend>::new().retry(), Never);
    assert_eq!(vec![spend(UtxoSpendError::NoMemory(NoMemory::OutOfSpace))].retry(), AfterPruning);
    assert_eq!(
        vec![spend(UtxoSpendError::NoMemory(NoMemory::OutOfSpace)), spend(UtxoSpendError::Locked)].retry(),
        Never
    );
}

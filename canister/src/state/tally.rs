//! Counters of refused blocks and of rollbacks. They are not persisted, so an upgrade resets them.

use ic_coppice_interface::{AppendError, NoMemory, UploadError};
use std::cell::{Cell, RefCell};

/// Returns whether an error has this reason.
type IsMeant = fn(&AppendError) -> bool;

/// Reasons for refusing a block, as named in replies, each with a test for its errors.
const REASONS: [(&str, IsMeant); 13] = [
    ("Conflict", |error| matches!(error, AppendError::Conflict { .. })),
    ("Gap", |error| matches!(error, AppendError::Gap { .. })),
    ("WrongParent", |error| matches!(error, AppendError::WrongParent { .. })),
    ("Pruned", |error| matches!(error, AppendError::Pruned { .. })),
    ("TooLarge", |error| matches!(error, AppendError::TooLarge { .. })),
    ("BadEncoding", |error| matches!(error, AppendError::BadEncoding { .. })),
    ("CapacityExhausted", |error| matches!(error, AppendError::CapacityExhausted { .. })),
    ("OutOfSpace", |error| matches!(error, AppendError::NoMemory(NoMemory::OutOfSpace))),
    ("LowCycles", |error| matches!(error, AppendError::NoMemory(NoMemory::LowCycles { .. }))),
    ("ReservedCyclesLimit", |error| matches!(error, AppendError::NoMemory(NoMemory::ReservedCyclesLimit { .. }))),
    ("UploadOpen", |error| matches!(error, AppendError::UploadOpen(_))),
    ("RollbackUnderway", |error| matches!(error, AppendError::RollbackUnderway { .. })),
    ("ResetUnderway", |error| matches!(error, AppendError::ResetUnderway { .. })),
];

thread_local! {
    static REFUSED: RefCell<[u64; REASONS.len()]> = const { RefCell::new([0; REASONS.len()]) };
    static ROLLBACKS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a refused block.
#[cold]
pub fn refused(error: &AppendError) {
    if let Some(reason) = REASONS.iter().position(|(_, is_meant)| is_meant(error)) {
        REFUSED.with_borrow_mut(|all| all[reason] += 1);
    }
}

/// Counts an upload that was refused because its block is not acceptable.
#[cold]
pub fn refused_upload(error: &UploadError) {
    if let UploadError::Append(error) = error {
        refused(error);
    }
}

/// Counts a rollback.
pub fn rolled_back() {
    ROLLBACKS.set(ROLLBACKS.get() + 1);
}

/// Returns the number of refused blocks, by reason.
pub fn refusals() -> impl Iterator<Item = (&'static str, u64)> {
    REASONS.into_iter().map(|(reason, _)| reason).zip(REFUSED.with_borrow(|all| *all))
}

/// Returns the number of rollbacks.
pub fn rollbacks() -> u64 {
    ROLLBACKS.get()
}

/// Resets the counters, as an upgrade does.
#[cfg(test)]
pub fn forget() {
    REFUSED.with_borrow_mut(|all| *all = Default::default());
    ROLLBACKS.set(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use candid::Principal;
    use ic_coppice_interface::{HeldBy, UploadOpen};

    #[test]
    fn refusal_is_counted_under_its_variant_name() {
        let all = [
            AppendError::Conflict { differs: Vec::new() },
            AppendError::Gap { expected: 1 },
            AppendError::WrongParent { expected: [1; 32].into() },
            AppendError::Pruned { first_available: 1 },
            AppendError::TooLarge { what: String::new(), limit: 1 },
            AppendError::BadEncoding { segment: 0, offset: 0, why: String::new() },
            AppendError::CapacityExhausted { held_by: HeldBy::Floor },
            AppendError::NoMemory(NoMemory::OutOfSpace),
            AppendError::NoMemory(NoMemory::LowCycles { missing: 1 }),
            AppendError::NoMemory(NoMemory::ReservedCyclesLimit { missing: 1 }),
            AppendError::UploadOpen(UploadOpen { by: Principal::anonymous(), expires_at_secs: 0 }),
            AppendError::RollbackUnderway { to: 0 },
            AppendError::ResetUnderway { left: 0 },
        ];
        for (at, error) in all.iter().enumerate() {
            assert_eq!(REASONS.iter().filter(|(_, is_meant)| is_meant(error)).count(), 1);
            assert!(REASONS[at].1(error) && format!("{error:?}").contains(REASONS[at].0), "{error:?}");
        }
        forget();
        all.iter().for_each(refused);
        refused_upload(&UploadError::Append(AppendError::NoMemory(NoMemory::OutOfSpace)));
        refused_upload(&UploadError::NoUpload);
        let counts: Vec<u64> = refusals().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1]);
    }
}

//! Counters of refused blocks and of rollbacks. They are not persisted, so an upgrade resets them.

use ic_coppice_interface::{AppendError, NoMemory, UploadError};
use std::cell::{Cell, RefCell};

/// Lists reasons for refusing a block, each with the errors that it stands for.
macro_rules! reasons {
    ($($reason:ident = $error:pat,)*) => {
        /// Reasons for refusing a block, as named in replies.
        pub const REASONS: [&str; 13] = [$(stringify!($reason)),*];

        fn reason(error: &AppendError) -> Option<usize> {
            enum Reason {
                $($reason),*
            }
            match error {
                $($error => Some(Reason::$reason as usize),)*
                _ => None,
            }
        }
    };
}

reasons! {
    Conflict = AppendError::Conflict { .. },
    Gap = AppendError::Gap { .. },
    WrongParent = AppendError::WrongParent { .. },
    Pruned = AppendError::Pruned { .. },
    TooLarge = AppendError::TooLarge { .. },
    BadEncoding = AppendError::BadEncoding { .. },
    CapacityExhausted = AppendError::CapacityExhausted { .. },
    OutOfSpace = AppendError::NoMemory(NoMemory::OutOfSpace),
    LowCycles = AppendError::NoMemory(NoMemory::LowCycles { .. }),
    ReservedCyclesLimit = AppendError::NoMemory(NoMemory::ReservedCyclesLimit { .. }),
    UploadOpen = AppendError::UploadOpen(_),
    RollbackUnderway = AppendError::RollbackUnderway { .. },
    ResetUnderway = AppendError::ResetUnderway { .. },
}

thread_local! {
    static REFUSED: RefCell<[u64; REASONS.len()]> = const { RefCell::new([0; REASONS.len()]) };
    static ROLLBACKS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a refused block.
#[cold]
pub fn refused(error: &AppendError) {
    if let Some(reason) = reason(error) {
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
    REASONS.into_iter().zip(REFUSED.with_borrow(|all| *all))
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
            assert_eq!(reason(error), Some(at));
            assert!(format!("{error:?}").contains(REASONS[at]), "{error:?}");
        }
        forget();
        all.iter().for_each(refused);
        refused_upload(&UploadError::Append(AppendError::NoMemory(NoMemory::OutOfSpace)));
        refused_upload(&UploadError::NoUpload);
        let counts: Vec<u64> = refusals().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1]);
    }
}

//! Finding: a detected problem with its code, message and remedy.

use super::action::Action;
use ic_coppice_interface::{ProblemCode, Severity};
use ic_coppice_storage::NS;

/// A detected problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Code of the problem.
    pub code: ProblemCode,
    /// Text of the problem; empty in shallow checks of some codes.
    pub message: String,
    /// Start time in nanoseconds since the Unix epoch, or `None` if the check does not know it.
    pub since: Option<u64>,
    /// The remedy, if it differs from that of the code.
    pub action: Option<Box<Action>>,
    /// Seconds for which the finding must last before it counts as a problem.
    pub patience_secs: u64,
}

/// A problem: its severity, its start time in Unix nanoseconds if it is known, and the finding.
pub type Raised = (Severity, Option<u64>, Finding);

/// Creates a finding without a time.
pub fn finding(code: ProblemCode, message: impl Into<String>) -> Finding {
    Finding { code, message: message.into(), since: None, action: None, patience_secs: 0 }
}

impl Finding {
    /// Returns the finding with a time, in Unix seconds.
    #[must_use]
    pub fn since_secs(self, secs: Option<u64>) -> Self {
        Self { since: secs.map(|secs| secs.saturating_mul(NS)), ..self }
    }

    /// Returns the finding with the remedy for this case, if there is one.
    #[must_use]
    pub fn with_action(self, action: impl Into<Option<Action>>) -> Self {
        Self { action: action.into().map(Box::new), ..self }
    }

    /// Returns the finding as a problem only after it has lasted for `patience_secs`.
    #[must_use]
    pub fn lasting(self, patience_secs: u64) -> Self {
        Self { patience_secs, ..self }
    }
}

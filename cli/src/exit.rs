//! Exit codes.

use crate::terminal::{Level, stderr};
use std::process::ExitCode;

/// Exit code for a wrong command line; the options parser uses the same code.
pub const WRONG_LINE: u8 = 2;
/// Exit code for a store without the right marker.
pub const WRONG_STORE: u8 = 3;
/// Exit code for blobs that were not deleted.
pub const NOT_ALL: u8 = 4;
/// Exit code for a refusal by the canister.
pub const REFUSED: u8 = 5;
/// Exit code for deletions that could not be reported to the canister.
pub const UNREPORTED: u8 = 6;

/// An error with its own exit code; all other errors exit with 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Exit {
    /// The code.
    pub code: u8,
    /// The reason; empty if it was reported already.
    pub why: String,
}

impl Exit {
    /// An error that ends the command with this code.
    pub fn error(code: u8, why: impl Into<String>) -> anyhow::Error {
        Self { code, why: why.into() }.into()
    }

    /// Returns the exit code of an error.
    pub fn code_of(error: &anyhow::Error) -> u8 {
        error.downcast_ref::<Self>().map_or(1, |exit| exit.code)
    }
}

/// Writes why a command has ended, and returns its exit code.
pub fn end(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let why = format!("{error:#}");
    // An empty reason was reported already.
    if !why.is_empty() {
        stderr().note(Level::Error, "ended", &why);
    }
    ExitCode::from(Exit::code_of(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn exit_code_is_found_below_added_contexts() {
        assert_eq!(Exit::code_of(&anyhow::anyhow!("no")), 1);
        let error = Exit::error(5, "why");
        assert_eq!((Exit::code_of(&error), error.to_string().as_str()), (5, "why"));
        assert_eq!(Exit::code_of(&Err::<(), _>(error).context("more").unwrap_err()), 5);
    }
}

//! Exit codes.

use crate::terminal::{Level, stderr};
use std::process::ExitCode;

/// Exit code: the command line is wrong, as the parser of options has it.
pub const WRONG_LINE: u8 = 2;
/// Exit code: a store has not the right marker.
pub const WRONG_STORE: u8 = 3;
/// Exit code: some blobs were not deleted.
pub const NOT_ALL: u8 = 4;
/// Exit code: the canister refuses.
pub const REFUSED: u8 = 5;
/// Exit code: the canister was not told.
pub const UNTOLD: u8 = 6;

/// An error with an exit code of its own; any other error has 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Exit {
    /// The code.
    pub code: u8,
    /// Why; empty: it was said already.
    pub why: String,
}

impl Exit {
    /// An error that ends the command with this code.
    pub fn error(code: u8, why: impl Into<String>) -> anyhow::Error {
        Self { code, why: why.into() }.into()
    }

    /// The code of an error.
    pub fn code_of(error: &anyhow::Error) -> u8 {
        error.downcast_ref::<Self>().map_or(1, |exit| exit.code)
    }
}

/// Says why a command has ended, and returns its exit code.
pub fn end(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let why = format!("{error:#}");
    // Where nothing is said, it was said already.
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
    fn the_code_is_found_behind_whatever_was_added() {
        assert_eq!(Exit::code_of(&anyhow::anyhow!("no")), 1);
        let error = Exit::error(5, "why");
        assert_eq!((Exit::code_of(&error), error.to_string().as_str()), (5, "why"));
        assert_eq!(Exit::code_of(&Err::<(), _>(error).context("more").unwrap_err()), 5);
    }
}

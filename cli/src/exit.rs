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
/// Exit code for a canister that does not answer.
pub const UNREACHABLE: u8 = 7;
/// Exit code for a canister with problems.
pub const UNHEALTHY: u8 = 8;

/// An error with its own exit code; all other errors exit with 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Exit {
    pub code: u8,
    /// The reason; empty if it was reported already.
    pub why: String,
}

impl Exit {
    /// An error that ends the command with this code.
    pub fn error(code: u8, why: impl Into<String>) -> anyhow::Error {
        Self { code, why: why.into() }.into()
    }

    pub fn code_of(error: &anyhow::Error) -> u8 {
        error.downcast_ref::<Self>().map_or(1, |exit| exit.code)
    }
}

/// Returns an error and its causes as one sentence. A cause that the sentence already ends with is left out, because libraries print their
/// causes, too.
pub fn why(error: &anyhow::Error) -> String {
    let join = |sentence: String, cause: String| match sentence.ends_with(&cause) {
        true => sentence,
        false => format!("{sentence}: {cause}"),
    };
    let sentence = error.chain().map(ToString::to_string).reduce(join).unwrap_or_default();
    without_xml(&sentence)
}

/// Replaces the XML of an S3 server's error in a sentence by its code and message.
pub fn without_xml(sentence: &str) -> String {
    let begins = ["<?xml", "<Error>"].iter().filter_map(|mark| sentence.find(mark)).min();
    let Some((words, xml)) = begins.map(|at| sentence.split_at(at)) else { return sentence.into() };
    let text = |tag: &str| {
        let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(text, _)| text)
    };
    let told: Vec<&str> = ["Code", "Message"].into_iter().filter_map(text).collect();
    if told.is_empty() { sentence.into() } else { words.to_string() + &told.join(": ") }
}

/// Writes why a command has ended, and returns its exit code.
pub fn end(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let why = why(&error);
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
    fn sentence_names_each_cause_once_and_has_no_xml() {
        #[derive(Debug, thiserror::Error)]
        #[error("the file is gone: {0}")]
        struct Gone(#[source] std::io::Error);
        let gone = Gone(std::io::Error::from_raw_os_error(2));
        let error = anyhow::Error::new(gone).context("cannot read a").context("a");
        assert_eq!(why(&error), "a: cannot read a: the file is gone: No such file or directory (os error 2)");
        let xml =
            "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code><Message>no bucket</Message><X>1</X></Error>";
        let error = anyhow::anyhow!("404 Not Found: {xml}").context(format!("PUT failed: 404 Not Found: {xml}"));
        assert_eq!(why(&error), "PUT failed: 404 Not Found: NoSuchBucket: no bucket");
        for kept in ["plain", "502: <html>down</html>", "<?xml none", ""] {
            assert_eq!(without_xml(kept), kept);
        }
    }

    #[test]
    fn exit_code_is_found_below_added_contexts() {
        assert_eq!(Exit::code_of(&anyhow::anyhow!("no")), 1);
        let error = Exit::error(5, "why");
        assert_eq!((Exit::code_of(&error), error.to_string().as_str()), (5, "why"));
        assert_eq!(Exit::code_of(&Err::<(), _>(error).context("more").unwrap_err()), 5);
    }
}

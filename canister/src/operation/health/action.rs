//! Types of a remedy: sentences, each with a command of icp-cli.

use std::borrow::Cow;

/// Command of icp-cli. A `#name#` in an argument stands for a value of the state (`values`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// An update call, and its argument as Candid text.
    Call(&'static str, Cow<'static, str>),
    /// A query call, and its argument as Candid text.
    Query(&'static str, &'static str),
    /// A top-up of the canister.
    TopUp,
    /// A higher `reserved_cycles_limit` on the platform.
    ReservedLimit,
    /// An upgrade, to the same module or another.
    Upgrade,
}

impl Command {
    /// Creates a call whose argument is computed at run time.
    pub fn call(method: &'static str, argument: impl Into<Cow<'static, str>>) -> Self {
        Self::Call(method, argument.into())
    }
}

/// Remedy: sentences, each with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action(pub(super) Vec<(Cow<'static, str>, Command)>);

impl Action {
    /// Creates a remedy from a sentence and a command.
    pub fn new(text: impl Into<Cow<'static, str>>, command: Command) -> Self {
        Self(vec![(text.into(), command)])
    }

    /// Adds a sentence and a command.
    #[must_use]
    pub fn then(mut self, text: impl Into<Cow<'static, str>>, command: Command) -> Self {
        self.0.push((text.into(), command));
        self
    }
}

//! Remedies for problems: a sentence, and a command to type.

use crate::platform;
use std::borrow::Cow;

/// Command of icp-cli. `…` stands for a value that the operator fills in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// An update call, and its argument as Candid text.
    Call(&'static str, Cow<'static, str>),
    /// A query call, and its argument as Candid text.
    Query(&'static str, &'static str),
    /// A top-up of the canister.
    TopUp,
    /// A setting of the canister on the platform.
    Setting(&'static str),
    /// An upgrade, to the same module or another.
    Upgrade,
}

impl Command {
    /// Creates a call whose argument is computed at run time.
    pub fn call(method: &'static str, argument: impl Into<Cow<'static, str>>) -> Self {
        Self::Call(method, argument.into())
    }

    /// Returns the command line for the mainnet. On another network the operator replaces `ic` with the network's name.
    pub fn line(&self) -> String {
        let id = platform::canister_self();
        match self {
            Self::Call(method, argument) => format!("icp canister call -n ic {id} {method} '{argument}'"),
            Self::Query(method, argument) => format!("icp canister call --query -n ic {id} {method} '{argument}'"),
            Self::TopUp => format!("icp canister top-up -n ic --amount …t {id}"),
            Self::Setting(setting) => format!("icp canister settings update -n ic {setting} {id}"),
            Self::Upgrade => format!("icp canister install -n ic --mode upgrade --wasm coppice.wasm.gz {id}"),
        }
    }
}

/// Remedy: a sentence and a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    text: Cow<'static, str>,
    command: Command,
}

impl Action {
    /// Creates a remedy from a sentence and a command.
    pub fn new(text: impl Into<Cow<'static, str>>, command: Command) -> Self {
        Self { text: text.into(), command }
    }

    /// Returns sentence and command as one text.
    pub fn say(&self) -> String {
        format!("{} Type: `{}`.", self.text, self.command.line())
    }
}

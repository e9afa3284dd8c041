//! What to do, and the command to type.

use crate::runtime;
use std::borrow::Cow;

/// What is typed, with icp-cli. What the reader alone knows is `…` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A call of a method that changes something, and its argument as Candid text.
    Call(&'static str, Cow<'static, str>),
    /// A call of a query.
    Query(&'static str, &'static str),
    /// Cycles for the canister.
    TopUp,
    /// A setting of the canister on the platform.
    Setting(&'static str),
    /// The same, or another, module.
    Upgrade,
}

impl Command {
    /// A call with an argument that is known only now.
    pub fn call(method: &'static str, argument: impl Into<Cow<'static, str>>) -> Self {
        Self::Call(method, argument.into())
    }

    /// The line that is typed. On a network other than the mainnet its name takes the place of `ic`.
    pub fn line(&self) -> String {
        let id = runtime::canister_self();
        match self {
            Self::Call(method, argument) => format!("icp canister call -n ic {id} {method} '{argument}'"),
            Self::Query(method, argument) => format!("icp canister call --query -n ic {id} {method} '{argument}'"),
            Self::TopUp => format!("icp canister top-up -n ic --amount …t {id}"),
            Self::Setting(setting) => format!("icp canister settings update -n ic {setting} {id}"),
            Self::Upgrade => format!("icp canister install -n ic --mode upgrade --wasm coppice.wasm.gz {id}"),
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    text: Cow<'static, str>,
    command: Command,
}

impl Action {
    /// A sentence, and what is typed.
    pub fn new(text: impl Into<Cow<'static, str>>, command: Command) -> Self {
        Self { text: text.into(), command }
    }

    /// Both in one text.
    pub fn say(&self) -> String {
        format!("{} Type: `{}`.", self.text, self.command.line())
    }
}

//! Whose chain a database holds, and how much of it.

/// What is kept of a block's payload, which is verified either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Payload {
    /// Body, receipts and index.
    All,
    /// Nothing: header, digests and transaction ids only.
    Headers,
}

impl Payload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Headers => "headers",
        }
    }
}

/// Whose chain a database holds, and how.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The canister's principal.
    pub canister: String,
    /// Where it is: a URL, or "embedded".
    pub network: String,
    /// What is kept of blocks.
    pub payload: Payload,
}

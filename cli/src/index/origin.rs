//! Origin of a database: the canister, and the kept parts of its blocks.

/// The kept parts of each block's payload, all of which is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Payload {
    /// Body, receipts and index
    All,
    /// No payload: only header, digests and transaction ids
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

/// The origin of the chain in a database.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The canister's principal.
    pub canister: String,
    /// The network: a URL, or "embedded".
    pub network: String,
    /// The kept parts of blocks.
    pub payload: Payload,
}

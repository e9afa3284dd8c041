//! Accounts as ICRC-1 has them: a principal, and a subaccount of 32 bytes.

use candid::{CandidType, Principal};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Bytes of a subaccount.
const SUBACCOUNT: usize = 32;

/// An account of ICRC-1.
#[derive(Clone, Debug, PartialEq, Eq, CandidType, Serialize, Deserialize)]
pub struct Account {
    pub owner: Principal,
    /// 32 bytes; absent and 32 zeros are the same.
    pub subaccount: Option<ByteBuf>,
}

impl Account {
    /// Returns true if the subaccount is absent or has 32 bytes.
    pub fn is_valid(&self) -> bool {
        self.subaccount.as_ref().is_none_or(|subaccount| subaccount.len() == SUBACCOUNT)
    }

    /// Returns the key of the account, for the ledger and for Coppice. A key has at most 64 bytes: a principal's text has at most 63, but the
    /// text of an account with a subaccount has up to 130. Such a key is a zero byte, the principal's bytes and the subaccount, at most 62.
    pub fn key(&self) -> Vec<u8> {
        match &self.subaccount {
            Some(subaccount) if subaccount.iter().any(|byte| *byte != 0) => {
                [&[0], self.owner.as_slice(), subaccount].concat()
            }
            _ => self.owner.to_text().into_bytes(),
        }
    }
}

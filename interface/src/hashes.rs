//! Ids and hashes as separate types, so that they cannot be confused. On the wire they may have any length; a method
//! that receives one without 32 bytes refuses it with a reason.

use ic_coppice_macros::candid_type;
use serde_bytes::ByteBuf;
use std::ops::{Deref, DerefMut};

macro_rules! hash {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[candid_type]
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[serde(transparent)]
        pub struct $name(ByteBuf);

        impl Deref for $name {
            type Target = Vec<u8>;

            fn deref(&self) -> &Vec<u8> {
                &self.0
            }
        }

        impl DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Vec<u8> {
                &mut self.0
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl<const N: usize> From<[u8; N]> for $name {
            fn from(bytes: [u8; N]) -> Self {
                Self(ByteBuf::from(bytes))
            }
        }

        impl<const N: usize> From<&[u8; N]> for $name {
            fn from(bytes: &[u8; N]) -> Self {
                Self(ByteBuf::from(bytes))
            }
        }

        impl From<&[u8]> for $name {
            fn from(bytes: &[u8]) -> Self {
                Self(ByteBuf::from(bytes))
            }
        }

        impl From<Vec<u8>> for $name {
            fn from(bytes: Vec<u8>) -> Self {
                Self(ByteBuf::from(bytes))
            }
        }

        impl From<$name> for ByteBuf {
            fn from(hash: $name) -> Self {
                hash.0
            }
        }
    )*};
}

hash! {
    /// The id of a transaction, in internal order.
    ///
    /// ```compile_fail
    /// # use ic_coppice_interface::{Outpoint, UtxoHash};
    /// let outpoint = Outpoint { txid: UtxoHash::from([7; 32]), vout: 0 };
    /// ```
    Txid;
    /// The hash of an output: SHA-256(txid ‖ VarInt(vout) ‖ locking script ‖ VarInt(satoshis)), in internal order.
    UtxoHash;
    /// The hash of a block: opaque, 1 to 32 bytes.
    ///
    /// ```compile_fail
    /// # use ic_coppice_interface::{BlockId, Txid};
    /// let block = BlockId { number: 1, hash: Txid::from([7; 32]) };
    /// ```
    BlockHash;
}

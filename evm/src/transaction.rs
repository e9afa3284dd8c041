//! Transactions in block form: the types of Ethereum without sidecars, and the deposits of the OP stack.

use crate::Wrong;
use alloy_consensus::transaction::SignerRecoverable;
use alloy_consensus::{EthereumTxEnvelope, Sealable, Sealed, Transaction as _, TxEip4844, TxType};
use alloy_eips::eip2718::{Decodable2718, Eip2718Error, Encodable2718, Typed2718};
use alloy_primitives::{Address, B256, TxKind};
use alloy_rlp::{BufMut, Decodable, Encodable};
use op_alloy_consensus::TxDeposit;
use serde::Deserialize;
use serde_json::Value;

/// The type of a deposit of the OP stack.
pub const DEPOSIT: u8 = 0x7e;

/// A transaction of Ethereum, with its signature and without a sidecar.
pub type Signed = EthereumTxEnvelope<TxEip4844>;

/// A transaction with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Types 0 to 4.
    Ethereum(Signed),
    /// Type 0x7e: the base layer's deposit, without a signature.
    Deposit(Sealed<TxDeposit>),
}

impl Transaction {
    /// Reads a transaction of a block in a node's JSON. Its hash is computed, not read.
    ///
    /// # Errors
    /// When the type is unknown, a field is missing or malformed, or the node reports another hash.
    pub fn read(json: &Value, number: u64, position: usize) -> Result<Self, Wrong> {
        let unreadable = |why: String| Wrong::unreadable(number, format!("transaction {position}"), why);
        let ty = match json.get("type") {
            Some(ty) => ty.as_str().and_then(|ty| u64::from_str_radix(ty.strip_prefix("0x")?, 16).ok()),
            None => Some(0),
        };
        let ty = ty.and_then(|ty| u8::try_from(ty).ok()).ok_or_else(|| unreadable("its type must be a byte".into()))?;
        let read = if ty == DEPOSIT {
            let deposit = TxDeposit::deserialize(json).map_err(|why| unreadable(why.to_string()))?;
            Self::Deposit(deposit.seal_slow())
        } else if TxType::try_from(ty).is_ok() {
            let signed = Signed::deserialize(json).map_err(|why| unreadable(why.to_string()))?;
            // The hash of the encoding takes the place of the reported one.
            let encoded = signed.encoded_2718();
            Self::Ethereum(Signed::decode_2718_exact(&encoded).map_err(|why| unreadable(why.to_string()))?)
        } else {
            return Err(Wrong::Type { number, position, ty });
        };
        let reported: Option<B256> = json.get("hash").map(B256::deserialize).transpose().ok().flatten();
        if reported.is_some_and(|hash| hash != read.hash()) {
            return Err(Wrong::contradiction(
                number,
                format!("transaction {position} has the hash {}, and the node reports another", read.hash()),
            ));
        }
        Ok(read)
    }

    /// The hash.
    pub fn hash(&self) -> B256 {
        match self {
            Self::Ethereum(signed) => *signed.tx_hash(),
            Self::Deposit(deposit) => deposit.seal(),
        }
    }

    /// Returns the sender, by the signature or by the deposit itself.
    ///
    /// # Errors
    /// When the signature belongs to no key.
    pub fn sender(&self) -> Result<Address, alloy_consensus::crypto::RecoveryError> {
        match self {
            Self::Ethereum(signed) => signed.recover_signer_unchecked(),
            Self::Deposit(deposit) => Ok(deposit.from),
        }
    }

    /// The called account, or a creation.
    pub fn kind(&self) -> TxKind {
        match self {
            Self::Ethereum(signed) => signed.kind(),
            Self::Deposit(deposit) => deposit.to,
        }
    }

    /// The price of a unit of gas in a block with this base fee.
    pub fn effective_gas_price(&self, base_fee: Option<u64>) -> u128 {
        match self {
            Self::Ethereum(signed) => signed.effective_gas_price(base_fee),
            Self::Deposit(_) => 0,
        }
    }

    /// The gas of the blobs; `None` for a transaction that is not of type 3.
    pub fn blob_gas(&self) -> Option<u64> {
        match self {
            Self::Ethereum(signed) => signed.blob_gas_used(),
            Self::Deposit(_) => None,
        }
    }
}

impl Typed2718 for Transaction {
    fn ty(&self) -> u8 {
        match self {
            Self::Ethereum(signed) => signed.ty(),
            Self::Deposit(_) => DEPOSIT,
        }
    }
}

impl Encodable2718 for Transaction {
    fn encode_2718_len(&self) -> usize {
        match self {
            Self::Ethereum(signed) => signed.encode_2718_len(),
            Self::Deposit(deposit) => deposit.encode_2718_len(),
        }
    }

    fn encode_2718(&self, out: &mut dyn BufMut) {
        match self {
            Self::Ethereum(signed) => signed.encode_2718(out),
            Self::Deposit(deposit) => deposit.encode_2718(out),
        }
    }
}

impl Decodable2718 for Transaction {
    fn typed_decode(ty: u8, bytes: &mut &[u8]) -> Result<Self, Eip2718Error> {
        match ty {
            DEPOSIT => Ok(Self::Deposit(TxDeposit::typed_decode(ty, bytes)?.seal_slow())),
            ty => Signed::typed_decode(ty, bytes).map(Self::Ethereum),
        }
    }

    fn fallback_decode(bytes: &mut &[u8]) -> Result<Self, Eip2718Error> {
        Signed::fallback_decode(bytes).map(Self::Ethereum)
    }
}

/// As in a block: a typed transaction is a string of bytes.
impl Encodable for Transaction {
    fn encode(&self, out: &mut dyn BufMut) {
        self.network_encode(out);
    }

    fn length(&self) -> usize {
        self.network_len()
    }
}

impl Decodable for Transaction {
    fn decode(bytes: &mut &[u8]) -> alloy_rlp::Result<Self> {
        Ok(Self::network_decode(bytes)?)
    }
}

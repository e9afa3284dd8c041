//! Receipts in EIP-2718 form: the types of Ethereum, and those of the OP stack's deposits.

use crate::Wrong;
use crate::transaction::DEPOSIT;
use alloy_consensus::{Eip658Value, ReceiptEnvelope, ReceiptWithBloom, TxReceipt as _, TxType};
use alloy_eips::eip2718::{Decodable2718, Eip2718Error, Eip2718Result, Encodable2718, Typed2718};
use alloy_primitives::{Address, B256, Bloom, Bytes, Log, LogData, U8, U64};
use alloy_rlp::{BufMut, Decodable as _, Encodable as _};
use op_alloy_consensus::{OpDepositReceipt, OpDepositReceiptWithBloom};
use serde::Deserialize;

/// The receipt of a transaction, with the bloom of its logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Types 0 to 4.
    Ethereum(ReceiptEnvelope),
    /// Type 0x7e.
    Deposit(OpDepositReceiptWithBloom),
}

/// A receipt in a node's JSON, as far as its encoding needs it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    #[serde(rename = "type", default)]
    ty: U8,
    status: Option<U8>,
    root: Option<B256>,
    cumulative_gas_used: U64,
    logs: Vec<JsonLog>,
    transaction_hash: B256,
    deposit_nonce: Option<U64>,
    deposit_receipt_version: Option<U64>,
}

#[derive(Deserialize)]
struct JsonLog {
    address: Address,
    topics: Vec<B256>,
    data: Bytes,
}

impl Receipt {
    /// Reads a receipt in a node's JSON, and returns it with the hash of its transaction. The bloom is computed, not read.
    ///
    /// # Errors
    /// When the type is unknown, or a field is missing or malformed.
    pub fn read(json: &serde_json::Value, number: u64, position: usize) -> Result<(Self, B256), Wrong> {
        let unreadable = |why: String| Wrong::unreadable(number, format!("receipt {position}"), why);
        let json = Json::deserialize(json).map_err(|why| unreadable(why.to_string()))?;
        let status = match (json.status, json.root) {
            (Some(status), _) => Eip658Value::Eip658(status == U8::from(1)),
            (None, Some(root)) => Eip658Value::PostState(root),
            (None, None) => return Err(unreadable("it has neither a status nor a root".into())),
        };
        let log = |log: JsonLog| Log { address: log.address, data: LogData::new_unchecked(log.topics, log.data) };
        let receipt = alloy_consensus::Receipt {
            status,
            cumulative_gas_used: json.cumulative_gas_used.to(),
            logs: json.logs.into_iter().map(log).collect(),
        };
        let ty = json.ty.to::<u8>();
        let receipt = if ty == DEPOSIT {
            let version = json.deposit_receipt_version.map(|version| version.to());
            // Before the version, the nonce is not part of the encoding.
            let nonce = json.deposit_nonce.map(|nonce| nonce.to()).filter(|_| version.is_some());
            let deposit = OpDepositReceipt { inner: receipt, deposit_nonce: nonce, deposit_receipt_version: version };
            Self::Deposit(deposit.with_bloom())
        } else {
            let ty = TxType::try_from(ty).map_err(|_| Wrong::Type { number, position, ty })?;
            Self::Ethereum(ReceiptEnvelope::from_typed(ty, receipt))
        };
        Ok((receipt, json.transaction_hash))
    }

    /// The status, or the state's root before Byzantium.
    pub fn status(&self) -> Eip658Value {
        match self {
            Self::Ethereum(receipt) => receipt.status_or_post_state(),
            Self::Deposit(receipt) => receipt.receipt.inner.status,
        }
    }

    /// Gas of the block's transactions up to this one.
    pub fn cumulative_gas_used(&self) -> u64 {
        match self {
            Self::Ethereum(receipt) => receipt.cumulative_gas_used(),
            Self::Deposit(receipt) => receipt.receipt.inner.cumulative_gas_used,
        }
    }

    /// The logs.
    pub fn logs(&self) -> &[Log] {
        match self {
            Self::Ethereum(receipt) => receipt.logs(),
            Self::Deposit(receipt) => &receipt.receipt.inner.logs,
        }
    }

    /// The bloom as it is encoded.
    pub fn bloom(&self) -> Bloom {
        match self {
            Self::Ethereum(receipt) => *receipt.logs_bloom(),
            Self::Deposit(receipt) => receipt.logs_bloom,
        }
    }

    /// The sender's nonce in a deposit, and the version of the receipt.
    pub fn deposit(&self) -> Option<(u64, u64)> {
        match self {
            Self::Ethereum(_) => None,
            Self::Deposit(receipt) => receipt.receipt.deposit_nonce.zip(receipt.receipt.deposit_receipt_version),
        }
    }
}

impl Typed2718 for Receipt {
    fn ty(&self) -> u8 {
        match self {
            Self::Ethereum(receipt) => receipt.ty(),
            Self::Deposit(_) => DEPOSIT,
        }
    }
}

impl Encodable2718 for Receipt {
    fn encode_2718_len(&self) -> usize {
        match self {
            Self::Ethereum(receipt) => receipt.encode_2718_len(),
            Self::Deposit(receipt) => 1 + receipt.length(),
        }
    }

    fn encode_2718(&self, out: &mut dyn BufMut) {
        match self {
            Self::Ethereum(receipt) => receipt.encode_2718(out),
            Self::Deposit(receipt) => {
                out.put_u8(DEPOSIT);
                receipt.encode(out);
            }
        }
    }
}

impl Decodable2718 for Receipt {
    fn typed_decode(ty: u8, bytes: &mut &[u8]) -> Eip2718Result<Self> {
        match ty {
            DEPOSIT => Ok(Self::Deposit(ReceiptWithBloom::decode(bytes)?)),
            ty => ReceiptEnvelope::typed_decode(ty, bytes).map(Self::Ethereum),
        }
    }

    fn fallback_decode(bytes: &mut &[u8]) -> Result<Self, Eip2718Error> {
        ReceiptEnvelope::fallback_decode(bytes).map(Self::Ethereum)
    }
}

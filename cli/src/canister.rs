//! A typed client of the canister, over any way to reach it.

mod pruner;
mod utxo;

use anyhow::{Context, Result, anyhow, bail};
use candid::utils::ArgumentEncoder;
use candid::{CandidType, Principal};
use coppice_interface::*;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
pub use utxo::{TransactionUpload, UtxoRead};

/// Who makes an update call. One identity may be both, where it has both roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Has the role `Producer`.
    Producer,
    /// Controls the canister, so it is an operator.
    Operator,
    /// Is registered as an exporter.
    Exporter,
}

/// A way to reach one canister: bytes of Candid there and back.
pub trait Transport {
    /// Calls an update method, or a query method as one, and waits for its answer.
    ///
    /// # Errors
    /// When the call is rejected or traps, or the canister cannot be reached.
    fn update(&self, caller: Caller, method: &str, arg: Vec<u8>) -> Result<Vec<u8>>;

    /// Calls a query method.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>>;

    /// The principal that calls.
    fn principal(&self, caller: Caller) -> Principal;
}

/// What an error is that may be over when the same is tried again: the canister could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Where.
    pub url: String,
}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} does not answer", self.url)
    }
}

/// The three segments of a block: body, receipts, index.
pub type Segments = [Vec<u8>; 3];

/// What a read answers: what was asked for, or the canister's own reason why not.
pub type Read<T> = Result<Result<T, ReadError>>;

/// A page of the export, or the canister's own reason why there is none.
pub type Export = Result<Result<ExportPage, ExportError>>;

/// A page of transactions with a secondary key, or the canister's own reason why there is none.
pub type Keys = Result<Result<KeyPage, KeyError>>;

/// The canister's interface, typed.
///
/// Every method's outer error is the transport's, or an answer that cannot be decoded; what else can go wrong is said
/// with the method.
pub struct Client<T> {
    transport: T,
}

impl<T: Transport> Client<T> {
    /// A client over a transport.
    pub fn new(transport: T) -> Self {
        Self { transport }
    }

    /// The transport, for what only it can do.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    fn update<A: ArgumentEncoder, R: CandidType + DeserializeOwned>(
        &self,
        caller: Caller,
        method: &str,
        args: A,
    ) -> Result<R> {
        let arg = candid::encode_args(args).with_context(|| format!("{method}: argument"))?;
        decode(method, &self.transport.update(caller, method, arg)?)
    }

    fn query<A: ArgumentEncoder, R: CandidType + DeserializeOwned>(&self, method: &str, args: A) -> Result<R> {
        let arg = candid::encode_args(args).with_context(|| format!("{method}: argument"))?;
        decode(method, &self.transport.query(method, arg)?)
    }

    /// `append_block`.
    ///
    /// # Errors
    /// Also when the canister refuses the block.
    pub fn append_block(&self, block: &AppendBlock) -> Result<()> {
        let result: Result<(), AppendError> = self.update(Caller::Producer, "append_block", (block,))?;
        result.map_err(|error| refused("append_block", block.number, error))
    }

    /// `begin_block`.
    ///
    /// # Errors
    /// Also when the canister refuses the block.
    pub fn begin_block(&self, block: &BeginBlock) -> Result<UploadProgress> {
        let result: Result<_, AppendError> = self.update(Caller::Producer, "begin_block", (block,))?;
        result.map_err(|error| refused("begin_block", block.number, error))
    }

    /// `put_block_chunk`.
    ///
    /// # Errors
    /// Also when the canister refuses the chunk.
    pub fn put_block_chunk(&self, chunk: &PutBlockChunk) -> Result<UploadProgress> {
        let result: Result<_, UploadError> = self.update(Caller::Producer, "put_block_chunk", (chunk,))?;
        result.map_err(|error| refused("put_block_chunk", chunk.number, error))
    }

    /// `commit_block`, until it is done: a large block takes several calls.
    ///
    /// # Errors
    /// Also when the canister refuses the block.
    pub fn commit_block(&self, block: &BlockId) -> Result<()> {
        loop {
            let result: Result<Commit, UploadError> = self.update(Caller::Producer, "commit_block", (block,))?;
            match result.map_err(|error| refused("commit_block", block.number, error))? {
                Commit::Done => return Ok(()),
                Commit::HasMore { .. } => {}
            }
        }
    }

    /// `set_config`.
    ///
    /// # Errors
    /// Also when the canister refuses the settings.
    pub fn set_config(&self, change: &ConfigChange) -> Result<Config> {
        let result: Result<_, ConfigError> = self.update(Caller::Operator, "set_config", (change,))?;
        result.map_err(|error| anyhow!("the canister refuses the settings: {error:?}"))
    }

    /// `get_config`.
    pub fn config(&self) -> Result<Config> {
        self.query("get_config", ())
    }

    /// `set_prune_policy`: what is left out stays.
    ///
    /// # Errors
    /// Also when the canister refuses the policy.
    pub fn set_prune_policy(&self, policy: &PrunePolicyArg) -> Result<PrunePolicyChange> {
        let result: Result<_, PruneError> = self.update(Caller::Operator, "set_prune_policy", (policy,))?;
        result.map_err(|error| anyhow!("the canister refuses the prune policy: {error:?}"))
    }

    /// `get_head`.
    pub fn head(&self) -> Read<BlockHeader> {
        self.query("get_head", ())
    }

    /// `get_block_header`.
    pub fn block_header(&self, number: u64) -> Read<BlockHeader> {
        self.query("get_block_header", (number,))
    }

    /// `get_block`.
    pub fn block(&self, number: u64) -> Read<Block> {
        self.query("get_block", (number,))
    }

    /// `read_segment`: 0 body, 1 receipts, 2 index; offset and length in bytes.
    pub fn read_segment(&self, number: u64, segment: u8, offset: u64, length: u64) -> Read<SegmentPart> {
        self.query("read_segment", (number, segment, offset, length))
    }

    /// A block's header and payload, whatever its size: `get_block`, or `read_segment` in parts where that is too large.
    ///
    /// # Errors
    /// Also when a part comes back empty, or a segment's length changes between two parts.
    pub fn whole_block(&self, number: u64) -> Read<(BlockHeader, Segments)> {
        match self.block(number)? {
            Ok(block) => {
                let segments = [block.body, block.receipts, block.index].map(ByteBuf::into_vec);
                return Ok(Ok((block.header, segments)));
            }
            Err(ReadError::TooLarge { .. }) => {}
            Err(error) => return Ok(Err(error)),
        }
        let header = match self.block_header(number)? {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        let mut segments = Segments::default();
        for (index, segment) in (0u8..).zip(&mut segments) {
            loop {
                let offset = segment.len() as u64;
                let part = match self.read_segment(number, index, offset, u64::MAX)? {
                    Ok(part) => part,
                    Err(error) => return Ok(Err(error)),
                };
                segment.extend_from_slice(&part.bytes);
                if segment.len() as u64 == part.total {
                    break;
                }
                if part.bytes.is_empty() || segment.len() as u64 > part.total {
                    bail!(
                        "read_segment: block {number}, segment {index}: {} bytes from {offset} of {}",
                        part.bytes.len(),
                        part.total
                    );
                }
            }
        }
        Ok(Ok((header, segments)))
    }

    /// `get_receipt`.
    pub fn receipt(&self, id: &[u8]) -> Read<Receipt> {
        self.query("get_receipt", (serde_bytes::Bytes::new(id),))
    }

    /// `get_transaction_location`.
    pub fn transaction_location(&self, id: &[u8]) -> Read<TransactionLocation> {
        self.query("get_transaction_location", (serde_bytes::Bytes::new(id),))
    }

    /// `find_by_index_key`: the newest transactions with a secondary key, older than the cursor; `limit` of them or, for 0, as
    /// many as a page holds.
    pub fn find_by_index_key(&self, key: &[u8], cursor: Option<&KeyCursor>, limit: u32) -> Keys {
        self.query("find_by_index_key", (serde_bytes::Bytes::new(key), cursor, limit))
    }

    /// `get_prune_status`.
    pub fn prune_status(&self) -> Result<PruneStatus> {
        self.query("get_prune_status", ())
    }

    /// `get_storage_status`.
    pub fn storage_status(&self) -> Result<StorageStatus> {
        self.query("get_storage_status", ())
    }

    /// `export_blocks`: the chunks behind a cursor, `max_bytes` of them or, for 0, as many as a reply holds.
    pub fn export_blocks(&self, cursor: Option<&ExportCursor>, max_bytes: u64) -> Export {
        self.query("export_blocks", (cursor, max_bytes))
    }

    /// `export_blocks` as an update call by the exporter: slower, and the answer of the canister, not of one replica.
    pub fn export_blocks_replicated(&self, cursor: Option<&ExportCursor>, max_bytes: u64) -> Export {
        self.update(Caller::Exporter, "export_blocks", (cursor, max_bytes))
    }

    /// `ack_exported`: everything up to and with this block is somewhere else. Answers the exporter's bound, exclusive.
    pub fn ack_exported(&self, block: u64, hash: &[u8]) -> Result<Result<u64, AckError>> {
        self.update(Caller::Exporter, "ack_exported", (block, serde_bytes::Bytes::new(hash)))
    }

    /// `get_export_status`.
    pub fn export_status(&self) -> Result<ExportStatus> {
        self.query("get_export_status", ())
    }

    /// `register_exporter`.
    ///
    /// # Errors
    /// Also when the canister refuses the exporter.
    pub fn register_exporter(&self, exporter: &Exporter) -> Result<()> {
        let result: Result<(), ExporterError> = self.update(Caller::Operator, "register_exporter", (exporter,))?;
        result.map_err(|error| anyhow!("the canister refuses the exporter {}: {error:?}", exporter.name))
    }

    /// `remove_exporter`.
    ///
    /// # Errors
    /// Also when the canister refuses.
    pub fn remove_exporter(&self, exporter: &RemoveExporter) -> Result<()> {
        let result: Result<(), ExporterError> = self.update(Caller::Operator, "remove_exporter", (exporter,))?;
        result.map_err(|error| anyhow!("the canister does not remove the exporter {}: {error:?}", exporter.name))
    }

    /// `health`.
    pub fn health(&self) -> Result<Health> {
        self.query("health", ())
    }
}

/// The argument that installs a canister with one producer.
///
/// # Errors
/// When it cannot be encoded.
pub fn install_arg(producer: Principal) -> Result<Vec<u8>> {
    let init = InitArg { producers: vec![producer], ..InitArg::default() };
    Ok(candid::encode_one(Some(CanisterArg::Init(init)))?)
}

fn decode<R: CandidType + DeserializeOwned>(method: &str, reply: &[u8]) -> Result<R> {
    candid::decode_one(reply).with_context(|| format!("{method}: the answer is not what the interface says"))
}

fn refused(method: &str, number: u64, error: impl std::fmt::Debug) -> anyhow::Error {
    anyhow!("{method}: the canister refuses block {number}: {error:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Answers reads of one block, at most `limit` bytes at a time.
    struct Shelf {
        segments: Segments,
        limit: usize,
        calls: RefCell<Vec<String>>,
    }

    impl Transport for Shelf {
        fn update(&self, _: Caller, method: &str, _: Vec<u8>) -> Result<Vec<u8>> {
            bail!("{method}: nothing is written")
        }

        fn principal(&self, _: Caller) -> Principal {
            Principal::anonymous()
        }

        fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>> {
            self.calls.borrow_mut().push(method.into());
            let header = BlockHeader {
                number: 7,
                hash: ByteBuf::from([1; 32]),
                parent_hash: ByteBuf::from([0; 32]),
                timestamp: 0,
                monotonic_timestamp: 0,
                transactions: 0,
                keys: 0,
                lengths: self.segments.each_ref().map(|bytes| bytes.len() as u64).into(),
                sha256: BySegment::default(),
            };
            Ok(match method {
                "get_block" => {
                    candid::encode_one(Err::<Block, _>(ReadError::TooLarge { size: 9, limit: self.limit as u64 }))?
                }
                "get_block_header" => candid::encode_one(Ok::<_, ReadError>(header))?,
                _ => {
                    let (_, segment, offset, length): (u64, u8, u64, u64) = candid::decode_args(&arg)?;
                    let bytes = &self.segments[usize::from(segment)];
                    let rest = &bytes[offset as usize..];
                    let part = &rest[..rest.len().min(self.limit).min(length as usize)];
                    let part = SegmentPart { bytes: ByteBuf::from(part), total: bytes.len() as u64 };
                    candid::encode_one(Ok::<_, ReadError>(part))?
                }
            })
        }
    }

    #[test]
    fn a_block_that_no_reply_holds_is_read_in_parts() {
        let segments = [vec![1; 10], Vec::new(), vec![2; 4]];
        let client = Client::new(Shelf { segments: segments.clone(), limit: 4, calls: RefCell::default() });
        let (header, read) = client.whole_block(7).unwrap().unwrap();
        assert_eq!((header.number, read), (7, segments.clone()));
        assert_eq!(client.transport().calls.borrow().len(), 2 + 3 + 1 + 1);
        let stuck = Client::new(Shelf { segments, limit: 0, calls: RefCell::default() });
        assert!(stuck.whole_block(7).is_err());
    }
}

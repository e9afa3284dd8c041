//! Methods of the Candid interface, each declared once: kind, name, named arguments, answer, roles, largest argument, comment.
//!
//! `methods!` passes the list to a macro. [`TABLE`], the canister's exports and the tests that compare
//! `candid/coppice.did` are made from it.

use crate::Role;
use crate::access::*;

/// Bytes of the longest ingress message of the platform, including its envelope and its id, which take some 340 bytes
/// besides the argument.
pub const INGRESS: u64 = 2 << 20;

/// Bytes of payload in one reply: 2 MiB less 64 KiB for everything else in a reply.
pub const MAX_REPLY: u64 = (2 << 20) - (64 << 10);

/// Bytes of the longest argument of a replicated query; one replica alone answers a query with a longer argument.
pub const QUERY: u64 = 10_000;

/// A method of the interface.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Area in which the method is declared.
    pub area: &'static str,
    /// Name of the method.
    pub name: &'static str,
    /// True for a query, which changes nothing; false for an update.
    pub is_query: bool,
    /// Roles of which the caller must have one; empty for queries, which need no role. Each update needs a role.
    pub roles: &'static [Role],
    /// Bytes of the largest argument that the ingress filter accepts.
    ///
    /// An ingress message costs the canister 2,000 cycles a byte, whatever its content. The limit is twice the longest
    /// argument that the client encodes for the method, so that callers with a less compact encoder are not refused,
    /// and [`INGRESS`] for methods that take payload. A test of the client encodes the longest arguments and compares
    /// them with the limits.
    pub largest: u64,
}

/// Areas of UTXO records and of the deletion queue of their blobs, which a build of the canister without records lacks.
pub const OF_RECORDS: [&str; 3] = ["utxo", "records", "deletion"];

impl Method {
    /// Returns whether only a build of the canister with UTXO records has the method.
    pub fn is_of_records(&self) -> bool {
        OF_RECORDS.contains(&self.area)
    }

    /// Returns whether only feeders call the method; messages of feeders are not limited.
    pub fn is_feeders(&self) -> bool {
        !self.is_query && self.roles.iter().all(|role| FEEDERS.contains(role))
    }
}

/// Passes all methods to a macro, by area: `area { #[doc = "…"] update name(argument: Type, …) -> Answer, or Error:
/// ROLES, largest; … }`. A method without `or` has no error.
#[macro_export]
macro_rules! methods {
    ($callback:ident) => {
        $callback! {
        blocks {
            /// Appends a block in one message. The argument has at most 2 MiB. If the message has no room for all of the
            /// block's transactions and keys (10,000 nearly always do), the block is refused as `TooLarge`: use
            /// `begin_block` for larger blocks. An empty hash is refused as `BadEncoding`. Appending the same block again returns `Ok`
            /// and changes nothing, so callers may retry after a lost reply; a kept block whose parent, time, lengths
            /// or declared SHA-256 differ is a `Conflict`. With `verify_segments` off the declared SHA-256 are not
            /// compared with the bytes, so that false ones pass. Callable by: `Producer`, `BlockProducer`.
            update append_block(block: AppendBlock) -> (), or AppendError: BLOCK_PRODUCERS, INGRESS;
            /// Appends blocks in one message, in order, each as `append_block` does. The argument has at most 2 MiB.
            /// Blocks that are kept already count as kept, so that a repeated call changes nothing. The message stops
            /// at a block that is refused, and with `HasMore` before a block for which it has no room. An empty list,
            /// and numbers that do not rise by one, are refused as `BadEncoding`, and no block is appended. A trap
            /// undoes the whole message: send half of the list. Callable by: `Producer`, `BlockProducer`.
            update append_blocks(blocks: Vec<AppendBlock>) -> AppendedBlocks: BLOCK_PRODUCERS, INGRESS;
            /// Appends blocks as `append_blocks` does. The argument is u32 n, little-endian ‖ the argument of `append_blocks`
            /// as a raw deflate stream (RFC 1951), where n is the length of that argument, at most 8 MiB. The plain argument
            /// must begin with the type table of this file's types and have its shortest form; other bytes are refused
            /// as `BadEncoding`, and so is a stream that takes more than 300 M instructions. Callable by: `Producer`,
            /// `BlockProducer`.
            update append_compressed(blocks: ByteBuf) -> AppendedBlocks: BLOCK_PRODUCERS, INGRESS;
            /// Begins the upload of a block that is larger than a message. One upload is open at a time. The block has
            /// at most 256 MiB, 16,384 chunks, and 100,000 transactions and keys. Beginning the same upload again
            /// returns its progress; if the block is kept already, the progress has no missing chunks, and a kept block
            /// that differs is a `Conflict` as in `append_block`. A `chunk_size` of 0 and an empty hash are refused as
            /// `BadEncoding`. Callable by: `Producer`, `BlockProducer`.
            update begin_block(block: BeginBlock) -> UploadProgress, or AppendError: BLOCK_PRODUCERS, 604;
            /// Stores a chunk of the open upload. Producers may only write to their own upload. Chunks may arrive in
            /// any order. Sending the same chunk again returns `Ok`; other bytes under the same number are refused.
            /// Callable by: `Producer`, `BlockProducer`, `Operator`.
            update put_block_chunk(chunk: PutBlockChunk) -> UploadProgress, or UploadError: UPLOADERS, INGRESS;
            /// Makes the uploaded block the head, over as many calls as needed. Producers may only commit their own
            /// upload. After `HasMore`, repeat the same call. If the block is kept already, the answer is `Done`.
            /// Callable by: `Producer`, `BlockProducer`, `Operator`.
            update commit_block(block: BlockId) -> Commit, or UploadError: UPLOADERS, 128;
            /// Aborts the open upload of the block with this number, and returns whether there was one. Producers may
            /// only abort their own upload. If the block was partly entered, each call or tick removes a slice: until
            /// all is removed a repeated call returns `true`, and `false` after that. Callable by: `Producer`,
            /// `BlockProducer`, `Operator`.
            update abort_block(number: u64) -> bool, or UploadError: UPLOADERS, 30;
            /// Makes the block with this number the head, for a reorg. A producer may roll back `max_rollback_blocks`,
            /// an admin as far as the oldest kept block. From the newest on, each block that is applied to the UTXO
            /// records is taken back from them, and then removed; if some of its records may be pruned, only for an
            /// admin who sets `incomplete`. One call does a bounded part: while `has_more`, repeat the call or wait for
            /// ticks to finish; until then appends and applying are refused as `RollbackUnderway`. Do not append in
            /// between: ticks may finish the rollback between two calls, and a repeated call removes blocks that were
            /// appended since. Rolling back to the head changes nothing. Callable by: `Producer`, `BlockProducer`,
            /// `Admin`.
            update rollback_to(number: u64, incomplete: Option<bool>) -> Rollback, or RollbackError: REVERTERS, 40;
            /// Empties the chain, which may then start again at any number. The call needs the head's hash, and
            /// `drop_unexported` if an exporter has not acknowledged all blocks. Ticks clear the blocks that were kept;
            /// until they are done, appends are refused as `ResetUnderway`. A second call finds the chain empty and
            /// returns `Empty`. Callable by: `Admin`.
            update reset_chain(reset: ResetChain) -> ChainReset, or ResetError: ADMINS, 114;
            /// Returns the header of the newest block, or `NotFound` if there is no block. Callable by: anyone.
            query get_head() -> BlockHeader, or ReadError: ANYONE, 12;
            /// Returns the subnet's certificate of the newest block, in the shape of ICRC-3, so that a reader need not
            /// trust a replica. `hash_tree` is a CBOR-encoded hash tree with the labels `last_block_index` (LEB128),
            /// `last_block_hash` (the newest block's seal), both absent on an empty chain, and `coppice`: the oldest kept
            /// block u64, the seal before it, resets u64, rolled-back blocks u64, big-endian. While a damaged block hides a
            /// seal, the labels with that seal are absent, too. `null` in an update call. Callable by: anyone.
            query get_tip_certificate() -> Option<TipCertificate>: ANYONE, 12;
            /// Returns a whole kept block. A block that is longer than a reply is refused as `TooLarge`: `read_segment`
            /// returns it in parts. Callable by: anyone.
            query get_block(number: u64) -> Block, or ReadError: ANYONE, 30;
            /// Returns the headers of kept blocks, oldest first, from block `from` to block `to`, both included. A page
            /// has at most 1,000 headers and less than 1 MiB; `next` continues it. The page ends at the head if `to` is
            /// above the head, and is empty if `from` is above `to`. Otherwise the block `from` answers
            /// `NotFound` above the head and on an empty chain, `Pruned`, or `Corrupt`. A later
            /// block that is damaged ends the page before it, and is its `next`. Callable by: anyone.
            query get_block_headers(from: u64, to: u64) -> HeaderPage, or ReadError: ANYONE, 48;
            /// Returns bytes of a segment of a kept block: 0 body, 1 receipts, 2 index. The answer has at most `length`
            /// bytes from `offset` on, and at most as many as a reply holds, some 2,000,000. A `length` of 0 returns
            /// only the length of the segment. Callable by: anyone.
            query read_segment(number: u64, segment: u8, offset: u64, length: u64)
                -> SegmentPart, or ReadError: ANYONE, 70;
            /// Returns the receipt of the newest kept transaction with this id. Callable by: anyone.
            query get_receipt(id: ByteBuf) -> Receipt, or ReadError: ANYONE, 84;
            /// Returns the block and position of the newest kept transaction with this id. Callable by: anyone.
            query get_transaction_location(id: ByteBuf) -> TransactionLocation, or ReadError: ANYONE, 84;
            /// Returns transactions that have a secondary key, newest first. A page has at most `limit` transactions; a
            /// `limit` of 0 or above 1,000 means 1,000. A page may have fewer transactions, or none, and still a
            /// cursor: there are more pages while there is a cursor. Callable by: anyone.
            query find_by_index_key(key: ByteBuf, cursor: Option<KeyCursor>, limit: u32)
                -> KeyPage, or KeyError: ANYONE, 370;
        }
        export {
            /// Registers an exporter and grants it the role `Exporter`. From then on, blocks that the exporter has not
            /// acknowledged are not pruned. There are at most 100 exporters. Registering the same name with the same
            /// principal again changes nothing. If the key of a name was revoked, only an admin registers a new
            /// principal for it; the exporter then continues at its old bound. Callable by: `Operator`, `Admin`.
            update register_exporter(exporter: Exporter) -> (), or ExporterError: GUARDIANS, 170;
            /// Removes an exporter and its role. Removing the last exporter needs `drop_guard`. A second call returns
            /// `Unknown`. Callable by: `Admin`.
            update remove_exporter(which: RemoveExporter) -> (), or ExporterError: ADMINS, 110;
            /// Returns blocks in order, in chunks, from the cursor on; without a cursor, from the oldest kept block on.
            /// A page has at most `max_bytes` of payload; 0 means as many as a reply holds. Calling again with the same
            /// cursor is safe. Callable by: anyone.
            query export_blocks(cursor: Option<ExportCursor>, max_bytes: u64)
                -> ExportPage, or ExportError: ANYONE, 222;
            /// Acknowledges all blocks up to the block with this number and hash: they may be pruned. The caller must
            /// be a registered exporter. Returns the number below which all blocks are acknowledged; a lower or a
            /// repeated acknowledgement does not change it. Callable by: `Exporter`.
            update ack_exported(number: u64, hash: BlockHash) -> u64, or AckError: EXPORTERS, 102;
            /// Returns the progress of all exporters, and the number from which on they keep blocks. Callable by:
            /// anyone.
            query get_export_status() -> ExportStatus: ANYONE, 12;
        }
        prune {
            /// Changes the policy by which blocks are pruned. Absent fields are unchanged. The first policy switches
            /// pruning on. Repeating the same change changes nothing. Callable by: `Operator`.
            update set_prune_policy(change: PrunePolicyArg) -> PrunePolicyChange, or PruneError: OPERATORS, 450;
            /// Does one bounded prune run, even if pruning is disabled. Blocks that exporters have not acknowledged are
            /// not pruned. The run does at most `max_ops` ops, and at most 1,000,000; 0 is refused. Calling again
            /// continues the work. Callable by: `Operator`.
            update prune_now(max_ops: u64) -> PruneRun, or PruneError: OPERATORS, 30;
            /// Acknowledges the first `up_to` faults; if these are all faults, skipped work is tried again.
            /// Returns the number of acknowledged faults, which never falls. A repeated call acknowledges nothing more.
            /// Callable by: `Operator`.
            update acknowledge_faults(up_to: u64) -> u64: OPERATORS, 30;
            /// Returns what the next run would do, why, and what holds pruning back, under the policy in force or with
            /// these changes of it. The call prunes nothing. Callable by: anyone.
            query plan_prune(change: Option<PrunePolicyArg>) -> PrunePlan, or PruneError: ANYONE, 450;
            /// Returns the status of the pruning of blocks. Callable by: anyone.
            query get_prune_status() -> PruneStatus: ANYONE, 12;
        }
        utxo {
            /// Creates records of transactions. One message handles as many items of the batch as fit; items are
            /// independent of each other. If a record exists, as in a repeated call, its item returns `TxExists`. Below
            /// `feed_min_liquid_cycles` each item returns `LowCycles`. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_create(arg: UtxoCreateBatch)
                -> Batch<Result<UtxoCreated, UtxoCreateError>>: UTXO_FEEDERS, INGRESS;
            /// Spends outputs; of each transaction all outputs or none. One message handles as many items of the batch
            /// as fit. Spending again with the same spender returns `Ok` and counts nothing, but is refused if since
            /// then the output was frozen, its transaction was locked or marked as conflicting, or its record or the
            /// spender's was pruned. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_spend(arg: UtxoSpendBatch) -> Batch<Result<u32, Vec<RefusedSpend>>>: UTXO_FEEDERS, INGRESS;
            /// Reverts spends. One message handles as many items of the batch as fit. Returns whether the named spender
            /// held the output: a repeated call returns `false`. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_unspend(arg: UtxoUnspendBatch) -> Batch<Result<bool, UtxoError>>: UTXO_FEEDERS, 1_070_154;
            /// Adds a block to transactions, or takes it from them. One message handles as many items of the batch as
            /// fit. Returns the ids of the blocks that have the transaction now; repeating the call changes nothing. An
            /// id that the transaction has at another height or in another subtree is refused as `OtherBlock`; `unset`
            /// looks at the id only. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_set_mined(arg: UtxoSetMinedBatch) -> Batch<Result<Vec<u32>, UtxoError>>: UTXO_FEEDERS, 370_156;
            /// Records whether the blocks of transactions are on the longest chain. One message handles as many items
            /// of the batch as fit; repeating the call changes nothing. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_set_on_longest_chain(arg: UtxoSetOnLongestChainBatch)
                -> Batch<Result<(), UtxoError>>: UTXO_FEEDERS, 330_074;
            /// Locks transactions, so that their outputs cannot be spent, or unlocks them. One message handles as many
            /// items of the batch as fit; repeating the call changes nothing. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_set_locked(arg: UtxoSetLockedBatch) -> Batch<Result<(), UtxoError>>: UTXO_FEEDERS, 330_074;
            /// Freezes outputs, or all outputs of a transaction. One message handles as many items of the batch as fit.
            /// Returns the number of outputs that were frozen; a target that is frozen already returns `AlreadyFrozen`.
            /// Callable by: `Alert`.
            update utxo_freeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>>: ALERTS, 720_108;
            /// Unfreezes outputs, or all outputs of a transaction. One message handles as many items of the batch as
            /// fit. Returns the number of outputs that were unfrozen; a target that is not frozen returns
            /// `UtxoNotFrozen`. Callable by: `Alert`.
            update utxo_unfreeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>>: ALERTS, 720_108;
            /// Gives frozen outputs a new owner. One message handles as many items of the batch as fit. Returns the
            /// height from which the output is spendable; until then a spend is refused as `FrozenUntil`. To freeze an
            /// output until a height, pass its own hash as the new one: the owner stays. A repeated call returns
            /// `UtxoHashMismatch` because the output has its new hash, or `UtxoNotFrozen` if the hash is the old one.
            /// Callable by: `Alert`.
            update utxo_reassign(arg: UtxoReassignBatch) -> Batch<Result<u32, UtxoError>>: ALERTS, 1_030_128;
            /// Marks transactions as double spends, with all transactions that spend from them. One message handles as
            /// many items of the batch as fit, and part of an item if necessary: repeat an item while it has more.
            /// Repeating a finished item marks nothing and returns the outputs that the named transaction holds.
            /// Callable by: `Producer`, `UtxoFeeder`.
            update utxo_set_conflicting(arg: UtxoSetConflictingBatch)
                -> Batch<Result<Conflict, UtxoError>>: UTXO_FEEDERS, 330_060;
            /// Lets conflicting transactions win over the transactions that they conflict with, all of them or none.
            /// One message does as much as fits: repeat the call while it has more. Repeating a finished call returns
            /// `NotConflicting`, because the winners are no longer conflicting. Transactions whose outputs losers held
            /// are unlocked, even if another call locked them. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_process_conflicting(arg: UtxoProcessConflicting)
                -> ConflictResolution, or ConflictError: UTXO_FEEDERS, 330_060;
            /// Protects records from pruning until a height. One message handles as many items of the batch as fit.
            /// Returns whether there is such a record; repeating the call changes nothing. Callable by: `Producer`,
            /// `UtxoFeeder`.
            update utxo_preserve(arg: UtxoPreserveBatch) -> Batch<Result<bool, UtxoError>>: UTXO_FEEDERS, 330_062;
            /// Creates the records of a kept block's transactions, spends the outputs of their inputs, and sets the
            /// transactions mined, in the block's order. The result equals that of `utxo_create`, `utxo_spend` and
            /// `utxo_set_mined`, except that a coinbase without a block is no longer a double spend. Blocks are applied
            /// in order; an operator applies the first one, at any height. One message does as much as fits: repeat the
            /// call while it has more. The last one notifies the block's height. A transaction that cannot be applied
            /// stops the block, and nothing of it has changed; it can be skipped. An applied block is `known`, and the
            /// call changes nothing; under another height or id it is refused. Callable by: `Producer`, `UtxoFeeder`,
            /// `Operator`.
            update utxo_apply_block(arg: UtxoApplyBlock) -> UtxoApplied, or UtxoApplyError: APPLIERS, 312;
            /// Ends applying, and returns its last position: blocks are no longer held for it, and the next block
            /// that is applied is again any operator's choice. Each applied block keeps its note. `null` if no
            /// block was applied. Callable by: `Operator`.
            update utxo_stop_applying() -> Option<UtxoApplyPosition>: OPERATORS, 12;
            /// Begins the upload of a transaction that is longer than a message and has at most 16 MiB. A feeder has at
            /// most one open upload; at most 64 feeders have one at a time. Beginning the same upload again returns its
            /// progress. `utxo_create` with `Uploaded` creates the record. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_begin_transaction(arg: BeginTransaction)
                -> UploadProgress, or TransactionUploadError: UTXO_FEEDERS, 148;
            /// Stores a chunk of the caller's upload; chunks may arrive in any order. Sending the same chunk again
            /// returns `Ok`; other bytes under the same number are refused. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_put_transaction_chunk(arg: PutTransactionChunk)
                -> UploadProgress, or TransactionUploadError: UTXO_FEEDERS, INGRESS;
            /// Aborts the caller's upload of a transaction, and returns whether there was one. A repeated call returns
            /// `false`. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_abort_transaction(txid: Txid) -> bool, or TransactionUploadError: UTXO_FEEDERS, 84;
            /// Returns a record, with at most `limit` entries of its outputs, and at most 5,000. A `limit` of 0 returns
            /// no entries. Callable by: anyone.
            query utxo_get(arg: UtxoGet) -> UtxoRecord, or UtxoError: ANYONE, 156;
            /// Returns bytes of a record's transaction, or of its inpoints, the outputs that its inputs spend: at most
            /// `length`, and at most as many as a reply holds. A `length` of 0 returns only the length of the whole.
            /// Callable by: anyone.
            query utxo_get_transaction(arg: UtxoGetPart) -> TransactionPart, or UtxoError: ANYONE, 198;
            /// Returns whether outputs can be spent at a height, and their spenders. At most 5,000 outputs. Callable
            /// by: anyone.
            query utxo_get_spend(arg: UtxoGetSpend) -> Vec<UtxoSpendState>, or UtxoError: ANYONE, QUERY;
            /// Returns transactions that the longest chain does not have, oldest first, from the cursor on. A page has
            /// at most `limit` transactions; a `limit` of 0 or above 2,000 means 2,000. There are more pages while
            /// there is a cursor. Callable by: anyone.
            query utxo_list_unmined(cursor: Option<UnminedCursor>, limit: u32)
                -> UnminedPage, or UtxoError: ANYONE, 144;
        }
        records {
            /// Reports that blocks up to this height are persisted, and schedules the pruning of due records. A feeder
            /// may raise the height as far as `max_height_jump` and `heights_per_day` allow, or without limit if it is
            /// also an operator. 0 is refused. Repeating a height returns its outcome. Callable by: `Producer`,
            /// `UtxoFeeder`.
            update utxo_notify_block_persisted(height: u32) -> UtxoNotifyOutcome, or UtxoPrunerError: UTXO_FEEDERS, 22;
            /// Reports that a block of this height was validated, and whether its transactions are marked as mined. A
            /// feeder may raise the height as far as `max_height_jump` and `heights_per_day` allow, or without limit if
            /// it is also an operator. 0 is refused. The call schedules pruning as long as no block was ever persisted.
            /// Repeating a height returns its outcome. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_notify_block(height: u32, mined_set: bool)
                -> UtxoNotifyOutcome, or UtxoPrunerError: UTXO_FEEDERS, 26;
            /// Reports whether the block assembly runs, and up to which height it has processed the chain. Records are
            /// pruned only while it runs, and only up to its height; a `height` of `null` bounds nothing. Repeating the
            /// call changes nothing. Callable by: `Producer`, `UtxoFeeder`.
            update utxo_set_block_assembly_state(assembly: UtxoBlockAssemblyState, height: Option<u32>)
                -> (): UTXO_FEEDERS, 60;
            /// Prunes records as if the chain were at this height now, over as many ticks as needed, even if the timer
            /// is switched off. The block assembly must run. 0 is refused, and so is a height above the highest
            /// notified one, if any height was notified. Calling again prunes the records that are left. Callable by:
            /// `Operator`.
            update utxo_prune(height: u32) -> UtxoPruneJob, or UtxoPrunerError: OPERATORS, 22;
            /// Sets the heights by which records are pruned, up or down. A height of 0 means that no height was
            /// notified, or pruned, yet. Afterwards feeders may raise heights by `max_height_jump` again. Waiting and
            /// running jobs are cancelled, and a job is created if the heights make records due; a repeated call does
            /// both again. Callable by: `Operator`.
            update utxo_set_heights(heights: UtxoSetHeights) -> UtxoHeightsSet, or UtxoPrunerError: OPERATORS, 84;
            /// Cancels the waiting or running job with this number. A second call returns `NotOpen`. Callable by:
            /// `Operator`.
            update utxo_cancel_prune_job(id: u64) -> UtxoPruneJob, or UtxoPrunerError: OPERATORS, 30;
            /// Changes the settings by which records are pruned. Absent fields are unchanged; repeating the call
            /// changes nothing. Callable by: `Operator`.
            update utxo_set_pruner_settings(change: UtxoPrunerSettingsChange)
                -> UtxoPrunerSettings, or UtxoPrunerError: OPERATORS, 502;
            /// Skips the unmined record in this slot, which cannot be read and stops pruning; or, with `skip = false`, tries
            /// a record again that is skipped. At most 100 unreadable records are skipped. Repeating the call changes
            /// nothing; without such a record it returns `NotBlocking`. Callable by: `Operator`.
            update utxo_skip_record(slot: u32, skip: bool) -> (), or UtxoPrunerError: OPERATORS, 26;
            /// Returns the status of the pruning of records. Callable by: anyone.
            query utxo_get_pruner_status() -> UtxoPrunerStatus: ANYONE, 12;
            /// Returns waiting and running jobs, then ended jobs, the last first, from the cursor on. A page has at
            /// most `limit` jobs, and at most 500; a `limit` of 0 means 100. There are more pages while there is a
            /// cursor. Callable by: anyone.
            query utxo_list_prune_jobs(cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage: ANYONE, 46;
        }
        deletion {
            /// Returns waiting rows up to this height, by height. The answer has at most `limit` rows, and at most
            /// 1,000; a `limit` of 0 means 100. With `selectors`, only rows that match one of them. The answer is empty
            /// while deletions are stopped. Callable by: anyone.
            query get_pending_blob_deletions(height: u32, limit: u32, selectors: Option<Vec<BlobSelector>>)
                -> Vec<BlobDeletion>: ANYONE, 4_630;
            /// Reports the outcome of deletions that were not leased. At most 10,000 numbers; numbers for which the
            /// message had no room are `remaining`. A repeated call reports completed rows as `already` done, but
            /// counts failures again. While deletions are stopped, the answer is `Stopped`, and completed rows are only
            /// marked (`reported_deleted`). Callable by: `BlobWorker`.
            update complete_blob_deletions(arg: CompleteBlobDeletions)
                -> CompletedBlobDeletions, or BlobDeletionError: BLOB_WORKERS, 160_098;
            /// Tries dead letters again from the start, as many as the message has room for. Repeat the call for dead
            /// letters that are `remaining`. Callable by: `Operator`.
            update retry_blob_deletions(arg: RetryBlobDeletions)
                -> RetriedBlobDeletions, or BlobDeletionError: OPERATORS, 160_122;
            /// Ends the live leases of a principal, and returns their number. Their rows wait again after at most a
            /// quarter of the lease's time, the longest that a request for a blob may take. `revoke_role` does the same
            /// for a blob worker, and `set_deletions_stopped` for all. A repeated call returns 0. Callable by: `Operator`.
            update end_blob_deletion_leases(holder: Principal) -> u64: OPERATORS, 76;
            /// Schedules the deletion of a blob that no record names. An existing row keeps its number, gets the
            /// height, and is tried from the start, even if it was leased; a repeated call does this again. Callable
            /// by: `Producer`, `UtxoFeeder`, `Operator`.
            update schedule_blob_deletion(arg: ScheduleBlobDeletion)
                -> ScheduledBlobDeletion, or BlobDeletionError: SCHEDULERS, 2_286;
            /// Removes a blob's row from the queue. `null`: there is no such row, as after a repeated call. Callable by:
            /// `Producer`, `UtxoFeeder`, `Operator`.
            update cancel_blob_deletion(name: BlobName)
                -> Option<CancelledBlobDeletion>, or BlobDeletionError: SCHEDULERS, 2_250;
            /// Returns rows of the queue that match the filter, by number. A call looks at no more than 10,000 rows:
            /// there are more pages while there is a cursor. Callable by: anyone.
            query list_blob_deletions(arg: ListBlobDeletions) -> BlobDeletionList: ANYONE, 294;
            /// Removes a row from the queue, with the record that waits for it, and returns whether the row is gone.
            /// `false`: there is no such row, its height is above `up_to_height`, or it is a dead letter that stays
            /// because its record could not be removed. A repeated call returns `false`. While deletions are stopped,
            /// the answer is `Stopped`, and the row is only marked (`reported_deleted`). Callable by: `BlobWorker`.
            update remove_blob_deletion(id: u64, up_to_height: Option<u32>)
                -> bool, or BlobDeletionError: BLOB_WORKERS, 46;
            /// Counts a failure of a row that is not leased, and makes it a dead letter at `max_retries`; a
            /// `max_retries` of 0 means 1. A repeated call counts again. `Stopped` while deletions are stopped. Callable
            /// by: `BlobWorker`.
            update increment_blob_deletion_retry(id: u64, max_retries: u32)
                -> BlobDeletionRetry, or BlobDeletionError: BLOB_WORKERS, 40;
            /// Leases rows whose height has come. Returns `null` if no row is due, and while deletions are stopped.
            /// There are at most 256 leases, and at most `max_leases_per_holder` of one caller. While the lease is
            /// live, the same caller with the same `request` gets the same lease again, and no other lease for it; with
            /// other arguments `OtherRequest`.
            /// Callable by: `BlobWorker`.
            update acquire_blob_deletion_batch(arg: AcquireBlobDeletions)
                -> Option<BlobDeletionLease>, or BlobDeletionError: BLOB_WORKERS, 4_904;
            /// Extends a lease of the caller until `lock_timeout_secs` from now, at most 43,200; 0 means 300. A lease
            /// that would expire later is unchanged. Returns the moment of expiry in Unix nanoseconds; a repeated call
            /// counts from its own time. `Stopped` while deletions are stopped, which ends all leases: the worker must
            /// begin no further request to a store. Callable by: `BlobWorker`.
            update extend_blob_deletion_batch(token: ByteBuf, lock_timeout_secs: u64)
                -> u64, or BlobDeletionError: BLOB_WORKERS, 102;
            /// Reports the outcome of leased rows, at most 2,000 numbers, and ends the lease once no number is
            /// `remaining`. The caller must hold the lease. Repeating the call that ended the lease returns the same
            /// answer. Earlier calls may also be repeated: rows that were handled are `already` done, and no failure
            /// counts twice. While deletions are stopped, the answer is `Stopped`, and completed rows are only marked
            /// (`reported_deleted`). Callable by: `BlobWorker`.
            update complete_blob_deletion_batch(arg: CompleteBlobDeletionBatch)
                -> CompletedBlobDeletions, or BlobDeletionError: BLOB_WORKERS, 32_210;
            /// Returns the status of the deletion queue. Callable by: anyone.
            query get_blob_deletion_status() -> BlobDeletionStatus: ANYONE, 12;
        }
        operation {
            /// Stops deletions, or starts them again. Only admins start them. While deletions are stopped, ticks and
            /// calls prune no block and no UTXO record, and workers get no blob to delete: all leases end, and workers'
            /// reports only mark rows. Rollbacks, resets, the expiry of uploads and sweeps of the indexes continue. The
            /// switch survives upgrades. Repeating the call changes nothing. Callable by: `Operator`, `Admin`.
            update set_deletions_stopped(stopped: bool) -> (), or DeletionsError: GUARDIANS, 16;
            /// Returns the settings in force. Callable by: anyone.
            query get_config() -> Config: ANYONE, 12;
            /// Changes settings. Absent fields are unchanged; repeating the call changes nothing. Callable by: `Admin`.
            update set_config(change: ConfigChange) -> Config, or ConfigError: ADMINS, 814;
            /// Grants a role. There are at most 256 grants. Granting a role again changes nothing. Callable by:
            /// `Admin`.
            update grant_role(grant: Grant) -> (), or RoleError: ADMINS, 218;
            /// Revokes a role, and returns whether it was granted. A registered exporter keeps its name and its bound,
            /// without a key, and continues to hold pruning; the leases of a blob worker end. A repeated call returns
            /// `false`. Callable by: `Admin`.
            update revoke_role(grant: Grant) -> bool: ADMINS, 218;
            /// Returns all granted roles. Controllers are also operators and admins. Callable by: anyone.
            query list_roles() -> Vec<Grant>: ANYONE, 12;
            /// Returns calls by which operators and admins changed something, or tried to, newest first; with a
            /// `cursor`, those before the entry with that number. A page has at most `limit` entries, and at most 250;
            /// a `limit` of 0 means 100. Callable by: `Observer`, `Operator`, `Admin`.
            query get_audit_log(cursor: Option<u64>, limit: u32) -> AuditPage: AUDITORS, 46;
            /// Returns lines of the canister's log, of one priority or of all, newest first; with a `cursor`, those
            /// before the line with that number. A page has at most `limit` lines, and at most 1,000; a `limit` of 0
            /// means 100. Callable by: `Observer`, `Operator`, `Admin`.
            query get_logs(priority: Option<LogPriority>, cursor: Option<u64>, limit: u32) -> LogPage: AUDITORS, 82;
            /// Returns the use of stable memory, and for a kept block the place of its payload. Callable by: anyone.
            query get_storage_status(block: Option<u64>) -> StorageStatus: ANYONE, 36;
            /// Returns the open uploads, of a block and of transactions. Callable by: anyone.
            query list_uploads() -> OpenUploads: ANYONE, 12;
            /// Returns the problems of the canister. Callable by: anyone.
            query health() -> Health: ANYONE, 12;
        }
        http {
            /// Serves HTTP requests. `/` is a status page, `/metrics` is for a Prometheus server, `/health` is JSON
            /// with status 200 or 503, `/logs` is the log as JSON if `public_logs` is set, otherwise status 403.
            /// Errors: 400 for an invalid parameter, 404 for another path, 405 for a method other than `GET` and
            /// `HEAD`, 414 for a `url` longer than 2,048 bytes. The answer of a query comes from one replica: its
            /// content is not certified. Callable by: anyone.
            query http_request(request: HttpRequest) -> HttpResponse: ANYONE, QUERY;
        }
        }
    };
}

macro_rules! table {
    ($($area:ident {
        $($(#[doc = $doc:literal])* $kind:ident $name:ident $args:tt -> $answer:ty $(, or $error:ty)?: $roles:ident, $largest:expr;)*
    })*) => {
        /// Every method of the interface.
        pub const TABLE: &[Method] = &[$($(
            Method {
                area: stringify!($area),
                name: stringify!($name),
                is_query: matches!(stringify!($kind).as_bytes(), b"query"),
                roles: $roles,
                largest: $largest,
            },
        )*)*];
    };
}
methods!(table);

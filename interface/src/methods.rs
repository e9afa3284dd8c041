//! Methods of the Candid interface, each declared once: kind, name, named arguments, answer, roles, largest argument, comment.
//!
//! `methods!` hands the list to a macro. [`TABLE`] is made from it, the canister's exports are, and so are the tests that hold
//! `candid/coppice.did` to it.

use crate::Role;
use crate::access::*;

/// Bytes of the longest ingress message of the platform, its envelope included, which has some 310 beside the argument.
pub const INGRESS: u64 = 2 << 20;

/// Bytes of the longest argument of a query that is called as an update; longer ones are called as queries only.
pub const QUERY: u64 = 10_000;

/// A method of the interface.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Name of the method.
    pub name: &'static str,
    /// Kind of the method: a query changes nothing.
    pub is_query: bool,
    /// Roles of which a caller has one; no role is asked for where there is none. Each update asks for one.
    pub roles: &'static [Role],
    /// Bytes of the largest argument that the ingress filter lets in.
    ///
    /// A message from outside costs the canister 2,000 cycles a byte, whatever it says. The limit is twice the longest argument that the
    /// client encodes for the method, so that callers whose encoder writes more are not refused, and [`INGRESS`] where a method takes
    /// payload. A test of the client encodes the longest arguments and compares.
    pub largest: u64,
}

impl Method {
    /// Returns whether only feeders call the method, whose messages are not limited.
    pub fn is_feeders(&self) -> bool {
        !self.is_query && self.roles.iter().all(|role| FEEDERS.contains(role))
    }
}

/// Hands all methods to a macro, by area: `area { #[doc = "…"] update name(argument: Type, …) -> Answer, or Error: ROLES,
/// largest; … }`. A method without `or` is never refused.
#[macro_export]
macro_rules! methods {
    ($callback:ident) => {
        $callback! {
        blocks {
            /// Appends a block in one message; a producer's. The argument has two megabytes at most. A block of more
            /// than 12,500 transactions and keys, or 100,000 while the index is small, answers `TooLarge`: larger
            /// blocks go through `begin_block`. An empty hash answers `BadEncoding`. Appending the same block again
            /// answers `Ok` and changes nothing, so a caller may repeat it when an answer was lost.
            update append_block(block: AppendBlock) -> (), or AppendError: BLOCK_PRODUCERS, INGRESS;
            /// Begins the upload of a block that is larger than a message; a producer's. One upload is open at a time;
            /// the block has 256 MiB at most, 16,384 chunks, and 100,000 transactions and keys. Beginning the same
            /// upload again answers its progress; of a block that is kept already, that nothing is missing. A
            /// `chunk_size` of 0 and an empty hash answer `BadEncoding`.
            update begin_block(block: BeginBlock) -> UploadProgress, or AppendError: BLOCK_PRODUCERS, 604;
            /// Stores a chunk of the open upload; for the producer that began it, or an operator. Chunks come in any
            /// order. The same chunk again answers `Ok`; other bytes under the same number are refused.
            update put_block_chunk(chunk: PutBlockChunk) -> UploadProgress, or UploadError: UPLOADERS, INGRESS;
            /// Makes the uploaded block the head, over as many calls as that takes; for the producer that began the
            /// upload, or an operator. `HasMore` asks for the same call again. Of a block that is kept already the
            /// answer is `Done`.
            update commit_block(block: BlockId) -> Commit, or UploadError: UPLOADERS, 128;
            /// Gives up the open upload of the block with this number, and says whether there was one; for the producer
            /// that began it, or an operator. What was entered of the block is taken out a slice a call, or by ticks:
            /// until then a repeated call answers `true`, and after that `false`.
            update abort_block(number: u64) -> bool, or UploadError: UPLOADERS, 30;
            /// Makes the block with this number the head, for a reorg. A producer may go as deep as
            /// `max_rollback_blocks`, an admin to the oldest kept block. One call does a bounded part: while
            /// `has_more`, the caller repeats it or lets ticks go on. Nobody may append meanwhile: ticks may bring the
            /// rollback to its end between two calls, and a repeated call takes out what was appended since. Rolling
            /// back to the head changes nothing.
            update rollback_to(number: u64) -> Rollback, or RollbackError: REVERTERS, 30;
            /// Empties the chain, which may then begin again with any number; an admin's. It asks for the hash of the
            /// head, and for `drop_unexported` where an exporter has not acknowledged all blocks. Ticks clear what was
            /// kept; until then appends answer `ResetUnderway`. A second call finds the chain empty and answers
            /// `Empty`.
            update reset_chain(reset: ResetChain) -> ChainReset, or ResetError: ADMINS, 114;
            /// The header of the newest block; for anyone. `NotFound` where there is no block yet.
            query get_head() -> BlockHeader, or ReadError: ANYONE, 12;
            /// A whole kept block; for anyone. One that is longer than a reply answers `TooLarge`: `read_segment` gives
            /// it in parts.
            query get_block(number: u64) -> Block, or ReadError: ANYONE, 30;
            /// The headers of kept blocks, the oldest first, from block `from` to block `to`, both included; for
            /// anyone. A page has at most 1,000 headers and less than 1 MiB; `next` continues it. The page ends at the
            /// head if `to` is above the head, and is empty if `from` is above `to`. Otherwise the block `from` answers
            /// `NotFound` above the head and on an empty chain, `Pruned`, or `Corrupt`. A
            /// later block that is damaged ends the page before it, and is its `next`.
            query get_block_headers(from: u64, to: u64) -> HeaderPage, or ReadError: ANYONE, 48;
            /// Bytes of a segment of a kept block: 0 body, 1 receipts, 2 index; for anyone. The answer has as many of
            /// the `length` bytes from `offset` on as there are and as a reply holds, some 2,000,000; a length of 0
            /// asks for none, and learns how long the segment is.
            query read_segment(number: u64, segment: u8, offset: u64, length: u64)
                -> SegmentPart, or ReadError: ANYONE, 70;
            /// The receipt of the newest kept transaction with this id; for anyone.
            query get_receipt(id: ByteBuf) -> Receipt, or ReadError: ANYONE, 84;
            /// Where the newest kept transaction with this id is; for anyone.
            query get_transaction_location(id: ByteBuf) -> TransactionLocation, or ReadError: ANYONE, 84;
            /// Transactions that have a secondary key, the newest first; for anyone. A page has `limit` transactions at
            /// most; 0 and more than 1,000: 1,000. A page may have fewer, even none, and a cursor: there is more while
            /// there is a cursor.
            query find_by_index_key(key: ByteBuf, cursor: Option<KeyCursor>, limit: u32)
                -> KeyPage, or KeyError: ANYONE, 370;
        }
        export {
            /// Registers an exporter and gives it the role `Exporter`; an operator's or an admin's. Nothing is pruned
            /// from then on that the exporter has not acknowledged. There are 100 exporters at most. Registering the
            /// same name with the same principal again changes nothing. Under a name whose key was revoked only an
            /// admin registers a principal, which goes on at the name's bound.
            update register_exporter(exporter: Exporter) -> (), or ExporterError: GUARDIANS, 170;
            /// Takes an exporter and its role out; an admin's. The last exporter takes `drop_guard` as well. A second
            /// call answers `Unknown`.
            update remove_exporter(which: RemoveExporter) -> (), or ExporterError: ADMINS, 110;
            /// Blocks in order, in chunks, from the cursor on, or from the oldest kept block where there is none; for
            /// anyone. A page has `max_bytes` of payload at most; 0: as many as a reply holds. Asking again with the
            /// same cursor is safe.
            query export_blocks(cursor: Option<ExportCursor>, max_bytes: u64)
                -> ExportPage, or ExportError: ANYONE, 222;
            /// Acknowledges all blocks up to the one with this number and hash: they may be pruned; for a registered
            /// exporter. Answers the number below which all blocks are acknowledged, which a lower or a repeated
            /// acknowledgement leaves as it is.
            update ack_exported(number: u64, hash: BlockHash) -> u64, or AckError: EXPORTERS, 102;
            /// How far all exporters are, and what they guard; for anyone.
            query get_export_status() -> ExportStatus: ANYONE, 12;
        }
        prune {
            /// Changes the policy by which blocks are pruned; an operator's. What is left out stays. A first policy
            /// switches pruning on. The same change again changes nothing.
            update set_prune_policy(change: PrunePolicyArg) -> PrunePolicyChange, or PruneError: OPERATORS, 500;
            /// One bounded run by hand, also where pruning is disabled, never past what exporters have not
            /// acknowledged; an operator's. It does `max_ops` at most, and 15,000; 0 is refused. Calling again goes on
            /// with what is left.
            update prune_now(max_ops: u64) -> PruneRun, or PruneError: OPERATORS, 30;
            /// Notes that an operator has seen the first `up_to` faults, and has what was set aside tried again where
            /// these are all; an operator's. Answers how many are acknowledged; 0 changes nothing, and so does a
            /// repeated call.
            update acknowledge_faults(up_to: u64) -> u64: OPERATORS, 30;
            /// What the next run would do, why, and what holds it back, under the policy in force, or with these
            /// changes of it; for anyone. Nothing is pruned.
            query plan_prune(change: Option<PrunePolicyArg>) -> PrunePlan, or PruneError: ANYONE, 500;
            /// Everything that an operator needs to see of the pruning of blocks; for anyone.
            query get_prune_status() -> PruneStatus: ANYONE, 12;
        }
        utxo {
            /// Creates records of transactions; a feeder's. The batch goes as far as one message does, and its items
            /// are independent of each other. A record that is there already answers `TxExists`, which is how a
            /// repeated call shows. Below `feed_min_liquid_cycles` each item answers `LowCycles`.
            update utxo_create(arg: UtxoCreateBatch)
                -> Batch<Result<UtxoCreated, UtxoCreateError>>: UTXO_FEEDERS, INGRESS;
            /// Spends outputs, each transaction's all or none; a feeder's. The batch goes as far as one message does.
            /// Spending again with the same spender answers `Ok` and counts nothing, but is refused where since then
            /// the output was frozen, its transaction was locked or marked as conflicting, or its record or the
            /// spender's was pruned.
            update utxo_spend(arg: UtxoSpendBatch) -> Batch<Result<u32, Vec<RefusedSpend>>>: UTXO_FEEDERS, INGRESS;
            /// Takes spends back; a feeder's. The batch goes as far as one message does. Answers whether the named
            /// spender held the output: a repeated call answers `false`.
            update utxo_unspend(arg: UtxoUnspendBatch) -> Batch<Result<bool, UtxoError>>: UTXO_FEEDERS, 1_070_154;
            /// Notes that a block has transactions, or has them no more; a feeder's. The batch goes as far as one
            /// message does. Answers the ids of the blocks that have the transaction now; repeating the call changes
            /// nothing.
            update utxo_set_mined(arg: UtxoSetMinedBatch) -> Batch<Result<Vec<u32>, UtxoError>>: UTXO_FEEDERS, 370_156;
            /// Notes whether the blocks of transactions are on the longest chain; a feeder's. The batch goes as far as
            /// one message does; repeating the call changes nothing.
            update utxo_set_on_longest_chain(arg: UtxoSetOnLongestChainBatch)
                -> Batch<Result<(), UtxoError>>: UTXO_FEEDERS, 330_074;
            /// Locks transactions, whose outputs cannot be spent then, or unlocks them; a feeder's. The batch goes as
            /// far as one message does; repeating the call changes nothing.
            update utxo_set_locked(arg: UtxoSetLockedBatch) -> Batch<Result<(), UtxoError>>: UTXO_FEEDERS, 330_074;
            /// Freezes outputs, or all outputs of a transaction; for the role `Alert`. The batch goes as far as one
            /// message does. Answers how many were frozen; what is frozen already answers `AlreadyFrozen`.
            update utxo_freeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>>: ALERTS, 720_108;
            /// Unfreezes outputs, or all outputs of a transaction; for the role `Alert`. The batch goes as far as one
            /// message does. Answers how many were unfrozen; what is not frozen answers `UtxoNotFrozen`.
            update utxo_unfreeze(arg: UtxoFreezeBatch) -> Batch<Result<u32, UtxoError>>: ALERTS, 720_108;
            /// Gives frozen outputs a new owner; for the role `Alert`. The batch goes as far as one message does.
            /// Answers the height from which the output is spendable; until then a spend answers `FrozenUntil`. With
            /// the output's own hash as the new one, the owner stays: so an output is frozen until a height. A repeated
            /// call answers `UtxoHashMismatch`, as the output has its new hash, or `UtxoNotFrozen`, where that is the
            /// old one.
            update utxo_reassign(arg: UtxoReassignBatch) -> Batch<Result<u32, UtxoError>>: ALERTS, 1_030_128;
            /// Marks transactions as double spends, with all that spends from them; a feeder's. The batch goes as far
            /// as one message does, and so does an item: it is repeated while it has more. Repeating one that is done
            /// marks nothing and answers what the named transaction holds.
            update utxo_set_conflicting(arg: UtxoSetConflictingBatch)
                -> Batch<Result<Conflict, UtxoError>>: UTXO_FEEDERS, 330_060;
            /// Has conflicting transactions win over those that they conflict with, all of them or none; a feeder's.
            /// The call goes as far as one message does, and is repeated while it has more. One that is done answers
            /// `NotConflicting`, as the winners are conflicting no more. Transactions of which losers held outputs are
            /// unlocked, whoever locked them.
            update utxo_process_conflicting(arg: UtxoProcessConflicting)
                -> ConflictResolution, or ConflictError: UTXO_FEEDERS, 330_060;
            /// Keeps records from being pruned until a height; a feeder's. The batch goes as far as one message does.
            /// Answers whether there is such a record; repeating the call changes nothing.
            update utxo_preserve(arg: UtxoPreserveBatch) -> Batch<Result<bool, UtxoError>>: UTXO_FEEDERS, 330_062;
            /// Begins the upload of a transaction that is longer than a message, 32 MiB at most; a feeder's, who has
            /// one open, as 64 feeders may at a time. The same upload begun again answers its progress. `utxo_create`
            /// with `Uploaded` makes the record.
            update utxo_begin_transaction(arg: BeginTransaction)
                -> UploadProgress, or TransactionUploadError: UTXO_FEEDERS, 148;
            /// Stores a chunk of the caller's upload, in any order; a feeder's. The same chunk again answers `Ok`;
            /// other bytes under the same number are refused.
            update utxo_put_transaction_chunk(arg: PutTransactionChunk)
                -> UploadProgress, or TransactionUploadError: UTXO_FEEDERS, INGRESS;
            /// Gives up the caller's upload of a transaction, and says whether there was one; a feeder's. Repeating the
            /// call is safe: it answers `false`.
            update utxo_abort_transaction(txid: Txid) -> bool, or TransactionUploadError: UTXO_FEEDERS, 84;
            /// A record, with as many of its outputs' entries as are asked for, 5,000 at most; for anyone. A limit of 0
            /// asks for none.
            query utxo_get(arg: UtxoGet) -> UtxoRecord, or UtxoError: ANYONE, 156;
            /// Bytes of a record's transaction, or of what its inputs spend, as many as are asked for and as a reply holds;
            /// for anyone. A length of 0 asks for none, and answers how long the whole is.
            query utxo_get_transaction(arg: UtxoGetPart) -> TransactionPart, or UtxoError: ANYONE, 190;
            /// Whether outputs can be spent at a height, and who spends them; for anyone. 5,000 outputs at most.
            query utxo_get_spend(arg: UtxoGetSpend) -> Vec<UtxoSpendState>, or UtxoError: ANYONE, QUERY;
            /// Transactions that the longest chain does not have, from the cursor on, the oldest first; for anyone. A
            /// page has `limit` transactions at most; 0 and more than 2,000: 2,000. There is more while there is a
            /// cursor.
            query utxo_list_unmined(cursor: Option<UnminedCursor>, limit: u32)
                -> UnminedPage, or UtxoError: ANYONE, 144;
        }
        records {
            /// Says that blocks up to this height are persisted, and schedules the pruning of what is due; a feeder's,
            /// as far as `max_height_jump` and `heights_per_day` let it raise the height, or an operator's; 0 is
            /// refused. The same height again answers what became of it.
            update utxo_notify_block_persisted(height: u32) -> UtxoNotifyOutcome, or UtxoPrunerError: UTXO_FEEDERS, 22;
            /// Says that a block of this height was validated, and whether its transactions are marked as mined; a
            /// feeder's, as far as `max_height_jump` and `heights_per_day` let it raise the height, or an operator's; 0
            /// is refused. It schedules pruning while nothing was ever persisted. The same height again answers what
            /// became of it.
            update utxo_notify_block(height: u32, mined_set: bool)
                -> UtxoNotifyOutcome, or UtxoPrunerError: UTXO_FEEDERS, 26;
            /// Says whether the block assembly runs: records are pruned only then; a feeder's. Repeating the call
            /// changes nothing.
            update utxo_set_block_assembly_state(assembly: UtxoBlockAssemblyState) -> (): UTXO_FEEDERS, 44;
            /// Prunes records as if the chain were at this height at once, over as many ticks as that takes, also where
            /// the timer is switched off; an operator's. The block assembly has to run. 0 is refused, and a height
            /// above the highest that was notified, if one was. Calling again finds what is left.
            update utxo_prune(height: u32) -> UtxoPruneJob, or UtxoPrunerError: OPERATORS, 22;
            /// Sets the heights by which records are pruned, in whichever direction; an operator's. A height of 0 is
            /// the one before any was notified, or pruned. Producers may raise them by `max_height_jump` again. Jobs
            /// that wait or run are cancelled, and one is made for what is due, by a repeated call as well.
            update utxo_set_heights(heights: UtxoSetHeights) -> UtxoHeightsSet, or UtxoPrunerError: OPERATORS, 84;
            /// Cancels the job with this number while it waits or runs; an operator's. A second call answers `NotOpen`.
            update utxo_cancel_prune_job(id: u64) -> UtxoPruneJob, or UtxoPrunerError: OPERATORS, 30;
            /// Changes the settings by which records are pruned; an operator's. What is left out stays; repeating the
            /// call changes nothing.
            update utxo_set_pruner_settings(change: UtxoPrunerSettingsChange)
                -> UtxoPrunerSettings, or UtxoPrunerError: OPERATORS, 600;
            /// Sets aside the unmined record in this slot, which cannot be read and stops pruning; or, with `aside = false`,
            /// lets the pruner look again at a record that is set aside or skipped. An operator's. At most 100 records
            /// are set aside. A repeated call changes nothing; without a record to look at again it answers
            /// `NotBlocking`.
            update utxo_set_aside(slot: u32, aside: bool) -> (), or UtxoPrunerError: OPERATORS, 24;
            /// Everything that an operator needs to see of the pruning of records; for anyone.
            query utxo_get_pruner_status() -> UtxoPrunerStatus: ANYONE, 12;
            /// Jobs that wait or run, then those that ended, the last first, from the cursor on; for anyone. A page has
            /// `limit` jobs at most, and 500; 0: 100. There is more while there is a cursor.
            query utxo_list_prune_jobs(cursor: Option<u64>, limit: u32) -> UtxoPruneJobPage: ANYONE, 46;
        }
        deletion {
            /// Rows that wait and whose height is this one or lower, by height; for anyone. `limit` rows at most, and
            /// 1,000; 0: 100. Rows that `selectors` name; all rows without them. None while deletions are stopped.
            query get_pending_blob_deletions(height: u32, limit: u32, selectors: Option<Vec<BlobSelector>>)
                -> Vec<BlobDeletion>: ANYONE, 4_630;
            /// Says what became of deletions that were not leased; a blob worker's. 10,000 numbers at most; those that
            /// the message had no room for are `remaining`. A repeated call finds what was completed `already` done;
            /// what failed counts again.
            update complete_blob_deletions(arg: CompleteBlobDeletions)
                -> CompletedBlobDeletions, or BlobDeletionError: BLOB_WORKERS, 160_098;
            /// Has dead letters tried again from the start, as many as the message has room for; an operator's. A
            /// repeated call goes on with those that are `remaining`.
            update retry_blob_deletions(arg: RetryBlobDeletions)
                -> RetriedBlobDeletions, or BlobDeletionError: OPERATORS, 160_122;
            /// Ends the live leases of a principal, and says how many; an operator's. Their rows come back after a
            /// quarter of the lease's time, the longest that a request for a blob may take. `revoke_role` does the same
            /// to a blob worker. A repeated call answers 0.
            update end_blob_deletion_leases(holder: Principal) -> u64: OPERATORS, 76;
            /// Schedules the deletion of a blob that no record names; a feeder's or an operator's. A row that is there
            /// already keeps its number, gets the height, and is tried from the start, also where it was leased, as
            /// often as the call is repeated.
            update schedule_blob_deletion(arg: ScheduleBlobDeletion)
                -> ScheduledBlobDeletion, or BlobDeletionError: SCHEDULERS, 2_286;
            /// Takes a blob's row out of the queue, and says whether there was one; a feeder's or an operator's. A
            /// repeated call answers `false`.
            update cancel_blob_deletion(name: BlobName) -> bool, or BlobDeletionError: SCHEDULERS, 2_250;
            /// Rows of the queue, by number, as far as they answer to what is asked; for anyone. A call looks at 10,000
            /// rows at most: there is more while there is a cursor.
            query list_blob_deletions(arg: ListBlobDeletions) -> BlobDeletionList: ANYONE, 294;
            /// Takes a row out of the queue, with the record that waits for it, and says whether it is gone; a blob
            /// worker's. `false`: there is no such row, its height is above `up_to_height`, or it stays, given up, for
            /// the record that goes with it. A repeated call answers `false`.
            update remove_blob_deletion(id: u64, up_to_height: Option<u32>)
                -> bool, or BlobDeletionError: BLOB_WORKERS, 46;
            /// Counts a failure of a row that is not leased, and gives it up at `max_retries`, of which 0 means 1; a
            /// blob worker's. A repeated call counts again.
            update increment_blob_deletion_retry(id: u64, max_retries: u32)
                -> BlobDeletionRetry, or BlobDeletionError: BLOB_WORKERS, 40;
            /// Leases rows whose height has come; a blob worker's. None where nothing is due, and while deletions are
            /// stopped. There are 256 leases at most, and `max_leases_per_holder` of one caller. The same caller with
            /// the same `request` gets the same lease again while it is live, and no other one for it.
            update acquire_blob_deletion_batch(arg: AcquireBlobDeletions)
                -> Option<BlobDeletionLease>, or BlobDeletionError: BLOB_WORKERS, 4_904;
            /// Has a lease expire so many seconds from now, 43,200 at most; 0: 300; a lease that would expire later
            /// stays as it is. For its holder, a blob worker. Answers the moment in Unix nanoseconds; a repeated call
            /// counts from its own time. Refused while deletions are stopped: leases run out, and are completed until
            /// then.
            update extend_blob_deletion_batch(token: ByteBuf, lock_timeout_secs: u64)
                -> u64, or BlobDeletionError: BLOB_WORKERS, 102;
            /// Says what became of leased rows, 2,000 numbers at most, and ends the lease once nothing is `remaining`;
            /// for its holder, a blob worker. A repeated call is answered as the one that ended the lease; before that
            /// it finds `already` done what was dealt with, and counts no failure twice.
            update complete_blob_deletion_batch(arg: CompleteBlobDeletionBatch)
                -> CompletedBlobDeletions, or BlobDeletionError: BLOB_WORKERS, 32_210;
            /// Everything that an operator needs to see of the queue; for anyone.
            query get_blob_deletion_status() -> BlobDeletionStatus: ANYONE, 12;
        }
        operation {
            /// Stops deletions, or starts them again; operators and admins stop them, only admins start them. While
            /// deletions are stopped, ticks and calls prune no block and no UTXO record, and workers get no blob to
            /// delete; rollbacks, resets, the expiry of uploads and sweeps of the indexes continue. The switch survives
            /// upgrades. Repeating the call changes nothing.
            update set_deletions_stopped(stopped: bool) -> (), or DeletionsError: GUARDIANS, 16;
            /// The settings in force; for anyone.
            query get_config() -> Config: ANYONE, 12;
            /// Changes settings; an admin's. What is left out stays; repeating the call changes nothing.
            update set_config(change: ConfigChange) -> Config, or ConfigError: ADMINS, 814;
            /// Grants a role; an admin's. 256 grants at most. A role that is granted already stays granted.
            update grant_role(grant: Grant) -> (), or RoleError: ADMINS, 218;
            /// Takes a role back, and says whether it was granted; an admin's. The name and the bound of a registered
            /// exporter stay, without a key, and hold pruning; the leases of a blob worker end. A repeated call answers
            /// `false`.
            update revoke_role(grant: Grant) -> bool: ADMINS, 218;
            /// All roles that were granted; for anyone. Controllers are operators and admins besides.
            query list_roles() -> Vec<Grant>: ANYONE, 12;
            /// Calls by which operators and admins changed something, or tried to, the newest first, from before the
            /// entry with the number `cursor`; for observers, operators and admins. A page has `limit` entries at most,
            /// and 250; 0: 100.
            query get_audit_log(cursor: Option<u64>, limit: u32) -> AuditPage: AUDITORS, 46;
            /// The lines of the canister's log of a priority, or of all, the newest first, from before the line with
            /// the number `cursor`; for observers, operators and admins. A page has `limit` lines at most, and 1,000;
            /// 0: 100.
            query get_logs(priority: Option<LogPriority>, cursor: Option<u64>, limit: u32) -> LogPage: AUDITORS, 82;
            /// Where the bytes of stable memory are, and, for a kept block, where its payload lies; for anyone.
            query get_storage_status(block: Option<u64>) -> StorageStatus: ANYONE, 48;
            /// Uploads that are open, of a block and of transactions; for anyone.
            query list_uploads() -> OpenUploads: ANYONE, 12;
            /// Whether all is well, and what is not; for anyone.
            query health() -> Health: ANYONE, 12;
        }
        http {
            /// Answers an HTTP request; for anyone. `/` is a page that shows how the canister is, `/metrics` what a
            /// Prometheus server scrapes, `/health` JSON with status 200 or 503, `/logs` the log as JSON where
            /// `public_logs` is set, else status 403; 400 is a parameter that makes no sense, 404 another path, 405
            /// another method than `GET` and `HEAD`, 414 a longer `url` than 2,048 bytes. A query's answer is one
            /// replica's: its content is not certified.
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
                name: stringify!($name),
                is_query: matches!(stringify!($kind).as_bytes(), b"query"),
                roles: $roles,
                largest: $largest,
            },
        )*)*];
    };
}
methods!(table);

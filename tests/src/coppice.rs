//! One canister on an Internet Computer for tests, and the calls that tests make most often.

use crate::blocks;
use crate::client::{Answered, OnIc};
use crate::wasm;
use candid::utils::ArgumentEncoder;
use candid::{CandidType, Principal, encode_one};
use coppice_ic::{Ic, Reject};
use ic_coppice_client::{Client, KeyPager};
use ic_coppice_host::Host;
use ic_coppice_interface::*;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::time::Duration;

/// Small log blobs, so that few blocks fill one.
pub const LOG_CLASS: u32 = 64 << 10;

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The canister's controller, an operator and an admin.
    Controller,
    /// Has the role `Producer`.
    Producer,
    /// Exports, if a test registers it ([`Coppice::register`]).
    Exporter,
    /// Exports, if a test registers it.
    Archive,
    /// Has the role `Alert`, if a test grants it.
    Alert,
    /// Has no role.
    Stranger,
    /// The anonymous principal.
    Anonymous,
    /// Has the role `BlobWorker`, if a test grants it.
    BlobWorker,
    /// Has the role `Operator`, if a test grants it.
    Operator,
    /// Has the role `Observer`, if a test grants it.
    Observer,
    /// Has the role `Admin`, if a test grants it.
    Admin,
    /// Has the role `Producer`, if a test grants it.
    Rival,
}

impl Who {
    /// The name of this caller as an exporter.
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// Its principal.
    pub fn principal(self) -> Principal {
        match self {
            Self::Anonymous => Principal::anonymous(),
            who => Principal::self_authenticating([who as u8; 32]),
        }
    }
}

/// A canister under test.
pub struct Coppice {
    /// The Internet Computer that it runs on.
    pub ic: Box<dyn Ic>,
    /// Its id.
    pub id: Principal,
}

/// Encodes the argument of an installation.
pub fn init_arg(arg: InitArg) -> Vec<u8> {
    encode_one(Some(CanisterArg::Init(arg))).expect("encodes")
}

/// The argument that [`Coppice::new`] installs with.
pub fn default_arg() -> InitArg {
    InitArg { log_class: Some(LOG_CLASS), producers: vec![Who::Producer.principal()], ..InitArg::default() }
}

impl Default for Coppice {
    fn default() -> Self {
        Self::new()
    }
}

/// A page of dead-letter rows.
pub struct DeadRows {
    /// The rows, by number.
    pub rows: Vec<BlobDeletion>,
    /// The cursor of the next page.
    pub cursor: Option<u64>,
}

/// Class bytes of the blobs: of the log, of uploads, of transactions.
pub fn blob_bytes(storage: &StorageStatus) -> u64 {
    let blobs = [Owner::Chain, Owner::Upload, Owner::External];
    storage.owners.iter().filter(|of| blobs.contains(&of.owner)).map(|of| of.kept_bytes).sum()
}

impl Coppice {
    /// A new canister with small log blobs.
    pub fn new() -> Self {
        Self::with(default_arg())
    }

    /// A new canister.
    pub fn with(arg: InitArg) -> Self {
        Self::on(coppice_ic::ic(), arg)
    }

    /// A new canister on the embedded host, for tests that need its faults and counters.
    pub fn embedded(arg: InitArg) -> (Self, Arc<Host>) {
        let (ic, host) = coppice_ic::embedded();
        (Self::on(ic, arg), host)
    }

    fn on(ic: Box<dyn Ic>, arg: InitArg) -> Self {
        let coppice = Self::just_installed(ic, arg);
        coppice.await_ready();
        coppice
    }

    /// A new canister of the build without UTXO records.
    pub fn of_blocks(arg: InitArg) -> Self {
        let coppice = Self::installed(coppice_ic::ic(), wasm::blocks_canister(), arg);
        coppice.await_ready();
        coppice
    }

    /// A new canister that has not drawn its hash key yet.
    pub fn just_installed(ic: Box<dyn Ic>, arg: InitArg) -> Self {
        Self::installed(ic, wasm::canister(), arg)
    }

    fn installed(ic: Box<dyn Ic>, wasm: Vec<u8>, arg: InitArg) -> Self {
        let id = ic.create_canister(Who::Controller.principal());
        ic.install(id, wasm, init_arg(arg), Who::Controller.principal());
        Self { ic, id }
    }

    /// Waits until the canister has drawn its hash key.
    ///
    /// # Panics
    /// If it draws none.
    pub fn await_ready(&self) {
        let is_ready = || !self.health().problems.iter().any(|problem| problem.code == ProblemCode::NotReady);
        let mut rounds = 0..100;
        while !is_ready() {
            assert!(rounds.next().is_some(), "no hash key is drawn");
            self.ic.tick();
        }
    }

    /// The client with `who` as the caller.
    pub fn by(&self, who: Who) -> Client<OnIc<'_>> {
        Client::new(OnIc { ic: &*self.ic, canister: self.id, sender: who.principal() })
    }

    /// The client with the producer as the caller.
    pub fn producer(&self) -> Client<OnIc<'_>> {
        self.by(Who::Producer)
    }

    /// The client with the controller, an operator and an admin, as the caller.
    pub fn operator(&self) -> Client<OnIc<'_>> {
        self.by(Who::Controller)
    }

    /// The client with the anonymous principal as the caller.
    pub fn anyone(&self) -> Client<OnIc<'_>> {
        self.by(Who::Anonymous)
    }

    /// An update by `who` of a method by its name, for tests that go through many methods.
    ///
    /// # Errors
    /// The reject of the Internet Computer.
    pub fn call<R: DeserializeOwned + CandidType>(
        &self,
        who: Who,
        method: &str,
        args: impl ArgumentEncoder,
    ) -> Result<R, Reject> {
        self.by(who).update::<_, R>(method, args).try_answer()
    }

    /// `append_block`.
    pub fn append(&self, block: &AppendBlock) -> Result<(), AppendError> {
        self.producer().append_block(block).answer()
    }

    /// Appends plain blocks `[from, to)`, each with a body of `body` bytes and three transactions.
    pub fn append_plain(&self, range: std::ops::Range<u64>, body: usize) {
        for number in range {
            self.append(&blocks::plain(number, 3, body)).unwrap_or_else(|error| panic!("block {number}: {error:?}"));
        }
    }

    /// Uploads a whole block in chunks of `chunk_size` bytes; the client would choose its own size.
    pub fn upload(&self, block: &AppendBlock, chunk_size: usize) -> Result<(), UploadError> {
        let (begin, chunks) = blocks::upload(block, chunk_size);
        self.producer().begin_block(&begin).answer()?;
        for (chunk, bytes) in chunks.into_iter().enumerate() {
            self.put(block.number, chunk as u32, bytes)?;
        }
        self.producer().commit(&blocks::block_id(block)).answer()
    }

    /// Returns a page of the dead-letter rows of `list_blob_deletions`, and its cursor.
    pub fn dead_rows(&self, cursor: Option<u64>, limit: u32) -> DeadRows {
        let state = Some(BlobDeletionState::Dead);
        let arg = ListBlobDeletions { cursor, limit, state, ..ListBlobDeletions::default() };
        let page = self.anyone().list_blob_deletions(&arg).answer();
        DeadRows { rows: page.rows.into_iter().map(|listed| listed.row).collect(), cursor: page.cursor }
    }

    /// `put_block_chunk`.
    pub fn put(&self, number: u64, chunk: u32, bytes: Vec<u8>) -> Result<UploadProgress, UploadError> {
        self.producer().put_block_chunk(&PutBlockChunk { number, chunk, bytes: ByteBuf::from(bytes) }).answer()
    }

    /// `register_exporter`, with the caller's name.
    ///
    /// # Panics
    /// If it is refused.
    pub fn register(&self, who: Who) {
        let exporter = Exporter { name: who.name(), principal: who.principal() };
        self.operator().register_exporter(&exporter).answer().expect("registers");
    }

    /// `remove_exporter`.
    pub fn remove_exporter(&self, who: Who, drop_guard: bool) -> Result<(), ExporterError> {
        self.operator().remove_exporter(&RemoveExporter { name: who.name(), drop_guard }).answer()
    }

    /// `ack_exported`.
    pub fn ack(&self, who: Who, number: u64, hash: &[u8]) -> Result<u64, AckError> {
        self.by(who).ack_exported(number, &hash.into()).answer()
    }

    /// `export_blocks`.
    pub fn export(&self, cursor: Option<ExportCursor>, max_bytes: u64) -> Result<ExportPage, ExportError> {
        self.anyone().export_blocks(cursor, max_bytes).answer()
    }

    /// `get_export_status`.
    pub fn export_status(&self) -> ExportStatus {
        self.anyone().get_export_status().answer()
    }

    /// `grant_role`.
    ///
    /// # Panics
    /// If it is refused.
    pub fn grant(&self, who: Who, role: Role) {
        self.operator().grant_role(&Grant { principal: who.principal(), role }).answer().expect("grants");
    }

    /// `set_config`.
    ///
    /// # Panics
    /// If it is refused.
    pub fn configure(&self, change: ConfigChange) -> Config {
        self.operator().set_config(&change).answer().expect("the settings make sense")
    }

    /// Keeps all timers except the safety timer from firing: without this, a timer that is due may fire between any two calls.
    pub fn hold_timers(&self) {
        let (min_liquid_cycles, feed_min_liquid_cycles) = (Some(u128::MAX), Some(1));
        self.configure(ConfigChange { min_liquid_cycles, feed_min_liquid_cycles, ..ConfigChange::default() });
    }

    /// Ends [`Coppice::hold_timers`].
    pub fn release_timers(&self) {
        let Config { min_liquid_cycles, feed_min_liquid_cycles, .. } = Config::default();
        let (min_liquid_cycles, feed_min_liquid_cycles) = (Some(min_liquid_cycles), Some(feed_min_liquid_cycles));
        self.configure(ConfigChange { min_liquid_cycles, feed_min_liquid_cycles, ..ConfigChange::default() });
    }

    /// `plan_prune`, by the policy in force.
    pub fn plan(&self) -> Result<PrunePlan, PruneError> {
        self.plan_with(None)
    }

    /// `plan_prune`.
    pub fn plan_with(&self, change: Option<PrunePolicyArg>) -> Result<PrunePlan, PruneError> {
        self.anyone().plan_prune(change).answer()
    }

    /// `set_prune_policy`, with a tick a minute unless the change has another interval. Returns the new policy.
    pub fn set_policy(&self, change: PrunePolicyArg) -> Result<PrunePolicy, PruneError> {
        let timer_interval_secs = change.timer_interval_secs.or(Some(60));
        let change = PrunePolicyArg { timer_interval_secs, ..change };
        self.operator().set_prune_policy(&change).answer().map(|change| change.new)
    }

    /// `prune_now`.
    pub fn prune_now(&self, max_ops: u64) -> PruneRun {
        self.operator().prune_now(max_ops).answer().expect("a policy is set")
    }

    /// `get_prune_status`.
    pub fn prune_status(&self) -> PruneStatus {
        self.anyone().get_prune_status().answer()
    }

    /// `health`, without the problems of settings that a test does not set up.
    pub fn health(&self) -> Health {
        let mut health = self.anyone().health().answer();
        health.problems.retain(|problem| !problem.known().is_some_and(ProblemCode::is_of_set_up));
        health
    }

    /// The body of the response to a query for a page.
    ///
    /// # Panics
    /// If it is not text.
    pub fn page(&self, url: &str) -> String {
        let (headers, body) = (Vec::new(), ByteBuf::new());
        let request = HttpRequest { method: "GET".into(), url: url.into(), headers, body, certificate_version: None };
        String::from_utf8(self.anyone().http_request(&request).answer().body.into_vec()).expect("text")
    }

    /// `get_storage_status`.
    pub fn storage(&self) -> StorageStatus {
        self.anyone().get_storage_status(None).answer()
    }

    /// `get_block`.
    pub fn block(&self, number: u64) -> Result<Block, ReadError> {
        self.anyone().get_block(number).answer()
    }

    /// `get_transaction_location`, as block number and position.
    pub fn location(&self, id: [u8; 32]) -> Result<(u64, u32), ReadError> {
        self.anyone()
            .get_transaction_location(ByteBuf::from(id))
            .answer()
            .map(|found| (found.block_number, found.position))
    }

    /// `find_by_index_key`.
    pub fn find(&self, key: &[u8], cursor: Option<&KeyCursor>, limit: u32) -> Result<KeyPage, KeyError> {
        self.anyone().find_by_index_key(ByteBuf::from(key), cursor.cloned(), limit).answer()
    }

    /// All transactions with a secondary key, as block numbers and positions, from pages of `limit`.
    ///
    /// # Panics
    /// If a page is refused.
    pub fn find_all(&self, key: &[u8], limit: u32) -> Vec<(u64, u32)> {
        let all = KeyPager::new(key, limit).all(&self.anyone()).answer();
        let all = all.unwrap_or_else(|error| panic!("{key:?}: {error:?}"));
        all.iter().map(|found| (found.block_number, found.position)).collect()
    }

    /// The head's number.
    pub fn head(&self) -> Option<u64> {
        match self.anyone().get_head().answer() {
            Ok(head) => Some(head.number),
            Err(ReadError::NotFound) => None,
            Err(error) => panic!("get_head: {error:?}"),
        }
    }

    /// Lets time pass and the due timers fire.
    pub fn pass(&self, secs: u64) {
        self.ic.advance_time(Duration::from_secs(secs));
        // A firing takes three messages, and one round may run only one of them. A firing that is long overdue because time has jumped only
        // notes that, and a second firing follows.
        for _ in 0..if secs > 60 { 9 } else { 5 } {
            self.ic.tick();
        }
    }

    /// Lets time pass and the timers fire until the daemon has nothing left to prune.
    pub fn settle(&self, secs: u64) {
        self.pass(secs);
        let left = |status: &PruneStatus| status.enabled && status.prune_cursor.is_some();
        for _ in 0..10_000 {
            if !left(&self.prune_status()) {
                return;
            }
            self.ic.tick();
        }
        panic!("the daemon does not get done: {:?}", self.prune_status());
    }

    /// Upgrades to the same wasm as an operator does: with the canister stopped, so that no call is in flight.
    pub fn upgrade(&self) {
        self.upgrade_with(None).unwrap_or_else(|reject| panic!("upgrade: {reject:?}"));
    }

    /// Upgrades to the same wasm with an argument.
    pub fn upgrade_with(&self, arg: Option<CanisterArg>) -> Result<(), Reject> {
        self.upgrade_to(wasm::canister(), arg)
    }

    /// Upgrades to another wasm, with an argument.
    pub fn upgrade_to(&self, wasm: Vec<u8>, arg: Option<CanisterArg>) -> Result<(), Reject> {
        let controller = Who::Controller.principal();
        self.ic.stop(self.id, controller)?;
        let arg = encode_one(arg).expect("encodes");
        let upgraded = self.ic.upgrade(self.id, wasm, arg, controller);
        self.ic.start(self.id, controller)?;
        upgraded
    }

    /// All blocks that the interface returns, to compare two canisters or two moments.
    pub fn chain(&self) -> Vec<Block> {
        let Some(head) = self.head() else { return Vec::new() };
        let oldest = self.prune_status().pruned_before_block;
        (oldest..=head).map(|number| self.block(number).unwrap_or_else(|e| panic!("block {number}: {e:?}"))).collect()
    }
}

//! The real store, as the histories see it.

use super::{Answer, Op, Store};
use crate::platform::native;
use crate::storage::blob::{BlobStore, Owner};
use crate::storage::memory::{self, BUCKET, cell};
use crate::utxo::model::{Hash, Indexes};
use crate::utxo::{Call, LastUnspent, Order, UtxoStore};
use candid::Principal;
use coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Who uploads, and sends the messages.
const BY: Principal = Principal::anonymous();

/// The store, over a stable memory of its own.
pub struct Real {
    store: UtxoStore,
    blobs: BlobStore,
}

fn open() -> Real {
    let pages = memory::max_pages();
    memory::forget();
    memory::set_max_pages(pages);
    let cells = Rc::new(memory::region(memory::CELLS));
    cells.reserve(cell::END).unwrap();
    Real { blobs: BlobStore::open().unwrap(), store: UtxoStore::open(cells, 3).unwrap() }
}

impl Real {
    /// An empty one. There is one at a time.
    pub fn new() -> Self {
        native::reset();
        memory::set_max_pages(u64::MAX);
        open()
    }

    /// One for which memory cannot be grown any more, and whose records have `slack` bytes left.
    pub fn full(slack: u64) -> Self {
        let mut real = Self::new();
        real.fill(slack);
        real
    }

    /// Takes all memory but `slack` bytes, and has none grown any more.
    pub fn fill(&mut self, slack: u64) {
        let slack = slack + self.store.slots.spare();
        while BUCKET - self.end() >= slack + 64 {
            let length = (BUCKET - self.end() - slack).min(1 << 20) as u32 / 5 * 4;
            self.store.slots.allocate(length.max(16)).unwrap();
        }
        memory::set_max_pages(memory::billed_pages());
    }

    /// Where the slots end.
    fn end(&self) -> u64 {
        let stats = self.store.slots.stats();
        4096 + stats.used_bytes + stats.free_bytes
    }

    /// Every byte of every slot, if that is not too much.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.end() < 2 << 20 {
            memory::region(memory::UTXO_SLOTS).read_onto(&mut bytes, 0, self.end() as usize);
        }
        bytes
    }

    fn answer(&mut self, op: &Op, call: &super::Call) -> Answer {
        let Self { store, blobs } = self;
        let call = &Call { height: call.height, now_ns: call.now_ns, settings: &call.settings, most: call.most };
        let seconds = call.now_ns / 1_000_000_000;
        match op {
            Op::Create(item) => Answer::Created(store.create(blobs, item, call)),
            Op::Spend(item) => Answer::Spent(store.spend(item, call)),
            Op::Unspend(item) => {
                let mut last = LastUnspent::default();
                let answer = store.unspend(item, call, &mut last);
                store.unspent(call, &mut last);
                Answer::Flag(answer)
            }
            Op::SetMined(of) => Answer::Blocks(store.set_mined(of, &of.items[0], call)),
            Op::OnLongestChain(txid, is) => Answer::Done(store.set_on_longest_chain(txid, *is, call)),
            Op::SetLocked(txid, locked) => Answer::Done(store.set_locked(txid, *locked, call)),
            Op::Freeze(target) => Answer::Count(store.set_frozen(target, true, call)),
            Op::Unfreeze(target) => Answer::Count(store.set_frozen(target, false, call)),
            Op::Reassign(item) => Answer::Count(store.reassign(item, call)),
            Op::SetConflicting(txid) => Answer::Conflict(store.set_conflicting(txid, call)),
            Op::ProcessConflicting(winners) => {
                let arg = UtxoProcessConflicting { height: call.height, winners: winners.clone() };
                Answer::Resolved(store.process_conflicting(&arg, call))
            }
            Op::Preserve(txid, until) => Answer::Flag(store.preserve(txid, *until)),
            Op::Delete(txid) => Answer::Count(store.delete_by_id(blobs, txid, call)),
            Op::Begin(arg) => Answer::Uploading(store.begin_upload(blobs, arg, call.settings, BY, seconds)),
            Op::Put(arg) => Answer::Uploading(store.uploads.put(blobs, arg, BY, seconds)),
            Op::Abort(txid) => Answer::Aborted(store.uploads.abort(blobs, txid, BY)),
        }
    }

    fn index(&self, order: Order) -> BTreeMap<u32, BTreeSet<Hash>> {
        let index = self.store.index(order);
        assert!(index.is_sorted_by_key(|(key, _)| *key), "{index:?}");
        let set = |records: Vec<Hash>| {
            let count = records.len();
            let set = BTreeSet::from_iter(records);
            assert_eq!(set.len(), count, "a record is in an index once");
            set
        };
        index.into_iter().map(|(key, records)| (key, set(records))).collect()
    }
}

impl Store for Real {
    fn apply(&mut self, op: &Op, call: &super::Call) -> Answer {
        let before = self.bytes();
        let answer = self.answer(op, call);
        if answer.error().is_some() {
            assert!(self.bytes() == before, "{op:?} was refused, and the slots are not what they were");
        }
        answer
    }

    fn record(&self, txid: &[u8], first: u32, limit: u32) -> Result<UtxoRecord, UtxoRefusal> {
        let mut record = self.store.get(&UtxoGet { txid: txid.into(), first, limit, extra_pages_cursor: None })?;
        // Where the blobs lie is not the model's business: that they hold the bytes is asked elsewhere.
        if let TransactionPlace::Blobs { parts, .. } = &mut record.transaction {
            assert!(!parts.is_empty());
            parts.clear();
        }
        record.conflicting_children.sort();
        Ok(record)
    }

    fn transaction(&self, part: &UtxoGetPart) -> Result<TransactionPart, UtxoRefusal> {
        self.store.transaction(&self.blobs, part)
    }

    fn inpoints(&self, part: &UtxoGetPart) -> Result<InpointsPart, UtxoRefusal> {
        self.store.inpoints(part)
    }

    fn spend_state(&self, outpoint: &Outpoint, height: u32) -> Result<UtxoSpendState, UtxoRefusal> {
        Ok(self.store.spend_states(std::slice::from_ref(outpoint), height, MAX_HEIGHT)?.remove(0))
    }

    fn list_unmined(&self, after: Option<&UnminedCursor>, limit: u32) -> UnminedPage {
        self.store.unmined(after, limit).expect("a cursor names a transaction")
    }

    fn indexes(&self) -> Indexes {
        Indexes {
            deletable: self.index(Order::DeleteAt),
            unmined: self.index(Order::UnminedSince),
            preserved: self.index(Order::PreserveUntil),
        }
    }

    fn storage(&self) -> UtxoStorage {
        self.store.storage()
    }

    fn blob_bytes(&self) -> (u64, u64) {
        (self.blobs.kept_bytes(Owner::External), self.blobs.kept_bytes(Owner::Upload))
    }

    fn reopen(&mut self) {
        *self = open();
    }
}

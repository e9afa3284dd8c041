//! Model of the deletion queue without limits of time and memory: a map of rows, ordered by sorting.

use candid::Principal;
use ic_coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NS: u64 = 1_000_000_000;

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Named by a live record.
    Held,
    /// Due or not yet due, and free to be leased.
    Waiting,
    /// Under the lease with this number.
    Leased(u64),
    /// Failed, and free again at this time.
    BackingOff(u64),
    /// A dead-letter row.
    Dead,
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its holder works.
    Live,
    /// Expired or finished.
    Over,
    /// Completed. Rows of unknown fate stay until it expires.
    Completed,
    /// Ended by an operator. Its rows stay until it expires.
    Ended,
}

impl At {
    /// Returns the state as the interface names it.
    pub fn state(self) -> BlobDeletionState {
        match self {
            Self::Held => BlobDeletionState::Held,
            Self::Waiting => BlobDeletionState::Waiting,
            Self::Leased(_) => BlobDeletionState::Leased,
            Self::BackingOff(_) => BlobDeletionState::BackingOff,
            Self::Dead => BlobDeletionState::Dead,
        }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The blob.
    pub name: BlobName,
    /// The height at which the blob is deleted.
    pub height: u32,
    /// Failures since it was scheduled.
    pub retries: u32,
    /// The time of the last failure; 0: none.
    pub last_retry: u64,
    /// The record that the row belongs to.
    pub txid: Option<u8>,
    /// The state.
    pub at: At,
    /// The lease under which it last failed; 0: none.
    pub failed_under: u64,
    /// True if its blob was reported as deleted while deletions were stopped.
    pub reported: bool,
    /// The half hour since which it has been due; `None` if it waits and was never leased.
    pub due_since: Option<u64>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The worker that holds it.
    pub holder: Principal,
    /// The id of the request for it.
    pub request: Option<Vec<u8>>,
    /// The arguments of the request.
    pub arg: AcquireBlobDeletions,
    /// The height up to which its rows were chosen.
    pub height: u32,
    /// The time at which it expires.
    pub expires_at_ns: u64,
    /// Its last requested duration, in nanoseconds.
    pub length: u64,
    /// Its rows, in the order in which they were leased.
    pub rows: Vec<u64>,
    /// The rows of unknown fate among `rows`.
    pub unknown: BTreeSet<u64>,
    /// The state.
    pub stage: Stage,
    /// Counts of its completion so far: removed, retried, dead.
    pub done: [u64; 3],
}

impl Lease {
    fn keeps(&self, id: u64) -> bool {
        match self.stage {
            Stage::Live | Stage::Ended => true,
            Stage::Completed => self.unknown.contains(&id),
            Stage::Over => false,
        }
    }

    fn free(&self) -> Vec<u64> {
        self.rows.iter().copied().filter(|id| !self.keeps(*id)).collect()
    }

    /// Returns the time at which the queue must process it; 0: at once.
    pub fn next_event(&self) -> u64 {
        if self.stage == Stage::Over || !self.free().is_empty() { 0 } else { self.expires_at_ns }
    }
}

/// A lease that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    number: u64,
    holder: Principal,
    request: Option<Vec<u8>>,
    answer: Option<CompletedBlobDeletions>,
}

/// A token in the model: a lease's number, or `None` for a token that was never issued.
pub type Token = Option<u64>;

/// Model of the deletion queue.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The rows, by number.
    pub rows: BTreeMap<u64, Row>,
    /// Leases with rows, and live ones, by number.
    pub leases: BTreeMap<u64, Lease>,
    /// Ended leases, oldest first.
    pub ended: VecDeque<Ended>,
    /// Number of rows ever created.
    pub ids: u64,
    /// Number of leases ever granted.
    pub given: u64,
    /// Half hours in which a message ran, each with the lowest height that was not due.
    pub marks: Vec<(u64, u32)>,
    /// Scheduled, cancelled, processed, not found, errors, given up, expired, completed, unknown, ended, dropped.
    pub counters: [u64; 11],
}

/// A worker's report of deletions, with the conditions it meets.
#[derive(Clone, Debug)]
pub struct Said {
    /// Rows that are deleted.
    pub completed: Vec<u64>,
    /// Rows whose deletion failed.
    pub failed: Vec<u64>,
    /// Rows of unknown fate.
    pub unknown: Vec<u64>,
    /// True if all other rows of the lease are deleted.
    pub rest: bool,
    /// Rows above this height are ignored.
    pub up_to: Option<u32>,
    /// Failures after which a row becomes a dead-letter row.
    pub max_retries: u32,
    /// Seconds of the first back-off; 0: no back-off.
    pub base_secs: u64,
    /// True if records cannot be removed.
    pub kept: bool,
    /// Number of further rows that fit the message.
    pub room: u64,
}

impl Model {
    fn named(&mut self, name: &BlobName) -> Option<(u64, &mut Row)> {
        self.rows.iter_mut().find(|(_, row)| row.name == *name).map(|(id, row)| (*id, row))
    }

    fn is_leased(&self, id: u64) -> bool {
        matches!(self.rows[&id].at, At::Leased(number) if self.leases[&number].keeps(id))
    }

    fn put(&mut self, id: u64, at: At) {
        for lease in self.leases.values_mut() {
            lease.rows.retain(|row| *row != id);
            lease.unknown.remove(&id);
        }
        self.rows.get_mut(&id).unwrap().at = at;
        self.drop_leases();
    }

    fn drop_leases(&mut self) {
        self.leases.retain(|_, lease| lease.stage == Stage::Live || !lease.rows.is_empty());
    }

    /// Puts rows back that never failed under the lease they come from.
    fn put_back(&mut self, ids: Vec<u64>) {
        for id in ids {
            self.put(id, At::Waiting);
            self.rows.get_mut(&id).unwrap().failed_under = 0;
        }
    }

    fn end(&mut self, number: u64, stage: Stage, answer: Option<CompletedBlobDeletions>) {
        let lease = self.leases.get_mut(&number).unwrap();
        lease.stage = stage;
        let request = lease.request.clone();
        self.ended.push_back(Ended { number, holder: lease.holder, request, answer });
        if self.ended.len() > 256 {
            self.ended.pop_front();
        }
    }

    /// Ends the leases of a holder, or all.
    pub fn end_leases(&mut self, who: Option<Principal>, now: u64) -> u64 {
        let is_meant = |lease: &Lease| who.is_none_or(|who| lease.holder == who);
        let live = self.leases.iter().filter(|(_, lease)| lease.stage == Stage::Live && is_meant(lease));
        let live: Vec<u64> = live.map(|(number, _)| *number).collect();
        for number in &live {
            self.end(*number, Stage::Ended, None);
            let lease = self.leases.get_mut(number).unwrap();
            lease.expires_at_ns = lease.expires_at_ns.min(now + lease.length / 4);
        }
        self.drop_leases();
        self.counters[9] += live.len() as u64;
        live.len() as u64
    }

    /// Expires leases and ends back-offs. Every message except the pruner's begins with this.
    pub fn notice(&mut self, now: u64) {
        self.advance(now);
        let mut due: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.stage != Stage::Over && lease.expires_at_ns <= now)
            .map(|(number, lease)| (lease.expires_at_ns, *number, lease.stage))
            .collect();
        due.sort_by_key(|(at, number, _)| (*at, *number));
        for (_, number, stage) in due {
            match stage {
                Stage::Live => {
                    self.counters[6] += 1;
                    self.end(number, Stage::Over, None);
                }
                _ => {
                    self.counters[8] += u64::from(stage == Stage::Completed);
                    self.leases.get_mut(&number).unwrap().stage = Stage::Over;
                }
            }
        }
        let over: Vec<u64> = self.leases.values().flat_map(Lease::free).collect();
        self.put_back(over);
        let due = self.rows.iter().filter(|(_, row)| matches!(row.at, At::BackingOff(until) if until <= now));
        let due: Vec<u64> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.put(id, At::Waiting));
        self.drop_leases();
    }

    fn advance(&mut self, now: u64) {
        let (at, (last, due_below)) = (now / NS / 1_800, self.marks.last().copied().unwrap_or_default());
        if at > last {
            self.marks.push((at, due_below));
        }
    }

    /// Notes the height up to which rows are due.
    pub fn note_due(&mut self, due: Option<u32>, now: u64) {
        self.advance(now);
        self.marks.last_mut().unwrap().1 = due.map_or(0, |due| due.saturating_add(1));
    }

    fn height_due_since(&self, height: u32) -> Option<u64> {
        self.marks.iter().rev().take_while(|(_, due_below)| height < *due_below).last().map(|(at, _)| *at)
    }

    /// Begins the life of a row that waits: if it is due, it is due from now on.
    fn begin(&mut self, id: u64) {
        let Some(row) = self.rows.get(&id).filter(|row| row.at == At::Waiting) else { return };
        let due_since = self.height_due_since(row.height).and(self.marks.last()).map(|(at, _)| *at);
        self.rows.get_mut(&id).unwrap().due_since = due_since;
    }

    /// Returns the time since which the oldest due row of a store has been due: the end of its half hour.
    pub fn due_since(&self, store_type: StoreType) -> Option<u64> {
        let is_pending = |row: &&Row| matches!(row.at, At::Waiting | At::Leased(_) | At::BackingOff(_));
        let rows = self.rows.values().filter(is_pending).filter(|row| row.name.store_type == store_type);
        let since = rows.filter_map(|row| row.due_since.or(self.height_due_since(row.height)));
        since.min().map(|at| (at + 1) * 1_800 * NS)
    }

    /// Drops the oldest dead-letter rows without a record above the limit. Every message ends with this.
    pub fn bound_dead(&mut self, most: usize) {
        let alone = self.rows.iter().filter(|(_, row)| row.at == At::Dead && row.txid.is_none());
        let alone: Vec<u64> = alone.map(|(id, _)| *id).collect();
        for id in &alone[..alone.len().saturating_sub(most)] {
            self.rows.remove(id);
            self.counters[10] += 1;
        }
    }

    fn add(&mut self, name: &BlobName, height: u32, txid: Option<u8>, at: At) -> u64 {
        self.ids += 1;
        let name = name.clone();
        self.rows.insert(
            self.ids,
            Row {
                name,
                height,
                retries: 0,
                last_retry: 0,
                txid,
                at,
                failed_under: 0,
                reported: false,
                due_since: None,
            },
        );
        self.begin(self.ids);
        self.ids
    }

    fn reschedule(&mut self, id: u64, height: u32) {
        self.put(id, At::Waiting);
        let row = self.rows.get_mut(&id).unwrap();
        (row.height, row.retries, row.last_retry, row.failed_under, row.reported) = (height, 0, 0, 0, false);
        self.begin(id);
    }

    /// `schedule_blob_deletion`.
    pub fn schedule(&mut self, name: &BlobName, height: u32) -> Result<ScheduledBlobDeletion, BlobDeletionError> {
        let found = self.named(name).map(|(id, row)| (id, row.txid));
        let scheduled = match found {
            Some((_, Some(_))) => return Err(BlobDeletionError::HoldsRecord),
            Some((id, None)) => {
                let was_leased = self.is_leased(id);
                self.reschedule(id, height);
                ScheduledBlobDeletion { id, was_leased }
            }
            None => {
                let always = StoreType::ALL.into_iter().flat_map(|store| ["tx", "outputs"].map(|of| (store, of)));
                let rows = self.rows.values().map(|row| (row.name.store_type, row.name.file_type.as_str()));
                let used: Vec<(StoreType, &str)> = always.chain(rows).collect();
                let is_other =
                    |(_, used): &&(_, &str)| *used != name.file_type && used.eq_ignore_ascii_case(&name.file_type);
                if let Some((_, other)) = used.iter().find(is_other)
                    && !used.contains(&(name.store_type, &name.file_type))
                {
                    return Err(BlobDeletionError::OtherCase { file_type: (*other).into() });
                }
                ScheduledBlobDeletion { id: self.add(name, height, None, At::Waiting), was_leased: false }
            }
        };
        self.counters[0] += 1;
        Ok(scheduled)
    }

    /// Adds a row for a blob that a record names. The error tells whether another live record names the blob.
    pub fn hold(&mut self, name: &BlobName, txid: u8) -> Result<(), UtxoRefusal> {
        match self.named(name).map(|(_, row)| (row.at, row.txid)) {
            None => drop(self.add(name, 0, Some(txid), At::Held)),
            Some((At::Held, Some(holder))) if holder == txid => {}
            Some((At::Held, _)) => return Err(UtxoRefusal::BlobTaken),
            Some(_) => return Err(UtxoRefusal::BeingDeleted),
        }
        Ok(())
    }

    /// Schedules the blob of a deleted record. Returns the number of the row, and whether the row belongs to another record.
    pub fn schedule_record(&mut self, name: &BlobName, height: u32, txid: u8) -> (u64, bool) {
        let found = self.named(name).map(|(id, row)| (id, row.txid));
        let id = match found {
            Some((id, Some(other))) if other != txid => return (id, true),
            Some((id, _)) => {
                self.rows.get_mut(&id).unwrap().txid = Some(txid);
                self.reschedule(id, height);
                id
            }
            None => self.add(name, height, Some(txid), At::Waiting),
        };
        self.counters[0] += 1;
        (id, false)
    }

    /// `cancel_blob_deletion`.
    pub fn cancel(&mut self, name: &BlobName) -> Result<Option<CancelledBlobDeletion>, BlobDeletionError> {
        let Some((id, txid)) = self.named(name).map(|(id, row)| (id, row.txid)) else {
            self.counters[3] += 1;
            return Ok(None);
        };
        if txid.is_some() {
            return Err(BlobDeletionError::HoldsRecord);
        }
        if self.is_leased(id) {
            return Err(BlobDeletionError::Leased);
        }
        let reported_deleted = self.rows.remove(&id).unwrap().reported;
        self.counters[1] += 1;
        Ok(Some(CancelledBlobDeletion { id, reported_deleted }))
    }

    /// Returns the matching rows that wait, in order.
    pub fn waiting(&self, height: u32, stores: &[StoreType], selectors: Option<&[BlobSelector]>) -> Vec<u64> {
        let rows = self.rows.iter().filter(|(_, row)| {
            let selects = |of: &BlobSelector| {
                of.store_type == row.name.store_type
                    && of.file_type.as_ref().is_none_or(|file_type| *file_type == row.name.file_type)
            };
            let meant = (stores.is_empty() || stores.contains(&row.name.store_type))
                && selectors.is_none_or(|all| all.iter().any(selects));
            row.at == At::Waiting && row.height <= height && meant
        });
        let mut keys: Vec<_> = rows.map(|(id, row)| (row.height, *id)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the number of the lease, or `None` if no row waits.
    pub fn acquire(
        &mut self,
        who: Principal,
        arg: &AcquireBlobDeletions,
        reached: u32,
        most: u32,
        now: u64,
    ) -> Result<Option<u64>, BlobDeletionError> {
        if let Some(request) = arg.request.as_ref().map(|request| request.to_vec()) {
            let same = |lease: &Lease| lease.holder == who && lease.request.as_ref() == Some(&request);
            let live = self.leases.iter().find(|(_, lease)| lease.stage == Stage::Live && same(lease));
            if let Some((number, lease)) = live {
                return if lease.arg == *arg { Ok(Some(*number)) } else { Err(BlobDeletionError::OtherRequest) };
            }
            let same = |ended: &&Ended| ended.holder == who && ended.request.as_ref() == Some(&request);
            if let Some(ended) = self.ended.iter().rev().find(same) {
                let completed = ended.answer.is_some();
                return Err(if completed { BlobDeletionError::Completed } else { BlobDeletionError::Expired });
            }
        }
        let height = match arg.safety_window {
            None => arg.height,
            Some(window) if reached > window => reached - window,
            Some(_) => return Ok(None),
        };
        let mut rows = self.waiting(height, &arg.store_types, arg.selectors.as_deref());
        rows.truncate(if arg.limit == 0 { 100 } else { arg.limit as usize });
        if rows.is_empty() {
            return Ok(None);
        }
        if self.leases.values().filter(|lease| lease.holder == who && lease.stage != Stage::Over).count() as u32 >= most
        {
            return Err(BlobDeletionError::TooManyLeases { limit: u64::from(most) });
        }
        self.given += 1;
        let number = self.given;
        for id in &rows {
            self.put(*id, At::Leased(number));
            let since = self.height_due_since(self.rows[id].height).or(self.marks.last().map(|(at, _)| *at));
            let row = self.rows.get_mut(id).unwrap();
            row.due_since = row.due_since.or(since);
        }
        let length = if arg.lock_timeout_secs == 0 { 300 } else { arg.lock_timeout_secs } * NS;
        let request = arg.request.as_ref().map(|request| request.to_vec());
        let (unknown, stage, done) = (BTreeSet::new(), Stage::Live, [0; 3]);
        let lease = Lease {
            holder: who,
            request,
            arg: arg.clone(),
            height,
            expires_at_ns: now + length,
            length,
            rows,
            unknown,
            stage,
            done,
        };
        self.leases.insert(number, lease);
        Ok(Some(number))
    }

    /// Returns the live lease, or the answer of the call that completed it.
    fn shown(&self, who: Principal, token: Token) -> Result<Result<u64, CompletedBlobDeletions>, BlobDeletionError> {
        let number = token.ok_or(BlobDeletionError::UnknownToken)?;
        if let Some(lease) = self.leases.get(&number).filter(|lease| lease.stage == Stage::Live) {
            return if lease.holder == who { Ok(Ok(number)) } else { Err(BlobDeletionError::NotHolder) };
        }
        let ended = self.ended.iter().find(|ended| ended.number == number).ok_or(BlobDeletionError::UnknownToken)?;
        match &ended.answer {
            _ if ended.holder != who => Err(BlobDeletionError::NotHolder),
            None => Err(BlobDeletionError::Expired),
            Some(answer) => Ok(Err(answer.clone())),
        }
    }

    /// `extend_blob_deletion_batch`. Returns the time at which the lease expires.
    pub fn extend(&mut self, who: Principal, token: Token, secs: u64, now: u64) -> Result<u64, BlobDeletionError> {
        match self.shown(who, token)? {
            Err(_) => Err(BlobDeletionError::Completed),
            Ok(number) => {
                let lease = self.leases.get_mut(&number).unwrap();
                lease.length = if secs == 0 { 300 } else { secs } * NS;
                lease.expires_at_ns = lease.expires_at_ns.max(now + lease.length);
                Ok(lease.expires_at_ns)
            }
        }
    }

    /// `complete_blob_deletion_batch`.
    pub fn complete_batch(
        &mut self,
        who: Principal,
        token: Token,
        said: &Said,
        now: u64,
    ) -> Result<CompletedBlobDeletions, BlobDeletionError> {
        let number = match self.shown(who, token)? {
            Err(answer) => return Ok(answer),
            Ok(number) => number,
        };
        let (mut done, room) = self.complete_rows(said, Some(number), now);
        let lease = self.leases.get_mut(&number).unwrap();
        for (all, more) in lease.done.iter_mut().zip([done.removed, done.retries_incremented, done.dead]) {
            *all += more;
        }
        [done.removed, done.retries_incremented, done.dead] = lease.done;
        if done.remaining == 0 {
            self.counters[7] += 1;
            let stage = if lease.unknown.is_empty() { Stage::Over } else { Stage::Completed };
            self.end(number, stage, Some(done.clone()));
            let free = self.leases[&number].free();
            self.put_back(free.into_iter().take(room as usize).collect());
            self.drop_leases();
        }
        Ok(done)
    }

    /// A report without a lease while deletions are stopped.
    pub fn report(&mut self, ids: &[u64], up_to: Option<u32>) -> BlobDeletionError {
        self.mark(ids, None, up_to);
        BlobDeletionError::Stopped
    }

    /// `complete_blob_deletion_batch` while deletions are stopped.
    pub fn report_batch(
        &mut self,
        who: Principal,
        token: Token,
        said: &Said,
    ) -> Result<CompletedBlobDeletions, BlobDeletionError> {
        match self.shown(who, token) {
            Ok(Err(answer)) => return Ok(answer),
            Ok(Ok(_)) | Err(BlobDeletionError::Expired) => {}
            Err(error) => return Err(error),
        }
        let rows = self.leases.get(&token.unwrap()).filter(|_| said.rest).map(|lease| lease.rows.clone());
        let is_other = |id: &u64| said.failed.contains(id) || said.unknown.contains(id);
        let rest: Vec<u64> = rows.into_iter().flatten().filter(|id| !is_other(id)).collect();
        self.mark(&said.completed, token, None);
        self.mark(&rest, token, None);
        Err(BlobDeletionError::Stopped)
    }

    fn mark(&mut self, ids: &[u64], lease: Option<u64>, up_to: Option<u32>) {
        for id in ids.iter().filter(|id| self.rows.contains_key(id)).copied().collect::<Vec<_>>() {
            let row = &self.rows[&id];
            let is_of_another = self.is_leased(id) && lease.is_none_or(|lease| row.at != At::Leased(lease));
            let is_meant = row.at != At::Held && up_to.is_none_or(|most| row.height <= most) && !is_of_another;
            self.rows.get_mut(&id).unwrap().reported |= is_meant;
        }
    }

    /// Completes rows that are not leased. Without a lease, there is neither a back-off nor an unknown fate.
    pub fn complete(&mut self, said: &Said, now: u64) -> CompletedBlobDeletions {
        let said = Said { base_secs: 0, unknown: Vec::new(), rest: false, ..said.clone() };
        self.complete_rows(&said, None, now).0
    }

    /// Returns the outcome, and how many more rows fit the message.
    fn complete_rows(&mut self, said: &Said, lease: Option<u64>, now: u64) -> (CompletedBlobDeletions, u64) {
        let mut done = CompletedBlobDeletions::default();
        let (mut seen, mut room, mut looked_at, mut worked) = (BTreeSet::new(), said.room, 0, false);
        let lists = [&said.completed, &said.failed, &said.unknown].into_iter().enumerate();
        let all: Vec<(u64, usize)> = lists.flat_map(|(list, ids)| ids.iter().map(move |id| (*id, list))).collect();
        for (id, list) in &all {
            let id = *id;
            if !seen.insert(id) {
                looked_at += 1;
                continue;
            }
            let exists = self.rows.contains_key(&id);
            let there = self.rows.get(&id).is_some_and(|row| row.at != At::Held);
            let is_leased = there && self.is_leased(id);
            let meant = match lease {
                Some(number) => is_leased && self.rows[&id].at == At::Leased(number),
                None => there && !is_leased && said.up_to.is_none_or(|most| self.rows[&id].height <= most),
            };
            if meant && worked {
                if room == 0 {
                    break;
                }
                room -= 1;
            }
            worked |= meant;
            looked_at += 1;
            if !(meant && self.process_row(id, *list, lease, said, now, &mut done)) {
                self.counters[3] += u64::from(lease.is_none() && !there);
                let failed_here =
                    |row: &Row| !matches!(row.at, At::Leased(_)) && lease.is_some() && Some(row.failed_under) == lease;
                let before = if exists { failed_here(&self.rows[&id]) } else { id > 0 && id <= self.ids };
                if before { &mut done.already } else { &mut done.skipped }.push(id);
            }
        }
        done.remaining = all.len() as u64 - looked_at;
        if let Some(number) = lease.filter(|_| said.rest && done.remaining == 0) {
            let lease = &self.leases[&number];
            let rest: Vec<u64> = lease.rows.iter().copied().filter(|id| !lease.unknown.contains(id)).collect();
            for (at, id) in rest.iter().enumerate() {
                if worked {
                    if room == 0 {
                        done.remaining = (rest.len() - at) as u64;
                        break;
                    }
                    room -= 1;
                }
                worked = true;
                self.process_row(*id, 0, Some(number), said, now, &mut done);
            }
        }
        (done, if worked { room } else { room.saturating_add(1) })
    }

    /// Processes one row of a list. Returns true if anything was done.
    fn process_row(
        &mut self,
        id: u64,
        list: usize,
        lease: Option<u64>,
        said: &Said,
        now: u64,
        done: &mut CompletedBlobDeletions,
    ) -> bool {
        match list {
            0 => match self.succeed(id, said.kept) {
                Some(true) => done.removed += 1,
                Some(false) => (done.removed, done.dead) = (done.removed + 1, done.dead + 1),
                None => return false,
            },
            1 if self.rows[&id].at == At::Dead => return false,
            1 => match self.fail(id, said.max_retries, said.base_secs, now) {
                true => (done.removed, done.dead) = (done.removed + 1, done.dead + 1),
                false => done.retries_incremented += 1,
            },
            _ => {
                let lease = self.leases.get_mut(&lease.unwrap()).unwrap();
                lease.rows.retain(|row| *row != id);
                lease.rows.push(id);
                lease.unknown.insert(id);
            }
        }
        true
    }

    /// Returns true if the row is removed, false if it becomes a dead-letter row, or `None` if it was one already.
    fn succeed(&mut self, id: u64, kept: bool) -> Option<bool> {
        let row = &self.rows[&id];
        if !kept || row.txid.is_none() {
            self.put(id, At::Waiting);
            self.rows.remove(&id);
            self.counters[2] += 1;
            return Some(true);
        }
        if row.at == At::Dead {
            return None;
        }
        self.give_up(id);
        Some(false)
    }

    fn give_up(&mut self, id: u64) {
        if let At::Leased(number) = self.rows[&id].at {
            self.rows.get_mut(&id).unwrap().failed_under = number;
        }
        self.put(id, At::Dead);
        self.rows.get_mut(&id).unwrap().due_since = None;
        self.counters[5] += 1;
    }

    /// Returns true if the row becomes a dead-letter row.
    fn fail(&mut self, id: u64, max_retries: u32, base_secs: u64, now: u64) -> bool {
        let was_leased = self.is_leased(id);
        self.counters[4] += 1;
        let row = self.rows.get_mut(&id).unwrap();
        row.retries += 1;
        row.last_retry = now;
        let (retries, at) = (row.retries, row.at);
        row.failed_under = if let At::Leased(number) = at { number } else { 0 };
        if retries >= max_retries.max(1) {
            self.give_up(id);
            return true;
        }
        if was_leased && base_secs > 0 {
            let secs = (base_secs as f64 * 2f64.powi(retries as i32 - 1)).min(3_600.0) as u64;
            self.put(id, At::BackingOff(now + secs * NS));
        } else if matches!(at, At::Leased(_)) {
            self.put(id, At::Waiting);
        }
        false
    }

    fn queued(&mut self, id: u64) -> bool {
        let there = self.rows.get(&id).is_some_and(|row| row.at != At::Held);
        self.counters[3] += u64::from(!there);
        there
    }

    /// `remove_blob_deletion`. Returns true if the row is removed.
    pub fn remove(&mut self, id: u64, up_to: Option<u32>, kept: bool) -> Result<bool, BlobDeletionError> {
        if !self.queued(id) {
            return Ok(false);
        }
        if self.is_leased(id) {
            return Err(BlobDeletionError::Leased);
        }
        let row = &self.rows[&id];
        if up_to.is_some_and(|most| row.height > most) || row.at == At::Dead && row.txid.is_some() {
            return Ok(false);
        }
        Ok(self.succeed(id, kept) == Some(true))
    }

    /// `increment_blob_deletion_retry`.
    pub fn increment(&mut self, id: u64, max: u32, now: u64) -> Result<BlobDeletionRetry, BlobDeletionError> {
        if !self.queued(id) {
            return Err(BlobDeletionError::NotFound);
        }
        if self.is_leased(id) {
            return Err(BlobDeletionError::Leased);
        }
        let should_remove = self.rows[&id].at == At::Dead || self.fail(id, max, 0, now);
        Ok(BlobDeletionRetry { should_remove, retry_count: self.rows[&id].retries })
    }

    /// `retry_blob_deletions`.
    pub fn retry(&mut self, which: &RetryBlobDeletions) -> RetriedBlobDeletions {
        let ids = match which {
            RetryBlobDeletions::Ids(ids) => ids.clone(),
            RetryBlobDeletions::StoreType(of) => {
                let dead = |(_, row): &(&u64, &Row)| row.at == At::Dead && row.name.store_type == *of;
                self.rows.iter().filter(dead).map(|(id, _)| *id).collect()
            }
        };
        let mut done = RetriedBlobDeletions::default();
        for id in ids {
            match self.rows.get_mut(&id).filter(|row| row.at == At::Dead) {
                Some(row) => {
                    (row.retries, row.at, row.failed_under) = (0, At::Waiting, 0);
                    self.begin(id);
                    done.retried += 1;
                }
                None => done.skipped.push(id),
            }
        }
        done
    }
}

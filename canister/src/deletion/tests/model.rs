//! The queue as anybody would write it who has all the time and all the memory there is: a map of rows, of which each says where it
//! stands, and order by sorting.

use candid::Principal;
use coppice_interface::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NS: u64 = 1_000_000_000;

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Held,
    Waiting,
    Leased(u64),
    BackingOff(u64),
    Dead,
}

impl At {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: BlobName,
    pub height: u32,
    pub retries: u32,
    pub last_retry: u64,
    pub txid: Option<u8>,
    pub at: At,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub holder: Principal,
    pub request: Option<Vec<u8>>,
    pub height: u32,
    pub expires_at: u64,
    pub rows: Vec<u64>,
    pub over: bool,
}

/// How a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    number: u64,
    holder: Principal,
    answer: Option<CompletedBlobDeletions>,
}

/// A token as the model has it: a lease's number, or none that was ever given.
pub type Token = Option<u64>;

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub rows: BTreeMap<u64, Row>,
    pub leases: BTreeMap<u64, Lease>,
    pub ended: VecDeque<Ended>,
    pub ids: u64,
    pub given: u64,
    /// Scheduled, cancelled, processed, not found, errors, given up, expired, completed.
    pub counters: [u64; 8],
}

/// What a worker says.
pub struct Said<'a> {
    pub completed: &'a [u64],
    pub failed: &'a [u64],
    pub max_retries: u32,
    pub base_secs: u64,
    /// Records make difficulties.
    pub kept: bool,
    /// The message has room for so many more rows.
    pub room: u64,
}

impl Model {
    fn named(&mut self, name: &BlobName) -> Option<(u64, &mut Row)> {
        self.rows.iter_mut().find(|(_, row)| row.name == *name).map(|(id, row)| (*id, row))
    }

    fn is_leased(&self, id: u64) -> bool {
        matches!(self.rows[&id].at, At::Leased(number) if !self.leases[&number].over)
    }

    fn put(&mut self, id: u64, at: At) {
        self.leases.values_mut().for_each(|lease| lease.rows.retain(|row| *row != id));
        self.rows.get_mut(&id).unwrap().at = at;
        self.leases.retain(|_, lease| !lease.over || !lease.rows.is_empty());
    }

    fn end(&mut self, number: u64, answer: Option<CompletedBlobDeletions>) {
        self.counters[if answer.is_some() { 7 } else { 6 }] += 1;
        let lease = self.leases.get_mut(&number).unwrap();
        lease.over = true;
        self.ended.push_back(Ended { number, holder: lease.holder, answer });
        if self.ended.len() > 256 {
            self.ended.pop_front();
        }
    }

    /// What each message but the pruner's begins with.
    pub fn notice(&mut self, now: u64) {
        let mut expired: Vec<_> =
            self.leases.iter().filter(|(_, lease)| !lease.over && lease.expires_at <= now).collect();
        expired.sort_by_key(|(number, lease)| (lease.expires_at, **number));
        for number in expired.into_iter().map(|(number, _)| *number).collect::<Vec<_>>() {
            self.end(number, None);
        }
        let over = self.leases.values().filter(|lease| lease.over).flat_map(|lease| lease.rows.clone());
        let due = self.rows.iter().filter(|(_, row)| matches!(row.at, At::BackingOff(until) if until <= now));
        let back: Vec<u64> = over.chain(due.map(|(id, _)| *id)).collect();
        back.into_iter().for_each(|id| self.put(id, At::Waiting));
        self.leases.retain(|_, lease| !lease.over);
    }

    fn add(&mut self, name: &BlobName, height: u32, txid: Option<u8>, at: At) -> u64 {
        self.ids += 1;
        self.rows.insert(self.ids, Row { name: name.clone(), height, retries: 0, last_retry: 0, txid, at });
        self.ids
    }

    fn reschedule(&mut self, id: u64, height: u32) {
        self.put(id, At::Waiting);
        let row = self.rows.get_mut(&id).unwrap();
        (row.height, row.retries, row.last_retry) = (height, 0, 0);
    }

    pub fn schedule(&mut self, name: &BlobName, height: u32) -> Result<ScheduledBlobDeletion, BlobDeletionError> {
        let found = self.named(name).map(|(id, row)| (id, row.txid));
        let scheduled = match found {
            Some((_, Some(_))) => return Err(BlobDeletionError::HoldsRecord),
            Some((id, None)) => {
                let was_leased = self.is_leased(id);
                self.reschedule(id, height);
                ScheduledBlobDeletion { id, was_leased }
            }
            None => ScheduledBlobDeletion { id: self.add(name, height, None, At::Waiting), was_leased: false },
        };
        self.counters[0] += 1;
        Ok(scheduled)
    }

    /// A record names a blob; the error says whether another one does that is alive.
    pub fn hold(&mut self, name: &BlobName, txid: u8) -> Result<(), UtxoRefusal> {
        match self.named(name).map(|(_, row)| (row.at, row.txid)) {
            None => drop(self.add(name, 0, Some(txid), At::Held)),
            Some((At::Held, Some(holder))) if holder == txid => {}
            Some((At::Held, _)) => return Err(UtxoRefusal::BlobTaken),
            Some(_) => return Err(UtxoRefusal::BeingDeleted),
        }
        Ok(())
    }

    /// The number of the row, and whether it is another record's.
    pub fn release(&mut self, name: &BlobName, height: u32, txid: u8) -> (u64, bool) {
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

    pub fn cancel(&mut self, name: &BlobName) -> Result<bool, BlobDeletionError> {
        let Some((id, txid)) = self.named(name).map(|(id, row)| (id, row.txid)) else {
            self.counters[3] += 1;
            return Ok(false);
        };
        if txid.is_some() {
            return Err(BlobDeletionError::HoldsRecord);
        }
        if self.is_leased(id) {
            return Err(BlobDeletionError::Leased);
        }
        self.rows.remove(&id);
        self.counters[1] += 1;
        Ok(true)
    }

    /// Those that wait, in their order.
    pub fn waiting(&self, height: u32, stores: &[StoreType]) -> Vec<u64> {
        let rows = self.rows.iter().filter(|(_, row)| {
            let meant = stores.is_empty() || stores.contains(&row.name.store_type);
            row.at == At::Waiting && row.height <= height && meant
        });
        let mut keys: Vec<_> = rows.map(|(id, row)| (row.height, *id)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, id)| id).collect()
    }

    /// The number of the lease; none where nothing waits.
    pub fn acquire(&mut self, who: Principal, arg: &AcquireBlobDeletions, now: u64) -> Option<u64> {
        let same =
            |lease: &Lease| lease.holder == who && lease.request.as_deref() == arg.request.as_ref().map(|r| &r[..]);
        if arg.request.is_some()
            && let Some((number, _)) = self.leases.iter().find(|(_, lease)| same(lease))
        {
            return Some(*number);
        }
        let mut rows = self.waiting(arg.height, &arg.store_types);
        rows.truncate(if arg.limit == 0 { 100 } else { arg.limit as usize });
        if rows.is_empty() {
            return None;
        }
        self.given += 1;
        let number = self.given;
        rows.iter().for_each(|id| self.put(*id, At::Leased(number)));
        let secs = if arg.lock_timeout_secs == 0 { 300 } else { arg.lock_timeout_secs };
        let (request, height) = (arg.request.as_ref().map(|request| request.to_vec()), arg.height);
        let lease = Lease { holder: who, request, height, expires_at: now + secs * NS, rows, over: false };
        self.leases.insert(number, lease);
        Some(number)
    }

    /// A live lease, or what was answered when it was completed.
    fn shown(&self, who: Principal, token: Token) -> Result<Result<u64, CompletedBlobDeletions>, BlobDeletionError> {
        let number = token.ok_or(BlobDeletionError::UnknownToken)?;
        if let Some(lease) = self.leases.get(&number).filter(|lease| !lease.over) {
            return if lease.holder == who { Ok(Ok(number)) } else { Err(BlobDeletionError::NotHolder) };
        }
        let ended = self.ended.iter().find(|ended| ended.number == number).ok_or(BlobDeletionError::UnknownToken)?;
        match &ended.answer {
            _ if ended.holder != who => Err(BlobDeletionError::NotHolder),
            None => Err(BlobDeletionError::Expired),
            Some(answer) => Ok(Err(answer.clone())),
        }
    }

    pub fn extend(&mut self, who: Principal, token: Token, secs: u64, now: u64) -> Result<u64, BlobDeletionError> {
        match self.shown(who, token)? {
            Err(_) => Err(BlobDeletionError::Completed),
            Ok(number) => {
                let lease = self.leases.get_mut(&number).unwrap();
                lease.expires_at = lease.expires_at.max(now + if secs == 0 { 300 } else { secs } * NS);
                Ok(lease.expires_at)
            }
        }
    }

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
        let (done, room) = self.complete(said, Some(number), now);
        if done.remaining == 0 {
            self.end(number, Some(done.clone()));
            let rest = self.leases[&number].rows.clone();
            rest.into_iter().take(room as usize).for_each(|id| self.put(id, At::Waiting));
            self.leases.retain(|_, lease| !lease.over || !lease.rows.is_empty());
        }
        Ok(done)
    }

    /// What is done, and for how many more rows there is room then.
    pub fn complete(&mut self, said: &Said, lease: Option<u64>, now: u64) -> (CompletedBlobDeletions, u64) {
        let mut done = CompletedBlobDeletions::default();
        let both: BTreeSet<u64> = said.completed.iter().copied().collect();
        let (mut seen, mut room, mut begun) = (BTreeSet::new(), said.room, 0);
        let all = said.completed.iter().map(|id| (*id, true)).chain(said.failed.iter().map(|id| (*id, false)));
        for (id, is_gone) in all {
            if begun > 0 {
                if room == 0 {
                    break;
                }
                room -= 1;
            }
            begun += 1;
            if !seen.insert((id, is_gone)) || (!is_gone && both.contains(&id)) {
                continue;
            }
            let there = self.rows.get(&id).is_some_and(|row| row.at != At::Held);
            let is_leased = there && self.is_leased(id);
            let meant = match lease {
                Some(number) => is_leased && self.rows[&id].at == At::Leased(number),
                None => there && !is_leased,
            };
            if meant && is_gone {
                match self.succeed(id, said.kept) {
                    Some(true) => done.removed += 1,
                    Some(false) => (done.removed, done.dead) = (done.removed + 1, done.dead + 1),
                    None => {}
                }
            } else if meant && self.rows[&id].at != At::Dead {
                match self.fail(id, said.max_retries, said.base_secs, now) {
                    true => (done.removed, done.dead) = (done.removed + 1, done.dead + 1),
                    false => done.retries_incremented += 1,
                }
            } else if lease.is_some() || is_leased {
                done.skipped.push(id);
            } else if !there {
                self.counters[3] += 1;
            }
        }
        done.remaining = (said.completed.len() + said.failed.len()) as u64 - begun;
        (done, room)
    }

    /// Whether the row is gone, and not given up; none: it was given up already.
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
        self.put(id, At::Dead);
        self.counters[5] += 1;
    }

    /// Whether it is given up now.
    fn fail(&mut self, id: u64, max_retries: u32, base_secs: u64, now: u64) -> bool {
        let was_leased = self.is_leased(id);
        self.counters[4] += 1;
        let row = self.rows.get_mut(&id).unwrap();
        row.retries += 1;
        row.last_retry = now;
        let (retries, at) = (row.retries, row.at);
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

    pub fn remove(&mut self, id: u64, kept: bool) -> Result<bool, BlobDeletionError> {
        if !self.queued(id) {
            return Ok(false);
        }
        if self.is_leased(id) {
            return Err(BlobDeletionError::Leased);
        }
        let row = &self.rows[&id];
        if row.at == At::Dead && row.txid.is_some() {
            return Ok(false);
        }
        Ok(self.succeed(id, kept) == Some(true))
    }

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

    pub fn revive(&mut self, id: u64) -> Result<u64, BlobDeletionError> {
        let row = self.rows.get_mut(&id).filter(|row| row.at == At::Dead).ok_or(BlobDeletionError::NotFound)?;
        (row.retries, row.at) = (0, At::Waiting);
        Ok(id)
    }
}

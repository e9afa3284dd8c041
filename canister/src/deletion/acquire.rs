//! Leases are given, extended, and end by time.

use super::lane::MAX_LANES;
use super::lease::{Lease, MAX_LEASES, MAX_REQUEST, Stage, Token};
use super::read::Merge;
use super::row::Row;
use super::{Budget, DeletionQueue, MAX_ROWS, Place, Store, limit};
use crate::logs;
use crate::slots::Slots;
use candid::Principal;
use coppice_interface::{
    AcquireBlobDeletions, BlobDeletionError, BlobDeletionLease, BlobDeletionState, CompletedBlobDeletions,
};
use serde_bytes::ByteBuf;

const NS: u64 = 1_000_000_000;
/// Seconds of a lease where the caller does not say.
const DEFAULT_SECS: u64 = 300;
const MAX_SECS: u64 = 43_200;

/// Seconds of a lease.
///
/// # Errors
/// `TooLarge`.
fn seconds(asked: u64) -> Result<u64, BlobDeletionError> {
    match asked {
        0 => Ok(DEFAULT_SECS),
        1..=MAX_SECS => Ok(asked),
        _ => Err(BlobDeletionError::TooLarge { what: "seconds of a lease".into(), limit: MAX_SECS }),
    }
}

/// # Errors
/// `TooMany`, `TooLarge`, `Empty`.
fn check(arg: &AcquireBlobDeletions) -> Result<u64, BlobDeletionError> {
    if arg.limit > MAX_ROWS {
        return Err(BlobDeletionError::TooMany { limit: u64::from(MAX_ROWS) });
    }
    if arg.selectors.as_ref().is_some_and(|all| all.len() > MAX_LANES) {
        return Err(BlobDeletionError::TooMany { limit: MAX_LANES as u64 });
    }
    if let Some(request) = &arg.request {
        if request.is_empty() {
            return Err(BlobDeletionError::Empty { what: "request".into() });
        }
        if request.len() > MAX_REQUEST {
            let limit = MAX_REQUEST as u64;
            return Err(BlobDeletionError::TooLarge { what: "bytes of request".into(), limit });
        }
    }
    seconds(arg.lock_timeout_secs)
}

impl DeletionQueue {
    /// Leases the first rows that wait; none where none does. With a safety window, where the chain has reached a height, rows up to so
    /// many blocks below it.
    ///
    /// # Errors
    /// `TooMany`, `TooLarge`, `Empty`, `TooManyLeases`, `Completed`, `Expired`, `OutOfSpace`, `LowCycles`, and nothing has changed.
    pub fn acquire(
        &mut self,
        caller: Principal,
        arg: &AcquireBlobDeletions,
        reached: u32,
        now_ns: u64,
    ) -> Result<Option<BlobDeletionLease>, BlobDeletionError> {
        let (length, most) = (check(arg)? * NS, self.limits.leases);
        let due = match arg.safety_window {
            None => Some(arg.height),
            Some(window) => reached.checked_sub(window).filter(|height| *height > 0),
        };
        self.message(now_ns, |store| store.acquire(caller, arg, (due, most), [now_ns, length])).unwrap_or(Ok(None))
    }

    /// Has a lease expire so many seconds from now, if that is later than it would. Answers when it does, in Unix nanoseconds.
    ///
    /// # Errors
    /// `TooLarge`, `UnknownToken`, `NotHolder`, `Expired`, `Completed`, and nothing has changed.
    pub fn extend(
        &mut self,
        caller: Principal,
        token: &[u8],
        secs: u64,
        now_ns: u64,
    ) -> Result<u64, BlobDeletionError> {
        let length = seconds(secs)? * NS;
        let until = now_ns.saturating_add(length);
        let extended = self.message(now_ns, |store| match store.shown_token(caller, token)? {
            Shown::Live(number) => {
                let lease = store.leases.get_mut(number).ok_or(BlobDeletionError::UnknownToken)?;
                let until = lease.expires_at.max(until);
                lease.expires(until, length);
                store.root.counters.extended += 1;
                Ok(until)
            }
            Shown::Completed(_) => Err(BlobDeletionError::Completed),
        });
        extended.unwrap_or(Err(BlobDeletionError::UnknownToken))
    }

    /// Ends the live leases of a holder, and says how many. Their rows come back after a quarter of the lease's time: the longest that a
    /// request for a blob may take.
    pub fn end_leases(&mut self, holder: Principal, now_ns: u64) -> u64 {
        let ended = self.message(now_ns, |store| {
            let all = store.leases.all().iter().filter(|lease| lease.stage == Stage::Live && lease.holder == holder);
            let numbers: Vec<u64> = all.map(|lease| lease.token.number).collect();
            for number in &numbers {
                store.end(*number, now_ns, Stage::Ended, None);
                if let Some(lease) = store.leases.get_mut(*number) {
                    let until = lease.expires_at.min(now_ns.saturating_add(lease.length / 4));
                    lease.expires(until, lease.length);
                }
            }
            store.root.counters.ended += numbers.len() as u64;
            numbers.len() as u64
        });
        ended.unwrap_or(0)
    }

    /// When time does something next, in Unix nanoseconds; none: nothing waits for a moment.
    pub fn next_event(&self) -> Option<u64> {
        let store = self.store.as_ref()?;
        let ends = store.leases.all().iter().map(Lease::next_event);
        let treap = store.treap();
        let due = treap.first(&store.slots, store.root.backing_off).map(|slot| treap.key(&store.slots, slot).0);
        ends.chain(due).min()
    }
}

/// What a token that its holder shows is for.
pub enum Shown {
    /// A live lease: its number.
    Live(u64),
    /// One that was completed: what its holder was answered.
    Completed(CompletedBlobDeletions),
}

impl Store {
    /// What a token is for.
    ///
    /// # Errors
    /// `UnknownToken`, `NotHolder`, `Expired`.
    pub fn shown_token(&self, caller: Principal, token: &[u8]) -> Result<Shown, BlobDeletionError> {
        let token = Token::parse(token).ok_or(BlobDeletionError::UnknownToken)?;
        let held_by = |holder: Principal| if holder == caller { Ok(()) } else { Err(BlobDeletionError::NotHolder) };
        if let Some(lease) =
            self.leases.get(token.number).filter(|lease| lease.token == token && lease.stage == Stage::Live)
        {
            held_by(lease.holder)?;
            return Ok(Shown::Live(token.number));
        }
        let ended = self.leases.ended(&token).ok_or(BlobDeletionError::UnknownToken)?;
        held_by(ended.holder)?;
        self.leases.answer(&self.slots, ended).map(Shown::Completed).ok_or(BlobDeletionError::Expired)
    }

    /// Notices what time has done: leases that have expired are over, and their rows go back, the oldest lease first, as do rows that
    /// have backed off; as far as the budget goes.
    pub fn notice(&mut self, now_ns: u64, budget: &Budget) {
        let is_due = |lease: &&Lease| lease.stage != Stage::Over && now_ns >= lease.expires_at;
        let due = self.leases.all().iter().filter(is_due);
        let mut due: Vec<(u64, u64, Stage)> =
            due.map(|lease| (lease.expires_at, lease.token.number, lease.stage)).collect();
        due.sort_unstable_by_key(|(at, number, _)| (*at, *number));
        for (_, number, stage) in due {
            match (stage, self.leases.get_mut(number)) {
                (Stage::Live, _) => {
                    self.end(number, now_ns, Stage::Over, None);
                    self.root.counters.expired += 1;
                }
                (_, Some(lease)) => {
                    lease.is_now(Stage::Over);
                    self.root.counters.unknown += u64::from(stage == Stage::Completed);
                }
                (_, None) => {}
            }
        }
        self.send_back(&mut |slots| budget.has_room(slots));
        let treap = self.treap();
        while budget.has_room(&self.slots)
            && let Some(slot) = treap.first(&self.slots, self.root.backing_off)
            && treap.key(&self.slots, slot).0 <= now_ns
        {
            match Row::read(&self.slots, slot) {
                Some(mut row) => self.move_to(&mut row, Place::Waiting),
                // Else it would be looked at for ever.
                None => {
                    logs::error(&format!("deletion queue: the row in slot {slot} cannot be decoded"));
                    treap.remove(&mut self.slots, &mut self.root.backing_off, slot);
                }
            }
        }
    }

    /// A lease ends, and nobody's request for it makes another one.
    pub fn end(&mut self, number: u64, now_ns: u64, stage: Stage, answer: Option<&CompletedBlobDeletions>) {
        self.leases.end(&mut self.slots, number, (self.root.ended, now_ns), stage, answer);
        self.root.ended += 1;
    }

    /// Has the rows of leases that are over wait again, the lease that was to expire first before others, as far as there is room.
    pub fn send_back(&mut self, has_room: &mut dyn FnMut(&Slots) -> bool) {
        let over = self.leases.all().iter().filter(|lease| lease.free() > 0);
        let mut over: Vec<(u64, u64)> = over.map(|lease| (lease.expires_at, lease.token.number)).collect();
        over.sort_unstable();
        for (_, number) in over {
            while let Some(lease) = self.leases.get_mut(number).filter(|lease| lease.free() > 0) {
                if !has_room(&self.slots) {
                    return;
                }
                let first = lease.rows(&self.slots).next();
                match first {
                    Some(mut row) => {
                        self.leave(&row);
                        row.lease = 0;
                        self.enter(&mut row, Place::Waiting);
                    }
                    // Else it would be looked at for ever.
                    None => {
                        logs::error(&format!("deletion queue: a row of lease {number} cannot be decoded"));
                        lease.forget_rows();
                    }
                }
            }
        }
    }

    fn acquire(
        &mut self,
        caller: Principal,
        arg: &AcquireBlobDeletions,
        (due, most): (Option<u32>, u32),
        times: [u64; 2],
    ) -> Result<Option<BlobDeletionLease>, BlobDeletionError> {
        let live = |lease: &&Lease| lease.stage == Stage::Live && lease.holder == caller;
        if let Some(request) = arg.request.as_ref().map(|request| &request[..]) {
            let same = |lease: &&Lease| live(lease) && lease.request.as_deref() == Some(request);
            if let Some(lease) = self.leases.all().iter().find(same) {
                return Ok(Some(self.given(lease.token)));
            }
            if let Some(ended) = self.leases.ended_request(caller, request) {
                let completed = ended.is_completed();
                return Err(if completed { BlobDeletionError::Completed } else { BlobDeletionError::Expired });
            }
        }
        let Some(due) = due else { return Ok(None) };
        let height = u64::from(due);
        let mut merge = Merge::new(self, self.waiting(&arg.store_types, arg.selectors.as_deref()));
        if merge.peek(height).is_none() {
            return Ok(None);
        }
        self.leases.save(&mut self.slots);
        let mine = self.leases.all().iter().filter(|lease| lease.stage != Stage::Over && lease.holder == caller);
        if mine.count() as u64 >= u64::from(most) {
            return Err(BlobDeletionError::TooManyLeases { limit: u64::from(most) });
        }
        if self.leases.all().len() >= MAX_LEASES {
            return Err(BlobDeletionError::TooManyLeases { limit: MAX_LEASES as u64 });
        }
        self.root.leases = self.leases.make(&mut self.slots)?;
        let token = Token::new(self.root.seed, self.root.next_lease, times[0], caller);
        let request = arg.request.as_ref().map(|request| request.to_vec());
        self.leases.add(token, caller, request, due, times);
        self.root.next_lease += 1;
        self.root.counters.acquired += 1;
        for _ in 0..limit(arg.limit) {
            let Some(slot) = merge.next(self, height) else { break };
            // One that cannot be decoded stays where it is.
            if let Some(mut row) = Row::read(&self.slots, slot).filter(|row| row.state == BlobDeletionState::Waiting) {
                self.move_to(&mut row, Place::Leased(token.number));
                self.taken[row.store_type as usize] = true;
            }
        }
        Ok(Some(self.given(token)))
    }

    /// A lease as its holder is given it.
    fn given(&self, token: Token) -> BlobDeletionLease {
        let lease = self.leases.get(token.number);
        let rows = lease.map(|lease| lease.rows(&self.slots).filter_map(|row| row.shown(&self.slots)).collect());
        BlobDeletionLease {
            token: ByteBuf::from(token.bytes()),
            expires_at: lease.map_or(0, |lease| lease.expires_at),
            height: lease.map_or(0, |lease| lease.height),
            rows: rows.unwrap_or_default(),
        }
    }
}

//! Operations on leases: acquire, extend, end.

use super::answer::{Answer, MAX_ROWS, at_most, at_most_many, has_bytes, limit};
use super::header::Counter;
use super::lane::MAX_LANES;
use super::lease::{Lease, MAX_LEASES, MAX_REQUEST, Stage};
use super::list::Merge;
use super::row::Row;
use super::token::Token;
use super::{DeletionQueue, Store, ends};
use candid::Principal;
use ic_coppice_interface::{
    AcquireBlobDeletions, BlobDeletionError, BlobDeletionLease, BlobDeletionState, CompletedBlobDeletions,
};
use ic_coppice_storage::bytes::u32_at;
use ic_coppice_storage::{NS, cbor};
use sha2::{Digest, Sha256};

/// A lease; `None` if no row is due.
type Acquired = Answer<Option<BlobDeletionLease>>;

/// Seconds of a lease if the caller gives none.
const DEFAULT_SECS: u64 = 300;
const MAX_SECS: u64 = 43_200;

/// Returns the nanoseconds of a lease.
///
/// # Errors
/// `TooLarge`.
fn length(secs: u64) -> Answer<u64> {
    Ok(NS * at_most("seconds of a lease", if secs == 0 { DEFAULT_SECS } else { secs }, MAX_SECS)?)
}

/// Digest of a named request's arguments, by which a repeated call is told from another one; 0 without a name.
fn digest(arg: &AcquireBlobDeletions) -> u32 {
    let bytes = arg.request.as_ref().and_then(|_| cbor::write_onto(Vec::new(), arg).ok());
    bytes.map_or(0, |bytes| u32_at(&Sha256::digest(&bytes), 0))
}

impl DeletionQueue {
    /// Leases the first waiting rows, or returns `None` if no row is due. With a safety window, rows are due up to that many blocks below
    /// `reached`, the height that the chain has reached.
    ///
    /// # Errors
    /// `TooMany`, `TooLarge`, `Empty`, `TooManyLeases`, `Completed`, `Expired`, `OutOfSpace`, `LowCycles`; nothing has changed.
    pub fn acquire(&mut self, caller: Principal, arg: &AcquireBlobDeletions, reached: u32, now_ns: u64) -> Acquired {
        at_most_many(arg.limit as usize, MAX_ROWS as usize)?;
        at_most_many(arg.selectors.as_ref().map_or(0, Vec::len), MAX_LANES)?;
        arg.request.as_ref().map_or(Ok(()), |request| has_bytes("request", request, MAX_REQUEST))?;
        let (length, most) = (length(arg.lock_timeout_secs)?, self.limits.leases);
        let due = match arg.safety_window {
            None => Some(arg.height),
            Some(window) => reached.checked_sub(window).filter(|height| *height > 0),
        };
        self.message(now_ns, |store| store.acquire(caller, arg, (due, most), [now_ns, length])).unwrap_or(Ok(None))
    }

    /// Extends a lease to `secs` seconds from now; never shortens it. Returns the new expiry in Unix nanoseconds.
    ///
    /// # Errors
    /// `TooLarge`, `UnknownToken`, `NotHolder`, `Expired`, `Completed`; nothing has changed.
    pub fn extend(&mut self, caller: Principal, token: &[u8], secs: u64, now_ns: u64) -> Answer<u64> {
        let length = length(secs)?;
        let until = now_ns.saturating_add(length);
        let extended = self.message(now_ns, |store| {
            let number = store.shown_token(caller, token)?.map_err(|_| BlobDeletionError::Completed)?;
            let lease = store.leases.get_mut(number).ok_or(BlobDeletionError::UnknownToken)?;
            (lease.expires_at_ns, lease.length) = (lease.expires_at_ns.max(until), length);
            store.root.tally(Counter::Extended, 1);
            Ok(lease.expires_at_ns)
        });
        extended.unwrap_or(Err(BlobDeletionError::UnknownToken))
    }

    /// Ends the live leases of a holder, or all live leases, and returns their number. Their rows return after a quarter of the lease's
    /// length, the longest time that a request for a blob may take.
    pub fn end_leases(&mut self, holder: Option<Principal>, now_ns: u64) -> u64 {
        let is_live = |lease: &Lease| lease.stage == Stage::Live && holder.is_none_or(|holder| lease.holder == holder);
        let ended = self.message(now_ns, |store| {
            let mut ended = 0;
            while let Some(number) = store.leases.earliest(is_live)
                && let Some(lease) = store.leases.get_mut(number)
            {
                lease.expires_at_ns = lease.expires_at_ns.min(now_ns.saturating_add(lease.length / 4));
                store.end(number, now_ns, Stage::Ended, None);
                ended += 1;
            }
            store.root.tally(Counter::Ended, ended);
            ended
        });
        ended.unwrap_or(0)
    }

    /// Returns the time of the next expiry or end of a back-off, in Unix nanoseconds, or `None` if there is none.
    pub fn next_event(&self) -> Option<u64> {
        let store = self.store.as_ref()?;
        let ends = store.leases.open.iter().map(Lease::next_event);
        let treap = store.treap();
        let due = treap.first(&store.slots, store.root.backing_off).map(|slot| treap.key(&store.slots, slot).0);
        ends.chain(due).min()
    }
}

impl Store {
    /// Returns the number of the live lease that a token names; or, for a completed lease, the reply that its holder was given.
    ///
    /// # Errors
    /// `UnknownToken`, `NotHolder`, `Expired`.
    pub fn shown_token(&self, caller: Principal, token: &[u8]) -> Answer<Result<u64, CompletedBlobDeletions>> {
        let token = Token::parse(token).ok_or(BlobDeletionError::UnknownToken)?;
        let held_by = |holder: Principal| if holder == caller { Ok(()) } else { Err(BlobDeletionError::NotHolder) };
        let live = self.leases.get(token.number).filter(|lease| lease.token == token && lease.stage == Stage::Live);
        if let Some(lease) = live {
            held_by(lease.holder)?;
            return Ok(Ok(token.number));
        }
        let ended = self.leases.ends.of_token(&token).ok_or(BlobDeletionError::UnknownToken)?;
        held_by(ended.holder)?;
        ends::reply(&self.slots, self.leases.slot, ended).map(Err).ok_or(BlobDeletionError::Expired)
    }

    fn acquire(
        &mut self,
        caller: Principal,
        arg: &AcquireBlobDeletions,
        (due, most): (Option<u32>, u32),
        [acquired_at_ns, length]: [u64; 2],
    ) -> Acquired {
        let live = |lease: &&Lease| lease.stage == Stage::Live && lease.holder == caller;
        let arguments = digest(arg);
        if let Some(request) = arg.request.as_ref().map(|request| &request[..]) {
            let same = |lease: &&Lease| live(lease) && lease.request.as_deref() == Some(request);
            if let Some(lease) = self.leases.open.iter().find(same) {
                if lease.arguments != arguments {
                    return Err(BlobDeletionError::OtherRequest);
                }
                let rows = lease.rows(&self.slots).filter_map(|row| row.shown(&self.slots)).collect();
                return Ok(Some(lease.given(rows)));
            }
            if let Some(ended) = self.leases.ends.of_request(caller, request) {
                let is_completed = ended.stage == Stage::Completed;
                return Err(if is_completed { BlobDeletionError::Completed } else { BlobDeletionError::Expired });
            }
        }
        let Some(due) = due else { return Ok(None) };
        let height = u64::from(due);
        let mut merge = Merge::new(self, self.waiting(&arg.store_types, arg.selectors.as_deref()), (0, 0));
        if merge.peek(height).is_none() {
            return Ok(None);
        }
        let mine = self.leases.open.iter().filter(|lease| lease.stage != Stage::Over && lease.holder == caller);
        if mine.count() as u64 >= u64::from(most) {
            return Err(BlobDeletionError::TooManyLeases { limit: u64::from(most) });
        }
        if self.leases.open.iter().filter(|lease| !lease.is_done()).count() >= MAX_LEASES {
            return Err(BlobDeletionError::TooManyLeases { limit: MAX_LEASES as u64 });
        }
        let token = Token::new(self.root.secret, self.root.next_lease, acquired_at_ns, caller);
        self.leases.add(Lease {
            token,
            holder: caller,
            stage: Stage::Live,
            request: arg.request.as_ref().map(|request| request.to_vec()),
            arguments,
            height: due,
            rows: 0,
            first: 0,
            unknown: 0,
            acquired_at_ns,
            expires_at_ns: acquired_at_ns.saturating_add(length),
            length,
            done: [0; 3],
            place: 0,
            changed: true,
        });
        self.root.next_lease += 1;
        self.root.tally(Counter::Acquired, 1);
        let mut rows = Vec::new();
        for _ in 0..limit(arg.limit) {
            let Some(slot) = merge.next(self, height) else { break };
            // A row that cannot be decoded stays in its place.
            if let Some(mut row) = Row::read(&self.slots, slot).filter(|row| row.state == BlobDeletionState::Waiting) {
                row.lease = token.number;
                self.move_to(&mut row, BlobDeletionState::Leased);
                rows.extend(row.shown(&self.slots));
            }
        }
        Ok(self.leases.get(token.number).map(|lease| lease.given(rows)))
    }
}

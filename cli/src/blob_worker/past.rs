//! What leases before have shown of a store, and how it is asked then.
//!
//! A request that failed as a whole may have failed for one blob's sake, and the queue gives the same blobs again. So they are asked for
//! behind the others, by requests of half as many, down to one. A blob that fails alone, again and again while others go, has failed
//! itself. A store that is away fails all of them, and costs none a try. Likewise a blob that is refused again, though others went behind its
//! first refusal, has failed itself, and a store that allows nothing, or no more, costs none a try.

use super::store::Target;
use std::collections::{BTreeSet, HashMap};

/// How often a blob fails alone, while others of its store go, until that counts against it.
pub const ALONE: u32 = 3;
/// More refused blobs than these, where nothing goes, are the store's doing.
pub const FEW: usize = 10;
/// Blobs that are remembered at most. Where more would be, all are forgotten, and found again.
const REMEMBERED: usize = 100_000;

/// A request: blobs that are deleted together.
#[derive(Clone, Debug)]
pub struct Request {
    /// The blobs.
    pub targets: Vec<Target>,
    /// A request for each of them failed before.
    pub failed_before: bool,
}

/// A blob whose requests failed.
#[derive(Clone, Copy, Debug, Default)]
struct Suspect {
    /// Blobs of the next request that has it.
    most: usize,
    /// How often a request failed that had it.
    failures: u32,
    /// How often it failed alone, while others went.
    alone: u32,
}

/// What leases before have shown of a store.
#[derive(Debug, Default)]
pub struct Past {
    suspects: HashMap<u64, Suspect>,
    /// What it refused in the last lease, and whether something else went behind that.
    refused: HashMap<u64, bool>,
    /// Blobs of the last lease that went back as they were, and of which it failed or refused a request, then or before. They come again at
    /// once, and must not fill a lease, or nothing else is in it that could go.
    pub held_up: usize,
}

impl Past {
    /// Whether a request for a blob failed before, or was refused.
    pub fn is_known(&self, id: u64) -> bool {
        self.suspects.contains_key(&id) || self.refused.contains_key(&id)
    }

    /// The requests for blobs: those of which nothing is known first, so many at a time; the others behind them, those that failed most
    /// often last.
    pub fn requests(&self, targets: Vec<Target>, chunk: usize) -> Vec<Request> {
        let (mut suspects, fresh): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|target| self.suspects.contains_key(&target.id));
        let of = |target: &Target| self.suspects.get(&target.id).copied().unwrap_or_default();
        suspects.sort_by_key(|target| (usize::MAX - of(target).most, of(target).failures));
        let fresh = fresh.chunks(chunk).map(|targets| Request { targets: targets.to_vec(), failed_before: false });
        let equal = suspects.chunk_by(|a, b| of(a).most == of(b).most);
        let again = equal.flat_map(|targets| {
            let many = targets.first().map_or(1, |target| of(target).most).clamp(1, chunk);
            targets.chunks(many).map(|targets| Request { targets: targets.to_vec(), failed_before: true })
        });
        fresh.chain(again).collect()
    }

    /// A request failed that had this blob, and so many. Answers whether that is the blob's failure.
    pub fn failed(&mut self, id: u64, many: usize, others_go: bool) -> bool {
        if self.suspects.len() >= REMEMBERED && !self.suspects.contains_key(&id) {
            self.suspects.clear();
        }
        let suspect = self.suspects.entry(id).or_default();
        suspect.most = (many / 2).max(1);
        suspect.failures = suspect.failures.saturating_add(1);
        if many == 1 && others_go {
            suspect.alone = suspect.alone.saturating_add(1);
        }
        many == 1 && others_go && suspect.alone >= ALONE
    }

    /// The store said what became of a blob.
    pub fn is_settled(&mut self, id: u64) {
        self.suspects.remove(&id);
        self.refused.remove(&id);
    }

    /// A lease had these blobs, refused or not asked for: of others it is not remembered that they were refused. Where they were meanwhile,
    /// and how the store was then, is not known.
    pub fn only_refused(&mut self, these: &BTreeSet<u64>) {
        self.refused.retain(|id, _| these.contains(id));
    }

    /// The store refuses a blob, one of so many in this lease; others go in this lease, perhaps behind that. Answers whether that is the
    /// blob's failure: it is where the store refused it in the lease before and then deleted something else that was there. What it
    /// deleted before may have gone when it was not yet read-only. Where nothing goes in this lease and more than [`FEW`] are refused, it
    /// has become so. Then it refuses the worker.
    pub fn is_refused(&mut self, id: u64, others_go: bool, others_went_behind: bool, many: usize) -> bool {
        self.suspects.remove(&id);
        if self.refused.len() >= REMEMBERED && !self.refused.contains_key(&id) {
            self.refused.clear();
        }
        let before = self.refused.get(&id).copied();
        let is_its_own = before == Some(true);
        self.refused.insert(id, is_its_own || others_went_behind || before.is_some() && others_go);
        is_its_own && (others_go || many <= FEW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(ids: impl IntoIterator<Item = u64>) -> Vec<Target> {
        ids.into_iter().map(|id| Target { id, paths: Vec::new() }).collect()
    }

    fn ids(past: &Past, ids: impl IntoIterator<Item = u64>, chunk: usize) -> Vec<Vec<u64>> {
        let requests = past.requests(targets(ids), chunk);
        requests.iter().map(|request| request.targets.iter().map(|target| target.id).collect()).collect()
    }

    #[test]
    fn what_failed_comes_in_halves_behind_the_others_and_what_failed_most_often_last() {
        let mut past = Past::default();
        assert_eq!(ids(&past, 1..=5, 2), [vec![1, 2], vec![3, 4], vec![5]]);
        (1..=4).for_each(|id| assert!(!past.failed(id, 4, true)));
        assert_eq!(ids(&past, 1..=9, 4), [vec![5, 6, 7, 8], vec![9], vec![1, 2], vec![3, 4]]);
        (1..=2).for_each(|id| assert!(!past.failed(id, 2, true)));
        assert_eq!(ids(&past, 1..=5, 4), [vec![5], vec![3, 4], vec![1], vec![2]]);
        assert!(!past.failed(1, 1, false));
        (3..=4).for_each(|id| past.is_settled(id));
        assert_eq!(ids(&past, 1..=4, 4), [vec![3, 4], vec![2], vec![1]]);
        assert_eq!(ids(&past, [], 4), Vec::<Vec<u64>>::new());
    }

    #[test]
    fn alone_it_counts_at_the_third_time_that_others_go_and_never_where_nothing_does() {
        let mut past = Past::default();
        (0..100).for_each(|_| assert!(!past.failed(1, 1, false)));
        assert!(!past.failed(1, 1, true) && !past.failed(1, 2, true) && !past.failed(1, 1, true));
        assert!(past.failed(1, 1, true) && past.failed(1, 1, true) && !past.failed(1, 1, false));
        past.is_settled(1);
        assert!(!past.failed(1, 1, true), "from the start");
        (0..=REMEMBERED as u64).for_each(|id| assert!(!past.failed(id, 2, false)));
        assert!(past.suspects.len() <= REMEMBERED);
    }

    #[test]
    fn a_refusal_is_the_blobs_where_others_went_behind_it_and_it_is_refused_again() {
        let mut past = Past::default();
        assert!(!past.is_refused(1, false, false, 1) && !past.is_refused(1, false, false, 1), "it may be read-only");
        assert!(!past.is_refused(1, true, false, 1), "it may have been so a moment ago");
        assert!(past.is_refused(1, false, false, 1), "others went, and it does not");
        assert!(!past.is_refused(2, true, false, 1), "it may have become read-only behind them");
        (0..9).for_each(|_| assert!(!past.is_refused(2, false, false, 1), "as it has"));
        assert!(!past.is_refused(3, true, true, 1), "it may have been read-only a moment ago");
        assert!(past.is_refused(3, false, false, FEW), "it is not, and refuses this one");
        assert!(past.is_refused(3, true, false, FEW + 1), "of many");
        assert!(!past.is_refused(3, false, false, FEW + 1), "it has become read-only");
        past.is_settled(3);
        assert!(!past.is_refused(3, true, true, 1), "from the start");
        past.only_refused(&[4].into());
        assert!(!past.is_refused(3, true, true, 1), "it was away for a lease, and the store may be read-only anew");
        (10..=10 + REMEMBERED as u64).for_each(|id| assert!(!past.is_refused(id, true, true, 1)));
        assert!(past.refused.len() <= REMEMBERED);
    }
}

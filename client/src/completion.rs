//! Reports the outcome of any number of external blob deletions: splits them into messages, and sends again the rows that a message left
//! over.

use crate::{CallError, Client, Error, Failure, Retry, Transport};
use ic_coppice_interface::*;

/// Most row numbers in one message without a lease.
pub(crate) const MAX_IDS: usize = 10_000;

/// Reporting the outcome of rows without a lease stopped in the middle. If the failed message had no answer, its rows may or may not be
/// done. Check with `list_blob_deletions` before sending them again, because failures would count twice.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {heard} rows")]
pub struct Unfinished {
    /// The number of rows that the canister has taken: the first rows, with completed rows before failed ones.
    pub heard: usize,
    /// The outcome of these rows. `remaining` is the number of rows after them.
    pub done: CompletedBlobDeletions,
    /// Why.
    #[source]
    pub error: Error<BlobDeletionError>,
}

impl Unfinished {
    /// Returns if and when the remaining rows may be sent again as they are: never if a message had no answer.
    pub fn retry(&self) -> Retry {
        match &self.error {
            Error::Call(_) => Retry::Never,
            error => error.retry(),
        }
    }
}

/// Rows whose blobs are gone, then rows whose blobs could not be deleted. A row in both lists counts as gone.
struct Rows {
    all: Vec<u64>,
    completed: usize,
}

impl Rows {
    fn new(completed: &[u64], failed: &[u64]) -> Self {
        let gone: std::collections::HashSet<u64> = completed.iter().copied().collect();
        let failed = failed.iter().filter(|id| !gone.contains(id));
        Self { all: completed.iter().chain(failed).copied().collect(), completed: completed.len() }
    }

    /// Returns at most `most` rows from position `from`, split into completed and failed rows.
    fn part(&self, from: usize, most: usize) -> (Vec<u64>, Vec<u64>) {
        let to = self.all.len().min(from.saturating_add(most));
        let middle = self.completed.clamp(from, to);
        (self.all[from..middle].to_vec(), self.all[middle..to].to_vec())
    }
}

fn leads_nowhere(method: &str, sent: usize, remaining: u64) -> Error<BlobDeletionError> {
    let why = format!("{sent} rows sent, {remaining} reported as remaining");
    CallError { method: method.into(), failure: Failure::Transport(why.into()) }.into()
}

impl<T: Transport> Client<T> {
    /// [`complete_blob_deletions`](Self::complete_blob_deletions), for any number of rows. Returns the sums of all answers.
    ///
    /// # Errors
    /// When the canister refuses, or there is no answer, in the middle. The rows answered until then are done.
    pub async fn complete_blob_deletions_all(
        &self,
        done: &CompleteBlobDeletions,
    ) -> Result<CompletedBlobDeletions, Unfinished> {
        let rows = Rows::new(&done.completed_ids, &done.failed_ids);
        let (mut heard, mut sum) = (0, CompletedBlobDeletions::default());
        loop {
            let (completed_ids, failed_ids) = rows.part(heard, MAX_IDS);
            let sent = completed_ids.len() + failed_ids.len();
            let part = CompleteBlobDeletions { completed_ids, failed_ids, ..*done };
            let error = match self.complete_blob_deletions(&part).await {
                Ok(some) if some.remaining < sent as u64 || sent == 0 && some.remaining == 0 => {
                    heard += sent - some.remaining as usize;
                    sum.removed += some.removed;
                    sum.retries_incremented += some.retries_incremented;
                    sum.dead += some.dead;
                    sum.already.extend(some.already);
                    sum.skipped.extend(some.skipped);
                    if heard == rows.all.len() {
                        return Ok(sum);
                    }
                    continue;
                }
                Ok(some) => leads_nowhere("complete_blob_deletions", sent, some.remaining),
                Err(error) => error,
            };
            sum.remaining = (rows.all.len() - heard) as u64;
            return Err(Unfinished { heard, done: sum, error });
        }
    }

    /// Repeats [`complete_blob_deletion_batch`](Self::complete_blob_deletion_batch) with the same argument until nothing remains and the
    /// lease is over. Returns the last answer, which is final. After a lost answer, call this method again: nothing counts twice.
    ///
    /// # Errors
    /// When the canister refuses, makes no progress, or there is no answer.
    pub async fn complete_blob_deletion_batch_all(
        &self,
        done: &CompleteBlobDeletionBatch,
    ) -> Result<CompletedBlobDeletions, Error<BlobDeletionError>> {
        let mut before = u64::MAX;
        loop {
            let answer = self.complete_blob_deletion_batch(done).await?;
            if answer.remaining == 0 {
                return Ok(answer);
            }
            if answer.remaining >= before {
                let sent = done.completed_ids.len() + done.failed_ids.len();
                return Err(leads_nowhere("complete_blob_deletion_batch", sent, answer.remaining));
            }
            before = answer.remaining;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;
    use std::cell::RefCell;

    /// A queue whose messages have room for `room` rows, and the calls that it received.
    struct Queue {
        room: usize,
        /// Rows of the lease that are done.
        leased: RefCell<Vec<u64>>,
        received: RefCell<Vec<(Vec<u64>, Vec<u64>)>>,
        /// The number of the message whose answer is lost.
        lost: usize,
    }

    impl Transport for Queue {
        async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
            let (completed, failed) = match method {
                "complete_blob_deletions" => {
                    let (received,): (CompleteBlobDeletions,) = candid::decode_args(&arg).unwrap();
                    assert_eq!(received.max_retries, 3);
                    (received.completed_ids, received.failed_ids)
                }
                _ => {
                    let (received,): (CompleteBlobDeletionBatch,) = candid::decode_args(&arg).unwrap();
                    assert_eq!(received.token.as_slice(), b"lease");
                    (received.completed_ids, received.failed_ids)
                }
            };
            // Rows of a lease that were already completed do not count again.
            let mut leased = self.leased.borrow_mut();
            let fresh = |ids: &Vec<u64>| ids.iter().filter(|id| !leased.contains(id)).copied().collect::<Vec<_>>();
            let (fresh_completed, fresh_failed) = (fresh(&completed), fresh(&failed));
            let removed = fresh_completed.len().min(self.room);
            let failures = fresh_failed.len().min(self.room - removed);
            let remaining = (fresh_completed.len() + fresh_failed.len() - removed - failures) as u64;
            if method == "complete_blob_deletion_batch" {
                leased.extend(fresh_completed.iter().take(removed).chain(fresh_failed.iter().take(failures)));
            }
            self.received.borrow_mut().push((completed, failed));
            if self.received.borrow().len() == self.lost {
                return Err(Failure::Lost("gone".into()));
            }
            let answer = CompletedBlobDeletions {
                removed: removed as u64,
                retries_incremented: failures as u64,
                remaining,
                ..Default::default()
            };
            Ok(candid::encode_one(Ok::<_, BlobDeletionError>(answer)).unwrap())
        }

        async fn query(&self, method: &str, _: Vec<u8>) -> Result<Vec<u8>, Failure> {
            panic!("unexpected query of {method}")
        }
    }

    fn queue(room: usize, lost: usize) -> Client<Queue> {
        Client::new(Queue { room, leased: RefCell::default(), received: RefCell::default(), lost })
    }

    fn rows(completed: &[u64], failed: &[u64]) -> CompleteBlobDeletions {
        CompleteBlobDeletions {
            completed_ids: completed.into(),
            failed_ids: failed.into(),
            max_retries: 3,
            ..Default::default()
        }
    }

    fn batch(rows: CompleteBlobDeletions) -> CompleteBlobDeletionBatch {
        let token = b"lease".to_vec().into();
        let CompleteBlobDeletions { completed_ids, failed_ids, max_retries, .. } = rows;
        CompleteBlobDeletionBatch { token, completed_ids, failed_ids, max_retries, ..Default::default() }
    }

    #[test]
    fn remaining_rows_are_sent_again_and_no_failure_twice() {
        let client = queue(2, 0);
        let done = block_on(client.complete_blob_deletions_all(&rows(&[1, 2, 3], &[3, 4, 5, 6]))).unwrap();
        assert_eq!((done.removed, done.retries_incremented, done.remaining), (3, 3, 0));
        let received = client.transport().received.borrow();
        assert_eq!(*received, [(vec![1, 2, 3], vec![4, 5, 6]), (vec![3], vec![4, 5, 6]), (vec![], vec![5, 6])]);
    }

    #[test]
    fn message_without_lease_has_at_most_10_000_rows() {
        let client = queue(usize::MAX, 0);
        let many: Vec<u64> = (0..25_000).collect();
        assert_eq!(block_on(client.complete_blob_deletions_all(&rows(&many, &[]))).unwrap().removed, 25_000);
        let received: Vec<usize> =
            client.transport().received.borrow().iter().map(|(completed, _)| completed.len()).collect();
        assert_eq!(received, [10_000, 10_000, 5_000]);
    }

    #[test]
    fn lease_batch_is_sent_until_nothing_remains_and_stops_without_progress() {
        let client = queue(2, 0);
        assert_eq!(block_on(client.complete_blob_deletion_batch_all(&batch(rows(&[], &[])))).unwrap().removed, 0);
        let done = block_on(client.complete_blob_deletion_batch_all(&batch(rows(&[1], &[2, 3])))).unwrap();
        assert_eq!(done.remaining, 0);
        let all = (vec![1], vec![2, 3]);
        assert_eq!(*client.transport().received.borrow(), [(vec![], vec![]), all.clone(), all]);
        let stuck = queue(0, 0);
        let error = block_on(stuck.complete_blob_deletion_batch_all(&batch(rows(&[1], &[])))).unwrap_err();
        assert!(matches!(error, Error::Call(CallError { failure: Failure::Transport(_), .. })));
        assert_eq!(stuck.transport().received.borrow().len(), 2, "it stops without progress");
    }

    #[test]
    fn lost_answer_stops_the_report_and_keeps_earlier_outcomes() {
        let client = queue(2, 2);
        let stopped = block_on(client.complete_blob_deletions_all(&rows(&[1], &[2, 3, 4, 5]))).unwrap_err();
        assert_eq!((stopped.heard, stopped.done.removed, stopped.done.retries_incremented), (2, 1, 1));
        assert_eq!((stopped.done.remaining, stopped.retry()), (3, Retry::Never));
        assert_eq!(client.transport().received.borrow().len(), 2, "nothing is sent after the lost answer");
        let client = queue(2, 1);
        let lost = block_on(client.complete_blob_deletion_batch_all(&batch(rows(&[1], &[])))).unwrap_err();
        assert_eq!(lost.retry(), Retry::Again, "with a lease it may be sent again");
        // An answer without progress also stops the report.
        let client = queue(0, 0);
        let stopped = block_on(client.complete_blob_deletions_all(&rows(&[1], &[]))).unwrap_err();
        assert!(matches!(stopped.error, Error::Call(CallError { failure: Failure::Transport(_), .. })));
    }
}

use super::*;
use crate::testing::{Script, block_on};
use crate::{Block, CallError, Cause, Failure};
use ic_coppice_interface::*;
use std::cell::{Cell, RefCell};

/// Returns the hash of block `number` of a branch.
fn hash_of(branch: u8, number: u64) -> [u8; 32] {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&number.to_le_bytes());
    hash
}

/// Returns blocks of branch `b`, which begins after block `fork` of branch `a`.
fn blocks(numbers: RangeInclusive<u64>, fork: u64) -> Vec<AppendBlock> {
    let hash = |number| hash_of(if number > fork { b'b' } else { b'a' }, number);
    numbers.map(|number| Block::new(number, hash(number), hash(number - 1), number).seal().unwrap()).collect()
}

fn header(branch: u8, number: u64) -> BlockHeader {
    BlockHeader {
        number,
        hash: hash_of(branch, number).into(),
        parent_hash: Some(hash_of(branch, number - 1).into()),
        timestamp_secs: 0,
        monotonic_timestamp_secs: 0,
        transactions: 0,
        keys: 0,
        lengths: BySegment::default(),
        sha256: BySegment::default(),
        seal: Default::default(),
    }
}

fn status(oldest: u64) -> PruneStatus {
    let index = IndexDebt {
        entries: 0,
        buckets: 0,
        debt: 0,
        begin_debt: 0,
        forced_debt: 0,
        cursor: None,
        dropped: 0,
        sweeps: 0,
    };
    PruneStatus {
        policy: None,
        enabled: false,
        deletions_stopped_since_ns: None,
        need_prune: false,
        reason: None,
        target: 0,
        held_by: None,
        retain_min_block: 0,
        floor_block: None,
        exported_before_block: None,
        pruned_before_block: oldest,
        prune_cursor: None,
        backlog: PruneBacklog {
            blocks: 0,
            references: 0,
            held_blocks: 0,
            held_since_secs: None,
            debt: 0,
            behind_since_secs: None,
            pruned_per_hour: 0,
            appended_per_hour: 0,
            empty_in_secs: None,
        },
        sweep: SweepPhase::Idle,
        transaction_index: index.clone(),
        key_index: index,
        running: false,
        oldest_kept_block: Some(oldest),
        oldest_kept_timestamp_secs: None,
        head: None,
        estimated_kept_bytes: 0,
        capacity_bytes: 0,
        water_marks: None,
        last_run: None,
        runs: 0,
        ticks: 0,
        next_tick_ns: 0,
        pruned_blocks: 0,
        pruned_bytes: 0,
        faults: 0,
        acknowledged_faults: 0,
        skipped: Vec::new(),
    }
}

/// A chain that waits a limited number of times, and notes its waits.
struct Patient {
    blocks: RefCell<Vec<AppendBlock>>,
    waits: Cell<u32>,
    paused: RefCell<Vec<(u64, u32, Option<HeldBy>)>>,
}

fn patient(blocks: Vec<AppendBlock>, waits: u32) -> Patient {
    Patient { blocks: RefCell::new(blocks), waits: Cell::new(waits), paused: RefCell::default() }
}

impl Chain for Patient {
    async fn range(&self) -> Result<Option<RangeInclusive<u64>>, Cause> {
        let blocks = self.blocks.borrow();
        Ok(blocks.first().zip(blocks.last()).map(|(first, last)| first.number..=last.number))
    }

    async fn block(&self, number: u64) -> Result<Option<AppendBlock>, Cause> {
        Ok(self.blocks.borrow().iter().find(|block| block.number == number).cloned())
    }

    async fn wait(&self, pause: &Pause<'_>) -> bool {
        self.paused.borrow_mut().push((pause.after.as_secs(), pause.failures, pause.error.held_by().cloned()));
        self.waits.replace(self.waits.get().saturating_sub(1)) > 0
    }
}

fn empty() -> Script {
    Script::default().answers("get_head", Err::<BlockHeader, _>(ReadError::NotFound))
}

impl Script {
    fn head(self, branch: u8, number: u64) -> Self {
        self.answers("get_head", Ok::<_, ReadError>(header(branch, number)))
    }

    fn headers(self, branch: u8, numbers: RangeInclusive<u64>) -> Self {
        let headers = numbers.map(|number| header(branch, number)).collect();
        self.answers("get_block_headers", Ok::<_, ReadError>(HeaderPage { headers, next: None }))
    }

    /// Answers that blocks from this number on are kept.
    fn kept(self, oldest: u64) -> Self {
        self.answers("get_prune_status", status(oldest))
    }

    /// Answers that blocks up to this number are kept, of a message with more than one block.
    fn appended(self, last: u64) -> Self {
        self.answers("append_blocks", AppendedBlocks { next: last + 1, stopped: None })
    }

    /// Refuses a block of a message with more than one block.
    fn refused(self, next: u64, error: AppendError) -> Self {
        self.answers("append_blocks", AppendedBlocks { next, stopped: Some(AppendStop::Refused(error)) })
    }

    fn append(self, answer: Result<(), AppendError>) -> Self {
        self.answers("append_block", answer)
    }

    fn lost(self, method: &'static str) -> Self {
        self.returns(method, Err(Failure::Lost("gone".into())))
    }

    fn rolled_back(self, head: u64, removed: u64) -> Self {
        self.answers("rollback_to", Ok::<_, RollbackError>(Rollback { head, removed, ..Rollback::default() }))
    }
}

fn follow(script: Script, chain: &(impl Chain + ?Sized)) -> Result<Followed, FollowError> {
    let client = Client::new(script);
    let followed = block_on(client.follow(chain));
    client.transport().ended();
    followed
}

fn appended(appended: u64) -> Followed {
    Followed { appended, ..Followed::default() }
}

#[test]
fn empty_canister_begins_with_the_first_block_and_a_later_call_continues_after_the_head() {
    let chain = blocks(5..=8, 100);
    assert_eq!(follow(empty().appended(8), &chain).unwrap(), appended(4));
    assert_eq!(follow(Script::default().head(b'a', 6).appended(8), chain.as_slice()).unwrap(), appended(2));
    // The head is the parent of the first block.
    assert_eq!(follow(Script::default().head(b'a', 4).appended(8), &chain).unwrap(), appended(4));
    assert_eq!(follow(Script::default().head(b'a', 8), &chain).unwrap(), appended(0));
}

#[test]
fn chain_without_blocks_asks_nothing_and_a_shorter_chain_changes_nothing() {
    assert_eq!(follow(Script::default(), &Vec::new()).unwrap(), appended(0));
    let chain = blocks(5..=8, 100);
    let script = Script::default().head(b'a', 10).kept(1).headers(b'a', 4..=8);
    assert_eq!(follow(script, &chain).unwrap(), appended(0));
}

#[test]
fn refused_block_is_sent_again_after_a_wait_that_names_the_holder() {
    let held_by = HeldBy::Exporter("archive".into());
    let refused = || AppendError::CapacityExhausted { held_by: held_by.clone() };
    let script = empty().refused(1, refused());
    let script = script.answers("get_head", Err::<BlockHeader, _>(ReadError::NotFound)).refused(1, refused());
    let script = script.answers("get_head", Err::<BlockHeader, _>(ReadError::NotFound)).appended(2);
    let chain = patient(blocks(1..=2, 100), 2);
    assert_eq!(follow(script, &chain).unwrap(), appended(2));
    assert_eq!(*chain.paused.borrow(), [(1, 1, Some(held_by.clone())), (2, 2, Some(held_by.clone()))]);
    // A chain that does not wait gets the refusal.
    let error = follow(empty().refused(1, refused()), &blocks(1..=2, 100)).unwrap_err();
    assert_eq!((error.held_by(), error.retry()), (Some(&held_by), Retry::AfterPruning));
}

#[test]
fn waits_grow_to_a_minute_and_begin_anew_after_progress() {
    let script = (0..8).fold(Script::default(), |script, _| script.lost("get_head"));
    let held = AppendError::RollbackUnderway { to: 5 };
    let script = script.head(b'a', 4).refused(6, held).head(b'a', 5).append(Ok(()));
    let chain = patient(blocks(5..=6, 100), 9);
    assert_eq!(follow(script, &chain).unwrap(), appended(2));
    let seconds: Vec<u64> = chain.paused.borrow().iter().map(|(seconds, ..)| *seconds).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 1]);
}

#[test]
fn block_whose_answer_was_lost_is_not_sent_again_if_it_is_the_head() {
    let script = empty().lost("append_blocks").head(b'a', 1).append(Ok(()));
    assert_eq!(follow(script, &patient(blocks(1..=2, 100), 1)).unwrap(), appended(1));
}

/// Long blocks go into several messages, and the blocks before a refused one count.
#[test]
fn message_takes_the_blocks_for_which_it_has_room() {
    let mut chain = blocks(1..=8, 100);
    chain.iter_mut().for_each(|block| block.body = vec![7; 400_000].into());
    let script = empty()
        .appended(3)
        .refused(5, AppendError::UploadOpen(UploadOpen { by: candid::Principal::anonymous(), expires_at_secs: 9 }));
    let script = script.head(b'a', 4).appended(7).append(Ok(()));
    assert_eq!(follow(script, &patient(chain, 1)).unwrap(), appended(8));
}

#[test]
fn rollback_that_waits_for_memory_is_left_to_the_canister_and_the_block_is_sent_after_it() {
    let waits = Rollback {
        head: 6,
        has_more: true,
        waits: Some(UtxoError::NoMemory(NoMemory::OutOfSpace)),
        ..Rollback::default()
    };
    let script = Script::default().head(b'a', 7).kept(1).headers(b'a', 1..=7);
    let script = script.answers("rollback_to", Ok::<_, RollbackError>(waits));
    let underway = Err::<(), _>(AppendError::RollbackUnderway { to: 5 });
    let script = script.answers("append_block", underway).head(b'a', 5).append(Ok(()));
    assert_eq!(follow(script, &patient(blocks(1..=6, 5), 1)).unwrap(), appended(1));
}

#[test]
fn rollback_whose_answer_was_lost_is_repeated_from_the_head() {
    let script = Script::default().head(b'a', 6).kept(1).headers(b'a', 1..=6).lost("rollback_to");
    let script = script.head(b'a', 5).append(Ok(()));
    assert_eq!(follow(script, &patient(blocks(1..=6, 5), 1)).unwrap(), appended(1));
}

#[test]
fn deep_reorg_is_searched_in_growing_pages_down_to_the_oldest_kept_block() {
    let chain = blocks(1..=200, 40);
    let pruned = Err::<HeaderPage, _>(ReadError::Pruned { first_available: 30 });
    let script = || Script::default().head(b'a', 150).kept(1).headers(b'a', 135..=150).headers(b'a', 71..=134);
    let found = script().answers("get_block_headers", pruned.clone()).headers(b'a', 30..=70);
    let followed = follow(found.rolled_back(40, 110).appended(200), &chain).unwrap();
    assert_eq!(followed, Followed { appended: 160, rolled_back: 110 });
    // The common block was pruned.
    let chain = blocks(1..=200, 20);
    let none = script().answers("get_block_headers", pruned).headers(b'a', 30..=70);
    let error = follow(none, &chain).unwrap_err();
    assert!(matches!(error, FollowError::NoCommonBlock { head: 150, first: 1, last: 200 }), "{error:?}");
    assert_eq!(error.retry(), Retry::Never);
}

#[test]
fn page_of_headers_that_ends_early_is_continued_and_a_page_that_leads_nowhere_is_the_last() {
    let page = |numbers: RangeInclusive<u64>, next| {
        Ok::<_, ReadError>(HeaderPage {
            headers: numbers.map(|number| header(b'a', number)).collect(),
            next: Some(next),
        })
    };
    let script = Script::default().head(b'a', 6).kept(1).answers("get_block_headers", page(1..=2, 3));
    let script = script.headers(b'a', 3..=6).rolled_back(5, 1).appended(9);
    assert_eq!(follow(script, &blocks(1..=9, 5)).unwrap(), Followed { appended: 4, rolled_back: 1 });
    for next in [0, 1, 7, u64::MAX] {
        let script = Script::default().head(b'a', 6).kept(1).answers("get_block_headers", page(1..=6, next));
        let script = script.rolled_back(5, 1).appended(9);
        assert_eq!(follow(script, &blocks(1..=9, 5)).unwrap().rolled_back, 1, "{next}");
    }
}

#[test]
fn chain_that_begins_above_the_head_or_after_another_parent_has_no_common_block() {
    let error = follow(Script::default().head(b'a', 3).kept(1), &blocks(5..=8, 100)).unwrap_err();
    assert!(matches!(error, FollowError::NoCommonBlock { head: 3, .. }), "{error:?}");
    let script = Script::default().head(b'a', 6).kept(1).headers(b'a', 4..=6);
    let error = follow(script, &blocks(5..=8, 3)).unwrap_err();
    assert!(matches!(error, FollowError::NoCommonBlock { head: 6, .. }), "{error:?}");
    // The parent of the first block is the common block.
    let script = Script::default().head(b'a', 6).kept(1).headers(b'a', 4..=6).rolled_back(4, 2).appended(8);
    assert_eq!(follow(script, &blocks(5..=8, 4)).unwrap(), Followed { appended: 4, rolled_back: 2 });
}

#[test]
fn chain_that_starts_at_zero_is_followed() {
    let zero = Block::new(0, [7; 32], [0; 32], 0).seal().unwrap();
    let one = Block::new(1, [8; 32], [7; 32], 0).seal().unwrap();
    assert_eq!(follow(empty().appended(1), &vec![zero.clone(), one.clone()]).unwrap(), appended(2));
    let other = BlockHeader { number: 0, hash: [6; 32].into(), parent_hash: Some([0; 32].into()), ..header(b'a', 1) };
    let page = HeaderPage { headers: vec![other.clone()], next: None };
    let script = Script::default().answers("get_head", Ok::<_, ReadError>(other)).kept(0);
    let script = script.answers("get_block_headers", Ok::<_, ReadError>(page));
    let error = follow(script, &vec![zero, one]).unwrap_err();
    assert!(matches!(error, FollowError::NoCommonBlock { head: 0, first: 0, last: 1 }), "{error:?}");
}

fn other_block() -> AppendError {
    AppendError::Conflict { differs: vec![BlockField::Hash, BlockField::Body] }
}

#[test]
fn another_callers_block_is_noticed_by_the_refusal_and_replaced() {
    let script = Script::default().head(b'a', 5).append(Err(other_block())).head(b'c', 6).kept(1);
    let page = HeaderPage { headers: vec![header(b'a', 5), header(b'c', 6)], next: None };
    let script = script.answers("get_block_headers", Ok::<_, ReadError>(page)).rolled_back(5, 1).append(Ok(()));
    let chain = blocks(5..=6, 100);
    assert_eq!(follow(script, &chain).unwrap(), Followed { appended: 1, rolled_back: 1 });
    // A second refusal in a row without progress waits.
    let script = Script::default().head(b'a', 5).append(Err(other_block()));
    let script = script.head(b'a', 5).append(Err(other_block()));
    let error = follow(script, &chain).unwrap_err();
    assert_eq!(error.retry(), Retry::Reorg);
}

#[test]
fn chain_that_lacks_a_block_or_breaks_is_read_again_after_a_wait() {
    let mut broken = blocks(5..=8, 100);
    broken[2].parent_hash = [9; 32].into();
    let chain = patient(broken, 1);
    let script = Script::default().head(b'a', 4).appended(6).head(b'a', 6).kept(1).headers(b'a', 4..=6);
    let error = follow(script.head(b'a', 6).kept(1).headers(b'a', 4..=6), &chain).unwrap_err();
    assert!(matches!(error, FollowError::Missing { number: 7 }), "{error:?}");
    let mut gap = blocks(5..=8, 100);
    gap.remove(1);
    let error = follow(Script::default().head(b'a', 5), &gap).unwrap_err();
    assert!(matches!(error, FollowError::Missing { number: 6 }), "{error:?}");
}

/// A chain whose blocks from a number on cannot be read.
struct Unreadable(Vec<AppendBlock>, u64);

impl Chain for Unreadable {
    async fn range(&self) -> Result<Option<RangeInclusive<u64>>, Cause> {
        self.0.range().await
    }

    async fn block(&self, number: u64) -> Result<Option<AppendBlock>, Cause> {
        if number >= self.1 { Err("an unknown type of transaction".into()) } else { self.0.block(number).await }
    }
}

#[test]
fn block_that_cannot_be_read_stops_the_call_after_the_blocks_before_it() {
    let chain = Unreadable(blocks(5..=9, 100), 8);
    let error = follow(Script::default().head(b'a', 4).appended(7), &chain).unwrap_err();
    assert!(matches!(error, FollowError::Chain(_)), "{error:?}");
}

#[test]
fn refusal_without_a_remedy_ends_the_call_without_a_wait() {
    let chain = patient(blocks(1..=2, 100), 9);
    let error = follow(empty().refused(1, AppendError::Pruned { first_available: 9 }), &chain).unwrap_err();
    assert!(matches!(error, FollowError::Append { number: 1, .. }), "{error:?}");
    assert!(chain.paused.borrow().is_empty());
}

/// A transport and a chain that may move to other threads.
struct Remote;

impl Transport for Remote {
    async fn update(&self, _: &str, _: Vec<u8>) -> Result<Vec<u8>, Failure> {
        Err(Failure::Transport("unreachable".into()))
    }

    async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.update(method, arg).await
    }
}

#[test]
fn future_may_move_to_another_thread() {
    fn on_another_thread<F: Future<Output: Send> + Send>(future: F) -> F::Output {
        std::thread::scope(|scope| scope.spawn(|| block_on(future)).join().unwrap())
    }
    let (client, chain) = (Client::new(Remote), blocks(1..=2, 100));
    let error = on_another_thread(client.follow(&chain)).unwrap_err();
    assert!(matches!(error, FollowError::Read(Error::Call(CallError { .. }))), "{error:?}");
}

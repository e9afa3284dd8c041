//! A node's chain, as `client.follow` reads it.

use super::args::{FollowArgs, wrong_line};
use crate::Block;
use crate::index::{Extra, coppice_block};
use crate::node::{Node, Stopped};
use alloy_primitives::{B256, U64};
use anyhow::{Context as _, Result, bail, ensure};
use ic_coppice_cli::client::{FIRST_WAIT, Trials};
use ic_coppice_cli::exit::why;
use ic_coppice_cli::report::{blocks, count};
use ic_coppice_cli::stop::Stop;
use ic_coppice_cli::terminal::{Level, stderr};
use ic_coppice_client::{Cause, Chain, Followed, Pause};
use ic_coppice_interface::{AppendBlock, BlockHash};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Interval of the notes on a long run of blocks, or a long wait for the first.
const NOTED: Duration = Duration::from_secs(10);

/// Questions for the hash of a block that the node should have, before a rollback.
const TRIES: u32 = 10;
/// Questions for such a block before it is sent.
const READS: u32 = 3;
/// Blocks that one request reads, at most, with two calls each.
const AHEAD: u64 = 10;
/// Transactions above which a request reads no further block.
const TRANSACTIONS: u64 = 1_000;

/// A block of the node, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tip {
    number: u64,
    hash: B256,
}

/// A node's chain up to the newest block that is to be sent.
pub struct NodeChain {
    node: Node,
    stop: Stop,
    chain_id: u64,
    tag: &'static str,
    confirmations: u64,
    from: Option<u64>,
    until: Option<u64>,
    index: Vec<Extra>,
    poll: Duration,
    first: Cell<u64>,
    /// The newest block by the last answer, and when it came.
    seen: Cell<Option<(Option<Tip>, Instant)>>,
    /// The newest block when the canister was last compared with the node.
    compared: Cell<Option<Tip>>,
    /// The canister's head: as it was read, or the block that was read last to be sent.
    head: Cell<Option<u64>>,
    /// Blocks that were read with an earlier one, since the last range: each with its receipts.
    ahead: RefCell<BTreeMap<u64, [Value; 2]>>,
    /// Blocks that the next request reads.
    width: Cell<u64>,
    /// Most blocks of a request: half as many after each refused one, because nodes limit calls and bytes of an answer.
    most: Cell<u64>,
    noted: Cell<Instant>,
    /// When it was noted last that no block is to be sent.
    waits: Cell<Option<Instant>>,
    trials: RefCell<Trials>,
}

impl NodeChain {
    pub fn new(node: Node, args: &FollowArgs, stop: Stop) -> Self {
        Self {
            node,
            stop,
            chain_id: args.chain_id,
            tag: args.tag.name(),
            confirmations: args.confirmations.unwrap_or(0),
            from: args.from,
            until: args.until,
            index: args.index.clone(),
            poll: args.poll_secs,
            first: Cell::new(0),
            seen: Cell::new(None),
            compared: Cell::new(None),
            head: Cell::new(None),
            ahead: RefCell::default(),
            width: Cell::new(1),
            most: Cell::new(AHEAD),
            noted: Cell::new(Instant::now()),
            waits: Cell::new(None),
            trials: RefCell::default(),
        }
    }

    /// Checks that the node has the chain's id.
    ///
    /// # Errors
    /// When it has another id; [`Stopped`].
    pub fn check_id(&self) -> Result<()> {
        let [id] = self.node.call([("eth_chainId", json!([]))])?;
        let id: u64 = U64::deserialize(&id).context("invalid chain id of the node")?.to();
        if id != self.chain_id {
            let why = format!("the node has the chain id {id}, and --chain-id is {}", self.chain_id);
            return Err(wrong_line(why));
        }
        Ok(())
    }

    /// Begins the chain at block 0, below the head of a canister with blocks.
    pub fn begin_below(&self, head: u64) {
        self.first.set(0);
        self.head.set(Some(head));
    }

    /// Begins the chain of an empty canister at `--from`, or at the newest block, which is waited for.
    ///
    /// # Errors
    /// [`Stopped`]; when the node refuses.
    pub fn begin_empty(&self) -> Result<()> {
        loop {
            if let Some(first) = self.from.or(self.last()?) {
                self.first.set(first);
                return Ok(());
            }
            self.note_wait(None);
            self.pass()?;
        }
    }

    /// Notes that the newest block to send is below the first one, or that there is none.
    fn note_wait(&self, last: Option<u64>) {
        if self.waits.get().is_some_and(|at| at.elapsed() < NOTED) {
            return;
        }
        self.waits.set(Some(Instant::now()));
        let newest = match (self.seen.get().and_then(|(tip, _)| tip), last) {
            (None, _) => format!("the node has no {} block", self.tag),
            (Some(tip), None) => {
                format!("the node's newest block is {}, --confirmations {}", tip.number, self.confirmations)
            }
            (Some(_), Some(last)) => {
                format!("the newest block to send is {last}, the first {} (--from)", self.first.get())
            }
        };
        stderr().note(Level::Info, "waiting", &format!("nothing to send yet: {newest}"));
    }

    /// Waits for the next question.
    fn pass(&self) -> Result<()> {
        self.stop.wait(self.poll);
        ensure!(!self.stop.is_set(), Stopped);
        Ok(())
    }

    /// Returns the newest block of the tag, at most one interval of questions old.
    fn newest(&self) -> Result<Option<Tip>> {
        if let Some((tip, at)) = self.seen.get()
            && at.elapsed() < self.poll
        {
            return Ok(tip);
        }
        let [block] = self.node.call([("eth_getBlockByNumber", json!([self.tag, false]))])?;
        let tip = if block.is_null() { None } else { Some(tip(&block)?) };
        self.seen.set(Some((tip, Instant::now())));
        Ok(tip)
    }

    /// Returns the number of the newest block to send.
    fn last(&self) -> Result<Option<u64>> {
        Ok(self.last_below(self.newest()?))
    }

    fn last_below(&self, tip: Option<Tip>) -> Option<u64> {
        let last = tip?.number.checked_sub(self.confirmations)?;
        Some(self.until.map_or(last, |until| until.min(last)))
    }

    /// Returns whether the block of `--until` is kept, once the canister has all blocks.
    pub fn is_complete(&self) -> bool {
        let last = self.last().ok().flatten();
        self.until.is_some_and(|until| last == Some(until))
    }

    /// Waits until the node's newest block is another than at the last comparison.
    ///
    /// # Errors
    /// [`Stopped`]; when the node refuses.
    pub fn await_change(&self) -> Result<()> {
        while self.newest()? == self.compared.get() {
            self.pass()?;
        }
        Ok(())
    }

    /// Notes the changes of the canister, or that the node is behind it.
    pub fn show(&self, followed: &Followed) {
        self.trials.borrow_mut().answered();
        let Some(Tip { number, hash }) = self.compared.get() else { return };
        if let Some(head) = self.head.get().filter(|head| number < *head && followed.rolled_back == 0) {
            let text = format!("the node is behind: its newest block is {number}, and the canister has {head}");
            stderr().note(Level::Warn, "behind", &text);
        }
        if followed.rolled_back > 0 {
            let text = format!("a reorg replaced {}", blocks(followed.rolled_back));
            stderr().note(Level::Info, "reorg", &text);
        }
        if followed.appended > 0 {
            let appended = blocks(followed.appended);
            let text = format!("{appended} appended; the node's newest block is {} ({hash})", count(number));
            stderr().note(Level::Info, "followed", &text);
        }
    }

    /// Notes an error of the canister outside of a block, waits, and returns whether to try again.
    pub fn pause(&self, error: &anyhow::Error) -> bool {
        if self.stop.is_set() || !self.trials.borrow_mut().may_retry(error) {
            return false;
        }
        stderr().note(Level::Warn, "canister", &format!("{}; tried again", why(error)));
        self.stop.wait(FIRST_WAIT * 4);
        !self.stop.is_set()
    }

    /// Returns a block and its receipts as the node answers them, and asks for the blocks after it with the same request.
    fn asked(&self, number: u64) -> Result<[Value; 2]> {
        if let Some(found) = self.ahead.borrow_mut().remove(&number) {
            return Ok(found);
        }
        let last = self.last_below(self.compared.get()).unwrap_or(number);
        let width = self.width.get().min(self.most.get());
        let last = last.min(number.saturating_add(width - 1)).max(number);
        let calls = |number: u64| {
            let at = json!(format!("0x{number:x}"));
            [("eth_getBlockByNumber", json!([at, true])), ("eth_getBlockReceipts", json!([at]))]
        };
        if last == number {
            return self.node.call(calls(number));
        }
        let all: Vec<(&str, Value)> = (number..=last).flat_map(calls).collect();
        let Ok(answers) = self.node.once(&all) else {
            self.most.set((width / 2).max(1));
            return self.node.call(calls(number));
        };
        let mut answers = answers.into_iter();
        let mut blocks = (number..=last).map_while(|number| Some((number, [answers.next()?, answers.next()?])));
        let (_, first) = blocks.next().context("one answer a call")?;
        // The node may have these a moment later.
        self.ahead.borrow_mut().extend(blocks.filter(|(_, [block, _])| !block.is_null()));
        Ok(first)
    }

    /// Reads and verifies a block; `None` if the node does not have it, or answers from two heads.
    fn read(&self, number: u64) -> Result<Option<AppendBlock>> {
        let [block, mut receipts] = self.asked(number)?;
        if block.is_null() {
            return Ok(None);
        }
        let tip = tip(&block)?;
        let is_of_block =
            |receipt: &Value| receipt.get("blockHash").and_then(|hash| B256::deserialize(hash).ok()) == Some(tip.hash);
        let sizes =
            [block.get("transactions"), Some(&receipts)].map(|list| list.and_then(Value::as_array).map(Vec::len));
        if sizes[0] != sizes[1] || !receipts.as_array().is_some_and(|list| list.iter().all(is_of_block)) {
            // The two answers are of two heads.
            [receipts] = self.node.call([("eth_getBlockReceipts", json!([tip.hash]))])?;
            if receipts.is_null() {
                // Or of a hash that is not the block's own.
                Block::check_hash(&block)?;
                let text = format!("the node has no receipts of block {number}; asked again");
                stderr().note(Level::Warn, "node", &text);
                return Ok(None);
            }
        }
        let count = block.get("uncles").and_then(Value::as_array).map_or(0, Vec::len);
        let ommer = |at| {
            let params = json!([tip.hash, format!("0x{at:x}")]);
            self.node.call([("eth_getUncleByBlockHashAndIndex", params)]).map(|[ommer]| ommer)
        };
        let transactions = sizes[0].unwrap_or(0) as u64;
        self.width.set((TRANSACTIONS / transactions.max(1)).clamp(1, AHEAD));
        let ommers: Vec<Value> = (0..count).map(ommer).collect::<Result<_>>()?;
        let block = Block::read(&block, &ommers, &receipts)?;
        if block.number() != number {
            bail!("the node answers with block {} instead of block {number}", block.number());
        }
        Ok(Some(coppice_block(&block, &self.index)?))
    }
}

/// Returns an error and its causes as one sentence.
fn told(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |sentence, cause| format!("{sentence}: {cause}"))
}

fn tip(block: &Value) -> Result<Tip> {
    let number = block.get("number").map(U64::deserialize).transpose().ok().flatten();
    let hash = block.get("hash").map(B256::deserialize).transpose().ok().flatten();
    let (number, hash) = number.zip(hash).context("the node answers with a block without number or hash")?;
    Ok(Tip { number: number.to(), hash })
}

/// An error of the node or of a block ends the run, because the node itself is asked until it answers.
fn cause(error: anyhow::Error) -> Cause {
    error.into()
}

impl Chain for NodeChain {
    async fn range(&self) -> Result<Option<RangeInclusive<u64>>, Cause> {
        // The node may have another branch by now.
        self.ahead.borrow_mut().clear();
        self.compared.set(self.newest().map_err(cause)?);
        let last = self.last().map_err(cause)?;
        let range = last.filter(|last| *last >= self.first.get()).map(|last| self.first.get()..=last);
        if range.is_none() {
            self.note_wait(last);
        }
        Ok(range)
    }

    async fn block(&self, number: u64) -> Result<Option<AppendBlock>, Cause> {
        let mut block = self.read(number).map_err(cause)?;
        // A node of several servers may have asked one that is behind.
        for _ in 1..READS {
            if block.is_some() {
                break;
            }
            self.pass().map_err(cause)?;
            block = self.read(number).map_err(cause)?;
        }
        if block.is_some() {
            self.head.set(Some(number));
        }
        if self.noted.get().elapsed() >= NOTED {
            self.noted.set(Instant::now());
            let newest = self.compared.get().map_or(0, |tip| tip.number);
            stderr().note(Level::Info, "following", &format!("block {} of {}", count(number), count(newest)));
        }
        Ok(block)
    }

    async fn hash(&self, number: u64) -> Result<Option<BlockHash>, Cause> {
        // `follow` asks for blocks up to the newest one only. A node without such a block answers from two heads, and must not cause a rollback.
        for _ in 0..TRIES {
            let params = json!([format!("0x{number:x}"), false]);
            let [block] = self.node.call([("eth_getBlockByNumber", params)]).map_err(cause)?;
            if !block.is_null() {
                return Ok(Some(tip(&block).map_err(cause)?.hash.0.into()));
            }
            let text =
                format!("the node does not have block {number}, although its newest block is not below; asked again");
            stderr().note(Level::Warn, "node", &text);
            self.pass().map_err(cause)?;
        }
        Ok(None)
    }

    async fn wait(&self, pause: &Pause<'_>) -> bool {
        let reason = match pause.error.held_by() {
            Some(held_by) => format!("pruning is held: {held_by}"),
            None => told(pause.error),
        };
        let text = format!("{reason}; tried again in {} s", pause.after.as_secs());
        stderr().note(Level::Warn, "waiting", &text);
        self.stop.wait(pause.after);
        // The node may have moved on.
        self.seen.set(None);
        !self.stop.is_set()
    }
}

//! A canister's chain, read by queries of single replicas: each block is proved by the subnet's certificate of the head.

use super::proved::Proved;
use super::{Failure, Found, Source, decode};
use crate::Block;
use alloy_consensus::Header;
use alloy_primitives::B256;
use alloy_rlp::Decodable as _;
use anyhow::{Context as _, Result, anyhow, ensure};
use ic_coppice_client::certificate::{self, Certified};
use ic_coppice_client::command::{CanisterClient, Wait};
use ic_coppice_client::{Client, Error, HeaderPager};
use ic_coppice_interface::{KeyCursor, KeyError, ReadError};
use pollster::block_on;
use serde_bytes::ByteBuf;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time for which a certificate is used again.
const FRESH: Duration = Duration::from_millis(500);
/// The largest difference between a certificate's time and this machine's clock.
const CLOCK: Duration = Duration::from_secs(300);
/// Bytes of a block that are read first if its header decides whether the rest is needed: those of a header with 1 KiB of extra data.
const PREFIX: u64 = 2_048;
/// Blocks that are read at the same time.
const THREADS: usize = 8;
/// Blocks that are held in memory.
const CACHED: usize = 256;
/// Encoded bytes of the blocks that are held in memory.
const CACHED_BYTES: usize = 64 << 20;

/// A canister.
pub struct Canister<T> {
    client: Client<T>,
    /// Ask the subnet where no certificate proves an answer: whether a block has an id or a key.
    asks_subnet: bool,
    chain: Mutex<Chain>,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Chain {
    certified: Option<(Certified, Instant)>,
    proved: Proved,
}

/// The blocks that were read last, the newest last, with their encoded bytes.
#[derive(Default)]
struct Cache(VecDeque<(Arc<Block>, usize)>);

impl Cache {
    fn get(&self, hash: B256) -> Option<Arc<Block>> {
        self.0.iter().find(|(block, _)| block.hash == hash).map(|(block, _)| Arc::clone(block))
    }

    fn insert(&mut self, block: &Arc<Block>, bytes: usize) {
        if self.get(block.hash).is_none() {
            self.0.push_back((Arc::clone(block), bytes));
        }
        while self.0.len() > CACHED || self.0.iter().map(|(_, bytes)| bytes).sum::<usize>() > CACHED_BYTES {
            self.0.pop_front();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: CanisterClient + Send> Canister<T> {
    /// Creates a reader. `asks_subnet`: answers that no certificate proves come from the subnet, by update calls, which need a role.
    pub fn new(client: Client<T>, asks_subnet: bool) -> Self {
        Self { client, asks_subnet, chain: Mutex::default(), cache: Mutex::default() }
    }

    /// Returns the chain by a certificate of at most [`FRESH`] ago.
    fn chain(&self) -> Result<MutexGuard<'_, Chain>, Failure> {
        let mut chain = lock(&self.chain);
        if chain.certified.as_ref().is_none_or(|(_, at)| at.elapsed() >= FRESH) {
            self.certify(&mut chain).map_err(failure)?;
        }
        Ok(chain)
    }

    fn certify(&self, chain: &mut Chain) -> Result<()> {
        let transport = self.client.transport();
        let answer = self.client.get_tip_certificate().wait()?.context("the canister has no certificate")?;
        let certified = certificate::read(answer, |bytes| transport.vouched(bytes));
        let certified = certified.context("the certificate of the canister's head is not genuine")?;
        let time = Duration::from_nanos(certified.time_ns);
        ensure!(
            transport.now().abs_diff(time) <= CLOCK,
            "the certificate of the canister's head is of {} s since 1970, and the clock of this machine shows {} s",
            time.as_secs(),
            transport.now().as_secs()
        );
        // A replica that is late hands out an older one.
        let is_older = chain.certified.as_ref().is_some_and(|(newest, _)| certified.time_ns < newest.time_ns);
        let certified = match &chain.certified {
            Some((newest, _)) if is_older => newest.clone(),
            _ => certified,
        };
        match (certified.head, certified.kept) {
            (Some(head), Some(kept)) => chain.proved.advance(head, kept, &mut |range| self.headers(range))?,
            (None, _) => chain.proved = Proved::default(),
            (Some(_), None) => {
                return Err(anyhow!("the subnet certifies the beginning of the chain after the next block is pruned"));
            }
        }
        chain.certified = Some((certified, Instant::now()));
        Ok(())
    }

    fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<ic_coppice_interface::BlockHeader>> {
        let (mut pager, mut headers) = (HeaderPager::new(*range.start(), *range.end()), Vec::new());
        while let Some(page) = block_on(pager.next(&self.client)).map_err(|error| anyhow!(error))? {
            headers.extend(page);
        }
        Ok(headers)
    }

    /// Returns the proved hash of a block.
    fn proved(&self, number: u64) -> Result<Option<B256>, Failure> {
        let mut chain = self.chain()?;
        let Some((Certified { kept: Some(kept), head: Some((head, _)), .. }, _)) = chain.certified else {
            return Ok(None);
        };
        if number > head {
            return Ok(None);
        }
        if number < kept.first {
            return Err(Failure::Pruned { first: kept.first });
        }
        chain.proved.reach(number, kept, &mut |range| self.headers(range)).map_err(failure)?;
        Ok(chain.proved.hash(number))
    }

    fn read(&self, number: u64, wants: &(dyn Fn(&Header) -> bool + Sync)) -> Result<Option<Arc<Block>>, Failure> {
        let missing = || anyhow!("block {number} is above the head");
        let hash = self.proved(number)?.ok_or_else(missing)?;
        if let Some(block) = lock(&self.cache).get(hash) {
            return Ok(Some(block).filter(|block| wants(&block.header)));
        }
        let refused = |error: Error<ReadError>| match error {
            Error::Refused(ReadError::Pruned { first_available: first }) => Failure::Pruned { first },
            error => Failure::Failed(anyhow!(error)),
        };
        let part = block_on(self.client.read_segment(number, 0u8, 0u64, PREFIX)).map_err(refused)?;
        if header(&part.bytes).is_some_and(|header| header.hash_slow() == hash && !wants(&header)) {
            return Ok(None);
        }
        let (_, [body, receipts, _]) = block_on(self.client.whole_block(number)).map_err(refused)?;
        let block = decode(number, hash, &body, &receipts)?;
        lock(&self.cache).insert(&block, body.len() + receipts.len());
        Ok(Some(block).filter(|block| wants(&block.header)))
    }

    /// Returns the numbers of the blocks of a range with a key, the newest first, at most one more than `most`.
    fn with_key(&self, key: &[u8], range: &RangeInclusive<u64>, most: usize) -> Result<Vec<u64>, Failure> {
        let (mut cursor, mut numbers): (Option<KeyCursor>, Vec<u64>) = (None, Vec::new());
        loop {
            let page = match self.asks_subnet {
                true => block_on(self.client.replicated().find_by_index_key(ByteBuf::from(key), &cursor, 0u32)),
                false => block_on(self.client.find_by_index_key(ByteBuf::from(key), &cursor, 0u32)),
            };
            let page = page.map_err(|error: Error<KeyError>| anyhow!(error))?;
            for found in page.transactions {
                if range.contains(&found.block_number) && numbers.last() != Some(&found.block_number) {
                    numbers.push(found.block_number);
                }
            }
            // The newest one that does not fit is enough to tell the range that would do.
            if numbers.len() > most {
                return Ok(numbers);
            }
            let is_below = |cursor: &KeyCursor| cursor.block_number < *range.start();
            match page.cursor.filter(|cursor| !is_below(cursor)) {
                Some(next) if cursor.as_ref() == Some(&next) => {
                    return Err(anyhow!("the replica answers with the same page again").into());
                }
                Some(next) => cursor = Some(next),
                None => return Ok(numbers),
            }
        }
    }
}

/// Returns the failure of an error: blocks may have been pruned since the certificate.
fn failure(error: anyhow::Error) -> Failure {
    match error.downcast_ref() {
        Some(Error::Refused(ReadError::Pruned { first_available: first })) => Failure::Pruned { first: *first },
        _ => Failure::Failed(error),
    }
}

/// Decodes the header at the beginning of a block's RLP, if the bytes hold the whole header.
fn header(bytes: &[u8]) -> Option<Header> {
    let mut rest = bytes;
    // The list of the block may be longer than the bytes, so only its first byte tells the length of its prefix.
    let prefix = match *rest.first()? {
        first @ 0xf8..=0xff => 1 + usize::from(first - 0xf7),
        0xc0..=0xf7 => 1,
        _ => return None,
    };
    rest = rest.get(prefix..)?;
    Header::decode(&mut rest).ok()
}

impl<T: CanisterClient + Send> Source for Canister<T> {
    fn range(&self) -> Result<Option<RangeInclusive<u64>>, Failure> {
        let chain = self.chain()?;
        let certified = chain.certified.as_ref().map(|(certified, _)| certified);
        Ok(certified.and_then(|certified| Some(certified.kept?.first..=certified.head?.0)))
    }

    fn hash(&self, number: u64) -> Result<Option<B256>, Failure> {
        self.proved(number)
    }

    fn blocks(&self, numbers: &[u64], wants: &(dyn Fn(&Header) -> bool + Sync)) -> Result<Vec<Arc<Block>>, Failure> {
        // Prove all of them before the first is read.
        if let Some(lowest) = numbers.iter().min() {
            self.proved(*lowest)?;
        }
        let share = numbers.len().div_ceil(THREADS).max(1);
        std::thread::scope(|scope| {
            let read = |some: &[u64]| -> Result<Vec<Arc<Block>>, Failure> {
                let blocks = some.iter().map(|number| self.read(*number, wants));
                Ok(blocks.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
            };
            let threads: Vec<_> = numbers.chunks(share).map(|some| scope.spawn(move || read(some))).collect();
            let mut blocks = Vec::new();
            for thread in threads {
                let read = thread.join().map_err(|_| anyhow!("a thread that reads blocks has panicked"))?;
                blocks.extend(read?);
            }
            Ok(blocks)
        })
    }

    fn locate(&self, id: &B256) -> Result<Option<u64>, Failure> {
        let id = ByteBuf::from(id.0);
        let found = match self.asks_subnet {
            true => block_on(self.client.replicated().get_transaction_location(id)),
            false => block_on(self.client.get_transaction_location(id)),
        };
        match found {
            Ok(at) => Ok(Some(at.block_number)),
            Err(Error::Refused(ReadError::NotFound | ReadError::Pruned { .. })) => Ok(None),
            Err(error) => Err(Failure::Failed(anyhow!(error))),
        }
    }

    fn with_keys(&self, keys: &[Vec<u8>], range: RangeInclusive<u64>, most: usize) -> Result<Vec<u64>, Failure> {
        let mut found = Found::new(most);
        for key in keys {
            found.add(self.with_key(key, &range, most)?);
        }
        found.done()
    }
}

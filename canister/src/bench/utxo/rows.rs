//! Peer of the UTXO store: rows of fixed size by a `u64`, one for each output and one for each transaction.
//!
//! A transaction's key is a seeded hash of its id, and output `i` has the row at that key plus `i`. Transactions whose ranges overlap are
//! refused: among n outputs there is such a pair with a chance of about n²/2^64. The transaction's bytes, the children that were deleted,
//! and the two ordered lists (unmined, due) are maps of their own.

use super::transaction::Transaction;
use super::{HEIGHT, Peer, RETENTION};
use crate::memory;
use ic_coppice_interface::Spend;
use ic_coppice_storage::Space;
use ic_stable_structures::StableBTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::ops::RangeInclusive;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Memories of the maps.
pub const MEMORIES: RangeInclusive<u8> = 5..=10;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// Fields of a transaction's row, as the offsets of words of 32 bits behind its id.
const OUTPUTS: usize = 32;
const SPENT: usize = 36;
const UNMINED_SINCE: usize = 40;
const DELETE_AT: usize = 44;
/// Frozen, locked, conflicting.
const FLAGS: usize = 48;
const BLOCKS: usize = 52;
/// Three blocks of id, height and subtree; then created_at_ns, size, fee, preserve_until and spending_height.
const FIRST_BLOCK: usize = 56;
const SIZE: usize = FIRST_BLOCK + 3 * 12 + 8;
const HEAD: usize = SIZE + 8 + 8 + 4 + 4;

/// Hash of an output, its spender and the spender's input; and whether it is spent.
const SPENDER: usize = 32;
const VIN: usize = 64;
const IS_SPENT: usize = 68;
const OUTPUT: usize = 69;

type Head = [u8; HEAD];
type Map<K, V> = StableBTreeMap<K, V, Space>;

/// A height and a transaction's key.
type Due = [u8; 12];

/// A transaction's key and the id of a child that was deleted.
type Child = [u8; 40];

pub struct Rows {
    heads: Map<u64, Head>,
    outputs: Map<u64, [u8; OUTPUT]>,
    bodies: Map<u64, Vec<u8>>,
    children: Map<Child, ()>,
    unmined: Map<Due, ()>,
    delete_at: Map<Due, ()>,
}

fn key_of(txid: &[u8; 32]) -> u64 {
    xxh3_64_with_seed(txid, SEED)
}

fn word(head: &Head, at: usize) -> u32 {
    u32::from_le_bytes(*head[at..].first_chunk().expect("a word of the row"))
}

fn set(head: &mut Head, at: usize, value: u32) {
    head[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn due(height: u32, key: u64) -> Due {
    let mut due = [0; 12];
    due[..4].copy_from_slice(&height.to_be_bytes());
    due[4..].copy_from_slice(&key.to_be_bytes());
    due
}

fn child(key: u64, txid: &[u8; 32]) -> Child {
    let mut child = [0; 40];
    child[..8].copy_from_slice(&key.to_be_bytes());
    child[8..].copy_from_slice(txid);
    child
}

impl Rows {
    pub fn open() -> Self {
        let of = |at: u8| memory::bench(MEMORIES.start() + at);
        Self {
            heads: StableBTreeMap::init(of(0)),
            outputs: StableBTreeMap::init(of(1)),
            bodies: StableBTreeMap::init(of(2)),
            children: StableBTreeMap::init(of(3)),
            unmined: StableBTreeMap::init(of(4)),
            delete_at: StableBTreeMap::init(of(5)),
        }
    }

    fn head(&self, txid: &[u8; 32]) -> Result<(u64, Head), String> {
        let key = key_of(txid);
        let head = self.heads.get(&key).filter(|head| head[..32] == *txid);
        Ok((key, head.ok_or("it is not there")?))
    }

    /// Changes a transaction's row, and its places in the two lists where they have changed.
    fn change(&mut self, key: u64, mut head: Head, change: impl FnOnce(&mut Head)) {
        let before = (word(&head, UNMINED_SINCE), word(&head, DELETE_AT));
        change(&mut head);
        let mined = word(&head, BLOCKS) > 0 && word(&head, UNMINED_SINCE) == 0;
        let done = mined && word(&head, SPENT) == word(&head, OUTPUTS);
        set(&mut head, DELETE_AT, if done { HEIGHT + RETENTION } else { 0 });
        let after = (word(&head, UNMINED_SINCE), word(&head, DELETE_AT));
        self.heads.insert(key, head);
        for (list, before, after) in [(&mut self.unmined, before.0, after.0), (&mut self.delete_at, before.1, after.1)]
        {
            if before != after {
                if before != 0 {
                    list.remove(&due(before, key));
                }
                if after != 0 {
                    list.insert(due(after, key), ());
                }
            }
        }
    }

    /// Changes the rows of outputs that `changes` says to change, and counts them in the transaction's row.
    fn outputs(
        &mut self,
        tx: &Transaction,
        spends: &[Spend],
        changes: impl Fn(&Spend, &mut [u8; OUTPUT]) -> bool,
        counted: impl FnOnce(u32, u32) -> u32,
    ) -> Result<(), String> {
        let (key, head) = self.head(&tx.parsed.txid)?;
        if word(&head, FLAGS) != 0 {
            return Err("it cannot be spent".into());
        }
        let mut changed = 0;
        for spend in spends {
            let at = key.wrapping_add(spend.vout.into());
            let Some(mut output) = self.outputs.get(&at) else { continue };
            if output[..32] == spend.utxo_hash[..] && changes(spend, &mut output) {
                self.outputs.insert(at, output);
                changed += 1;
            }
        }
        self.change(key, head, |head| {
            let spent = counted(word(head, SPENT), changed);
            set(head, SPENT, spent);
        });
        if changed as usize == spends.len() { Ok(()) } else { Err(format!("{changed} of {}", spends.len())) }
    }

    /// Removes a transaction with all its rows. Returns its inputs.
    fn remove(&mut self, key: u64) -> Result<([u8; 32], Vec<[u8; 32]>), String> {
        let head = self.heads.remove(&key).ok_or("it is not there")?;
        for i in 0..u64::from(word(&head, OUTPUTS)) {
            self.outputs.remove(&key.wrapping_add(i));
        }
        let body = self.bodies.remove(&key).ok_or("it has no body")?;
        let ends = (Included(child(key, &[0; 32])), Excluded(child(key.wrapping_add(1), &[0; 32])));
        let told: Vec<Child> = self.children.range(ends).map(|entry| *entry.key()).collect();
        for child in &told {
            self.children.remove(child);
        }
        let inputs = body[1..1 + 36 * usize::from(body[0])].chunks_exact(36);
        let parents = inputs.map(|input| *input.first_chunk().expect("an id")).collect();
        Ok((*head.first_chunk().expect("an id"), parents))
    }
}

impl Peer for Rows {
    fn create(&mut self, tx: &Transaction) -> Result<(), String> {
        let parsed = &tx.parsed;
        let key = key_of(&parsed.txid);
        let mut head = [0; HEAD];
        head[..32].copy_from_slice(&parsed.txid);
        set(&mut head, OUTPUTS, parsed.outputs.len() as u32);
        set(&mut head, UNMINED_SINCE, HEIGHT);
        head[SIZE..SIZE + 8].copy_from_slice(&(tx.raw.len() as u64).to_le_bytes());
        if let Some(before) = self.heads.insert(key, head) {
            self.heads.insert(key, before);
            return Err("it is there, or another one with its hash".into());
        }
        for (i, hash) in (0..).zip(&parsed.outputs) {
            let mut output = [0; OUTPUT];
            output[..32].copy_from_slice(&hash.ok_or("each has a hash")?);
            if self.outputs.insert(key.wrapping_add(i), output).is_some() {
                return Err("its outputs would lie among those of another one".into());
            }
        }
        let mut body = Vec::with_capacity(1 + 36 * parsed.inputs.len() + tx.raw.len());
        body.push(parsed.inputs.len() as u8);
        for (txid, vout) in &parsed.inputs {
            body.extend(txid);
            body.extend(vout.to_le_bytes());
        }
        body.extend(&tx.raw);
        self.bodies.insert(key, body);
        self.unmined.insert(due(HEIGHT, key), ());
        Ok(())
    }

    fn spend(&mut self, tx: &Transaction, spends: &[Spend], spender: &[u8; 32]) -> Result<(), String> {
        let spend = |spend: &Spend, output: &mut [u8; OUTPUT]| {
            let free = output[IS_SPENT] == 0;
            output[SPENDER..VIN].copy_from_slice(spender);
            output[VIN..IS_SPENT].copy_from_slice(&spend.vin.to_le_bytes());
            output[IS_SPENT] = 1;
            free
        };
        self.outputs(tx, spends, spend, |spent, changed| spent + changed)
    }

    fn unspend(&mut self, tx: &Transaction, spends: &[Spend], spender: &[u8; 32]) -> Result<(), String> {
        let unspend = |_: &Spend, output: &mut [u8; OUTPUT]| {
            let held = output[IS_SPENT] == 1 && output[SPENDER..VIN] == *spender;
            output[SPENDER..].fill(0);
            held
        };
        self.outputs(tx, spends, unspend, |spent, changed| spent - changed)
    }

    fn set_mined(&mut self, tx: &Transaction) -> Result<(), String> {
        let (key, head) = self.head(&tx.parsed.txid)?;
        self.change(key, head, |head| {
            let blocks = word(head, BLOCKS);
            let at = FIRST_BLOCK + 12 * blocks as usize % 36;
            set(head, at, 1);
            set(head, at + 4, HEIGHT);
            set(head, BLOCKS, blocks + 1);
            set(head, UNMINED_SINCE, 0);
            set(head, FLAGS, 0);
        });
        Ok(())
    }

    fn prune(&mut self, height: u32) -> Result<u64, String> {
        let mut deleted = 0;
        while let Some((entry, ())) = self.delete_at.first_key_value()
            && entry[..4] <= height.to_be_bytes()[..]
        {
            let (txid, parents) =
                self.remove(u64::from_be_bytes(*entry.last_chunk().expect("it ends with the key")))?;
            for parent in &parents {
                if let Ok((key, _)) = self.head(parent) {
                    self.children.insert(child(key, &txid), ());
                }
            }
            self.delete_at.remove(&entry);
            deleted += 1;
        }
        Ok(deleted)
    }
}

//! Secondary keys: blocks of one transaction with 10,000 keys, no two the same.

use super::{FILL, PREPARED, Prepared, append, block, key, said};
use crate::api::access;
use crate::platform::instructions;
use crate::state::{State, mutate};
use ic_cdk::update;
use ic_coppice_interface::AppendBlock;
use ic_coppice_interface::segments::encode_index;
use serde_bytes::ByteBuf;
use std::hint::black_box;

/// Keys of a block with which the index is filled.
const KEYS: u64 = 10_000;

/// A block of one transaction with these keys.
fn keyed(number: u64, keys: impl ExactSizeIterator<Item = [u8; 32]>) -> AppendBlock {
    let id = key(u64::MAX - number);
    let keys: Vec<[u8; 32]> = keys.collect();
    let index = encode_index(std::iter::once(id), keys.iter().map(|key| (0, &key[..]))).expect("a block's keys fit");
    AppendBlock { index: ByteBuf::from(index), ..block(number, std::iter::once(id)) }
}

fn next(state: &State, first: u64, keys: u64) -> AppendBlock {
    keyed(state.chain.state().next, (0..keys as usize).map(|i| key(first + i as u64)))
}

/// Appends blocks until the chain has `n` different keys. Returns whether it has; call it until then.
#[update(guard = "access::bench")]
fn bench_fill_keys(n: u64) -> Result<bool, String> {
    PREPARED.with_borrow_mut(|prepared| {
        mutate(|state| {
            while instructions() < FILL {
                let keys = KEYS.min(n - prepared.entries);
                if keys == 0 {
                    return Ok(true);
                }
                append(state, &next(state, prepared.entries, keys))?;
                prepared.entries += keys;
            }
            Ok(prepared.entries == n)
        })
    })
}

/// Makes what [`run`] with the same operation needs.
pub(super) fn prepare(state: &mut State, prepared: &mut Prepared, op: &str, rounds: u64) -> Result<(), String> {
    match op {
        "index.key_insert" => prepared.block = Some(next(state, prepared.entries, rounds)),
        "index.key_find" => {
            // Spread over all that is there.
            let step = (prepared.entries / rounds).max(1);
            prepared.ids = (0..rounds).map(|i| key(i * step)).collect();
        }
        // The head is never taken, so another block must stand behind the one that goes.
        "index.key_remove" => append(state, &next(state, prepared.entries, 1))?,
        other => return Err(format!("no such operation: {other}")),
    }
    Ok(())
}

/// Runs an operation `rounds` times.
pub(super) fn run(state: &mut State, prepared: &mut Prepared, op: &str, rounds: u64) -> Result<(), String> {
    match op {
        "index.key_insert" => {
            let block = prepared.block.take().ok_or("not prepared")?;
            append(state, &block)?;
        }
        "index.key_find" => {
            for key in &prepared.ids {
                let page = black_box(said(state.chain.find_by_key(&state.blobs, key, None, 1))?);
                if page.transactions.len() != 1 {
                    return Err("a key is not found".into());
                }
            }
        }
        _ => {
            let removed = state.chain.remove_one_by_one(&state.blobs)?;
            if removed != rounds + 1 {
                return Err(format!("{removed} of {} entries were there", rounds + 1));
            }
        }
    }
    Ok(())
}

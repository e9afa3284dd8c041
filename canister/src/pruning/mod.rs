//! The two pruners: which blocks and which UTXO records are deleted, when, and how much of it in one message. The stores (`chain/`,
//! `utxo/`, `deletion/`) delete; they know nothing of policies and jobs.
//!
//! | | `blocks` | `records` |
//! |---|---|---|
//! | deletes | the oldest blocks of the chain, and stale index entries | UTXO records whose outputs are spent, with external data |
//! | decides by | age, count and kept bytes: the policy | heights that feeders notify |
//! | spans several ticks | a *run*: until nothing is due | a *job* for one height; its run has three phases |
//! | never deletes | blocks that an exporter has not acknowledged, the head | parents of old unmined transactions |
//! | is persisted in | a cell (`blocks/stored.rs`) | a cell (`records/stored.rs`), a ring of ended jobs (`records/jobs.rs`) |
//! | is called by | `state/tick.rs` | `operation/daemon.rs` |
//!
//! A *tick* is one message of a timer. It works in *pieces* that are done whole or not at all: a block, a slice of an index, a step of
//! a record. Both pruners share the budget that is asked before each piece, and the marker of `coppice_storage` that skips pieces that trap.

pub mod blocks;
pub mod budget;
pub mod records;

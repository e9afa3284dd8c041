//! Steps of a history, and how they are drawn.

use super::transactions::{Template, template};
use coppice_interface::UtxoSettings;
use proptest::prelude::*;

/// Which transaction or output is meant: one for which the step may succeed, as long as there is one.
#[derive(Clone, Copy, Debug)]
pub struct Which {
    /// The how manyth of those that qualify.
    pub number: u8,
    /// Any one, whether it qualifies or not.
    pub any: bool,
}

/// What is wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Height,
    /// It is above the largest that is believed, or a block's is.
    Far,
    ShortTxid,
    Txid,
    ShortHash,
    Hash,
    Vout,
    Spender,
    Vin,
}

/// A record to create.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The ids of its blocks, and whether one of them is part of the longest chain.
    pub mined: Option<(Vec<u8>, bool)>,
    pub locked: Option<bool>,
    pub conflicting: bool,
    pub fee: Option<u64>,
    pub is_new: bool,
    /// What is wrong with its source.
    pub bad: Option<u8>,
}

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Step {
    /// As a validator does it: spent, created, as a double spend where another was first; perhaps unlocked.
    Accept(Which, bool),
    Create(Which, Creation),
    /// Of what the transaction's inputs name, those in the mask; perhaps each twice.
    Spend(Which, u8, bool),
    /// Everything that is left of the first, by the second.
    Sweep(Which, Which),
    Unspend(Which),
    /// The transactions of the mask.
    SetMined {
        block: u8,
        mask: u16,
        on_longest_chain: bool,
        unset: bool,
    },
    OnLongestChain(Which, bool),
    SetLocked(Which, bool),
    /// An output or all, perhaps with the hash.
    Freeze(Which, bool, bool),
    Unfreeze(Which, bool, bool),
    /// Frozen first, as a rule.
    Reassign(Which),
    SetConflicting(Which),
    ProcessConflicting(Vec<Which>),
    Preserve(Which, u32),
    Delete(Which),
    /// Begun, put in chunks, created; or not quite.
    Upload(Which, u8),
    /// The last call again.
    Again,
    Settings(UtxoSettings),
    Reopen,
}

/// A step, and what comes before it.
#[derive(Clone, Debug)]
pub struct Move {
    pub blocks: i8,
    pub nanos: u64,
    pub wrong: Option<Wrong>,
    pub step: Step,
}

#[derive(Clone, Debug)]
pub struct History {
    pub settings: UtxoSettings,
    pub templates: Vec<Template>,
    pub moves: Vec<Move>,
}

fn settings() -> impl Strategy<Value = UtxoSettings> {
    let batch = prop_oneof![3 => Just(3u32), 1 => Just(1), 1 => 2u32..6, 4 => Just(20_000)];
    let few = prop_oneof![6 => Just(0u32), 4 => 1u32..4, 1 => Just(100)];
    let retention = prop_oneof![1 => Just(0u32), 3 => 1u32..10, 3 => Just(288)];
    let size = prop_oneof![1 => Just(0u32), 1 => 60u32..300, 5 => Just(1 << 20)];
    let external = prop_oneof![1 => Just(0u64), 2 => 1u64..6, 17 => Just(1 << 20)];
    let rare = || prop::bool::weighted(0.06);
    (batch, retention, few, 0u32..5, size, rare(), external, rare()).prop_map(
        |(batch, retention, maturity, after, size, externalize_all, external, require_extended)| UtxoSettings {
            utxo_batch_size: batch,
            block_height_retention: retention,
            coinbase_maturity: maturity,
            reassign_spendable_after: after,
            max_tx_size_in_store: size,
            externalize_all,
            max_external_bytes: external << 16,
            require_extended,
            ..UtxoSettings::default()
        },
    )
}

fn which() -> impl Strategy<Value = Which> {
    (any::<u8>(), prop::bool::weighted(0.12)).prop_map(|(number, any)| Which { number, any })
}

fn creation() -> impl Strategy<Value = Creation> {
    let mined = prop::option::of((prop::collection::vec(1u8..8, 0..4), prop::bool::weighted(0.7)));
    let locked = prop_oneof![2 => Just(None), 4 => Just(Some(false)), 1 => Just(Some(true))];
    let fee = prop::option::of(0u64..9);
    let bad = prop::option::weighted(0.08, any::<u8>());
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.6));
    (mined, locked, flags, fee, bad).prop_map(|(mined, locked, (conflicting, is_new), fee, bad)| Creation {
        mined,
        locked,
        conflicting,
        fee,
        is_new,
        bad,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let often = || prop::bool::weighted(0.85);
    let seldom = || prop::bool::weighted(0.15);
    let mask = prop_oneof![3 => Just(0xffu8), 1 => any::<u8>()];
    let set_mined = (1u8..8, any::<u16>(), prop::bool::weighted(0.7), prop::bool::weighted(0.3))
        .prop_map(|(block, mask, on_longest_chain, unset)| Step::SetMined { block, mask, on_longest_chain, unset });
    let count = prop_oneof![1 => Just(0usize), 12 => Just(1), 4 => Just(2), 1 => Just(3)];
    let winners = count.prop_flat_map(|count| prop::collection::vec(which(), count));
    let until = prop_oneof![1 => Just(0u32), 9 => 1u32..30];
    prop_oneof![
        14 => (which(), often()).prop_map(|(which, unlock)| Step::Accept(which, unlock)),
        6 => (which(), creation()).prop_map(|(which, creation)| Step::Create(which, creation)),
        8 => (which(), mask, seldom()).prop_map(|(which, mask, again)| Step::Spend(which, mask, again)),
        4 => (which(), which()).prop_map(|(which, by)| Step::Sweep(which, by)),
        3 => which().prop_map(Step::Unspend),
        6 => set_mined,
        1 => (which(), any::<bool>()).prop_map(|(which, is)| Step::OnLongestChain(which, is)),
        2 => (which(), seldom()).prop_map(|(which, locked)| Step::SetLocked(which, locked)),
        3 => (which(), seldom(), any::<bool>()).prop_map(|(which, all, hash)| Step::Freeze(which, all, hash)),
        3 => (which(), seldom(), any::<bool>()).prop_map(|(which, all, hash)| Step::Unfreeze(which, all, hash)),
        3 => which().prop_map(Step::Reassign),
        1 => which().prop_map(Step::SetConflicting),
        9 => winners.prop_map(Step::ProcessConflicting),
        2 => (which(), until).prop_map(|(which, until)| Step::Preserve(which, until)),
        3 => which().prop_map(Step::Delete),
        2 => (which(), any::<u8>()).prop_map(|(which, how)| Step::Upload(which, how)),
        2 => Just(Step::Again),
        1 => settings().prop_map(Step::Settings),
        1 => Just(Step::Reopen),
    ]
}

pub fn history() -> impl Strategy<Value = History> {
    let wrong = prop::sample::select(vec![
        Wrong::Height,
        Wrong::Far,
        Wrong::ShortTxid,
        Wrong::Txid,
        Wrong::ShortHash,
        Wrong::Hash,
        Wrong::Vout,
        Wrong::Spender,
        Wrong::Vin,
    ]);
    let blocks = prop_oneof![4 => Just(0i8), 3 => 1i8..4, 1 => -2i8..0];
    let nanos = prop_oneof![1 => Just(0u64), 1 => 1u64..5, 1 => 300_000_000u64..3_000_000_000];
    let one = (blocks, nanos, prop::option::weighted(0.15, wrong), step())
        .prop_map(|(blocks, nanos, wrong, step)| Move { blocks, nanos, wrong, step });
    (settings(), prop::collection::vec(template(), 3..12), prop::collection::vec(one, 1..80))
        .prop_map(|(settings, templates, moves)| History { settings, templates, moves })
}

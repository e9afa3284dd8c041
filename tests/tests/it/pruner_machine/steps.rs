//! Steps of a history, and their generators. A step names what it wants ("a record that is due"); the record itself is chosen when the step
//! runs.

use super::settings::{first, setting};
use coppice_model::records::{Blob, Setting, Template};
use ic_coppice_host::TrapPoint;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An index into the transactions for which the step may succeed, or into all if there are none.
#[derive(Clone, Copy, Debug)]
pub struct Pick(pub u8);

/// The way a record is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// With a block of the longest chain.
    Mined,
    /// With a block of another chain.
    MinedElsewhere,
    /// Unmined, and spendable.
    Unmined,
    /// Unmined, and locked.
    Locked,
    /// As a double spend.
    Conflicting,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// Makes a record, and spends what is available of its inputs.
    Accept(Pick, Kind),
    Create(Pick, Kind),
    /// Spends the inputs in the mask.
    Spend(Pick, u8),
    /// Spends all unspent outputs of a record by a transaction without a record, or by another one.
    Sweep(Pick, Option<Pick>),
    Unspend(Pick),
    /// Makes a record deletable: swept, unfrozen, and mined together with its spenders.
    Retire(Pick, Option<Pick>),
    /// Adds the transactions in the mask to a block this far below the tip, or removes them.
    Mine {
        back: u8,
        mask: u16,
        unset: bool,
        longest: bool,
    },
    /// Changes the status alone.
    OnLongestChain(Pick, bool),
    Lock(Pick, bool),
    /// Freezes one output, or all.
    Freeze(Pick, Option<u8>),
    Thaw(Pick, Option<u8>),
    /// Preserves until this far above the tip.
    Preserve(Pick, i8),
    Conflict(Pick),
    /// Lets a double spend replace the transactions that it conflicts with.
    Win(Pick),
    /// Begins a run, makes a child of a due record unmined since long ago, as a late caller would, and continues the run.
    Unsettle(Pick),
    /// Notifies heights this far above the tip.
    Persisted(i8),
    Block(i8, bool),
    /// Begins a run, starts the block persister, which lags by this much, and continues the run.
    Persister(u8),
    Prune(i8),
    /// Notifies a height at the edge of the valid range, by one of the notifications or as an operator.
    Edge(u32, u8),
    /// Sets the heights: this far above the tip, whether and how far the persister lags, and the processed height.
    Heights(i8, Option<u8>, u8),
    /// Notifies a wrong height as an operator, runs ticks, and sets the heights right.
    Wrong {
        height: u32,
        how: u8,
        ticks: u8,
    },
    /// Lets this many ticks trap, one after another.
    Storm(u8, TrapPoint),
    /// Fills memory to the cap, or lifts the cap.
    Memory(bool),
    /// Cancels the running or waiting job.
    Cancel,
    Assembly(bool),
    /// Removes this many blocks, runs ticks meanwhile, and mines most of their transactions in other blocks.
    Reorg {
        depth: u8,
        ticks: u8,
        again: u16,
    },
    Set(Setting),
    Tick(u8),
    /// Reports the rows in one mask as deleted, and those in the other as failed.
    Work {
        done: u8,
        failed: u8,
        max_retries: u32,
    },
    Retry(Pick),
}

/// A step, this many blocks after the previous one, by a caller that lags by this many blocks.
#[derive(Clone, Debug)]
pub struct Move {
    pub blocks: u8,
    pub lag: u8,
    /// The caller names this height instead.
    pub edge: Option<u32>,
    pub step: Step,
}

#[derive(Clone, Debug)]
pub struct History {
    pub settings: Vec<Setting>,
    /// The block assembly runs from the start.
    pub running: bool,
    pub transactions: Vec<Template>,
    pub moves: Vec<Move>,
    /// The canister is upgraded before these messages, counted from 1; a tick is one.
    pub upgrades: BTreeSet<u16>,
    /// These messages trap, at these points.
    pub traps: BTreeMap<u16, TrapPoint>,
    /// The growth of the chain at the end, in blocks.
    pub finale: u8,
}

impl History {
    /// Returns whether a record has more outputs, or inputs, than a message handles at once.
    pub fn has_large(&self) -> bool {
        self.transactions.iter().any(|one| one.sweeps.is_some())
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, running, transactions, moves, upgrades, traps, finale } = self;
        writeln!(
            f,
            "{settings:?}, assembly {running}, upgrades before {upgrades:?}, traps {traps:?}, {finale} blocks at the end"
        )?;
        for (number, transaction) in transactions.iter().enumerate() {
            writeln!(f, "#{number} {transaction:?}")?;
        }
        moves.iter().try_for_each(|Move { blocks, lag, edge, step }| {
            writeln!(f, "{blocks} blocks later, lag {lag}, or at {edge:?}: {step:?}")
        })
    }
}

/// Any height, mostly near those where behaviour changes.
fn edge() -> impl Strategy<Value = u32> {
    let half = 1u32 << 31;
    prop_oneof![
        3 => Just(0u32),
        2 => 1u32..3,
        4 => prop_oneof![Just(half - 1), Just(half), Just(half + 1)],
        3 => Just(u32::MAX),
        2 => 10_000u32..10_100,
        2 => any::<u32>(),
    ]
}

fn point() -> impl Strategy<Value = TrapPoint> {
    prop_oneof![
        1 => Just(TrapPoint::Start),
        3 => Just(TrapPoint::End),
        3 => prop_oneof![Just(20_000u64), Just(60_000), Just(200_000), Just(1_000_000)].prop_map(TrapPoint::Instructions),
        3 => (1u64..60).prop_map(TrapPoint::SystemCall),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        8 => Just(Kind::Mined),
        1 => Just(Kind::MinedElsewhere),
        4 => Just(Kind::Unmined),
        1 => Just(Kind::Locked),
        1 => Just(Kind::Conflicting),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || any::<u8>().prop_map(Pick);
    let seldom = || prop_oneof![3 => Just(false), 1 => Just(true)];
    let often = || prop_oneof![1 => Just(false), 3 => Just(true)];
    let height = || prop_oneof![5 => Just(0i8), 3 => -8i8..0, 2 => 1i8..10];
    let vout = || prop::option::of(0u8..4);
    let records = prop_oneof![
        20 => (pick(), kind()).prop_map(|(pick, kind)| Step::Accept(pick, kind)),
        2 => (pick(), kind()).prop_map(|(pick, kind)| Step::Create(pick, kind)),
        4 => (pick(), any::<u8>()).prop_map(|(pick, mask)| Step::Spend(pick, mask)),
        16 => (pick(), prop::option::of(pick())).prop_map(|(pick, by)| Step::Sweep(pick, by)),
        3 => pick().prop_map(Step::Unspend),
        10 => (pick(), prop::option::weighted(0.7, pick())).prop_map(|(pick, by)| Step::Retire(pick, by)),
        9 => (0u8..12, any::<u16>(), seldom(), often())
            .prop_map(|(back, mask, unset, longest)| Step::Mine { back, mask, unset, longest }),
        1 => (pick(), seldom()).prop_map(|(pick, locked)| Step::Lock(pick, locked)),
        2 => (pick(), any::<bool>()).prop_map(|(pick, is)| Step::OnLongestChain(pick, is)),
        1 => (pick(), vout()).prop_map(|(pick, vout)| Step::Freeze(pick, vout)),
        2 => (pick(), vout()).prop_map(|(pick, vout)| Step::Thaw(pick, vout)),
        3 => (pick(), -6i8..12).prop_map(|(pick, until)| Step::Preserve(pick, until)),
        2 => pick().prop_map(Step::Conflict),
        5 => pick().prop_map(Step::Win),
        5 => pick().prop_map(Step::Unsettle),
    ];
    let pruner = prop_oneof![
        5 => height().prop_map(Step::Persisted),
        6 => (height(), often()).prop_map(|(height, mined)| Step::Block(height, mined)),
        6 => (0u8..12).prop_map(Step::Persister),
        3 => height().prop_map(Step::Prune),
        2 => (edge(), any::<u8>()).prop_map(|(height, how)| Step::Edge(height, how)),
        1 => (-20i8..10, prop::option::of(0u8..12), 0u8..20)
            .prop_map(|(current, persisted, processed)| Step::Heights(current, persisted, processed)),
        2 => (edge(), any::<u8>(), 0u8..4).prop_map(|(height, how, ticks)| Step::Wrong { height, how, ticks }),
        1 => (1u8..10, point()).prop_map(|(ticks, point)| Step::Storm(ticks, point)),
        1 => prop_oneof![1 => Just(true), 2 => Just(false)].prop_map(Step::Memory),
        1 => Just(Step::Cancel),
        4 => often().prop_map(Step::Assembly),
        3 => (1u8..8, 0u8..4, any::<u16>())
            .prop_map(|(depth, ticks, again)| Step::Reorg { depth, ticks, again }),
        4 => setting().prop_map(Step::Set),
        16 => (1u8..4).prop_map(Step::Tick),
        8 => (any::<u8>(), any::<u8>(), 0u32..3)
            .prop_map(|(done, failed, max_retries)| Step::Work { done, failed, max_retries }),
        3 => pick().prop_map(Step::Retry),
    ];
    prop_oneof![5 => records, 4 => pruner]
}

pub fn history() -> impl Strategy<Value = History> {
    let blocks = prop_oneof![5 => Just(0u8), 5 => 1u8..3, 1 => 3u8..12];
    let lag = prop_oneof![5 => Just(0u8), 2 => 1u8..6, 1 => 6u8..40];
    let edge = prop::option::weighted(0.03, edge());
    let one = (blocks, lag, edge, step()).prop_map(|(blocks, lag, edge, step)| Move { blocks, lag, edge, step });
    let moves = prop::collection::vec(one, 1..80);
    let upgrades = prop::collection::btree_set(1u16..150, 0..10);
    let running = prop_oneof![1 => Just(false), 5 => Just(true)];
    let traps = prop::collection::btree_map(1u16..150, point(), 0..6);
    let traps = prop_oneof![2 => Just(BTreeMap::new()), 1 => traps];
    let transactions = prop::collection::vec(template(), 4..14);
    (first(), running, (transactions, large()), moves, (upgrades, traps), 0u8..40).prop_map(
        |(settings, running, (mut transactions, large), moves, (upgrades, traps), finale)| {
            if let Some((at, behind, outputs)) = large {
                let at = usize::from(at) % (transactions.len() - 1);
                let distance = 1 + usize::from(behind) % (transactions.len() - 1 - at);
                transactions[at].outputs = outputs;
                transactions[at + distance].sweeps = Some(distance as u8);
            }
            History { settings, running, transactions, moves, upgrades, traps, finale }
        },
    )
}

/// The transaction with thousands of outputs, the distance to the later transaction that spends them all, and their number.
fn large() -> impl Strategy<Value = Option<(u8, u8, u32)>> {
    prop::option::weighted(0.08, (0u8..4, 0u8..4, 1_001u32..3_000))
}

fn template() -> impl Strategy<Value = Template> {
    let input = (prop_oneof![1 => Just(0u8), 9 => 1u8..5], 0u8..4);
    let inputs = prop_oneof![
        1 => Just(0usize..1),
        6 => Just(1usize..2),
        4 => Just(2usize..4),
    ];
    let inputs = inputs.prop_flat_map(move |count| prop::collection::vec(input.clone(), count));
    let outputs = prop_oneof![6 => Just(1u32), 4 => Just(2u32), 2 => 3u32..5];
    let data = prop_oneof![8 => Just(0u8), 1 => any::<u8>()];
    let blob = prop_oneof![6 => Just(Blob::Inside), 3 => Just(Blob::Own), 1 => Just(Blob::Shared)];
    (inputs, outputs, data, blob).prop_map(|(inputs, outputs, data, blob)| Template {
        inputs,
        sweeps: None,
        outputs,
        data,
        blob,
    })
}

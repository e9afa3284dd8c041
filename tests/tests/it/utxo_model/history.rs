//! Random histories whose steps are independent, so that any of them may be left out. A step is a kind and a seed; when it is played, the
//! player chooses records and heights by the seed among those that exist.

use std::fmt;

/// Numbers generated from a seed (SplitMix64).
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Returns the next number, below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes records of new transactions, and spends some of their outputs at once.
    Create,
    /// Makes a record of an earlier transaction again, in a block or not.
    Replay,
    /// Makes a double spend of what another transaction spends.
    Rival,
    /// Makes a long chain of transactions, each of which spends from the previous one.
    Chain,
    /// Spends the outputs that a transaction's inputs name, or makes a wrong spend.
    Spend,
    /// Takes spends back.
    Unspend,
    /// Gives transactions to a block.
    Mine,
    /// Takes a block from transactions.
    Unmine,
    /// Removes the last blocks, down to any depth, from all their transactions, and mines some of these in another block.
    Reorg,
    /// Puts transactions on the longest chain, or removes them from it.
    Longest,
    /// Locks or unlocks.
    Lock,
    /// Freezes outputs.
    Freeze,
    /// Unfreezes outputs.
    Unfreeze,
    /// Gives a frozen output a new owner.
    Reassign,
    /// Keeps records until a height.
    Preserve,
    /// Marks a transaction as a double spend, in this many slices.
    Conflict,
    /// Lets double spends win, in this many slices.
    Win,
    /// Continues unfinished slices.
    Continue,
    /// Notifies a height, persisted or not.
    Notify,
    /// Sets the heights.
    SetHeights,
    /// `utxo_prune`.
    Prune,
    /// Cancels the job that waits or runs.
    Cancel,
    /// Starts or stops the block assembly.
    Assembly,
    /// Lets time pass and the pruner's timer fire.
    Pass,
    /// Mines a transaction and spends all of it: it will be deleted.
    Finish,
    /// Changes settings.
    Settings,
    /// Upgrades the canister.
    Upgrade,
    /// Makes a message of the next step trap.
    Trap,
}

/// Weights of the kinds.
const WEIGHTS: [(Kind, u64); 28] = [
    (Kind::Create, 14),
    (Kind::Replay, 5),
    (Kind::Rival, 8),
    (Kind::Chain, 2),
    (Kind::Spend, 8),
    (Kind::Unspend, 4),
    (Kind::Mine, 10),
    (Kind::Unmine, 4),
    (Kind::Reorg, 4),
    (Kind::Longest, 3),
    (Kind::Lock, 3),
    (Kind::Freeze, 3),
    (Kind::Unfreeze, 3),
    (Kind::Reassign, 2),
    (Kind::Preserve, 3),
    (Kind::Conflict, 4),
    (Kind::Win, 5),
    (Kind::Continue, 2),
    (Kind::Notify, 12),
    (Kind::SetHeights, 1),
    (Kind::Prune, 4),
    (Kind::Cancel, 2),
    (Kind::Assembly, 2),
    (Kind::Pass, 12),
    (Kind::Finish, 8),
    (Kind::Settings, 2),
    (Kind::Upgrade, 2),
    (Kind::Trap, 4),
];

/// A step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its kind.
    pub kind: Kind,
    /// The seed of its numbers.
    pub seed: u64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:#x}", self.kind, self.seed)
    }
}

/// A history: the setup of its canister, and its steps.
#[derive(Clone, Debug)]
pub struct History {
    /// The number that generated it.
    pub seed: u64,
    /// Its steps.
    pub steps: Vec<Step>,
}

impl History {
    /// The history of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Every record is compared after each message, so a history of twice the length takes four times as long.
        let length = if random.below(8) == 0 { 20 + random.below(50) } else { 6 + random.below(12) };
        let all: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let step = |random: &mut Random| {
            let mut left = random.below(all);
            let kind = WEIGHTS.iter().find(|(_, weight)| {
                let here = left < *weight;
                left = left.wrapping_sub(*weight);
                here
            });
            Step { kind: kind.expect("below the sum of all").0, seed: random.next() }
        };
        Self { seed, steps: (0..length).map(|_| step(&mut random)).collect() }
    }
}

//! What the chain is, over ordinary collections, and what damage excuses.

use super::world::{EXPIRY, PRODUCER};
use candid::Principal;
use coppice_interface::AppendBlock;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A block as its producer made it.
#[derive(Clone, Debug)]
pub struct Made {
    /// Which of all blocks that were ever made.
    pub serial: u64,
    /// The block.
    pub block: AppendBlock,
    /// Its ids, by position.
    pub ids: Vec<[u8; 32]>,
    /// Its keys, by transaction.
    pub keys: Vec<(u32, Vec<u8>)>,
    /// Whether its record, or a blob that it lies in, was damaged.
    pub damaged: bool,
}

/// The open upload.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Its block.
    pub made: Made,
    /// Bytes of its chunks.
    pub chunk: usize,
    /// The chunks that are there.
    pub put: BTreeSet<u32>,
    /// Its lengths are such that it is never whole.
    pub huge: bool,
    /// Unix seconds when somebody went on with it.
    pub touched: u64,
    /// References that are in the indexes.
    pub entered: u64,
    /// It was aborted, and is being undone.
    pub aborting: bool,
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The kept blocks, oldest first.
    pub kept: VecDeque<Made>,
    /// The number of a first block.
    pub first: u64,
    /// Blocks ever made.
    pub made: u64,
    /// The open upload.
    pub upload: Option<Upload>,
    /// The rollback that is under way.
    pub rollback_to: Option<u64>,
    /// Blocks behind the head that retention leaves; 0: there is no policy, or it keeps everything.
    pub retain: u64,
    /// Whether a policy was ever set.
    pub policy: bool,
    /// The kill switch.
    pub enabled: bool,
    /// The exporter's bound; none: there is no exporter.
    pub bound: Option<u64>,
    /// Of each id, the newest damaged block that it was ever in.
    harmed_ids: BTreeMap<[u8; 32], u64>,
    /// The same of each key.
    harmed_keys: BTreeMap<Vec<u8>, u64>,
    /// How often something was damaged.
    pub harmed: u64,
}

/// Where an id is, as far as the model can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Exactly there, or nowhere.
    At(Option<(u64, u32)>),
    /// One of these, or damage.
    OneOf(Vec<(u64, u32)>),
}

impl Model {
    /// The oldest kept block.
    pub fn oldest(&self) -> u64 {
        self.kept.front().map_or(0, |made| made.block.number)
    }

    /// The newest.
    pub fn head(&self) -> Option<u64> {
        self.kept.back().map(|made| made.block.number)
    }

    /// The number that comes next.
    pub fn next(&self) -> u64 {
        self.head().map_or(self.first, |head| head + 1)
    }

    /// A kept block.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Made> {
        let at = number.checked_sub(self.oldest())?;
        self.kept.get_mut(at as usize)
    }

    /// Notes that a block is damaged.
    pub fn harm(&mut self, number: u64) {
        let made = match self.upload.as_mut().filter(|upload| upload.made.block.number == number) {
            Some(upload) => &mut upload.made,
            None => match self.get_mut(number) {
                Some(made) => made,
                None => return,
            },
        };
        made.damaged = true;
        let made = made.clone();
        self.note_harm(&made);
    }

    /// Its postings may lead to nothing from now on.
    pub fn note_harm(&mut self, made: &Made) {
        for id in &made.ids {
            let newest = self.harmed_ids.entry(*id).or_default();
            *newest = made.serial.max(*newest);
        }
        for (_, key) in &made.keys {
            let newest = self.harmed_keys.entry(key.clone()).or_default();
            *newest = made.serial.max(*newest);
        }
    }

    /// Makes a block the head.
    pub fn append(&mut self, made: Made) {
        if made.damaged {
            self.note_harm(&made);
        }
        self.kept.push_back(made);
    }

    /// Empties the chain. Damage is forgotten with it: nothing of what was before can be met again.
    pub fn reset(&mut self, first: u64) {
        self.kept.clear();
        self.harmed_ids.clear();
        self.harmed_keys.clear();
        self.first = first;
        self.bound = self.bound.map(|_| 0);
    }

    /// Who has begun the open upload, and when it expires.
    pub fn open(&self) -> Option<(Option<Principal>, u64)> {
        self.upload.as_ref().map(|upload| (Some(PRODUCER), upload.touched + EXPIRY))
    }

    /// What may be pruned by the daemon ends below this.
    pub fn may_go_below(&self) -> u64 {
        let Some(head) = self.head().filter(|_| self.retain > 0) else { return self.oldest() };
        let target = head.saturating_sub(self.retain);
        target.min(self.bound.unwrap_or(u64::MAX)).min(self.rollback_to.unwrap_or(u64::MAX)).max(self.oldest())
    }

    /// The upload that nobody has gone on with for long enough.
    pub fn expired(&self, now: u64) -> bool {
        self.upload.as_ref().is_some_and(|upload| now - upload.touched >= EXPIRY)
    }

    /// Where an id's newest occurrence is.
    pub fn locate(&self, id: &[u8; 32]) -> Whereabouts {
        let harmed = self.harmed_ids.get(id).copied();
        let newest_in = |made: &Made| {
            let position = made.ids.iter().rposition(|other| other == id)?;
            Some((made.serial, (made.block.number, position as u32)))
        };
        let mut all = self.kept.iter().rev().filter_map(newest_in);
        match (all.next(), harmed) {
            (None, None) => Whereabouts::At(None),
            (Some((serial, place)), harmed) if harmed.is_none_or(|harmed| serial > harmed) => {
                Whereabouts::At(Some(place))
            }
            (first, _) => Whereabouts::OneOf(first.into_iter().chain(all).map(|(_, place)| place).collect()),
        }
    }

    /// The transactions with a key, newest first; none: damage may have hidden some.
    pub fn find(&self, key: &[u8]) -> Option<Vec<(u64, u32)>> {
        let mut found = Vec::new();
        let harmed = self.harmed_keys.get(key).copied();
        for made in self.kept.iter().rev() {
            let mut of: Vec<u32> = made.keys.iter().filter(|(_, other)| other == key).map(|&(at, _)| at).collect();
            of.sort_unstable();
            of.dedup();
            if !of.is_empty() && harmed.is_some_and(|harmed| made.serial <= harmed) {
                return None;
            }
            found.extend(of.into_iter().rev().map(|at| (made.block.number, at)));
        }
        harmed.is_none().then_some(found)
    }

    /// Ids that the index has an entry for once it is swept, where nothing was ever damaged.
    pub fn distinct_ids(&self) -> usize {
        self.kept.iter().flat_map(|made| &made.ids).collect::<BTreeSet<_>>().len()
    }
}

//! Tests of the block pruner over a real chain.

use super::*;
use crate::Admission;
use crate::testing::pruning::{CLASS, World, changed, guard, policy, world, world_of};
use crate::testing::{block, fresh, id};
use ic_coppice_interface::{
    Config, HeldBy, PruneError, PrunePolicyArg, PruneProgress, PruneReason, PruneStatus, StopReason, SweepPhase,
};
use ic_coppice_storage::{Budget, Ic, NS, Platform as _, testing, twin};

mod capacity;
mod exporters;
mod full;
mod plan;
mod retention;
mod run;
mod sweep;

const DAY: u64 = 86_400;

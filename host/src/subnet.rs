//! State of the host: canisters, waiting messages, the clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use candid::Principal;

use crate::call_context::MessageId;
use crate::canister::{Canister, Contents, State, Surroundings};
use crate::certificate::{self, FIRST_MOMENT, Keys};
use crate::context::OutgoingCall;
use crate::cycles::{self, Saturation};
use crate::execution::History;
use crate::faults::Faults;
use crate::limits::Limits;
use crate::reject::{ErrorCode, RejectResponse, not_found};
use crate::rounds::Rounds;
use crate::settings::Settings;

/// Cycles a canister starts with, as on PocketIC.
pub(crate) const DEFAULT_CYCLES: u128 = 100_000_000_000_000;

/// A message waiting to be executed.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Ingress {
        id: MessageId,
        canister: Principal,
        sender: Principal,
        method: String,
        payload: Vec<u8>,
    },
    Request {
        caller: Principal,
        callback: u64,
        call: Box<OutgoingCall>,
        deadline: u64,
    },
    Response {
        canister: Principal,
        callback: u64,
        /// True if the call waits for a bounded time.
        bounded: bool,
        result: Result<Vec<u8>, RejectResponse>,
        refund: u128,
    },
    Timer {
        canister: Principal,
    },
}

/// State shared by all canisters; part of a checkpoint.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    /// The clock of the last round, which queries and `canister_inspect_message` see.
    pub(crate) round_time: u64,
    /// Waiting messages, in the order of execution.
    pub(crate) queue: VecDeque<Message>,
    /// Answers to ingress messages that have not been taken yet.
    pub(crate) answers: BTreeMap<MessageId, Result<Vec<u8>, RejectResponse>>,
    pub(crate) next_message: u64,
    pub(crate) next_canister: u64,
    pub(crate) next_random: u64,
    pub(crate) snapshots: BTreeMap<Vec<u8>, (Principal, Contents)>,
    pub(crate) rounds: Rounds,
}

/// The host's state.
pub(crate) struct Subnet {
    pub(crate) shared: Shared,
    pub(crate) canisters: BTreeMap<Principal, Canister>,
    pub(crate) limits: Limits,
    pub(crate) faults: Faults,
    pub(crate) history: History,
    /// The keys that sign certificates.
    pub(crate) keys: Arc<Keys>,
    /// True if certificates carry the real time, not the clock.
    pub(crate) certifies_real_time: bool,
}

impl Subnet {
    pub(crate) fn new() -> Self {
        Subnet {
            shared: Shared {
                time: FIRST_MOMENT,
                round_time: FIRST_MOMENT,
                queue: VecDeque::new(),
                answers: BTreeMap::new(),
                next_message: 0,
                next_canister: 0,
                next_random: 0,
                snapshots: BTreeMap::new(),
                rounds: Rounds::default(),
            },
            canisters: BTreeMap::new(),
            limits: Limits::default(),
            faults: Faults::default(),
            history: History::default(),
            keys: Keys::shared(),
            certifies_real_time: false,
        }
    }

    pub(crate) fn create(&mut self, creator: Principal) -> Principal {
        let id = certificate::canister_id(self.shared.next_canister);
        self.shared.next_canister += 1;
        self.begin_round();
        self.canisters.insert(id, Canister::new(id, State::new(Settings::of(creator), DEFAULT_CYCLES)));
        id
    }

    pub(crate) fn canister(&mut self, id: Principal) -> Result<&mut Canister, RejectResponse> {
        self.canisters.get_mut(&id).ok_or_else(|| not_found(id))
    }

    /// Returns a canister that `sender` controls, for a call of the management canister, which takes a round.
    pub(crate) fn controlled(
        &mut self,
        id: Principal,
        sender: Principal,
        method: &str,
    ) -> Result<&mut Canister, RejectResponse> {
        self.begin_round();
        let canister = self.canister(id)?;
        if !canister.state.settings.controllers.contains(&sender) {
            let message = format!("Only the controllers of the canister {id} can call ic00 method {method}");
            return Err(RejectResponse::new(ErrorCode::CanisterInvalidController, message));
        }
        Ok(canister)
    }

    /// Returns a canister, and the other parts that its executions need.
    pub(crate) fn split(&mut self, id: Principal) -> Result<(&mut Canister, Surroundings<'_>), RejectResponse> {
        let stable_elsewhere = self
            .canisters
            .iter()
            .filter(|(other, _)| **other != id)
            .map(|(_, canister)| canister.state.stable.wasm_pages())
            .sum();
        let usage: u64 = self.canisters.values().map(|canister| canister.state.memory_usage()).sum();
        let limits = &self.limits;
        let saturation = Saturation {
            usage: usage.saturating_add(limits.subnet_bytes_elsewhere),
            threshold: limits.subnet_reservation_bytes,
            capacity: limits.subnet_bytes,
        };
        let canister = self.canisters.get_mut(&id).ok_or_else(|| not_found(id))?;
        let around = Surroundings {
            time: self.shared.time,
            limits: &self.limits,
            faults: &self.faults,
            history: &mut self.history,
            keys: &self.keys,
            certifies_real_time: self.certifies_real_time,
            stable_elsewhere,
            saturation,
        };
        Ok((canister, around))
    }

    /// Like `split`, at the time of the last round, which queries and `canister_inspect_message` see.
    pub(crate) fn split_as_seen(&mut self, id: Principal) -> Result<(&mut Canister, Surroundings<'_>), RejectResponse> {
        let time = self.shared.round_time;
        let (canister, around) = self.split(id)?;
        Ok((canister, Surroundings { time, ..around }))
    }

    /// Begins a round: from now on queries see the current clock.
    pub(crate) fn begin_round(&mut self) {
        self.shared.round_time = self.shared.time;
    }

    /// Sets the clock, charges for storage since then, and rejects calls whose deadline has passed.
    pub(crate) fn set_time(&mut self, time: u64) {
        let elapsed = time.saturating_sub(self.shared.time);
        self.shared.time = time;
        let ids: Vec<Principal> = self.canisters.keys().copied().collect();
        for id in ids {
            let Some(canister) = self.canisters.get_mut(&id) else { continue };
            let state = &mut canister.state;
            let price = cycles::storage(state.memory_usage(), elapsed, &mut state.storage_carried);
            // The reserved cycles pay first.
            let from_reserve = price.min(state.reserved);
            state.reserved -= from_reserve;
            match state.balance.checked_sub(price - from_reserve) {
                Some(balance) => state.balance = balance,
                None => {
                    state.balance = 0;
                    self.uninstall(id, "Canister has been uninstalled: it ran out of cycles");
                    self.delete_snapshots(id);
                }
            }
        }
        self.expire_calls();
    }

    pub(crate) fn random(&mut self) -> [u8; 32] {
        use sha2::Digest;
        self.shared.next_random += 1;
        sha2::Sha256::digest([&b"ic_coppice_host"[..], &self.shared.next_random.to_be_bytes()].concat()).into()
    }
}

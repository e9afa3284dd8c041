//! Management canister for agents: status, settings, stop and start, installation, chunks of modules, snapshots and top-ups of the host's
//! canisters. The host checks that the sender is a controller.

use super::answer::Outcome;
use super::reject::{reject_of, rejection};
use candid::utils::{ArgumentDecoder, decode_args};
use candid::{CandidType, Nat, Principal, encode_args, encode_one};
use ic_coppice_host::{CanisterSettings, Host, RejectResponse, Status};
use ic_management_canister_types::{
    CanisterIdRecord, CanisterInstallMode, CanisterStatusType, ChunkHash, DeleteCanisterSnapshotArgs,
    EnvironmentVariable, InstallChunkedCodeArgs, InstallCodeArgs, LoadCanisterSnapshotArgs, LogVisibility,
    MemoryMetrics, ProvisionalTopUpCanisterArgs, QueryStats, Snapshot, SnapshotVisibility, TakeCanisterSnapshotArgs,
    UpdateSettingsArgs, UploadChunkArgs,
};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Chunks of modules that are not installed yet, and the list of snapshots, each by canister.
#[derive(Default)]
struct Kept {
    chunks: BTreeMap<Principal, BTreeMap<Vec<u8>, Vec<u8>>>,
    snapshots: BTreeMap<Principal, Vec<Snapshot>>,
}

/// The management canister.
#[derive(Default)]
pub struct Management(Mutex<Kept>);

fn read<T: for<'a> ArgumentDecoder<'a>>(arg: &[u8]) -> Result<T, Refusal> {
    decode_args(arg).map_err(|error| Refusal::Own(format!("the argument is invalid: {error}")))
}

/// A refusal by the host, or by the management canister.
enum Refusal {
    Host(RejectResponse),
    Own(String),
}

impl From<RejectResponse> for Refusal {
    fn from(reject: RejectResponse) -> Self {
        Self::Host(reject)
    }
}

/// Returns the reply to a call without an answer.
fn nothing() -> Result<Vec<u8>, Refusal> {
    encode_args(()).map_err(|error| Refusal::Own(error.to_string()))
}

fn reply(value: &impl CandidType) -> Result<Vec<u8>, Refusal> {
    encode_one(value).map_err(|error| Refusal::Own(error.to_string()))
}

impl Management {
    /// Executes a call.
    pub fn call(&self, host: &Host, sender: Principal, method: &str, arg: &[u8]) -> Outcome {
        self.executed(host, sender, method, arg).map_err(|refusal| match refusal {
            Refusal::Host(reject) => reject_of(&reject),
            Refusal::Own(why) => rejection(why),
        })
    }

    fn executed(&self, host: &Host, sender: Principal, method: &str, arg: &[u8]) -> Result<Vec<u8>, Refusal> {
        let by = Some(sender);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match method {
            "canister_status" => {
                let (CanisterIdRecord { canister_id },) = read(arg)?;
                return reply(&status(host, canister_id, sender)?);
            }
            "stop_canister" => {
                let (CanisterIdRecord { canister_id },) = read(arg)?;
                host.stop_canister(canister_id, by)?;
            }
            "start_canister" => {
                let (CanisterIdRecord { canister_id },) = read(arg)?;
                host.start_canister(canister_id, by)?;
            }
            "update_settings" => {
                let (UpdateSettingsArgs { canister_id, settings, .. },) = read(arg)?;
                let number = |value: Option<Nat>| value.and_then(|value| u128::try_from(value.0).ok());
                let changed = CanisterSettings {
                    controllers: settings.controllers,
                    freezing_threshold: number(settings.freezing_threshold).map(|secs| secs as u64),
                    reserved_cycles_limit: number(settings.reserved_cycles_limit),
                    wasm_memory_limit: number(settings.wasm_memory_limit).map(|bytes| bytes as u64),
                    log_memory_limit: number(settings.log_memory_limit).map(|bytes| bytes as u64),
                    environment_variables: None,
                };
                host.update_canister_settings(canister_id, by, changed)?;
            }
            "install_code" => {
                let (InstallCodeArgs { mode, canister_id, wasm_module, arg, .. },) = read(arg)?;
                install(host, by, canister_id, &mode, wasm_module, arg)?;
            }
            "upload_chunk" => {
                let (UploadChunkArgs { canister_id, chunk },) = read(arg)?;
                host.canister_status(canister_id, by)?;
                let hash = Sha256::digest(&chunk).to_vec();
                kept.chunks.entry(canister_id).or_default().insert(hash.clone(), chunk);
                return reply(&ChunkHash { hash });
            }
            "stored_chunks" => {
                let (CanisterIdRecord { canister_id },) = read(arg)?;
                host.canister_status(canister_id, by)?;
                let chunks = kept.chunks.get(&canister_id).into_iter().flat_map(BTreeMap::keys);
                return reply(&chunks.map(|hash| ChunkHash { hash: hash.clone() }).collect::<Vec<_>>());
            }
            "clear_chunk_store" => {
                let (CanisterIdRecord { canister_id },) = read(arg)?;
                host.canister_status(canister_id, by)?;
                kept.chunks.remove(&canister_id);
            }
            "install_chunked_code" => {
                let (args,): (InstallChunkedCodeArgs,) = read(arg)?;
                let store = args.store_canister.unwrap_or(args.target_canister);
                let chunks = kept.chunks.get(&store);
                let mut module = Vec::new();
                for ChunkHash { hash } in &args.chunk_hashes_list {
                    let chunk = chunks.and_then(|chunks| chunks.get(hash));
                    module.extend(chunk.ok_or_else(|| Refusal::Own("a chunk of the module is not stored".into()))?);
                }
                if Sha256::digest(&module).as_slice() != args.wasm_module_hash {
                    return Err(Refusal::Own("the chunks have another hash than the module".into()));
                }
                install(host, by, args.target_canister, &args.mode, module, args.arg)?;
            }
            "take_canister_snapshot" => {
                let (TakeCanisterSnapshotArgs { canister_id, replace_snapshot, .. },) = read(arg)?;
                let taken = host.take_canister_snapshot(canister_id, by, replace_snapshot.clone())?;
                let ic_coppice_host::Snapshot { id, taken_at_timestamp, total_size } = taken;
                let snapshot = Snapshot { id, taken_at_timestamp, total_size };
                let of = kept.snapshots.entry(canister_id).or_default();
                of.retain(|snapshot| Some(&snapshot.id) != replace_snapshot.as_ref());
                of.push(snapshot.clone());
                return reply(&snapshot);
            }
            "list_canister_snapshots" => {
                let (CanisterIdRecord { canister_id },) = read(arg)?;
                host.canister_status(canister_id, by)?;
                return reply(&kept.snapshots.get(&canister_id).cloned().unwrap_or_default());
            }
            "load_canister_snapshot" => {
                let (LoadCanisterSnapshotArgs { canister_id, snapshot_id, .. },) = read(arg)?;
                host.load_canister_snapshot(canister_id, by, snapshot_id)?;
            }
            "delete_canister_snapshot" => {
                let (DeleteCanisterSnapshotArgs { canister_id, snapshot_id },) = read(arg)?;
                host.delete_canister_snapshot(canister_id, by, snapshot_id.clone())?;
                if let Some(of) = kept.snapshots.get_mut(&canister_id) {
                    of.retain(|snapshot| snapshot.id != snapshot_id);
                }
            }
            // The top-up of local networks, where cycles are made of nothing.
            "provisional_top_up_canister" => {
                let (ProvisionalTopUpCanisterArgs { canister_id, amount },) = read(arg)?;
                host.canister_info(canister_id)
                    .ok_or_else(|| Refusal::Own(format!("there is no canister {canister_id}")))?;
                host.add_cycles(canister_id, u128::try_from(amount.0).unwrap_or(u128::MAX / 2));
            }
            other => return Err(Refusal::Own(format!("the management canister of this host has no method {other}"))),
        }
        nothing()
    }
}

fn install(
    host: &Host,
    by: Option<Principal>,
    canister: Principal,
    mode: &CanisterInstallMode,
    module: Vec<u8>,
    arg: Vec<u8>,
) -> Result<(), RejectResponse> {
    match mode {
        CanisterInstallMode::Install => host.try_install_canister(canister, module, arg, by),
        CanisterInstallMode::Reinstall => host.reinstall_canister(canister, module, arg, by),
        CanisterInstallMode::Upgrade(_) => host.upgrade_canister(canister, module, arg, by),
    }
}

/// The reply of `canister_status`. The crate of the management canister's types lacks settings that icp-cli expects.
#[derive(CandidType)]
struct StatusReply {
    status: CanisterStatusType,
    ready_for_migration: bool,
    version: u64,
    settings: StatusSettings,
    module_hash: Option<Vec<u8>>,
    memory_size: Nat,
    memory_metrics: MemoryMetrics,
    cycles: Nat,
    reserved_cycles: Nat,
    idle_cycles_burned_per_day: Nat,
    query_stats: QueryStats,
}

#[derive(CandidType)]
struct StatusSettings {
    controllers: Vec<Principal>,
    compute_allocation: Nat,
    memory_allocation: Nat,
    freezing_threshold: Nat,
    reserved_cycles_limit: Nat,
    minimum_incoming_canister_call_cycles: Nat,
    log_visibility: LogVisibility,
    log_memory_limit: Nat,
    status_visibility: LogVisibility,
    snapshot_visibility: SnapshotVisibility,
    wasm_memory_limit: Nat,
    wasm_memory_threshold: Nat,
    environment_variables: Vec<EnvironmentVariable>,
}

fn status(host: &Host, canister: Principal, sender: Principal) -> Result<StatusReply, RejectResponse> {
    let status = host.canister_status(canister, Some(sender))?;
    let none = || Nat::from(0u8);
    Ok(StatusReply {
        status: match status.status {
            Status::Running => CanisterStatusType::Running,
            Status::Stopping => CanisterStatusType::Stopping,
            Status::Stopped => CanisterStatusType::Stopped,
        },
        ready_for_migration: false,
        version: status.version,
        settings: StatusSettings {
            controllers: status.controllers,
            compute_allocation: none(),
            memory_allocation: none(),
            freezing_threshold: status.freezing_threshold.into(),
            reserved_cycles_limit: status.reserved_cycles_limit.into(),
            minimum_incoming_canister_call_cycles: none(),
            log_visibility: LogVisibility::Controllers,
            log_memory_limit: none(),
            status_visibility: LogVisibility::Controllers,
            snapshot_visibility: SnapshotVisibility::Controllers,
            wasm_memory_limit: none(),
            wasm_memory_threshold: none(),
            environment_variables: Vec::new(),
        },
        module_hash: status.module_hash,
        memory_size: status.memory_size.into(),
        memory_metrics: MemoryMetrics {
            wasm_memory_size: status.wasm_memory_size.into(),
            stable_memory_size: status.stable_memory_size.into(),
            global_memory_size: none(),
            wasm_binary_size: none(),
            custom_sections_size: none(),
            canister_history_size: none(),
            wasm_chunk_store_size: none(),
            snapshots_size: none(),
            log_memory_store_size: none(),
        },
        cycles: status.cycles.into(),
        reserved_cycles: status.reserved_cycles.into(),
        idle_cycles_burned_per_day: status.idle_cycles_burned_per_day.into(),
        query_stats: QueryStats {
            num_calls_total: none(),
            num_instructions_total: none(),
            request_payload_bytes_total: none(),
            response_payload_bytes_total: none(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_management_canister_types::CanisterStatusResult;

    /// An empty module.
    const MODULE: &[u8] = b"\0asm\x01\0\0\0";

    #[test]
    fn a_controller_stops_upgrades_snapshots_and_tops_up_a_canister() {
        let (host, management) = (Host::new(), Management::default());
        let me = Principal::self_authenticating(b"me");
        let canister_id = host.create_canister_with_settings(Some(me), None);
        host.add_cycles(canister_id, 10_000_000_000_000);
        let call_as = |sender, method: &str, arg: Vec<u8>| management.call(&host, sender, method, &arg);
        let call = |method: &str, arg| call_as(me, method, arg).unwrap_or_else(|reject| panic!("{method}: {reject:?}"));
        let id = || encode_one(CanisterIdRecord { canister_id }).unwrap();
        let status = || candid::decode_one::<CanisterStatusResult>(&call("canister_status", id())).unwrap();
        assert_eq!((status().status, status().module_hash), (CanisterStatusType::Running, None));
        let (first, rest) = MODULE.split_at(3);
        let hashes = [first, rest].map(|chunk| {
            let chunk = UploadChunkArgs { canister_id, chunk: chunk.to_vec() };
            candid::decode_one::<ChunkHash>(&call("upload_chunk", encode_one(chunk).unwrap())).unwrap()
        });
        let install = |mode, chunk_hashes_list: Vec<ChunkHash>| InstallChunkedCodeArgs {
            mode,
            target_canister: canister_id,
            store_canister: None,
            chunk_hashes_list,
            wasm_module_hash: Sha256::digest(MODULE).to_vec(),
            arg: Vec::new(),
            sender_canister_version: None,
        };
        let wrong = install(CanisterInstallMode::Install, vec![hashes[1].clone(), hashes[0].clone()]);
        let refused = call_as(me, "install_chunked_code", encode_one(wrong).unwrap()).unwrap_err();
        assert!(refused.reject_message.contains("another hash"), "{refused:?}");
        for mode in [CanisterInstallMode::Install, CanisterInstallMode::Upgrade(None)] {
            call("install_chunked_code", encode_one(install(mode, hashes.to_vec())).unwrap());
        }
        assert_eq!(status().module_hash, Some(Sha256::digest(MODULE).to_vec()));
        call("stop_canister", id());
        assert_eq!(status().status, CanisterStatusType::Stopped);
        let list = || candid::decode_one::<Vec<Snapshot>>(&call("list_canister_snapshots", id())).unwrap();
        let take = TakeCanisterSnapshotArgs {
            canister_id,
            replace_snapshot: None,
            uninstall_code: None,
            sender_canister_version: None,
        };
        let taken: Snapshot = candid::decode_one(&call("take_canister_snapshot", encode_one(take).unwrap())).unwrap();
        assert_eq!(list(), std::slice::from_ref(&taken));
        let snapshot_id = taken.id;
        let load =
            LoadCanisterSnapshotArgs { canister_id, snapshot_id: snapshot_id.clone(), sender_canister_version: None };
        call("load_canister_snapshot", encode_one(load).unwrap());
        call("start_canister", id());
        call("delete_canister_snapshot", encode_one(DeleteCanisterSnapshotArgs { canister_id, snapshot_id }).unwrap());
        assert_eq!((list(), status().status), (Vec::new(), CanisterStatusType::Running));
        let before = status().cycles;
        let top_up = ProvisionalTopUpCanisterArgs { canister_id, amount: 7_000_000_000_000u64.into() };
        call("provisional_top_up_canister", encode_one(top_up).unwrap());
        assert_eq!(status().cycles, before + 7_000_000_000_000u64);
        let other = Principal::self_authenticating(b"other");
        for method in ["canister_status", "stop_canister", "start_canister", "list_canister_snapshots"] {
            assert!(call_as(other, method, id()).is_err(), "{method}: only a controller");
        }
        assert!(call_as(me, "raw_rand", Vec::new()).is_err());
    }
}

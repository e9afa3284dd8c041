//! Tests of blob workers as processes.

mod alone;
mod bucket;
mod chaos;
mod costs;
mod ends;
mod four;
mod javascript;
mod stores;

use crate::net::Net;
use candid::{CandidType, Principal};
use ic_coppice_interface::*;
use ic_ed25519::{PrivateKey, PrivateKeyFormat};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The height of the chain; workers delete up to ten blocks below.
const HEIGHT: u32 = 1_010;
const ACQUIRE: &str = "acquire_blob_deletion_batch";
const COMPLETE: &str = "complete_blob_deletion_batch";

fn key(blob: u64) -> [u8; 32] {
    let mut key = [0xAB; 32];
    key[..8].copy_from_slice(&blob.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

/// Returns a blob's name in the layout `hex`.
fn file(blob: u64) -> String {
    named(&key(blob))
}

fn named(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + ".tx"
}

fn call<A: CandidType, R: CandidType + for<'a> serde::Deserialize<'a>>(net: &Net, method: &str, arg: A) -> R {
    let reply = net.host.update_call(net.canister, net.principal, method, candid::encode_one(arg).unwrap()).unwrap();
    candid::decode_one(&reply).unwrap()
}

fn query<A: CandidType, R: CandidType + for<'a> serde::Deserialize<'a>>(net: &Net, method: &str, arg: A) -> R {
    let reply = net.host.query_call(net.canister, net.principal, method, candid::encode_one(arg).unwrap()).unwrap();
    candid::decode_one(&reply).unwrap()
}

/// Queried without the gateway, which may hold back an answer.
fn status(net: &Net) -> BlobDeletionStatus {
    query(net, "get_blob_deletion_status", ())
}

fn waiting(net: &Net) -> u64 {
    status(net).stores.iter().map(|store| store.waiting).sum()
}

fn metric(net: &Net, name: &str) -> f64 {
    let metrics = status(net).metrics;
    metrics.iter().find(|metric| metric.name.ends_with(name)).unwrap_or_else(|| panic!("{name}: {metrics:?}")).value
}

/// Creates a canister with an offset clock and a row for each blob.
fn world(blobs: u64, clock: SystemTime) -> Net {
    let net = Net::start();
    net.host.set_time(clock);
    net.gateway.follow_the_clock();
    let arg = candid::encode_args((HEIGHT, true)).unwrap();
    net.host.update_call(net.canister, net.principal, "utxo_notify_block", arg).unwrap();
    // Half of the rows are due exactly at the safety window.
    (0..blobs).for_each(|blob| schedule(&net, blob, "tx", StoreType::Tx, if blob % 2 == 0 { HEIGHT - 10 } else { 1 }));
    net
}

fn schedule(net: &Net, blob: u64, file_type: &str, store_type: StoreType, delete_at_height: u32) {
    let name = BlobName { blob_key: ByteBuf::from(key(blob)), file_type: file_type.into(), store_type };
    let scheduled: Result<ScheduledBlobDeletion, BlobDeletionError> =
        call(net, "schedule_blob_deletion", ScheduleBlobDeletion { name, delete_at_height });
    scheduled.unwrap();
}

/// Returns the principal of the key with this name.
fn principal(name: &str) -> Principal {
    let key = PrivateKey::generate_from_seed(name.as_bytes());
    Principal::self_authenticating(key.public_key().serialize_rfc8410_der())
}

/// Creates an identity with the role BlobWorker.
fn identity(net: &Net, name: &str) -> Principal {
    let key = PrivateKey::generate_from_seed(name.as_bytes());
    std::fs::write(net.path(name), key.serialize_pkcs8_pem(PrivateKeyFormat::Pkcs8v2)).unwrap();
    let principal = principal(name);
    let granted: Result<(), RoleError> = call(net, "grant_role", Grant { principal, role: Role::BlobWorker });
    granted.unwrap();
    principal
}

fn command(net: &Net, identity: &str, args: &[&str]) -> Command {
    command_by(Command::new(env!("CARGO_BIN_EXE_coppice")), net, identity, args)
}

fn command_by(mut command: Command, net: &Net, identity: &str, args: &[&str]) -> Command {
    let (url, canister) = (net.gateway.url(), net.canister.to_string());
    command.args(["blob-worker"]).args(args).args(["--network", &url, "--canister", &canister]);
    command.args(["--identity", &net.path(identity), "--fetch-root-key", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output, code: i32) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(code), "{}", stderr_of(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Parses lines of JSON; any other line fails the test.
fn events(lines: &str) -> Vec<serde_json::Value> {
    let event =
        |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?} is not JSON, {error}: {lines}"));
    lines.lines().map(event).collect()
}

/// A running worker and its stderr so far. Dropping it kills the worker.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    log: String,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, log: String::new() }
    }

    /// Waits until stderr contains a text this many times.
    fn wait_for_line(&mut self, what: &str, times: usize) {
        while self.log.matches(what).count() < times {
            assert_ne!(self.stderr.read_line(&mut self.log).unwrap(), 0, "the worker has ended: {}", self.log);
        }
    }

    /// Sends SIGTERM, and waits until the worker has noted it.
    fn terminate(&mut self) {
        signal(&self.child, "-TERM");
        self.wait_for_line("a second signal ends at once", 1);
    }

    /// Waits until the worker has ended.
    fn end(mut self) -> Output {
        let mut stdout = Vec::new();
        self.stderr.read_to_string(&mut self.log).unwrap();
        self.child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        let status = self.child.wait().unwrap();
        Output { status, stdout, stderr: std::mem::take(&mut self.log).into_bytes() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn signal(child: &Child, which: &str) {
    assert!(Command::new("kill").args([which, &child.id().to_string()]).status().unwrap().success());
}

/// Returns whether a worker handles signals already, by its thread for them; before that, a signal kills it.
fn listens(child: &Child) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", child.id())) else { return false };
    let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.any(|name| name.trim() == "signals")
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        // A longer wait means a hang.
        assert!(started.elapsed() < Duration::from_secs(600), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

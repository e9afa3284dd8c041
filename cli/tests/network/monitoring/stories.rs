//! Six breaks as an operator meets them. Each is seen in `coppice status`, in the metrics and in its alert, is mended as the page of the alert
//! or `coppice status` says, and is gone everywhere afterwards.

use super::prometheus::Prometheus;
use super::*;
use crate::first_deployment::icp;
use crate::index_database::servers::Server;
use ic_coppice_cli::gateway::on_network;
use ic_coppice_cli::network::Network;
use ic_coppice_client::{Block, Client};
use serde_bytes::ByteBuf;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PAGE: &str = include_str!("../../../../docs/operations/alerts.md");
const TEST: &str = "six_breaks_are_seen_and_mended_by_the_documented_commands";

/// Bytes of a block.
const BODY: usize = 60_000;

struct World {
    net: Net,
    prometheus: Prometheus,
    icp: PathBuf,
}

impl World {
    /// Returns the exit code of `coppice status`, and what it has seen.
    fn status(&self) -> (i32, Value) {
        let output = self.net.run(&["status"]);
        let seen = serde_json::from_slice(&output.stdout);
        (output.status.code().unwrap(), seen.unwrap_or_else(|error| panic!("{error}: {}", stderr_of(&output))))
    }

    /// Returns the action of a problem, with the network's address in its commands; `None` if there is no such problem.
    fn action(&self, code: &str) -> Option<String> {
        let (exit, seen) = self.status();
        let problems = seen["health"]["problems"].as_array().unwrap();
        let found = problems.iter().find(|problem| problem["code"] == code)?;
        assert_eq!(exit, 8, "{seen}");
        Some(on_network(found["action"].as_str().unwrap(), &self.net.gateway.url()))
    }

    /// Waits until a problem is in `coppice status` and in the metrics, and its alert's condition holds. Returns the problem's action.
    fn breaks(&self, code: &str, alert: &str) -> String {
        let mut action = None;
        wait_for(&format!("coppice status has {code}"), || {
            action = self.action(code);
            action.is_some()
        });
        let metric = format!("coppice_problem%7Bcode%3D%22{code}%22%7D");
        wait_for(&metric, || self.prometheus.values(&metric).is_some_and(|values| values == ["1"]));
        self.alerts(alert);
        action.unwrap()
    }

    fn alerts(&self, alert: &str) {
        assert!(PAGE.contains(&format!("### `{alert}`")), "{alert}");
        wait_for(&format!("{alert} holds"), || self.prometheus.alerts(alert));
    }

    /// Waits until all is well in `coppice status`, and the alert's condition does not hold.
    fn heals(&self, alert: &str) {
        wait_for(&format!("all is well after {alert}"), || {
            self.net.host.tick();
            self.status().0 == 0
        });
        wait_for(&format!("{alert} is over"), || !self.prometheus.alerts(alert));
    }

    /// Runs the command of an action or a page that contains a text, as it is printed.
    fn types(&self, text: &str, part: &str) {
        let id = self.net.canister.to_string();
        let text = on_network(text, &self.net.gateway.url());
        let command = text.split('`').find(|quoted| quoted.starts_with("icp ") && quoted.contains(part));
        let words = command.unwrap_or_else(|| panic!("{part}: {text}")).split(' ');
        let command = &words.map(|word| if word == "ID" { &id } else { word }).collect::<Vec<_>>().join(" ");
        let mut shell = self.icp();
        let path = format!("{}:{}", self.icp.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let output = shell.env("PATH", path).args(["-c", command]).output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !answer.contains("Err"), "{command}: {answer}{}", stderr_of(&output));
    }

    /// Returns a shell with a home of its own for icp-cli.
    fn icp(&self) -> Command {
        let mut shell = Command::new("sh");
        shell.env("HOME", self.net.path("home")).env("DO_NOT_TRACK", "1").current_dir(self.net.path("home"));
        shell
    }

    /// Appends blocks after the head until one is refused, at most this many.
    fn append(&self, blocks: u64, body: usize) -> Result<(), AppendError> {
        let client = self.net.client();
        let first = client.get_head().wait().unwrap().map_or(0, |head| head.number + 1);
        for number in first..first + blocks {
            let hash = |number: u64| <[u8; 32]>::try_from([number.to_le_bytes(); 4].concat()).unwrap();
            let parent = number.checked_sub(1).map_or_else(|| hash(u64::MAX), hash);
            let block = Block::new(number, hash(number), parent, number);
            let block = block.body(vec![number as u8; body]).seal().unwrap();
            client.append_block(&block).wait().unwrap()?;
        }
        Ok(())
    }

    fn storage(&self) -> StorageStatus {
        self.net.client().get_storage_status(None).wait().unwrap()
    }

    fn set_config(&self, change: ConfigChange) {
        self.net.client().set_config(&change).done().unwrap();
    }

    /// Memory is billed up to nearly the cap; the remedy raises the cap.
    fn cap_is_near(&self) {
        // The least cap is 512 pages.
        while self.storage().billed_bytes < 32 << 20 || self.storage().reusable_bytes * 20 > self.storage().billed_bytes
        {
            self.append(1, 900_000).unwrap();
        }
        let pages = self.storage().billed_bytes / 65_536 * 100 / 95;
        self.set_config(ConfigChange { max_stable_pages: Some(pages), ..ConfigChange::default() });
        let action = self.breaks("MemoryNearCap", "CoppiceMemoryNearlyFull");
        self.types(&action, "max_stable_pages");
        self.heals("CoppiceMemoryNearlyFull");
    }

    /// The indexer has ended, and holds pruning back until appends are refused; the remedy starts it again.
    fn exporter_is_dead(&self, indexer: &mut Option<Running>, again: impl FnOnce() -> Running) {
        self.set_config(ConfigChange { max_stable_pages: Some(8_192), ..ConfigChange::default() });
        let kept = self.net.client().get_prune_status().wait().unwrap().estimated_kept_bytes;
        let policy = PrunePolicyArg {
            target_bytes: Some(kept + (2 << 20)),
            min_kept_blocks: Some(0),
            pruning_enabled: Some(true),
            ..PrunePolicyArg::default()
        };
        self.net.client().set_prune_policy(&policy).done().unwrap();
        *indexer = None;
        let refused = self.append(1_000, BODY);
        assert!(matches!(refused, Err(AppendError::CapacityExhausted { .. })), "{refused:?}");
        self.alerts("CoppiceIndexerDown");
        let action = self.breaks("CapacityExhausted", "CoppiceNearlyFull");
        assert!(action.contains("Start or repair exporter archive"), "{action}");
        *indexer = Some(again());
        self.heals("CoppiceNearlyFull");
        assert_eq!(self.append(1, BODY), Ok(()));
        wait_for("the indexer's alert is over", || !self.prometheus.alerts("CoppiceIndexerDown"));
    }

    /// The remedy tops up as `coppice status` says, and starts the timers.
    fn cycles_are_low(&self) {
        set_liquid(&self.net, LOW);
        let action = self.breaks("CyclesLow", "CoppiceCyclesLow");
        self.types(section("CoppiceCyclesLow"), "icp canister status");
        self.types(&action, "icp canister top-up");
        self.types(&action, "acknowledge_faults");
        self.heals("CoppiceCyclesLow");
    }

    /// The remedy starts the database; the indexer opens it again by itself.
    fn database_is_gone(&self, server: &Server) {
        server.crash();
        assert_eq!(self.append(1, BODY), Ok(()));
        self.alerts("CoppiceIndexerDatabaseDown");
        server.resume();
        self.heals("CoppiceIndexerDatabaseDown");
        let head = self.net.client().get_head().wait().unwrap().unwrap().number;
        wait_for("the indexer has the head", || server.ask("SELECT max(number) FROM blocks") == head.to_string());
    }

    /// The remedy starts the worker, which deletes what has waited.
    fn worker_is_killed(&self, worker: &mut Option<Running>, again: impl FnOnce() -> Running) {
        *worker = None;
        let client = self.net.client();
        // Ten blocks above the row's height.
        let _ = client.utxo_notify_block(11, true).wait().unwrap().unwrap();
        let file = self.net.path("blobs/") + &"ab".repeat(32) + ".tx";
        std::fs::write(&file, "a blob").unwrap();
        let name = BlobName { blob_key: ByteBuf::from([0xAB; 32]), file_type: "tx".into(), store_type: StoreType::Tx };
        client.schedule_blob_deletion(&ScheduleBlobDeletion { name, delete_at_height: 1 }).done().unwrap();
        self.alerts("CoppiceWorkerDown");
        let pending =
            |of: &str| self.prometheus.values("sum(pruner_blob_deletion_pending)").is_some_and(|sum| sum == [of]);
        wait_for("a blob waits", || pending("1"));
        *worker = Some(again());
        wait_for("the blob is gone", || pending("0") && !Path::new(&file).exists());
        self.heals("CoppiceWorkerDown");
    }

    /// The remedy drops the upload.
    fn upload_is_stuck(&self) {
        let action = self.breaks("UploadStuck", "CoppiceUnhealthy");
        self.types(&action, "abort_block");
        self.heals("CoppiceUnhealthy");
        assert_eq!(self.append(1, BODY), Ok(()));
    }
}

/// Begins the upload of the first block after one, and sends nothing of it. The canister keeps it for a week.
fn begin_upload(client: &Client<Network>) {
    let expiry = ConfigChange { upload_expiry_secs: Some(604_800), ..ConfigChange::default() };
    client.set_config(&expiry).done().unwrap();
    let upload = BeginBlock {
        number: 0,
        hash: [1; 32].into(),
        parent_hash: [0; 32].into(),
        timestamp_secs: 0,
        lengths: [3 << 20, 0, 0].into(),
        sha256: [(); 3].map(|()| ByteBuf::from([0; 32])).into(),
        chunk_size: ic_coppice_cli::feed::CHUNK,
    };
    client.begin_block(&upload).done().unwrap();
}

/// Returns the section of an alert.
fn section(alert: &str) -> &'static str {
    let section = PAGE.split(&format!("### `{alert}`")).nth(1).unwrap();
    section.split("\n### ").next().unwrap()
}

#[test]
fn six_breaks_are_seen_and_mended_by_the_documented_commands() {
    if !Prometheus::is_installed(TEST) {
        return;
    }
    let Some(icp) = icp() else { return not_run(TEST, "scripts/setup --with-icp installed no icp-cli") };
    let Some(server) = Server::start(TEST, &[]) else { return };
    // An upload is stuck after an hour.
    let net = net(Duration::from_secs(3_700));
    let client = net.client();
    begin_upload(&client);
    follow_the_clock(&net);
    let [at_indexer, at_worker] = [free_address(), free_address()];
    let mut indexing = Some(indexer(&net, &server.url(), &at_indexer));
    let mut working = Some(worker(&net, &at_worker));
    let gateway = Gateway::bind(0).unwrap();
    gateway.serve_while(&client, || {
        let prometheus = Prometheus::start(&net, &gateway.url(), &at_indexer, &at_worker);
        let world = World { net, prometheus, icp };
        std::fs::create_dir(world.net.path("home")).unwrap();
        let (icp, key) = (world.icp.display(), world.net.path("key.pem"));
        let import = format!(
            "{icp} identity import operator --storage plaintext --from-pem {key} && {icp} identity default operator"
        );
        let imported = world.icp().args(["-c", &import]).output().unwrap();
        assert!(imported.status.success(), "{}", stderr_of(&imported));
        world.upload_is_stuck();
        world.cap_is_near();
        world.exporter_is_dead(&mut indexing, || indexer(&world.net, &server.url(), &at_indexer));
        world.cycles_are_low();
        world.database_is_gone(&server);
        world.worker_is_killed(&mut working, || worker(&world.net, &at_worker));
    });
}

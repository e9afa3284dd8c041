//! `coppice-lab serve`: the pages of a canister on a local port, and the dashboard in a real browser.

use candid::Principal;
use coppice_lab::failure_scenarios::Trouble;
use coppice_testkit::demonstration::Demonstration;
use coppice_testkit::embedded::Embedded;
use ic_coppice_cli::client::{Block, CanisterClient, Client, Wait};
use ic_coppice_cli::feed;
use ic_coppice_cli::gateway::Gateway;
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const HOUR: u64 = 3_600;

fn demonstration() -> Demonstration {
    Demonstration::start(coppice_testkit::wasm::of_tests(), 1).unwrap()
}

fn bind() -> Gateway {
    Gateway::bind(0).unwrap()
}

/// Returns status, headers and content of an answer.
fn ask(gateway: &Gateway, method: &str, path: &str) -> (u16, String, String) {
    let address = gateway.url().replace("http://", "");
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.into())
}

#[test]
fn demonstration_is_served_with_a_running_clock() {
    let mut demonstration = demonstration();
    demonstration.pass(HOUR / 2).unwrap();
    let (gateway, client) = (bind(), demonstration.client());
    let canister = &*client;
    gateway.serve_while(canister, || {
        let (status, head, body) = ask(&gateway, "GET", "/health");
        assert!(
            status == 200 && head.contains("content-type: application/json") && body.contains("\"healthy\":true"),
            "{body}"
        );
        assert!(
            head.contains("x-coppice-source: one replica") && head.contains("ic-certificate: certificate=:"),
            "{head}"
        );
        let (status, _, body) = ask(&gateway, "GET", "/metrics");
        assert!(status == 200 && body.contains("\ncoppice_appended_blocks_total 30 "), "{body}");
        assert_eq!(ask(&gateway, "GET", "/nothing").0, 404);
        assert_eq!((ask(&gateway, "HEAD", "/").0, ask(&gateway, "HEAD", "/").2), (200, String::new()));
        assert_eq!(ask(&gateway, "POST", "/").0, 405);
        assert_eq!(ask(&gateway, "GET", "/logs?sort=desc").0, 200);
        assert_eq!(ask(&gateway, "GET", &format!("/{}", "a".repeat(5_000))).0, 414);
        demonstration.pass(60).unwrap();
        assert!(ask(&gateway, "GET", "/metrics").2.contains("\ncoppice_appended_blocks_total 31 "));
    });
    // The port is in use.
    let port = gateway.url().rsplit(':').next().unwrap().parse().unwrap();
    let error = Gateway::bind(port).err().unwrap().to_string();
    assert!(error.contains("--port"), "{error}");
}

#[test]
fn failing_demonstration_ends_serving_with_its_error() {
    let mut demonstration = demonstration();
    let canister = demonstration.client();
    let producer = Grant { principal: canister.transport().principal(Role::Producer), role: Role::Producer };
    assert!(canister.revoke_role(&producer).done().unwrap());
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        sender.send(coppice_lab::serve::show(&bind(), &mut demonstration, Duration::ZERO)).unwrap();
    });
    let ended = ended.recv_timeout(Duration::from_secs(600)).expect("it ends");
    let error = format!("{:#}", ended.unwrap_err());
    assert!(error.contains("the demonstration") && error.contains("access denied"), "{error}");
}

#[test]
fn each_trouble_is_shown_with_its_problem_and_stays() {
    let verdict = "critical";
    for trouble in [Trouble::Exporter, Trouble::Cycles, Trouble::Upload] {
        let mut demonstration = demonstration();
        demonstration.pass(HOUR).unwrap();
        trouble.befall(&mut demonstration).unwrap();
        demonstration.pass(HOUR).unwrap();
        let client = demonstration.client();
        let now = expected(&client);
        let problems = now["problems"].as_array().unwrap();
        assert!(
            now["verdict"] == verdict && problems.contains(&json!(format!("{:?}", trouble.problem()))),
            "{trouble:?}: {now}"
        );
        let gateway = bind();
        gateway.serve_while(&*client, || {
            let (status, _, page) = ask(&gateway, "GET", "/");
            assert!(status == 200 && page.contains(&format!("data-verdict=\"{verdict}\"")), "{trouble:?}");
        });
        if let Trouble::Cycles = trouble {
            client.transport().set_balance(50_000_000_000_000);
            client.acknowledge_faults(0).done().unwrap();
            demonstration.pass(HOUR).unwrap();
            assert_eq!(expected(&client)["verdict"], "well", "cycles that are added stay");
        }
    }
}

/// Finds a program in the directories of `PATH`.
fn program(names: &[&str]) -> Option<PathBuf> {
    let directories: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names.iter().find_map(|name| directories.iter().map(|directory| directory.join(name)).find(|path| path.is_file()))
}

struct Browser {
    node: PathBuf,
    chromium: PathBuf,
    script: PathBuf,
    shots: PathBuf,
}

impl Browser {
    fn find() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let chromium = std::env::var_os("COPPICE_CHROMIUM").map(PathBuf::from);
        let chromium = chromium.or_else(|| program(&["chromium-headless-shell", "chromium"]))?;
        let (installed, shots) = (root.join("target/browser"), root.join("target/dashboard"));
        if !installed.join("node_modules/playwright-core").is_dir() {
            return None;
        }
        std::fs::create_dir_all(&shots).unwrap();
        // Node looks for packages next to the script.
        let script = installed.join("dashboard.mjs");
        std::fs::copy(root.join("tests/browser/dashboard.mjs"), &script).unwrap();
        Some(Self { node: program(&["node"])?, chromium, script, shots })
    }

    /// Lets the browser check the page, and returns the drawn plots.
    fn look(&self, url: &str, name: &str, expected: &Value) -> BTreeMap<String, Value> {
        let mut child = Command::new(&self.node)
            .args([&self.script, &self.chromium])
            .args([url, self.shots.to_str().unwrap(), name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(expected.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Returns the canister's own figures at this moment.
fn expected(canister: &Client<Embedded>) -> Value {
    let prune: PruneStatus = canister.get_prune_status().wait().unwrap();
    let storage: StorageStatus = canister.get_storage_status(None).wait().unwrap();
    let export: ExportStatus = canister.get_export_status().wait().unwrap();
    let health: Health = canister.health().wait().unwrap();
    let pruner: UtxoPrunerStatus = canister.utxo_get_pruner_status().wait().unwrap();
    let worst = health.problems.iter().map(|problem| problem.severity).min();
    let is_new = health.problems.iter().filter_map(Problem::known).any(ProblemCode::is_of_set_up);
    let verdict = match worst {
        None | Some(Severity::Notice) if is_new => "new",
        None | Some(Severity::Notice) => "well",
        Some(Severity::Warning) => "warning",
        Some(Severity::Critical) => "critical",
    };
    // The exporters with the largest lag.
    let mut exporters: Vec<&ExporterStatus> = export.exporters.iter().collect();
    exporters.sort_by_key(|exporter| std::cmp::Reverse((exporter.lag_blocks, exporter.lag_secs)));
    let exporters: BTreeMap<&str, String> = exporters
        .into_iter()
        .take(20)
        .map(|exporter| (exporter.name.as_str(), exporter.lag_blocks.to_string()))
        .collect();
    let mut expected = json!({
        "figures": {
            "blocks": storage.blocks,
            "pruned": prune.pruned_blocks,
            "kept_bytes": prune.capacity_bytes,
            "backlog": prune.backlog.blocks,
            "billed_bytes": storage.billed_bytes,
            "reusable_bytes": storage.reusable_bytes,
            "held": prune.backlog.held_blocks,
        },
        "time": health.time_ns.to_string(),
        "verdict": verdict,
        "problems": health.problems.iter().map(|problem| &problem.code).collect::<Vec<_>>(),
        "exporters": exporters,
    });
    if let Some(head) = prune.head {
        expected["figures"]["head"] = head.into();
    }
    if let Some(lag) = export.exporters.iter().map(|exporter| exporter.lag_blocks).max() {
        expected["figures"]["slowest_lag"] = lag.into();
    }
    // Unused features have no card.
    if pruner.current_height > 0 {
        expected["figures"]["utxo_records"] = storage.utxo.unwrap().records.into();
    }
    if pruner.blobs_pending + pruner.blobs_dead > 0 {
        expected["figures"]["blobs_pending"] = pruner.blobs_pending.into();
        expected["figures"]["blobs_dead"] = pruner.blobs_dead.into();
    }
    expected
}

#[test]
fn browser_shows_the_dashboard_of_the_demonstration() {
    let Some(browser) = Browser::find() else {
        println!(
            "not run: no Chromium, or no playwright-core in target/browser (scripts/setup --with-browser installs both)"
        );
        return;
    };
    let mut demonstration = demonstration();
    demonstration.pass(14 * HOUR).unwrap();
    let (gateway, client) = (bind(), demonstration.client());
    let canister = &*client;
    let url = format!("{}/", gateway.url());
    gateway.serve_while(canister, || {
        let before = browser.look(&url, "well", &expected(canister));
        assert_eq!(before.len(), 5, "the plots of a month need a day of samples");
        assert!(before["kept/day"]["samples"].as_u64().is_some_and(|samples| samples > 700), "{}", before["kept/day"]);
        demonstration.pass(HOUR).unwrap();
        // An operator switches pruning off.
        canister
            .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() })
            .done()
            .unwrap();
        demonstration.pass(HOUR).unwrap();
        let now = expected(canister);
        assert_eq!(now["verdict"], "warning", "{now}");
        let after = browser.look(&url, "trouble", &now);
        // Two hours are less than a column of a month's plot, so only the day's plots are compared.
        for (plot, before) in before.iter().filter(|(plot, _)| plot.ends_with("/day")) {
            let last = |drawn: &Value| -> Vec<Value> {
                let lines = drawn["heights"].as_array().unwrap();
                lines.iter().map(|line| line.as_array().unwrap().last().unwrap().clone()).collect()
            };
            assert_ne!(last(before), last(&after[plot]), "{plot} does not move");
        }
        everything_at_once(canister);
        let now = expected(canister);
        assert!(now["verdict"] == "critical" && now["problems"].as_array().unwrap().len() >= 7, "{now}");
        assert_eq!(now["exporters"].as_object().unwrap().len(), 20, "the page shows no more");
        browser.look(&url, "everything", &now);
    });
}

/// The pictures of `docs/operations/monitoring.md`: a newly installed canister, then one with an exporter that acknowledges nothing, until no room is
/// left.
#[test]
fn browser_shows_a_new_a_held_and_a_full_canister() {
    let Some(browser) = Browser::find() else {
        println!("not run: no browser");
        return;
    };
    let client = Embedded::start(coppice_testkit::wasm::of_tests()).unwrap();
    let (gateway, canister) = (bind(), &client);
    let url = format!("{}/", gateway.url());
    let look = |name: &str, verdict: &str, code: &str| {
        let now = expected(canister);
        assert_eq!(now["verdict"], verdict, "{now}");
        assert!(now["problems"].as_array().unwrap().contains(&json!(code)), "{now}");
        browser.look(&url, name, &now);
    };
    gateway.serve_while(canister, || {
        look("new", "new", "NoPolicy");
        let principal = canister.transport().principal(Role::Exporter);
        canister.register_exporter(&Exporter { name: "archive".into(), principal }).done().unwrap();
        let policy = PrunePolicyArg { retain_blocks: Some(100), target_bytes: Some(40 << 20), ..Default::default() };
        canister.set_prune_policy(&policy).done().unwrap();
        let raised =
            |code: ProblemCode| canister.health().wait().unwrap().problems.iter().any(|problem| problem.code == code);
        let append_until = |from: u64, code: ProblemCode| {
            (from..400).find(|&number| {
                let hash = |number: u64| feed::sha256(&number.to_le_bytes());
                let (parent, now) = (hash(number.wrapping_sub(1)), canister.transport().now_secs());
                let block = Block::new(number, hash(number), parent, now).body([7; 200_000]);
                let _ = feed::send(canister, &[block.seal().unwrap()]);
                canister.transport().pass(Duration::from_secs(600)).unwrap();
                raised(code)
            })
        };
        let held = append_until(0, ProblemCode::ExportHeld).unwrap();
        look("held", "warning", "ExportHeld");
        let full = append_until(held + 1, ProblemCode::CapacityExhausted).unwrap();
        assert!(held < full, "{held} {full}");
        look("emergency", "critical", "CapacityExhausted");
    });
}

/// Fills every part of the page: problems of each severity, exporters with long names, jobs, a queue, an upload, errors.
fn everything_at_once(canister: &Client<Embedded>) {
    for number in 0..25_u8 {
        let principal = Principal::self_authenticating([number]);
        let name = format!("{number:02}-{}", "w".repeat(29));
        canister.register_exporter(&Exporter { name, principal }).done().unwrap();
    }
    let settings =
        UtxoPrunerSettingsChange { max_height_jump: Some(i32::MAX as u32), ..UtxoPrunerSettingsChange::default() };
    canister.utxo_set_pruner_settings(&settings).done().unwrap();
    for height in [1, 20, 300, 4_000, 50_000, 600_000, 2_000_000_000] {
        canister.utxo_notify_block(height, true).done().unwrap();
        (0..2).for_each(|_| canister.transport().pass(Duration::from_secs(60)).unwrap());
    }
    let (worker, role) = (canister.transport().principal(Role::BlobWorker), Role::BlobWorker);
    canister.grant_role(&Grant { principal: worker, role }).done().unwrap();
    for (number, store_type) in
        (0_u8..).zip([StoreType::Tx, StoreType::BlockPersister, StoreType::Subtree].into_iter().cycle()).take(12)
    {
        let name = BlobName { blob_key: ByteBuf::from([number; 32]), file_type: "tx".into(), store_type };
        canister.schedule_blob_deletion(&ScheduleBlobDeletion { name, delete_at_height: 1 }).done().unwrap();
    }
    let arg = AcquireBlobDeletions {
        height: 1,
        limit: 4,
        lock_timeout_secs: 43_200,
        store_types: vec![],
        request: None,
        ..Default::default()
    };
    let lease = || canister.acquire_blob_deletion_batch(&arg).wait().unwrap().unwrap().unwrap();
    for max_retries in [1, 3] {
        let lease = lease();
        let failed_ids = lease.rows.iter().map(|row| row.id).collect();
        let arg = CompleteBlobDeletionBatch {
            token: lease.token,
            completed_ids: vec![],
            failed_ids,
            max_retries,
            ..Default::default()
        };
        canister.complete_blob_deletion_batch(&arg).done().unwrap();
    }
    lease();
    let head = canister.get_head().wait().unwrap().unwrap();
    let sha256 =
        BySegment { body: ByteBuf::from([0; 32]), receipts: ByteBuf::from([0; 32]), index: ByteBuf::from([0; 32]) };
    let begun = BeginBlock {
        number: head.number + 1,
        hash: [1; 32].into(),
        parent_hash: head.hash,
        timestamp_secs: head.timestamp_secs,
        lengths: BySegment { body: 1 << 20, receipts: 0, index: 0 },
        sha256,
        chunk_size: 1 << 20,
    };
    canister.begin_block(&begun).done().unwrap();
    let billed = canister.get_storage_status(None).wait().unwrap().billed_bytes >> 16;
    let change = ConfigChange {
        max_stable_pages: Some(billed.max(5_120)),
        reserved_cycles_limit: Some(1),
        max_head_age_secs: Some(60),
        require_export: Some(true),
        upload_expiry_secs: Some(86_400),
        ..ConfigChange::default()
    };
    // The target first, because a cap that leaves it no room is refused.
    let small = PrunePolicyArg { target_bytes: Some(64 << 20), ..PrunePolicyArg::default() };
    canister.set_prune_policy(&small).done().unwrap();
    canister.set_config(&change).done().unwrap();
    canister
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(true), ..PrunePolicyArg::default() })
        .done()
        .unwrap();
    canister.transport().pass(Duration::from_secs(7_200)).unwrap();
}

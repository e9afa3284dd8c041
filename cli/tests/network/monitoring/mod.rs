//! `deploy/monitoring` in a real Prometheus, which scrapes a canister, an indexer and a blob worker.

use crate::net::Net;
use crate::running::{Running, stderr_of, wait_for};
use candid::Principal;
use coppice_testkit::chain_gen::Generator;
use ic_coppice_cli::client::{CanisterClient, Wait};
use ic_coppice_cli::gateway::Gateway;
use ic_coppice_interface::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

const ALERTS: &str = include_str!("../../../deploy/monitoring/alerts.yml");
const BOARD: &str = include_str!("../../../deploy/monitoring/grafana.json");
const CONFIG: &str = include_str!("../../../deploy/monitoring/prometheus.yml");

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Returns the body of an answer, or `None` if there is none.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_string())
}

/// Returns the names of the metrics that the alerts and the board use.
fn metrics() -> BTreeSet<String> {
    let expressions = ALERTS.lines().chain(BOARD.lines()).filter(|line| !line.contains("summary"));
    let words = expressions.flat_map(|line| line.split(|of: char| !of.is_ascii_alphanumeric() && of != '_'));
    let is_metric = |word: &&str| ["coppice_", "pruner_"].iter().any(|prefix| word.starts_with(prefix));
    words.filter(is_metric).map(Into::into).chain(["up".into()]).collect()
}

/// Returns the configuration with these targets, and intervals of a second.
fn config(targets: [(&str, &String); 3]) -> String {
    let alerts = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/monitoring/alerts.yml");
    let config = CONFIG.replace(": 1m", ": 1s").replace("scheme: https", "scheme: http").replace("alerts.yml", alerts);
    targets.iter().fold(config, |config, (default, target)| {
        assert!(config.contains(default), "{default}");
        config.replace(default, target)
    })
}

/// Returns the rules that a Prometheus has loaded.
fn rules(port: &str) -> Vec<Value> {
    let loaded = get(port, "/api/v1/rules").map(|body| serde_json::from_str::<Value>(&body).unwrap()).unwrap();
    let groups = loaded["data"]["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// Returns the values of a query; `None` if Prometheus does not answer.
fn values(port: &str, query: &str) -> Option<Vec<String>> {
    let found: Value = serde_json::from_str(&get(port, &format!("/api/v1/query?query={query}"))?).ok()?;
    let series = found["data"]["result"].as_array()?;
    Some(series.iter().map(|series| series["value"][1].as_str().unwrap().into()).collect())
}

#[test]
fn prometheus_returns_the_series_of_every_alert_and_panel() {
    let prometheus = Path::new("/usr/bin/prometheus");
    if !prometheus.is_file() {
        // Written to stderr directly, because the test harness hides the output of passing tests.
        let note = "not run: prometheus_returns_the_series_of_every_alert_and_panel; scripts/setup --with-prometheus installed none\n";
        return std::io::stderr().write_all(note.as_bytes()).unwrap();
    }
    let net = Net::start();
    let client = net.client();
    let principal = client.transport().principal(Role::Exporter);
    client.register_exporter(&Exporter { name: "archive".into(), principal }).done().unwrap();
    client.grant_role(&Grant { principal, role: Role::BlobWorker }).done().unwrap();
    for block in Generator::new(3, 20, 1_700_000_000, 15).unwrap() {
        ic_coppice_cli::feed::send(&client, &block).unwrap();
    }
    let (indexer, worker, port) = (free_address(), free_address(), free_address());
    let _indexer = Running::start(net.command(&["index", "--database", &net.database(), "--listen", &indexer]));
    let store = format!("tx/tx=file://{}", net.path("blobs"));
    std::fs::create_dir(net.path("blobs")).unwrap();
    let init = net.run(&["blob-worker", "init", "--store", &store]);
    assert!(init.status.success(), "{}", stderr_of(&init));
    let _worker = Running::start(net.command(&["blob-worker", "--store", &store, "--listen", &worker]));
    let gateway = Gateway::bind(0).unwrap();
    let canister = gateway.url().replace("http://", "");
    gateway.serve_while(&client, || {
        let targets = [("CANISTER.raw.icp0.io", &canister), ("127.0.0.1:9461", &indexer), ("127.0.0.1:9471", &worker)];
        std::fs::write(net.path("prometheus.yml"), config(targets)).unwrap();
        let mut command = Command::new(prometheus);
        command.arg(format!("--config.file={}", net.path("prometheus.yml")));
        command.arg(format!("--storage.tsdb.path={}", net.path("tsdb")));
        let _prometheus = Running::start({
            command.arg(format!("--web.listen-address={port}"));
            command
        });
        wait_for("three targets are up", || values(&port, "sum(up)").is_some_and(|sum| sum == ["3"]));
        // A problem, whose metric is there only then.
        let controller = Principal::self_authenticating(b"controller");
        let frozen = net.host.canister_status(net.canister, Some(controller)).unwrap().freezing_limit;
        net.host.faults().low_cycles(net.canister, frozen + 100_000_000_000);
        net.host.tick();
        for name in metrics() {
            wait_for(&format!("series of {name}"), || values(&port, &name).is_some_and(|values| !values.is_empty()));
        }
        let fires = |rule: &Value| rule["name"] == "CoppiceCyclesLow" && rule["state"] != "inactive";
        wait_for("the alert of the problem", || rules(&port).iter().any(fires));
        let rules = rules(&port);
        assert_eq!(rules.len(), ALERTS.matches("- alert: ").count());
        for rule in rules {
            assert_eq!(rule["health"], "ok", "{rule}");
        }
    });
}

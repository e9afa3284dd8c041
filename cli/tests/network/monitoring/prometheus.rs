//! A Prometheus with the configuration of `deploy/monitoring`, its own targets, and intervals of a second.

use super::{free_address, not_run};
use crate::net::Net;
use crate::running::{Running, wait_for};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

pub const ALERTS: &str = include_str!("../../../../deploy/monitoring/alerts.yml");
pub const BOARD: &str = include_str!("../../../../deploy/monitoring/grafana.json");
const CONFIG: &str = include_str!("../../../../deploy/monitoring/prometheus.yml");
const PROGRAM: &str = "/usr/bin/prometheus";

pub struct Prometheus {
    _program: Running,
    address: String,
}

impl Prometheus {
    /// Returns whether Debian's Prometheus is installed, and notes a test that does not run without it.
    pub fn is_installed(test: &str) -> bool {
        let is_installed = Path::new(PROGRAM).is_file();
        if !is_installed {
            not_run(test, "scripts/setup --with-prometheus installed no Prometheus");
        }
        is_installed
    }

    /// Starts a server, and waits until its three targets are up.
    pub fn start(net: &Net, canister: &str, indexer: &str, worker: &str) -> Self {
        let alerts = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/monitoring/alerts.yml");
        let config = CONFIG.replace(": 1m", ": 1s").replace("scheme: https", "scheme: http");
        let targets = [
            ("alerts.yml", alerts),
            ("CANISTER.raw.icp0.io", canister.trim_start_matches("http://")),
            ("127.0.0.1:9461", indexer),
            ("127.0.0.1:9471", worker),
        ];
        let config = targets.iter().fold(config, |config, (default, target)| {
            assert!(config.contains(default), "{default}");
            // The first one is a comment.
            let (comments, config) = config.split_once("\nglobal:").unwrap();
            format!("{comments}\nglobal:{}", config.replace(default, target))
        });
        std::fs::write(net.path("prometheus.yml"), config).unwrap();
        let address = free_address();
        let mut command = Command::new(PROGRAM);
        command.arg(format!("--config.file={}", net.path("prometheus.yml")));
        command.arg(format!("--storage.tsdb.path={}", net.path("tsdb")));
        command.arg(format!("--web.listen-address={address}"));
        // A sample of the canister has the canister's time. Such a series ends when it is not looked back upon any more, by default after five
        // minutes.
        command.arg("--query.lookback-delta=5s");
        let started = Self { _program: Running::start(command), address };
        wait_for("three targets are up", || started.values("sum(up)").is_some_and(|sum| sum == ["3"]));
        started
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Returns the values of a query's series; `None` if there is no answer yet.
    pub fn values(&self, query: &str) -> Option<Vec<String>> {
        let found = self.get(&format!("/api/v1/query?query={query}"))?;
        let series = found["data"]["result"].as_array()?;
        Some(series.iter().map(|series| series["value"][1].as_str().unwrap().into()).collect())
    }

    /// Returns the rules that are loaded.
    pub fn rules(&self) -> Vec<Value> {
        let loaded = self.get("/api/v1/rules").unwrap();
        let groups = loaded["data"]["groups"].as_array().unwrap();
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    }

    /// Returns whether the condition of an alert holds. The alert fires once it has held for the rule's time.
    pub fn alerts(&self, name: &str) -> bool {
        let rules = self.rules();
        let rule = rules.iter().find(|rule| rule["name"] == name).unwrap_or_else(|| panic!("{name}"));
        rule["state"] != "inactive"
    }
}

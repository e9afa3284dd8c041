//! `deploy/monitoring` in a real Prometheus, which scrapes a canister, an indexer and a blob worker.

mod prometheus;
mod stories;

use crate::net::Net;
use crate::running::{Running, stderr_of, wait_for};
use candid::Principal;
use coppice_testkit::chain_gen::Generator;
use ic_coppice_cli::client::{CanisterClient, Wait};
use ic_coppice_cli::gateway::Gateway;
use ic_coppice_interface::*;
use prometheus::{ALERTS, BOARD, Prometheus};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, SystemTime};

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Writes to stderr directly, because the test harness hides the output of passing tests.
fn not_run(test: &str, why: &str) {
    std::io::stderr().write_all(format!("not run: {test}; {why}\n").as_bytes()).unwrap();
}

/// A canister with an exporter and a store of blobs, whose key has all roles. Its clock is `behind` the real one, which Prometheus compares with
/// the times of samples, until [`follow_the_clock`].
fn net(behind: Duration) -> Net {
    let net = Net::start();
    net.host.set_time(SystemTime::now() - behind);
    net.host.tick();
    let client = net.client();
    let principal = client.transport().principal(Role::Exporter);
    client.register_exporter(&Exporter { name: "archive".into(), principal }).done().unwrap();
    client.grant_role(&Grant { principal, role: Role::BlobWorker }).done().unwrap();
    std::fs::create_dir(net.path("blobs")).unwrap();
    let init = net.run(&["blob-worker", "init", "--store", &store(&net)]);
    assert!(init.status.success(), "{}", stderr_of(&init));
    net
}

fn follow_the_clock(net: &Net) {
    net.host.set_time(SystemTime::now());
    net.host.tick();
    net.gateway.follow_the_clock();
}

fn store(net: &Net) -> String {
    format!("tx/tx=file://{}", net.path("blobs"))
}

fn indexer(net: &Net, database: &str, listen: &str) -> Running {
    Running::start(net.command(&["index", "--database", database, "--ack-every", "5", "--listen", listen]))
}

fn worker(net: &Net, listen: &str) -> Running {
    Running::start(net.command(&["blob-worker", "--store", &store(net), "--max-wait-secs", "1", "--listen", listen]))
}

/// Liquid cycles below the default of `min_liquid_cycles`.
const LOW: u128 = 400_000_000_000;

/// Sets the liquid cycles.
fn set_liquid(net: &Net, liquid: u128) {
    let controller = Principal::self_authenticating(b"controller");
    let frozen = net.host.canister_status(net.canister, Some(controller)).unwrap().freezing_limit;
    net.host.faults().low_cycles(net.canister, frozen + liquid);
    net.host.tick();
}

/// Returns the names of the metrics that the alerts and the board use.
fn metrics() -> BTreeSet<String> {
    let expressions = ALERTS.lines().chain(BOARD.lines()).filter(|line| !line.contains("summary"));
    let words = expressions.flat_map(|line| line.split(|of: char| !of.is_ascii_alphanumeric() && of != '_'));
    let is_metric = |word: &&str| ["coppice_", "pruner_"].iter().any(|prefix| word.starts_with(prefix));
    words.filter(is_metric).map(Into::into).chain(["up".into()]).collect()
}

#[test]
fn prometheus_returns_the_series_of_every_alert_and_panel() {
    if !Prometheus::is_installed("prometheus_returns_the_series_of_every_alert_and_panel") {
        return;
    }
    let net = net(Duration::ZERO);
    follow_the_clock(&net);
    let client = net.client();
    let blocks: Vec<_> = Generator::new(3, 20, 1_700_000_000, 15).unwrap().collect();
    ic_coppice_cli::feed::send(&client, &blocks).unwrap();
    let [at_indexer, at_worker] = [free_address(), free_address()];
    let _programs = [indexer(&net, &net.database(), &at_indexer), worker(&net, &at_worker)];
    let gateway = Gateway::bind(0).unwrap();
    gateway.serve_while(&client, || {
        let prometheus = Prometheus::start(&net, &gateway.url(), &at_indexer, &at_worker);
        // A problem, whose metric is there only then.
        set_liquid(&net, LOW);
        for name in metrics() {
            wait_for(&format!("series of {name}, {:?}", prometheus.values("up")), || {
                prometheus.values(&name).is_some_and(|values| !values.is_empty())
            });
        }
        wait_for("the alert of the problem", || prometheus.alerts("CoppiceCyclesLow"));
        let rules = prometheus.rules();
        assert_eq!(rules.len(), ALERTS.matches("- alert: ").count());
        for rule in rules {
            assert_eq!(rule["health"], "ok", "{rule}");
        }
    });
}

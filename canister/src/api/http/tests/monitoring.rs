//! Metrics and labels of `deploy/monitoring` that the canister has.

use super::*;
use std::collections::BTreeSet;

const ALERTS: &str = include_str!("../../../../../deploy/monitoring/alerts.yml");
const ALERTS_TEST: &str = include_str!("../../../../../deploy/monitoring/alerts_test.yml");
const BOARD: &str = include_str!("../../../../../deploy/monitoring/grafana.json");

/// Returns the names of metrics in a text, each with the labels in braces behind it.
fn metrics(text: &str) -> Vec<(&str, &str)> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find(is_of_name) {
        let name = &rest[begin..];
        let name = &name[..name.find(|character| !is_of_name(character)).unwrap_or(name.len())];
        rest = &rest[begin + name.len()..];
        if ["coppice_", "pruner_", "utxo_"].iter().any(|prefix| name.starts_with(prefix)) {
            let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
            found.push((name, labels));
        }
    }
    found
}

#[test]
fn every_metric_and_label_of_the_alerts_and_the_board_exists() {
    fresh();
    let exporter = Exporter { name: "archive".into(), principal: candid::Principal::from_slice(&[7]) };
    mutate(|state| state.register_exporter(&exporter)).unwrap();
    native::with(|world| world.liquid_cycles = 90_000_000_000);
    meter::count(meter::Hot::AppendBlock, 1_000_000);
    let text = get("/metrics").1;
    let typed: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let mut checked = 0;
    for file in [ALERTS, ALERTS_TEST, BOARD] {
        for (name, labels) in metrics(file) {
            // The programs' own tests check theirs.
            if name.starts_with("coppice_indexer_") || name.starts_with("coppice_worker_") {
                continue;
            }
            assert!(typed.contains(name.strip_suffix("_bucket").unwrap_or(name)), "{name}");
            for label in labels.split(", ").filter(|label| !label.is_empty()) {
                let (label, value) = label.split_once('=').unwrap();
                let values = value.trim_start_matches('~').trim_matches(['"', '\\']).split('|');
                for value in values.filter(|_| !["instance", "job"].contains(&label)) {
                    let has = match label {
                        "code" => ProblemCode::ALL.iter().any(|code| code.to_string() == value),
                        _ => text.contains(&format!("{name}{{{label}=\"{value}\"}}")),
                    };
                    assert!(has, "{name}{{{label}={value}}}");
                }
            }
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
    // Labels in the board's legends and in the annotations.
    for label in ["code", "mark", "exporter", "reason", "blocks", "method"] {
        assert!(text.contains(&format!("{label}=\"")), "{label}");
    }
}

/// The page has a section for each alert, and names no other.
#[test]
fn every_alert_has_a_section_of_the_page() {
    let page = include_str!("../../../../../docs/operations/alerts.md");
    let named = |text: &'static str, prefix: &'static str| -> BTreeSet<&str> {
        text.lines().filter_map(|line| line.trim().strip_prefix(prefix)).map(|name| name.trim_matches('`')).collect()
    };
    let alerts = named(ALERTS, "- alert: ");
    let sections: BTreeSet<&str> = named(page, "### ").into_iter().filter(|name| name.starts_with("Coppice")).collect();
    assert!(alerts.len() > 10);
    assert_eq!(alerts, sections);
    // The metrics that the page names exist, too.
    fresh();
    let text = get("/metrics").1;
    for (name, _) in metrics(page).into_iter().filter(|(name, _)| name.starts_with("coppice_")) {
        let is_elsewhere =
            ["indexer_", "worker_", "exporter_"].iter().any(|of| name["coppice_".len()..].starts_with(of));
        assert!(is_elsewhere || text.contains(&format!("# TYPE {name} ")), "{name}");
    }
}

//! The pages that the canister serves: their figures after a day of traffic, and their certification.

use candid::{decode_one, encode_one};
use coppice_tests::blocks::hash;
use coppice_tests::client::Answered;
use coppice_tests::coppice::{Coppice, Who};
use ic_coppice_interface::*;
use serde_bytes::ByteBuf;

fn request(url: &str) -> HttpRequest {
    HttpRequest {
        method: "GET".into(),
        url: url.into(),
        headers: vec![("accept".into(), "*/*".into())],
        body: ByteBuf::new(),
        certificate_version: Some(2),
    }
}

fn get(coppice: &Coppice, url: &str) -> (HttpResponse, String) {
    let response: HttpResponse = coppice.anyone().http_request(&request(url)).answer();
    let text = String::from_utf8(response.body.to_vec()).unwrap();
    (response, text)
}

fn header(response: &HttpResponse, name: &str) -> Option<String> {
    response.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
}

/// The value of an attribute after a mark, across line breaks of the page.
fn after(page: &str, mark: &str, attribute: &str) -> String {
    let from = page.find(mark).unwrap_or_else(|| panic!("{mark} is not there")) + mark.len();
    let value = page[from..].split_once(&format!("{attribute}=\"")).unwrap().1;
    value.split('"').next().unwrap().into()
}

fn figure(page: &str, name: &str) -> u64 {
    after(page, &format!("data-figure=\"{name}\""), "value").parse().unwrap()
}

/// A day: a block every two minutes, an exporter, a policy that prunes after it; the subnet stands still for two hours.
#[test]
fn after_a_day_of_traffic_the_dashboard_shows_the_canisters_figures() {
    let coppice = Coppice::new();
    coppice.register(Who::Exporter);
    let policy = PrunePolicyArg { retain_blocks: Some(100), target_bytes: Some(1 << 30), ..Default::default() };
    coppice.set_policy(policy).unwrap();
    for number in 0..660 {
        if number == 400 {
            coppice.ic.advance_time(std::time::Duration::from_secs(7_200));
            coppice.pass(0);
        }
        coppice.append_plain(number..number + 1, 500);
        if number % 10 == 0 {
            coppice.ack(Who::Exporter, number, &hash(number)).unwrap();
        }
        coppice.ic.advance_time(std::time::Duration::from_secs(120));
        (0..2).for_each(|_| coppice.ic.tick());
    }
    let (response, page) = get(&coppice, "/");
    assert_eq!(response.status_code, 200);
    let (prune, storage) = (coppice.prune_status(), coppice.storage());
    assert!(prune.pruned_blocks > 500, "{prune:?}");
    for (name, value) in [
        ("head", prune.head.unwrap()),
        ("appended", 660),
        ("blocks", storage.blocks),
        ("pruned", prune.pruned_blocks),
        ("kept_bytes", prune.capacity_bytes),
        ("backlog", prune.backlog.blocks),
        ("billed_bytes", storage.billed_bytes),
        ("reusable_bytes", storage.reusable_bytes),
        ("slowest_lag", coppice.export_status().exporters[0].lag_blocks),
    ] {
        assert_eq!(figure(&page, name), value, "{name}");
    }
    // Each block's message took a sample, and so did each tick in another minute; the two hours without messages are the one gap.
    let day = |plot: &str, attribute: &str| after(&page, &format!("data-plot=\"{plot}\" data-span=\"day\""), attribute);
    for plot in ["kept", "blocks", "backlog", "memory", "instructions"] {
        let samples: u64 = day(plot, "data-samples").parse().unwrap();
        assert!((660..=1_440).contains(&samples), "{plot}: {samples}");
        assert_eq!(day(plot, "data-gaps"), "1", "{plot}");
        assert_eq!(day(plot, "d").matches('M').count(), 2, "{plot}: a line on each side of the gap");
    }
    let last = |series: &str| after(&page, &format!("data-last=\"{series}\""), "data-value").parse::<u64>().unwrap();
    assert_eq!((last("appended"), last("kept"), last("billed")), (30, prune.capacity_bytes, storage.billed_bytes));
    assert!(last("instructions") > 1_000_000, "{}", last("instructions"));
    // The figures survive an upgrade.
    coppice.upgrade();
    let (_, page) = get(&coppice, "/");
    let samples: u64 = after(&page, "data-plot=\"kept\" data-span=\"day\"", "data-samples").parse().unwrap();
    assert!(samples >= 660, "{samples}");
    let (_, metrics) = get(&coppice, "/metrics");
    assert!(metrics.contains("\ncoppice_appended_blocks_total 660 "), "{metrics}");
}

#[test]
fn answers_carry_a_no_certification_certificate_and_their_source() {
    let coppice = Coppice::new();
    let (first, _) = get(&coppice, "/health");
    let certificate = header(&first, "IC-Certificate").expect("a query's answer has a certificate");
    assert!(certificate.contains("version=2") && certificate.contains("expr_path=:"), "{certificate}");
    let expression = header(&first, "IC-CertificateExpression").unwrap();
    assert!(expression.contains("no_certification"), "{expression}");
    assert!(header(&first, "X-Coppice-Source").unwrap().contains("one replica"));
    coppice.upgrade();
    let (again, _) = get(&coppice, "/health");
    assert!(header(&again, "IC-Certificate").is_some(), "after an upgrade, too");
    // An update is answered by the subnet, for any caller with a role.
    let argument = encode_one(request("/health")).unwrap();
    let reply = coppice.ic.update(coppice.id, Who::Controller.principal(), "http_request", argument.clone()).unwrap();
    let answer: HttpResponse = decode_one(&reply).unwrap();
    assert_eq!((answer.status_code, header(&answer, "IC-Certificate")), (200, None));
    assert!(header(&answer, "X-Coppice-Source").unwrap().contains("the subnet"));
    assert!(coppice.ic.update(coppice.id, Who::Stranger.principal(), "http_request", argument).is_err());
}

#[test]
fn only_observers_read_the_log_until_it_is_public() {
    let coppice = Coppice::new();
    coppice.append_plain(0..1, 10);
    let (begin, _) = coppice_tests::blocks::upload(&coppice_tests::blocks::plain(1, 3, 5_000), 1_000);
    coppice.producer().begin_block(&begin).answer().unwrap();
    coppice.pass(200);
    let grant = Grant { principal: Who::Observer.principal(), role: Role::Observer };
    coppice.operator().grant_role(&grant).answer().unwrap();
    let arg = candid::encode_args((None::<LogPriority>, None::<u64>, 0u32)).unwrap();
    let lines = |who: Who| coppice.ic.query(coppice.id, who.principal(), "get_logs", arg.clone());
    let page: LogPage = decode_one(&lines(Who::Observer).unwrap()).unwrap();
    assert_eq!(page.entries.len(), 1, "{page:?}");
    assert!(
        page.entries[0].message.contains("upload of block 1 expired") && page.entries[0].priority == LogPriority::Info
    );
    for who in [Who::Stranger, Who::Anonymous, Who::Producer] {
        assert!(lines(who).unwrap_err().message.contains("access denied"));
    }
    assert_eq!(get(&coppice, "/logs").0.status_code, 403);
    let change = ConfigChange { public_logs: Some(true), ..Default::default() };
    coppice.operator().set_config(&change).answer().unwrap();
    coppice.upgrade();
    let (response, body) = get(&coppice, "/logs?priority=info&sort=desc");
    assert!(response.status_code == 200 && body.contains("upload of block 1 expired"), "{body}");
}

/// With the most exporters allowed, a backlog that is not pruned, and a sample in each minute of some hours.
#[test]
fn a_scrape_takes_at_most_five_million_instructions() {
    let (coppice, host) = Coppice::embedded(coppice_tests::coppice::default_arg());
    for number in 0..100u64 {
        let principal = candid::Principal::self_authenticating(number.to_le_bytes());
        let exporter = Exporter { name: format!("exporter-{number}"), principal };
        coppice.operator().register_exporter(&exporter).answer().unwrap();
    }
    let policy = PrunePolicyArg { retain_blocks: Some(50), target_bytes: Some(1 << 30), ..Default::default() };
    coppice.set_policy(policy).unwrap();
    coppice
        .operator()
        .set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() })
        .answer()
        .unwrap();
    for number in 0..300 {
        coppice.append_plain(number..number + 1, 100);
        coppice.ic.advance_time(std::time::Duration::from_secs(60));
    }
    let page = get(&coppice, "/").1;
    let samples: u64 = after(&page, "data-plot=\"backlog\" data-span=\"day\"", "data-samples").parse().unwrap();
    assert!(samples >= 290, "{samples}");
    let status = coppice.prune_status();
    assert!(status.need_prune && status.held_by == Some(HeldBy::Disabled), "{status:?}");
    for (url, most) in [("/metrics", 5_000_000), ("/", 20_000_000), ("/health", 1_000_000), ("/nothing", 1_000_000)] {
        host.take_executions();
        get(&coppice, url);
        let cost: u64 = host.take_executions().iter().map(|execution| execution.instructions).sum();
        println!("{url}: {cost} instructions");
        assert!(cost <= most, "{url}: {cost}");
    }
}

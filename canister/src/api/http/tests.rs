use super::*;
use crate::memory;
use crate::platform::{self, meter, native};
use crate::state::records::settings_of;
use crate::state::{self, mutate, read};
use ic_coppice_interface::*;

/// Installs a canister without any setup.
fn new() {
    native::reset();
    memory::forget();
    crate::logs::forget();
    native::with(|world| world.time_ns = 1_700_000_000_000_000_000);
    state::init(&InitArg::default()).unwrap();
}

/// Installs a canister with a producer, marked as set up.
fn fresh() {
    new();
    let producer = Grant { principal: candid::Principal::from_slice(&[1]), role: Role::Producer };
    mutate(|state| state.grant_role(producer)).unwrap();
    let change = ConfigChange { set_up_as_meant: Some(true), ..ConfigChange::default() };
    mutate(|state| state.set_config("set_config", &change)).unwrap();
}

fn ask(method: &str, url: &str) -> HttpResponse {
    let headers = vec![("host".into(), "x".into())];
    let body = ByteBuf::new();
    let request = HttpRequest { method: method.into(), url: url.into(), headers, body, certificate_version: Some(2) };
    read(|state| respond(state, &request))
}

fn get(url: &str) -> (u16, String) {
    let response = ask("GET", url);
    (response.status_code, String::from_utf8(response.body.into_vec()).expect("text"))
}

/// The health that callers without a role see.
fn seen(state: &State) -> Health {
    crate::operation::health::health(state, candid::Principal::anonymous())
}

fn header<'a>(response: &'a HttpResponse, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

mod kept;
mod monitoring;
mod sentences;

#[test]
fn known_paths_respond_and_every_response_names_its_origin() {
    fresh();
    for (url, status) in [
        ("/", 200),
        ("", 200),
        ("/?refresh=5", 200),
        ("/?refresh=0", 400),
        ("/?refresh=86401", 400),
        ("/?refresh=", 400),
        ("/?other=1&&&=", 200),
        ("/metrics", 200),
        ("/metrics?x=y#z", 200),
        ("/health", 200),
        ("/logs", 403),
        ("/logs/", 404),
        ("//", 404),
        ("/Metrics", 404),
        ("/%6Detrics", 404),
        ("/index.html", 404),
        ("https://example.org/metrics", 404),
        ("metrics", 404),
        ("/block/0", 404),
        ("/block/", 400),
        ("/block/-1", 400),
        ("/block/18446744073709551616", 400),
        ("/block/0/1", 400),
        ("/block", 404),
        ("/tx/", 400),
        ("/tx/00", 400),
        ("/tx/+000000000000000000000000000000000000000000000000000000000000000", 400),
        ("/tx/0000000000000000000000000000000000000000000000000000000000000000", 404),
    ] {
        let response = ask("GET", url);
        assert_eq!(response.status_code, status, "{url}");
        assert!(header(&response, "X-Coppice-Source").is_some_and(|source| source.contains("one replica")), "{url}");
        assert!(
            header(&response, "IC-Certificate").is_some() && header(&response, "IC-CertificateExpression").is_some()
        );
        assert_eq!(response.upgrade, None);
        let head = ask("HEAD", url);
        assert_eq!(
            (head.status_code, head.body.len(), head.headers.len()),
            (status, 0, response.headers.len()),
            "{url}"
        );
    }
    assert_eq!((get(&format!("/{}", "a".repeat(2_047))).0, get(&format!("/{}", "a".repeat(2_048))).0), (404, 414));
    assert_eq!(get(&format!("/?{}", "a&".repeat(100_000))).0, 414);
    for method in ["POST", "PUT", "get", "", "OPTIONS"] {
        let response = ask(method, "/");
        assert_eq!((response.status_code, header(&response, "Allow")), (405, Some("GET, HEAD")), "{method}");
    }
}

#[test]
fn health_is_json_with_a_status_for_monitors() {
    fresh();
    let (status, body) = get("/health");
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &value["healthy"], value["problems"].as_array().map(Vec::len)), (200, &true.into(), Some(0)));
    native::with(|world| world.liquid_cycles = 90_000_000_000);
    let (status, body) = get("/health");
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &value["healthy"]), (503, &false.into()));
    let problem = &value["problems"][0];
    assert_eq!((&problem["code"], &problem["severity"]), (&"CyclesLow".into(), &"Critical".into()));
    assert!(problem["action"].as_str().is_some_and(|action| action.contains("min_liquid_cycles")));
}

#[test]
fn responses_to_update_calls_name_the_subnet() {
    fresh();
    for replicated in [false, true] {
        native::with(|world| world.replicated = replicated);
        let whose = match replicated {
            true => "the subnet; its replicas agree on the content",
            false => "one replica; the content is not certified",
        };
        for url in ["/", "/metrics", "/health", "/logs", "/nothing"] {
            let response = ask("GET", url);
            assert_eq!(header(&response, "X-Coppice-Source"), Some(whose), "{url}");
            assert_eq!(header(&response, "IC-Certificate").is_none(), replicated, "{url}");
        }
        for url in ["/", "/metrics"] {
            assert!(get(url).1.contains(&format!("Answered by {whose}.")), "{url}");
        }
    }
}

/// Ends a job of the pruner of UTXO records with this error.
fn fail_to_preserve(error: UtxoRefusal) {
    mutate(|state| {
        let (pruner, records) = state.utxo_pruner();
        pruner.set_assembly(UtxoBlockAssemblyState::Running, None, &UtxoSettings::default());
        pruner.notify_block(1_300, true, false).unwrap();
        pruner.fail(ic_coppice_records::pruning::blocked(7, &[0; 32], None, error), records.settings);
    });
}

/// Returns the replies of public methods by name, except those that return data that callers have stored.
fn public_answers() -> Vec<(&'static str, String)> {
    let of = |name, answer: &dyn std::fmt::Debug| (name, format!("{answer:?}"));
    let list = ListBlobDeletions { cursor: None, limit: 0, ..ListBlobDeletions::default() };
    read(|state| {
        let constraints = state.constraints();
        vec![
            of("list_uploads", &state.chain.upload_progress()),
            of("get_head", &state.chain.state().head().map(|head| state.chain.header(head))),
            of("get_export_status", &state.exporters.status(&state.chain, state.config.require_export)),
            of("plan_prune", &state.pruner.plan(&state.chain, &state.blobs, &constraints, None)),
            of("get_prune_status", &state.pruner.status(&state.chain, &state.blobs, &constraints)),
            of(
                "utxo_get_pruner_status",
                &state.records.pruner.status(settings_of(&state.config), &state.records.deletions),
            ),
            of("utxo_list_prune_jobs", &state.records.pruner.jobs(None, 0)),
            of("get_pending_blob_deletions", &state.records.deletions.pending(u32::MAX, 0, None)),
            of("list_blob_deletions", &state.records.deletions.list(&list)),
            of("get_blob_deletion_status", &state.records.deletions.status()),
            of("get_config", &state.config),
            of("get_tip_certificate", &certified::head(&state.chain)),
            of("list_roles", &state.roles.list()),
            of("get_storage_status", &crate::operation::storage::status(state)),
            of("health", &crate::operation::health::health(state, candid::Principal::anonymous())),
            of("http_request", &[get("/").1, get("/metrics").1, get("/health").1, get("/logs").1]),
        ]
    })
}

/// Fails if a new query is missing from the search for the balance.
#[test]
fn all_queries_are_searched_for_the_balance() {
    fresh();
    let searched: Vec<&str> = public_answers().into_iter().map(|(name, _)| name).collect();
    // Blocks, transactions and records as stored, and methods that roles guard.
    let others = [
        "get_block_headers",
        "get_block",
        "read_segment",
        "get_transaction_location",
        "get_receipt",
        "find_by_index_key",
        "export_blocks",
        "utxo_get",
        "utxo_get_transaction",
        "utxo_get_spend",
        "utxo_list_unmined",
        "get_audit_log",
        "get_logs",
    ];
    let candid = include_str!("../../../../candid/coppice.did");
    let queries = candid.lines().filter(|line| line.ends_with(" query;"));
    let queries: Vec<&str> = queries.filter_map(|line| Some(line.trim().split_once(" : ")?.0)).collect();
    assert_eq!(queries.len(), methods::TABLE.iter().filter(|method| method.is_query).count());
    for query in queries {
        assert!(searched.contains(&query) ^ others.contains(&query), "{query}");
    }
}

/// Takes all memory, and more in a tick, which defers its growth.
fn want_memory() {
    native::with(|world| world.liquid_cycles = 1 << 100);
    memory::set_max_pages(memory::billed_pages());
    let take = || memory::arena().unwrap().take_granules(ic_coppice_chain::owners::KEY_INDEX, 1);
    while take().is_ok() {}
    memory::set_max_pages(u64::MAX);
    assert_eq!(memory::growth(|growth| growth.put_off(take)), Err(ic_coppice_storage::GrowError::Later));
}

#[test]
fn public_replies_do_not_reveal_the_balance() {
    fresh();
    let change = ConfigChange { public_logs: Some(true), ..ConfigChange::default() };
    mutate(|state| state.set_config("set_config", &change)).unwrap();
    // There is no memory yet for a row of the deletion queue.
    let schedule = || {
        let name = BlobName { blob_key: vec![7].into(), file_type: "tx".into(), store_type: StoreType::Block };
        mutate(|state| state.records.deletions.schedule(&(&name).into(), 1, platform::time_ns()))
    };
    let mut not_grown = 0;
    // Distinct digits that occur in no other number.
    for (liquid, frozen) in [(77_654_321_987u128, 0), (1_234_567_898_765, 3_456_789_876_543), (9, 8_765_432_123_456)] {
        want_memory();
        native::with(|world| (world.liquid_cycles, world.frozen_cycles) = (liquid, frozen));
        let missing = |liquid: u128| 100_000_000_000_000 - liquid;
        fail_to_preserve(UtxoRefusal::NoMemory(NoMemory::LowCycles { missing: missing(liquid) }));
        // The balance must keep two calls of a timer.
        let to_grow = native::with(|world| 2 * world.timer_call_cycles).saturating_sub(liquid);
        mutate(|state| crate::operation::daemon::records::grow(state, platform::time_ns()));
        assert_eq!(schedule().is_err(), liquid == 77_654_321_987, "{liquid}");
        let secrets = [liquid, frozen, liquid + frozen, missing(liquid), to_grow];
        for (name, answer) in public_answers() {
            let answer = answer.replace([',', '_'], "");
            for secret in secrets.into_iter().filter(|secret| *secret > 9) {
                assert!(!answer.contains(&secret.to_string()[..6]), "{name}: {secret}: {answer}");
            }
        }
        let status = read(|state| state.records.pruner.status(settings_of(&state.config), &state.records.deletions));
        assert_eq!(status.blocked_by.map(|blocked| blocked.code).as_deref(), Some("LowCycles"));
        let said =
            format!("transaction {} cannot be preserved: cycles are missing: top up the canister", "00".repeat(32));
        assert_eq!(get("/health").1.matches(&said).count(), 1);
        assert!(get("/logs").1.contains(&said));
        not_grown += usize::from(to_grow > 0);
        let lines = get("/logs").1.matches("needs cannot be grown: cycles are missing").count();
        assert_eq!(lines, not_grown, "{liquid}");
        assert_eq!(get("/logs").1.matches("deletion queue: slots: cycles are missing").count(), 1);
    }
}

#[test]
fn blocked_preservation_advice_matches_its_cause() {
    fresh();
    for (error, action) in [
        (UtxoError::NoMemory(NoMemory::LowCycles { missing: 1 }), "Top the canister up."),
        (UtxoError::NoMemory(NoMemory::ReservedCyclesLimit { missing: 1 }), "Raise reserved_cycles_limit"),
        (UtxoError::NoMemory(NoMemory::OutOfSpace), "Raise max_stable_pages"),
        (UtxoError::Corrupt { why: "magic".into() }, "utxo_skip_record(slot, true)"),
    ] {
        fail_to_preserve(error.clone().into());
        let problems = read(seen).problems;
        let found = problems.iter().find(|problem| problem.code == ProblemCode::PreservationBlocked).unwrap();
        assert!(found.action.contains(action), "{error:?}: {found:?}");
        let skips = found.action.contains("utxo_skip_record");
        assert_eq!(skips, matches!(error, UtxoError::Corrupt { .. }), "{error:?}: {found:?}");
    }
}

#[test]
fn log_is_public_only_by_setting_and_takes_the_minters_parameters() {
    fresh();
    let at = |ns: u64| native::with(|world| world.time_ns = ns);
    for number in 0..5u64 {
        at(1_000 + number);
        if number % 2 == 0 { crate::logs::error(&format!("<b>\"{number}\"</b>")) } else { crate::logs::info("fine") }
    }
    assert_eq!(get("/logs").0, 403);
    assert!(!get("/").1.contains("&lt;b&gt;"));
    let change = ConfigChange { public_logs: Some(true), ..ConfigChange::default() };
    mutate(|state| state.set_config("set_config", &change)).unwrap();
    let lines = |url: &str| -> Vec<(u64, String)> {
        let (status, body) = get(url);
        assert_eq!(status, 200, "{url}: {body}");
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        let entries = value["entries"].as_array().unwrap();
        let line = |entry: &serde_json::Value| {
            (entry["timestamp"].as_u64().unwrap() - 1_000, entry["priority"].as_str().unwrap().to_string())
        };
        entries.iter().map(line).collect()
    };
    let numbers = |url: &str| lines(url).into_iter().map(|(number, _)| number).collect::<Vec<_>>();
    assert_eq!(numbers("/logs"), [0, 1, 2, 3, 4]);
    // As in the minters of ckBTC and ckETH: `time` is inclusive, and with `time` the newest line is first.
    assert_eq!(numbers("/logs?sort=desc&time=1001"), [4, 3, 2, 1]);
    assert_eq!(numbers("/logs?sort=asc&time=1001"), [1, 2, 3, 4]);
    assert_eq!(numbers("/logs?time=1003"), [4, 3]);
    assert_eq!(numbers("/logs?time=0"), [4, 3, 2, 1, 0]);
    assert_eq!(numbers("/logs?sort=up"), [0, 1, 2, 3, 4]);
    assert_eq!(numbers("/logs?sort=up&time=1003"), [4, 3]);
    assert_eq!(numbers("/logs?sort=desc"), [4, 3, 2, 1, 0]);
    for all in ["/logs?priority=loud", "/logs?priority=", "/logs?priority=debug"] {
        assert_eq!(numbers(all), [0, 1, 2, 3, 4], "{all}");
    }
    assert_eq!(numbers("/logs?priority=error"), [0, 2, 4]);
    assert_eq!(numbers("/logs?priority=P1&time=1002"), [3]);
    assert_eq!(lines("/logs?priority=Info")[0].1, "Info");
    assert_eq!(numbers(&format!("/logs?time={}", u64::MAX)), [] as [u64; 0]);
    for bad in ["/logs?time=-1", "/logs?time=18446744073709551616", "/logs?time=", "/logs?time=now&priority=error"] {
        assert_eq!(get(bad).0, 400, "{bad}");
    }
    // The text of a line is escaped.
    let (_, page) = get("/");
    assert!(page.contains("&lt;b&gt;&quot;4&quot;&lt;/b&gt;") && !page.contains("<b>\"4"));
}

/// Returns the numbers of the lines, and how many are left out.
fn said(url: &str) -> (Vec<u64>, u64) {
    let (status, body) = get(url);
    assert!(status == 200 && body.len() < 2_000_000, "{status}: {}", body.len());
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    let entries = value["entries"].as_array().unwrap();
    (entries.iter().map(|entry| entry["counter"].as_u64().unwrap()).collect(), value["left_out"].as_u64().unwrap())
}

#[test]
fn a_thousand_of_the_longest_lines_fit_a_reply() {
    fresh();
    let change = ConfigChange { public_logs: Some(true), ..ConfigChange::default() };
    mutate(|state| state.set_config("set_config", &change)).unwrap();
    assert_eq!(said("/logs"), (vec![], 0));
    (0..1_500).for_each(|_| crate::logs::error(&"x".repeat(1_000)));
    assert_eq!(said("/logs"), ((500..1_500).collect(), 0));
    assert_eq!(said("/logs?sort=desc"), ((500..1_500).rev().collect(), 0));
}

#[test]
fn polling_a_log_of_long_lines_returns_all_lines() {
    fresh();
    let change = ConfigChange { public_logs: Some(true), ..ConfigChange::default() };
    mutate(|state| state.set_config("set_config", &change)).unwrap();
    for number in 0..1_000 {
        native::with(|world| world.time_ns = 1_000 + number);
        // Each character takes six in JSON.
        crate::logs::error(&"\u{1}".repeat(1_000));
    }
    let (newest, left_out) = said("/logs?sort=desc");
    assert!(newest.len() > 300 && newest.len() as u64 + left_out == 1_000, "{}", newest.len());
    assert_eq!(newest, (0..1_000).rev().take(newest.len()).collect::<Vec<_>>());
    let (mut all, mut from) = (Vec::new(), 0);
    for calls in 1.. {
        let (lines, left_out) = said(&format!("/logs?sort=asc&time={from}"));
        let heard = all.last().copied();
        all.extend(lines.into_iter().filter(|line| heard != Some(*line)));
        from = 1_000 + all.last().unwrap();
        if left_out == 0 {
            break;
        }
        assert!(calls < 5);
    }
    assert_eq!(all, (0..1_000).collect::<Vec<u64>>());
}

#[test]
fn page_reports_whether_appends_go_on() {
    fresh();
    let sub = || {
        let page = get("/").1;
        let (_, after) = page.split_once("</h1><p>").expect("a verdict");
        after.split_once("</p>").expect("it ends").0.to_string()
    };
    assert_eq!(sub(), "Nothing needs you. Appends go on.");
    let append = |number| {
        mutate(|state| {
            let (block, admission) = (ic_coppice_chain::testing::block(number, &[], 10), state.admission());
            state.chain.append(&mut state.blobs, &block, &admission, platform::time_secs()).unwrap();
        });
    };
    (0..3).for_each(append);
    let policy = PrunePolicyArg { retain_blocks: Some(1), min_kept_blocks: Some(0), ..PrunePolicyArg::default() };
    mutate(|state| {
        state.set_prune_policy(&policy).unwrap();
        state.set_prune_policy(&PrunePolicyArg { pruning_enabled: Some(false), ..PrunePolicyArg::default() }).unwrap();
    });
    assert_eq!(sub(), "Appends go on. Below is what to do.");
}

#[test]
fn metrics_are_valid_prometheus_text() {
    fresh();
    meter::forget();
    state::tally::forget();
    for (name, principal) in [("archive", 7), ("second", 8)] {
        let exporter = Exporter { name: name.into(), principal: candid::Principal::from_slice(&[principal]) };
        mutate(|state| state.register_exporter(&exporter)).unwrap();
    }
    // One of the exporters has a block less to acknowledge.
    for number in 0..3 {
        mutate(|state| {
            let (block, admission) = (ic_coppice_chain::testing::block(number, &[], 10), state.admission());
            state.chain.append(&mut state.blobs, &block, &admission, platform::time_secs()).unwrap();
        });
    }
    let hash = ic_coppice_chain::testing::block(0, &[], 10).hash;
    let archive = candid::Principal::from_slice(&[7]);
    mutate(|state| state.exporters.acknowledge(&state.chain, archive, 0, &hash)).unwrap();
    meter::count(meter::Hot::AppendBlock, 250_000);
    meter::count(meter::Hot::AppendBlock, 2_000_000_000);
    let (_, text) = get("/metrics");
    let scrape = prometheus_parse::Scrape::parse(text.lines().map(|line| Ok(line.to_string()))).unwrap();
    // The parser treats the sums and counts of histograms as separate metrics.
    let base = |name: &'_ str| -> String {
        let of =
            |suffix: &str| name.strip_suffix(suffix).filter(|base| text.contains(&format!("# TYPE {base} histogram")));
        of("_sum").or_else(|| of("_count")).unwrap_or(name).to_string()
    };
    let names: std::collections::BTreeSet<String> = scrape.samples.iter().map(|sample| base(&sample.metric)).collect();
    for name in &names {
        assert!(scrape.docs.contains_key(name), "{name} has no HELP");
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} has no TYPE");
        let own = name.starts_with("coppice_") || name.starts_with("pruner_") || name.starts_with("utxo_");
        assert!(own && !name.contains("cycles") && !name.contains("balance"), "{name}");
        let counter = text.contains(&format!("# TYPE {name} counter"));
        assert_eq!(counter, name.ends_with("_total"), "{name}: counters, and only they, end with _total");
    }
    // Each header occurs once, and samples of one metric are adjacent.
    let types: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(types.len(), types.iter().collect::<std::collections::BTreeSet<_>>().len());
    for name in [
        "pruner_processed_total",
        "pruner_duration_seconds",
        "utxo_cleanup_batch_duration_seconds",
        "pruner_blob_deletion_pending",
    ] {
        assert!(names.contains(name), "{name}");
    }
    let of = |name: &str, label: Option<(&str, &str)>| {
        let found = scrape.samples.iter().find(|sample| {
            sample.metric == name && label.is_none_or(|(label, value)| sample.labels.get(label) == Some(value))
        });
        found.unwrap_or_else(|| panic!("{name}")).value.clone()
    };
    assert_eq!(of("coppice_healthy", None), prometheus_parse::Value::Gauge(1.0));
    assert_eq!(of("coppice_exporter_lag_seconds", Some(("exporter", "second"))), prometheus_parse::Value::Gauge(0.0));
    for (exporter, blocks) in [("archive", 2.0), ("second", 3.0)] {
        let lag = of("coppice_exporter_lag_blocks", Some(("exporter", exporter)));
        assert_eq!(lag, prometheus_parse::Value::Gauge(blocks), "{exporter}");
    }
    let gauge = |name| match of(name, None) {
        prometheus_parse::Value::Gauge(value) | prometheus_parse::Value::Counter(value) => value,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(gauge("coppice_head_timestamp_seconds"), 1_600_000_002.0);
    assert_eq!(gauge("coppice_head_appended_timestamp_seconds"), 1_700_000_000.0);
    assert_eq!((gauge("coppice_rollbacks_total"), gauge("coppice_rolled_back_blocks_total")), (0.0, 0.0));
    let refused = scrape.samples.iter().filter(|sample| sample.metric == "coppice_refused_appends_total");
    assert_eq!(refused.count(), 13, "a series for each reason");
    assert!(scrape.samples.iter().all(|sample| sample.metric != "coppice_problem"), "none is raised");
    let prometheus_parse::Value::Histogram(buckets) =
        of("coppice_message_instructions", Some(("method", "append_block")))
    else {
        panic!("no histogram");
    };
    let counts: Vec<(f64, f64)> = buckets.iter().map(|bucket| (bucket.less_than, bucket.count)).collect();
    assert_eq!(
        (counts.len(), counts[0], counts[1], counts[6], counts[7]),
        (8, (1e5, 0.0), (3e5, 1.0), (1e9, 1.0), (f64::INFINITY, 2.0))
    );
    let methods = |text: &str| text.matches("coppice_message_instructions_count{").count();
    assert_eq!(methods(&text), 1, "those that were called");
    for hot in meter::HOT_ALL {
        meter::count(hot, 1);
    }
    assert_eq!(methods(&get("/metrics").1), meter::HOT_ALL.len());
}

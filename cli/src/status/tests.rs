//! Pages of made answers.

use super::page::{LINES, page};
use super::wrap::COLUMNS;
use super::*;
use ic_coppice_interface::*;

const NS: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * NS;
const ID: &str = "bkyz2-fmaaa-aaaaa-qaaaq-cai";

fn problem(code: ProblemCode, severity: Severity, since_ns: Option<u64>) -> Problem {
    Problem {
        code: code.to_string(),
        severity,
        message: format!("the message of {code} with 7 of 9 blocks"),
        since_ns,
        action: format!("Do this for {code}. Type: `icp canister call -n ic {ID} acknowledge_faults '(7)'`."),
    }
}

fn seen(problems: Vec<Problem>) -> Seen {
    let debt = || IndexDebt {
        entries: 0,
        buckets: 0,
        debt: 0,
        begin_debt: 0,
        forced_debt: 0,
        cursor: None,
        dropped: 0,
        sweeps: 0,
    };
    let healthy = problems.iter().all(|problem| problem.severity == Severity::Notice);
    Seen {
        canister: ID.into(),
        health: Health {
            healthy,
            problems,
            appends_refused: None,
            cycles: None,
            version: "0.1.0".into(),
            time_ns: NOW,
            looked_at_ns: Some(NOW - 3_600 * NS),
        },
        config: Config::default(),
        prune: PruneStatus {
            policy: Some(PrunePolicy::default()),
            enabled: true,
            deletions_stopped_since_ns: None,
            need_prune: true,
            reason: Some(PruneReason::Retention),
            target: 40,
            held_by: Some(HeldBy::Exporter("archive".into())),
            retain_min_block: 40,
            floor_block: None,
            exported_before_block: Some(30),
            pruned_before_block: 20,
            prune_cursor: Some(20),
            backlog: PruneBacklog {
                blocks: 10,
                references: 10,
                held_blocks: 12,
                held_since_secs: None,
                debt: 0,
                behind_since_secs: None,
                pruned_per_hour: 0,
                appended_per_hour: 0,
                empty_in_secs: Some(120),
            },
            sweep: SweepPhase::Idle,
            transaction_index: debt(),
            key_index: debt(),
            running: false,
            oldest_kept_block: Some(20),
            oldest_kept_timestamp_secs: Some(1),
            head: Some(1_234),
            estimated_kept_bytes: 500 << 20,
            capacity_bytes: 500 << 20,
            water_marks: Some(WaterMarks {
                target: 1_000 << 20,
                high: 900 << 20,
                low: 800 << 20,
                emergency: 950 << 20,
            }),
            last_run: None,
            runs: 1,
            ticks: 1,
            next_tick_ns: NOW,
            pruned_blocks: 20,
            pruned_bytes: 1,
            faults: 0,
            acknowledged_faults: 0,
            skipped: Vec::new(),
        },
        storage: StorageStatus {
            billed_bytes: 1 << 30,
            max_bytes: 500 << 30,
            arena_bytes: 1 << 30,
            used_bytes: 1,
            quarantined_bytes: 0,
            reusable_bytes: 5 << 20,
            payload_bytes: 1,
            owners: Vec::new(),
            classes: Vec::new(),
            index_entries: 1,
            key_entries: 0,
            blocks: 1_215,
            utxo: None,
            block: None,
        },
        export: ExportStatus {
            exporters: vec![ExporterStatus {
                name: "archive".into(),
                principal: None,
                exported_before_block: 30,
                lag_blocks: 1_205,
                lag_secs: 7_200,
                acknowledged_at_ns: None,
                registered_at_ns: 1,
            }],
            exported_before_block: Some(30),
            require_export: false,
            head: Some(1_234),
        },
        queue: None,
        records: None,
    }
}

fn fits(page: &str) {
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines.len() <= LINES, "{} lines:\n{page}", lines.len());
    let long: Vec<_> = lines.iter().filter(|line| line.chars().count() > COLUMNS).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn page_of_a_healthy_canister_has_the_verdict_first_and_every_figure() {
    let page = page(&seen(Vec::new()), false);
    fits(&page);
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines[..2], ["All is well", "Appends go on."]);
    for figure in [
        "head       block 1,234; 1,215 blocks kept from block 20 on",
        "] 52 % of 950.00 MiB",
        "backlog    10 blocks to prune, done in about 2 min; 12 held: ",
        "exporters  archive, without a key: 1,205 blocks behind, for 2 h",
        "memory     1.00 GiB billed of 500.00 GiB, 5.00 MiB reusable",
        "version    0.1.0, canister bkyz2-fmaaa-aaaaa-qaaaq-cai",
    ] {
        assert!(page.contains(figure), "{figure} in\n{page}");
    }
    assert!(!page.contains("cycles") && !page.contains('\x1b'), "{page}");
    let mut held = seen(Vec::new());
    held.prune.held_by = Some(HeldBy::KeylessExporter("archive-of-the-explorer-in-the-cellar".into()));
    let held = self::page(&held, false);
    fits(&held);
    let joined = held.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains(
            "12 held: exporter archive-of-the-explorer-in-the-cellar has no key since its role was revoked: an admin registers a principal or \
                 removes it exporters"
        ),
        "{held}"
    );
    let bar = page.lines().find(|line| line.starts_with("kept")).unwrap();
    let (_, bar) = bar.split_once('[').unwrap();
    assert_eq!(bar.split(']').next().unwrap(), "====================            L   H E ");
}

/// Each problem has its severity, its code, its start, its message and its command, on a terminal and off.
#[test]
fn every_problem_has_its_line_with_and_without_colours() {
    for code in ProblemCode::ALL {
        for (severity, name) in
            [(Severity::Critical, "critical"), (Severity::Warning, "warning"), (Severity::Notice, "notice")]
        {
            let seen = seen(vec![problem(code, severity, Some(NOW - 3_660 * NS))]);
            let (plain, coloured) = (page(&seen, false), page(&seen, true));
            fits(&plain);
            let header = format!("{name} {code}, since 1 h 1 min");
            assert!(plain.lines().any(|line| line == header), "{header} in\n{plain}");
            let rest = format!(
                "  the message of {code} with 7 of 9 blocks.\n  Do this for {code}.\n    icp canister call -n ic {ID} acknowledge_faults"
            );
            assert!(plain.contains(&rest), "{rest} in\n{plain}");
            assert!(coloured.contains(&format!("m{header}\x1b[0m")) && !plain.contains('\x1b'), "{coloured}");
            let mut without = coloured.clone();
            while let Some((before, after)) = without.split_once('\x1b') {
                let (_, after) = after.split_once('m').unwrap();
                without = format!("{before}{after}");
            }
            assert_eq!(without, plain);
        }
    }
}

#[test]
fn unknown_start_names_the_last_message() {
    let page = page(&seen(vec![problem(ProblemCode::CyclesLow, Severity::Critical, None)]), false);
    let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let header = "critical CyclesLow, since unknown, at the earliest since the last message at 2023-11-14 21:13:20 UTC";
    assert!(joined.contains(header), "{page}");
    fits(&page);
}

/// All problems at once, with long texts: the first is whole, and all others are named as far as the lines reach.
#[test]
fn many_problems_with_long_texts_fit_24_lines() {
    for length in [1, 8, 20, 60] {
        let mut problems: Vec<Problem> =
            ProblemCode::ALL.iter().map(|&code| problem(code, Severity::Critical, None)).collect();
        for problem in &mut problems {
            problem.message = "some words of it ".repeat(length).trim().into();
            problem.action = format!("{}{}", "words of it. ".repeat(length), problem.action);
        }
        for count in [1, 2, 3, 50] {
            let page = page(&seen(problems[..count].to_vec()), false);
            fits(&page);
            assert!(page.contains("critical TimerOverdue, since unknown"), "{page}");
            assert!(page.contains("    icp canister call -n ic "), "the command stays:\n{page}");
            assert!(count < 50 || page.contains(" more: "), "{page}");
        }
    }
}

/// The second problem keeps its first step where the lines do not reach for all of it.
#[test]
fn second_problem_without_room_keeps_its_first_step() {
    let mut second = problem(ProblemCode::ExporterKeyless, Severity::Warning, None);
    second.message = "some words of it ".repeat(40);
    let page = page(&seen(vec![problem(ProblemCode::ExportHeld, Severity::Warning, None), second]), false);
    fits(&page);
    assert!(page.contains("  Do this for ExporterKeyless.\n    icp canister call"), "{page}");
}

/// A step that destroys something is shown with its warning, or not at all.
#[test]
fn command_is_never_shown_without_the_words_of_its_step() {
    let of = |words: usize| {
        let mut problem = problem(ProblemCode::CapacityExhausted, Severity::Critical, None);
        problem.message = "word ".repeat(words);
        problem.action = format!(
            "Start exporter archive. Type: `icp canister call -n ic {ID} register_exporter '(1)'`. If it is gone for good, remove it. \
             Type: `icp canister call -n ic {ID} remove_exporter '(2)'`."
        );
        page(&seen(vec![problem; 3]), false)
    };
    let mut shown = [0, 0];
    for words in 0..200 {
        let page = of(words);
        fits(&page);
        assert!(page.contains("Start exporter archive.\n    icp") && page.contains("register_exporter"), "{page}");
        let (warning, removes) = (page.contains("gone for good"), page.contains("remove_exporter"));
        assert_eq!(warning, removes, "{page}");
        shown[usize::from(removes)] += 1;
    }
    assert!(shown[0] == 0 && shown[1] > 0, "the message makes room for both steps: {shown:?}");
}

#[test]
fn cycles_are_shown_to_callers_who_may_know_them() {
    let mut seen = seen(Vec::new());
    seen.health.cycles = Some(CyclesStatus { liquid: 3_400_000_000_000, missing: 0 });
    // A GiB takes 11 G a day, and the timers at most 8 G.
    let known = page(&seen, false);
    let line = known.lines().find(|line| line.starts_with("cycles")).unwrap();
    assert!(
        line.contains("3.400 T liquid, ") && line.ends_with(" days of storage and timers, without feeding"),
        "{line}"
    );
    seen.health.cycles = Some(CyclesStatus { liquid: 100_000_000_000, missing: 312_000_000_000 });
    assert!(page(&seen, false).contains("cycles     0.100 T liquid, 0.312 T missing"));
    // A line of more than 80 columns continues in the next.
    seen.health.cycles = Some(CyclesStatus { liquid: 3_400_000_000_000_000_000, missing: 0 });
    let rich = page(&seen, false);
    fits(&rich);
    let joined = rich.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("days of storage and timers, without feeding version"), "{rich}");
    fits(&known);
}

#[test]
fn verdict_counts_problems() {
    let (critical, warning) = (Severity::Critical, Severity::Warning);
    let of = |severities: &[Severity]| {
        let problems = severities.iter().map(|&severity| problem(ProblemCode::Damaged, severity, None)).collect();
        page(&seen(problems), false).lines().next().unwrap().to_string()
    };
    assert_eq!(of(&[critical]), "1 thing needs you now");
    assert_eq!(of(&[critical, critical, warning]), "2 things need you now; 1 warning besides");
    assert_eq!(of(&[warning, warning]), "2 things need you");
    assert_eq!(of(&[Severity::Notice]), "All is well");
    let mut seen = seen(vec![problem(ProblemCode::NoPolicy, Severity::Notice, None)]);
    seen.health.appends_refused = Some("the upload of block 7 is open until it is done or dropped".into());
    let page = page(&seen, false);
    let expected = "Not all is set up\nAppends are refused: the upload of block 7 is open until it is done or dropped.\nnotice NoPolicy\n";
    assert!(page.starts_with(expected), "{page}");
}

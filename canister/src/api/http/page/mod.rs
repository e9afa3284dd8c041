//! Dashboard (`/`): shows at a glance whether the canister is healthy. The page contains its style and plots, and no script.
//!
//! Figures for programs are in `data` elements: `data-figure` is the name, `value` the value.

mod frame;
mod kept;
mod memory;
mod plot;
mod records;
mod words;

use super::answer::{Answer, parameter};
use crate::logs::history::Span;
use crate::operation::{health, sampling, storage};
use crate::state::State;
use crate::state::records::KEPT;
use crate::{logs, platform};
use candid::Principal;
use frame::{counted, figure, frame};
use ic_coppice_interface::text::{duration, hex};
use ic_coppice_interface::*;
pub use kept::{block, transaction};
use maud::{Markup, html};
use plot::{Plot, Series, Source, Unit};
use words::{ago, bytes, count, moment};

/// Seconds after which the page reloads unless the URL sets them (`/?refresh=5`).
const REFRESH: u64 = 60;
/// Maximum errors that are shown.
const ERRORS: u32 = 6;
/// Maximum exporters that are shown; those with the largest lag come first.
const EXPORTERS: usize = 20;

fn tile(title: &str, shown: Markup, more: Markup) -> Markup {
    html! { div.tile { h3 { (title) } p.big { (shown) } p.more { (more) } } }
}

/// Marks the text between backticks as code.
fn commands(text: &str) -> Markup {
    html! { @for (at, part) in text.split('`').enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

fn verdict(health: &Health) -> Markup {
    let problems = &health.problems;
    let of = |severity| problems.iter().filter(|problem| problem.severity == severity).count() as u64;
    let (critical, warnings) = (of(Severity::Critical), of(Severity::Warning));
    let things = |number: u64| match number {
        1 => "1 thing needs you".to_string(),
        _ => format!("{number} things need you"),
    };
    let appends = health.appends();
    let is_new = problems.iter().filter_map(Problem::known).any(ProblemCode::is_of_set_up);
    let besides = if warnings == 0 { String::new() } else { format!("{} besides. ", words::many(warnings, "warning")) };
    let (class, said, sub) = match (critical, warnings) {
        (0, 0) if is_new => ("new", "Not all is set up".into(), "Below is what is missing, and what to type.".into()),
        (0, 0) => ("well", "All is well".into(), format!("Nothing needs you. {appends}")),
        (0, _) => ("warning", things(warnings), format!("{appends} Below is what to do.")),
        _ => ("critical", things(critical) + " now", format!("{besides}{appends} Below is what to do.")),
    };
    let sub = sub.replace("  ", " ").trim_start().to_string();
    html! {
        section class={ "verdict " (class) } data-verdict=(class) {
            span.lamp aria-hidden="true" {}
            div { h1 { (said) } p { (sub) } }
        }
        @if !problems.is_empty() {
            ul.problems {
                @for problem in problems {
                    @let severity = format!("{:?}", problem.severity).to_lowercase();
                    li class=(severity) data-problem=(problem.code) {
                        p.head { span.severity { (severity) } span.code { (problem.code) }
                            time { (health.since(problem, moment)) } }
                        p.message { (problem.message) "." }
                        p.action { b { "What to do: " } (commands(&problem.action)) }
                    }
                }
            }
        }
    }
}

fn tiles(state: &State, now: u64, prune: &PruneStatus, storage: &StorageStatus, export: &ExportStatus) -> Markup {
    let chain = state.chain.state();
    let head = match prune.head {
        Some(head) => html! { a href=(format!("/block/{head}")) { (counted("head", head)) } },
        None => html! { span.none { "none yet" } },
    };
    let of_head = prune.head.and_then(|head| state.chain.header(head).ok());
    let hash = of_head.map_or(String::new(), |head| hex(&head.hash[..head.hash.len().min(6)]));
    let appended_at = health::appended_at(state);
    let age = appended_at.map_or("of unknown age".into(), |at| ago(at.saturating_mul(1_000_000_000), now));
    let slowest = export.exporters.iter().max_by_key(|exporter| (exporter.lag_blocks, exporter.lag_secs));
    let empty = match prune.backlog.empty_in_secs {
        Some(0) if prune.backlog.held_blocks > 0 => "nothing more may be pruned".to_string(),
        Some(0) => "nothing waits".to_string(),
        Some(secs) => format!("empty in about {}", duration(secs)),
        None if prune.backlog.blocks == 0 => "a sweep is left".to_string(),
        None => "not shrinking".to_string(),
    };
    let held = match &prune.held_by {
        Some(held_by) if prune.backlog.held_blocks > 0 => {
            let blocks = if prune.backlog.held_blocks == 1 { "block" } else { "blocks" };
            format!("due {blocks}, by {}", health::holder(held_by))
        }
        _ => "nothing is held back".into(),
    };
    html! {
        div.tiles {
            (tile("Head", head, html! { @if hash.is_empty() { "no block was appended" } @else { code { (hash) "…" } " " (age) } }))
            (tile("Blocks kept", counted("blocks", storage.blocks),
                html! { (counted("appended", chain.appended_blocks)) " appended, " (counted("pruned", prune.pruned_blocks)) " pruned" }))
            (tile("Bytes kept", figure("kept_bytes", prune.capacity_bytes, &bytes(prune.capacity_bytes)),
                html! { @match &prune.water_marks {
                    Some(marks) => (format!("{:.0} % of emergency water", prune.capacity_bytes as f64 / marks.emergency.max(1) as f64 * 100.0)),
                    None => "no limit of bytes",
                } }))
            (tile("Backlog", counted("backlog", prune.backlog.blocks), html! { (empty) }))
            (tile("Held", counted("held", prune.backlog.held_blocks), html! { (held) }))
            (tile("Memory billed", figure("billed_bytes", storage.billed_bytes, &bytes(storage.billed_bytes)),
                html! { (figure("reusable_bytes", storage.reusable_bytes, &bytes(storage.reusable_bytes))) " reusable" }))
            (tile("Slowest exporter", match slowest {
                    Some(exporter) => counted("slowest_lag", exporter.lag_blocks),
                    None => html! { span.none { "none" } },
                }, html! { @match slowest {
                    Some(exporter) => { (if exporter.lag_blocks == 1 { "block" } else { "blocks" }) " behind, " (exporter.name) },
                    None => "no exporter is registered",
                } }))
        }
    }
}

fn plots(state: &State, now: u64, prune: &PruneStatus) -> Markup {
    let now = now / 1_000_000_000;
    // The present state is newer than the last sample.
    let last = sampling::sample_now(state, now, state.due().as_ref());
    let [day, month] = [Span::Day, Span::Month].map(|span| {
        let samples = state.history.samples(span, now).into_iter().filter(|sample| sample.at < now);
        samples.chain([last]).collect::<Vec<_>>()
    });
    let marks = prune.water_marks.map(|of| [("emergency", of.emergency), ("high", of.high), ("low", of.low)]);
    let marks = marks.as_slice().as_flattened();
    let value = |name, figure, of| Series { name, figure, of: Source::Value(of) };
    let rate = |name, figure, of| Series { name, figure, of: Source::Rate(of) };
    let kept = [value("kept", "kept", |sample| sample.kept_bytes as f64)];
    let blocks =
        [rate("appended", "appended", |sample| sample.appended), rate("pruned", "pruned", |sample| sample.pruned)];
    let backlog = [
        value("may be pruned", "backlog", |sample| f64::from(sample.backlog)),
        value("held", "held", |sample| f64::from(sample.held)),
    ];
    let memory = [
        value("billed", "billed", |sample| (u64::from(sample.billed_pages) * WASM_PAGE) as f64),
        value("reusable", "reusable", |sample| sample.reusable_bytes as f64),
    ];
    let instructions = [rate("executed", "instructions", |sample| sample.instructions)];
    let plot = |id, title, unit, series| Plot { id, title, unit, series, marks: &[] };
    let [per_hour, number] = [Unit::Count("block/h", "blocks/h"), Unit::Count("block", "blocks")];
    let work = Unit::Count("instruction/h", "instructions/h");
    let all = [
        Plot { marks, ..plot("kept", "Bytes kept", Unit::Bytes, &kept) },
        plot("blocks", "Blocks an hour", per_hour, &blocks),
        plot("backlog", "Blocks that are due", number, &backlog),
        plot("memory", "Stable memory", Unit::Bytes, &memory),
        plot("instructions", "Work, in instructions an hour", work, &instructions),
    ];
    // Otherwise less than a day of samples would be drawn twice.
    let month = month.first().is_some_and(|first| first.at.saturating_add(86_400) <= now).then_some(month);
    let title = if month.is_some() { "A day and a month" } else { "A day" };
    html! { h2 { (title) } div.charts { @for plot in all { (plot.card(&day, month.as_deref(), now)) } } }
}

fn exporters(export: &ExportStatus) -> Markup {
    let mut exporters: Vec<&ExporterStatus> = export.exporters.iter().collect();
    exporters.sort_by_key(|exporter| std::cmp::Reverse((exporter.lag_blocks, exporter.lag_secs)));
    let more = exporters.len().saturating_sub(EXPORTERS);
    html! {
        section.card {
            h3 { "Exporters" }
            @if exporters.is_empty() { p { "No exporter is registered: pruning waits for none"
                @if export.require_export { ", but require_export is set, so nothing is pruned" } "." } }
            @else {
                table {
                    thead { tr { th { "name" } th { "acknowledged below" } th { "blocks behind" } th { "waiting for" } } }
                    tbody {
                        @for exporter in exporters.iter().take(EXPORTERS) {
                            tr data-exporter=(exporter.name) data-lag=(exporter.lag_blocks) {
                                th { (exporter.name) @if exporter.principal.is_none() { " (without a key)" } }
                                td data-label="acknowledged below" { (count(exporter.exported_before_block)) }
                                td data-label="blocks behind" { (count(exporter.lag_blocks)) }
                                td data-label="waiting for" { (duration(exporter.lag_secs)) }
                            }
                        }
                    }
                }
                @if more > 0 { p.note { "and " (more) " more with a smaller lag" } }
            }
        }
    }
}

fn errors(state: &State, prune: &PruneStatus) -> Markup {
    let public = state.config.public_logs;
    let errors = if public { logs::page(Some(LogPriority::Error), None, ERRORS).entries } else { Vec::new() };
    html! {
        section.card {
            h3 { "Last errors" }
            @if !public { p { "The log is not public: observers read it with get_logs, and set_config(public_logs) opens it. "
                @match prune.faults {
                    0 => "Nothing damaged was skipped so far.",
                    faults => { (words::entries(faults)) " skipped so far, " (count(faults - prune.acknowledged_faults)) " not acknowledged." },
                } } }
            @else if errors.is_empty() { p { "None." } }
            @else { ol.errors { @for error in &errors { li { time { (moment(error.time_ns)) } " " (error.message) } } } }
        }
    }
}

fn policy_and_plan(state: &State, now: u64, prune: &PruneStatus) -> Markup {
    let pruner = &state.pruner;
    let plan = pruner.plan(&state.chain, &state.blobs, &state.constraints(), None);
    html! {
        section.card {
            h3 { "Policy" }
            @for sentence in words::policy(pruner.policy(), prune.water_marks.as_ref(), pruner.is_enabled()) { p { (sentence) } }
        }
        section.card {
            h3 { "Plan" }
            @for sentence in words::plan(plan.as_ref().ok()) { p { (sentence) } }
            @if let Some(run) = &prune.last_run {
                p.note { "The last run began " (ago(run.started_at_ns, now)) ": " (words::many(run.blocks, "block")) " with " (bytes(run.bytes))
                    " went, in " (words::many(run.ticks, "tick")) " and " (words::short(run.instructions as f64)) " instructions." }
            }
        }
    }
}

fn page(state: &State, refresh: u64) -> Markup {
    let (now, health) = (platform::time_ns(), health::health(state, Principal::anonymous()));
    let prune = state.pruner.status(&state.chain, &state.blobs, &state.constraints());
    let (storage, export) = (storage::status(state), state.exporters.status(&state.chain, state.config.require_export));
    let title = if health.healthy { "✓ Coppice" } else { "✗ Coppice" };
    let content = html! {
        main {
            (verdict(&health))
            (tiles(state, now, &prune, &storage, &export))
            (plots(state, now, &prune))
            h2 { "Details" }
            div.details {
                (policy_and_plan(state, now, &prune)) (exporters(&export))
                @if KEPT { (records::cards(state, now)) }
                (memory::card(&storage)) (errors(state, &prune))
            }
        }
    };
    frame(title, Some(refresh), content)
}

/// Responds to `/`.
pub fn answer(state: &State, parameters: &str) -> Answer {
    let refresh = match parameter(parameters, "refresh").map(str::parse::<u64>) {
        None => REFRESH,
        Some(Ok(secs @ 1..=86_400)) => secs,
        Some(_) => return Answer::text(400, "refresh is seconds, from 1 to 86400\n"),
    };
    Answer::new(200, "text/html; charset=utf-8", page(state, refresh).into_string())
}

//! The page: verdict, problems with what to do, figures.

use super::wrap::{self, COLUMNS};
use super::{Seen, figures};
use crate::report::moment;
use crate::terminal::printable;
use anstyle::{AnsiColor, Style};
use ic_coppice_interface::text::many;
use ic_coppice_interface::{Problem, ProblemCode, Severity};

/// Most lines of a page.
pub const LINES: usize = 24;

const CRITICAL: Style = Style::new().bold().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));
const WARNING: Style = Style::new().bold().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)));
const NOTICE: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Cyan)));
const WELL: Style = Style::new().bold().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
const COMMAND: Style = Style::new().bold();

/// A line, and the style of its whole text on a terminal.
type Styled = (Style, String);

/// Returns the page, escaped, with colours on a terminal.
pub fn page(seen: &Seen, in_colours: bool) -> String {
    let shown = |(style, line): Styled| match in_colours && style != Style::new() {
        true => format!("{style}{}{style:#}", printable(&line)),
        false => printable(&line).into_owned(),
    };
    lines(seen).into_iter().map(shown).collect::<Vec<_>>().join("\n")
}

fn lines(seen: &Seen) -> Vec<Styled> {
    let figures = figures::lines(seen);
    let mut lines = verdict(seen);
    // An empty line before the figures.
    let room = LINES.saturating_sub(lines.len() + figures.len() + 1);
    lines.extend(problems(seen, room));
    lines.push((Style::new(), String::new()));
    lines.extend(figures.into_iter().map(|line| (Style::new(), line)));
    lines
}

/// Returns the verdict in the words of the dashboard.
fn verdict(seen: &Seen) -> Vec<Styled> {
    let problems = &seen.health.problems;
    let of = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let needs = |number: usize, now: &str| match number {
        1 => format!("1 thing needs you{now}"),
        _ => format!("{number} things need you{now}"),
    };
    let is_new = problems.iter().filter_map(Problem::known).any(ProblemCode::is_of_set_up);
    let (style, text) = match (of(Severity::Critical), of(Severity::Warning)) {
        (0, 0) if is_new => (NOTICE, "Not all is set up".into()),
        (0, 0) => (WELL, "All is well".into()),
        (0, warnings) => (WARNING, needs(warnings, "")),
        (critical, 0) => (CRITICAL, needs(critical, " now")),
        (critical, warnings) => {
            (CRITICAL, format!("{}; {} besides", needs(critical, " now"), many(warnings as u64, "warning")))
        }
    };
    let appends = wrap::words(&seen.health.appends(), 0).into_iter().map(|line| (Style::new(), line));
    std::iter::once((style, text)).chain(appends).collect()
}

/// Returns the problems in at most `room` lines: the first with what to do, the next ones with their first step as far as the lines reach,
/// then others by their name.
fn problems(seen: &Seen, room: usize) -> Vec<Styled> {
    let all = &seen.health.problems;
    let mut lines: Vec<Styled> = Vec::new();
    for (number, problem) in all.iter().enumerate() {
        let left = all.len() - number - 1;
        // A line is left for the names of the others.
        let free = room.saturating_sub(lines.len() + usize::from(left > 0));
        let whole = Whole::new(seen, problem);
        // The next problems share the lines: each keeps one at least.
        let shared = room.saturating_sub(lines.len() + left);
        if number == 0 || whole.len() <= free {
            lines.extend(whole.in_room(free));
        } else if whole.with_first_step() <= shared {
            lines.extend(whole.in_room(shared));
        } else if free > 0 {
            lines.extend(header(seen, problem).into_iter().take(1));
        } else {
            let names = all[number..].iter().map(|problem| problem.code.as_str()).collect::<Vec<_>>().join(", ");
            lines.push((Style::new(), shortened(&format!("and {} more: {names}", left + 1))));
            break;
        }
    }
    lines
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(COLUMNS) {
        None => line.into(),
        Some(_) => line.chars().take(COLUMNS - 1).chain(['…']).collect(),
    }
}

/// Returns a problem's severity, code and start; an unknown start takes two lines.
fn header(seen: &Seen, problem: &Problem) -> Vec<Styled> {
    let (style, severity) = match problem.severity {
        Severity::Critical => (CRITICAL, "critical"),
        Severity::Warning => (WARNING, "warning"),
        Severity::Notice => (NOTICE, "notice"),
    };
    let since = seen.health.since(problem, |ns| moment(ns / 1_000_000_000));
    let since = since.split(" (").next().unwrap_or_default();
    let since = if since.is_empty() { String::new() } else { format!(", {since}") };
    let lines = wrap::words(&format!("{severity} {}{since}", problem.code), 0);
    lines.into_iter().map(|line| (style, line)).collect()
}

/// A problem with its message, and what to do.
struct Whole {
    header: Vec<Styled>,
    message: Vec<Styled>,
    /// Each step's words, and its command.
    steps: Vec<(Vec<Styled>, Vec<Styled>)>,
}

impl Whole {
    fn new(seen: &Seen, problem: &Problem) -> Self {
        let plain = |text: &str| wrap::words(text, 2).into_iter().map(|line| (Style::new(), line)).collect();
        let step = |(text, command): (String, Option<String>)| {
            let command = command.iter().flat_map(|command| wrap::command(command, 4));
            (plain(&text), command.map(|line| (COMMAND, line)).collect())
        };
        Self {
            header: header(seen, problem),
            message: plain(&format!("{}.", problem.message)),
            steps: wrap::action(&problem.action).into_iter().map(step).collect(),
        }
    }

    fn len(&self) -> usize {
        let steps = self.steps.iter().map(|(words, command)| words.len() + command.len());
        self.header.len() + self.message.len() + steps.sum::<usize>()
    }

    /// Returns the lines that the header and the first step take.
    fn with_first_step(&self) -> usize {
        self.header.len() + self.steps.first().map_or(0, |(words, command)| words.len() + command.len())
    }

    /// Returns the lines in at most `room` lines. The message goes first, then the last steps, then words of the first step: a command never
    /// stands without the words that warn of it, unless it is the first step.
    fn in_room(mut self, room: usize) -> Vec<Styled> {
        let over = |whole: &Self| whole.len().saturating_sub(room);
        self.message.truncate(self.message.len().saturating_sub(over(&self)));
        while over(&self) > 0 && self.steps.len() > 1 {
            self.steps.pop();
        }
        let too_many = over(&self);
        if let Some((words, _)) = self.steps.first_mut() {
            words.truncate(words.len().saturating_sub(too_many));
        }
        let steps = self.steps.into_iter().flat_map(|(words, command)| words.into_iter().chain(command));
        self.header.into_iter().chain(self.message).chain(steps).take(room).collect()
    }
}

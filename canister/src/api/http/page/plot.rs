//! Plots as SVG, without scripts. A band without a line marks a time without samples.

use super::words;
use crate::logs::history::{Sample, Span};
use maud::{Markup, html};
use std::fmt::Write;

/// Size of a plot in its own units, which are whole because a fraction takes ten times the instructions to write; the page stretches the plot.
const WIDTH: u64 = 6_000;
const HEIGHT: u64 = 1_200;
/// Maximum points of a line; each is 20 units wide.
const COLUMNS: u64 = 300;
/// Space above the highest point, as a factor.
const HEADROOM: f64 = 1.08;

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A count, with the unit's singular and plural.
    Count(&'static str, &'static str),
}

impl Unit {
    /// Returns a value in words.
    pub fn say(self, value: f64) -> String {
        match self {
            Self::Bytes => words::bytes(value as u64),
            Self::Count(..) => words::short(value),
        }
    }

    /// Returns a value in words for an axis: a count is followed by its unit.
    fn at_axis(self, value: f64) -> String {
        let said = self.say(value);
        match self {
            Self::Bytes => said,
            Self::Count(one, _) if said == "1" => format!("{said} {one}"),
            Self::Count(_, several) => format!("{said} {several}"),
        }
    }
}

/// Derivation of a line from samples.
#[derive(Clone, Copy)]
pub enum Source {
    /// The value in each sample.
    Value(fn(&Sample) -> f64),
    /// The increase of a counter per hour. A counter that fell was reset.
    Rate(fn(&Sample) -> u64),
}

/// A line.
#[derive(Clone, Copy)]
pub struct Series {
    /// Name of the line.
    pub name: &'static str,
    /// Name under which a program finds the last value.
    pub figure: &'static str,
    /// Derivation from samples.
    pub of: Source,
}

/// One plot.
pub struct Plot<'a> {
    /// Name of the plot, also in data attributes.
    pub id: &'a str,
    /// Title of the plot.
    pub title: &'a str,
    /// Unit of the values.
    pub unit: Unit,
    /// Lines.
    pub series: &'a [Series],
    /// Level lines: name (`low`, `high`, `emergency`) and value.
    pub marks: &'a [(&'static str, u64)],
}

/// A point: Unix seconds and a value.
type Point = (u64, f64);

/// Seconds between two samples above which there is a gap. An idle canister takes a sample every ten minutes.
fn patience(span: Span) -> u64 {
    match span {
        Span::Day => 1_300,
        Span::Month => 4_300,
    }
}

/// Returns the seconds that a plot covers.
fn length(span: Span) -> u64 {
    let samples = span.places();
    samples.every * samples.count
}

/// Splits samples into runs without gaps.
fn runs(samples: &[Sample], span: Span) -> Vec<&[Sample]> {
    samples.chunk_by(|a, b| b.at - a.at <= patience(span)).collect()
}

/// Returns the gaps as start and end in Unix seconds.
fn gaps(runs: &[&[Sample]], span: Span, now: u64) -> Vec<(u64, u64)> {
    // A gap lies between the end of a run and the beginning of the next one.
    let ends = runs.iter().filter_map(|run| Some(run.last()?.at));
    let begins = runs.iter().filter_map(|run| Some(run.first()?.at));
    let between = std::iter::once(now.saturating_sub(length(span))).chain(ends).zip(begins.chain([now]));
    between.filter(|(from, to)| to.saturating_sub(*from) > patience(span)).collect()
}

impl Source {
    /// Returns the points of a run, at most one per column.
    fn points(self, run: &[Sample], span: Span) -> Vec<Point> {
        let column = length(span).div_ceil(COLUMNS);
        let last_of_each = run.chunk_by(|a, b| a.at / column == b.at / column).filter_map(|same| same.last());
        match self {
            Self::Value(value) => last_of_each.map(|sample| (sample.at, value(sample))).collect(),
            Self::Rate(count) => {
                let mut before = run.first();
                let mut points = Vec::new();
                for now in last_of_each {
                    let Some(then) = before else { break };
                    // A rate over a small part of a column would show the noise of a single minute.
                    if now.at - then.at < (column / 2).min(run[run.len() - 1].at - run[0].at).max(1) {
                        continue;
                    }
                    let (from, to) = (count(then), count(now));
                    let rose = if to >= from { to - from } else { to };
                    points.push((now.at, rose as f64 * 3_600.0 / (now.at - then.at) as f64));
                    before = Some(now);
                }
                points
            }
        }
    }
}

fn x(at: u64, span: Span, now: u64) -> u64 {
    let begin = now.saturating_sub(length(span));
    at.saturating_sub(begin) * WIDTH / length(span)
}

fn y(value: f64, top: f64) -> u64 {
    ((1.0 - value / top) * HEIGHT as f64) as u64
}

fn path(runs: &[Vec<Point>], span: Span, now: u64, top: f64) -> String {
    let mut path = String::new();
    for run in runs {
        for (index, (at, value)) in run.iter().enumerate() {
            let letter = if index == 0 { 'M' } else { 'L' };
            // Writing to a string does not fail.
            let _ = write!(path, "{letter}{} {}", x(*at, span, now), y(*value, top));
            if run.len() == 1 {
                // Draw a single point as a dot.
                path.push_str("h1");
            }
        }
    }
    path
}

impl Plot<'_> {
    /// Returns a plot over a span, with its caption.
    fn one(&self, samples: &[Sample], span: Span, now: u64) -> Markup {
        let runs = runs(samples, span);
        let lines: Vec<Vec<Vec<Point>>> =
            self.series.iter().map(|series| runs.iter().map(|run| series.of.points(run, span)).collect()).collect();
        let values = lines.iter().flatten().flatten().map(|(_, value)| *value);
        let marks = self.marks.iter().map(|(_, value)| *value as f64);
        let most = values.chain(marks).fold(0.0, f64::max);
        let top = if most > 0.0 { most * HEADROOM } else { 1.0 };
        let (name, long, ago) = match span {
            Span::Day => ("day", "24 hours", ["24 h ago", "12 h", "now"]),
            Span::Month => ("month", "31 days", ["31 days ago", "15 d", "now"]),
        };
        let label = format!("{} over {long}: {} samples", self.title, samples.len());
        html! {
            figure.plot {
                span.top { (self.unit.at_axis(most)) }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label)
                    data-plot=(self.id) data-span=(name) data-samples=(samples.len()) data-gaps=(gaps(&runs, span, now).len()) {
                    @for (from, to) in gaps(&runs, span, now) {
                        rect.gap x=(x(from, span, now)) y="0" height=(HEIGHT)
                            width=(x(to, span, now) - x(from, span, now)) { title { "no samples" } }
                    }
                    @for quarter in 1..4 { line.grid x1="0" x2=(WIDTH) y1=(HEIGHT / 4 * quarter) y2=(HEIGHT / 4 * quarter) {} }
                    @for (name, value) in self.marks {
                        @let y = y(*value as f64, top);
                        line class={ "mark " (name) } x1="0" x2=(WIDTH) y1=(y) y2=(y) { title { (name) " water" } }
                    }
                    @for (at, line) in lines.iter().enumerate() {
                        path class={ "line s" (at) } data-series=(self.series[at].figure) d=(path(line, span, now, top)) {
                            title { (self.series[at].name) }
                        }
                    }
                }
                figcaption { @for text in ago { span { (text) } } }
            }
        }
    }

    /// Returns the plots of a day and, if given, of a month, with a legend of the present values.
    pub fn card(&self, day: &[Sample], month: Option<&[Sample]>, now: u64) -> Markup {
        let is_fresh =
            |run: &&[Sample]| run.last().is_some_and(|last| now.saturating_sub(last.at) <= patience(Span::Day));
        let run = runs(day, Span::Day).pop().filter(is_fresh);
        let last = |series: &Series| Some(series.of.points(run?, Span::Day).last()?.1);
        html! {
            section.card.chart {
                h3 { (self.title) }
                ul.legend {
                    @for (at, series) in self.series.iter().enumerate() {
                        li { i class={ "s" (at) } {} (series.name) " "
                            @match last(series) {
                                Some(value) => b data-last=(series.figure) data-value=(format!("{value:.0}")) { (self.unit.say(value)) },
                                None => b.none { "–" },
                            }
                        }
                    }
                    @for (name, value) in self.marks {
                        li { i class={ "mark " (name) } {} (name) " water " b { (self.unit.say(*value as f64)) } }
                    }
                }
                (self.one(day, Span::Day, now))
                @if let Some(month) = month { (self.one(month, Span::Month, now)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, appended: u64) -> Sample {
        Sample { at, appended, kept_bytes: at, instructions: appended, ..Sample::default() }
    }

    #[test]
    fn no_line_crosses_a_gap_without_samples() {
        let now = 10_000_000;
        let all: Vec<Sample> =
            [now - 80_000, now - 79_000, now - 40_000, now - 39_400, now - 100].map(|at| sample(at, at)).into();
        let found = runs(&all, Span::Day);
        assert_eq!(found.iter().map(|run| run.len()).collect::<Vec<_>>(), [2, 2, 1]);
        let expected = [(now - 86_400, now - 80_000), (now - 79_000, now - 40_000), (now - 39_400, now - 100)];
        assert_eq!(gaps(&found, Span::Day, now), expected);
        assert_eq!(gaps(&[], Span::Day, now), [(now - 86_400, now)]);
        let points: Vec<Vec<Point>> =
            found.iter().map(|run| Source::Value(|s| s.kept_bytes as f64).points(run, Span::Day)).collect();
        let drawn = path(&points, Span::Day, now, 2e7);
        assert_eq!((drawn.matches('M').count(), drawn.matches('L').count(), drawn.matches('h').count()), (3, 2, 1));
        // A rate is known between two samples only.
        let rates: Vec<Vec<Point>> =
            found.iter().map(|run| Source::Rate(|s| s.appended).points(run, Span::Day)).collect();
        assert_eq!(rates, [vec![(now - 79_000, 3_600.0)], vec![(now - 39_400, 3_600.0)], vec![]]);
    }

    #[test]
    fn a_line_has_at_most_one_point_per_column_and_exact_rates() {
        let now = 100_000_000 / 288 * 288;
        let all: Vec<Sample> = (0..1_440).map(|minute| sample(now - 86_400 + 60 * minute, 5 * minute)).collect();
        let points = Source::Rate(|s| s.appended).points(&all, Span::Day);
        assert!((250..=301).contains(&points.len()), "{}", points.len());
        assert!(points.iter().all(|(_, rate)| (rate - 300.0).abs() < 0.1), "{points:?}");
        // A counter that is reset, as instructions are by an upgrade.
        let restarted = [sample(0, 1_000), sample(600, 1_300), sample(1_200, 50)];
        let points = Source::Rate(|s| s.instructions).points(&restarted, Span::Day);
        assert_eq!(points, [(600, 1_800.0), (1_200, 300.0)]);
    }
}

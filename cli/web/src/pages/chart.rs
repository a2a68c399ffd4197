//! The last hour as lines, and as a table for readers without the pictures.

use maud::{Markup, html};

use super::parts;
use crate::watch::{POINTS, Point};

/// Size of a drawing, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 120.0;

/// Number of rows of the table.
const ROWS: usize = 12;

/// A chart of one figure.
struct Chart {
    title: &'static str,
    lines: &'static [Line],
    /// A value as text, with its unit.
    shown: fn(f64) -> String,
    /// Least value at the top, so that noise does not fill the chart.
    least: f64,
}

/// A line of a chart: its name, its class, and its values.
struct Line {
    name: &'static str,
    class: &'static str,
    value: fn(&Point) -> f64,
}

const CHARTS: [Chart; 3] = [
    Chart {
        title: "Throughput",
        lines: &[
            Line { name: "Reads", class: "read", value: |point| point.rate.read },
            Line { name: "Writes", class: "write", value: |point| point.rate.written },
        ],
        shown: parts::rate,
        least: 1024.0,
    },
    Chart {
        title: "Latency",
        lines: &[
            Line { name: "Reads", class: "read", value: |point| point.rate.read_wait },
            Line { name: "Writes", class: "write", value: |point| point.rate.write_wait },
        ],
        shown: parts::seconds,
        least: 1e-4,
    },
    Chart {
        title: "Queue length",
        lines: &[Line { name: "Requests in progress", class: "read", value: |point| point.rate.queue }],
        shown: |value| format!("{value:.1}"),
        least: 1.0,
    },
];

/// Throughput, latency and queue length of the last hour.
pub(super) fn last_hour(points: &[Point]) -> Markup {
    html! {
        @if points.len() < 2 {
            p { "The charts begin a few seconds after the start of the web server." }
        } @else {
            div.charts { @for chart in &CHARTS { (drawing(chart, points)) } }
            (table(points))
        }
    }
}

fn drawing(chart: &Chart, points: &[Point]) -> Markup {
    let values = points.iter().flat_map(|point| chart.lines.iter().map(|line| (line.value)(point)));
    let most = values.fold(chart.least, f64::max);
    let top = (chart.shown)(most);
    html! {
        figure {
            h3 { (chart.title) }
            svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                aria-label=(format!("{} of the last hour; the top is {top}", chart.title)) {
                @for line in chart.lines { polyline class=(line.class) points=(path(points, line, most)) fill="none" {} }
            }
            figcaption {
                "Top: " (top) ". "
                @for line in chart.lines {
                    span.key { span class=(format!("line {}", line.class)) aria-hidden="true" {} " " (line.name) " " }
                }
            }
        }
    }
}

/// The corners of a line: the newest point at the right edge.
fn path(points: &[Point], line: &Line, most: f64) -> String {
    let first = POINTS - points.len().min(POINTS);
    let corner = |(at, point): (usize, &Point)| {
        let x = (first + at) as f64 * WIDTH / (POINTS - 1) as f64;
        let y = HEIGHT - (line.value)(point) / most * (HEIGHT - 4.0) - 2.0;
        format!("{x:.1},{y:.1}")
    };
    points.iter().enumerate().map(corner).collect::<Vec<_>>().join(" ")
}

/// Means of equal parts of the hour.
fn table(points: &[Point]) -> Markup {
    let mean = |part: &[Point], value: fn(&Point) -> f64| part.iter().map(value).sum::<f64>() / part.len() as f64;
    let columns: Vec<(&Chart, &Line)> =
        CHARTS.iter().flat_map(|chart| chart.lines.iter().map(move |line| (chart, line))).collect();
    html! {
        details {
            summary { "As a table" }
            div.wide {
                table {
                    thead { tr {
                        th scope="col" { "From" }
                        @for (chart, line) in &columns { th scope="col" { (chart.title) ": " (line.name.to_lowercase()) } }
                    } }
                    tbody {
                        @for part in points.chunks(POINTS / ROWS).rev() {
                            tr {
                                th.nowrap scope="row" { (parts::time(part[0].time as i64)) }
                                @for (chart, line) in &columns { td { ((chart.shown)(mean(part, line.value))) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

//! The throughput of the last hour as lines, and as a table for readers without the picture.

use maud::{Markup, html};

use super::parts;
use crate::watch::{POINTS, Point};

/// Size of the drawing, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 160.0;

/// Number of rows of the table.
const ROWS: usize = 12;

/// A line of the chart: its name, its class, and its values.
struct Line {
    name: &'static str,
    class: &'static str,
    value: fn(&Point) -> f64,
}

const LINES: [Line; 2] = [
    Line { name: "Reads", class: "read", value: |point| point.rate.read },
    Line { name: "Writes", class: "write", value: |point| point.rate.written },
];

/// Reads and writes in bytes per second.
pub(super) fn throughput(points: &[Point]) -> Markup {
    let most = points.iter().flat_map(|point| LINES.iter().map(|line| (line.value)(point))).fold(1.0, f64::max);
    html! {
        @if points.len() < 2 {
            p { "The chart begins a few seconds after the start of the web server." }
        } @else {
            figure {
                svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                    aria-label=(format!("Throughput of the last hour, at most {}", parts::rate(most))) {
                    @for line in &LINES { polyline class=(line.class) points=(path(points, line, most)) fill="none" {} }
                }
                figcaption {
                    "Top of the chart: " (parts::rate(most)) ". "
                    @for line in &LINES { span.key { span class=(format!("line {}", line.class)) aria-hidden="true" {} " " (line.name) " " } }
                }
            }
            (table(points))
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
    let values: [(&str, fn(&Point) -> f64); 2] =
        [("Reads", |point| point.rate.reads), ("Writes", |point| point.rate.writes)];
    html! {
        details {
            summary { "As a table" }
            div.wide {
                table {
                    thead { tr {
                        th scope="col" { "From" }
                        @for line in &LINES { th scope="col" { (line.name) } }
                        @for (name, _) in values { th scope="col" { (name) " per second" } }
                    } }
                    tbody {
                        @for part in points.chunks(POINTS / ROWS).rev() {
                            tr {
                                th scope="row" { (parts::time(part[0].time as i64)) }
                                @for line in &LINES { td { (parts::rate(mean(part, line.value))) } }
                                @for (_, value) in values { td { (format!("{:.1}", mean(part, value))) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

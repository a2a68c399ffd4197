//! Progress of long commands, on standard error: on a terminal a bar, after a quarter of a second. A send or a receive
//! can also print lines, one a second, as text or as JSON, and show the progress in the name of its process.
//!
//! The rate is the average since the beginning. The first report covers all work before it, so a rate over the last
//! interval would be absurd there.

use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use dataset::property::size::format_bytes;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use protocol::Progress;
use serde_json::json;

/// Time before a command shows progress.
const PATIENCE: Duration = Duration::from_millis(250);

/// Time between two lines of progress.
const EACH_LINE: Duration = Duration::from_secs(1);

/// The most bytes of a process's name.
const LONGEST_NAME: usize = 15;

/// The form of the progress of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A bar, only on a terminal.
    Bar,
    /// A bar on a terminal, and otherwise a line a second.
    Lines,
    /// A JSON object a second, and one at the end.
    Json,
}

/// The progress of a send or a receive, as the user wants to see it.
#[derive(Debug)]
pub struct Reporting {
    form: Form,
    begun: Instant,
    /// When the last line was printed.
    printed: Instant,
    /// The expected number of bytes, if the command knows better than the service.
    pub total: Option<u64>,
    /// Show the progress in the name of the process.
    pub names_process: bool,
    last: Progress,
}

impl Reporting {
    /// A reporting that begins now.
    pub fn new(form: Form) -> Reporting {
        let (begun, last) = (Instant::now(), Progress { what: String::new(), done: 0, total: None });
        Reporting { form, begun, printed: begun, total: None, names_process: false, last }
    }

    /// Whether the size of the whole transfer will be shown.
    pub fn shows_total(&self) -> bool {
        self.form != Form::Bar || self.names_process
    }

    /// Whether a bar on a terminal is wanted.
    pub(crate) fn has_bar(&self) -> bool {
        self.form != Form::Json
    }

    /// Prints a line if one is due, and returns the progress with the right total. A line that cannot be printed is
    /// left out: the transfer matters more.
    pub(crate) fn report(&mut self, progress: Progress, on_terminal: bool, out: &mut dyn Write) -> Progress {
        self.last = Progress { total: self.total.or(progress.total), ..progress };
        if self.printed.elapsed() >= EACH_LINE {
            self.printed = Instant::now();
            if self.names_process {
                name_process(&self.last);
            }
            let line = match self.form {
                Form::Lines if !on_terminal => line(&self.last, self.begun.elapsed()),
                Form::Json => object(&self.last, self.begun.elapsed()),
                Form::Bar | Form::Lines => String::new(),
            };
            let _ = out.write_all(line.as_bytes());
        }
        self.last.clone()
    }

    /// Prints the last JSON object, if possible: everything is transferred.
    pub fn finish(&mut self, what: &str, bytes: u64, out: &mut dyn Write) {
        if self.form != Form::Json {
            return;
        }
        if self.last.what.is_empty() {
            self.last.what = what.to_owned();
        }
        let done = bytes.max(self.last.done);
        self.last = Progress { done, total: Some(done), ..self.last.clone() };
        let _ = out.write_all(object(&self.last, self.begun.elapsed()).as_bytes());
    }
}

/// A line for people: `sending tank/home@a: 1G of 3G, 33%, 100M/s, 21 seconds left`.
fn line(progress: &Progress, elapsed: Duration) -> String {
    let Progress { what, done, total } = progress;
    let (rate, all) = (rate(*done, elapsed), total.map(|total| total.max(*done)));
    let size = match all {
        Some(all) => format!("{} of {}, {}%", format_bytes(*done), format_bytes(all), percent(*done, all)),
        None => format_bytes(*done),
    };
    let left = all.map(|all| HumanDuration(Duration::from_secs(left(*done, all, elapsed))));
    let left = left.map_or_else(String::new, |left| format!(", {left} left"));
    format!("{what}: {size}, {}/s{left}\n", format_bytes(rate))
}

/// A line for programs.
fn object(progress: &Progress, elapsed: Duration) -> String {
    let Progress { what, done, total } = progress;
    let (operation, snapshot) = what.split_once(' ').unwrap_or((what, ""));
    let all = total.map(|total| total.max(*done));
    let object = json!({
        "operation": operation,
        "snapshot": snapshot,
        "bytes": done,
        "total": all,
        "rate": rate(*done, elapsed),
        "remaining_seconds": all.map(|all| left(*done, all, elapsed)),
    });
    format!("{object}\n")
}

/// Shows the progress in the name of the process, as far as Linux keeps it: `ps -o comm`, top(1).
fn name_process(progress: &Progress) {
    let Progress { what, done, total } = progress;
    let operation = what.split(' ').next().unwrap_or_default();
    let share = total.map_or_else(|| format_bytes(*done), |total| format!("{}%", percent(*done, total.max(*done))));
    let name: String = format!("{operation} {share}").chars().take(LONGEST_NAME).collect();
    // Only the display suffers.
    let _ = std::fs::write("/proc/self/comm", name);
}

fn percent(done: u64, all: u64) -> u64 {
    u64::try_from(u128::from(done) * 100 / u128::from(all.max(1))).unwrap_or(100)
}

/// A progress meter for one request; dropping the meter erases its line.
pub struct Meter {
    enabled: bool,
    begun: Instant,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// A meter that draws only if `on_terminal`.
    pub fn new(on_terminal: bool) -> Meter {
        Meter { enabled: on_terminal, begun: Instant::now(), bar: None }
    }

    /// Draws the present progress.
    pub fn update(&mut self, progress: &Progress) {
        if !self.enabled || self.begun.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(progress.total, ProgressDrawTarget::stderr());
            bar.set_style(style(progress.total.is_some()));
            bar.with_elapsed(self.begun.elapsed())
        });
        bar.set_message(progress.what.clone());
        if let Some(total) = progress.total {
            bar.set_length(total.max(progress.done));
        }
        bar.set_position(progress.done);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(has_total: bool) -> ProgressStyle {
    let template = match has_total {
        true => "{msg}  {done}/{all}  {percent}%  {rate}  {left} left",
        false => "{msg}  {done}  {rate}",
    };
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    // Sizes have the same form as in tables.
    style
        .with_key("done", |state: &ProgressState, out: &mut dyn fmt::Write| put(out, state.pos()))
        .with_key("all", |state: &ProgressState, out: &mut dyn fmt::Write| put(out, state.len().unwrap_or_default()))
        .with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = write!(out, "{}/s", format_bytes(rate(state.pos(), state.elapsed())));
        })
        .with_key("left", |state: &ProgressState, out: &mut dyn fmt::Write| {
            let left = left(state.pos(), state.len().unwrap_or(0), state.elapsed());
            let _ = write!(out, "{}", HumanDuration(Duration::from_secs(left)));
        })
}

fn put(out: &mut dyn fmt::Write, bytes: u64) {
    // A line that cannot be formatted is not drawn.
    let _ = out.write_str(&format_bytes(bytes));
}

/// Average rate since the beginning, in bytes per second.
fn rate(done: u64, elapsed: Duration) -> u64 {
    let millis = elapsed.as_millis().max(1);
    u64::try_from(u128::from(done) * 1000 / millis).unwrap_or(u64::MAX)
}

/// Estimated seconds left at the average rate.
fn left(done: u64, total: u64, elapsed: Duration) -> u64 {
    total.saturating_sub(done).div_ceil(rate(done, elapsed).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_remaining_time_if_the_total_is_known() {
        let progress = |total| Progress { what: "sending tank/my home@a".to_owned(), done: 1 << 30, total };
        let (known, elapsed) = (progress(Some(3 << 30)), Duration::from_secs(8));
        assert_eq!(line(&known, elapsed), "sending tank/my home@a: 1G of 3G, 33%, 128M/s, 16 seconds left\n");
        assert_eq!(line(&progress(None), elapsed), "sending tank/my home@a: 1G, 128M/s\n");
        let parsed = |progress| serde_json::from_str::<serde_json::Value>(&object(&progress, elapsed)).unwrap();
        let expected = json!({
            "operation": "sending", "snapshot": "tank/my home@a", "bytes": 1 << 30, "total": 3u64 << 30,
            "rate": 128 << 20, "remaining_seconds": 16,
        });
        assert_eq!(parsed(known), expected);
        assert_eq!(parsed(progress(None))["remaining_seconds"], serde_json::Value::Null);
        assert_eq!(parsed(progress(Some(5)))["remaining_seconds"], 0, "more than was expected");
    }

    #[test]
    fn a_line_that_cannot_be_printed_ends_no_transfer() {
        let progress = Progress { what: "sending tank@a".to_owned(), done: 5, total: None };
        for form in [Form::Lines, Form::Json] {
            let mut reporting = Reporting { total: Some(9), ..Reporting::new(form) };
            reporting.printed -= EACH_LINE;
            let mut full = &mut [][..];
            assert_eq!(reporting.report(progress.clone(), false, &mut full).total, Some(9));
            reporting.finish("sending tank@a", 9, &mut full);
        }
    }

    #[test]
    fn the_rate_is_that_since_the_beginning() {
        let second = Duration::from_secs(1);
        assert_eq!((rate(100, second), rate(100, second / 4)), (100, 400));
        assert_eq!((left(100, 100, second), left(100, 300, second), left(100, 301, second)), (0, 2, 3));
        assert_eq!((rate(u64::MAX, Duration::ZERO), left(0, 5, second), left(9, 5, second)), (u64::MAX, 5, 0));
    }
}

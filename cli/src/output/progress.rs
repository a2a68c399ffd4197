//! Progress of long commands: on standard error, only on a terminal, only after a quarter of a second.
//!
//! The rate is the average since the beginning. The first report covers all work before it, so a rate over the last
//! interval would be absurd there.

use std::fmt;
use std::time::{Duration, Instant};

use dataset::property::size::format_bytes;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use protocol::Progress;

/// Time before a command shows progress.
const PATIENCE: Duration = Duration::from_millis(250);

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
    fn the_rate_is_that_since_the_beginning() {
        let second = Duration::from_secs(1);
        assert_eq!((rate(100, second), rate(100, second / 4)), (100, 400));
        assert_eq!((left(100, 100, second), left(100, 300, second), left(100, 301, second)), (0, 2, 3));
        assert_eq!((rate(u64::MAX, Duration::ZERO), left(0, 5, second), left(9, 5, second)), (u64::MAX, 5, 0));
    }
}

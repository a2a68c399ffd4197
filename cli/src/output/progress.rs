//! Progress of long commands: on standard error, only on a terminal, only after a quarter of a second.

use std::fmt::Write;
use std::time::{Duration, Instant};

use dataset::property::size::format_bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::protocol::Progress;

/// How long a command may take before it shows progress.
const PATIENCE: Duration = Duration::from_millis(250);

/// A meter for one request; what it drew is gone when it is dropped.
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

    /// Shows how far the request is.
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
        true => "{msg}  {done}/{all}  {percent}%  {speed}/s  {eta} left",
        false => "{msg}  {done}  {speed}/s",
    };
    // Sizes look as they do everywhere else.
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    style
        .with_key("done", |state: &ProgressState, to: &mut dyn Write| put(to, state.pos()))
        .with_key("all", |state: &ProgressState, to: &mut dyn Write| put(to, state.len().unwrap_or_default()))
        .with_key("speed", |state: &ProgressState, to: &mut dyn Write| put(to, state.per_sec() as u64))
}

fn put(to: &mut dyn Write, bytes: u64) {
    // A line of progress that cannot be put together is not drawn.
    let _ = to.write_str(&format_bytes(bytes));
}

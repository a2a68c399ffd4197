//! Rendered text of live views, shared by all streams that show the same view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Validity of rendered text.
const FRESH: Duration = Duration::from_millis(900);

/// Views with rendered text on record.
const MOST: usize = 512;

/// Rendered text with the time of the rendering, by view and kind of reader.
#[derive(Default)]
pub(crate) struct Views(Mutex<BTreeMap<String, (Instant, Arc<str>)>>);

impl Views {
    /// The text of a view: rendered less than [`FRESH`] ago, or now.
    pub(crate) fn text(&self, view: String, render: impl FnOnce() -> Option<String>) -> Option<Arc<str>> {
        let mut known = self.0.lock();
        if let Some((_, text)) = known.get(&view).filter(|(since, _)| since.elapsed() < FRESH) {
            return Some(text.clone());
        }
        if known.len() >= MOST {
            known.retain(|_, (since, _)| since.elapsed() < FRESH);
        }
        let text: Arc<str> = render()?.into();
        known.insert(view, (Instant::now(), text.clone()));
        Some(text)
    }
}

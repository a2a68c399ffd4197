//! Server-sent events: a browser shows the present state without loading its page again.
//!
//! A stream looks at its view once a second, and sends the view only when changed. Streams of one view share the
//! rendered text, so a thousand idle streams cost one rendering a second. A stream ends with its session.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::app::App;
use crate::gate::Visitor;
use crate::pages;

/// Interval of looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Validity of rendered text.
const FRESH: Duration = Duration::from_millis(900);

/// Views with rendered text on record.
const MOST: usize = 512;

/// What a stream shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    Overview,
    Pool(String),
    Task(u64),
}

impl View {
    fn of(path: &str) -> Option<View> {
        match path.split_once('/') {
            None if path == "overview" => Some(View::Overview),
            Some(("pool", pool)) => Some(View::Pool(pool.to_owned())),
            Some(("task", number)) => number.parse().ok().map(View::Task),
            _ => None,
        }
    }

    fn render(&self, app: &App, visitor: &Visitor) -> Option<String> {
        Some(match self {
            View::Overview => pages::overview_fragment(app, visitor.is_owner).into_string(),
            View::Pool(pool) => pages::pool_fragment(app, pool, visitor.is_owner).into_string(),
            View::Task(number) => {
                pages::task_fragment(&*app.tasks.get(*number, visitor.user, visitor.is_owner)?).into_string()
            }
        })
    }
}

/// Rendered views, by view and by whether the owner looks, with the time of the rendering.
#[derive(Default)]
pub(crate) struct Live(Mutex<BTreeMap<(View, bool), (Instant, Arc<str>)>>);

impl Live {
    fn text(&self, app: &App, view: &View, visitor: &Visitor) -> Option<Arc<str>> {
        if let View::Task(_) = view {
            return view.render(app, visitor).map(Arc::from);
        }
        let mut known = self.0.lock();
        let key = (view.clone(), visitor.is_owner);
        if let Some((since, text)) = known.get(&key).filter(|(since, _)| since.elapsed() < FRESH) {
            let _ = since;
            return Some(text.clone());
        }
        if known.len() >= MOST {
            known.retain(|_, (since, _)| since.elapsed() < FRESH);
        }
        let text: Arc<str> = view.render(app, visitor)?.into();
        known.insert(key, (Instant::now(), text.clone()));
        Some(text)
    }
}

/// The events of a view.
pub(crate) async fn stream(State(app): State<Arc<App>>, visitor: Visitor, Path(view): Path<String>) -> Response {
    let Some(view) = View::of(&view) else { return StatusCode::NOT_FOUND.into_response() };
    let before: Option<Arc<str>> = None;
    let events = stream::unfold((app, visitor, view, before), |(app, visitor, view, before)| async move {
        loop {
            app.tokens.session(&visitor.session)?;
            let text = app.live.text(&app, &view, &visitor)?;
            if before.as_ref() != Some(&text) {
                let event = Event::default().data(&*text);
                // The first state follows at once, because the page may be older than the stream.
                sleep(if before.is_none() { Duration::ZERO } else { INTERVAL }).await;
                return Some((Ok::<_, Infallible>(event), (app, visitor, view, Some(text))));
            }
            sleep(INTERVAL).await;
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

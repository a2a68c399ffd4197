//! Server-sent events: a browser shows the present state without loading its page again.
//!
//! A stream looks at its view once a second, and sends the view only when changed. Streams of one view share the
//! rendered text, so a thousand idle streams cost one rendering a second. A stream ends with its session.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::sleep;

use crate::app::App;
use crate::gate::Visitor;
use crate::pages::{overview, pool, task};
use crate::quota::{Lasting, Place};

/// Interval of looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a stream shows.
#[derive(Clone, Debug)]
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
            View::Overview => overview::fragment(app, visitor.is_owner).into_string(),
            View::Pool(name) => pool::fragment(app, name, visitor.is_owner).into_string(),
            View::Task(number) => {
                task::fragment(&*app.tasks.get(*number, visitor.user, visitor.is_owner)?).into_string()
            }
        })
    }
}

impl App {
    fn view(&self, view: &View, visitor: &Visitor) -> Option<Arc<str>> {
        match view {
            View::Task(_) => view.render(self, visitor).map(Arc::from),
            View::Overview | View::Pool(_) => {
                self.views.text(format!("{view:?} {}", visitor.is_owner), || view.render(self, visitor))
            }
        }
    }
}

/// A stream of one browser.
struct Watching {
    app: Arc<App>,
    visitor: Visitor,
    view: View,
    before: Option<Arc<str>>,
    has_ended: bool,
    _place: Place,
}

/// The events of a view.
pub(crate) async fn stream(State(app): State<Arc<App>>, visitor: Visitor, Path(view): Path<String>) -> Response {
    let Some(view) = View::of(&view) else { return StatusCode::NOT_FOUND.into_response() };
    let Some(_place) = app.quota.enter(Lasting::View, visitor.other()) else {
        return StatusCode::TOO_MANY_REQUESTS.into_response();
    };
    let watching = Watching { app, visitor, view, before: None, has_ended: false, _place };
    let events = stream::unfold(watching, |mut watching| async {
        let event = watching.next().await?;
        Some((Ok::<_, Infallible>(event), watching))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

impl Watching {
    /// The next event; `None` after the end of the session, or of what is shown.
    async fn next(&mut self) -> Option<Event> {
        // The first state follows at once, because the page may be older than the stream.
        let mut pause = self.before.as_ref().map_or(Duration::ZERO, |_| INTERVAL);
        while !self.has_ended {
            sleep(std::mem::replace(&mut pause, INTERVAL)).await;
            let is_open = self.app.tokens.is_open(&self.visitor.session);
            let Some(text) = is_open.then(|| self.app.view(&self.view, &self.visitor)).flatten() else {
                self.has_ended = true;
                return Some(Event::default().event("end").data("the session has ended"));
            };
            if self.before.as_ref() != Some(&text) {
                self.before = Some(text.clone());
                return Some(Event::default().data(&*text));
            }
        }
        None
    }
}

//! The pages. Each module renders one subject, from records, with text escaped by the templates.
//!
//! ```text
//! sign_in    signing in and out           overview   all pools
//! pool       one pool                     drawing    the devices of a pool as boxes
//! device     one device, and its loss     chart      the last hour as lines and a table
//! dataset    a file system                snapshot   one snapshot
//! files      browsing, downloading        journal    history and events
//! new        creating and importing       plan       comparing layouts
//! change     dry run, confirmation        task       running commands
//! frame      what surrounds every page    parts      buttons, states, sizes
//! ```

mod change;
mod chart;
mod dataset;
mod device;
mod drawing;
mod files;
mod frame;
mod journal;
mod new;
mod overview;
mod parts;
mod plan;
mod pool;
pub(crate) mod sign_in;
mod snapshot;
mod streams;
mod task;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::Markup;
use protocol::Failure;

pub(crate) use self::overview::fragment as overview_fragment;
pub(crate) use self::pool::fragment as pool_fragment;
pub(crate) use self::task::fragment as task_fragment;
use crate::app::App;
use crate::{figures, gate, live};

/// Maximum size of a form, in bytes.
const MAX_FORM: usize = 64 << 10;

/// The addresses and their pages.
pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(overview::show))
        .route("/sign-in", get(sign_in::show).post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/pool/{pool}", get(pool::show))
        .route("/pool/{pool}/device/{guid}", get(device::show))
        .route("/pool/{pool}/history", get(journal::history))
        .route("/pool/{pool}/events", get(journal::events))
        .route("/dataset/{*name}", get(dataset::show))
        .route("/snapshot/{*name}", get(snapshot::show))
        .route("/files", get(files::show))
        .route("/file", get(files::download))
        .route("/new", get(new::show))
        .route("/plan", get(plan::show))
        .route("/change/{action}", post(change::confirm))
        .route("/run/{action}", post(change::run))
        .route("/tasks", get(task::list))
        .route("/task/{number}", get(task::show))
        .route("/live/{*view}", get(live::stream))
        .route("/metrics", get(figures::metrics))
        .route("/stream", get(streams::download))
        .layer(DefaultBodyLimit::max(MAX_FORM))
        // An upload is read as it arrives, and never held.
        .route("/receive", post(streams::upload).layer(DefaultBodyLimit::disable()))
        .route("/assets/style.css", get(|| asset("text/css; charset=utf-8", include_str!("../../assets/style.css"))))
        .route("/assets/app.js", get(|| asset("text/javascript; charset=utf-8", include_str!("../../assets/app.js"))))
        .route("/assets/icon.svg", get(|| asset("image/svg+xml", include_str!("../../assets/icon.svg"))))
        .fallback(frame::missing)
        .layer(from_fn_with_state(app.clone(), gate::guard))
        .with_state(app)
}

async fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text)
}

/// A page with its status.
pub(crate) struct Page(pub(crate) StatusCode, pub(crate) Markup);

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        (self.0, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], self.1.into_string()).into_response()
    }
}

/// The status of a page that shows a failure.
fn status_of(failure: &Failure) -> StatusCode {
    match failure.is_unavailable() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::BAD_REQUEST,
    }
}

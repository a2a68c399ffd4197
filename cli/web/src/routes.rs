//! The addresses of the server and their pages.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header;
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::{get, post};

use crate::app::App;
use crate::pages::{
    change, dataset, device, files, frame, import, journal, new, overview, plan, pool, sign_in, snapshot, streams, task,
};
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
        .route("/import", get(import::show))
        .route("/plan", get(plan::show))
        .route("/change/{action}", post(change::confirm))
        .route("/run/{action}", post(change::run))
        .route("/tasks", get(task::list))
        .route("/task/{number}", get(task::show))
        .route("/live/{*view}", get(live::stream))
        .route("/metrics", get(figures::metrics))
        .route("/stream", get(streams::download))
        .layer(DefaultBodyLimit::max(MAX_FORM))
        // An upload is read on arrival, and never held.
        .route("/receive", post(streams::upload).layer(DefaultBodyLimit::disable()))
        .route("/assets/style.css", get(|| asset("text/css; charset=utf-8", include_str!("../assets/style.css"))))
        .route("/assets/app.js", get(|| asset("text/javascript; charset=utf-8", include_str!("../assets/app.js"))))
        .route("/assets/icon.svg", get(|| asset("image/svg+xml", include_str!("../assets/icon.svg"))))
        .fallback(frame::missing)
        .layer(from_fn(gate::guard))
        .with_state(app)
}

async fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text)
}

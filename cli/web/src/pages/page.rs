//! A page with its status.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::Markup;
use protocol::Failure;

/// A page with its status.
pub(crate) struct Page(pub(crate) StatusCode, pub(crate) Markup);

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        (self.0, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], self.1.into_string()).into_response()
    }
}

/// The status of a page that shows a failure.
pub(super) fn status_of(failure: &Failure) -> StatusCode {
    match failure.is_unavailable() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::BAD_REQUEST,
    }
}

//! Streams: sent to a file or to the browser, received from a file or from the browser.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use dataset::name::{Name, SnapshotName};
use dataset::property::dataset::MOUNTPOINT;
use futures_util::StreamExt;
use maud::{Markup, html};
use protocol::{Failure, ReceiveSpec, Response as Answer, SendSpec, StreamRequest, unexpected_answer};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{files, frame, parts};
use crate::app::App;
use crate::gate::Visitor;

/// The name of a file with the stream of a snapshot.
fn file_name(snapshot: &str) -> String {
    format!("{}.cenote", snapshot.replace(['/', '@'], "-"))
}

/// Forms that send a snapshot.
pub(super) fn send_forms(visitor: &Visitor, snapshot: &str) -> Markup {
    let suggestion = format!("/var/backups/{}", file_name(snapshot));
    html! {
        section aria-labelledby="send" {
            h2 id="send" { "Send" }
            p { a.button href=(format!("/stream?snapshot={}", crate::fields::escape(snapshot.as_bytes()))) { "Download as a stream file" } }
            (parts::form(visitor, "send", &[("snapshot", snapshot)], html! {
                (parts::field("send-file", "File on this machine", html! { input id="send-file" name="file" value=(suggestion) required spellcheck="false"; }))
                (parts::field("send-base", "Only changes since (snapshot or bookmark; empty for all)", html! { input id="send-base" name="base" spellcheck="false"; }))
                label { input type="checkbox" name="recursive"; " with all file systems below" }
                button { "Send to the file" }
            }))
        }
    }
}

/// Forms that receive a stream below or into a dataset.
pub(super) fn receive_forms(visitor: &Visitor, dataset: &str) -> Markup {
    html! {
        (parts::form(visitor, "receive", &[], html! {
            (parts::field("receive-into", "Receive into", html! { input id="receive-into" name="dataset" value=(format!("{dataset}/received")) required spellcheck="false"; }))
            (parts::field("receive-file", "From a file on this machine", html! { input id="receive-file" name="file" required spellcheck="false"; }))
            label { input type="checkbox" name="no-mount" checked; " do not mount, and ignore the mount point in the stream" }
            button { "Receive" }
        }))
        @if !visitor.read_only {
            form.upload data-upload="/receive" {
                input type="hidden" name="form" value=(visitor.form);
                (parts::field("upload-into", "Upload a stream into", html! { input id="upload-into" name="dataset" value=(format!("{dataset}/received")) required spellcheck="false"; }))
                (parts::field("upload-file", "Stream file of this computer", html! { input id="upload-file" type="file" name="file" required; }))
                button { "Upload and receive" }
                progress max="100" value="0" aria-label="Upload" {}
                p role="status" {}
            }
        }
    }
}

/// Longest pause of an upload.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
pub(crate) struct Wanted {
    snapshot: String,
}

/// A full stream of a snapshot, as a download.
pub(crate) async fn download(State(app): State<Arc<App>>, visitor: Visitor, Query(wanted): Query<Wanted>) -> Response {
    let sent = async {
        let snapshot: SnapshotName =
            wanted.snapshot.parse().map_err(|error| Failure::cannot("send", &wanted.snapshot, error))?;
        let pool = snapshot.dataset().pool().to_owned();
        let request = StreamRequest::Send { what: SendSpec::full(snapshot), dry_run: false };
        files::piped(&app, &visitor, &pool, request.into()).await
    };
    match sent.await {
        Ok(body) => files::attachment(file_name(&wanted.snapshot).as_bytes(), body),
        Err(failure) => frame::failed(&visitor, "Send", &[frame::pools()], &failure).into_response(),
    }
}

/// The dataset of an upload. Its body is the stream itself, and a header carries the secret of the forms.
#[derive(Deserialize)]
pub(crate) struct Target {
    dataset: String,
}

/// Receives the body of a request. The answer is one line of text.
pub(crate) async fn upload(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Query(target): Query<Target>,
    request: Request,
) -> Response {
    let secret = request.headers().get("x-form").and_then(|value| value.to_str().ok());
    if secret != Some(visitor.form.as_str()) {
        return (StatusCode::FORBIDDEN, "the form is not of this session").into_response();
    }
    if visitor.read_only {
        return (StatusCode::FORBIDDEN, "this session is read only").into_response();
    }
    match received(&app, &visitor, &target.dataset, request.into_body()).await {
        Ok(text) => text.into_response(),
        Err(failure) => (super::page::status_of(&failure), failure.to_string()).into_response(),
    }
}

async fn received(app: &Arc<App>, visitor: &Visitor, dataset: &str, body: Body) -> Result<String, Failure> {
    let target: Name = dataset.parse().map_err(|error| Failure::cannot("receive into", dataset, error))?;
    let pool = target.pool().to_owned();
    // A stream says where its file systems are mounted. Nothing here has asked for a confirmation, so the files come without a
    // mount and without that place.
    let exclude = vec![MOUNTPOINT.row().name.to_owned()];
    let spec = ReceiveSpec { no_mount: true, exclude, ..ReceiveSpec::exact(target) };
    let _place = files::transfer(app, visitor)?;
    let (reader, mut writer) = io::pipe()?;
    let (shared, app, user) = (app, app.clone(), visitor.user);
    let (answered, answer) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("upload".into()).spawn(move || {
        let command = format!("fs receive -u -x {} {}", MOUNTPOINT.row().name, spec.target.as_str());
        let request = StreamRequest::Receive(spec).into();
        let answer = app.executor(user, &command).call(&pool, request, Some(reader.into()), &mut |_| Ok(None));
        // The browser may be gone.
        let _ = answered.send(answer);
    })?;
    let (sender, mut pieces) = mpsc::channel::<axum::body::Bytes>(4);
    std::thread::Builder::new().name("upload-pipe".into()).spawn(move || {
        while let Some(piece) = pieces.blocking_recv() {
            if writer.write_all(&piece).is_err() {
                // The service has refused the rest; its answer says why.
                return;
            }
        }
    })?;
    let mut body = body.into_data_stream();
    while let Some(piece) = timeout(IDLE, body.next()).await.map_err(|_| Failure::new("the upload stands still"))? {
        let piece = piece.map_err(|error| Failure::new(format!("the upload broke off: {error}")))?;
        if !shared.tokens.is_open(&visitor.session) {
            return Err(Failure::new("the session has ended"));
        }
        if sender.send(piece).await.is_err() {
            break;
        }
    }
    drop(sender);
    match answer.await.map_err(|_| Failure::new("internal error in the web server"))?? {
        Answer::Received { records, .. } => {
            let names: Vec<&str> = records.iter().map(|record| record.received.as_str()).collect();
            Ok(format!("received {}, not mounted", names.join(", ")))
        }
        _ => Err(unexpected_answer()),
    }
}

//! Files of a dataset or a snapshot: browsing and downloading. For the owner, as on the command line.

use std::io::{self, Read};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dataset::name::Name;
use maud::{Markup, html};
use protocol::{EntryRecord, Failure, FileKind, FileRequest, Location, PathBytes};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::page::Page;
use super::{frame, parts};
use crate::app::App;
use crate::fields::{escape, unescape};
use crate::gate::Visitor;

/// Most entries of one page.
const MOST: usize = 5000;

/// Size of the pieces of a download, in bytes, and their number in memory.
const PIECE: usize = 64 << 10;
const PIECES: usize = 4;

/// A dataset or snapshot, and an escaped path.
#[derive(Deserialize)]
pub(crate) struct Place {
    at: String,
    #[serde(default)]
    path: String,
}

impl Place {
    fn location(&self) -> Result<Location, Failure> {
        let name: Name = self.at.parse().map_err(|error| Failure::cannot("open", &self.at, error))?;
        let path = unescape(&self.path).filter(|path| path.starts_with(b"/") && !path.contains(&0));
        let path = path.ok_or_else(|| Failure::cannot("open", &self.at, "the path is invalid"))?;
        Ok(Location { name, path: PathBytes(path) })
    }
}

/// The address of a directory's page. A query is decoded once, so the escaped path is escaped again.
pub(super) fn address(at: &str, path: &[u8]) -> String {
    format!("/files?at={}&path={}", escape(at.as_bytes()), escape(escape(path).as_bytes()))
}

fn download_address(at: &str, path: &[u8]) -> String {
    format!("/file?at={}&path={}", escape(at.as_bytes()), escape(escape(path).as_bytes()))
}

fn refused(visitor: &Visitor) -> Result<(), Failure> {
    match visitor.is_owner {
        true => Ok(()),
        false => Err(Failure::not_permitted().hint("use the mounted file system")),
    }
}

/// The page of a directory.
pub(crate) async fn show(State(app): State<Arc<App>>, visitor: Visitor, Query(place): Query<Place>) -> Page {
    let dataset = place.at.split('@').next().unwrap_or_default();
    let mut way = frame::way_to(dataset);
    if let Some((_, snapshot)) = place.at.split_once('@') {
        way.push((parts::snapshot_address(&place.at), snapshot.to_owned()));
    }
    way.push((String::new(), "files".to_owned()));
    let title = format!("Files of {}", place.at);
    match entries(&app, &visitor, &place).await {
        Ok((location, entries)) => {
            frame::page(&visitor, &title, &way, table(&visitor, &place.at, &location.path.0, &entries))
        }
        Err(failure) => frame::failed(&visitor, &title, &way, &failure),
    }
}

async fn entries(app: &Arc<App>, visitor: &Visitor, place: &Place) -> Result<(Location, Vec<EntryRecord>), Failure> {
    refused(visitor)?;
    let location = place.location()?;
    let request = FileRequest::Entries { location: location.clone(), directory_itself: false, recursive: false };
    let pool = location.name.pool().to_owned();
    Ok((location, app.list(visitor, &pool, request, MOST).await?))
}

fn table(visitor: &Visitor, at: &str, path: &[u8], entries: &[EntryRecord]) -> Markup {
    let base = path.strip_suffix(b"/").unwrap_or(path);
    let below = |name: &[u8]| [base, b"/", name].concat();
    let above = base.iter().rposition(|byte| *byte == b'/').map(|end| &base[..end.max(1)]);
    let is_snapshot = at.contains('@');
    html! {
        p { "Directory " code { (String::from_utf8_lossy(path)) } }
        @if let Some(above) = above { p { a href=(address(at, above)) { "Up" } } }
        @if entries.len() >= MOST { p { "The first " (MOST) " entries." } }
        @if entries.is_empty() { p { "The directory is empty." } } @else {
            div.wide { table {
                thead { tr { @for head in ["Name", "Size", "Changed", "Mode", ""] { th scope="col" { (head) } } } }
                tbody {
                    @for entry in entries {
                        @let full = below(&entry.name.0);
                        @let name = entry.name.to_text();
                        tr {
                            th scope="row" {
                                @match entry.kind {
                                    FileKind::Directory => { (parts::icon("folder")) a href=(address(at, &full)) { (name) "/" } },
                                    FileKind::File => { (parts::icon("file")) a href=(download_address(at, &full)) { (name) } },
                                    _ => (name),
                                }
                                @if let Some(target) = &entry.target { " → " (target.to_text()) }
                            }
                            td { @if entry.kind == FileKind::File { (parts::bytes(entry.size)) } }
                            td { (parts::time(entry.modified.0)) }
                            td { code { (format!("{:04o}", entry.mode & 0o7777)) } }
                            td {
                                @if is_snapshot {
                                    (parts::button(visitor, "restore", &[("snapshot", at), ("path", &escape(&full))], "Restore"))
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

/// The content of a file, as a download.
pub(crate) async fn download(State(app): State<Arc<App>>, visitor: Visitor, Query(place): Query<Place>) -> Response {
    let opened = refused(&visitor).and_then(|()| place.location());
    let location = match opened {
        Ok(location) => location,
        Err(failure) => return frame::failed(&visitor, "File", &[frame::pools()], &failure).into_response(),
    };
    let name = location.path.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    let pool = location.name.pool().to_owned();
    let request = FileRequest::Read { location };
    match piped(&app, &visitor, &pool, request.into()).await {
        Ok(body) => attachment(&name, body),
        Err(failure) => frame::failed(&visitor, "File", &[frame::pools()], &failure).into_response(),
    }
}

/// A response that the browser saves under a name. The escaped name is safe in a header.
pub(super) fn attachment(name: &[u8], body: Body) -> Response {
    let disposition = format!("attachment; filename*=UTF-8''{}", escape(name));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_DISPOSITION, HeaderValue::try_from(disposition).expect("the name is escaped")),
    ];
    (StatusCode::OK, headers, body).into_response()
}

/// The bytes that a request writes to its stream, as the body of a response. A failure before the first byte fails the
/// request; a later failure breaks the download off, so that the browser reports it.
pub(crate) async fn piped(
    app: &Arc<App>,
    visitor: &Visitor,
    pool: &str,
    request: protocol::Request,
) -> Result<Body, Failure> {
    let (mut reader, writer) = io::pipe()?;
    let (sender, mut receiver) = mpsc::channel::<io::Result<Vec<u8>>>(PIECES);
    let (app, user, pool) = (app.clone(), visitor.user, pool.to_owned());
    let asking = std::thread::Builder::new().name("download".into()).spawn(move || {
        app.executor(user, "pool web").call(&pool, request, Some(writer.into()), &mut |_| Ok(None)).map(drop)
    })?;
    spawn_blocking(move || {
        let mut piece = vec![0; PIECE];
        loop {
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    if sender.blocking_send(Ok(piece[..count].to_vec())).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    let _ = sender.blocking_send(Err(error));
                    return;
                }
            }
        }
        let end = asking.join().unwrap_or_else(|_| Err(Failure::new("internal error in the web server")));
        if let Err(failure) = end {
            // The receiver is gone if the browser left.
            let _ = sender.blocking_send(Err(io::Error::other(failure)));
        }
    });
    let first = match receiver.recv().await {
        None => return Ok(Body::empty()),
        Some(Err(error)) => return Err(failure_of(error)),
        Some(Ok(first)) => first,
    };
    let first = futures_util::stream::once(async { Ok::<_, io::Error>(first) });
    let rest = futures_util::stream::unfold(receiver, |mut receiver| async {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    Ok(Body::from_stream(futures_util::StreamExt::chain(first, rest)))
}

fn failure_of(error: io::Error) -> Failure {
    match error.downcast::<Failure>() {
        Ok(failure) => failure,
        Err(error) => error.into(),
    }
}

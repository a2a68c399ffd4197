//! Files of a dataset or a snapshot: browsing and downloading. For the owner, as on the command line.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dataset::name::Name;
use maud::{Markup, html};
use protocol::{EntryRecord, Failure, FileKind, FileRequest, Location, PathBytes};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::page::Page;
use super::{frame, parts};
use crate::app::App;
use crate::fields::{escape, unescape};
use crate::gate::Visitor;
use crate::quota::{Lasting, Place as Share};

/// Most entries of one page.
const MOST: usize = 5000;

/// Size of the pieces of a download, in bytes.
const PIECE: usize = 64 << 10;

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
    let mut way = frame::way_to(&place.at);
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
    Ok((location, app.list(visitor, &pool, request, (MOST, Some)).await?))
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
                thead { tr { @for head in ["Name", "Size", "Changed", "Mode", "Restore"] { th scope="col" { (head) } } } }
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
                            td.nowrap { (parts::time(entry.modified.0)) }
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

/// A place for a download or an upload of the user.
pub(super) fn transfer(app: &App, visitor: &Visitor) -> Result<Share, Failure> {
    let place = app.quota.enter(Lasting::Transfer, visitor.other());
    place.ok_or_else(|| Failure::new("too many downloads and uploads of this user are in progress"))
}

/// The bytes that a request writes to its stream, as the body of a response. A failure before the first byte fails the
/// request; a later failure breaks the download off, so that the browser reports it. A browser that leaves closes the
/// pipe, which ends the request.
pub(super) async fn piped(
    app: &Arc<App>,
    visitor: &Visitor,
    pool: &str,
    request: protocol::Request,
) -> Result<Body, Failure> {
    let place = transfer(app, visitor)?;
    let (reader, writer) = io::pipe()?;
    let reader = pipe::Receiver::from_owned_fd(reader.into())?;
    let (ended, end) = oneshot::channel();
    let (shared, user, pool) = (app.clone(), visitor.user, pool.to_owned());
    let app = shared.clone();
    std::thread::Builder::new().name("download".into()).spawn(move || {
        let done = app.executor(user, "pool web").call(&pool, request, Some(writer.into()), &mut |_| Ok(None));
        // The browser may have left.
        let _ = ended.send(done.map(drop));
    })?;
    let (watched, session) = (shared, visitor.session.clone());
    let mut download = Download { reader, end: Some(end), app: watched, session, _place: place };
    let Some(first) = download.next().await else { return Ok(Body::empty()) };
    let first = first.map_err(failure_of)?;
    let first = futures_util::stream::once(async { Ok::<_, io::Error>(first) });
    let rest = futures_util::stream::unfold(download, |mut download| async {
        let piece = download.next().await?;
        Some((piece, download))
    });
    Ok(Body::from_stream(futures_util::StreamExt::chain(first, rest)))
}

/// A download under way.
struct Download {
    reader: pipe::Receiver,
    /// The result of the request, until read.
    end: Option<oneshot::Receiver<Result<(), Failure>>>,
    app: Arc<App>,
    /// The session of the user: the download ends with the session.
    session: String,
    _place: Share,
}

impl Download {
    /// The next piece, or the failure of the request; `None` at the end.
    async fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        if !self.app.tokens.is_open(&self.session) {
            return Some(Err(io::Error::other(Failure::new("the session has ended"))));
        }
        let mut piece = Vec::with_capacity(PIECE);
        match self.reader.read_buf(&mut piece).await {
            Ok(0) => {}
            Ok(_) => return Some(Ok(piece)),
            Err(error) => return Some(Err(error)),
        }
        match self.end.take()?.await {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(Err(io::Error::other(failure))),
            Err(_) => Some(Err(io::Error::other(Failure::new("internal error in the web server")))),
        }
    }
}

fn failure_of(error: io::Error) -> Failure {
    match error.downcast::<Failure>() {
        Ok(failure) => failure,
        Err(error) => error.into(),
    }
}

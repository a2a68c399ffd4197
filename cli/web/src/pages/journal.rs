//! The history and the events of a pool.

use std::sync::Arc;

use axum::extract::{Path, State};
use maud::html;
use protocol::{PoolRequest, Response};

use super::page::Page;
use super::{frame, parts, pool};
use crate::app::App;
use crate::gate::Visitor;

/// Most lines of one page, newest first.
const MOST: usize = 2000;

/// The commands that changed a pool.
pub(crate) async fn history(State(app): State<Arc<App>>, visitor: Visitor, Path(name): Path<String>) -> Page {
    let mut way = pool::way(&name);
    way.push((String::new(), "history".to_owned()));
    let title = format!("History of {name}");
    let pick = |response| if let Response::History(lines) = response { Some(lines) } else { None };
    let lines = match app.ask(&visitor, &name, PoolRequest::History { internal: false }, pick).await {
        Ok(lines) => lines,
        Err(failure) => return frame::failed(&visitor, &title, &way, &failure),
    };
    let content = html! {
        div.wide { table {
            thead { tr { @for head in ["Time", "Command", "User"] { th scope="col" { (head) } } } }
            tbody {
                @for line in lines.iter().rev().take(MOST) {
                    tr {
                        td.nowrap { (parts::time(line.time)) }
                        td { code { (line.text) } }
                        td { @if let Some((user, host)) = &line.user { (app.name_of(*user)) " on " (host) } }
                    }
                }
            }
        } }
    };
    frame::page(&visitor, &title, &way, content)
}

/// The events of a pool.
pub(crate) async fn events(State(app): State<Arc<App>>, visitor: Visitor, Path(name): Path<String>) -> Page {
    let mut way = pool::way(&name);
    way.push((String::new(), "events".to_owned()));
    let title = format!("Events of {name}");
    let pick = |response| if let Response::Events(events) = response { Some(events) } else { None };
    let events = match app.ask(&visitor, &name, PoolRequest::Events { after: 0 }, pick).await {
        Ok(events) => events,
        Err(failure) => return frame::failed(&visitor, &title, &way, &failure),
    };
    let content = html! {
        @if events.is_empty() { p { "No events." } }
        ul.events {
            @for event in events.iter().rev().take(MOST) {
                li {
                    details {
                        summary { (parts::time(event.time / 1_000_000_000)) " " code { (event.class) } }
                        dl.facts { @for (name, value) in &event.details { dt { (name) } dd { (value) } } }
                    }
                }
            }
        }
    };
    frame::page(&visitor, &title, &way, content)
}

//! Running commands and their output.

use std::sync::Arc;

use axum::extract::{Path, State};
use maud::{Markup, html};
use protocol::{Exit, Failure};

use super::page::Page;
use super::{frame, parts};
use crate::app::App;
use crate::gate::Visitor;
use crate::tasks::{Task, Transfer};

fn way() -> Vec<frame::Step> {
    vec![("/tasks".to_owned(), "Commands".to_owned())]
}

/// The commands of a user, newest first.
pub(crate) async fn list(State(app): State<Arc<App>>, visitor: Visitor) -> Page {
    let tasks = app.tasks.of(visitor.user, visitor.is_owner);
    let content = html! {
        @if tasks.is_empty() { p { "No command was run from this page." } }
        ul.tasks {
            @for task in &tasks {
                li {
                    a href=(format!("/task/{}", task.number)) { code { (task.command) } }
                    " " (ended(task)) " " (parts::age(task.begun as i64)) " by " (app.name_of(task.user))
                }
            }
        }
    };
    frame::page(&visitor, "Commands", &way(), content)
}

/// The page of a command.
pub(crate) async fn show(State(app): State<Arc<App>>, visitor: Visitor, Path(number): Path<u64>) -> Page {
    let mut way = way();
    way.push((format!("/task/{number}"), format!("command {number}")));
    let Some(task) = app.tasks.get(number, visitor.user, visitor.is_owner) else {
        let failure = Failure::cannot("show", number, "no such command");
        return frame::failed(&visitor, "Command", &way, &failure);
    };
    let content = html! {
        (parts::command(&task.command))
        div data-live=(format!("/live/task/{number}")) { (fragment(&task)) }
        p { a.button href=(task.back) { "Continue" } }
    };
    frame::page(&visitor, "Command", &way, content)
}

/// The part that is kept up to date.
pub(crate) fn fragment(task: &Task) -> Markup {
    let state = task.state();
    html! {
        p {
            (ended(task))
            @if let Some((_, seconds)) = state.end { " after " (format!("{seconds:.1}")) " s" }
        }
        @if let Some(transfer) = &state.progress { (progress(transfer)) }
        @if !state.output.is_empty() { pre.output { (String::from_utf8_lossy(&state.output)) } }
    }
}

/// A bar with rate and remaining time; without a bar if the size is unknown.
fn progress(transfer: &Transfer) -> Markup {
    html! {
        p.job {
            @if let Some(total) = transfer.total.map(|total| total.max(transfer.bytes)) {
                @let percent = parts::percent(transfer.bytes, total);
                progress max="100" value=(percent) aria-label="Progress" { (percent) "%" }
                " " (parts::bytes(transfer.bytes)) " of " (parts::bytes(total)) ", " (percent) "%"
            } @else { (parts::bytes(transfer.bytes)) }
            " at " (parts::rate(transfer.rate as f64))
            @if let Some(left) = transfer.left().filter(|left| *left > 0) { ", " (parts::duration(left)) " left" }
        }
    }
}

fn ended(task: &Task) -> Markup {
    let (class, sign, word) = match task.state().end {
        None => ("idle", "…", "running"),
        Some((Exit::Done, _)) => ("good", "✓", "done"),
        Some((Exit::Damage, _)) => ("warn", "!", "done, and found damage"),
        Some(_) => ("bad", "✗", "failed"),
    };
    html! { span class=(format!("state {class}")) { span aria-hidden="true" { (sign) } " " (word) } }
}

//! The overview: every pool with health, usage, throughput, jobs, and what needs attention.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use protocol::{Executor, PoolStatus};

use super::page::Page;
use super::{frame, parts, pool};
use crate::app::App;
use crate::gate::Visitor;
use crate::watch::{Seen, Sight};

/// The page of all pools.
pub(crate) async fn show(State(app): State<Arc<App>>, visitor: Visitor) -> Page {
    let content = html! {
        div data-live="/live/overview" { (fragment(&app, visitor.is_owner)) }
        @if visitor.is_owner && !visitor.read_only {
            p.actions { a.button href="/new" { "Create a pool" } " " a.button href="/import" { "Import a pool" } " " a.button href="/plan" { "Compare layouts" } }
        }
    };
    frame::page(&visitor, "Pools", &[frame::pools()], content)
}

/// The part that is kept up to date.
pub(crate) fn fragment(app: &App, is_owner: bool) -> Markup {
    let pools = app.watch.all();
    let attention: Vec<(String, String, Option<String>)> =
        pools.iter().flat_map(|(name, seen)| needs(name, seen, is_owner)).collect();
    html! {
        @if pools.is_empty() {
            p { "This machine has no pools yet." }
        }
        section aria-labelledby="attention" {
            h2 id="attention" { "Needs attention" }
            @if attention.is_empty() {
                p { (parts::sign(true)) " Nothing needs attention." }
            } @else {
                ul.attention {
                    @for (pool, problem, action) in &attention {
                        li.message.bad {
                            p { a href=(format!("/pool/{pool}")) { strong { (pool) } } ": " (problem) }
                            @if let Some(action) = action { p { (action) } }
                        }
                    }
                }
            }
        }
        @if !pools.is_empty() {
            section aria-labelledby="all" {
                h2 id="all" { "All pools" }
                div.cards {
                    @for (name, seen) in &pools { (card(name, seen, is_owner)) }
                }
            }
        }
    }
}

/// The problems of a pool, each with its remedy.
fn needs(name: &str, seen: &Seen, is_owner: bool) -> Vec<(String, String, Option<String>)> {
    if let Some(silence) = seen.silence() {
        let problem = format!("its service has not answered for {} s.", silence.as_secs().max(1));
        return vec![(name.to_owned(), problem, Some(format!("To see its state, type: pool status {name}")))];
    }
    let sight = seen.sight();
    let failure = sight.failure_for(is_owner).map(|failure| (failure.to_string(), failure.hint.clone())).into_iter();
    let alerts = sight.status_for(is_owner).into_iter().flat_map(|status| status.alerts.clone());
    failure
        .chain(alerts.map(|alert| (alert.problem, Some(alert.action))))
        .map(|(problem, action)| (name.to_owned(), problem, action))
        .collect()
}

fn card(name: &str, seen: &Seen, is_owner: bool) -> Markup {
    let sight = seen.sight();
    let state = match (&sight.status, seen.silence()) {
        (Some(status), None) => status.state,
        _ => protocol::State::Unknown,
    };
    html! {
        article.card aria-label=(format!("Pool {name}")) {
            h3 { (parts::icon("pool")) a href=(format!("/pool/{name}")) { (name) } " " (parts::state(state)) }
            (usage(&sight))
            @if let Some(status) = &sight.status { (parts::classes(&status.vdevs)) }
            @if let (true, Some(rates)) = (is_owner, &sight.rates) {
                p { "Reads " (parts::rate(rates.pool.read)) ", writes " (parts::rate(rates.pool.written)) }
            }
            @if let Some(status) = &sight.status { (jobs(status)) }
            p { a href=(parts::dataset_address(name)) { "Datasets" } }
        }
    }
}

/// The used space of a pool.
pub(super) fn usage(sight: &Sight) -> Markup {
    let number = |name: &str| {
        let record = sight.pool.as_ref()?;
        record.properties.iter().find(|property| property.name == name)?.value.parse::<u64>().ok()
    };
    html! {
        @if let (Some(size), Some(allocated)) = (number("size"), number("allocated")) {
            (parts::usage(allocated, size))
        }
    }
}

/// The running jobs of a pool, in one line each.
fn jobs(status: &PoolStatus) -> Markup {
    html! {
        @for job in status.jobs.iter().filter(|job| pool::is_under_way(job)) {
            p { (pool::progress(job)) }
        }
    }
}

/// Whether the machine knows the pool, for a page about an unknown pool.
pub(super) fn is_known(executor: &mut dyn Executor, pool: &str) -> bool {
    executor.known_pools().is_ok_and(|pools| pools.iter().any(|name| name == pool))
}

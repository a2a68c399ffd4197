//! One pool: its devices, throughput, jobs and properties.

use std::sync::Arc;

use ::dataset::jobs::{JobRecord, JobState, Kind};
use axum::extract::{Path, State};
use maud::{Markup, html};
use protocol::{Failure, PoolRecord, PoolRequest, PoolStatus, Response, State as Health, VdevRecord, VdevRole};

use super::page::Page;
use super::{chart, dataset, drawing, frame, overview, parts};
use crate::app::App;
use crate::gate::Visitor;

/// The page of a pool.
pub(crate) async fn show(State(app): State<Arc<App>>, visitor: Visitor, Path(pool): Path<String>) -> Page {
    let way = way(&pool);
    if app.watch.get(&pool).is_none() {
        let name = pool.clone();
        let known = app.with(&visitor, &pool, move |executor, _| Ok(overview::is_known(executor, &name))).await;
        if !known.unwrap_or(false) {
            return frame::failed(&visitor, &pool, &way, &Failure::no_pool(&pool));
        }
    }
    let request = PoolRequest::Pool { properties: Vec::new(), vdevs: false };
    let pick = |response| if let Response::Pool(record) = response { Some(record) } else { None };
    let properties = match app.ask(&visitor, &pool, request, pick).await {
        Ok(record) => properties(&visitor, &record),
        Err(failure) => frame::message(&failure),
    };
    let status = app.watch.get(&pool).and_then(|seen| seen.sight().status.clone());
    let content = html! {
        nav.tabs aria-label="Pool" {
            a href=(parts::dataset_address(&pool)) { "Datasets" }
            @if visitor.is_owner {
                a href=(format!("/pool/{pool}/history")) { "History" }
                a href=(format!("/pool/{pool}/events")) { "Events" }
            }
        }
        div data-live=(format!("/live/pool/{pool}")) { (fragment(&app, &pool, visitor.is_owner)) }
        (controls(&visitor, &pool, status.as_deref()))
        section aria-labelledby="properties" {
            h2 id="properties" { "Properties" }
            (properties)
        }
    };
    frame::page(&visitor, &format!("Pool {pool}"), &way, content)
}

pub(super) fn way(pool: &str) -> Vec<frame::Step> {
    vec![frame::pools(), (format!("/pool/{pool}"), pool.to_owned())]
}

/// The part that is kept up to date.
pub(crate) fn fragment(app: &App, pool: &str, is_owner: bool) -> Markup {
    let Some(seen) = app.watch.get(pool) else {
        return html! { p { "The pool is being opened." } };
    };
    let sight = seen.sight();
    html! {
        @if let Some(silence) = seen.silence() {
            div.message.bad {
                p { strong { "The service of this pool has not answered for " (silence.as_secs().max(1)) " s." } }
                p { "What follows is the last known state." }
            }
        }
        @if let Some(failure) = sight.failure_for(is_owner) { (frame::message(&failure)) }
        @match sight.status_for(is_owner) {
            Some(status) => (health(status, &overview::usage(&sight))),
            None => p { "The first look at the pool is in progress." },
        }
        @if let Some(status) = sight.status_for(is_owner) {
            section aria-labelledby="devices" {
                h2 id="devices" { "Devices" }
                (drawing::devices(status, sight.rates.as_deref().filter(|_| is_owner), is_owner))
            }
            section aria-labelledby="jobs" {
                h2 id="jobs" { "Jobs" }
                (jobs(status))
            }
        }
        @if is_owner {
            section aria-labelledby="throughput" {
                h2 id="throughput" { "The last hour" }
                (chart::last_hour(&seen.points()))
            }
        }
    }
}

fn health(status: &PoolStatus, usage: &Markup) -> Markup {
    html! {
        div.health {
            p { (parts::state(status.state)) }
            (usage)
        }
        div.classes { (parts::classes(&status.vdevs)) }
        @if let Some(text) = &status.status {
            div.message.bad { p { (text) } @if let Some(action) = &status.action { p { strong { "What to do: " } (action) } } }
        }
        @if let Some(damaged) = status.damaged.as_ref().filter(|damaged| !damaged.is_empty()) {
            details {
                summary { (damaged.len()) " damaged files or objects" }
                ul { @for what in damaged.iter().take(1000) { li { code { (what) } } } }
            }
        }
        @if let Some(activity) = &status.activity { p { (activity) } }
    }
}

/// Whether a job works, waits or is paused.
pub(super) fn is_under_way(job: &JobRecord) -> bool {
    matches!(job.state, JobState::Running | JobState::Waiting(_) | JobState::Paused)
}

/// The name of a kind of job.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Resilver => "Resilver",
        Kind::Remove => "Removal",
        Kind::Rebalance => "Rebalance",
        Kind::Resize => "Resize",
        Kind::Defragment => "Defragmentation",
        Kind::Expand => "RAID-Z expansion",
        Kind::Scrub => "Scrub",
        Kind::Trim => "Trim",
        Kind::Initialize => "Initialization",
        #[allow(unreachable_patterns, reason = "further kinds of jobs need no name of their own here")]
        _ => "Job",
    }
}

/// One line about a job, with a bar.
pub(super) fn progress(job: &JobRecord) -> Markup {
    let percent = parts::percent(job.done, job.total);
    let left = job.total.saturating_sub(job.done).checked_div(job.rate);
    html! {
        span.job {
            (name(job.kind)) ": "
            @match &job.state {
                JobState::Running => {
                    progress max="100" value=(percent) aria-label=(name(job.kind)) { (percent) "%" }
                    " " (parts::bytes(job.done)) " of " (parts::bytes(job.total)) " at " (parts::rate(job.rate as f64))
                    @if let Some(left) = left.filter(|_| job.total > job.done) { ", " (parts::duration(left)) " left" }
                },
                JobState::Paused => { "paused at " (percent) "%" },
                JobState::Waiting(_) => { "waits at " (percent) "%" },
                JobState::Finished => {
                    "finished " (parts::age(job.ended / 1_000_000_000)) ", repaired " (parts::bytes(job.repaired))
                    " with " (job.errors) " errors"
                },
                JobState::Canceled => { "canceled " (parts::age(job.ended / 1_000_000_000)) },
                JobState::Failed(_) => { "failed " (parts::age(job.ended / 1_000_000_000)) },
            }
        }
    }
}

fn jobs(status: &PoolStatus) -> Markup {
    html! {
        @if status.jobs.is_empty() { p { "No job has run." } }
        ul.jobs { @for job in &status.jobs { li { (progress(job)) } } }
    }
}

/// Jobs with buttons: kind, name for the reader, and the changes that start, pause and stop the job.
const CONTROLS: [(Kind, &str, [&str; 3]); 5] = [
    (Kind::Scrub, "scrub", ["scrub", "scrub-pause", "scrub-stop"]),
    (Kind::Trim, "trim", ["trim", "trim-pause", "trim-stop"]),
    (Kind::Initialize, "initialization", ["initialize", "initialize-pause", "initialize-stop"]),
    (Kind::Rebalance, "rebalance", ["rebalance", "rebalance-pause", "rebalance-stop"]),
    (Kind::Defragment, "defragmentation", ["defragment", "defragment-pause", "defragment-stop"]),
];

/// Buttons for jobs: a job under way can be paused and stopped, and any other started.
fn job_controls(visitor: &Visitor, pool: &str, jobs: &[JobRecord]) -> Markup {
    let state = |kind: Kind| jobs.iter().find(|job| job.kind == kind && is_under_way(job)).map(|job| &job.state);
    let hidden = [("pool", pool)];
    html! {
        div.actions {
            @match state(Kind::Remove) {
                None => {},
                Some(JobState::Paused) => (parts::button(visitor, "remove-stop", &hidden, "Stop removal")),
                Some(_) => {
                    (parts::button(visitor, "remove-pause", &hidden, "Pause removal"))
                    (parts::button(visitor, "remove-stop", &hidden, "Stop removal"))
                },
            }
            @for (kind, name, [start, pause, stop]) in CONTROLS {
                @match state(kind) {
                    None => (parts::button(visitor, start, &hidden, &format!("Start {name}"))),
                    Some(JobState::Paused) => {
                        (parts::button(visitor, start, &hidden, &format!("Resume {name}")))
                        (parts::button(visitor, stop, &hidden, &format!("Stop {name}")))
                    },
                    Some(_) => {
                        (parts::button(visitor, pause, &hidden, &format!("Pause {name}")))
                        (parts::button(visitor, stop, &hidden, &format!("Stop {name}")))
                    },
                }
            }
        }
    }
}

/// Buttons that change the pool.
fn controls(visitor: &Visitor, pool: &str, status: Option<&PoolStatus>) -> Markup {
    let jobs = status.map_or(&[][..], |status| &status.jobs);
    let hidden = [("pool", pool)];
    html! {
        @if parts::is_offered(visitor, "scrub") {
            section aria-labelledby="controls" {
                h2 id="controls" { "Control jobs" }
                (job_controls(visitor, pool, jobs))
            }
            section aria-labelledby="change" {
                h2 id="change" { "Change the pool" }
                div.actions {
                    (parts::button(visitor, "clear", &hidden, "Clear errors"))
                    (parts::button(visitor, "export", &hidden, "Export"))
                    (parts::button(visitor, "destroy-pool", &hidden, "Destroy"))
                }
                (parts::form(visitor, "add", &hidden, html! {
                    (parts::field("add-vdevs", "Add devices, for example: mirror /dev/sdd /dev/sde, or: spare /dev/sdf",
                        html! { input id="add-vdevs" name="vdevs" required spellcheck="false"; }))
                    button { "Add" }
                }))
                @if let Some(status) = status { (removal(visitor, pool, status)) }
            }
        }
    }
}

/// A form for removing a vdev, a cache device or an idle spare. The last vdev for data stays.
fn removal(visitor: &Visitor, pool: &str, status: &PoolStatus) -> Markup {
    let data = status.vdevs.iter().filter(|vdev| vdev.role == VdevRole::Normal).count();
    let vdevs = status.vdevs.iter().filter(|vdev| vdev.role != VdevRole::Normal || data > 1);
    let vdevs = vdevs.map(|vdev| (parts::class(vdev.role), vdev));
    let idle = status.spares.iter().filter(|spare| spare.state == Health::Avail).map(|spare| ("Spare", spare));
    let all: Vec<(&str, &VdevRecord)> = vdevs.chain(idle).collect();
    html! {
        @if !all.is_empty() {
            (parts::form(visitor, "remove", &[("pool", pool)], html! {
                (parts::field("remove-device", "Remove a vdev, cache device or spare; the next page shows what would be moved", html! {
                    select id="remove-device" name="device" {
                        @for (class, vdev) in &all { option value=(vdev.path) { (class) ": " (vdev.path) } }
                    }
                }))
                button { "Remove" }
            }))
        }
    }
}

/// The pool's properties; features stand behind a fold.
fn properties(visitor: &Visitor, record: &PoolRecord) -> Markup {
    let (features, plain): (Vec<_>, Vec<_>) =
        record.properties.iter().partition(|property| property.name.starts_with("feature@"));
    html! {
        (dataset::property_table(visitor, "set-pool", &[("pool", &record.name)], &plain, true))
        details {
            summary { (features.len()) " features" }
            ul.features { @for feature in &features { li { (feature.name.trim_start_matches("feature@")) ": " (feature.value) } } }
        }
    }
}

//! One snapshot: browsing, rollback, clone, holds, send.

use std::sync::Arc;

use axum::extract::{Path, State};
use dataset::name::SnapshotName;
use dataset::property::Kinds;
use dataset::property::dataset::{CREATION, USED};
use maud::{Markup, html};
use protocol::{DatasetRecord, DatasetRequest, Failure, Response};

use super::dataset::number;
use super::page::Page;
use super::{dataset as dataset_page, files, frame, parts, streams};
use crate::app::App;
use crate::gate::Visitor;

/// The page of a snapshot.
pub(crate) async fn show(State(app): State<Arc<App>>, visitor: Visitor, Path(name): Path<String>) -> Page {
    let mut way = frame::way_to(&name);
    way.push((parts::snapshot_address(&name), name.rsplit('@').next().unwrap_or_default().to_owned()));
    match content(&app, &visitor, &name).await {
        Ok(content) => frame::page(&visitor, &name, &way, content),
        Err(failure) => frame::failed(&visitor, &name, &way, &failure),
    }
}

async fn content(app: &Arc<App>, visitor: &Visitor, name: &str) -> Result<Markup, Failure> {
    let snapshot: SnapshotName = name.parse().map_err(|error| Failure::cannot("show", name, error))?;
    let list = DatasetRequest::List {
        root: Some(snapshot.clone().into()),
        depth: Some(0),
        kinds: Kinds::SNAPSHOT,
        properties: Vec::new(),
        range: None,
    };
    let dataset = snapshot.dataset();
    let own: Vec<DatasetRecord> = app.list(visitor, dataset.pool(), list, (1, Some)).await?;
    let own = own.into_iter().next().ok_or_else(|| Failure::no_dataset(name))?;
    let request = DatasetRequest::Holds { names: vec![snapshot.clone()], recursive: false };
    let pick = |response| if let Response::Holds(holds) = response { Some(holds) } else { None };
    // Holds are shown only to users with the permission.
    let holds = app.ask(visitor, dataset.pool(), request, pick).await.unwrap_or_default();
    Ok(html! {
        dl.facts {
            dt { "Taken" } dd { (parts::time(number(&own, CREATION.name) as i64)) " (" (parts::age(number(&own, CREATION.name) as i64)) ")" }
            dt { "Holds alone" } dd { (parts::bytes(number(&own, USED.name))) }
            dt { "Referenced" } dd { (parts::bytes(number(&own, "referenced"))) }
            @if !holds.is_empty() {
                dt { "Held by" }
                dd { @for hold in &holds { code { (hold.tag) } " (" (parts::time(hold.time)) ") " } }
            }
        }
        div.actions {
            @if visitor.is_owner { a.button href=(files::address(name, b"/")) { "Browse files" } }
        }
        (controls(visitor, name, dataset.as_str()))
        (streams::send_forms(visitor, name))
        section aria-labelledby="properties" {
            h2 id="properties" { "Properties" }
            (dataset_page::property_table(visitor, "set", &[("dataset", name)], &own.properties.iter().collect::<Vec<_>>(), false))
        }
    })
}

fn controls(visitor: &Visitor, name: &str, dataset: &str) -> Markup {
    let hidden = [("snapshot", name), ("dataset", dataset)];
    html! {
        @if !visitor.read_only {
            section aria-labelledby="change" {
                h2 id="change" { "Change" }
                (parts::form(visitor, "rollback", &hidden, html! {
                    label { input type="checkbox" name="recursive"; " destroy newer snapshots too" }
                    button { "Roll back to this snapshot" }
                }))
                (parts::form(visitor, "clone", &hidden, html! {
                    (parts::field("clone-to", "Name of the clone", html! { input id="clone-to" name="to" value=(format!("{dataset}-clone")) required spellcheck="false"; }))
                    button { "Clone" }
                }))
                (parts::form(visitor, "hold", &hidden, html! {
                    (parts::field("hold-tag", "New hold with the tag", html! { input id="hold-tag" name="tag" required spellcheck="false"; }))
                    button { "Hold" }
                }))
                (parts::form(visitor, "release", &hidden, html! {
                    (parts::field("release-tag", "Hold to release, by its tag", html! { input id="release-tag" name="tag" required spellcheck="false"; }))
                    button { "Release" }
                }))
                (parts::form(visitor, "destroy-snapshot", &hidden, html! {
                    label { input type="checkbox" name="recursive"; " of the same name below too" }
                    button { "Destroy this snapshot" }
                }))
            }
        }
    }
}

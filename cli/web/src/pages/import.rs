//! Pools on devices and in folders, and the import of a pool.

use std::sync::Arc;

use axum::extract::{Query, State as Shared};
use maud::{Markup, html};
use protocol::{Failure, FoundVdev, HostRequest, HostResponse, ImportablePool, PathBytes, Wanted, unexpected_answer};
use serde::Deserialize;

use super::page::Page;
use super::{frame, parts};
use crate::app::App;
use crate::gate::Visitor;

/// Most pools of one page.
const MOST: usize = 200;

/// The fields of a search.
#[derive(Default, Deserialize)]
pub(crate) struct Search {
    /// A folder with images, or a device; empty for the disks of the machine.
    #[serde(default)]
    folder: String,
    /// Destroyed pools instead of exported pools.
    #[serde(default)]
    destroyed: String,
}

/// Boxes of an import: name, and text.
const BOXES: [(&str, &str); 5] = [
    ("read-only", "read only"),
    ("no-mount", "do not mount"),
    ("force", "even if another host seems to use the pool"),
    ("without-log", "without missing log devices; the last synchronous writes are lost"),
    ("rewind", "rewind to the newest readable state; the next page shows the loss"),
];

/// The page of pools found.
pub(crate) async fn show(Shared(app): Shared<Arc<App>>, visitor: Visitor, Query(search): Query<Search>) -> Page {
    let way = [frame::pools(), ("/import".to_owned(), "Import".to_owned())];
    if !visitor.is_owner {
        let refused = Failure::not_permitted().hint("the owner of the pools imports pools");
        return frame::failed(&visitor, "Import a pool", &way, &refused);
    }
    let found = match find(&app, &visitor, &search).await {
        Ok(pools) => list(&visitor, &search, &pools),
        Err(failure) => frame::message(&failure),
    };
    let content = html! {
        form.change method="get" action="/import" {
            (parts::field("folder", "Folder with images, or a device (empty for the disks of this machine)", html! {
                input id="folder" name="folder" value=(search.folder) placeholder="/var/lib" spellcheck="false";
            }))
            label { input type="checkbox" name="destroyed" checked[!search.destroyed.is_empty()]; " destroyed pools" }
            button { "Search" }
        }
        section aria-labelledby="found" { h2 id="found" { "Pools found" } (found) }
    };
    frame::page(&visitor, "Import a pool", &way, content)
}

async fn find(app: &Arc<App>, visitor: &Visitor, search: &Search) -> Result<Vec<ImportablePool>, Failure> {
    let wanted = if search.destroyed.is_empty() { Wanted::Living } else { Wanted::Destroyed };
    let places = match search.folder.trim() {
        "" => Vec::new(),
        path if path.starts_with('/') => vec![PathBytes(path.as_bytes().to_vec())],
        path => return Err(Failure::usage(format!("'{path}' is no absolute path"))),
    };
    let (shared, user) = (app.clone(), visitor.user);
    // A search reads devices, and belongs to no pool.
    let searched = move |_: &mut dyn protocol::Executor, _: &str| {
        let request = HostRequest::Importable { search: places, wanted };
        match shared.executor(user, "pool import").host(request, &mut |_| Ok(None))? {
            HostResponse::Importable(pools) => Ok(pools),
            _ => Err(unexpected_answer()),
        }
    };
    app.with(visitor, "", searched).await
}

fn list(visitor: &Visitor, search: &Search, pools: &[ImportablePool]) -> Markup {
    html! {
        @if pools.is_empty() { p { "No pool was found. Imported pools are on the page " a href="/" { "Pools" } "." } }
        @for (number, pool) in pools.iter().take(MOST).enumerate() {
            article.card aria-label=(format!("Pool {}", pool.name)) {
                h3 { (parts::icon("pool")) (pool.name) " " (parts::state(pool.state)) @if pool.is_destroyed { " destroyed" } }
                p { "GUID " code { (pool.guid) } }
                @if let Some(status) = &pool.status { div.message.bad { p { (status) } } }
                p { (pool.action) }
                ul.found { @for vdev in pool.vdevs.iter().chain(&pool.spares) { (device(vdev)) } }
                (import(visitor, search, number, pool))
            }
        }
    }
}

/// A line of the layout.
fn device(vdev: &FoundVdev) -> Markup {
    html! {
        li class=(format!("depth-{}", vdev.depth.min(3))) {
            code { (vdev.name) }
            @if let Some(state) = vdev.state { " " (parts::state(state)) }
        }
    }
}

fn import(visitor: &Visitor, search: &Search, number: usize, pool: &ImportablePool) -> Markup {
    let guid = pool.guid.to_string();
    let destroyed = if pool.is_destroyed { "on" } else { "" };
    let hidden = [("pool", guid.as_str()), ("folder", search.folder.trim()), ("destroyed", destroyed)];
    let (name, root) = (format!("new-name-{number}"), format!("altroot-{number}"));
    html! {
        details {
            summary aria-label=(format!("Import {}", pool.name)) { "Import" }
            (parts::form(visitor, "import", &hidden, html! {
                (parts::field(&name, "New name (empty to keep the name)", html! { input id=(name) name="new-name" spellcheck="false"; }))
                (parts::field(&root, "Mount everything below (empty for the usual places)", html! { input id=(root) name="root" spellcheck="false"; }))
                // A pool says where its file systems are mounted, and a foreign pool may say anything.
                @for (name, text) in BOXES { label { input type="checkbox" name=(name) checked[name == "no-mount"]; " " (text) } }
                button { "Import" }
            }))
        }
    }
}

//! Creating a pool on disks or images.

use axum::extract::Query;
use dataset::property::dataset::MOUNTPOINT;
use maud::{Markup, html};
use serde::Deserialize;

use super::page::Page;
use super::{frame, parts};
use crate::gate::Visitor;

/// Values that another page proposes.
#[derive(Default, Deserialize)]
pub(crate) struct Proposed {
    #[serde(default)]
    vdevs: String,
}

/// The page with the form.
pub(crate) async fn show(visitor: Visitor, Query(proposed): Query<Proposed>) -> Page {
    let way = [("/new".to_owned(), "New pool".to_owned())];
    let content = html! {
        @if !parts::is_offered(&visitor, "create-pool") { p { "Only the owner can create pools, with a token that may change things." } }
        (create(&visitor, &proposed.vdevs))
        p { "A pool that exists on devices is " a href="/import" { "imported" } " instead." }
    };
    frame::page(&visitor, "New pool", &way, content)
}

fn create(visitor: &Visitor, vdevs: &str) -> Markup {
    html! {
        @if parts::is_offered(visitor, "create-pool") {
            section aria-labelledby="create" {
                h2 id="create" { "Create a pool" }
                p { "To compare layouts first, see " a href="/plan" { "Plan" } "." }
                (parts::form(visitor, "create-pool", &[], html! {
                    (parts::field("pool", "Name", html! { input id="pool" name="pool" required spellcheck="false"; }))
                    (parts::field("vdevs", "Devices: paths of disks, or SIZE:PATH for a new image; groups begin with mirror, raidz1, raidz2, raidz3, spare, log, special or cache", html! {
                        textarea id="vdevs" name="vdevs" rows="4" required spellcheck="false" placeholder="mirror /dev/sdb /dev/sdc" { (vdevs) }
                    }))
                    (parts::field("compression", "Compression", html! {
                        select id="compression" name="compression" {
                            option value="" { "default" }
                            @for word in ["lz4", "zstd", "off"] { option { (word) } }
                        }
                    }))
                    (parts::field(MOUNTPOINT.name, "Mount point (empty for the default)", html! { input id=(MOUNTPOINT.name) name=(MOUNTPOINT.name) spellcheck="false"; }))
                    button { "Create" }
                }))
            }
        }
    }
}

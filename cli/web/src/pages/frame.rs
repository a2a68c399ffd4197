//! What surrounds every page: head, navigation, messages.

use axum::http::StatusCode;
use dataset::name::Name;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use protocol::Failure;

use super::page::Page;
use super::page::status_of;
use crate::gate::Visitor;

/// Links of the navigation: address and text.
const NAVIGATION: [(&str, &str); 4] = [("/", "Pools"), ("/new", "New pool"), ("/plan", "Plan"), ("/tasks", "Commands")];

/// Drawings of vdevs and devices, which pages refer to by name.
const ICONS: &str = include_str!("../../assets/icons.svg");

/// A step on the way to a page: address and name.
pub(super) type Step = (String, String);

/// A page of a signed-in user. `way` leads from the pools to the page.
pub(super) fn page(visitor: &Visitor, title: &str, way: &[Step], content: Markup) -> Page {
    Page(StatusCode::OK, whole(title, Some(visitor), way, content))
}

/// A page that shows a failure.
pub(super) fn failed(visitor: &Visitor, title: &str, way: &[Step], failure: &Failure) -> Page {
    Page(status_of(failure), whole(title, Some(visitor), way, message(failure)))
}

/// A failure with its next steps.
pub(super) fn message(failure: &Failure) -> Markup {
    html! {
        div.message.bad role="alert" {
            p { strong { "Failed: " } (failure.to_string()) }
            @if let Some(hint) = &failure.hint { pre { (hint) } }
        }
    }
}

/// The whole document.
pub(super) fn whole(title: &str, visitor: Option<&Visitor>, way: &[Step], content: Markup) -> Markup {
    let current = way.first().map_or("/", |(address, _)| address.as_str());
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Cenote" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/style.css";
                script src="/assets/app.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (PreEscaped(ICONS))
                header {
                    a.brand href="/" { svg.icon aria-hidden="true" { use href="#icon-cenote" {} } "Cenote" }
                    @if let Some(visitor) = visitor { (navigation(visitor, current)) }
                }
                // A script puts changes of states here, for screen readers.
                p.aside id="announce" role="status" {}
                main id="main" tabindex="-1" {
                    @if way.len() > 1 { (trail(way)) }
                    h1 { (title) }
                    (content)
                }
                footer { p { "Cenote " (env!("CARGO_PKG_VERSION")) } }
            }
        }
    }
}

fn navigation(visitor: &Visitor, current: &str) -> Markup {
    html! {
        nav aria-label="Main" {
            ul {
                @for (address, text) in NAVIGATION {
                    @if visitor.is_owner || address != "/new" {
                        li { a href=(address) aria-current=[(address == current).then_some("page")] { (text) } }
                    }
                }
            }
        }
        form.user method="post" action="/sign-out" {
            input type="hidden" name="form" value=(visitor.form);
            span { (visitor.name) @if visitor.read_only { " (read only)" } }
            button.quiet { "Sign out" }
        }
    }
}

fn trail(way: &[Step]) -> Markup {
    let (last, before) = way.split_last().expect("the way has steps");
    html! {
        nav.trail aria-label="Breadcrumb" {
            ol {
                @for (address, name) in before { li { a href=(address) { (name) } } }
                li { span aria-current="page" { (last.1) } }
            }
        }
    }
}

/// The page of an unknown address.
pub(crate) async fn missing(visitor: Visitor) -> Page {
    let content = html! { p { "No page has this address." } p { a href="/" { "Go to the pools" } } };
    Page(StatusCode::NOT_FOUND, whole("Not found", Some(&visitor), &[], content))
}

/// The step of all pools, first on every way.
pub(super) fn pools() -> Step {
    ("/".to_owned(), "Pools".to_owned())
}

/// The steps to a dataset, or to the dataset of a snapshot: its pool and the datasets above. Of an invalid name, which
/// may be long, only the first step.
pub(super) fn way_to(name: &str) -> Vec<Step> {
    let mut way = vec![pools()];
    let Ok(name) = name.parse::<Name>() else { return way };
    let dataset = name.dataset();
    let dataset = dataset.as_str();
    let ends = dataset.match_indices('/').map(|(at, _)| at).chain([dataset.len()]);
    for (level, end) in ends.enumerate() {
        let name = &dataset[..end];
        if level == 0 {
            way.push((format!("/pool/{name}"), name.to_owned()));
        }
        let leaf = name.rsplit('/').next().unwrap_or(name);
        way.push((
            super::parts::dataset_address(name),
            if level == 0 { format!("{leaf} (root)") } else { leaf.to_owned() },
        ));
    }
    way
}

//! A file system: its children with space bars, its properties with their sources, and its snapshots on a time line.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use dataset::name::{DatasetName, Name};
use dataset::property::dataset::{
    AVAILABLE, CREATION, MOUNTED, MOUNTPOINT, ORIGIN, QUOTA, REFERENCED, USED, USEDBYCHILDREN, USEDBYDATASET,
    USEDBYREFRESERVATION, USEDBYSNAPSHOTS, USERREFS,
};
use dataset::property::{Kinds, Precision, Property, Source, Syntax};
use futures_util::future::try_join3;
use maud::{Markup, html};
use protocol::{DatasetRecord, DatasetRequest, Failure, ListRange, PropertyRecord};
use serde::Deserialize;

use super::page::Page;
use super::{frame, parts};
use crate::app::App;
use crate::ask::MOST;
use crate::gate::Visitor;

/// Rows of one page of children or of snapshots.
const ROWS: usize = 100;

/// Bars on the time line.
const BARS: usize = 120;

/// Properties in lists of children and of snapshots.
const CHILD: [&str; 5] =
    [USED.row().name, AVAILABLE.row().name, REFERENCED.row().name, MOUNTPOINT.row().name, MOUNTED.row().name];
const SNAPSHOT: [&str; 4] = [USED.row().name, REFERENCED.row().name, CREATION.row().name, USERREFS.row().name];

/// The parts of the lists to show.
#[derive(Default, Deserialize)]
pub(crate) struct Parts {
    /// Number of the first child.
    #[serde(default)]
    children: usize,
    /// Number of the first snapshot, newest first.
    #[serde(default)]
    snapshots: usize,
}

/// The page of a file system.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(name): Path<String>,
    Query(from): Query<Parts>,
) -> Page {
    let way = frame::way_to(&name);
    match content(&app, &visitor, &name, &from).await {
        Ok(content) => frame::page(&visitor, &name, &way, content),
        Err(failure) => frame::failed(&visitor, &name, &way, &failure),
    }
}

async fn content(app: &Arc<App>, visitor: &Visitor, name: &str, from: &Parts) -> Result<Markup, Failure> {
    let dataset: DatasetName = name.parse().map_err(|error| Failure::cannot("show", name, error))?;
    let list = |depth, kinds, properties: &[&str], range| DatasetRequest::List {
        root: Some(dataset.clone().into()),
        depth: Some(depth),
        kinds,
        properties: properties.iter().map(|name| (*name).to_owned()).collect(),
        range,
    };
    let pool = dataset.pool();
    // The first entry is the file system itself.
    let shown = ListRange { skip: (from.children as u64).saturating_add(1), most: ROWS as u64 };
    // A service answers several requests at a time. The time line shows all snapshots.
    let (own, (children, listed), mut snapshots) = try_join3(
        app.list::<DatasetRecord, _>(visitor, pool, list(0, Kinds::FILESYSTEM, &[], None), (1, Some)),
        app.list_part(visitor, pool, list(1, Kinds::FILESYSTEM, &CHILD, Some(shown)), (MOST, Row::of)),
        app.list(visitor, pool, list(1, Kinds::SNAPSHOT, &SNAPSHOT, None), (MOST, Row::of)),
    )
    .await?;
    let own = own.into_iter().next().ok_or_else(|| Failure::no_dataset(name))?;
    let below = listed.saturating_sub(1);
    snapshots.retain(|snapshot| snapshot.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('@')));
    snapshots.reverse();
    Ok(html! {
        (summary(&own))
        (controls(visitor, &own))
        section aria-labelledby="children" {
            h2 id="children" { "File systems below (" (below) ")" }
            (child_table(&own, &children, below, from))
            (create(visitor, name))
        }
        section aria-labelledby="snapshots" {
            h2 id="snapshots" { "Snapshots (" (snapshots.len()) ")" }
            (take(visitor, name))
            (time_line(&snapshots))
            (snapshot_table(visitor, name, &snapshots, from))
        }
        section aria-labelledby="properties" {
            h2 id="properties" { "Properties" }
            (property_table(visitor, "set", &[("dataset", name)], &own.properties.iter().collect::<Vec<_>>(), false))
        }
    })
}

/// What a list shows of a dataset or a snapshot.
struct Row {
    name: Box<str>,
    used: u64,
    available: u64,
    referenced: u64,
    creation: i64,
    mountpoint: Box<str>,
    is_mounted: bool,
}

impl Row {
    fn of(record: DatasetRecord) -> Option<Row> {
        Some(Row {
            used: number(&record, USED.name),
            available: number(&record, AVAILABLE.name),
            referenced: number(&record, REFERENCED.name),
            creation: number(&record, CREATION.name) as i64,
            mountpoint: match &record.name {
                Name::Dataset(_) => value(&record, MOUNTPOINT.name).into(),
                _ => Box::default(),
            },
            is_mounted: value(&record, MOUNTED.name) == "yes",
            name: record.name.as_str().into(),
        })
    }

    /// The name without the names above.
    fn leaf(&self) -> &str {
        self.name.rsplit(['/', '@']).next().unwrap_or_default()
    }
}

/// The canonical value of a property; `-` without the property.
pub(super) fn value<'a>(record: &'a DatasetRecord, property: &str) -> &'a str {
    record.properties.iter().find(|known| known.name == property).map_or("-", |known| known.value.as_str())
}

/// The numeric value of a property; 0 without a number.
pub(super) fn number(record: &DatasetRecord, property: &str) -> u64 {
    value(record, property).parse().unwrap_or(0)
}

/// Used and available space, and where the used space belongs.
fn summary(own: &DatasetRecord) -> Markup {
    let of = |name| number(own, name);
    let shares = [
        ("by the data", USEDBYDATASET.row().name),
        ("by snapshots", USEDBYSNAPSHOTS.row().name),
        ("by file systems below", USEDBYCHILDREN.row().name),
        ("reserved", USEDBYREFRESERVATION.row().name),
    ];
    html! {
        (parts::usage(of(USED.row().name), of(USED.row().name).saturating_add(of(AVAILABLE.row().name))))
        p {
            "Used: "
            @for (text, name) in shares.iter().filter(|(_, name)| of(name) > 0) { span { (parts::bytes(of(name))) " " (text) ". " } }
            "Mounted: " (value(own, MOUNTED.row().name)) ", at " code { (value(own, MOUNTPOINT.row().name)) } "."
        }
    }
}

fn controls(visitor: &Visitor, own: &DatasetRecord) -> Markup {
    let name = own.name.as_str();
    let hidden = [("dataset", name)];
    let is_clone = value(own, ORIGIN.row().name) != "-";
    html! {
        div.actions {
            @if visitor.is_owner { a.button href=(super::files::address(name, b"/")) { "Browse files" } " " }
            @if value(own, MOUNTED.name) == "yes" {
                (parts::button(visitor, "unmount", &hidden, "Unmount"))
            } @else {
                (parts::button(visitor, "mount", &hidden, "Mount"))
            }
            @if is_clone { (parts::button(visitor, "promote", &hidden, "Promote")) }
        }
        @if !visitor.read_only {
            details {
                summary { "Rename, destroy, receive" }
                @if name.contains('/') {
                    (parts::form(visitor, "rename", &hidden, html! {
                        (parts::field("rename-to", "New name", html! { input id="rename-to" name="to" value=(name) required spellcheck="false"; }))
                        button { "Rename" }
                    }))
                    (parts::form(visitor, "destroy", &hidden, html! {
                        label { input type="checkbox" name="recursive"; " with everything below and all snapshots" }
                        button { "Destroy" }
                    }))
                }
                (super::streams::receive_forms(visitor, name))
            }
        }
    }
}

fn create(visitor: &Visitor, name: &str) -> Markup {
    parts::form(
        visitor,
        "create",
        &[("dataset", name)],
        html! {
            (parts::field("create-name", "New file system", html! { input id="create-name" name="name" required spellcheck="false"; }))
            (parts::field("create-compression", "Compression", html! {
                select id="create-compression" name="compression" {
                    option value="" { "inherited" }
                    @for word in ["lz4", "zstd", "off"] { option { (word) } }
                }
            }))
            (parts::field("create-quota", "Quota (for example 10G)", html! { input id="create-quota" name=(QUOTA.row().name) size="8"; }))
            button { "Create" }
        },
    )
}

fn take(visitor: &Visitor, name: &str) -> Markup {
    parts::form(
        visitor,
        "snapshot",
        &[("dataset", name)],
        html! {
            (parts::field("snapshot-name", "New snapshot", html! { input id="snapshot-name" name="name" required spellcheck="false"; }))
            label { input type="checkbox" name="recursive"; " also of all file systems below" }
            button { "Take snapshot" }
        },
    )
}

/// A part of the children, with their shares of the space that the file system uses. `total` children exist.
fn child_table(own: &DatasetRecord, children: &[Row], total: usize, from: &Parts) -> Markup {
    let (name, most) = (own.name.as_str(), number(own, USED.name).max(1));
    html! {
        @if total > 0 {
            div.wide { table {
                thead { tr { @for head in ["Name", "Used", "Share", "Available", "Referenced", "Mountpoint"] { th scope="col" { (head) } } } }
                tbody {
                    @for child in children {
                        tr {
                            th scope="row" { a href=(parts::dataset_address(&child.name)) { (child.leaf()) } }
                            td.nowrap { (parts::bytes(child.used)) }
                            td { meter min="0" max=(most) value=(child.used) aria-hidden="true" {} }
                            td { (parts::bytes(child.available)) }
                            td { (parts::bytes(child.referenced)) }
                            td { code { (child.mountpoint) } @if !child.is_mounted { " (not mounted)" } }
                        }
                    }
                }
            } }
            (pager(total, from.children, "children", |children| format!("{}?children={children}&snapshots={}#children", parts::dataset_address(name), from.snapshots)))
        }
    }
}

/// Links to the other parts of a long list.
fn pager(total: usize, from: usize, what: &str, address: impl Fn(usize) -> String) -> Markup {
    let last = total.saturating_sub(1) / ROWS * ROWS;
    // The number comes from the address.
    let from = from.min(total);
    html! {
        @if total > ROWS {
            nav.pager aria-label=(format!("Pages of {what}")) {
                @if from > 0 { a href=(address(0)) { "First" } " " a href=(address(from.saturating_sub(ROWS))) { "Previous" } " " }
                span { (from + 1) " to " (total.min(from + ROWS)) " of " (total) }
                @if from + ROWS < total { " " a href=(address(from + ROWS)) { "Next" } " " a href=(address(last)) { "Last" } }
            }
        }
    }
}

/// The space that snapshots hold alone, over time. Neighbours share a bar if there are many.
fn time_line(snapshots: &[Row]) -> Markup {
    let oldest_first: Vec<&Row> = snapshots.iter().rev().collect();
    let each = oldest_first.len().div_ceil(BARS).max(1);
    let bars: Vec<(u64, &[&Row])> =
        oldest_first.chunks(each).map(|group| (group.iter().map(|snapshot| snapshot.used).sum(), group)).collect();
    let largest = bars.iter().map(|(used, _)| *used).max().unwrap_or(0);
    let most = largest.max(1);
    html! {
        @if snapshots.len() > 1 {
            figure {
                svg.timeline viewBox=(format!("0 0 {} 60", bars.len() * 6)) preserveAspectRatio="none" role="img"
                    aria-label="Space that each snapshot holds alone, oldest at the left" {
                    @for (at, (used, group)) in bars.iter().enumerate() {
                        @let height = (u128::from(*used) * 54 / u128::from(most)) as u64 + 2;
                        rect x=(at * 6) y=(60 - height) width="5" height=(height) {
                            title { (group[0].name) @if group.len() > 1 { " and " (group.len() - 1) " more" } ": " (parts::bytes(*used)) }
                        }
                    }
                }
                figcaption { "Space that each snapshot holds alone, oldest at the left; at most " (parts::bytes(largest)) "." }
            }
        }
    }
}

fn snapshot_table(visitor: &Visitor, name: &str, snapshots: &[Row], from: &Parts) -> Markup {
    html! {
        @if snapshots.is_empty() { p { "No snapshots." } } @else {
            div.wide { table {
                thead { tr { @for head in ["Snapshot", "Taken", "Holds alone", "Referenced", "Files"] { th scope="col" { (head) } } } }
                tbody {
                    @for snapshot in snapshots.iter().skip(from.snapshots).take(ROWS) {
                        @let full = &*snapshot.name;
                        tr {
                            th scope="row" { a href=(parts::snapshot_address(full)) { (snapshot.leaf()) } }
                            td.nowrap { (parts::time(snapshot.creation)) }
                            td { (parts::bytes(snapshot.used)) }
                            td { (parts::bytes(snapshot.referenced)) }
                            td { @if visitor.is_owner { a href=(super::files::address(full, b"/")) { "Browse" } } }
                        }
                    }
                }
            } }
            (pager(snapshots.len(), from.snapshots, "snapshots", |at| format!("{}?children={}&snapshots={at}#snapshots", parts::dataset_address(name), from.children)))
        }
    }
}

/// Properties with values and sources; settable properties have a form, and local values can be inherited.
pub(super) fn property_table(
    visitor: &Visitor,
    action: &str,
    hidden: &[(&str, &str)],
    properties: &[&PropertyRecord],
    of_pool: bool,
) -> Markup {
    let find = if of_pool { Property::of_pool } else { Property::of_dataset };
    let is_constant = |record: &&&PropertyRecord| find(&record.name).is_ok_and(|property| property.is_constant());
    let (constant, own): (Vec<&PropertyRecord>, Vec<_>) = properties.iter().partition(is_constant);
    let table = |properties: &[&PropertyRecord]| {
        html! {
            div.wide { table.properties {
                thead { tr { @for head in ["Property", "Value", "Source", "Change"] { th scope="col" { (head) } } } }
                tbody { @for property in properties { (property_row(visitor, action, hidden, property, of_pool)) } }
            } }
        }
    };
    html! {
        (table(&own))
        @if !constant.is_empty() {
            details {
                summary { (constant.len()) " properties of OpenZFS with a fixed value" }
                (table(&constant))
            }
        }
    }
}

fn property_row(
    visitor: &Visitor,
    action: &str,
    hidden: &[(&str, &str)],
    record: &PropertyRecord,
    of_pool: bool,
) -> Markup {
    let find = if of_pool { Property::of_pool } else { Property::of_dataset };
    let property = find(&record.name).ok();
    let definition = property.as_ref().and_then(Property::definition);
    let syntax = property.as_ref().map(Property::syntax);
    let shown = match syntax {
        Some(Syntax::Date) => record.value.parse().map_or_else(|_| record.value.clone(), parts::time),
        Some(syntax) => syntax.print(&record.value, Precision::Human),
        None => record.value.clone(),
    };
    let is_settable = definition.is_none_or(|definition| definition.is_settable())
        && property.as_ref().is_some_and(|property| !property.is_constant());
    let hidden: Vec<(&str, &str)> = hidden.iter().copied().chain([("property", record.name.as_str())]).collect();
    html! {
        tr {
            th scope="row" title=[definition.map(|definition| definition.help)] { (record.name) }
            td.value { (shown) }
            td { (source(&record.source)) }
            td {
                @if is_settable && parts::is_offered(visitor, action) {
                    details {
                        summary aria-label=(format!("Change {}", record.name)) { "Change" }
                        (parts::form(visitor, action, &hidden, html! {
                            (input(record, syntax))
                            button { "Set" }
                        }))
                        @if !of_pool && record.source == Source::Local {
                            (parts::button(visitor, "inherit", &hidden, "Inherit"))
                        }
                        @if let Some(definition) = definition { p { (definition.help) } }
                    }
                }
            }
        }
    }
}

/// The input of a new value, with the exact present value: a list for a choice of words.
fn input(record: &PropertyRecord, syntax: Option<Syntax>) -> Markup {
    let label = format!("New value of {}", record.name);
    html! {
        @match syntax {
            Some(Syntax::Choice(words)) => select name="value" aria-label=(label) {
                @for word in words { option selected[*word == record.value] { (word) } }
            },
            _ => input name="value" value=(record.value) aria-label=(label) spellcheck="false";
        }
    }
}

fn source(source: &Source) -> Markup {
    html! {
        @match source {
            Source::Inherited(from) => { "inherited from " a href=(parts::dataset_address(from)) { (from) } },
            Source::None => "-",
            source => (source.word()),
        }
    }
}

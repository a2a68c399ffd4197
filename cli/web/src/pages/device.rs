//! One device: its state, what its loss would cost, and what can be done with the device.

use std::sync::Arc;

use axum::extract::{Path, State};
use maud::{Markup, html};
use protocol::{Failure, LossReport, PoolRequest, Response, State as Health, VdevKind, VdevRecord, VdevRole};

use super::page::Page;
use super::{frame, parts, pool};
use crate::app::App;
use crate::gate::Visitor;

/// The page of a device.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path((pool, guid)): Path<(String, u64)>,
) -> Page {
    let mut way = pool::way(&pool);
    way.push((format!("/pool/{pool}/device/{guid}"), "device".to_owned()));
    let pick = |response| if let Response::Status(status) = response { Some(status) } else { None };
    let status = match app.ask(&visitor, &pool, PoolRequest::Status, pick).await {
        Ok(status) => status,
        Err(failure) => return frame::failed(&visitor, "Device", &way, &failure),
    };
    let Some((vdev, parent)) = status.vdevs.iter().find_map(|vdev| find(vdev, guid, None)) else {
        let failure = Failure::cannot("show", guid, "no such device in the pool");
        return frame::failed(&visitor, "Device", &way, &failure);
    };
    let pick = |response| if let Response::Losses(report) = response { Some(report) } else { None };
    let loss = match app.ask(&visitor, &pool, PoolRequest::Losses { devices: devices_of(vdev) }, pick).await {
        Ok(report) => loss(&report),
        Err(failure) => frame::message(&failure),
    };
    let content = html! {
        (facts(vdev, parent))
        section aria-labelledby="loss" { h2 id="loss" { @if vdev.members.is_empty() { "If this device is lost" } @else { "If this vdev is lost" } } (loss) }
        (controls(&visitor, &pool, vdev, parent))
    };
    frame::page(&visitor, &vdev.path, &way, content)
}

/// The GUIDs of a device, or of all devices of a group.
fn devices_of(vdev: &VdevRecord) -> Vec<String> {
    match vdev.members.as_slice() {
        [] => vec![vdev.guid.to_string()],
        members => members.iter().flat_map(devices_of).collect(),
    }
}

fn find<'a>(
    vdev: &'a VdevRecord,
    guid: u64,
    parent: Option<&'a VdevRecord>,
) -> Option<(&'a VdevRecord, Option<&'a VdevRecord>)> {
    if vdev.guid == guid {
        return Some((vdev, parent));
    }
    vdev.members.iter().find_map(|member| find(member, guid, Some(vdev)))
}

fn facts(vdev: &VdevRecord, parent: Option<&VdevRecord>) -> Markup {
    html! {
        p role="status" { (parts::state(vdev.state)) @if let Some(note) = &vdev.note { " " (note) } }
        dl.facts {
            dt { "Path" } dd { code { (vdev.path) } }
            dt { "GUID" } dd { code { (vdev.guid) } }
            @if let Some(parent) = parent { dt { "Vdev" } dd { (parent.path) " " (parts::state(parent.state)) } }
            @if vdev.size > 0 { dt { "Space" } dd { (parts::usage(vdev.allocated, vdev.size)) } }
            dt { "Read errors" } dd { (parts::count(vdev.read_errors)) }
            dt { "Write errors" } dd { (parts::count(vdev.write_errors)) }
            dt { "Checksum errors" } dd { (parts::count(vdev.checksum_errors)) }
        }
    }
}

/// What `pool simulate lose` reports.
fn loss(report: &LossReport) -> Markup {
    let needed: Vec<&str> = report.needed().map(|vdev| vdev.name.as_str()).collect();
    html! {
        @if needed.is_empty() {
            p { (parts::sign(true)) " Nothing would be lost." }
        } @else {
            p { (parts::sign(false)) " The pool could not be imported without " (needed.join(", ")) "." }
        }
        ul {
            @for vdev in &report.vdevs {
                li {
                    (vdev.name) ": "
                    @if vdev.survives { (vdev.left) @if vdev.left == 1 { " complete device" } @else { " complete devices" } " would be left, with all data" } @else { "would be lost" }
                }
            }
            @for idle in &report.idle { li { "The " (idle.kind) " holds no data of its own." } }
        }
        @if report.datasets.iter().any(|dataset| dataset.lost_blocks > 0) {
            div.wide { table {
                thead { tr { @for head in ["Dataset", "Blocks", "Lost blocks", "Files", "Lost files"] { th scope="col" { (head) } } } }
                tbody {
                    @for dataset in report.datasets.iter().filter(|dataset| dataset.lost_blocks > 0).take(1000) {
                        tr {
                            th scope="row" { (dataset.name) }
                            td { @match dataset.blocks { Some(blocks) => (blocks), None => "-" } }
                            td { (dataset.lost_blocks) }
                            td { (dataset.files) }
                            td { (dataset.lost_files) }
                        }
                    }
                }
            } }
        }
    }
}

/// The changes for a vdev or device: a group is removed as a whole, and single devices leave, fail and come back.
fn controls(visitor: &Visitor, pool: &str, vdev: &VdevRecord, parent: Option<&VdevRecord>) -> Markup {
    let guid = vdev.guid.to_string();
    // A group is named as in `pool status`.
    let hidden = [("pool", pool), ("device", if vdev.members.is_empty() { guid.as_str() } else { vdev.path.as_str() })];
    let (is_device, is_data) = (vdev.members.is_empty(), vdev.role != VdevRole::Cache);
    let is_mirrored = parent.is_some_and(|parent| matches!(parent.kind, VdevKind::Mirror | VdevKind::Spare));
    let widens = vdev.kind.parity().is_some();
    html! {
        @if parts::is_offered(visitor, "replace") {
            section aria-labelledby="controls" {
                h2 id="controls" { "Change" }
                div.actions {
                    @if is_device && is_data {
                        @if vdev.state == Health::Online { (parts::button(visitor, "offline", &hidden, "Take offline")) }
                        @else { (parts::button(visitor, "online", &hidden, "Bring online")) }
                    }
                    @if is_mirrored { (parts::button(visitor, "detach", &hidden, "Detach from its mirror")) }
                    @if parent.is_none() { (parts::button(visitor, "remove", &hidden, "Remove from the pool")) }
                }
                @if is_device && is_data {
                    (parts::form(visitor, "replace", &hidden, html! {
                        (parts::field("replace-new", "Replace with (path, or SIZE:PATH for a new image; empty for the same path)",
                            html! { input id="replace-new" name="new" spellcheck="false"; }))
                        button { "Replace" }
                    }))
                }
                @if widens || is_device && is_data && (parent.is_none() || is_mirrored) {
                    @let label = if widens { "Attach to widen the RAID-Z (path, or SIZE:PATH)" } else { "Attach to form or extend a mirror (path, or SIZE:PATH)" };
                    (parts::form(visitor, "attach", &hidden, html! {
                        (parts::field("attach-new", label, html! { input id="attach-new" name="new" required spellcheck="false"; }))
                        button { "Attach" }
                    }))
                }
            }
        }
    }
}

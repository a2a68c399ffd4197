//! The devices of a pool as nested boxes: vdevs, their devices, classes, spares and cache.
//!
//! The boxes are lists, so a screen reader reads the same tree. States are words with signs.

use maud::{Markup, html};
use protocol::{PoolStatus, VdevRecord, VdevRole};

use super::parts;
use crate::watch::{Rate, Rates};

/// All vdevs by class, then the spares.
pub(super) fn devices(status: &PoolStatus, rates: Option<&Rates>, is_owner: bool) -> Markup {
    let pool = status.name.as_str();
    html! {
        div.layout {
            @for (role, vdevs) in VdevRole::groups(&status.vdevs, |vdev| vdev.role) {
                div.class {
                    h3 { (parts::class(role)) span.soft { (purpose(role)) } }
                    ul.vdevs {
                        @for vdev in vdevs { li.vdev { (vdev_box(pool, vdev, rates, is_owner)) } }
                    }
                }
            }
            @if !status.spares.is_empty() {
                div.class {
                    h3 { "Spares" }
                    ul.vdevs {
                        @for spare in &status.spares {
                            li.vdev { (device(pool, "spare", spare, None, false)) }
                        }
                    }
                }
            }
        }
    }
}

/// The purpose of a class, after the name.
fn purpose(role: VdevRole) -> &'static str {
    match role {
        VdevRole::Normal => "",
        VdevRole::Special => ": metadata and small blocks",
        VdevRole::Log => ": synchronous writes",
        VdevRole::Cache => ": second-level reads",
    }
}

fn vdev_box(pool: &str, vdev: &VdevRecord, rates: Option<&Rates>, is_owner: bool) -> Markup {
    let rate = |name: &str| rates.and_then(|rates| rates.devices.get(name)).copied();
    if vdev.members.is_empty() {
        let name = if vdev.role == VdevRole::Cache { "cache" } else { "disk" };
        return device(pool, name, vdev, rate(&vdev.path), is_owner);
    }
    html! {
        p.vdev-name {
            (parts::icon("vdev"))
            @if is_owner && vdev.guid != 0 {
                a href=(format!("/pool/{pool}/device/{}", vdev.guid)) { strong { (vdev.path) } }
            } @else { strong { (vdev.path) } }
            " " (parts::state(vdev.state)) (space(vdev)) (speed(rate(&vdev.path))) }
        ul.devices {
            @for member in &vdev.members {
                li { (vdev_box(pool, member, rates, is_owner)) }
            }
        }
    }
}

fn device(pool: &str, icon: &str, vdev: &VdevRecord, rate: Option<Rate>, is_owner: bool) -> Markup {
    let name = vdev.path.rsplit('/').next().unwrap_or(&vdev.path);
    html! {
        div.device {
            p {
                (parts::icon(icon))
                @if is_owner && vdev.guid != 0 {
                    a href=(format!("/pool/{pool}/device/{}", vdev.guid)) title=(vdev.path) { (name) }
                } @else {
                    span title=(vdev.path) { (name) }
                }
                " " (parts::state(vdev.state))
            }
            @if let Some(note) = &vdev.note { p { (note) } }
            (space(vdev))
            (errors(vdev))
            (speed(rate))
        }
    }
}

/// The space of a vdev; nothing if unknown.
fn space(vdev: &VdevRecord) -> Markup {
    html! { @if vdev.size > 0 { (parts::usage(vdev.allocated, vdev.size)) } }
}

fn errors(vdev: &VdevRecord) -> Markup {
    let counts = [("read", vdev.read_errors), ("write", vdev.write_errors), ("checksum", vdev.checksum_errors)];
    html! {
        @if counts.iter().any(|(_, count)| *count > 0) {
            p.errors {
                "Errors: "
                @for (kind, count) in counts { @if count > 0 { span { (parts::count(count)) " " (kind) " " } } }
            }
        }
    }
}

fn speed(rate: Option<Rate>) -> Markup {
    html! {
        @if let Some(rate) = rate {
            p.speed { "R " (parts::rate(rate.read)) " · W " (parts::rate(rate.written)) }
        }
    }
}

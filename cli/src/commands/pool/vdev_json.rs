//! Vdevs and pools in JSON, for `pool list -j` and `pool status -j`.

use protocol::{AlertRecord, PassRecord, PassState, PoolStatus, VdevKind, VdevRecord, VdevRole};
use serde_json::{Map, Value, json};

use super::{jobs, status::Arguments};
use crate::args::names::DeviceNames;
use crate::output::json::VERSIONS;

/// The class of a spare, as in ZFS.
pub(super) const SPARE: &str = "spare";

/// The class of a vdev in use, as in ZFS.
fn class(vdev: &VdevRecord) -> &'static str {
    match vdev.role {
        VdevRole::Cache => "l2cache",
        role => role.as_str(),
    }
}

/// The fields of a vdev or device in every listing, and its printed name.
fn identity(vdev: &VdevRecord, class: &str, names: DeviceNames) -> (String, Value) {
    let name = names.name(&vdev.path, vdev.guid);
    let mut object = json!({ "name": name, "vdev_type": vdev_type(vdev), "guid": vdev.guid.to_string() });
    if vdev.kind == VdevKind::Disk {
        object["path"] = json!(vdev.path);
    }
    object["class"] = json!(class);
    object["state"] = json!(vdev.state);
    (name, object)
}

/// A vdev or device of `pool list -v`, under its printed name; `properties` gives the columns of each.
pub(super) fn listed(
    vdev: &VdevRecord,
    (class, depth): (&str, usize),
    names: DeviceNames,
    properties: &dyn Fn(&VdevRecord, usize) -> Value,
) -> (String, Value) {
    let (name, mut object) = identity(vdev, class, names);
    object["properties"] = properties(vdev, depth);
    if vdev.kind != VdevKind::Disk {
        let members = vdev.members.iter().map(|member| listed(member, (class, depth + 1), names, properties));
        object["vdevs"] = Value::Object(members.collect());
    }
    (name, object)
}

/// The vdevs of `pool list -v`: normal vdevs, and the others below the headings of ZFS.
pub(super) fn listed_all(
    vdevs: &[VdevRecord],
    spares: &[VdevRecord],
    names: DeviceNames,
    properties: &dyn Fn(&VdevRecord, usize) -> Value,
) -> Value {
    let mut all = Map::new();
    for (role, vdevs) in VdevRole::groups(vdevs, |vdev| vdev.role) {
        let group = vdevs.into_iter().map(|vdev| listed(vdev, (class(vdev), 1), names, properties));
        match role.json_heading() {
            None => all.extend(group),
            Some(heading) => drop(all.insert(heading.to_owned(), Value::Object(group.collect()))),
        }
    }
    if !spares.is_empty() {
        let group = spares.iter().map(|spare| listed(spare, (SPARE, 1), names, properties));
        all.insert("spares".to_owned(), Value::Object(group.collect()));
    }
    Value::Object(all)
}

/// A vdev or device of `pool status`, under its printed name.
fn vdev_json(vdev: &VdevRecord, class: &str, names: DeviceNames) -> (String, Value) {
    let (name, mut object) = identity(vdev, class, names);
    // A spare holds no data.
    if class == SPARE {
        return (name, object);
    }
    for (key, number) in [
        ("total_space", vdev.size),
        ("alloc_space", vdev.allocated),
        ("read_errors", vdev.read_errors),
        ("write_errors", vdev.write_errors),
        ("checksum_errors", vdev.checksum_errors),
    ] {
        object[key] = json!(number.to_string());
    }
    if vdev.kind != VdevKind::Disk {
        let members = vdev.members.iter().map(|member| vdev_json(member, class, names));
        object["vdevs"] = Value::Object(members.collect());
    }
    if let Some(pass) = &vdev.initialization {
        pass_json(&mut object, pass, ["init_state", "initialized", "to_initialize", "init_time", "init_errors"]);
    }
    if let Some(pass) = &vdev.trim {
        object["trim_notsup"] = json!(u64::from(pass.state == PassState::Unsupported).to_string());
        object["trim_percent"] = json!(pass.percent.to_string());
        pass_json(&mut object, pass, ["trim_state", "trimmed", "to_trim", "trim_time", "trim_errors"]);
    }
    if let Some(slow) = vdev.slow {
        object["slow_ios"] = json!(slow.to_string());
    }
    if let Some(note) = &vdev.note {
        object["note"] = json!(note);
    }
    (name, object)
}

/// The status of a pass over free space, under OpenZFS's keys: state, bytes done, bytes in all, time, errors. A pass ends
/// at the first error.
fn pass_json(object: &mut Value, pass: &PassRecord, [state, done, total, time, errors]: [&str; 5]) {
    let word = match pass.state {
        PassState::Unsupported => return,
        PassState::Idle if state == "init_state" => "UNINITIALIZED",
        PassState::Idle => "UNTRIMMED",
        PassState::Active => "ACTIVE",
        PassState::Suspended => "SUSPENDED",
        PassState::Complete => "COMPLETE",
        // OpenZFS has no word for a failure; the pass ended early.
        PassState::Failed => "CANCELED",
    };
    object[state] = json!(word);
    if pass.state != PassState::Idle {
        let changed = if pass.end > 0 { pass.end } else { pass.start };
        object[done] = json!(pass.bytes.to_string());
        object[total] = json!(pass.total.to_string());
        object[time] = json!(changed.to_string());
        object[errors] = json!(u64::from(pass.state == PassState::Failed).to_string());
    }
}

/// `mirror`, `raidz` and the like; of a single device `file` for an image, else `disk`.
fn vdev_type(vdev: &VdevRecord) -> &'static str {
    let is_image = vdev.kind == VdevKind::Disk && vdev.path.starts_with('/') && !vdev.path.starts_with("/dev/");
    match vdev.kind {
        VdevKind::RaidZ1 | VdevKind::RaidZ2 | VdevKind::RaidZ3 => "raidz",
        _ if is_image => "file",
        kind => kind.as_str(),
    }
}

/// The normal vdevs, and the rest by role under the headings of ZFS.
fn vdevs_json(vdevs: &[VdevRecord], names: DeviceNames) -> (Map<String, Value>, Map<String, Value>) {
    let object = |vdevs: Vec<&VdevRecord>| vdevs.iter().map(|vdev| vdev_json(vdev, class(vdev), names)).collect();
    let (mut normal, mut others) = (Map::new(), Map::new());
    for (role, vdevs) in VdevRole::groups(vdevs, |vdev| vdev.role) {
        match role.json_heading() {
            None => normal = object(vdevs),
            Some(heading) => drop(others.insert(heading.to_owned(), Value::Object(object(vdevs)))),
        }
    }
    (normal, others)
}

/// The pools of `pool status -j`.
pub(super) fn encode(all: &[PoolStatus], arguments: &Arguments) -> Value {
    let entry = |status: &PoolStatus| {
        let mut object = pool_json(status, arguments.names);
        if arguments.json_flat_vdevs {
            flatten_all(&mut object);
        }
        if arguments.json_int {
            integers(&mut object);
        }
        (arguments.key.of(&status.name, status.guid), object)
    };
    Value::Object(all.iter().map(entry).collect())
}

fn pool_json(status: &PoolStatus, names: DeviceNames) -> Value {
    let (vdevs, others) = vdevs_json(&status.vdevs, names);
    let mut object = json!({
        "name": status.name,
        "state": status.state,
        "pool_guid": status.guid.to_string(),
        "txg": Some(status.txg).filter(|txg| *txg > 0).map(|txg| txg.to_string()),
        "status": status.status,
        "action": status.action,
        "alerts": status.alerts.iter().map(alert_json).collect::<Vec<_>>(),
        "next_scrub": status.next_scrub.map(|time| time.to_string()),
        "activity": status.activity,
        "transports": status.transports,
    });
    for (key, version) in VERSIONS {
        object[key] = json!(version.to_string());
    }
    for (_, key, kinds) in jobs::ROWS {
        object[key] = json!(jobs::find(&status.jobs, kinds).map(jobs::encode));
    }
    object["vdevs"] = json!({ status.name.as_str(): root(status, vdevs) });
    if !status.spares.is_empty() {
        let spares = status.spares.iter().map(|spare| vdev_json(spare, SPARE, names));
        object["spares"] = Value::Object(spares.collect());
    }
    object["error_count"] = json!(status.damaged.as_ref().map(|names| names.len().to_string()));
    object["errlist"] = json!(status.damaged);
    object["unexamined_count"] = json!(status.unexamined.to_string());
    let members = object.as_object_mut().expect("it is one");
    members.extend(others);
    // Fields without a value are absent, as in ZFS.
    members.retain(|_, value| !value.is_null());
    object
}

/// An alert of a pool.
fn alert_json(alert: &AlertRecord) -> Value {
    json!({
        "class": alert.word,
        "severity": alert.severity.as_str(),
        "subject": alert.subject,
        "problem": alert.problem,
        "action": alert.action,
    })
}

/// The root vdev, with the space of the normal vdevs. Errors are counted at the vdevs below.
fn root(status: &PoolStatus, vdevs: Map<String, Value>) -> Value {
    let normal = || status.vdevs.iter().filter(|vdev| vdev.role == VdevRole::Normal);
    json!({
        "name": status.name,
        "vdev_type": "root",
        "guid": status.guid.to_string(),
        "class": "normal",
        "state": status.state,
        "total_space": normal().map(|vdev| vdev.size).sum::<u64>().to_string(),
        "alloc_space": normal().map(|vdev| vdev.allocated).sum::<u64>().to_string(),
        "read_errors": "0",
        "write_errors": "0",
        "checksum_errors": "0",
        "vdevs": vdevs,
    })
}

/// Lifts all devices of a pool, spares and vdevs of other roles included, to the level of the root vdev.
fn flatten_all(pool: &mut Value) {
    let Some(members) = pool.as_object_mut() else { return };
    let roles = [VdevRole::Special, VdevRole::Log, VdevRole::Cache].map(VdevRole::json_heading);
    let mut flat = Map::new();
    for key in std::iter::once("vdevs").chain(roles.into_iter().flatten()).chain(["spares"]) {
        if let Some(Value::Object(vdevs)) = members.remove(key) {
            flatten(vdevs, None, &mut flat);
        }
    }
    members.insert("vdevs".to_owned(), Value::Object(flat));
}

/// Adds vdevs and all below to `flat`, each with the name of its parent.
fn flatten(vdevs: Map<String, Value>, parent: Option<&str>, flat: &mut Map<String, Value>) {
    for (name, mut vdev) in vdevs {
        let below = vdev.as_object_mut().and_then(|vdev| vdev.remove("vdevs"));
        if let Some(parent) = parent {
            vdev["parent"] = json!(parent);
        }
        flat.insert(name.clone(), vdev);
        if let Some(Value::Object(below)) = below {
            flatten(below, Some(&name), flat);
        }
    }
}

/// Turns texts of whole numbers into numbers, except names.
pub(super) fn integers(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let numbers = object.iter_mut().filter(|(key, _)| !matches!(key.as_str(), "name" | "path" | "parent"));
            numbers.for_each(|(_, value)| integers(value));
        }
        Value::String(text) => {
            if let Ok(number) = text.parse::<u64>() {
                *value = json!(number);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_flat_and_numbers_are_integers_on_request() {
        let mut pool = json!({
            "vdevs": { "7": { "name": "7", "vdevs": { "mirror-0": { "guid": "9", "vdevs": { "sda": {} } } } } },
            "logs": { "sdb": {} },
            "spares": { "sdc": {} },
        });
        flatten_all(&mut pool);
        integers(&mut pool);
        let flat = json!({
            "7": { "name": "7" },
            "mirror-0": { "guid": 9, "parent": "7" },
            "sda": { "parent": "mirror-0" },
            "sdb": {},
            "sdc": {},
        });
        assert_eq!(pool, json!({ "vdevs": flat }));
    }
}

//! Vdevs and pools in JSON, for `pool list -j` and `pool status -j`.

use protocol::{PassRecord, PassState, PoolStatus, VdevKind, VdevRecord, VdevRole};
use serde_json::{Map, Value, json};

use super::{jobs, status::Arguments};
use crate::args::names::DeviceNames;

/// The version of pools and of file systems in OpenZFS with feature flags.
const VERSIONS: [(&str, &str); 2] = [("spa_version", "5000"), ("zpl_version", "5")];

/// A vdev or device, under its printed name.
pub(super) fn vdev_json(vdev: &VdevRecord, names: DeviceNames) -> (String, Value) {
    let name = names.name(&vdev.path, vdev.guid);
    let mut object = json!({
        "name": name,
        "vdev_type": vdev_type(vdev),
        "guid": vdev.guid.to_string(),
        "path": vdev.path,
        "state": vdev.state,
        "total_space": vdev.size.to_string(),
        "alloc_space": vdev.allocated.to_string(),
        "read_errors": vdev.read_errors.to_string(),
        "write_errors": vdev.write_errors.to_string(),
        "checksum_errors": vdev.checksum_errors.to_string(),
    });
    if vdev.kind != VdevKind::Disk {
        object["vdevs"] = Value::Object(vdev.members.iter().map(|member| vdev_json(member, names)).collect());
    }
    if vdev.role != VdevRole::Normal {
        object["class"] = json!(vdev.role.as_str());
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
    };
    object[state] = json!(word);
    if pass.state != PassState::Idle {
        let changed = if pass.end > 0 { pass.end } else { pass.start };
        object[done] = json!(pass.bytes.to_string());
        object[total] = json!(pass.total.to_string());
        object[time] = json!(changed.to_string());
        object[errors] = json!("0");
    }
}

/// `mirror`, `raidz1` and the like; of a single device `file` for an image, else `disk`.
fn vdev_type(vdev: &VdevRecord) -> &'static str {
    let is_image = vdev.kind == VdevKind::Disk && vdev.path.starts_with('/') && !vdev.path.starts_with("/dev/");
    if is_image { "file" } else { vdev.kind.as_str() }
}

/// The normal vdevs, and the rest by role under the headings of ZFS.
pub(super) fn vdevs_json(vdevs: &[VdevRecord], names: DeviceNames) -> (Map<String, Value>, Map<String, Value>) {
    let object = |vdevs: Vec<&VdevRecord>| vdevs.iter().map(|vdev| vdev_json(vdev, names)).collect();
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
            flatten(&mut object["vdevs"]);
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
        "activity": status.activity,
        "transports": status.transports,
    });
    for (key, version) in VERSIONS {
        object[key] = json!(version);
    }
    for (_, key, kinds) in jobs::ROWS {
        object[key] = json!(jobs::find(&status.jobs, kinds).map(jobs::encode));
    }
    object["vdevs"] = json!({ status.name.as_str(): root(status, vdevs) });
    object["spares"] = Value::Object(status.spares.iter().map(|spare| vdev_json(spare, names)).collect());
    object["error_count"] = json!(status.damaged.as_ref().map(|names| names.len().to_string()));
    object["errlist"] = json!(status.damaged);
    object["unexamined_count"] = json!(status.unexamined.to_string());
    object.as_object_mut().expect("it is one").extend(others);
    object
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

/// Lifts all devices to the level of the root vdev.
fn flatten(vdevs: &mut Value) {
    let Some(level) = vdevs.as_object_mut() else { return };
    let mut flat = Map::new();
    for (name, mut vdev) in std::mem::take(level) {
        let below = vdev.as_object_mut().and_then(|vdev| vdev.remove("vdevs"));
        flat.insert(name, vdev);
        if let Some(mut below) = below {
            flatten(&mut below);
            flat.extend(below.as_object_mut().map(std::mem::take).unwrap_or_default());
        }
    }
    *level = flat;
}

/// Turns texts of whole numbers into numbers, except names.
fn integers(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let numbers = object.iter_mut().filter(|(key, _)| !matches!(key.as_str(), "name" | "path"));
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
        let mut vdevs =
            json!({ "7": { "name": "7", "vdevs": { "mirror-0": { "guid": "9", "vdevs": { "sda": {} } } } } });
        flatten(&mut vdevs);
        integers(&mut vdevs);
        assert_eq!(vdevs, json!({ "7": { "name": "7" }, "mirror-0": { "guid": 9 }, "sda": {} }));
    }
}

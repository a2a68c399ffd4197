//! JSON field by field: names, nesting and types as OpenZFS 2.4 has them, and the fields that Cenote adds.

use serde_json::{Map, Value};

use crate::lab::Lab;

/// The type of a field.
#[derive(Clone, Copy, Debug)]
enum Type {
    /// A text.
    Text,
    /// A number: a text, or an integer with `--json-int`.
    Number,
    /// An object, checked by a list of its own.
    Object,
}

use Type::{Number, Object, Text};

/// The fields of one kind of object: OpenZFS's, which are always there, and fields that may be there.
struct Fields {
    always: &'static [(&'static str, Type)],
    maybe: &'static [&'static str],
}

const VERSION: Fields =
    Fields { always: &[("command", Text), ("vers_major", Number), ("vers_minor", Number)], maybe: &[] };

const POOL: &[(&str, Type)] = &[
    ("name", Text),
    ("state", Text),
    ("pool_guid", Number),
    ("txg", Number),
    ("spa_version", Number),
    ("zpl_version", Number),
];

/// A pool of `pool list` and `pool get`.
const LISTED: Fields = Fields { always: &[("type", Text), ("properties", Object)], maybe: &["vdevs"] };

/// A pool of `pool status`.
const STATUS: Fields = Fields {
    always: &[("vdevs", Object), ("error_count", Number)],
    maybe: &[
        "status",
        "action",
        "scan_stats",
        "removal_stats",
        "raidz_expand_stats",
        "logs",
        "special",
        "l2cache",
        "spares",
        "errlist",
        // Only here.
        "activity",
        "transports",
        "alerts",
        "next_scrub",
        "unexamined_count",
        "rebalance_stats",
        "defragment_stats",
        "resize_stats",
    ],
};

const SCAN: Fields = Fields {
    always: &[
        ("function", Text),
        ("state", Text),
        ("start_time", Number),
        ("end_time", Number),
        ("to_examine", Number),
        ("examined", Number),
        ("skipped", Number),
        ("processed", Number),
        ("errors", Number),
        ("bytes_per_scan", Number),
        ("pass_start", Number),
        ("issued_bytes_per_scan", Number),
        ("issued", Number),
    ],
    maybe: &["paused", "seconds", "limit", "repaired"],
};

const IDENTITY: &[(&str, Type)] =
    &[("name", Text), ("vdev_type", Text), ("guid", Number), ("class", Text), ("state", Text)];

/// A vdev or device of `pool status`, except a spare.
const FIGURES: &[(&str, Type)] = &[
    ("alloc_space", Number),
    ("total_space", Number),
    ("read_errors", Number),
    ("write_errors", Number),
    ("checksum_errors", Number),
];

const INITIALIZATION: &[&str] = &["init_state", "initialized", "to_initialize", "init_time", "init_errors"];
const TRIM: &[&str] = &["trim_state", "trimmed", "to_trim", "trim_time", "trim_errors", "trim_notsup"];

const DATASET: Fields = Fields {
    always: &[("name", Text), ("type", Text), ("pool", Text), ("createtxg", Number), ("properties", Object)],
    maybe: &["dataset", "snapshot_name"],
};

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("not an object: {value}"))
}

/// Checks that the fields are there, with their types, and that no others are.
#[track_caller]
fn check(value: &Value, lists: &[&[(&str, Type)]], maybe: &[&str], integers: bool) {
    let always: Vec<&(&str, Type)> = lists.iter().copied().flatten().collect();
    for (name, kind) in &always {
        let field = &value[*name];
        let fits = match kind {
            Text => field.is_string(),
            Number if integers => field.is_u64(),
            Number => field.as_str().is_some_and(|text| text.parse::<u64>().is_ok()),
            Object => field.is_object(),
        };
        assert!(fits, "{name} is to be {kind:?}: {value}");
    }
    for name in object(value).keys() {
        let is_known = always.iter().any(|(known, _)| known == name) || maybe.contains(&name.as_str());
        assert!(is_known, "{name}: {value}");
    }
}

fn check_properties(value: &Value, integers: bool) {
    for (name, property) in object(value) {
        assert!(property["value"].is_string() || integers && property["value"].is_u64(), "{name}: {property}");
        check(&property["source"], &[&[("type", Text), ("data", Text)]], &[], integers);
        assert_eq!(object(property).len(), 2, "{name}: {property}");
    }
}

/// Checks a vdev of `pool list -v` with all below.
fn check_listed(vdev: &Value, integers: bool) {
    check(vdev, &[IDENTITY, &[("properties", Object)]], &["path", "vdevs"], integers);
    check_properties(&vdev["properties"], integers);
    let below = vdev["vdevs"].as_object();
    assert_eq!(below.is_some(), vdev["path"].is_null(), "devices have paths: {vdev}");
    below.into_iter().flatten().for_each(|(_, vdev)| check_listed(vdev, integers));
}

/// Checks a vdev of `pool status -it` with all below.
fn check_status(vdev: &Value, integers: bool) {
    let ours = ["note", "trim_percent", "parent"];
    let maybe: Vec<&str> = [INITIALIZATION, TRIM, &ours, &["path", "vdevs", "slow_ios"]].concat();
    match vdev["class"].as_str() {
        Some("spare") => check(vdev, &[IDENTITY], &maybe, integers),
        _ => check(vdev, &[IDENTITY, FIGURES], &maybe, integers),
    }
    if vdev["path"].is_string() && vdev["class"] != "spare" {
        check(vdev, &[IDENTITY, FIGURES, &[("slow_ios", Number)]], &maybe, integers);
    }
    vdev["vdevs"].as_object().into_iter().flatten().for_each(|(_, vdev)| check_status(vdev, integers));
}

/// The answer to a command, with its first field checked.
fn asked(lab: &Lab, program: &str, words: &[&str], command: &str) -> Value {
    let json: Value = serde_json::from_str(&lab.run(program, words).ok()).unwrap();
    check(&json["output_version"], &[VERSION.always], VERSION.maybe, true);
    assert_eq!(json["output_version"]["command"], format!("{program} {command}"));
    json
}

#[test]
fn json_has_the_fields_of_openzfs() {
    let lab = Lab::mountless();
    let vdevs = ["mirror", "80M:a.img", "80M:b.img", "log", "64M:l.img", "cache", "64M:c.img", "spare", "80M:s.img"];
    lab.pool(&[&["create", "-m", "none", "tank"][..], &vdevs].concat());
    lab.pool(&["scrub", "-w", "tank"]);
    lab.fs(&["create", "tank/home"]);
    lab.fs(&["snapshot", "tank/home@a"]);
    for int in [&[][..], &["--json-int"]] {
        let integers = !int.is_empty();
        let json = asked(&lab, "pool", &[&["status", "-jit", "tank"], int].concat(), "status");
        let tank = &json["pools"]["tank"];
        check(tank, &[POOL, STATUS.always, &[("scan_stats", Object)]], STATUS.maybe, integers);
        check(&tank["scan_stats"], &[SCAN.always], SCAN.maybe, integers);
        for group in ["vdevs", "logs", "l2cache", "spares"] {
            assert_eq!(object(&tank[group]).len(), 1, "{group}");
            object(&tank[group]).values().for_each(|vdev| check_status(vdev, integers));
        }
        let root = &tank["vdevs"]["tank"];
        assert_eq!((&root["vdev_type"], &root["vdevs"]["mirror-0"]["vdev_type"]), (&"root".into(), &"mirror".into()));
        let a = &root["vdevs"]["mirror-0"]["vdevs"][&lab.at("a.img")];
        let states = [&a["init_state"], &a["trim_state"], &a["class"], &a["vdev_type"]];
        assert_eq!(states, ["UNINITIALIZED", "UNTRIMMED", "normal", "file"]);

        let flat = asked(&lab, "pool", &[&["status", "-j", "--json-flat-vdevs", "tank"], int].concat(), "status");
        let flat = object(&flat["pools"]["tank"]["vdevs"]);
        assert_eq!(flat.len(), 7, "{flat:?}");
        flat.values().for_each(|vdev| check_status(vdev, integers));
        assert_eq!([&flat[&lab.at("b.img")]["parent"], &flat["mirror-0"]["parent"]], ["mirror-0", "tank"]);

        let json = asked(&lab, "pool", &[&["list", "-vj", "tank"], int].concat(), "list");
        let tank = &json["pools"]["tank"];
        check(tank, &[POOL, LISTED.always], LISTED.maybe, integers);
        check_properties(&tank["properties"], integers);
        for (name, vdev) in object(&tank["vdevs"]) {
            match name.as_str() {
                "logs" | "l2cache" | "spares" => object(vdev).values().for_each(|vdev| check_listed(vdev, integers)),
                _ => check_listed(vdev, integers),
            }
        }
        assert_eq!(object(&tank["vdevs"]).len(), 4);

        let json = asked(&lab, "pool", &[&["get", "-j", "all", "tank"], int].concat(), "get");
        check(&json["pools"]["tank"], &[POOL, LISTED.always], &[], integers);
        check_properties(&json["pools"]["tank"]["properties"], integers);
        let by_guid = asked(&lab, "pool", &[&["list", "-j", "--json-pool-key-guid"], int].concat(), "list");
        let (key, pool) = object(&by_guid["pools"]).iter().next().unwrap();
        assert_eq!(pool["pool_guid"].to_string().trim_matches('"'), key);

        for words in [&["list", "-jt", "all"][..], &["get", "-jt", "all", "all"]] {
            let json = asked(&lab, "fs", &[words, int].concat(), words[0]);
            for dataset in object(&json["datasets"]).values() {
                check(dataset, &[DATASET.always], DATASET.maybe, integers);
                check_properties(&dataset["properties"], integers);
                assert_eq!(dataset["snapshot_name"].is_string(), dataset["type"] == "SNAPSHOT");
            }
        }
    }
    for program in ["pool", "fs"] {
        let json = asked(&lab, program, &["version", "-j"], "version");
        check(&json["zfs_version"], &[&[("userland", Text), ("kernel", Text)]], &[], false);
    }
}

//! What the commands count of the activity on mounts.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
};

use serde_json::Value;

use crate::{lab::Lab, mounted};

/// The figures of a dataset, or of the total, in `fs stat -j`.
fn counted(lab: &Lab, dataset: &str) -> BTreeMap<String, u64> {
    let shown: Value = serde_json::from_str(&lab.fs(&["stat", "-j"])).unwrap();
    let figures = match dataset {
        "total" => &shown["figures"]["total"],
        dataset => &shown["figures"]["datasets"][dataset],
    };
    let number = |value: &Value| value.as_str().unwrap().parse().unwrap();
    figures.as_object().unwrap().iter().map(|(name, value)| (name.clone(), number(value))).collect()
}

#[test]
fn the_requests_of_programs_are_counted_by_dataset() {
    let Some(lab) = mounted(&["tank", "pond"]) else { return };
    let (tank, before) = (lab.mount("tank"), counted(&lab, "tank"));
    fs::create_dir(tank.join("folder")).unwrap();
    for name in ["a", "b"] {
        fs::write(tank.join("folder").join(name), vec![7; 10_000]).unwrap();
    }
    fs::rename(tank.join("folder/a"), tank.join("folder/c")).unwrap();
    fs::hard_link(tank.join("folder/c"), tank.join("folder/d")).unwrap();
    fs::remove_file(tank.join("folder/b")).unwrap();
    assert_eq!(fs::read_dir(tank.join("folder")).unwrap().count(), 2);
    let after = counted(&lab, "tank");
    let grown = |name: &str| after[name] - before[name];
    assert_eq!(["new_file", "name_change", "name_removal"].map(grown), [3, 2, 1]);
    assert_eq!(["write_ops", "write_bytes"].map(grown), [2, 20_000]);
    assert!(grown("readdir_ops") > 0 && grown("lookup_ops") > 0, "{after:?}");
    assert!(counted(&lab, "total")["write_bytes"] >= 20_000);
    assert_eq!(counted(&lab, "pond")["new_file"], 0);
}

#[test]
fn reads_are_counted_as_the_kernel_sends_them() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let path = lab.mount("tank").join("file");
    fs::write(&path, vec![7; 100_000]).unwrap();
    lab.fs(&["unmount", "tank"]);
    lab.fs(&["mount", "tank"]);
    assert_eq!(counted(&lab, "tank")["write_bytes"], 0, "the count begins at the mount");
    let file = File::open(&path).unwrap();
    file.read_exact_at(&mut [0; 100_000], 0).unwrap();
    let once = counted(&lab, "tank");
    assert!(once["read_ops"] > 0 && once["read_bytes"] >= 100_000, "{once:?}");
    file.read_exact_at(&mut [0; 100_000], 0).unwrap();
    assert_eq!(counted(&lab, "tank")["read_bytes"], once["read_bytes"], "the kernel's cache answers");
}

#[test]
fn a_report_has_the_columns_of_fsstat() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "tank/home"]);
    let shown = lab.fs(&["stat"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        "new name name attr attr lookup rddir read read write write"
    );
    assert!(lines[2].ends_with(" tank") && lines[3].ends_with(" tank/home") && lines[4].ends_with(" total"), "{shown}");
    let two = lab.fs(&["stat", "-H", "-p", "-T", "u", "0.1", "2", "tank/home"]);
    let rows: Vec<&str> = two.lines().collect();
    assert_eq!((rows.len(), rows[1].split('\t').count()), (6, 12), "{two}");
    assert_eq!(rows[4], "0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\ttank/home");
    lab.fs(&["unmount", "tank/home"]);
    let said = lab.run("fs", &["stat", "tank/home"]).fails(1);
    assert!(said.contains("not mounted"), "{said}");
    lab.run("fs", &["stat", "1", "2", "3"]).fails(2);
}

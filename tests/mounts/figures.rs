//! What the commands count of the activity on mounts.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    lab::{Lab, Stopped},
    mounted,
};

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

/// The counts of a histogram in JSON together.
fn sum(buckets: &Value) -> u64 {
    buckets.as_array().unwrap().iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn requests_to_devices_are_measured_by_class() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let path = lab.mount("tank").join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&vec![7; 2 << 20], 0).unwrap();
    file.sync_all().unwrap();
    lab.pool(&["sync", "tank"]);
    lab.pool(&["scrub", "-w", "tank"]);
    lab.pool(&["trim", "-w", "tank"]);
    let shown: Value = serde_json::from_str(&lab.pool(&["iostat", "-jwr", "tank"])).unwrap();
    let tank = &shown["pools"]["tank"];
    let (waits, sizes) = (&tank["latency_histogram"], &tank["request_size_histogram"]);
    for way in ["read", "write"] {
        let (total, disk) = (sum(&waits["total_wait"][way]), sum(&waits["disk_wait"][way]));
        assert!(total > 0 && total == disk, "{way}: {total} {disk}");
    }
    for class in ["sync_write", "async_write", "scrub", "trim"] {
        assert!(sum(&sizes[class]["ind"]) + sum(&sizes[class]["agg"]) > 0, "{class}: {sizes}");
    }
    assert!(sum(&sizes["scrub"]["agg"]) > 0, "adjacent blocks are read together: {sizes}");
    let device = tank["vdevs"].as_object().unwrap().values().next().unwrap();
    assert_eq!(device["latency_histogram"], *waits, "a pool of one device has its figures");
}

#[test]
fn latency_and_queues_are_columns_and_histograms_stand_alone() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let table = lab.pool(&["iostat", "-vlq", "tank"]);
    let lines: Vec<&str> = table.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(head[3..10], ["total_wait", "disk_wait", "syncq_wait", "asyncq_wait", "scrub", "trim", "rebuild"]);
    assert_eq!(head[10..12], ["syncq_read", "syncq_write"]);
    assert_eq!(lines[3].split_whitespace().count(), 1 + 6 + 11 + 14, "{table}");
    let rows = lab.pool(&["iostat", "-Hpwy", "tank", "0.1", "1"]);
    assert_eq!((rows.lines().count(), rows.lines().next().unwrap().split('\t').next()), (37, Some("1")));
    let sizes = lab.pool(&["iostat", "-vr", "tank"]);
    assert_eq!(sizes.matches("req_size").count(), 2, "of the pool and of its device: {sizes}");
    lab.run("pool", &["iostat", "-lw", "tank"]).fails(2);
}

/// A figure of `pool stat -j`.
fn cached(lab: &Lab, figure: &str) -> u64 {
    let shown: Value = serde_json::from_str(&lab.pool(&["stat", "--cache", "-j", "tank"])).unwrap();
    shown["pools"]["tank"]["cache"][figure].as_str().unwrap().parse().unwrap()
}

#[test]
fn the_cache_counts_what_it_answers() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["set", "compression=off", "tank"]);
    fs::write(lab.mount("tank").join("file"), vec![7; 1 << 20]).unwrap();
    // An import begins with empty caches.
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at("tank.img"), "tank"]);
    let text = vec![7; 1 << 20];
    assert!(fs::read(lab.mount("tank").join("file")).unwrap() == text);
    let (hits, misses, data) = (cached(&lab, "data_hits"), cached(&lab, "data_misses"), cached(&lab, "data_size"));
    assert!(misses > 0 && data >= 1 << 20, "{misses} {data}");
    assert!(lab.fs_bytes(&["cat", "tank:/file"]) == text);
    assert!(cached(&lab, "data_hits") >= hits + 8, "the second reader finds all records in memory");
    assert_eq!(cached(&lab, "data_misses"), misses);
    assert!(cached(&lab, "metadata_hits") > 0 && cached(&lab, "metadata_size") > 0);
    assert!(cached(&lab, "size") <= cached(&lab, "target") && cached(&lab, "resident_size") > data);
    let page = lab.pool(&["stat", "tank", "0.1", "2"]);
    assert_eq!((page.matches("  pool: tank").count(), page.matches("hit%").count()), (2, 2), "{page}");
    let row = lab.pool(&["stat", "-Hp"]);
    assert_eq!(row.trim_end().split('\t').count(), 20, "{row}");
}

/// The image lies on another pool, whose service is stopped for a while.
#[test]
fn a_slow_device_is_reported_until_the_report_is_cleared() {
    let Some(lab) = mounted(&["outer"]) else { return };
    let image = lab.mount("outer").join("inner.img").display().to_string();
    let place = lab.mount("inner").display().to_string();
    lab.pool(&["create", "-m", &place, "inner", &format!("64M:{image}")]);
    for limit in ["slow_io_ms=500", "slow_io_n=1", "slow_io_t=60"] {
        lab.pool(&["set", limit, "inner"]);
    }
    let slow = |lab: &Lab| {
        let shown: Value = serde_json::from_str(&lab.pool(&["status", "-sj", "inner"])).unwrap();
        let count = &shown["pools"]["inner"]["vdevs"]["inner"]["vdevs"][&image]["slow_ios"];
        count.as_str().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(slow(&lab), 0);
    let stopped = Stopped::new(lab.service("outer").unwrap());
    fs::write(lab.mount("inner").join("file"), "text").unwrap();
    let mut syncing = lab.command("pool", &["sync", "inner"]).spawn().unwrap();
    thread::sleep(Duration::from_secs(1));
    drop(stopped);
    assert!(syncing.wait().unwrap().success());
    assert!(slow(&lab) > 0);
    let said = lab.pool(&["status", "-s", "inner"]);
    assert!(said.contains("state: ONLINE") && said.contains("CKSUM  SLOW"), "{said}");
    assert!(said.contains("takes long to answer") && said.contains("pool replace inner"), "{said}");
    assert!(lab.pool(&["events", "inner"]).contains("ereport.fs.zfs.delay"));
    lab.pool(&["clear", "inner"]);
    assert_eq!(lab.pool(&["status", "-x", "inner"]), "pool 'inner' is healthy\n");
    assert_eq!(slow(&lab), 0);
    lab.unharmed();
}

#[test]
fn the_activity_of_processes_is_shown_by_file() {
    let Some(lab) = mounted(&["tank"]) else { return };
    fs::create_dir(lab.mount("tank").join("folder")).unwrap();
    let top = lab.command("fs", &["top", "-j", "-n", "1", "-d", "2", "tank"]).stdout(Stdio::piped()).spawn().unwrap();
    let file = File::create(lab.mount("tank").join("folder/busy")).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        file.write_all_at(&[7; 4096], 0).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    let output = top.wait_with_output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = shown["activity"].as_array().unwrap();
    let row = rows.iter().find(|row| row["path"] == "/folder/busy").unwrap_or_else(|| panic!("{shown}"));
    let number = |key: &str| row[key].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!((number("pid"), &row["dataset"]), (u64::from(std::process::id()), &Value::from("tank")));
    assert!(number("write_ops") > 0 && number("write_bytes") == 4096 * number("write_ops"), "{row}");
    let said = lab.run("fs", &["top", "-n", "1", "-d", "0.2", "tank"]).text();
    assert!(said.contains("no requests in this interval") || said.contains("PROGRAM"), "{said}");
    lab.run("fs", &["top", "-n", "1", "pond"]).fails(1);
    lab.run("fs", &["top", "-d", "60", "tank"]).fails(2);
}
